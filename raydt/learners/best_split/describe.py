"""The description of the sparse best split: which feature was best when, and what the search for it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, get_args

import numpy as np

from raydt.finders.finder import FinderName
from raydt.learners.best_split.coordinator import Splits, score_of_split
from raydt.learners.best_split.options import MEASURED, STRUCTURE_FROM, BestSplitOptions
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
from raydt.presentation.blocks import Block, Fact, Row, Section, Table, Text
from raydt.presentation.charts import (
    FEATURE_SHOWN,
    WINDOWS,
    Chart,
    Columns,
    Panel,
    Series,
    Stretches,
    clipped,
    count,
    counted,
    curve,
    figure,
    has_curve,
    line_panel,
    linear,
    merged,
    number,
    over_stream,
    per_unit,
    share,
    stacked_bars,
    updates_axis,
)
from raydt.presentation.trees import FEATURES_SHOWN, Names

# The split, the finder and its structure in words, for the terminal and the report.

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


# The features that were the best during a run, by its events: for how long each, and every change.

#: Features that have a lane of their own, and changes that are listed.
LANES, CHANGES_SHOWN = 8, 20
NONE = "no feature"


class Ranked:
    """The best features of a run by number, those that were it longest first: ``order``, and ``lasted`` in updates."""

    def __init__(self, events: Columns, updates: int, names: Names) -> None:
        self._names = names
        length = np.diff(np.append(events["seq"] + 1, updates)).astype(np.float64)
        distinct, place = np.unique(events["feature"], return_inverse=True)
        lasted = np.bincount(place, length)
        order = np.lexsort((distinct, -lasted))
        self.order, self.lasted = distinct[order], lasted[order]

    def name(self, feature: int) -> str:
        """Return the name of a feature."""
        return NONE if feature < 0 else clipped(self._names.feature(feature), NAME_SHOWN)


def over_time(events: Columns, updates: int, names: Ranked) -> Chart:
    """Return which feature was the best for which share of each stretch, and the mean score at the changes."""
    parts = Stretches.by(events, updates)
    edges, n, total = parts.edges, parts.n, len(events["seq"])
    shown = names.order[:LANES].tolist()
    lanes = [(names.name(feature), f"class-{k}", events["feature"] == feature) for k, feature in enumerate(shown)]
    if len(names.order) > LANES:
        rest = ~np.isin(events["feature"], shown)
        lanes.append((counted(len(names.order) - LANES, "other"), "class-other", rest))
    bounds, layers, whole = np.append(events["seq"] + 1.0, edges[-1]), [], []
    for name, tone, here in lanes:
        lasted = np.concatenate([[0.0], np.cumsum(np.where(here, np.diff(bounds), 0.0))])
        layers.append((name, tone, np.diff(np.interp(edges, bounds, lasted)) / np.diff(edges)))
        whole.append(share(lasted[-1] / edges[-1], 1))
    panel = stacked_bars([""] * n, layers, "share of the stretch", lambda part: share(part, 0), 9.0)
    marks = tuple(replace(mark, now=now) for mark, now in zip(panel.marks, whole, strict=True))
    changed = parts.total()
    score = np.divide(parts.total(events["score"]), changed, out=np.full(n, np.nan), where=changed > 0)
    y = linear([events["score"]], zero=True)
    line = curve((updates_axis(int(edges[-1])), y), (edges[:-1] + edges[1:]) / 2, Series(score, "score", "f1"), figure)
    return parts.chart(
        "best-feature",
        "The best feature over the stream",
        f"{counted(total, 'change')}, in {counted(n, 'stretch')} of the stream. Above: for which share of a stretch a "
        "feature was the best. Below, where it changed: the mean score of the new one, of which less is better.",
        (replace(panel, marks=marks), Panel("score", (line,), y, 7.0)),
    )


def features(events: Columns, updates: int, names: Ranked) -> Table:
    """Return the features that were the best for longest."""
    rows = []
    for feature, lasted in list(zip(names.order.tolist(), names.lasted.tolist(), strict=True))[:FEATURES_SHOWN]:
        at = np.flatnonzero(events["feature"] == feature)
        when = f"{count(events['seq'][at[0]] + 1)} to {_until(events, int(at[-1]), updates)}"
        cells = (names.name(feature), count(len(at)), count(lasted), share(lasted / updates, 1), when)
        rows.append(Row(cells, lasted / updates))
    more = len(names.order) - len(rows)
    return Table(
        rows,
        f"{count(more)} more {'was' if more == 1 else 'were'} the best for a time." if more else "",
        "Features that were the best for longest",
        ("Feature", "Times", "Updates", "Of the stream", "First and last"),
        style="bars",
    )


def _until(events: Columns, last: int, updates: int) -> str:
    """Return the update at which the feature of an event stopped being the best."""
    return "the end" if last + 1 == len(events["seq"]) else count(events["seq"][last + 1] + 1)


def changes(events: Columns, names: Ranked) -> Table:
    """Return the last changes; bars show the share of the rows."""
    total, rows = len(events["seq"]), []
    for i in range(max(0, total - CHANGES_SHOWN), total):
        part = float(events["n1"][i] / max(events["n"][i], 1))
        name, score = names.name(int(events["feature"][i])), figure(events["score"][i])
        rows.append(Row((count(events["seq"][i] + 1), name, score, share(part, 1), count(events["n"][i])), part))
    cut = (
        f"The last {len(rows)} of {count(total)} changes." if len(rows) < total else f"All {counted(total, 'change')}."
    )
    return Table(
        rows,
        f"{cut} The table events/ has every one.",
        "Changes of the best feature",
        ("After update", "Feature", "Score", "Is 1 in", "Of rows"),
        words=(1, 2),
        style="bars",
    )


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
        Column("best_feature", "Best feature", str),
        Column("score", "Score", float),
        Column("changes", "Changes"),
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

    def values(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Return the split at the end, and how often the best feature changed."""
        split = summary.get("split") or {}
        return {"best_feature": split.get("name"), "score": split.get("score"), "changes": summary.get("changes")}

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
