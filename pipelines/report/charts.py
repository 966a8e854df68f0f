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
    band,
    boxes,
    curve,
    detail,
    last_of,
    linear,
    number_panel,
    over_stream,
    updates_axis,
)
from raydt.presentation.series import Columns, increments, merged, per_unit
from raydt.presentation.words import count, figure, share

#: Tone and dashes of the trivial predictors, in their order.
_BASELINES = (("nochange", "6 4"), ("majority", "2 4"))


def _beside_baselines(quality: Quality, score: str, window: str = "") -> list[tuple[str, str, str, str]]:
    """Lines of the learner and the baselines, as :func:`quality_panel` takes them."""
    baselines = zip(quality.baselines.items(), _BASELINES, strict=True)
    rivals = [(f"{window}{key}", name, *look) for (key, name), look in baselines]
    return [(score, "learner", "learner", ""), *rivals]


def cumulative_quality(metrics: Columns, f1_name: str | None) -> Chart:
    """The score so far compared with the baselines, and F1 of the positive class where there is one."""
    table, quality = merged(metrics, POINTS), quality_of(metrics)
    lines = _beside_baselines(quality, quality.score)
    ends = ", ".join(f"{name.replace('_', '-')} {quality.form(table[name][-1])}" for name, *_ in lines)
    if f1_name is not None:
        lines.append(("f1", f"learner, {f1_name}", "f1", "9 3 2 3"))
    return over_stream(
        "quality-cumulative",
        f"Prequential {quality.name} so far",
        "The model predicts each example just before it inserts it. " + detail(metrics, table),
        f"Line chart of cumulative {quality.name} over the stream. At the end: {ends}.",
        table,
        (quality_panel(table, quality, lines),),
    )


def windowed_quality(metrics: Columns) -> Chart:
    """The score of the learner and the baselines since the point before; stretches that were lost are shaded."""
    table, quality = merged(metrics, WINDOWS), quality_of(metrics)
    lines = _beside_baselines(quality, quality.window, "window_")
    window, *rivals = (table[column] for column, *_ in lines)
    low, high = (np.nanmin(window), np.nanmax(window)) if np.isfinite(window).any() else (None, None)
    behind = quality.behind(window, quality.best(rivals))
    edges = updates_axis(last_of(table)).at(np.concatenate([[0], table["seq"]]))
    shade = boxes(edges[:-1][behind], 0.0, np.diff(edges)[behind], 1.0) if behind.any() else None
    return over_stream(
        "quality-window",
        f"Prequential {quality.name}, window by window",
        f"{quality.name.capitalize()} on the predictions since the previous point."
        + (" Shaded: the learner is behind the better baseline. " if shade else " ")
        + detail(metrics, table),
        f"Line chart of windowed {quality.name} over the stream; the learner's lies between {quality.form(low)} and "
        f"{quality.form(high)}, and is behind the better baseline at {int(behind.sum())} of {len(window)} points.",
        table,
        (quality_panel(table, quality, lines, shade),),
        wide=True,
    )


def windowed_kappas(metrics: Columns) -> Chart:
    """How much of what the trivial predictors have wrong the learner has right, since the point before."""
    table = merged(metrics, WINDOWS)
    accuracy = table["window_accuracy"]
    beyond = {}
    for key, name in (("no_change", "kappa temporal"), ("majority", "kappa M")):
        rival = table[f"window_{key}"]
        with np.errstate(invalid="ignore", divide="ignore"):
            beyond[name] = np.where(rival < 1.0, (accuracy - rival) / (1.0 - rival), np.nan)
    x, y = updates_axis(last_of(table)), linear([*beyond.values(), [0.0]])
    looks = (("learner", ""), *_BASELINES[1:])
    marks = tuple(
        curve((x, y), table["seq"], values, name, tone, figure, dash=dash)
        for (name, values), (tone, dash) in zip(beyond.items(), looks, strict=True)
    )
    lost = {name: int((values < 0.0).sum()) for name, values in beyond.items()}
    return over_stream(
        "quality-kappa",
        "Kappa temporal and kappa M, window by window",
        "The share of the errors of no-change (temporal) and of majority (M) that the learner avoids: 1 is perfect, "
        "below 0 it is behind. " + detail(metrics, table),
        "Line chart of two kappas over the stream; "
        + ", ".join(f"{name} is below 0 at {n} of {len(accuracy)} points" for name, n in lost.items())
        + ".",
        table,
        (Panel("kappa", marks, y, 11.0),),
        wide=True,
    )


