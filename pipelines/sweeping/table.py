"""The tables of a sweep: one row for each setting, one for each moment of its curve, and what is best.

What is compared are settings, not trials: of several (``source.permutation``, ``source.seed``) a setting has the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipelines.sweeping.grid import TRIALS, Axis, written
from raydt.evaluation.scoring import CLASS_SCORES
from raydt.learners import learners
from raydt.messages import message
from raydt.presentation.words import ABSENT, share

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
