"""Prequential classification metrics, and the trivial predictors every result has to be compared with.

Everything is derived from integer counts: one confusion matrix of the learner and the hits of two baselines on
the same predictions. Invariant: the counts depend on the sequence of labels and predictions only, never on how
it was cut into batches.

* *no change* predicts the label inserted just before;
* *majority* predicts the label inserted most often so far, ties to the smaller class; deletions do not reduce it.

Before any label is known both predict class 0, as an empty tree does. Not here: windows and time series, which
are differences of :meth:`Prequential.snapshot` (see ``pipelines.running.records.tables``); and the errors of a
regression (``raydt.evaluation.regression``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Hits:
    """How many of ``scored`` predictions were right: the learner's and the baselines'."""

    scored: int = 0
    learner: int = 0
    no_change: int = 0
    majority: int = 0

    def since(self, earlier: Hits) -> Hits:
        """Counts since an earlier snapshot."""
        return Hits(
            self.scored - earlier.scored,
            self.learner - earlier.learner,
            self.no_change - earlier.no_change,
            self.majority - earlier.majority,
        )

    def shares(self) -> tuple[float, float, float]:
        """Accuracy of learner, no change and majority as fractions; NaN where nothing was scored."""
        if not self.scored:
            return math.nan, math.nan, math.nan
        return self.learner / self.scored, self.no_change / self.scored, self.majority / self.scored

    def state(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)

    @classmethod
    def restore(cls, state: Mapping[str, int]) -> Hits:
        """The counts that :meth:`state` gave."""
        return cls(**{name: int(count) for name, count in state.items()})


class Prequential:
    """Running evaluation of predictions made just before each label was learned.

    Parameters
    ----------
    positive : bool
        Class 1 is the positive class by configuration; otherwise it is as long as there are at most two classes.

    Attributes
    ----------
    confusion : ndarray of int64, shape (K, K)
        Counts by true class (row) and predicted class (column); grows with the classes seen.
    inserted : ndarray of int64, shape (K,)
        Labels learned so far, scored or not.
    """

    #: Of the metrics table.
    columns: ClassVar[tuple[str, ...]] = (
        *("accuracy", "f1", "macro_f1", "kappa", "window_accuracy"),
        *("no_change", "majority", "window_no_change", "window_majority"),
    )

    def __init__(self, positive: bool = False) -> None:
        self.positive = positive
        self.confusion = np.zeros((0, 0), dtype=np.int64)
        self.inserted = np.zeros(0, dtype=np.int64)
        self._last = 0
        self._no_change = 0
        self._majority = 0

    def update(self, truth: Codes, prediction: Codes) -> None:
        """Score consecutive inserted examples.

        Parameters
        ----------
        truth : ndarray of int32, shape (n,)
            Classes of the inserted examples, in stream order.
        prediction : ndarray of int32, shape (n,)
            Class predicted just before each insertion; -1 where none was made (warm-up): not scored, but the
            label is learned by the baselines.

        Notes
        -----
        O(n K) vectorised operations.
        """
        n = len(truth)
        if n == 0:
            return
        self._grow(int(max(truth.max(), prediction.max())) + 1)
        scored = prediction >= 0
        everything = bool(scored.all())

        previous = np.empty(n, dtype=np.int32)
        previous[0] = self._last
        previous[1:] = truth[:-1]
        self._last = int(truth[-1])

        # The leader before each row, class by class: a later class leads only if it is strictly ahead.
        leader = np.zeros(n, dtype=np.int32)
        ahead: npt.NDArray[np.int64] | None = None
        for k in range(len(self.inserted)):
            is_k = truth == k
            after = self.inserted[k] + np.cumsum(is_k)
            self.inserted[k] = after[-1]
            before = after - is_k
            if ahead is None:
                ahead = before
                continue
            wins = before > ahead
            leader[wins] = k
            np.maximum(ahead, before, out=ahead)

        if not everything:
            truth, prediction = truth[scored], prediction[scored]
            previous, leader = previous[scored], leader[scored]
        K = len(self.confusion)
        cells = np.bincount(truth.astype(np.int64) * K + prediction, minlength=K * K)
        self.confusion += cells.reshape(K, K)
        self._no_change += int(np.count_nonzero(previous == truth))
        self._majority += int(np.count_nonzero(leader == truth))

    def state(self) -> dict[str, Any]:
        """All that later scores depend on: integers and copies of the int64 arrays. O(K^2)."""
        return {
            "confusion": self.confusion.copy(),
            "inserted": self.inserted.copy(),
            "last": self._last,
            "no_change": self._no_change,
            "majority": self._majority,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave. O(K^2)."""
        self.confusion = np.array(state["confusion"], dtype=np.int64)
        self.inserted = np.array(state["inserted"], dtype=np.int64)
        self._last = int(state["last"])
        self._no_change, self._majority = int(state["no_change"]), int(state["majority"])

    def snapshot(self) -> Hits:
        """Hits so far; O(K)."""
        correct = int(np.trace(self.confusion))
        return Hits(int(self.confusion.sum()), correct, self._no_change, self._majority)

    def scores(self) -> dict[str, float]:
        """``accuracy``, ``f1``, ``macro_f1`` and ``kappa`` as fractions.

        ``f1`` is that of class 1 and NaN where there is no positive class. A class that was neither true nor
        predicted takes no part in ``macro_f1``; F1 of a class never hit is 0. Everything is NaN before the first
        scored prediction, ``kappa`` also while chance alone agrees always. O(K^2).
        """
        table = self.confusion
        total = int(table.sum())
        if total == 0:
            return dict.fromkeys(("accuracy", "f1", "macro_f1", "kappa"), math.nan)
        hit, true, predicted = np.diag(table), table.sum(axis=1), table.sum(axis=0)
        either = true + predicted
        seen = either > 0
        f1 = 2.0 * hit[seen] / either[seen]
        correct = int(hit.sum())
        # Python integers: the products of counts exceed int64 on long streams.
        chance = sum(int(t) * int(p) for t, p in zip(true, predicted, strict=True))
        kappa = (total * correct - chance) / (total * total - chance) if chance != total * total else math.nan
        return {
            "accuracy": correct / total,
            "f1": self._positive_f1(hit, either),
            "macro_f1": float(f1.mean()),
            "kappa": kappa,
        }

    def baselines(self) -> dict[str, float]:
        """Accuracy of the trivial predictors on the same predictions."""
        _, no_change, majority = self.snapshot().shares()
        return {"no_change": no_change, "majority": majority}

    def row(self, since: Hits) -> dict[str, float]:
        """Values of :attr:`columns`; those of the window count from the snapshot ``since``."""
        window, no_change, majority = self.snapshot().since(since).shares()
        windowed = {"window_accuracy": window, "window_no_change": no_change, "window_majority": majority}
        return {**self.scores(), **self.baselines(), **windowed}

    def figures(self, n_classes: int) -> dict[str, Any]:
        """Entries for the summary: the scores, and ``confusion`` with all of ``n_classes``, as lists."""
        missing = max(0, n_classes - len(self.confusion))
        return {**self.scores(), "confusion": np.pad(self.confusion, (0, missing)).tolist()}

    def headline(self) -> tuple[str, float]:
        """The score that is shown while a run is under way, and its name."""
        return "accuracy", self.snapshot().shares()[0]

    def _positive_f1(self, hit: npt.NDArray[np.int64], either: npt.NDArray[np.int64]) -> float:
        if not self.positive and len(either) > 2:
            return math.nan
        if len(either) < 2 or either[1] == 0:
            return 0.0
        return 2.0 * int(hit[1]) / int(either[1])

    def _grow(self, classes: int) -> None:
        have = len(self.inserted)
        if classes > have:
            self.confusion = np.pad(self.confusion, (0, classes - have))
            self.inserted = np.pad(self.inserted, (0, classes - have))