def r2_so_far(metrics: Columns) -> Chart:
    """The share of the labels' variation that predictions explain; that of always predicting their mean is 0."""
    table = merged(metrics, POINTS)
    x, y = updates_axis(last_of(table)), linear([table["r2"], 0.0, 1.0])
    name = "R\N{SUPERSCRIPT TWO}"
    line = curve((x, y), table["seq"], table["r2"], "learner", "learner", figure)
    return over_stream(
        "quality-r2",
        f"{name} so far",
        "1 is perfect; 0 is the score of always predicting the mean of all labels. " + detail(metrics, table),
        f"Line chart of {name} over the stream; at the end {figure(table['r2'][-1])}.",
        table,
        (Panel(name, (line,), y, 15.0),),
    )


def live_examples(metrics: Columns) -> Chart:
    """Live examples, and inserts and deletes per update."""
    table = merged(metrics, WINDOWS)
    x, active = updates_axis(last_of(table)), linear([table["active"]], zero=True, whole=True)
    inserts, deletes = increments(table["inserts"]), increments(table["deletes"])
    part = inserts / np.maximum(inserts + deletes, 1.0)
    mix = linear([[0.0, 1.0]], form="share")
    at, none = table["seq"], np.zeros(len(part))
    return over_stream(
        "live",
        "Live examples, inserts and deletes",
        "Above: examples in the model. Below: the updates by kind. " + detail(metrics, table),
        f"Live examples over the stream, {_end(table, 'active')} at the end, after "
        f"{_end(table, 'inserts')} inserts and {_end(table, 'deletes')} deletes.",
        table,
        (
            Panel("examples", (curve((x, active), at, table["active"], "live", "live", count),), active),
            Panel(
                "share of updates",
                (
                    band((x, mix), at, none, part, "inserts", "insert", share),
                    band((x, mix), at, part, none + 1, "deletes", "delete", share),
                ),
                mix,
                6.0,
            ),
        ),
    )


def work_over_stream(metrics: Columns, curves: Sequence[Curve]) -> Chart:
    """Updates per second, and what the learner's ``curves`` say of its work per update."""
    table = merged(metrics, WINDOWS)
    rate = per_unit(table["seq"], table["seconds"])
    panels = [number_panel(table, [(rate, "updates per second", "learner")], "updates/s", 9.0)]
    whole = figure(int(table["seq"][-1]) / float(table["seconds"][-1] or np.nan))
    names, ends = [], [f"{whole} updates per second overall"]
    for curve_ in curves:
        if curve_.rate and curve_.column in table:
            name = curve_.title[0].lower() + curve_.title[1:]
            each = per_unit(table[curve_.column], table["seq"])
            panels.append(number_panel(table, [(each, name, "coordinator")], curve_.unit, 9.0))
            names.append(name)
            ends.append(f"{table[curve_.column][-1] / max(int(table['seq'][-1]), 1):.3g} {curve_.unit}")
    return over_stream(
        "work",
        ", and ".join(["Speed", *names]),
        "Processing time only: start-up, compilation and this report are excluded. " + detail(metrics, table),
        f"Updates per second over the stream; {', '.join(ends)}.",
        table,
        tuple(panels),
    )


def quality_panel(
    table: Columns, quality: Quality, lines: list[tuple[str, str, str, str]], shade: Box | None = None
) -> Panel:
    """Columns of scores, as (column, name, tone, dashes)."""
    x, known = updates_axis(last_of(table)), [line for line in lines if line[0] in table]
    columns = [table[column] for column, *_ in known]
    y = linear(columns, within=(0.0, 1.0), form="share") if quality.form is share else linear(columns, zero=True)
    marks = tuple(
        curve((x, y), table["seq"], table[column], name, tone, quality.form, dash=dash)
        for column, name, tone, dash in known
    )
    return Panel(quality.unit, marks, y, 15.0, shade)


def _end(table: Columns, column: str) -> str:
    value = table[column][-1]
    return count(value) if table[column].dtype.kind in "iu" else share(value)
