"""The curves over the stream: quality compared with the baselines, live examples, and speed.

A curve has at most ``POINTS`` points; rows of the metrics table are merged for that, none is sampled away.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from raydt.arrays.elementary import Bools
from raydt.evaluation.scoring import CLASS_SCORES, FADED
from raydt.learners.description import Curve
from raydt.messages import escaped
from raydt.presentation.charts import (
    POINTS,
    WINDOWS,
    Box,
    Chart,
    Columns,
    Form,
    Line,
    Panel,
    Series,
    Shape,
    boxes,
    count,
    figure,
    has_curve,
    increments,
    last_of,
    line_panel,
    linear,
    merged,
    over_stream,
    per_unit,
    share,
    updates_axis,
)

# How the predictions of a run are judged: by accuracy, or, where labels are numbers, by squared errors.


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """One way of judging."""

    score: str  #: key of the score of learner and baselines, in the summary's metrics and the metrics table
    name: str
    unit: str
    baselines: Mapping[str, str]  #: names of the trivial predictors by key
    titles: Mapping[str, str]  #: names of all scores by key
    form: Form  #: how the score is written
    compared: Mapping[str, Form]  #: other scores by which runs are compared, and how they are written
    more_is_better: bool

    @property
    def window(self) -> str:
        """Return the column of the score since the row before."""
        return f"window_{self.score}"

    def behind(self, learner: Any, rival: Any) -> Bools:
        """Return where the learner is worse."""
        worse: Bools = np.less(learner, rival) if self.more_is_better else np.greater(learner, rival)
        return worse

    def best(self, rivals: list[Any]) -> Any:
        """Return the better of two or more series, NaN passed over."""
        best = rivals[0]
        for rival in rivals[1:]:
            best = np.fmax(best, rival) if self.more_is_better else np.fmin(best, rival)
        return best


_TITLES = {score.name: score.title[0].upper() + score.title[1:] for score in CLASS_SCORES} | {
    "log_loss": "Log loss",
    "brier": "Brier score",
    "average_precision": "Average precision",
}
ACCURACY = Quality(
    score="accuracy",
    name="accuracy",
    unit="accuracy",
    baselines={"no_change": "no-change", "majority": "majority"},
    titles=_TITLES | {f"faded_{name}": f"{_TITLES[name]}, faded" for name in FADED} | {"alarms": "Alarms of ADWIN"},
    form=share,
    compared={
        **{score.name: share if score.is_share else figure for score in CLASS_SCORES if score.name != "accuracy"},
        "faded_accuracy": share,
        "alarms": count,
    },
    more_is_better=True,
)
SQUARED_ERROR = Quality(
    score="mse",
    name="mean squared error",
    unit="squared error",
    baselines={"no_change": "no-change", "mean": "mean"},
    titles={
        "mse": "Mean squared error",
        "rmse": "Its root",
        "mae": "Mean absolute error",
        "r2": "R\N{SUPERSCRIPT TWO}",
        "faded_mse": "Mean squared error, faded",
        "faded_rmse": "Its root, faded",
        "faded_mae": "Mean absolute error, faded",
        "faded_r2": "R\N{SUPERSCRIPT TWO}, faded",
    },
    form=figure,
    compared=dict.fromkeys(("rmse", "mae", "r2", "faded_mse"), figure),
    more_is_better=False,
)


def judged(summary: Mapping[str, Any]) -> Quality:
    """Return how the run of a summary is judged: a training run has no last label to compare with."""
    quality = quality_of(summary.get("metrics"))
    if summary.get("holdout") is None:
        return quality
    return replace(quality, baselines={key: quality.baselines[key] for key in quality.baselines if key != "no_change"})


def quality_of(scores: Any) -> Quality:
    """Return how a run is judged by these scores, of its summary or its metrics table; by accuracy without any."""
    return SQUARED_ERROR if isinstance(scores, Mapping) and "mse" in scores else ACCURACY


#: Tones and dashes of the learner and the trivial predictors.
_TONES, _DASHES = ("learner", "nochange", "majority", "f1"), ("", "6 4", "2 4", "9 3 2 3")


def quality_charts(metrics: Columns, f1_name: str | None) -> list[Chart]:
    """Return the curves of the scores with at least two values; ``f1_name`` is the name of the F1 score, if any."""
    quality, drawn = quality_of(metrics), []
    if has_curve(metrics, quality.window):
        drawn.append(_windowed(metrics, quality))
    if has_curve(metrics, quality.score):
        table = merged(metrics, POINTS)
        f1 = {} if f1_name is None else {"f1": f"learner, {f1_name}"}
        panel = _scores(table, quality, {quality.score: "learner", **quality.baselines, **f1})
        title = f"Prequential {quality.name} so far"
        caption = "The model predicts each example just before it inserts it."
        drawn.append(over_stream("quality-cumulative", title, caption, table, (panel,), metrics))
    return drawn


def _scores(table: Columns, quality: Quality, columns: dict[str, str], shade: Box | None = None) -> Panel:
    """Return a panel of the columns that the table has, by name, in the tones of their order."""
    looks = zip(columns.items(), _TONES, _DASHES, strict=False)
    lines = [Series(table[key], name, tone, dash) for (key, name), tone, dash in looks if key in table]
    values = [series.values for series in lines]
    y = linear(values, within=(0.0, 1.0), form="share") if quality.form is share else linear(values, zero=True)
    return line_panel(table, lines, quality.unit, 15.0, quality.form, y, shade)


def _windowed(metrics: Columns, quality: Quality) -> Chart:
    """Return the score of learner and baselines since the point before; stretches that were lost are shaded."""
    table = merged(metrics, WINDOWS)
    columns = {quality.window: "learner", **{f"window_{key}": name for key, name in quality.baselines.items()}}
    window, *rivals = (table[column] for column in columns)
    behind = quality.behind(window, quality.best(rivals))
    edges = updates_axis(last_of(table)).at(np.concatenate([[0], table["seq"]]))
    shade = boxes(edges[:-1][behind], 0.0, np.diff(edges)[behind], 1.0) if behind.any() else None
    caption = f"{quality.name.capitalize()} on the predictions since the previous point."
    caption += " Shaded: the learner is behind the better baseline." if shade else ""
    panels = (_scores(table, quality, columns, shade),)
    return over_stream(
        "quality-window", f"Prequential {quality.name}, window by window", caption, table, panels, metrics
    )


def live_examples(metrics: Columns) -> Chart:
    """Return live examples, and inserts and deletes since the point before."""
    table = merged(metrics, WINDOWS)
    kinds = [Series(increments(table[name]), name, name[:-1]) for name in ("inserts", "deletes")]
    live = line_panel(table, [Series(table["active"], "live", "live")], "examples", 12.0, count)
    panels = live, line_panel(table, kinds, "updates", 6.0, count)
    title = "Live examples, inserts and deletes"
    caption = "Above: examples in the model. Below: updates since the previous point."
    return over_stream("live", title, caption, table, panels, metrics, wide=False)


def work_over_stream(metrics: Columns, curves: Sequence[Curve]) -> Chart:
    """Return updates per second, and the learner's ``curves`` of its work per update."""
    table, names = merged(metrics, WINDOWS), ["Speed"]
    rate = per_unit(table["seq"], table["seconds"])
    panels = [line_panel(table, [Series(rate, "updates per second", "learner")], "updates/s", 9.0)]
    for curve in curves:
        if curve.rate and curve.column in table:
            names.append(curve.title[0].lower() + curve.title[1:])
            each = per_unit(table[curve.column], table["seq"])
            panels.append(line_panel(table, [Series(each, names[-1], "coordinator")], curve.unit, 9.0))
    caption = "Processing time only: start-up, compilation and this report are excluded."
    return over_stream("work", ", and ".join(names), caption, table, tuple(panels), metrics, wide=False)


