"""The page of a sweep, made of the same blocks as the report of a run, and its tables for a terminal."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config import shortened
from pipelines.operation import load_yaml
from raydt.errors import ConfigError
from raydt.evaluation.scoring import CLASS_SCORES
from raydt.learners import described, learners
from raydt.messages import message
from raydt.presentation import charts as plot
from raydt.presentation.blocks import Article, Best, Block, Code, Fact, Facts, Section, Table, Text, pairs
from raydt.presentation.blocks import Row as TableRow
from raydt.presentation.charts import (
    ABSENT,
    FEATURE_SHOWN,
    Chart,
    Form,
    Mark,
    Panel,
    Series,
    Tick,
    Values,
    clipped,
    count,
    counted,
    curve,
    duration,
    figure,
    linear,
    look,
    moment,
    points,
    share,
)

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


def _rivals(row: Row) -> dict[str, float]:
    """Return the accuracy of the trivial predictors by name; a hold-out has no order, and so no last label."""
    return {
        name: row[key] for name, key in (("no-change", "no_change"), ("majority", "majority")) if row[key] is not None
    }


def against_baselines(rows: Sequence[Row]) -> str:
    """Return how many settings beat the trivial predictors; empty if nothing was scored."""
    known = [row for row in rows if row.get("accuracy") is not None]
    if not known:
        return ""
    better = sum(row["accuracy"] > max(_rivals(row).values()) for row in known)
    if better == len(known):
        return f"{message('sweeps.all_beat')}."
    rivals = _rivals(known[0])
    name = max(rivals, key=lambda one: rivals[one])
    level = share(rivals[name])
    return f"{message('sweeps.some_beat', better=better, settings=len(known), baseline=name, level=level)}."


# The chart of a sweep: accuracy and time per update over the first key with numbers, a line by the others.
#
# Positive values that span a wide range stand as logarithms. Where no key has numbers, the values of the first key are
# categories: they stand at equal distances, and nothing joins them.

#: Lines drawn, the best ones.
LINES = 16

#: Greatest over least value from which an axis of positive numbers is logarithmic.
WIDE = 50.0

#: Room that a label below the chart needs, at the least and for each letter, as a share of the width.
_ROOM, _LETTER = 0.06, 0.012
_LETTERS = 14

_BASELINES = (("no_change", "no-change", "nochange", "6 4"), ("majority", "majority", "majority", "2 4"))


def chart_of(axes: Sequence[Axis], rows: Sequence[Row]) -> Chart | None:
    """Return the chart of a sweep; None if no setting has an accuracy, or not all settings have the same keys."""
    known = [row for row in rows if row.get("accuracy") is not None and row.get("us_per_update") is not None]
    if not known or any(axis.key not in row for axis in axes for row in known):
        return None
    axes = sorted(axes, key=lambda axis: not numeric(axis.values))
    values, places, x = _across(axes[0])
    draw = curve if numeric(values) else points
    groups = _groups(axes, values, known)
    peaks = sorted((np.nanmax(columns["accuracy"]) for _, columns in groups), reverse=True)
    drawn = [group for group in groups if np.nanmax(group[1]["accuracy"]) >= peaks[:LINES][-1]][:LINES]
    rates = linear(
        [columns[name] for _, columns in drawn for name in ("accuracy", "no_change", "majority")],
        within=(0.0, 1.0),
        form="share",
    )
    times = linear([columns["us_per_update"] for _, columns in drawn], zero=True)
    accuracy: list[Mark] = []
    speed: list[Mark] = []
    baselines: dict[tuple[str, bytes], Mark] = {}  # settings with the same predictions share theirs
    looks: tuple[tuple[list[Mark], str, plot.Axis, Form, Callable[[Values], float]], ...] = (
        (accuracy, "accuracy", rates, share, np.nanmax),
        (speed, "us_per_update", times, figure, np.nanmin),
    )
    for index, (name, columns) in enumerate(drawn):
        tone, dash = look(index)
        for marks, key, axis, form, top in looks:
            mark = draw((x, axis), places, Series(columns[key], name, tone, dash, dotted=True), form)
            marks.append(replace(mark, now=form(top(columns[key]))))
        for column, title, tone, dash in _BASELINES:
            levels = columns[column]
            if np.isnan(levels).all():  # of rows held out there is no last label
                continue
            level = curve if (same := np.nanmin(levels) == np.nanmax(levels)) else draw
            if same:  # also beside a setting that failed
                levels = np.full(len(levels), np.nanmax(levels))
            mark = level((x, rates), places, Series(levels, title, tone, dash), share)
            baselines.setdefault((title, levels.tobytes()), mark)
    more = counted(len(groups) - len(drawn), "more line")
    held_out = all(row.get("no_change") is None for row in known)
    predicted = (
        "Rows held out are predicted by a model of the others."
        if held_out
        else ("Each inserted example is predicted by the model as it was just before its insertion.")
    )
    return Chart(
        "accuracy",
        "Accuracy and time per update",
        f"{predicted} Time is processor time of the setting alone, so that settings beside each other can be compared. "
        "The numbers are the best of a line."
        + (f" {more}, whose best accuracy is lower, in the table only." if len(groups) > len(drawn) else ""),
        (Panel("accuracy", (*accuracy, *baselines.values()), rates, 17.0), Panel("µs per update", tuple(speed), times)),
        x.ticks,
        axes[0].key,
        x.at(places).tolist(),
        [f"{axes[0].key} {written(value)}" for value in values],
    )


def numeric(values: Sequence[Any]) -> bool:
    """Return True if all are numbers."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _groups(axes: Sequence[Axis], values: Sequence[Any], rows: Sequence[Row]) -> list[tuple[str, dict[str, Values]]]:
    """Return name and columns of each line: a number for each of ``values``, NaN where a setting has none."""
    by_values = {tuple(written(row[axis.key]) for axis in axes): row for row in rows}
    groups = []
    for others in product(*(map(written, axis.values) for axis in axes[1:])):
        members = [by_values.get((written(value), *others), {}) for value in values]
        if any(members):
            name = ", ".join(f"{axis.key} {value}" for axis, value in zip(axes[1:], others, strict=True))
            columns = {
                column: np.array([row.get(column) for row in members], dtype=np.float64)
                for column in ("accuracy", "us_per_update", "no_change", "majority")
            }
            groups.append((name or "learner", columns))
    return groups


