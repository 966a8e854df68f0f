"""Reads what a run folder holds, and says what it does not hold.

Whatever is missing or damaged becomes a note and an empty value: a run that failed early still gets its report.
The only error is a folder that is no run folder at all. Nothing here computes or formats.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.operation import load_yaml
from pipelines.run_folder import TIME, RunFolder
from raydt.arrays.blocks import numpy_column
from raydt.encoding.columns import number_of
from raydt.errors import ConfigError, InputError, ModelFileError
from raydt.folders.arrays import MANIFEST, load_folder, parsed
from raydt.keyed.packing import open_keys
from raydt.learners import described
from raydt.learners.description import Description, RunRecords
from raydt.messages import Message, message, quoted
from raydt.presentation.blocks import Block
from raydt.presentation.charts import (
    Chart,
    Clock,
    Columns,
    count,
    counted,
    duration,
    number,
    size,
    updates_axis,
    whole_windows,
)
from raydt.presentation.trees import Names
from raydt.sessions.saved_model import understood

QUARANTINE_SHOWN = 20


@dataclass(slots=True)
class ReportedRun(RunRecords):
    """The content of one run folder; a missing or damaged piece is empty.

    Of a run in chapters it has the tables of all that are there, and the rest of the newest one that has ended.
    """

    path: Path = Path()
    chapters: list[dict[str, Any]] = field(default_factory=list)  #: the summary of each chapter, and its ``folder``
    config_text: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    alarms: Columns = field(default_factory=dict)
    keys: Columns = field(default_factory=dict)  #: of a run with a model for each key: a row for each
    quarantine: list[dict[str, Any]] = field(default_factory=list)  #: the first skipped rows
    quarantined: int = 0  #: all skipped rows
    moments: bool = False  #: event times are points in time, not integers of the user's unit
    notes: list[Message] = field(default_factory=list)  #: what is missing or damaged, one sentence each

    @property
    def kind(self) -> str:
        """Return the kind of the learner, empty if nothing says it."""
        return str(self.summary.get("learner") or self.section("learner").get("kind") or "")

    @property
    def description(self) -> Description:
        """Return the learner's presentation."""
        return described(self.options.get("kind", self.kind), self.options)

    @property
    def clock(self) -> Clock | None:
        """Return the event times over the updates; None of a stream without."""
        if TIME not in self.metrics:
            return None
        times = self.summary.get("times")
        first = number(times, "first") if isinstance(times, dict) else None
        return Clock.of(self.metrics["seq"], self.metrics[TIME], self.moments, first)

    @property
    def folders(self) -> list[Path]:
        """Return the folders of the tables, in order."""
        return [Path(chapter["folder"]) for chapter in self.chapters] or ([] if self.path == Path() else [self.path])

    def section(self, key: str) -> dict[str, Any]:
        """Return a section of the config; empty if it has none."""
        section = self.config.get(key)
        return section if isinstance(section, dict) else {}


def read_run(path: Path, key: str | None = None) -> ReportedRun:
    """Read the run folder at ``path``; ``InputError`` without both ``summary.json`` and ``config.yaml``.

    Of models by key, the run as a whole, or what it holds of one ``key``; InputError if there is no such key.
    """
    if not (path / "summary.json").is_file() and not (path / "config.yaml").is_file():
        raise InputError(message("reports.no_run"), file=str(path))
    chapters = [_chapter(Path(folder.root)) for folder in RunFolder(path).chapters()]
    ended = next((chapter for chapter in reversed(chapters) if len(chapter) > 1), chapters[-1] if chapters else None)
    run = ReportedRun(path=path if ended is None else Path(ended["folder"]), chapters=chapters)
    text = _text(run, "summary.json", message("reports.no_summary"))
    run.summary = _parsed(run, "summary.json", parsed, text or "{}")
    run.config_text = _text(run, "config.yaml", message("reports.no_config"))
    run.config = _parsed(run, "config.yaml", load_yaml, run.config_text)
    tables = [_table(run, name) for name in ("metrics", "events", "alarms")]
    if run.section("source").get("key") is not None:
        tables = _by_key(run, key, tables)
    run.metrics, run.events, run.alarms = map(_columns, tables)
    schema = pa.schema([]) if tables[0] is None else tables[0].schema
    run.moments = TIME in schema.names and not pa.types.is_integer(schema.field(TIME).type)
    run.metrics = whole_windows(run.metrics)
    skipped = _table(run, "quarantine")
    if skipped is not None:
        run.quarantined = skipped.num_rows
        run.quarantine = skipped.slice(0, QUARANTINE_SHOWN).to_pylist()
    features = [feature for feature in run.summary.get("features") or [] if isinstance(feature, dict)]
    run.names = Names(features, [str(label) for label in run.summary.get("classes") or []])
    run.options = run.section("learner")
    if run.section("source").get("key") is None or key is not None:
        _read_model(run, key)
    if not len(run.metrics.get("seq", ())) and not run.keys:
        run.notes.append(message("reports.no_metrics"))
    return run


