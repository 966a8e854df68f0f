"""The features that were the best during a run, by its events: for how long each, and every change."""

from __future__ import annotations

import numpy as np

from raydt.arrays.types import Floats
from raydt.learners.best_split.words import NAME_SHOWN
from raydt.presentation.blocks import Row, Table
from raydt.presentation.charts import Axis, Chart, Mark, Panel, Series, Stretches, boxes, linear, points, updates_axis
from raydt.presentation.series import Columns
from raydt.presentation.trees import FEATURES_SHOWN, Names
from raydt.presentation.words import ABSENT, clipped, count, counted, figure, share

#: Features that have a lane of their own, and changes that are listed.
LANES, CHANGES_SHOWN = 8, 20
NONE = "no feature"
#: Bars of neighbours overlap a little, or else the page would show through between them.
_OVERLAP = 1.02


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
    """Return a lane for each of the features that were the best for longest, and scores and shares at the changes."""
    parts = Stretches.by(events, updates)
    x, n = updates_axis(int(parts.edges[-1])), parts.n
    middle, number = (parts.edges[:-1] + parts.edges[1:]) / 2, parts.total()

    def mean(values: Floats) -> Floats:
        means: Floats = np.divide(parts.total(values), number, out=np.full(n, np.nan), where=number > 0)
        return means

    def panel(values: Floats, unit: str, name: str, axis: Axis, tone: str) -> Panel:
        form = share if unit == "share of rows" else figure
        return Panel(unit, (points((x, axis), middle, Series(mean(values), name, tone), form),), axis, 7.0)

    total = len(events["seq"])
    part = events["n1"] / np.maximum(events["n"], 1)
    return parts.chart(
        "best-feature",
        "The best feature over the stream",
        f"{counted(total, 'change')}, drawn over {counted(n, 'stretch')} of the stream. A lane is a feature, the one "
        "that was the best for longest on top; its bars are as high as the share of the stretch in which it was. "
        "Below, at the changes only, with means where a stretch has several: the score, of which less is better, and "
        "the share of the rows in which the new best feature is 1.",
        (
            _lanes(events, parts.edges, names),
            panel(events["score"], "score", "when it became the best", linear([events["score"]], zero=True), "learner"),
            panel(part, "share of rows", "with the feature", linear([[0.0, 1.0]], form="share"), "coordinator"),
        ),
    )


def _lanes(events: Columns, edges: Floats, names: Ranked) -> Panel:
    """Return the best features of each stretch; all beyond the first share a lane."""
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
