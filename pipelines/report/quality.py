"""How the predictions of a run are judged: by accuracy, or, where labels are numbers, by squared errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from raydt.arrays.types import Bools
from raydt.evaluation.scoring import CLASS_SCORES, FADED
from raydt.presentation.words import Form, count, figure, share


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


_TITLES = {score.name: score.title[0].upper() + score.title[1:] for score in CLASS_SCORES}
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