def _chapter(folder: Path) -> dict[str, Any]:
    """Return the summary of a chapter, if it has a readable one, and its folder."""
    summary: Any = {}
    with suppress(OSError, ValueError):
        summary = parsed((folder / "summary.json").read_text(encoding="utf-8"))
    return {**(summary if isinstance(summary, dict) else {}), "folder": str(folder)}


def _by_key(run: ReportedRun, key: str | None, tables: list[pa.Table | None]) -> list[pa.Table | None]:
    """Read the table of keys; return the tables of one key, or none of the run as a whole, which has no one curve."""
    keys = _table(run, "keys")
    run.keys = _columns(keys)
    if key is None:
        return [None] * len(tables)
    named = [] if keys is None else [str(one) for one in keys["key"].to_pylist()]
    if keys is None or key not in named:
        raise InputError(message("keyed.unknown", key=quoted(key)), file=str(run.path))
    row = keys.slice(named.index(key), 1).to_pylist()[0]
    value, run.keys = row["key"], {}
    baselines = {name: row.pop(name) for name in ("no_change", "majority", "mean") if name in row}
    scores = {name: row[name] for name in run.summary.get("metrics") or {} if name in row}
    scores |= {name: row[name] for name in ("f1", "macro_f1", "kappa", "auc", "rmse", "mae", "r2") if name in row}
    run.summary |= {**row, "metrics": scores, "baselines": baselines, "model_digest": row["digest"], "audit": None}
    run.summary["updates_per_second"] = row["updates"] / row["seconds"] if row["seconds"] else None
    run.summary["name"] = f"{run.summary.get('name')}, key {value}"
    own = [None if one is None else one.filter(pc.equal(one["key"], value)).drop_columns(["key"]) for one in tables]
    return own


def _text(run: ReportedRun, name: str, missing: Message) -> str:
    """Return the text of a file; empty, with a note, if there is none."""
    file = run.path / name
    if not file.is_file():
        run.notes.append(missing)
        return ""
    return file.read_text(encoding="utf-8", errors="replace")


def _parsed(run: ReportedRun, name: str, parse: Callable[[str], Any], text: str) -> dict[str, Any]:
    """Return the mapping in the text of a file; empty, with a note, if it cannot be parsed."""
    try:
        content = parse(text)
    except (ValueError, ConfigError) as error:
        run.notes.append(message("reports.not_read", file=name, reason=str(error)))
        return {}
    if not isinstance(content, dict) and text.strip():
        run.notes.append(message("reports.no_mapping", file=name))
    return content if isinstance(content, dict) else {}


def _table(run: ReportedRun, name: str) -> pa.Table | None:
    """Return all readable parts of a table, in order; None if there are none."""
    parts: list[pa.Table] = []
    for file in [file for folder in run.folders for file in sorted((folder / name).glob("part-*.parquet"))]:
        try:
            part = pq.ParquetFile(file).read()  # read_table imports pandas, which takes longer than a report
            pa.concat_tables([*parts[:1], part])  # a part with another schema is refused here, by name
        except MemoryError:
            raise
        except (pa.ArrowException, OSError) as error:
            of_chapter = f"{file.parent.parent.name}/" if run.chapters else ""
            part_file, reason = f"{of_chapter}{name}/{file.name}", str(error).splitlines()[0]
            run.notes.append(message("reports.left_out", file=part_file, reason=reason))
        else:
            parts.append(part)
    return pa.concat_tables(parts) if parts else None


def _columns(table: pa.Table | None) -> Columns:
    """Return columns as arrays: nulls of numbers become NaN, and points in time microseconds since 1970."""
    if table is None:
        return {}
    columns = {name: table.column(name) for name in table.column_names}
    return {n: numpy_column(c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c) for n, c in columns.items()}


