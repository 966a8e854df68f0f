"""The part of a report, and of a terminal's lines, about the rows that a training run holds out.

Invariant: each score stands beside that of the constant prediction on the same rows, and a sentence says where the
model is not better. A difference in the first score that a 95% interval does not tell from chance is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.report.charts import Quality, judged
from pipelines.report.folder import ReportedRun
from raydt.messages import Message, message
from raydt.presentation.blocks import Block, Fact, Fold, Row, Table, Text
from raydt.presentation.charts import (
    ABSENT,
    Chart,
    Panel,
    Series,
    count,
    counted,
    curve,
    figure,
    linear,
    number,
    share,
)
from raydt.presentation.trees import class_name

#: Scores of which less is better.
LOSSES = ("log_loss", "brier", "mse", "rmse", "mae")
#: Scores beside the first one that a verdict names where they are better, or not, than those of the constant.
_NAMED = ("auc", "average_precision", "log_loss", "brier", "mae", "r2")
_FIGURES = ("auc", "log_loss")
#: Shares of the rows with the highest scores that the table of gains shows, and tables of segments that are open.
_TABLE, _OPEN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0), 2


#: How rows are chosen that are held out: the ids of sentences.
_CHOSEN = {
    "id": "reports.by_id",
    "subject": "reports.by_subject",
    "time": "reports.by_time",
    "order": "reports.by_order",
}


def chosen(holdout: Mapping[str, Any]) -> Message:
    """Return in words how the rows held out are chosen."""
    return message(_CHOSEN[holdout.get("by", "id")])


def of_training(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a summary has about rows held out; empty of other runs, and of one of an earlier version."""
    holdout = summary.get("holdout")
    return holdout if isinstance(holdout, dict) and isinstance(holdout.get("constant"), dict) else {}


def is_better(name: str, one: float, other: float) -> bool:
    """Return True if a score is better than another one of its name."""
    return one < other if name in LOSSES else one > other


def score_name(key: str, quality: Quality) -> str:
    """Return the name of a score in the middle of a sentence."""
    title = quality.titles[key]
    return title if key in ("auc", "brier", "r2") else title[0].lower() + title[1:]


def figures(summary: Mapping[str, Any]) -> list[Fact]:
    """Return key figures: scores of probabilities beside those of the constant prediction."""
    holdout, quality = of_training(summary), judged(summary)
    known = [(key, number(summary.get("metrics"), key), number(holdout.get("constant"), key)) for key in _FIGURES]
    return [
        Fact(score_name(key, quality), figure(one), f"constant {figure(other)}")
        for key, one, other in known
        if one is not None and other is not None
    ]


def verdict(summary: dict[str, Any]) -> tuple[list[str], bool]:
    """Return sentences that compare the model with the constant prediction, and True if no score is not better."""
    holdout, quality = of_training(summary), judged(summary)
    metrics, constant = summary.get("metrics") or {}, holdout.get("constant")
    score, rival = number(metrics, quality.score), number(summary.get("baselines"), next(iter(quality.baselines)))
    if not holdout or score is None or rival is None:
        return [], True
    name = next(iter(quality.baselines.values()))
    low, high = (value if value is not None else 0.0 for value in holdout["difference"])
    said = {"rivals": f"{name} ({quality.form(rival)})", "quality": quality.name, "score": quality.form(score)}
    interval = {"low": quality.form(low), "high": quality.form(high)}
    outcome = "beats" if low > 0.0 else "loses" if high < 0.0 else "may_be_chance"
    found = [str(message(f"reports.{outcome}", **said, **(interval if outcome == "may_be_chance" else {})))]
    pairs = [(key, number(metrics, key), number(constant, key)) for key in _NAMED]
    known = [(key, one, other) for key, one, other in pairs if one is not None and other is not None]
    for kind, wanted in (("better_in", True), ("not_better_in", False)):
        named = [
            f"{score_name(key, quality)} ({figure(one)}, not {figure(other)})"
            for key, one, other in known
            if is_better(key, one, other) == wanted
        ]
        if named:
            found.append(str(message(f"reports.{kind}", scores=", ".join(named))))
    return found, outcome == "beats" and all(is_better(*pair) for pair in known)


def sections(run: ReportedRun) -> list[tuple[str, str, list[Block]]]:
    """Return title, anchor and blocks of each section about the rows held out, but for the scores themselves."""
    holdout, quality = of_training(run.summary), judged(run.summary)
    if not holdout:
        return []
    classes = run.names.classes
    positive = class_name(classes, 1) if len(classes) > 1 else "1"
    calibration, gains = holdout.get("calibration") or [], holdout.get("gains") or []
    return [
        ("Calibration", "calibration", _calibration(calibration, positive) if calibration else []),
        ("Gains", "gains", _gains(gains, positive) if gains else []),
        ("Errors by segment", "segments", _segments(holdout.get("segments") or [], quality, positive)),
        ("Learning curve", "learning", _learning_curve(holdout.get("learning_curve") or [], quality)),
    ]


