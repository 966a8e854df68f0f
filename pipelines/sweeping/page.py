"""The page of a sweep: one HTML file with its style and its drawing inside, without scripts and without requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipelines.display import share
from pipelines.report.formatting import ABSENT, count, counted, duration, figure, moment
from pipelines.report.formatting import share as percent
from pipelines.sweeping.chart import LEFT, RIGHT, WIDTH, plot_of
from pipelines.sweeping.grid import Axis, written
from pipelines.sweeping.table import CRITERIA, Row, best

_HERE = Path(__file__).parent

#: Columns of the table: title, name in the row, how it is written.
_COLUMNS = (
    ("accuracy", "accuracy", share),
    ("F1", "f1", share),
    ("macro F1", "macro_f1", share),
    ("kappa", "kappa", share),
    ("no-change", "no_change", share),
    ("majority", "majority", share),
    ("µs/update", "us_per_update", figure),
    ("processor time", "cpu_seconds", duration),
    ("updates", "updates", count),
    ("rebuilds", "rebuilds", count),
    ("rows rebuilt", "rebuilt_rows", count),
    ("nodes", "nodes", count),
    ("depth", "depth", count),
)


def render(axes: Sequence[Axis], rows: Sequence[Row], summary: dict[str, Any], config_text: str, location: str) -> str:
    """The page as text.

    Parameters
    ----------
    axes, rows
        As of :func:`pipelines.sweeping.table.table_of`.
    summary : dict
        Content of ``sweep.json``.
    config_text : str
        Config of the first setting.
    location : str
        What commands on the page call the sweep's folder.
    """
    rows = sorted(rows, key=lambda row: row["setting"])
    winners = best(rows)
    marked = {(row["setting"], name) for name, row in winners.items()}
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        name=summary["name"],
        what=_what(axes, summary),
        summary=summary,
        figures=[
            _winner(axes, name, row) for name, row in winners.items() if name in ("accuracy", "f1", "us_per_update")
        ],
        plot=plot_of(axes, rows),
        left=LEFT,
        right=WIDTH - RIGHT,
        width=WIDTH,
        keys=[axis.key for axis in axes],
        columns=[title for title, _, _ in _COLUMNS],
        rows=[
            (
                [written(row[axis.key]) for axis in axes],
                [(form(row.get(name)), (row["setting"], name) in marked) for _, name, form in _COLUMNS],
                row.get("error"),
            )
            for row in rows
        ],
        facts=_facts(summary),
        command=_command(axes, winners.get("accuracy"), location),
        config_text=config_text,
        style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
    )


def _what(axes: Sequence[Axis], summary: dict[str, Any]) -> str:
    over = ", ".join(f"{counted(len(axis.values), 'value')} of {axis.key}" for axis in axes)
    return f"{summary['learner']}, {over}, over the same {count(summary['rows'])} rows"


def _winner(axes: Sequence[Axis], name: str, row: Row) -> tuple[str, str, str]:
    """A criterion, its best value, and the setting that has it."""
    title = {"accuracy": "best accuracy", "f1": "best F1", "us_per_update": "fastest, µs per update"}[name]
    value = percent(row[name]) if CRITERIA[name] else figure(row[name])
    return title, value, ", ".join(f"{axis.key} {written(row[axis.key])}" for axis in axes)


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


def _command(axes: Sequence[Axis], row: Row | None, location: str) -> str:
    """How to replay the setting of the best accuracy."""
    if row is None:
        return ""
    sets = " ".join(f"--set {axis.key}={written(row[axis.key])}" for axis in axes)
    return f"raydt replay {location}/config.yaml {sets}"
