"""Scores of rows held out, beside those of a constant prediction, and what the probabilities of class 1 are worth.

The constant prediction is the most frequent class of the rows trained on, and their shares of the classes as its
probabilities (``DummyClassifier(strategy="prior")`` of scikit-learn), or the mean of their labels.

Invariant: definitions are those of scikit-learn (``log_loss``, ``brier_score_loss``, ``average_precision_score``,
``calibration_curve``). Every sum is exact before it is rounded, and curves are made of counts by distinct score, so
that no figure depends on the batches in which rows came. Not here: the scores of predicted classes and numbers
(``raydt.evaluation.classification``, ``raydt.evaluation.regression``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.evaluation.adwin import interval_of_blocks
from raydt.evaluation.scoring import LEVELS, Levels
from raydt.examples.updates import Features

#: Bins of equal width of a calibration curve, and shares of the rows with the highest scores in a table of gains.
BINS = 10
SHARES = (0.01, 0.02, 0.05, *(k / 20 for k in range(2, 21)))
#: Features by whose values errors are counted, the most important ones, and values of a category that have a segment.
FEATURES, CATEGORIES = 5, 6

#: Values of categories by feature and number.
Categories: TypeAlias = Mapping[str, Mapping[float, Any]]

_SMALLEST = float(np.finfo(np.float64).eps)  #: Probabilities are at least that in a logarithm.


@dataclass(frozen=True, slots=True)
class Graded:
    """Examples by distinct score of class 1, the highest score first."""

    score: Floats
    negative: Ints  #: Weight of the examples of other classes with each score.
    positive: Ints

    @classmethod
    def of(cls, score: Floats, is_positive: Bools, weight: Ints) -> Graded:
        """Return n examples by score. O(n log n)."""
        distinct, place = np.unique(score, return_inverse=True)
        counts = np.zeros((2, len(distinct)), dtype=np.int64)
        np.add.at(counts, (is_positive.astype(np.int64), place), weight)
        return cls(distinct[::-1], counts[0, ::-1], counts[1, ::-1])

    def average_precision(self) -> float:
        """Return the area below the steps of precision over recall; NaN without a positive example."""
        hits, above = np.cumsum(self.positive), np.cumsum(self.positive + self.negative)
        return math.fsum((self.positive * (hits / above)).tolist()) / int(hits[-1]) if hits[-1] else math.nan

    def calibration(self, unit: int = 1) -> list[dict[str, float]]:
        """Return rows, mean score and share of positives of each of :data:`BINS` bins that has examples."""
        place = np.searchsorted(np.linspace(0.0, 1.0, BINS + 1)[1:-1], self.score)
        found = []
        for k in range(BINS):
            here = place == k
            positive = int(self.positive[here].sum())
            if n := positive + int(self.negative[here].sum()):
                mean = math.fsum((self.score[here] * (self.positive + self.negative)[here]).tolist()) / n
                found.append({"rows": n / unit if unit > 1 else n, "predicted": mean, "observed": positive / n})
        return found

    def gains(self, unit: int = 1) -> list[dict[str, float]]:
        """Return what the highest scores hold, for :data:`SHARES` of the rows; equal scores are taken together.

        ``share`` of the rows have at least the score ``threshold``; ``precision`` of these are positive, which is
        ``recall`` of all positives.
        """
        above, hits = np.cumsum(self.positive + self.negative), np.cumsum(self.positive)
        n, positives, found = int(above[-1]), int(hits[-1]), dict[int, dict[str, float]]()
        for at in np.searchsorted(above, np.array(SHARES) * n - 0.5).tolist():
            at = min(at, len(above) - 1)
            chosen, hit = int(above[at]), int(hits[at])
            found[at] = {
                "share": chosen / n,
                "rows": chosen / unit if unit > 1 else chosen,
                "threshold": float(self.score[at]),
                "precision": hit / chosen,
                "recall": hit / positives if positives else math.nan,
            }
        return [found[at] for at in sorted(found)]


class HoldOutScores:
    """Collects predictions of rows held out, O(1) memory a row; scores are made once all are known."""

    def __init__(self, evaluations: tuple[Any, Any], prior: Floats, features: Features, unit: int = 1) -> None:
        """``evaluations``, of one kind, score model and constant; ``prior`` has the shares of the classes, if any."""
        self.model, self.constant = evaluations
        self._prior, self._features, self._unit = prior, features, unit
        self._columns: dict[str, list[AnyArray]] = {}
        self._observed: tuple[int, ...] = ()
        self.rows = 0

    def observe(self, importances: Callable[[], Floats] | None) -> None:
        """Count errors by values of the dense features of most importance."""
        shares = np.zeros(0) if importances is None else importances()[: len(self._features.names)]
        order = np.argsort(-shares, kind="stable")[:FEATURES]
        self._observed = tuple(order[shares[order] > 0.0].tolist())

    def add(
        self, rows: Any, predicted: AnyArray, shares: Floats | None, rival: AnyArray, given_prior: Floats | None = None
    ) -> None:
        """Add ``rows`` of a source, with the predictions of model and constant; ``shares`` are those of the classes.

        ``given_prior`` has the shares of the classes among other rows than all, such as those of a key.
        """
        truth, n = rows.y, len(rows)
        weight = np.ones(n, dtype=np.int64)
        weight = weight if rows.weight is None or self._unit == 1 else rows.weight.astype(np.int64)
        given = rows.weight if self._unit > 1 else None
        levels = None if shares is None else levels_of(shares)
        self.model.score(truth, predicted, (rival, rival), levels, weight=given)
        self.constant.score(truth, rival, (rival, rival), weight=given)
        self.rows += n
        self._keep(weight=weight, values=rows.X[:, list(self._observed)])
        if rows.subject is not None:
            self._keep(subject=rows.subject)
        if shares is None:
            squared = [(truth - guess) ** 2 for guess in (predicted, rival)]
            self._keep(good=-squared[0], rival=-squared[1])
            return
        prior = np.zeros(shares.shape[1])
        known = self._prior if given_prior is None else given_prior
        prior[: len(known)] = known
        self._keep(good=(predicted == truth).astype(np.float64), rival=(rival == truth).astype(np.float64))
        self._keep(of_truth=shares[np.arange(n), truth], prior_of_truth=prior[truth])
        self._keep(distance=_distance(shares, truth), prior_distance=_distance(np.tile(prior, (n, 1)), truth))
        if len(prior) == 2:
            self._keep(positive=truth == 1, score=shares[:, 1])

    def _keep(self, **columns: AnyArray) -> None:
        for name, column in columns.items():
            self._columns.setdefault(name, []).append(column)

    def _column(self, name: str) -> AnyArray:
        return np.concatenate(self._columns[name])

    def scores(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the scores of the model and of the constant, by name."""
        model, constant = self.model.scores(), self.constant.scores()
        if "of_truth" not in self._columns:
            return model, constant
        weight = self._column("weight")
        for scores, begin in ((model, ""), (constant, "prior_")):
            scores["log_loss"] = _mean(_losses(self._column(f"{begin}of_truth")), weight)
            scores["brier"] = _mean(self._column(f"{begin}distance"), weight)
        if "score" in self._columns:
            positives = int(weight[self._column("positive")].sum())
            model["average_precision"] = self._graded.average_precision()
            constant["average_precision"] = positives / int(weight.sum()) if positives else math.nan
            constant["auc"] = 0.5 if math.isfinite(model["auc"]) else math.nan
        return model, constant

    def curves(self) -> dict[str, Any]:
        """Return ``calibration`` and ``gains`` of class 1, empty where there is none."""
        if "score" not in self._columns:
            return {"calibration": [], "gains": []}
        return {"calibration": self._graded.calibration(self._unit), "gains": self._graded.gains(self._unit)}

    @cached_property
    def _graded(self) -> Graded:
        return Graded.of(self._column("score"), self._column("positive"), self._column("weight"))

    def difference(self) -> list[float]:
        """Return a 95% interval of how much the model is better than the constant, by accuracy or squared error.

        Bootstrap over blocks: of all rows of some subjects if there are subjects, else of neighbouring rows.
        """
        weight, better = self._column("weight"), self._column("good") - self._column("rival")
        block = np.arange(self.rows)
        if "subject" in self._columns:
            codes: dict[Any, int] = {}
            block = np.array([codes.setdefault(one, len(codes)) for one in self._column("subject").tolist()])
        block = block // math.ceil((int(block.max()) + 1) ** (1 / 3))
        sums, sizes = np.bincount(block, better * weight), np.bincount(block, weight)
        return [*interval_of_blocks(sums, sizes)] if sizes.all() else [-math.inf, math.inf]

    def segments(self, categories: Categories) -> list[dict[str, Any]]:
        """Return by feature how well each range of its values, or each category, is predicted, and by the constant.

        ``score`` and ``baseline`` are accuracy, or mean squared error. Quartiles divide numbers.
        """
        return [
            {"feature": self._features.names[feature], "segments": self._segments_of(k, feature, categories)}
            for k, feature in enumerate(self._observed)
        ]

    def _segments_of(self, k: int, feature: int, categories: Categories) -> list[dict[str, Any]]:
        values, names = self._column("values")[:, k], categories.get(self._features.names[feature], {})
        known = np.sort(values[np.isfinite(values)])
        missing = ~np.isfinite(values)
        if self._features.categorical[feature]:
            missing |= values < 0
            codes, counts = np.unique(values[~missing], return_counts=True)
            often = codes[np.argsort(-counts, kind="stable")[:CATEGORIES]]
            places = [(str(names.get(code, f"category {code:g}")), values == code) for code in often.tolist()]
            places.append(("others", ~missing & ~np.isin(values, often)))
        elif len(distinct := np.unique(known)) <= CATEGORIES:
            places = [(f"{value:.6g}", values == value) for value in distinct.tolist()]
        else:
            cuts = [-math.inf, *np.unique(known[[len(known) * q // 4 for q in (1, 2, 3)]]).tolist(), math.inf]
            places = [(_range(low, high), (values > low) & (values <= high)) for low, high in pairwise(cuts)]
        return [self._segment(name, here) for name, here in [*places, ("missing", missing)] if here.any()]

    def _segment(self, name: str, here: Bools) -> dict[str, Any]:
        weight = self._column("weight")[here]
        found = {"name": name, "rows": int(np.count_nonzero(here))}
        sign = 1.0 if "of_truth" in self._columns else -1.0  # squared errors are kept below 0: more is better
        for key, column in (("score", "good"), ("baseline", "rival")):
            found[key] = sign * _mean(self._column(column)[here], weight)
        if "score" in self._columns:
            found["predicted"] = _mean(self._column("score")[here], weight)
            found["observed"] = _mean(self._column("positive")[here].astype(np.float64), weight)
        return found


def levels_of(shares: Floats) -> Levels:
    """Return shares of class 1 as whole numbers up to :data:`LEVELS`, shape (n,)."""
    levels: Levels = np.floor(LEVELS * shares[:, 1] + 0.5).astype(np.uint16)
    return levels


def _losses(of_truth: Floats) -> Floats:
    """Return minus the logarithm of probabilities of the true class."""
    return np.array([-math.log(p) for p in np.clip(of_truth, _SMALLEST, 1.0 - _SMALLEST).tolist()])


def _distance(shares: Floats, truth: AnyArray) -> Floats:
    """Return the squared distance of shares from the true class: of class 1 alone if there are two classes."""
    known = truth[:, None] == np.arange(shares.shape[1])
    distance: Floats = np.square(shares - known)[:, 1 if shares.shape[1] == 2 else 0 :].sum(axis=1)
    return distance


def _mean(values: Floats, weight: Ints) -> float:
    """Return the weighted mean of values, from an exact sum."""
    return math.fsum((values * weight).tolist()) / int(weight.sum())


def _range(low: float, high: float) -> str:
    """Return a range of numbers in words."""
    if math.isinf(low):
        return "all" if math.isinf(high) else f"up to {high:.6g}"
    return f"above {low:.6g}" if math.isinf(high) else f"above {low:.6g}, up to {high:.6g}"
