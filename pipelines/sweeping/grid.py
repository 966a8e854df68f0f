"""The settings of a sweep, its table with a row for each, and the runs that its comparison shows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.operation import load_yaml
from pipelines.report.charts import ACCURACY
from pipelines.report.compare import compare, failures, table_of_runs
from pipelines.report.folder import ReportedRun
from raydt.errors import ConfigError
from raydt.evaluation.scoring import CLASS_SCORES
from raydt.learners import learners
from raydt.messages import message, shortened
from raydt.presentation.blocks import Article, Block, Code, Section, Table, Text, pairs
from raydt.presentation.charts import ABSENT, share

# Differences between the settings of a sweep: ``--grid`` as axes, and their product.
#
# Invariant: the values of a range are exact decimals: 0:2:0.1 holds 0.3, not 0.30000000000000004.

#: Sections whose keys may differ between settings.
SECTIONS = ("learner", "stream")

#: Keys of the source that may: they draw or order its rows again, and each value is one trial of a setting.
TRIALS = ("source.permutation", "source.seed")

#: The most settings of one sweep.
LIMIT = 10_000

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,2})?")

Grid = Sequence[str] | Mapping[str, str | Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Axis:
    """A dotted key and the values it takes, in order."""

    key: str
    values: tuple[Any, ...]


def read_grid(grid: Grid) -> list[Axis]:
    """Read the axes of a grid, ``a.b=START:STOP:STEP`` or ``a.b=v1,v2,v3``, or a mapping of such values."""
    if isinstance(grid, str):
        raise ConfigError(message("sweeps.text"))
    axes = [_axis(key, values) for key, values in grid.items()] if isinstance(grid, Mapping) else [*map(_parse, grid)]
    if not axes:
        raise ConfigError(message("sweeps.no_grid"))
    keys = [axis.key for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(message("sweeps.repeated_key", key=shortened(key)))
    if (total := math.prod(len(axis.values) for axis in axes)) > LIMIT:
        raise ConfigError(message("sweeps.many_settings", settings=total, most=LIMIT))
    return axes


def settings_of(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """List every combination of values by key; the last axis changes fastest."""
    keys = [axis.key for axis in axes]
    return [dict(zip(keys, values, strict=True)) for values in product(*(axis.values for axis in axes))]


def _same(value: Any) -> str:
    """Return the common form of values that mean the same: 1 and 1.0."""
    return str(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else written(value)


def written(value: Any) -> str:
    """Return a value as a config would have it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parse(entry: str) -> Axis:
    key, equals, text = entry.partition("=")
    if not equals:
        raise ConfigError(message("sweeps.form", entry=shortened(entry)))
    return _axis(key.strip(), text)


def _axis(key: str, values: str | Sequence[Any]) -> Axis:
    entry = shortened(f"{key}={values if isinstance(values, str) else written(list(values))}")
    section, *rest = key.split(".")
    if not all([section, *rest]):
        raise ConfigError(message("sweeps.form", entry=entry))
    if (section not in SECTIONS or not rest) and key not in TRIALS:
        raise ConfigError(message("sweeps.key", entry=entry, others=" and ".join(TRIALS)))
    found = _values(entry, values.strip()) if isinstance(values, str) else list(values)
    if not found:
        raise ConfigError(message("sweeps.no_value", entry=entry))
    seen = set()
    for value in found:
        if _same(value) in seen:
            raise ConfigError(message("sweeps.repeated_value", entry=entry, value=written(value)))
        seen.add(_same(value))
    return Axis(key, tuple(found))


def _values(entry: str, text: str) -> list[Any]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) > 1 and "," not in text and any(map(_NUMBER.fullmatch, parts)):
        if len(parts) != 3 or not all(map(_NUMBER.fullmatch, parts)):
            raise ConfigError(message("sweeps.range", entry=entry))
        return _range(entry, *parts)
    try:
        values: list[Any] = load_yaml(f"[{text}]")
    except ConfigError as error:
        raise ConfigError(message("sweeps.yaml", entry=entry, problem=str(error))) from error
    return values


