"""What a report shows of a sparse best split: which feature was best when, and what the search for it took.

Works on the summary, on the events (one for each search that found another feature than the one before) and on the
metrics, which count moves and filled buckets. Between two events the feature is the same; its score is not known there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pipelines.report.best_split_words import NAME_SHOWN, finder_in_words, split_in_words, work_in_words
from pipelines.report.charts import WINDOWS, detail, has_curve, number_panel, over_stream
from pipelines.report.folder import Columns, RunFolder
from pipelines.report.identity import features_of, learner_of
from pipelines.report.plot import Axis, Chart, Mark, Panel, boxes, centres, curve, linear, updates_axis
from pipelines.report.rebuilds import STRETCHES
from pipelines.report.recovery import marked
from pipelines.report.series import merged, per_unit
from pipelines.report.tables import FEATURES_SHOWN, Row, Table
from pipelines.report.tree import feature_name
from pipelines.words import ABSENT, clipped, count, counted, figure, share

Floats = npt.NDArray[np.float64]

#: Features that have a lane of their own, and changes that are listed.
LANES, CHANGES_SHOWN = 8, 20
NONE = "no feature"
#: Bars of neighbours overlap a little, or else the page would show through between them.
_OVERLAP = 1.02


@dataclass(frozen=True, slots=True)
class BestSplit:
    """Sections of a run of a sparse best split; those without data are empty.

    Attributes
    ----------
    now, finder, work : str
        The split at the end, how it is searched and why so, and what that took.
    charts, work_charts : list of Chart
    features, changes : Table
    """

    now: str
    finder: str
    work: str
    charts: list[Chart]
    features: Table
    changes: Table
    work_charts: list[Chart]


def best_split_of(run: RunFolder) -> BestSplit | None:
    """What a run of a sparse best split shows; None of other runs."""
    if learner_of(run) != "best_split":
        return None
    events, updates = run.events if {"feature", "score", "n1"} <= run.events.keys() else {}, _updates(run)
    known = bool(len(events.get("seq", ())))
    names = Ranked(run, events) if known else None
    finder = run.summary.get("finder")
    work = has_curve(run.metrics, "moves") and run.metrics["buckets"].any()
    charts = [over_time(events, updates, names)] if names else []
    return BestSplit(
        now=split_in_words(run.summary["split"]) if "split" in run.summary else "",
        finder=finder_in_words(finder) if finder else "",
        work=work_in_words(run.summary) if finder else "",
        charts=marked(charts, run, updates) if charts else [],
        features=features(events, updates, names) if names else Table([]),
        changes=changes(events, names) if names else Table([]),
        work_charts=marked([structure(run.metrics)], run, updates) if work else [],
    )


def _updates(run: RunFolder) -> int:
    """Updates of the run, also of one that has left no summary."""
    said, seen = int(run.summary.get("updates") or 0), run.events.get("seq", np.empty(0))
    return max(said, int(seen.max(initial=-1)) + 1, 1)


class Ranked:
    """The best features of a run by number, those that were it longest first.

    Attributes
    ----------
    order : ndarray of int64
    lasted : ndarray of float64
        For how many updates each was the best, in the same order.
    """

    def __init__(self, run: RunFolder, events: Columns) -> None:
        self._described, self._tokens = features_of(run), run.categories
        length = np.diff(np.append(events["seq"] + 1, _updates(run))).astype(np.float64)
        distinct, place = np.unique(events["feature"], return_inverse=True)
        lasted = np.bincount(place, length)
        order = np.lexsort((distinct, -lasted))
        self.order, self.lasted = distinct[order], lasted[order]

    def name(self, feature: int) -> str:
        """What a feature is called."""
        return NONE if feature < 0 else clipped(feature_name(self._described, feature, self._tokens), NAME_SHOWN)


# ---------------------------------------------------------------- the features


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
        points = curve((x, axis), middle, mean(values), name, tone, form, dotted=True)
        return Panel(unit, (replace(points, kind="dots", path=points.points, points=""),), axis, 7.0)

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
        path = boxes(np.arange(n) / n, 1 - (k + 0.9) / len(lanes), _OVERLAP / n, 0.8 * part / len(lanes))
        said = tuple(share(value, 0) if value > 0 else ABSENT for value in part.tolist())
        marks.append(Mark(name, tone, "box", path, share(lasted[-1] / edges[-1], 1), said))
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
    return Table(rows, f"{count(more)} more {'was' if more == 1 else 'were'} the best for a time." if more else "")


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
    return Table(rows, f"{cut} The table events/ has every one.")


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