def _calibration(bins: Sequence[Mapping[str, float]], positive: str) -> list[Block]:
    predicted, observed = (np.array([one[key] for one in bins]) for key in ("predicted", "observed"))
    ends = linear([predicted, observed], zero=True, within=(0.0, 1.0), form="share")
    axes, x = (ends, ends), np.concatenate([[0.0], predicted, [ends.high]])
    nothing = np.array([np.nan])
    lines = (
        curve(axes, x, Series(np.concatenate([nothing, observed, nothing]), "observed", "learner"), share),
        curve(axes, x, Series(x, "perfectly calibrated", "majority", "2 4"), share),
    )
    caption = message("reports.calibration", positive=positive)
    names = ["", *(f"{counted(round(one['rows']), 'row')}, mean {share(one['predicted'])}" for one in bins), ""]
    rows = []
    for one in bins:
        difference = f"{100 * (one['observed'] - one['predicted']):+.2f}"
        rows.append(Row((count(one["rows"]), share(one["predicted"]), share(one["observed"]), difference)))
    columns = ("Rows", "Mean probability", f"Share of {positive}", "Difference")
    return [
        Chart(
            *("calibration", "Calibration curve", f"{caption}.", (Panel(f"share of {positive}", lines, ends, 15.0),)),
            *(ends.ticks, f"mean probability of {positive}", ends.at(x).tolist(), names),
        ),
        Table(rows, title="Rows by predicted probability, in tenths", columns=columns),
    ]


def _gains(gains: Sequence[Mapping[str, float]], positive: str) -> list[Block]:
    x, recall = (np.array([0.0, *(one[key] for one in gains)], dtype=np.float64) for key in ("share", "recall"))
    ends, base = linear([[0.0, 1.0]], form="share"), gains[-1]["precision"]
    lines = (
        curve((ends, ends), x, Series(recall, "by score", "learner"), share),
        curve((ends, ends), x, Series(x, "at random", "majority", "2 4"), share),
    )
    names = ["", *(f"the first {share(one['share'], 1)}, score {figure(one['threshold'])} or more" for one in gains)]
    chosen = {min(range(len(gains)), key=lambda i: abs(gains[i]["share"] - at)) for at in _TABLE}
    rows = [
        Row(
            (
                share(one["share"], 1),
                count(one["rows"]),
                figure(one["threshold"]),
                share(one["precision"]),
                share(one["recall"]),
                figure(one["precision"] / base) if base else ABSENT,
            ),
            one["recall"],
        )
        for one in (gains[i] for i in sorted(chosen))
    ]
    columns = ("Highest scores", "Rows", "Threshold", "Precision", "Recall", "Lift")
    caption = f"{message('reports.gains', positive=positive)}."
    return [
        Chart(
            *("gains", "Gains", caption, (Panel(f"recall of {positive}", lines, ends, 15.0),)),
            *(ends.ticks, "share of the rows, the highest scores first", x.tolist(), names),
        ),
        Table(rows, f"{message('reports.lift', base=share(base))}.", "Thresholds", columns, style="bars"),
    ]


def _segments(found: Sequence[Mapping[str, Any]], quality: Quality, positive: str) -> list[Block]:
    name = next(iter(quality.baselines.values())).capitalize()
    tables: list[Block] = []
    for one in found:
        by_share = all("observed" in segment for segment in one["segments"])
        last = (f"Share of {positive}", "Mean probability") if by_share else ()
        rows = [
            Row(
                (
                    str(segment["name"]),
                    count(segment["rows"]),
                    *(quality.form(segment[key]) for key in ("score", "baseline")),
                    *(share(segment[key]) for key in ("observed", "predicted") if by_share),
                )
            )
            for segment in one["segments"]
        ]
        columns = (str(one["feature"]), "Rows", quality.name.capitalize(), name, *last)
        tables.append(Table(rows, title=f"By {one['feature']}", columns=columns))
    more = tables[_OPEN:]
    fold = [Fold(f"By {counted(len(more), 'more feature')}", more)] if more else []
    about = [Text(f"{message('reports.segments')}.")] if tables else []
    return [*about, *tables[:_OPEN], *fold]


def _learning_curve(points: Sequence[Mapping[str, Any]], quality: Quality) -> list[Block]:
    if not points:
        return []
    named = [key for key in points[0] if key in quality.titles and not key.startswith("kappa")]
    keys = [key for key in named if any(number(one, key) is not None for one in points)]
    rows = [
        Row((count(one["trained_on"]), *(_written(key, number(one, key), quality) for key in keys))) for one in points
    ]
    columns = ("Rows trained on", *(quality.titles[key] for key in keys))
    table = Table(rows, title="Scores of the rows held out", columns=columns)
    return [Text(f"{message('reports.learning_curve')}."), table]


def _written(key: str, value: float | None, quality: Quality) -> str:
    form = quality.form if key == quality.score else quality.compared.get(key, figure)
    return form(value)


def scores(run: ReportedRun, f1: str | None) -> Table:
    """Return every score of the rows held out beside that of the constant, and where it is no better."""
    quality, constant = judged(run.summary), of_training(run.summary)["constant"]
    metrics = run.summary.get("metrics") or {}
    titles = {**quality.titles, "f1": f1 or ""}
    rows = []
    for key in metrics:
        value, rival = number(metrics, key), number(constant, key)
        if value is None or not titles.get(key):
            continue
        written = (_written(key, one, quality) for one in (value, rival))
        better = rival is None or is_better(key, value, rival)
        rows.append(Row((titles[key], *written, "" if better else "no better")))
    name = next(iter(quality.baselines.values())).capitalize()
    return Table(rows, title="Scores of the rows held out", columns=("Score", "Model", name, ""), words=(1, 4))
