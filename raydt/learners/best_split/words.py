"""The split, the finder and its structure in words, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raydt.learners.best_split.options import STRUCTURE_FROM
from raydt.presentation.words import clipped, count, counted, figure, share

#: Letters of a feature's name; a token may be a whole line.
NAME_SHOWN = 60

_WHAT = {
    "updgini": "UPDGINI, a structure for the Gini index",
    "updent": "UPDENT, a structure for the entropy",
    "scan": "a scan of all seen features",
}


def split_in_words(split: Mapping[str, Any] | None) -> str:
    """Return the split of the last search: feature, score, and how many rows have it."""
    if split is None:
        return "none: no search was run"
    if split["feature"] is None:
        return f"none: no feature is 1 in any of {counted(split['rows'], 'row')}"
    name, rows = clipped(split["name"], NAME_SHOWN), counted(split["rows"], "row")
    return f"{name}, score {figure(split['score'])}, 1 in {share(split['with_feature'] / split['rows'], 1)} of {rows}"


def finder_in_words(finder: Mapping[str, Any]) -> str:
    """Return the finder and, of ``auto``, why it was chosen."""
    if finder["name"] is None:
        return "auto, before the end of the warm-up"
    what = _WHAT[finder["name"]]
    if "features" not in finder:
        return what
    seen, ones, rows = (finder[name] for name in ("features", "ones", "rows"))
    warmup = f"the {counted(rows, 'row')} of the warm-up"
    if not ones:
        return f"{what}, chosen by auto: no feature is 1 in {warmup}"
    times = figure(seen * rows / ones)
    return (
        f"{what}, chosen by auto: {warmup} show {counted(seen, 'feature')}, {times} times the {figure(ones / rows)} "
        f"ones of a row (a structure from {STRUCTURE_FROM} times on)"
    )


def work_in_words(summary: Mapping[str, Any]) -> str:
    """Return size and cost of the structure; for a scan, that there is none."""
    if summary["finder"]["name"] == "scan":
        return "it has no buckets"
    updates = max(int(summary.get("updates") or 0), 1)
    return (
        f"{counted(summary['buckets'], 'bucket')} filled, {count(summary['moves'])} moves, "
        f"{figure(summary['moves'] / updates)} per update"
    )