# Charts as SVG paths on a square of 1000 units that stretches to any width.
#
# Invariant: drawn without a script, in light and dark, and on paper. Words and numbers stand beside the drawing as
# text, so that they never stretch with it. Not here: what is drawn (:mod:`raydt.presentation.charts`).

UNIT = 1000.0


def path(shape: Shape | None, across: Callable[[Any], Any] = np.asarray) -> str:
    """Return the path of a shape, of a line without its dots; ``across`` gives the places of its x, as of a chart."""
    match shape:
        case Line(x, y, step):
            known, parts, at = np.isfinite(y), list[str](), across(x)
            for i in np.flatnonzero(known).tolist():
                place, level = _place(at[i]), _place(1.0 - y[i])
                begins = i == 0 or not known[i - 1]
                parts.append(f"M{place} {level}" if begins else f"H{place}V{level}" if step else f"L{place} {level}")
            return "".join(parts)
        case Box(x, y, width, height):
            left = across(x)
            rows = zip(*(column.tolist() for column in (left, y, across(x + width) - left, height)), strict=True)
            return "".join(
                f"M{_place(a)} {_place(1 - b - h)}h{_place(w)}v{_place(h)}h{_place(-w)}z"
                for a, b, w, h in rows
                if w > 0 and h > 0
            )
    return ""


def dots_of(shape: object, across: Callable[[Any], Any] = np.asarray) -> str:
    """Return the dots on a line, at the points without neighbours."""
    if not isinstance(shape, Line):
        return ""
    known, at, down = np.isfinite(shape.y), across(shape.x), 1.0 - shape.y
    before, after = np.append(False, known[:-1]), np.append(known[1:], False)
    drawn = known & ~before & ~after
    return "".join(f"M{_place(at[i])} {_place(down[i])}h0" for i in np.flatnonzero(drawn).tolist())


def kind(shape: object) -> str:
    """Return the class of a shape in the style sheet."""
    return type(shape).__name__.lower()


def grid(panel: Panel) -> str:
    """Return the lines at the ticks of a panel."""
    return "".join(f"M0 {_place(1 - tick.at)}H1000" for tick in panel.axis.ticks)


def uprights(chart: Chart) -> str:
    """Return the lines from top to bottom; those that fall on one another are drawn once."""
    return "".join(f"M{place} 0V1000" for place in dict.fromkeys(map(_place, chart.across(chart.uprights))))


def readout(chart: Chart) -> str:
    """Return the data the page's script needs to answer a pointer, as JSON; empty if there is nothing to point at."""
    values = [mark.values for panel in chart.panels for mark in panel.marks]
    if not len(chart.at) or not any(values):
        return ""
    at = [round(float(place), 4) for place in chart.across(chart.at)]
    return json.dumps(
        {"at": at, "names": [escaped(name) for name in chart.names], "values": values}, separators=(",", ":")
    )


def _place(part: float) -> str:
    """Return a share as units of the drawing, to a tenth."""
    return f"{UNIT * part:.1f}".removesuffix(".0")
