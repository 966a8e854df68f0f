"""How the sparse best split presents itself: which feature was best when, and what the search for it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, get_args

import numpy as np

from raydt.finders.finder import FinderName
from raydt.learners.best_split.leader_chart import Ranked, changes, features, over_time
from raydt.learners.best_split.model import Splits, score_of_split
from raydt.learners.best_split.options import MEASURED, BestSplitOptions
from raydt.learners.best_split.words import finder_in_words, split_in_words, work_in_words
from raydt.learners.description import (
    Column,
    Curve,
    Description,
    Effects,
    Lines,
    Presentation,
    ReceiptWords,
    RunRecords,
    remaining,
    worst_of,
)
from raydt.presentation.blocks import Block, Fact, Section, Text
from raydt.presentation.charts import WINDOWS, Chart, Series, has_curve, line_panel, over_stream
from raydt.presentation.series import Columns, merged, per_unit
from raydt.presentation.words import FEATURE_SHOWN, clipped, count, counted, figure, number


class BestSplitDescription(Description):
    """One split, and no tree."""

    same: ClassVar[tuple[str, str]] = (
        "the same split, counts and examples",
        "a different split, counts or examples",
    )
    measures: ClassVar[Mapping[str, str]] = {
        "score": "Score of the split",
        "optimum": "Least score of all features",
        "ratio": "The one over the other",
    }
    audited_with: ClassVar[tuple[str, ...]] = ("split",)
    curves: ClassVar[tuple[Curve, ...]] = (
        Curve("moves", "Features moved to another bucket per update", "moves", "moves/update", rate=True),
        Curve("buckets", "Buckets with features", "buckets", "buckets"),
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column("best_feature", "best feature", str),
        Column("score", "score", float),
        Column("changes", "changes"),
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    # ------------------------------------------------------------ progress, summary, terminal

    def size(self, statistics: Mapping[str, int]) -> str:
        """Return how often the best feature has changed."""
        return f"{counted(statistics['changes'], 'change')} of the best feature"

    def outcome(self, statistics: Mapping[str, int], name: Callable[[int], str]) -> dict[str, Any]:
        """Return the split of the last search, the finder and why it was chosen, and what it took."""
        if "finder" not in statistics:
            return {}
        options, at = BestSplitOptions.model_validate(self.options), statistics["finder"]
        chosen: dict[str, Any] = {"name": None if at < 0 else get_args(FinderName)[at]}
        if options.finder == "auto" and at >= 0:
            chosen |= {key: statistics[f"warmup_{key}"] for key in MEASURED}
        split = Splits(*(np.array([statistics[f"split_{column}"]]) for column in Splits._fields))
        feature, unit = statistics["split_feature"], statistics.get("unit", 1)
        found = {
            "feature": None if feature < 0 else feature,
            "name": None if feature < 0 else name(feature),
            "score": score_of_split(options.entropy, split, unit),
            "rows": round(statistics["split_n"] / unit),
            "with_feature": round(statistics["split_n1"] / unit),
        }
        counts = {key: statistics[key] for key in ("changes", "moves", "buckets")}
        return {"split": found if statistics["split_n"] else None, "finder": chosen, **counts}

    def lines(self, summary: Mapping[str, Any]) -> Lines:
        """Return the split at the end, and how it was searched; of models by key how often their splits changed."""
        changes = ("changes", f"the best feature changed {counted(summary['changes'], 'time')}")
        if "finder" not in summary:
            return [changes]
        found = f"{finder_in_words(summary['finder'])}; {work_in_words(summary)}"
        return [*self.audited(summary), changes, ("finder", found)]

    def audited(self, summary: Mapping[str, Any]) -> Lines:
        """Return the split."""
        return [("best split", split_in_words(summary["split"]))] if "split" in summary else []

    def sweep_values(self, outcome: Mapping[str, Any]) -> dict[str, Any]:
        """Return the best feature at the end."""
        if "split" not in outcome:
            return {}
        split = outcome["split"] or {}
        return {"best_feature": split.get("name"), "score": split.get("score"), "changes": outcome["changes"]}

    # ------------------------------------------------------------ receipt

    def receipt(self, effects: Effects) -> ReceiptWords:
        """Return changes of the best feature, and features that were moved."""
        changed, counts = effects.work["changes"], int(effects.work["counts_changed"])
        moved = counted(int(effects.work["moves"]), "feature")
        return ReceiptWords(
            short=f"{changed:,} changes of the best feature",
            counts=f"{counted(counts, 'class count')} changed, of all examples or a side of the split"
            if counts
            else "",
            lines=[
                ("best feature", f"changed {counted(int(changed), 'time')}; {moved} moved to another bucket"),
                *remaining(effects.work, "counts_changed", "changes", "moves"),
            ],
            titles={"path": "class counts changed", "changed": "best feature changed"},
        )

    # ------------------------------------------------------------ report

    def drawable(self, arrays: Columns) -> Columns:
        """Return nothing: there is no tree."""
        return {}

    def present(self, run: RunRecords) -> Presentation:
        """Return which feature was best when, and what the search for it took."""
        return Presentation(figures(run.summary), best_split(run), structure_section(run), gap=gap_of(run))

    def compared(self, summary: Mapping[str, Any]) -> Lines:
        """Return the split at the end."""
        split = summary.get("split") or {}
        return [
            ("Best feature", clipped(str(split.get("name") or "none"), FEATURE_SHOWN)),
            ("Score", figure(number(split, "score"))),
            ("Changes", count(number(summary, "changes"))),
        ]


def figures(summary: Mapping[str, Any]) -> list[Fact]:
    """Return the split as key figures; none of a run without an end."""
    if "split" not in summary:
        return []
    split, updates = summary["split"] or {}, summary.get("updates") or 1
    name = clipped(str(split.get("name") or "none"), FEATURE_SHOWN)
    found = [
        Fact("best feature", name, f"score {figure(split.get('score'))}"),
        Fact("changes", count(summary["changes"]), "of the best feature"),
    ]
    if summary["buckets"]:
        moves = f"{figure(summary['moves'] / updates)} moves per update"
        found.append(Fact("buckets filled", count(summary["buckets"]), moves))
    return found


def best_split(run: RunRecords) -> Section:
    """Return the split at the end, and the features that were the best."""
    events, updates = run.events if {"feature", "score", "n1"} <= run.events.keys() else {}, _updates(run)
    blocks: list[Block] = []
    if "split" in run.summary:
        blocks.append(
            Text(
                f"Best split at the end: {split_in_words(run.summary['split'])}. A row is predicted by the majority of "
                "its side: of the rows in which the feature is 1, or of those in which it is not."
            )
        )
    if not len(events.get("seq", ())):
        return Section("Best split", [*blocks, Text("No search has found a feature.", "none")])
    names = Ranked(events, updates, run.names)
    found: list[Block] = [over_time(events, updates, names), features(events, updates, names), changes(events, names)]
    return Section("Best split", [*blocks, *found])


def structure_section(run: RunRecords) -> Section:
    """Return the finder, why it was chosen, and the size of its structure."""
    finder = run.summary.get("finder")
    blocks: list[Block] = []
    if finder:
        words = finder_in_words(finder)
        blocks.append(Text(f"{words[0].upper()}{words[1:]}; {work_in_words(run.summary)}."))
    drawn = has_curve(run.metrics, "moves") and run.metrics["buckets"].any()
    return Section("Structure", [*blocks, *([structure(run.metrics)] if drawn else [])])


def gap_of(run: RunRecords) -> Fact | None:
    """Return the score of the split as a multiple of the least there is; None where no audit has measured it."""
    worst = worst_of(run.summary)
    ratio, score, optimum = (number(worst, key) for key in ("ratio", "score", "optimum"))
    if ratio is None:
        return None
    alpha, scan = number(run.options, "alpha"), (run.summary.get("finder") or {}).get("name") == "scan"
    least = f"score {figure(score)}, the lowest of all features {figure(optimum)}"
    title, text = "Score of the split over the optimum", f"{ratio:.6g}"
    if scan or alpha is None:
        return Fact(title, text, f"{least}; a scan finds the least itself")
    return Fact(title, text, f"{least}; up to 1 + alpha = {1 + alpha:g} is promised", share=(ratio - 1) / alpha)


def _updates(run: RunRecords) -> int:
    """Return the updates of the run, also without a summary."""
    return max(run.updates, int(run.events.get("seq", np.empty(0)).max(initial=-1)) + 1, 1)


def structure(metrics: Columns) -> Chart:
    """Return the filled buckets, and the features moved per update."""
    table = merged(metrics, WINDOWS)
    moves = per_unit(table["moves"], table["seq"])
    return over_stream(
        "structure",
        "Buckets and moves",
        "Buckets of all feature groups that hold a feature, and features that one update moved because the share of "
        "class 1 among the rows without them had left the limits of their bucket.",
        table,
        (
            line_panel(table, [Series(table["buckets"], "buckets filled", "learner")], "buckets", 8.0, count),
            line_panel(table, [Series(moves, "moves per update", "coordinator")], "moves/update", 8.0),
        ),
        metrics,
    )
