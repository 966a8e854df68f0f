"""Losses of a run and how it resumed: its recoveries and its checkpoints, in words and as lines across the charts.

Invariant: a run that lost nothing has nothing here, and a summary of a version without these keys is read as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from raydt.presentation.blocks import Block
from raydt.presentation.charts import Chart, updates_axis
from raydt.presentation.words import count, counted, duration, number, size

if TYPE_CHECKING:
    from pipelines.report.folder import ReportedRun


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
