"""The page of a sweep, made of the pieces of a run's report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pipelines.report.document import document
from pipelines.sweeping.chart import chart_of
from pipelines.sweeping.grid import Axis, written
from pipelines.sweeping.table import Row, best, own_columns, pooled, promised, worded
from raydt.presentation.blocks import Row as TableRow
from raydt.presentation.words import (
    ABSENT,
    FEATURE_SHOWN,
    Form,
    clipped,
    count,
    counted,
    duration,
    figure,
    moment,
    share,
)

#: Criteria whose best value stands at the top: what it is called, and how it is written.
_FIGURES: dict[str, tuple[str, Form]] = {
    "accuracy": ("best accuracy", share),
    "f1": ("best F1", share),
    "us_per_update": ("fastest, µs per update", figure),
}

_BEST = Markup("<strong>{}</strong>")

#: Columns of the table, of any learner: title, name in the row, how it is written.
_COLUMNS: tuple[tuple[str, str, Form], ...] = (
    ("accuracy", "accuracy", share),
    ("F1", "f1", share),
    ("macro F1", "macro_f1", share),
    ("kappa", "kappa", figure),
    ("kappa temporal", "kappa_temporal", figure),
    ("kappa M", "kappa_m", figure),
    ("AUC", "auc", figure),
    ("alarms", "alarms", count),
    ("no-change", "no_change", share),
    ("majority", "majority", share),
    ("µs/update", "us_per_update", figure),
)
_FORMS: dict[type, Form] = {int: count, float: figure, str: lambda name: clipped(name or "none", FEATURE_SHOWN)}


def render(
    axes: Sequence[Axis],
    rows: Sequence[Row],
    summary: dict[str, Any],
    sets: Mapping[str, Any],
    config_text: str,
    location: str,
) -> str:
    """The page as text.

    Parameters
    ----------
    axes, rows
        As of :func:`pipelines.sweeping.table.table_of`.
    summary : dict
        Content of ``sweep.json``.
    sets : mapping
        Keys and values that make ``config_text`` the config of the best setting.
    config_text : str
        Config of the first setting.
    location : str
        What commands on the page call the sweep's folder.
    """
    axes, rows = pooled(axes, rows)
    winners = best(rows)
    top = {(row["setting"], name) for name, row in winners.items()}
    keys = [axis.key for axis in axes]
    own = ((column.title, column.name, _FORMS[column.kind]) for column in own_columns(rows))
    shown = (*_COLUMNS, *own, ("promised", "promised", promised))
    return document(
        Path(__file__).with_name("sweep.html"),
        title=summary["name"],
        kind="sweep",
        what=_what(axes, summary),
        summary=summary,
        figures=[_figure(axes, name, winners[name]) for name in _FIGURES if name in winners],
        facts=_facts(summary),
        charts=[chart] if (chart := chart_of(axes, rows)) is not None else [],
        accurate="accuracy" in winners,
        keys=keys,
        columns=[title for title, _, _ in shown],
        scored=[
            TableRow(
                (
                    *(worded(row, key) for key in keys),
                    *(
                        _BEST.format(form(row.get(name))) if (row["setting"], name) in top else form(row.get(name))
                        for _, name, form in shown
                    ),
                )
            )
            for row in rows
            if not row.get("error")
        ],
        failed=[
            TableRow((*(worded(row, key) for key in keys), count(row.get("updates")), row["error"]))
            for row in rows
            if row.get("error")
        ],
        command=_command(sets, location) if "accuracy" in winners else "",
        config_text=config_text,
    )


def _what(axes: Sequence[Axis], summary: dict[str, Any]) -> str:
    over = ", ".join(f"{counted(len(axis.values), 'value')} of {axis.key}" for axis in axes)
    trials = f", mean of {counted(summary['trials'], 'trial')}" if summary["trials"] > 1 else ""
    return f"{summary['learner']}, {over}, over {'' if trials else 'the same '}{count(summary['rows'])} rows{trials}"


def _figure(axes: Sequence[Axis], name: str, row: Row) -> tuple[str, str, str]:
    """The best value of a criterion, what it is, and the setting that has it."""
    title, form = _FIGURES[name]
    setting = ", ".join(f"{axis.key} {written(row[axis.key])}" for axis in axes if axis.key in row)
    return form(row[name]), title, setting if row["promised"] else f"{setting}; no guarantee is promised"


def _facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    where = (
        f"Ray, {summary['parallel']} at a time" if summary["backend"] == "ray" else "this process, one after another"
    )
    positive = ", ".join(map(str, summary["positive"])) if summary["positive"] else ABSENT
    return [
        ("settings", f"{count(summary['done'])} of {count(summary['settings'])}, {count(summary['failed'])} failed"),
        ("ran on", where),
        ("time for all", duration(summary["seconds"])),
        ("reading, once", duration(summary["read_seconds"])),
        ("start-up", duration(summary["startup_seconds"])),
        ("label", str(summary["label"] or ABSENT)),
        ("positive class", positive),
        ("started", moment(summary["started"])),
        (
            "versions",
            ", ".join(f"{n} {v}" for n, v in {"raydt": summary["raydt_version"], **summary["versions"]}.items()),
        ),
    ]


def _command(sets: Mapping[str, Any], location: str) -> str:
    """How to replay the setting of the best accuracy."""
    words = (word for key, value in sets.items() for word in ("--set", f"{key}={written(value)}"))
    return shlex.join(["raydt", "replay", f"{location}/config.yaml", *words])