def _range(entry: str, first: str, last: str, by: str) -> list[Any]:
    start, stop, step = map(Decimal, (first, last, by))
    if not step:
        raise ConfigError(message("sweeps.no_step", entry=entry))
    steps = (stop - start) / step
    if steps < 0:
        way = "up" if stop > start else "down"
        raise ConfigError(message("sweeps.step_sign", entry=entry, step=by, first=first, way=way, last=last))
    if steps >= LIMIT:
        raise ConfigError(message("sweeps.many_values", entry=entry, most=LIMIT))
    number = int if re.fullmatch(r"[+-]?\d+", first) and re.fullmatch(r"[+-]?\d+", by) else float
    return [number(start + step * i) for i in range(int((stop - start) // step) + 1)]


# The tables of a sweep: one row for each setting, one for each moment of its curve, and what is best.
#
# What is compared are settings, not trials: of several (``source.permutation``, ``source.seed``) a setting has the
# mean.

#: Scores by which settings are compared, and whether more is better.
CRITERIA = {
    **{score.name: True for score in CLASS_SCORES},
    "us_per_update": False,
}

COUNTS = ("updates", "inserts", "deletes", "predictions", "active", "refused", "skipped")
SCORES = (*(score.name for score in CLASS_SCORES), "faded_accuracy")
_LEVELS = ("no_change", "majority", "seconds", "cpu_seconds", "us_per_update")
WORK = ("rebuilds", "rebuilt_rows", "nodes", "leaves", "depth")
_ARROW = {int: pa.int64(), float: pa.float64(), str: pa.string()}
#: Columns that only some learners have.
_OWN = [column for learner in learners().values() for column in learner.describe({}).columns if column.name not in WORK]
_RESULTS = (
    [(name, pa.int64()) for name in (*COUNTS, "alarms")]
    + [(name, pa.float64()) for name in (*SCORES, *_LEVELS)]
    + [(name, pa.int64()) for name in WORK]
    + [(column.name, _ARROW[column.kind]) for column in _OWN]
    + [("promised", pa.bool_()), ("digest", pa.string()), ("error", pa.string())]
)

Row = dict[str, Any]


def table_of(axes: Sequence[Axis], rows: Sequence[Row]) -> pa.Table:
    """Return the rows of settings in order, as columns of one type each, null where a setting has no such key."""
    rows = sorted(rows, key=lambda row: row["setting"])
    named: dict[str, pa.Array] = {"setting": pa.array([row["setting"] for row in rows], pa.int64())}
    for axis in axes:
        kind, values = _type(axis.values), [row.get(axis.key) for row in rows]
        texts = [None if value is None else written(value) for value in values]
        named[axis.key] = pa.array(texts if kind == pa.string() else values, kind)
    for name, kind in _RESULTS:
        named[name] = pa.array([row.get(name) for row in rows], kind)
    return pa.table(named)


def curves_of(curves: Mapping[int, Mapping[str, Sequence[Any]]]) -> pa.Table:
    """Return the ``curve`` of each setting, by setting and moment; undefined scores and absent leaves are null."""
    known = sorted((setting, curve) for setting, curve in curves.items() if curve)

    def column(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array([value for _, curve in known for value in curve[name]], kind, from_pandas=True)

    return pa.table(
        {"setting": pa.array([setting for setting, curve in known for _ in curve["updates"]], pa.int64())}
        | {name: column(name, pa.int64()) for name in ("updates", "leaves")}
        | {name: column(name, pa.float64()) for name in ("accuracy", "f1")}
    )


def pooled(axes: Sequence[Axis], rows: Sequence[Row]) -> tuple[list[Axis], list[Row]]:
    """Return the axes but those of trials, and one row for the trials of each setting, in the order of the grid.

    Such a row has the number of the setting's first trial and the means of its numbers. It is promised if all trials
    are, and failed if one of them did. Without other axes nothing is pooled.
    """
    rows = sorted(rows, key=lambda row: row["setting"])
    kept = [axis for axis in axes if axis.key not in TRIALS]
    if not kept or len(kept) == len(axes):
        return list(axes), rows
    together: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        together.setdefault(tuple(written(row[axis.key]) if axis.key in row else ABSENT for axis in kept), []).append(
            row
        )
    return kept, [_mean(trials) for trials in together.values()]


def _mean(trials: Sequence[Row]) -> Row:
    first = {key: value for key, value in trials[0].items() if key not in TRIALS}
    failed = next((row for row in trials if row.get("error")), None)
    if failed is not None:
        own = {key: value for key, value in first.items() if key not in dict(_RESULTS)}
        return own | {"updates": failed["updates"], "error": failed["error"]}
    for name, kind in _RESULTS:
        known = [row[name] for row in trials if row.get(name) is not None]
        if kind in (pa.int64(), pa.float64()) and name in first:
            first[name] = sum(known) / len(known) if known else None
    for column in _OWN:
        if column.kind is str and len({row.get(column.name) for row in trials}) > 1:
            first[column.name] = ABSENT
    return first | {"digest": None, "promised": all(row["promised"] for row in trials), "trials": len(trials)}


def _type(values: Sequence[Any]) -> pa.DataType:
    try:
        kind = pa.array(values).type
    except (pa.ArrowException, OverflowError):  # of several kinds
        return pa.string()
    return kind if kind in (pa.int64(), pa.float64(), pa.bool_()) else pa.string()


def best(rows: Sequence[Row]) -> dict[str, Row]:
    """Return by criterion the row of the best setting, the first of equals; failed settings take no part."""
    found = {}
    for name, more in CRITERIA.items():
        known = sorted((row for row in rows if row.get(name) is not None), key=lambda row: row["setting"])
        if known:
            found[name] = (max if more else min)(known, key=lambda row: row[name])
    return found


def winners(axes: Sequence[Axis], rows: Sequence[Row]) -> dict[str, Row]:
    """Return by criterion the best setting as the summary has it: score, number, values by key, what it is held to."""
    return {
        name: {
            "value": row[name],
            "setting": row["setting"],
            "values": {axis.key: row[axis.key] for axis in axes if axis.key in row},
            **{key: row[key] for key in ("no_change", "majority", "promised", "digest")},
        }
        for name, row in best(rows).items()
    }


def against_baselines(rows: Sequence[Row]) -> str:
    """Return how many settings beat the trivial predictors; empty if nothing was scored."""
    known = [row for row in rows if row.get("accuracy") is not None]
    if not known:
        return ""
    levels = [{key: row[key] for key in ("no_change", "majority") if row[key] is not None} for row in known]
    better = sum(row["accuracy"] > max(rivals.values()) for row, rivals in zip(known, levels, strict=True))
    if better == len(known):
        return f"{message('sweeps.all_beat')}."
    name, level = max(levels[0].items(), key=lambda rival: rival[1])
    said = {"better": better, "settings": len(known), "baseline": name.replace("_", "-"), "level": share(level)}
    return f"{message('sweeps.some_beat', **said)}."


# The comparison of a sweep: that of runs (:mod:`pipelines.report.compare`), each setting that was scored is one.

#: Columns of the metrics that a setting logs at the multiples of ``output.metrics_every``.
WINDOWS = ("window_accuracy", "window_no_change", "window_majority")
CURVE = ("updates", "predictions", "leaves", "accuracy", "f1", *WINDOWS)

#: Rows of a table that a terminal shows.
SHOWN = 30


class Settings:
    """The settings of a sweep as runs; of several trials each is their mean, without curves.

    ``configs`` and ``curves`` are by setting; one that is not valid has the config of the first.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        rows: Sequence[Row],
        configs: Mapping[int, Mapping[str, Any]],
        curves: Mapping[int, Mapping[str, Any]],
    ) -> None:
        self.axes, self.rows = pooled(axes, rows)
        alone, first = len(self.axes) == len(axes), next(iter(configs.values()))
        self.labels = [
            ", ".join(f"{axis.key} {written(row[axis.key])}" for axis in self.axes if axis.key in row)
            for row in self.rows
        ]
        self.runs = [
            self._run(row, configs.get(row["setting"], first), curves.get(row["setting"], {}) if alone else {})
            for row in self.rows
        ]

    def _run(self, row: Row, config: Mapping[str, Any], curve: Mapping[str, Any]) -> ReportedRun:
        sections = {name: dict(config.get(name, {})) for name in SECTIONS}
        for axis in self.axes:
            section, _, name = axis.key.partition(".")
            if axis.key in row and section in sections:
                sections[section][name] = row[axis.key]
        us = row.get("us_per_update")
        summary = row | {
            "status": "failed" if row.get("error") else "completed",
            "metrics": {name: row.get(name) for name in SCORES},
            "baselines": {name: row.get(name) for name in ("no_change", "majority")},
            "updates_per_second": 1e6 / us if us else None,
            "model_digest": row.get("digest"),
        }
        metrics = {name: np.asarray(column, dtype=np.float64) for name, column in curve.items()}
        if metrics:
            metrics["seq"] = metrics.pop("updates").astype(np.int64)
        return ReportedRun(summary, sections["learner"], metrics, config={**config, **sections})

    def article(
        self, summary: Mapping[str, Any], facts: Sequence[tuple[str, str]], command: str, config: str
    ) -> Article:
        """Return the comparison; ``command`` replays the best setting, ``config`` is that of the first."""
        shown, verdict = compare(self.runs, self.labels, folders=False), str(summary["verdict"])
        good = verdict == f"{message('sweeps.all_beat')}."
        head = [
            Text(verdict, "verdict good" if good else "verdict bad"),
            *shown.head,
            pairs(one for one in facts if one[0] != "baselines"),
        ]
        best: list[Block] = [Text(message("sweeps.replay_best")), Code(command)] if command else []
        return replace(
            shown,
            title=summary["name"],
            head=head,
            sections=[
                *(replace(one, blocks=[*one.blocks, *best]) for one in shown.sections),
                Section("Configuration of the first setting", [Code(config)], "config"),
            ],
        )

    def tables(self) -> list[Table]:
        """Return the tables for a terminal: of many settings the best by accuracy."""
        order, remark = [*range(len(self.runs))], ""
        if len(order) > SHOWN:
            scores = [-1.0 if row.get("accuracy") is None else row["accuracy"] for row in self.rows]
            order = sorted(order, key=lambda k: -scores[k])[:SHOWN]
            remark = message("sweeps.best_shown", shown=SHOWN, settings=len(self.runs))
        runs, failed = [self.runs[k] for k in order], failures(self.runs, self.labels, brief=True)
        return [replace(table_of_runs(runs, (), ACCURACY, brief=True), remark=remark), failed]
