"""How the sparse best split presents itself: which feature was best when, and what the search for it took.

Works on the summary, on the events (one for each search that found another feature than the one before) and on the
metrics, which count moves and filled buckets. Between two events the feature is the same; its score is not known there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt

from raydt.finders.finder import FinderName
from raydt.learners.best_split.model import Splits, score_of_split
from raydt.learners.best_split.options import MEASURED, STRUCTURE_FROM, BestSplitOptions
from raydt.learners.description import (
    Column,
    Curve,
    Description,
    Effects,
    Figure,
    Gap,
    Lines,
    Presentation,
    ReceiptWords,
    RunRecords,
    remaining,
    worst_of,
)
from raydt.presentation.blocks import Block, Row, Section, Table, Text
from raydt.presentation.charts import (
    WINDOWS,
    Axis,
    Chart,
    Mark,
    Panel,
    boxes,
    centres,
    detail,
    has_curve,
    linear,
    number_panel,
    over_stream,
    points,
    updates_axis,
)
from raydt.presentation.rebuilds import STRETCHES
from raydt.presentation.series import Columns, merged, per_unit
from raydt.presentation.trees import FEATURES_SHOWN, Names
from raydt.presentation.words import ABSENT, FEATURE_SHOWN, clipped, count, counted, figure, number, share

Floats = npt.NDArray[np.float64]

#: Features that have a lane of their own, and changes that are listed.
LANES, CHANGES_SHOWN = 8, 20
NONE = "no feature"
#: Bars of neighbours overlap a little, or else the page would show through between them.
_OVERLAP = 1.02
#: Letters of a feature's name; a token may be a whole line.
NAME_SHOWN = 60

_WHAT = {
    "updgini": "UPDGINI, a structure for the Gini index",
    "updent": "UPDENT, a structure for the entropy",
    "scan": "a scan of all seen features",
}


class BestSplitDescription(Description):
    """One split, and no tree."""

    same: ClassVar[tuple[str, str]] = (
        "the same split, counts and examples",
        "another split, or other counts or examples",
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
        """How often the best feature has changed."""
        return f"{counted(statistics['changes'], 'change')} of the best feature"

    def outcome(self, statistics: Mapping[str, int], name: Callable[[int], str]) -> dict[str, Any]:
        """The split of the last search, the finder and why it was chosen, and what it took.

        ``finder``: its name, and of ``auto`` what the warm-up had: ``features`` seen, their ``ones``, ``rows``.
        ``split``: ``feature`` and its ``name`` (both null where none was seen), ``score``, ``rows`` at the search,
        and those ``with_feature``; null before any search. ``changes``, ``moves``, ``buckets``.
        """
        if "finder" not in statistics:
            return {}
        options, at = BestSplitOptions.model_validate(self.options), statistics["finder"]
        chosen: dict[str, Any] = {"name": None if at < 0 else get_args(FinderName)[at]}
        if options.finder == "auto" and at >= 0:
            chosen |= {key: statistics[f"warmup_{key}"] for key in MEASURED}
        split = Splits(*(np.array([statistics[f"split_{column}"]]) for column in Splits._fields))
        feature = statistics["split_feature"]
        found = {
            "feature": None if feature < 0 else feature,
            "name": None if feature < 0 else name(feature),
            "score": score_of_split(options.entropy, split),
            "rows": statistics["split_n"],
            "with_feature": statistics["split_n1"],
        }
        counts = {key: statistics[key] for key in ("changes", "moves", "buckets")}
        return {"split": found if statistics["split_n"] else None, "finder": chosen, **counts}

    def lines(self, summary: Mapping[str, Any]) -> Lines:
        """The split at the end, and how it was searched."""
        return [
            *self.audited(summary),
            ("changes", f"the best feature changed {counted(summary['changes'], 'time')}"),
            ("finder", f"{finder_in_words(summary['finder'])}; {work_in_words(summary)}"),
        ]

    def audited(self, summary: Mapping[str, Any]) -> Lines:
        """The split."""
        return [("best split", split_in_words(summary["split"]))] if "split" in summary else []

    def sweep_values(self, outcome: Mapping[str, Any]) -> dict[str, Any]:
        """The best feature at the end."""
        if "split" not in outcome:
            return {}
        split = outcome["split"] or {}
        return {"best_feature": split.get("name"), "score": split.get("score"), "changes": outcome["changes"]}

    # ------------------------------------------------------------ receipt

    def receipt(self, effects: Effects) -> ReceiptWords:
        """Changes of the best feature, and features that were moved."""
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
        """Nothing: there is no tree."""
        return {}

    def present(self, run: RunRecords) -> Presentation:
        """Which feature was best when, and what the search for it took."""
        return Presentation(figures(run.summary), best_split(run), structure_section(run), gap=gap_of(run))

    def compared(self, summary: Mapping[str, Any]) -> Lines:
        """The split at the end."""
        split = summary.get("split") or {}
        return [
            ("Best feature", clipped(str(split.get("name") or "none"), FEATURE_SHOWN)),
            ("Score", figure(number(split, "score"))),
            ("Changes", count(number(summary, "changes"))),
        ]


def figures(summary: Mapping[str, Any]) -> list[Figure]:
    """The split as key figures; none of a run without an end."""
    if "split" not in summary:
        return []
    split, updates = summary["split"] or {}, summary.get("updates") or 1
    name = clipped(str(split.get("name") or "none"), FEATURE_SHOWN)
    found = [
        (name, "best feature", f"score {figure(split.get('score'))}"),
        (count(summary["changes"]), "changes", "of the best feature"),
    ]
    if summary["buckets"]:
        moves = f"{figure(summary['moves'] / updates)} moves per update"
        found.append((count(summary["buckets"]), "buckets filled", moves))
    return found


def best_split(run: RunRecords) -> Section:
    """The split at the end, and the features that were the best."""
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
    """The finder, why it was chosen, and what its structure holds."""
    finder = run.summary.get("finder")
    blocks: list[Block] = []
    if finder:
        words = finder_in_words(finder)
        blocks.append(Text(f"{words[0].upper()}{words[1:]}; {work_in_words(run.summary)}."))
    drawn = has_curve(run.metrics, "moves") and run.metrics["buckets"].any()
    return Section("Structure", [*blocks, *([structure(run.metrics)] if drawn else [])])


def gap_of(run: RunRecords) -> Gap | None:
    """The score of the split as a multiple of the least there is; None where no audit has measured it."""
    worst = worst_of(run.summary)
    ratio, score, optimum = (number(worst, key) for key in ("ratio", "score", "optimum"))
    if ratio is None:
        return None
    alpha, scan = number(run.options, "alpha"), (run.summary.get("finder") or {}).get("name") == "scan"
    least = f"score {figure(score)}, the lowest of all features {figure(optimum)}"
    title, text = "Score of the split over the optimum", f"{ratio:.6g}"
    if scan or alpha is None:
        return Gap(title, text, None, f"{least}; a scan finds the least itself")
    return Gap(title, text, (ratio - 1) / alpha, f"{least}; up to 1 + alpha = {1 + alpha:g} is promised")


# ---------------------------------------------------------------- words


def split_in_words(split: Mapping[str, Any] | None) -> str:
    """The split of the last search: feature, score, and how many rows have it."""
    if split is None:
        return "none: no search was run"
    if split["feature"] is None:
        return f"none: no feature is 1 in any of {counted(split['rows'], 'row')}"
    name, rows = clipped(split["name"], NAME_SHOWN), counted(split["rows"], "row")
    return f"{name}, score {figure(split['score'])}, 1 in {share(split['with_feature'] / split['rows'], 1)} of {rows}"


def finder_in_words(finder: Mapping[str, Any]) -> str:
    """The finder and, of ``auto``, why it was chosen."""
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
    """Size and cost of the structure; for a scan, that there is none."""
    if summary["finder"]["name"] == "scan":
        return "it has no buckets"
    updates = max(int(summary.get("updates") or 0), 1)
    return (
        f"{counted(summary['buckets'], 'bucket')} filled, {count(summary['moves'])} moves, "
        f"{figure(summary['moves'] / updates)} per update"
    )


# ---------------------------------------------------------------- the features


def _updates(run: RunRecords) -> int:
    """Updates of the run, also of one that has left no summary."""
    return max(run.updates, int(run.events.get("seq", np.empty(0)).max(initial=-1)) + 1, 1)


class Ranked:
    """The best features of a run by number, those that were it longest first.

    Attributes
    ----------
    order : ndarray of int64
    lasted : ndarray of float64
        For how many updates each was the best, in the same order.
    """

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
    """A lane for each of the features that were the best for longest, and scores and shares at the changes."""
    n = min(STRETCHES, updates)
    edges = np.linspace(0.0, updates, n + 1)
    x = updates_axis(updates)
    stretch = np.minimum(np.searchsorted(edges, events["seq"], side="right") - 1, n - 1)
    middle = (edges[:-1] + edges[1:]) / 2

    def mean(values: Floats) -> Floats:
        number = np.bincount(stretch, minlength=n)
        sums = np.bincount(stretch, values, minlength=n)
        means: Floats = np.divide(sums, number, out=np.full(n, np.nan), where=number > 0)
        return means

    def panel(values: Floats, unit: str, name: str, axis: Axis, tone: str) -> Panel:
        form = share if unit == "share of rows" else figure
        return Panel(unit, (points((x, axis), middle, mean(values), name, tone, form),), axis, 7.0)

    total, last = len(events["seq"]), names.name(int(events["feature"][-1]))
    part = events["n1"] / np.maximum(events["n"], 1)
    ranges = [f"updates {count(np.ceil(a))} to {count(np.ceil(b) - 1)}" for a, b in pairwise(edges)]
    return Chart(
        "best-feature",
        "The best feature over the stream",
        f"{counted(total, 'change')}, drawn over {counted(n, 'stretch')} of the stream. A lane is a feature, the one "
        "that was the best for longest on top; its bars are as high as the share of the stretch in which it was. "
        "Below, at the changes only, with means where a stretch has several: the score, of which less is better, and "
        "the share of the rows in which the new best feature is 1.",
        f"Lanes of the features that were the best, over the stream; at the end it is {last}.",
        (
            _lanes(events, edges, names),
            panel(events["score"], "score", "when it became the best", linear([events["score"]], zero=True), "learner"),
            panel(part, "share of rows", "with the feature", linear([[0.0, 1.0]], form="share"), "coordinator"),
        ),
        x.ticks,
        "updates",
        centres(n),
        ranges,
        updates,
        wide=True,
    )


def _lanes(events: Columns, edges: Floats, names: Ranked) -> Panel:
    """Which feature was the best in which stretch; all beyond the first share a lane."""
    shown = names.order[:LANES].tolist()
    lanes = [(names.name(feature), f"class-{k}", events["feature"] == feature) for k, feature in enumerate(shown)]
    if len(names.order) > LANES:
        rest = ~np.isin(events["feature"], shown)
        lanes.append((counted(len(names.order) - LANES, "other"), "class-other", rest))
    bounds, n = np.append(events["seq"] + 1.0, edges[-1]), len(edges) - 1
    marks = []
    for k, (name, tone, here) in enumerate(lanes):
        lasted = np.concatenate([[0.0], np.cumsum(np.where(here, np.diff(bounds), 0.0))])
        part = np.diff(np.interp(edges, bounds, lasted)) / np.diff(edges)
        lane = boxes(np.arange(n) / n, 1 - (k + 0.9) / len(lanes), _OVERLAP / n, 0.8 * part / len(lanes))
        labels = tuple(share(value, 0) if value > 0 else ABSENT for value in part.tolist())
        marks.append(Mark(name, tone, lane, share(lasted[-1] / edges[-1], 1), labels))
    return Panel("best feature", tuple(marks), Axis(0.0, 1.0, ()), max(3.0, 1.3 * len(lanes)))


def features(events: Columns, updates: int, names: Ranked) -> Table:
    """The features that were the best for longest."""
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
        bars=True,
    )


def _until(events: Columns, last: int, updates: int) -> str:
    """The update at which the feature of an event stopped being the best."""
    return "the end" if last + 1 == len(events["seq"]) else count(events["seq"][last + 1] + 1)


def changes(events: Columns, names: Ranked) -> Table:
    """The last changes; bars show the share of the rows."""
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
        bars=True,
    )


# ---------------------------------------------------------------- the structure


def structure(metrics: Columns) -> Chart:
    """Buckets that are filled, and features moved per update."""
    table = merged(metrics, WINDOWS)
    moves = per_unit(table["moves"], table["seq"])
    mean = table["moves"][-1] / max(int(table["seq"][-1]), 1)
    return over_stream(
        "structure",
        "Buckets and moves",
        "Buckets of all feature groups that hold a feature, and features that one update moved because the share of "
        "class 1 among the rows without them had left the limits of their bucket. " + detail(metrics, table),
        f"Filled buckets and moves per update over the stream; {count(table['buckets'][-1])} buckets at the end, "
        f"{mean:.3g} moves per update on the whole.",
        table,
        (
            number_panel(table, [(table["buckets"], "buckets filled", "learner")], "buckets", 8.0, count),
            number_panel(table, [(moves, "moves per update", "coordinator")], "moves/update", 8.0),
        ),
        wide=True,
    )
