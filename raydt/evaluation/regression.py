"""Prequential errors of a regression, and the trivial predictors every result has to be compared with.

Invariant: sums are taken term by term in the order of the stream, so that they depend, to the last bit, on labels and
predictions only. *No change* predicts the label inserted just before, *mean* the mean of the labels inserted so far;
before any label is known both predict 0. A baseline's score is its mean squared error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from raydt.arrays.elementary import AnyArray, Floats, Ints
from raydt.evaluation.scoring import (
    ABSOLUTE,
    FADING,
    FIRST_LABEL,
    LAST_LABEL,
    N_LABELS,
    N_SCORED,
    SPREAD,
    SPREAD_SQUARED,
    SQUARED,
    SQUARED_MEAN,
    SQUARED_NO_CHANGE,
    TOTAL,
    Alarm,
    Evaluation,
    determination,
    former_errors,
    ratio,
    rival_numbers,
    score_numbers,
)
from raydt.examples.updates import UNIT

Numbers = Floats

#: Sums over predictions, ``N_SCORED`` to ``SPREAD_SQUARED``.
_SUMS = SPREAD_SQUARED + 1


#: Sums at one moment: all, of the window that ends, and faded.
_Moment = tuple[Floats, Floats, Floats]

_SCORES = ("mse", "rmse", "mae", "r2")


class PrequentialErrors(Evaluation):
    """Evaluation of predicted numbers; there are no alarms."""

    #: Of the metrics table.
    columns: ClassVar[tuple[str, ...]] = (
        *_SCORES,
        *(f"window_{name}" for name in _SCORES),
        *(f"faded_{name}" for name in _SCORES),
        *("no_change", "mean", "window_no_change", "window_mean"),
    )

    alarms: ClassVar[int] = 0

    def __init__(self, *, fading: float = FADING) -> None:
        self._fading = fading
        self._sums, self._window, self._faded = (np.zeros(_SUMS) for _ in range(3))
        self._marked: list[_Moment] = []
        self._registers = np.zeros(4)

    def rivals(self, truth: Numbers) -> tuple[Numbers, Numbers]:
        """Learn labels: what *no change* and *mean* predicted just before each, two arrays of shape (n,)."""
        no_change, mean = np.empty(len(truth)), np.empty(len(truth))
        rival_numbers(np.ascontiguousarray(truth), self._registers, no_change, mean)
        return no_change, mean

    def rivals_now(self) -> tuple[float, float]:
        """Return what *no change* and *mean* would predict now."""
        n, first = float(self._registers[N_LABELS]), float(self._registers[FIRST_LABEL])
        return float(self._registers[LAST_LABEL]), first + float(self._registers[TOTAL]) / n if n else 0.0

    def score(
        self,
        truth: Numbers,
        prediction: Numbers,
        rivals: tuple[Numbers, Numbers],
        levels: None = None,
        seq: Ints | None = None,
        weight: AnyArray | None = None,
    ) -> None:
        """Score predictions beside those of the baselines; parameters as of :meth:`update`."""
        targets = np.ascontiguousarray(truth), np.ascontiguousarray(prediction)
        sums = self._sums, self._window, self._faded
        first = float(self._registers[FIRST_LABEL])
        times = np.ones(len(truth)) if weight is None else weight / UNIT
        score_numbers(*targets, rivals, times, first, *sums, self._fading)

    def take_alarms(self) -> list[Alarm]:
        """Return nothing: ADWIN needs errors that have a bound."""
        return []

    def state(self) -> dict[str, Any]:
        """Return all that later scores depend on: arrays of float64."""
        return {
            "sums": self._sums.copy(),
            "window": self._window.copy(),
            "faded": self._faded.copy(),
            "registers": self._registers.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from what :meth:`state` gave; what an earlier version did not keep begins here."""
        if "faded" not in state:
            state = former_errors(state, _SUMS)
        self._sums, self._registers = np.array(state["sums"]), np.array(state["registers"])
        self._window, self._faded = np.array(state["window"]), np.array(state["faded"])

    def add(self, sums: Floats) -> None:
        """Add sums of another stream (:meth:`sums`)."""
        self._sums += sums

    def sums(self) -> Floats:
        """Return sums that may be added up over several streams."""
        sums: Floats = self._sums.copy()
        return sums

    def scores(self) -> dict[str, float]:
        """Return ``mse``, ``rmse``, ``mae`` and ``r2``: 1 - squared errors / those of the mean of the predicted labels.

        NaN before the first scored prediction, and ``r2`` while all labels are equal.
        """
        return {name: float(values[0]) for name, values in _scores(self._sums[None]).items()}

    def faded(self) -> dict[str, float]:
        """Return the same scores, faded: a prediction counts less with each that follows."""
        return {f"faded_{name}": float(values[0]) for name, values in _scores(self._faded[None]).items()}

    def baselines(self) -> dict[str, float]:
        """Return the mean squared error of the trivial predictors on the same predictions."""
        return {name: float(values[0]) for name, values in _baselines(self._sums[None]).items()}

    def mark(self) -> None:
        """End a window here, and keep the sums of this moment for :meth:`take_rows`. O(1)."""
        self._marked.append(self.now())
        self._window = np.zeros(_SUMS)

    def take_rows(self) -> dict[str, Floats]:
        """Return values of :attr:`columns` at each :meth:`mark` since the last call, arrays of one length m. O(m)."""
        return self.rows_of(self.take_marked())

    def take_marked(self) -> list[_Moment]:
        """Return the moments of each :meth:`mark` since the last call."""
        marked, self._marked = self._marked, []
        return marked

    def now(self) -> _Moment:
        """Return this moment."""
        return self._sums.copy(), self._window, self._faded.copy()

    def rows_of(self, marked: Sequence[_Moment]) -> dict[str, Floats]:
        """Return values of :attr:`columns` at moments of this evaluation, or of others of its kind. O(m)."""
        sums, window, faded = (np.array([moment[k] for moment in marked]).reshape(len(marked), _SUMS) for k in range(3))
        windowed = {**_scores(window), **_baselines(window)}
        return {
            **_scores(sums),
            **{f"window_{name}": values for name, values in windowed.items()},
            **{f"faded_{name}": values for name, values in _scores(faded).items()},
            **_baselines(sums),
        }

    def figures(self, n_classes: int) -> dict[str, Any]:
        """Return entries for the summary: the scores. ``n_classes`` is 0."""
        return {**self.scores(), **self.faded()}

    def headline(self) -> tuple[str, float]:
        """Return the score that is shown while a run is under way, and its name."""
        return "mse", self.scores()["mse"]


def _scores(sums: Floats) -> dict[str, Floats]:
    """Return scores of sums, shape (m, 7)."""
    scored, squared = sums[:, N_SCORED], sums[:, SQUARED]
    mse = ratio(squared, scored)
    r2 = determination(squared, sums[:, SPREAD], sums[:, SPREAD_SQUARED], scored)
    return {"mse": mse, "rmse": np.sqrt(mse), "mae": ratio(sums[:, ABSOLUTE], scored), "r2": r2}


def _baselines(sums: Floats) -> dict[str, Floats]:
    rivals = {"no_change": SQUARED_NO_CHANGE, "mean": SQUARED_MEAN}
    return {name: ratio(sums[:, column], sums[:, N_SCORED]) for name, column in rivals.items()}
