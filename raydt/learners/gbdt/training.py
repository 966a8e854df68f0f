"""Training of all trees (Robust LogitBoost, Algorithm 1): iteration after iteration, its trees together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.rng import permutation, stream_key
from raydt.batches.rows_on_shards import RowBlock
from raydt.exchange.messages import Exchange
from raydt.learners.gbdt.derivatives import ONE, TOGETHER, derive, derive_together, gradient, hessian, residual
from raydt.learners.gbdt.ensemble import Ensemble
from raydt.learners.gbdt.local_driver import LocalTrees
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.regrowth import Roots
from raydt.learners.gbdt.trees import score_rows

#: -log of each quantised probability, in fixed point: sums of it are exact.
_LOSS_BITS = 20


@kernel
def _derive_all(model: Any, m: int, slots: Any, y: Any, F: Any, entry: Any, p: Any, g: Any) -> None:
    """Ledger entries of all rows in the trees of an iteration, their first derivatives, and the sums of the roots.

    ``F`` and ``entry`` have shape (K', rows), ``g`` has tree after tree; ``p`` as in ``derive_together``.
    """
    loss, trees, n = model.loss, model.trees, len(slots)
    if loss.squared:
        for i in range(n):
            entry[0, i] = residual(y[slots[i]], F[0, i], loss.unit)
    else:
        derive_together(F, 0, n, p, entry)
    for k in range(loss.trees):
        t = m * loss.trees + k
        ledger, of_class, out = model.ledger[t], entry[k], g[k * n : (k + 1) * n]
        G, H = np.int64(0), np.int64(0)
        for i in range(n):
            slot = np.uint32(slots[i])
            ledger[slot] = of_class[i]
            one = gradient(np.int64(of_class[i]), y[slot], k, loss)
            out[i] = one
            G += one
            H += hessian(one, loss.squared)
        trees.G[t, 0], trees.H[t, 0] = G, H


@kernel
def _add_values(model: Any, m: int, slots: Any, F: Any) -> None:
    """Add the values of the leaves of all rows in the trees of an iteration to F, shape (K', rows)."""
    for k in range(model.loss.trees):
        t = m * model.loss.trees + k
        leaf, value, of_class = model.leaf[t], model.trees.value[t], F[k]
        for i in range(len(slots)):
            of_class[i] += value[np.uint32(leaf[np.uint32(slots[i])])]


def train(
    ensemble: Ensemble, slots: npt.NDArray[np.int32], y: npt.NDArray[Any], held_out: HeldOut | None
) -> Exchange[int]:
    """Train all iterations on some rows; returns how many are worth keeping.

    Parameters
    ----------
    ensemble : Ensemble
        New; the shards have made room for it, and know the bins of the rows.
    slots : ndarray of int32
    y : ndarray, by slot
    held_out : HeldOut, optional
        Ends training when its loss falls no more.
    """
    e, model, grower = ensemble, ensemble.arrays(), ensemble.grower()
    n, per = len(slots), ensemble.per
    F, entry, g = (
        np.full((per, n), e.loss.origin),
        np.empty((per, n), dtype=np.int32),
        np.empty(per * n, dtype=np.int32),
    )
    p = np.empty((per + 2, TOGETHER))
    roots = np.arange(per)
    begin, every = roots * n, np.tile(slots, per)
    node, none = np.zeros(per, dtype=np.int64), np.full(per, -1)
    for m in range(e.iterations):
        _derive_all(model, m, slots, y, F, entry, p, g)
        whole = Roots(m * per + roots, node, none, begin, begin + n, every)
        yield from grower.grow(whole, g, e.leaf)
        _add_values(model, m, slots, F)
        if held_out is not None and held_out.is_enough(m):
            return held_out.best + 1
    return e.iterations if held_out is None else held_out.best + 1


def train_here(local: LocalTrees, slots: npt.NDArray[np.int32], y: npt.NDArray[Any], held_out: HeldOut | None) -> int:
    """As :func:`train`, in the process that holds all features."""
    e = local.ensemble
    F = e.origins(len(slots))
    if held_out is None:
        local.train(slots, y, F, 0, e.iterations)
        return e.iterations
    for m in range(e.iterations):
        local.train(slots, y, F, m, m + 1)
        if held_out.is_enough(m):
            break
    return held_out.best + 1


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
