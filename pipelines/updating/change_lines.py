"""The outcome of change logs as blocks for a terminal."""

from __future__ import annotations

from typing import Any

from pipelines.display import error, share, updates
from pipelines.receipt_lines import deletion_blocks, model_rows
from pipelines.terminal import terminal
from pipelines.updating.change_job import ChangesResult
from raydt.messages import message
from raydt.presentation.blocks import pairs
from raydt.presentation.words import names

#: Trivial predictors of classes.
_OF_CLASSES = ("no_change", "majority")


def changes_lines(done: ChangesResult, state: str, *, dry_run: bool) -> str:
    """Return the outcome of change logs: what they changed, and how well their rows were predicted before."""
    over = message("commands.passed_over", files=names(done.known, 3)) if done.known else ""
    receipt = done.receipt
    if receipt is None:
        rows = [("state", done.state), ("files", message("commands.known_files", files=names(done.known, 3)))]
        return terminal(pairs(rows))
    skipped = [f"{done.counts['skipped']:,} bad rows"] * bool(done.counts["skipped"])
    changed, more = updates({**done.counts, "updates": done.updates}), receipt.words.counts
    rows = [
        ("state", f"{state}; nothing is written" if dry_run else f"{state} -> {done.state}"),
        ("files", names(done.files, 3)),
        ("passed over", over),
        ("updates", ", ".join([changed, *skipped]) + (f"; {more}" if more else "")),
        *model_rows(receipt, _windowed(done.scores)),
        ("report", "" if dry_run else done.state.rpartition("/")[0] + "/report.html"),
    ]
    return terminal(pairs(rows), *deletion_blocks(receipt))


def _windowed(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the score of the rows of an update and of all before, beside those of the trivial predictors."""
    numbers = "mse" in scores
    name, written, rivals = ("mse", error, ("no_change", "mean")) if numbers else ("accuracy", share, _OF_CLASSES)
    rows = []
    for title, prefix in (("now", "window_"), ("so far", "")):
        if scores[prefix + name] is not None:
            compared = ", ".join(f"{rival.replace('_', ' ')} {written(scores[prefix + rival])}" for rival in rivals)
            rows.append((f"{name} {title}", f"{written(scores[prefix + name])}  ({compared})"))
    return rows
