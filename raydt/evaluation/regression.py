"""Prequential errors of a regression, and the trivial predictors every result has to be compared with.

The interface is that of :class:`raydt.evaluation.classification.Prequential`. Sums are taken term by term in the
order of the stream, so
that they depend, to the last bit, on the sequence of labels and predictions only, never on how it was cut.

* *no change* predicts the label inserted just before;
* *mean* predicts the mean of the labels inserted so far; deletions do not take part.

Before any label is known both predict 0. A baseline's score is its mean squared error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

_REGISTERS = ("last", "shift", "total", "spread", "spread_squared")


@dataclass(frozen=True, slots=True)
class Errors:
    """Of ``scored`` predictions: sums of the learner's squared and absolute errors, and the baselines' squared ones."""

    scored: int = 0
    squared: float = 0.0
    absolute: float = 0.0
    no_change: float = 0.0
    mean: float = 0.0

    def since(self, earlier: Errors) -> Errors:
        """Sums since an earlier snapshot."""
        return Errors(*(now - then for now, then in zip(astuple(self), astuple(earlier), strict=True)))

    def means(self) -> tuple[float, float, float]:
        """Mean squared error of learner, no change and mean; NaN where nothing was scored."""
        if not self.scored:
            return math.nan, math.nan, math.nan
        return self.squared / self.scored, self.no_change / self.scored, self.mean / self.scored

    def state(self) -> dict[str, Any]:
        """The sums by name, exactly: JSON has no infinite numbers."""
        return {"scored": self.scored} | {f.name: getattr(self, f.name).hex() for f in fields(self)[1:]}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Errors:
        """The sums that :meth:`state` gave."""
        sums = {name: float.fromhex(text) for name, text in state.items() if name != "scored"}
        return cls(int(state["scored"]), **sums)


class PrequentialErrors:
    """Running evaluation of numbers predicted just before each label was learned."""

    #: Of the metrics table.
    columns: ClassVar[tuple[str, ...]] = (
        *("mse", "mae", "r2", "window_mse"),
        *("no_change", "mean", "window_no_change", "window_mean"),
    )

    def __init__(self) -> None:
        self._sums = Errors()
        self._inserted = 0
        # Labels are summed as differences from the first one, so that their common size does not cost digits.
        self._last = self._shift = self._total = self._spread = self._spread_squared = 0.0

    def update(self, truth: Numbers, prediction: Numbers) -> None:
        """Score consecutive inserted examples.

        Parameters
        ----------
        truth : ndarray of float64, shape (n,)
            Labels of the inserted examples, in stream order.
        prediction : ndarray of float64, shape (n,)
            Predicted just before each insertion; NaN where nothing was (warm-up): not scored, but the label is learned
            by the baselines.

        Notes
        -----
        O(n), vectorised. What exceeds float64 makes scores infinite or NaN.
        """
        n = len(truth)
        if n == 0:
            return
        if not self._inserted:
            self._shift = float(truth[0])
        with np.errstate(over="ignore", invalid="ignore"):
            away = truth - self._shift
            totals = np.add.accumulate(np.concatenate([[self._total], away]))
            before = self._inserted + np.arange(n)
            mean = np.where(before > 0, self._shift + totals[:-1] / np.maximum(before, 1), 0.0)
            previous = np.concatenate([[self._last], truth[:-1]])
            self._total, self._last, self._inserted = float(totals[-1]), float(truth[-1]), self._inserted + n
            scored = ~np.isnan(prediction)
            truth, away = truth[scored], away[scored]
            error = truth - prediction[scored]
            sums = self._sums
            self._sums = Errors(
                sums.scored + len(truth),
                _added(sums.squared, error * error),
                _added(sums.absolute, np.abs(error)),
                _added(sums.no_change, (truth - previous[scored]) ** 2),
                _added(sums.mean, (truth - mean[scored]) ** 2),
            )
            self._spread = _added(self._spread, away)
            self._spread_squared = _added(self._spread_squared, away * away)

    def state(self) -> dict[str, Any]:
        """All that later scores depend on: integers and arrays of float64."""
        registers = np.array([getattr(self, f"_{name}") for name in _REGISTERS])
        sums = np.array(astuple(self._sums)[1:])
        return {"scored": self._sums.scored, "inserted": self._inserted, "sums": sums, "registers": registers}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        for name, value in zip(_REGISTERS, state["registers"].tolist(), strict=True):
            setattr(self, f"_{name}", value)
        self._sums = Errors(int(state["scored"]), *state["sums"].tolist())
        self._inserted = int(state["inserted"])

    def snapshot(self) -> Errors:
        """Sums so far; O(1)."""
        return self._sums

    def scores(self) -> dict[str, float]:
        """``mse``, ``mae`` and ``r2``: mean squared and absolute error, and 1 - squared errors / those of the mean.

        The mean is that of the labels that were scored, known afterwards. NaN before the first scored prediction, and
        ``r2`` while all labels are equal.
        """
        n = self._sums.scored
        if not n:
            return dict.fromkeys(("mse", "mae", "r2"), math.nan)
        variation = self._spread_squared - self._spread * self._spread / n
        r2 = 1.0 - self._sums.squared / variation if variation > 0.0 else math.nan
        return {"mse": self._sums.squared / n, "mae": self._sums.absolute / n, "r2": r2}

    def baselines(self) -> dict[str, float]:
        """Mean squared error of the trivial predictors on the same predictions."""
        _, no_change, mean = self._sums.means()
        return {"no_change": no_change, "mean": mean}

    def row(self, since: Errors) -> dict[str, float]:
        """Values of :attr:`columns`; those of the window count from the snapshot ``since``."""
        window, no_change, mean = self._sums.since(since).means()
        windowed = {"window_mse": window, "window_no_change": no_change, "window_mean": mean}
        return {**self.scores(), **self.baselines(), **windowed}

    def figures(self, n_classes: int) -> dict[str, Any]:
        """Entries for the summary: the scores. ``n_classes`` is 0."""
        return self.scores()

    def headline(self) -> tuple[str, float]:
        """The score that is shown while a run is under way, and its name."""
        return "mse", self._sums.means()[0]


def _added(total: float, values: Numbers) -> float:
    """``total`` and the values added one after another (``numpy.sum`` would add pairs, by the length of the array)."""
    return float(np.add.accumulate(np.concatenate([[total], values]))[-1])