def _across(axis: Axis) -> tuple[Sequence[Any], Values, plot.Axis]:
    """Return the values of a key from left to right, their places, and an axis with the labels that have room."""
    values, n = axis.values, len(axis.values)
    scaled = numeric(values)
    values = tuple(sorted(values)) if scaled else values
    places = np.array(values if scaled else range(n), dtype=np.float64)
    if scaled and values[0] > 0 and values[-1] / values[0] >= WIDE:
        places = np.log(places)
    margin = 0.02 * (places[-1] - places[0]) if scaled and n > 1 else 0.5
    x = plot.Axis(float(places[0] - margin), float(places[-1] + margin), ())
    ticks: list[Tick] = []
    for at, label in zip(x.at(places).tolist(), map(written, values), strict=True):
        label = label if len(label) <= _LETTERS else label[: _LETTERS - 1] + "…"
        if not ticks or at - ticks[-1].at >= max(_ROOM, _LETTER * len(label)):
            ticks.append(Tick(at, label))
    return values, places, replace(x, ticks=tuple(ticks))


#: Criteria whose best value stands at the top: what it is called, and how it is written.
_FIGURES: dict[str, tuple[str, Form]] = {
    "accuracy": ("best accuracy", share),
    "f1": ("best F1", share),
    "us_per_update": ("fastest, µs per update", figure),
}

#: Scores that a terminal shows.
_BRIEF = {"accuracy", "f1", "kappa"}

#: Columns of the table, of any learner: title, name in the row, how it is written, and whether a terminal shows it.
_COLUMNS: tuple[tuple[str, str, Form, bool], ...] = (
    *((title, name, share if is_share else figure, name in _BRIEF) for name, title, is_share in CLASS_SCORES),
    ("alarms", "alarms", count, False),
    ("no-change", "no_change", share, False),
    ("majority", "majority", share, False),
    ("µs/update", "us_per_update", figure, True),
)
_FORMS: dict[type, Form] = {int: count, float: figure, str: lambda name: clipped(name or "none", FEATURE_SHOWN)}

#: Rows that a terminal shows.
SHOWN = 30


def article(
    axes: Sequence[Axis],
    rows: Sequence[Row],
    summary: dict[str, Any],
    sets: Mapping[str, Any],
    config_text: str,
    location: str,
) -> Article:
    """Return the article about a sweep, by its table and ``sweep.json``.

    ``sets`` makes ``config_text``, the config of the first setting, that of the best one; commands use ``location``.
    """
    axes, rows = pooled(axes, rows)
    winners, failed = best(rows), sum(bool(row.get("error")) for row in rows)
    done, settings = count(summary["done"]), count(summary["settings"])
    notice = f"{message('sweeps.cut_short', reason=summary['exit_reason'], done=done, settings=settings)}."
    good = summary["verdict"] == f"{message('sweeps.all_beat')}."
    head: list[Block] = [
        Text(notice if summary["status"] == "interrupted" else "", "notice"),
        Text(f"{message('sweeps.failed', failed=count(failed))}." if failed else "", "notice bad"),
        Text(summary["verdict"], "verdict good" if good else "verdict bad"),
        Facts([_figure(axes, name, winners[name]) for name in _FIGURES if name in winners], "figures"),
        _facts(summary),
    ]
    chart = chart_of(axes, rows)
    blocks: list[Block] = [
        *([chart] if chart is not None else []),
        Text("" if "accuracy" in winners else f"{message('sweeps.no_accuracy')}.", "none"),
        *tables([axis.key for axis in axes], rows, summary["trials"]),
    ]
    if "accuracy" in winners:
        words = (word for key, value in sets.items() for word in ("--set", f"{key}={written(value)}"))
        command = Code(shlex.join(["raydt", "replay", f"{location}/config.yaml", *words]))
        blocks += [Text(message("sweeps.replay_best")), command]
    sections = [
        Section("Settings", blocks, "settings"),
        Section("Configuration of the first setting", [Code(config_text)], "config"),
    ]
    return Article(summary["name"], _what(axes, summary), head, sections)


