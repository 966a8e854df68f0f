"""The curves over the stream: quality compared with the baselines, live examples, and speed.

A curve has at most ``POINTS`` points; rows of the metrics table are merged for that, none is sampled away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipelines.report.quality import Quality, quality_of
from raydt.learners.description import Curve
from raydt.presentation.charts import (
    POINTS,
    WINDOWS,
    Box,
    Chart,
    Panel,
    Series,
    band,
    boxes,
    has_curve,
    last_of,
    line_panel,
    linear,
    over_stream,
    updates_axis,
)
from raydt.presentation.series import Columns, increments, merged, per_unit
from raydt.presentation.words import count, share

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
    if all(has_curve(metrics, name) for name in (quality.window, "window_no_change", "window_majority")):
        drawn.append(_kappas(metrics))
    if has_curve(metrics, "r2"):
        table, name = merged(metrics, POINTS), "R\N{SUPERSCRIPT TWO}"
        line = Series(table["r2"], "learner", "learner")
        panel = line_panel(table, [line], name, 15.0, axis=linear([table["r2"], 0.0, 1.0]))
        caption = "1 is perfect; 0 is the score of always predicting the mean of all labels."
        drawn.append(over_stream("quality-r2", f"{name} so far", caption, table, (panel,), metrics))
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


def _kappas(metrics: Columns) -> Chart:
    """Return the share of the trivial predictors' errors that the learner avoids, since the point before."""
    table, lines = merged(metrics, WINDOWS), []
    for key, name, tone, dash in (("no_change", "temporal", "learner", ""), ("majority", "M", "majority", "2 4")):
        rival = table[f"window_{key}"]
        with np.errstate(invalid="ignore", divide="ignore"):
            beyond = np.where(rival < 1.0, (table["window_accuracy"] - rival) / (1.0 - rival), np.nan)
        lines.append(Series(beyond, f"kappa {name}", tone, dash))
    return over_stream(
        "quality-kappa",
        "Kappa temporal and kappa M, window by window",
        "The share of the errors of no-change (temporal) and of majority (M) that the learner avoids: 1 is perfect, "
        "below 0 it is behind.",
        table,
        (line_panel(table, lines, "kappa", 11.0, axis=linear([*(line.values for line in lines), [0.0]])),),
        metrics,
    )


def live_examples(metrics: Columns) -> Chart:
    """Return live examples, and inserts and deletes per update."""
    table = merged(metrics, WINDOWS)
    inserts, deletes = increments(table["inserts"]), increments(table["deletes"])
    part, mix = inserts / np.maximum(inserts + deletes, 1.0), linear([[0.0, 1.0]], form="share")
    axes, at, none = (updates_axis(last_of(table)), mix), table["seq"], np.zeros(len(part))
    kinds = (
        band(axes, at, none, part, "inserts", "insert", share),
        band(axes, at, part, none + 1, "deletes", "delete", share),
    )
    return over_stream(
        "live",
        "Live examples, inserts and deletes",
        "Above: examples in the model. Below: the updates by kind.",
        table,
        (
            line_panel(table, [Series(table["active"], "live", "live")], "examples", 12.0, count),
            Panel("share of updates", kinds, mix, 6.0),
        ),
        metrics,
        wide=False,
    )


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