def _read_model(run: ReportedRun, key: str | None) -> None:
    folder = run.path / "model"
    if not (folder / MANIFEST).is_file():
        run.notes.append(message("reports.no_model"))
        return
    try:
        if key is not None and (keys := open_keys(folder)) is not None:
            saved = keys.saved(keys.find(key))
            meta, components = saved.meta, saved.components
        else:
            meta, components = load_folder(folder, "model")
        run.options = meta.get("learner") or run.options
        run.names = replace(run.names, categories=meta.get("categories") or {})
        description = run.description
        checked = understood(meta, components, str(folder)) if description.checked else None
        if checked is not None and checked.learner.traits(checked.options).reading.by_value:
            known = run.names.categories.items()
            run.names = replace(run.names, numbers={name: {number_of(v): v for v in values} for name, values in known})
        run.model = description.drawable(components.get("arrays", {}) if checked is None else checked.arrays)
    except ModelFileError as error:
        run.notes.append(message("reports.not_read", file="The model", reason=str(error)))
    except ValueError as error:
        run.notes.append(message("reports.damaged_model", reason=str(error)))


# Losses of a run and how it resumed: its recoveries and its checkpoints, in words and as lines across the charts.
#
# Invariant: a run that lost nothing has nothing here, and a summary of a version without these keys is read as it is.


def recoveries_of(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the recoveries of a summary, in order."""
    entries = summary.get("recoveries")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def unit_of(summary: dict[str, Any]) -> str:
    """Return what recoveries and checkpoints of a run count: updates or, of models by key, rows of the source."""
    return "row" if "keys" in summary else "update"


def repeated(recovery: dict[str, Any]) -> float | None:
    """Return the units that were done again: those recorded after the checkpoint that was restored."""
    at, beginning = number(recovery, "at_update"), number(recovery, "from_update")
    return None if at is None or beginning is None else max(at - beginning, 0.0)


def recovered_in_words(summary: dict[str, Any]) -> str:
    """Return how often a run recovered and was resumed, and the known cost; empty if it did neither."""
    entries = recoveries_of(summary)
    resumed = sum(entry.get("kind") == "resumed" for entry in entries)
    recovered = max(len(entries) - resumed, int(number(summary, "restarts") or 0))
    parts = [
        f"{what} {'once' if n == 1 else counted(n, 'time')}"
        for what, n in (("recovered", recovered), ("resumed", resumed))
        if n
    ]
    again = [units for units in map(repeated, entries) if units is not None]
    seconds = [number(entry, "seconds") for entry in entries]
    if again:
        parts.append(f"{counted(int(sum(again)), unit_of(summary))} repeated")
    if any(seconds):
        parts.append(f"{duration(sum(value or 0.0 for value in seconds))} in all")
    return ", ".join(parts)


def checkpoints_in_words(summary: dict[str, Any]) -> str:
    """Return the number of checkpoints written, their bytes and time; empty if none was due."""
    written, failed = number(summary.get("checkpoints"), "written"), checkpoints_failed(summary)
    parts = [f"{count(written or 0)} written"] if written or failed else []
    if failed:
        parts.append(f"{count(failed)} failed")
    if written:
        amount, seconds, last = (number(summary.get("checkpoints"), key) for key in ("bytes", "seconds", "last"))
        parts.append(f"{size(amount)} in {duration(seconds)}")
        parts += [f"the last at {unit_of(summary)} {count(last)}"] if last is not None else []
    return ", ".join(parts)


def checkpoints_failed(summary: dict[str, Any]) -> int:
    """Return the number of checkpoints that could not be written."""
    return int(number(summary.get("checkpoints"), "failed") or 0)


def marked(chart: Block, run: ReportedRun) -> Block:
    """Return a chart over updates with an upright line where the run recovered; other blocks as they are."""
    if not isinstance(chart, Chart) or not chart.span:
        return chart
    axis = updates_axis(chart.span)
    # Of a run that was resumed it may not be known how far it had come, but from where it went on.
    known = [(number(entry, "at_update"), number(entry, "from_update")) for entry in recoveries_of(run.summary)]
    places = [begun if reached is None else reached for reached, begun in known]
    # A run that was interrupted while it repeated updates has ended before the place of its loss.
    lines = tuple(axis.at([place for place in places if place is not None and 0 <= place <= axis.high]).tolist())
    if not lines:
        return chart
    return replace(chart, uprights=lines, caption=chart.caption + " Dashed uprights: recoveries.")
