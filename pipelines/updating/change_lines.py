"""The outcome of change logs as blocks for a terminal."""

from __future__ import annotations

from typing import Any

from pipelines.display import error, share, updates
from pipelines.receipt_lines import deletions
from pipelines.terminal import terminal
from pipelines.updating.change_job import ChangesResult
from raydt.messages import message
from raydt.presentation.blocks import Items, Text, pairs
from raydt.presentation.words import counted, names


def changes_lines(done: ChangesResult, state: str, *, dry_run: bool) -> str:
    """Return the outcome of change logs: what they changed, and how well their rows were predicted before."""
    over = message("commands.passed_over", files=names(done.known, 3)) if done.known else ""
    receipt = done.receipt
    if receipt is None:
        rows = [("state", done.state), ("files", message("commands.known_files", files=names(done.known, 3)))]
        return terminal(pairs(rows))
    counts, scores, words = done.counts, done.scores, receipt.words
    kinds = {**counts, "updates": done.updates}
    skipped = [f"{counts['skipped']:,} bad rows"] * bool(counts["skipped"])
    rows = [
        ("state", f"{state}; nothing is written" if dry_run else f"{state} -> {done.state}"),
        ("files", names(done.files, 3)),
        ("passed over", over),
        ("updates", ", ".join([updates(kinds), *skipped]) + (f"; {words.counts}" if words.counts else "")),
        ("live", f"{counted(receipt.active, 'example')}, {receipt.active_before:,} before"),
        *_windowed(scores),
        *words.lines,
        ("digest before", str(receipt.digest_before)),
        ("digest after", str(receipt.digest_after)),
    ]
    copies = (Text(message("commands.copies")), Items(receipt.copies))
    deleted = (deletions(receipt), *copies) if len(receipt.ids) else ()
    report = done.state.rpartition("/")[0] + "/report.html"
    return terminal(pairs([*rows, ("report", "" if dry_run else report)]), *deleted)


def _windowed(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the score of the rows of an update and of all before, beside those of the trivial predictors."""
    name, written, rivals = (
        ("mse", error, ("no_change", "mean"))
        if "mse" in scores
        else (
            "accuracy",
            share,
            ("no_change", "majority"),
        )
    )
    rows = []
    for title, prefix in (("now", "window_"), ("so far", "")):
        if scores[prefix + name] is not None:
            compared = ", ".join(f"{rival.replace('_', ' ')} {written(scores[prefix + rival])}" for rival in rivals)
            rows.append((f"{name} {title}", f"{written(scores[prefix + name])}  ({compared})"))
    return rows
