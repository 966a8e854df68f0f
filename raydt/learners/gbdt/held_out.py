"""Rows held out of the first training, whose loss decides how many iterations are kept (Robust LogitBoost)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.rng import permutation, stream_key
from raydt.batches.rows_on_shards import RowBlock
from raydt.learners.gbdt.derivatives import ONE, derive
from raydt.learners.gbdt.ensemble import Ensemble
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.trees import score_rows

#: -log of each quantised probability, in fixed point: sums of it are exact.
_LOSS_BITS = 20


def held_out_rows(slots: npt.NDArray[np.int32], options: GBDTOptions) -> tuple[Any, Any]:
    """The rows to train on and those to hold out, drawn by their positions among the first rows."""
    held = max(1, min(len(slots) - 1, math.ceil(options.validation_fraction * len(slots))))
    drawn = np.sort(permutation(stream_key(options.random_state, "gbdt validation"), len(slots))[:held])
    return np.delete(slots, drawn), slots[drawn]


class HeldOut:
    """Rows on which the loss is watched while the others are trained on.

    Parameters
    ----------
    ensemble : Ensemble
    rows : RowBlock
    y : ndarray, shape (n,)
    """

    def __init__(self, ensemble: Ensemble, rows: RowBlock, y: npt.NDArray[Any]) -> None:
        self._ensemble, self._rows, self._y = ensemble, rows, y
        self._F = ensemble.origins(len(y))
        self.best, self._least = -1, math.inf
        with np.errstate(divide="ignore"):
            table = -np.log(np.arange(ONE + 1) / ONE)
        self._losses = np.rint(np.minimum(table, 64.0) * 2**_LOSS_BITS).astype(np.int64)

    def loss(self) -> float:
        """Mean loss: log loss of quantised probabilities, or squared error in units of the targets' scale, 2**e."""
        e, n = self._ensemble, max(1, len(self._y))
        if e.loss.squared:
            return float(math.fsum(np.ldexp(self._y - self._F[:, 0], -e.exponent) ** 2)) / n
        q = np.empty((e.per, len(self._y)), dtype=np.int32)
        derive(self._F, self._y, e.loss, np.empty(e.per), q)
        own = np.where(self._y == 1, q[0], ONE - q[0]) if e.per == 1 else q[self._y, np.arange(len(self._y))]
        return int(self._losses[own].sum()) / float(2**_LOSS_BITS) / n

    def is_enough(self, m: int) -> bool:
        """Look at the loss after iteration ``m``: whether it has not fallen for as long as the options allow."""
        e = self._ensemble
        score_rows(e.trees, m, m + 1, self._rows, e.bins, self._F)
        loss = self.loss()
        if self.best < 0 or loss < self._least - e.options.tol:
            self._least, self.best = loss, m
        return m - self.best >= e.options.n_iter_no_change