def tables(keys: Sequence[str], rows: Sequence[Row], trials: int, *, brief: bool = False) -> list[Table]:
    """Return the table of the scored settings, the best of a column marked, and that of the failed ones.

    For a terminal they are ``brief``: fewer columns and, of a long sweep, only the best settings by accuracy.
    """
    top = {(row["setting"], name) for name, row in best(rows).items()}
    own = dict.fromkeys(column for row in rows for column in described(row.get("learner")).columns)
    shown = [
        *_COLUMNS,
        *((column.title, column.name, _FORMS[column.kind], column.brief) for column in own),
        ("promised", "promised", lambda value: "yes" if value else "no", True),
    ]
    known = {name for _, name, _, _ in shown if any(row.get(name) is not None for row in rows)}  # no last label, e.g.
    shown = [column for column in shown if (column[3] or not brief) and (column[1] in known or not known)]
    scored, failed = [], []
    for row in rows:
        setting = [written(row[key]) if key in row else ABSENT for key in keys]
        if row.get("error"):
            error = clipped(row["error"].partition("\n")[0], 100) if brief else row["error"]
            failed.append(TableRow((*setting, count(row.get("updates")), error)))
            continue
        cells = [(form(row.get(name)), (row["setting"], name) in top) for _, name, form, _ in shown]
        accuracy = -1.0 if row.get("accuracy") is None else row["accuracy"]
        scored.append((accuracy, TableRow((*setting, *(Best(cell) if is_best else cell for cell, is_best in cells)))))
    remarks = [message("sweeps.promised"), *([message("sweeps.means")] if trials > 1 else [])]
    remark = " ".join(f"{sentence}." for sentence in remarks)
    if brief:
        cut = len(scored) > SHOWN
        remark = message("sweeps.best_shown", shown=SHOWN, settings=len(rows)) if cut else ""
        scored = sorted(scored, key=lambda pair: -pair[0])[:SHOWN] if cut else scored
    title, columns = "Results of each setting; the best of a column is bold", (*keys, *(column[0] for column in shown))
    results = Table([row for _, row in scored], remark if scored else "", title, columns, style="dense")
    failures = (*keys, "Updates", "Error")
    return [results, Table(failed, "", "Failed settings", failures, (1, len(failures)))]


def _what(axes: Sequence[Axis], summary: dict[str, Any]) -> str:
    over = ", ".join(f"{counted(len(axis.values), 'value')} of {axis.key}" for axis in axes)
    trials = f", mean of {counted(summary['trials'], 'trial')}" if summary["trials"] > 1 else ""
    learner = "" if any(axis.key == "learner.kind" for axis in axes) else f"{summary['learner']}, "
    return f"{learner}{over}, over {'' if trials else 'the same '}{count(summary['rows'])} rows{trials}"


def _figure(axes: Sequence[Axis], name: str, row: Row) -> Fact:
    """Return the best value of a criterion and the setting that has it."""
    title, form = _FIGURES[name]
    setting = ", ".join(f"{axis.key} {written(row[axis.key])}" for axis in axes if axis.key in row)
    return Fact(title, form(row[name]), setting if row["promised"] else f"{setting}; no guarantee is promised")


def _facts(summary: dict[str, Any]) -> Facts:
    versions = {"raydt": summary["raydt_version"], **summary["versions"]}
    where = "Ray" if summary["backend"] == "ray" else "this process"
    parallel = "one after another" if summary["parallel"] == 1 else f"{summary['parallel']} at a time"
    found = {
        "settings": f"{count(summary['done'])} of {count(summary['settings'])}, {count(summary['failed'])} failed",
        "ran on": f"{where}, {parallel}",
        "time for all": duration(summary["seconds"]),
        "reading, once": duration(summary["read_seconds"]),
        "start-up": duration(summary["startup_seconds"]),
        "label": str(summary["label"] or ABSENT),
        "positive class": ", ".join(map(str, summary["positive"])) if summary["positive"] else ABSENT,
        "started": moment(summary["started"]),
        "versions": ", ".join(f"{n} {v}" for n, v in versions.items()),
    }
    return pairs(found.items())
