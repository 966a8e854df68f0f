"""What both kinds of evaluation share: how they are fed, the alarms they raise, and scores made of counts.

Reports, sweeps and the metrics table show the scores of :data:`CLASS_SCORES`, in this order. Formulas and sources:
docs/explanation/evaluation.md. Not here: counting (``raydt.evaluation.counting``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.types import AnyArray, Floats

#: In faded scores a prediction counts so many times as much as the next one.
FADING = 0.999
#: Chance of a false alarm at a check of ADWIN.
DELTA = 0.002


class Score(NamedTuple):
    """A score of predicted classes, as reports and sweeps show it. More is better."""

    name: str  #: in the metrics table and in summaries
    title: str  #: in the middle of a sentence
    is_share: bool = False  #: from 0 to 1, and shown in percent


CLASS_SCORES = (
    Score("accuracy", "accuracy", is_share=True),
    Score("f1", "F1", is_share=True),
    Score("macro_f1", "macro F1", is_share=True),
    Score("kappa", "kappa"),
    Score("kappa_temporal", "kappa temporal"),
    Score("kappa_m", "kappa M"),
    Score("auc", "AUC"),
)
KAPPAS = ("kappa", "kappa_temporal", "kappa_m")
#: Scores of classes that also have a faded value.
FADED = ("accuracy", *KAPPAS)


class Alarm(NamedTuple):
    """ADWIN has found that the share of wrong predictions has risen."""

    seq: int  #: The update after whose prediction it was found.
    predictions: int  #: Predictions that were compared.
    before: float  #: ``before``, ``after``: Share of wrong ones in the older and in the newer part of them.
    after: float


class Evaluation:
    """Running evaluation of predictions made just before each label was learned."""

    def rivals(self, truth: Any) -> tuple[Any, Any]:
        """Learn labels, and return what the two trivial predictors predicted just before each, of shape (n,)."""
        raise NotImplementedError

    def score(
        self,
        truth: Any,
        prediction: Any,
        rivals: tuple[Any, Any],
        levels: Any = None,
        seq: Any = None,
        weight: Any = None,
    ) -> None:
        """Score predictions and those of the trivial predictors; parameters as of :meth:`update`."""
        raise NotImplementedError

    def update(self, truth: Any, prediction: Any, levels: Any = None, seq: Any = None, weight: Any = None) -> None:
        """Score n consecutive inserted examples, in stream order. O(n), for classes O(n K) for the faded counts.

        ``truth`` and ``prediction`` are class codes (int32) or labels (float64), shape (n,), predicted just before each
        insertion; -1 or NaN in the warm-up, where only the baselines learn the label. ``levels`` are scores of class 1
        (:mod:`raydt.evaluation.ranking`), ``seq`` the numbers of the updates, for alarms; by default the places in
        these arrays. Numbers that exceed float64 make scores infinite or NaN. ``weight`` is what each counts, in units
        (:mod:`raydt.examples.weights`), of an evaluation that is ``weighted``; else each counts once.
        """
        self.score(truth, prediction, self.rivals(truth), levels, seq, weight)

    def state(self) -> dict[str, Any]:
        """Return all that later scores depend on."""
        raise NotImplementedError

    def narrow_state(self) -> dict[str, Any]:
        """Return the same in little room, for one of very many streams."""
        return self.state()


def ratio(part: AnyArray, total: AnyArray) -> Floats:
    """Return ``part / total``; NaN where the total is 0. Integers of any size are divided exactly, then rounded."""
    known = total != 0
    result = np.full(np.shape(total), np.nan)
    result[known] = (part[known] / total[known]).astype(np.float64)
    return result


def beyond(right: AnyArray, rival: AnyArray, total: AnyArray) -> Floats:
    """Return the share of a rival's errors that is right, (right - rival) / (total - rival); NaN without any."""
    return ratio(right - rival, total - rival)


def cohen(right: AnyArray, true: AnyArray, predicted: AnyArray, total: AnyArray) -> Floats:
    """Return Cohen's kappa of m moments, from counts by true and by predicted class, shape (m, K). O(m K).

    Whole counts are multiplied as Python integers: their products exceed int64 on long streams.
    """
    if true.dtype.kind == "i":
        right, true, predicted, total = (counts.astype(object) for counts in (right, true, predicted, total))
    chance = (true * predicted).sum(axis=1)
    return beyond(total * right, chance, total * total)


def determination(squared: Floats, spread: Floats, spread_squared: Floats, total: Floats) -> Floats:
    """Return R squared: 1 - squared errors / those of the mean of the labels; NaN where all labels are equal."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        variation = spread_squared - spread * spread / total
        return np.where(variation > 0.0, 1.0 - squared / variation, np.nan)
