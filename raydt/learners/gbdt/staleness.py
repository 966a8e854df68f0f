"""Bounded staleness: how far a score may move before the derivatives that were computed from it are computed again.

A ledger entry of iteration m was computed from the score F before m, or compared with it. Every leaf whose value
changes moves the scores of its rows in all later iterations. A change of more than ``step`` is *followed*: the rows of
the leaf join the batch, and their entries in later iterations are compared with their present scores. Smaller changes
are not followed; the largest of each iteration is added to the ``drift`` of all later iterations. Once the drift of an
iteration would exceed ``limit``, all rows join the batch there, and the drift begins again at 0.

An entry that is compared stays if a score within half the tolerance gives it, else it is computed again. So every entry
is one that a score within the tolerance of the present one gives: ``docs/explanation/guarantees.md`` has the proof.

Every operation on floats here has one order, whatever the number of shards.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import inner_kernel
from raydt.learners.gbdt.derivatives import RESIDUAL_BITS, Loss, probabilities, quantise, residual

#: Share of the tolerance that a batch may move a score unfollowed.
_STEPS = 4
#: Of half the tolerance: left to the rounding of drifts and of the comparison, about 1e-16 each.
_MARGIN = 2.0**-10


class Staleness(NamedTuple):
    """The bounds that follow from a tolerance.

    Attributes
    ----------
    step : float
        Change of a leaf's value beyond which its rows are followed.
    limit : float
        Largest drift.
    odds : float
        Factor by which a score within half the tolerance changes the odds of a class, at most.
    residual : int
        Half the tolerance, in units of a residual (regression).
    """

    step: float
    limit: float
    odds: float
    residual: int


def staleness(tolerance: float, iterations: int, exponent: int, loss: Loss) -> Staleness:
    """Bounds for ``derivative_tolerance``, in units of F or (regression) of 2**exponent."""
    scale = 2.0**exponent if loss.squared else 1.0
    # With one logit the odds follow its score; with several classes the scores of the others may move the other way.
    power = Decimal(tolerance) / 2 * (1 if loss.trees == 1 else 2)
    return Staleness(
        step=tolerance * scale / (_STEPS * max(1, iterations)),
        limit=tolerance * scale / 2 * (1.0 - _MARGIN),
        odds=1.0 if loss.squared else float(power.exp()),
        residual=int(tolerance / 2 * 2**RESIDUAL_BITS),
    )


@inner_kernel
def kept_entry(entry: int, p: float, odds: float) -> int:
    """The entry of a probability: ``entry`` if a score within half the tolerance gives it, else that of ``p``."""
    low, high = quantise(p / (p + (1.0 - p) * odds)), quantise(p * odds / (p * odds + (1.0 - p)))
    return entry if low <= entry <= high else quantise(p)


@inner_kernel
def kept_residual(entry: int, now: int, width: int) -> int:
    """The entry of a residual: ``entry`` if it is within ``width`` of the present one, else that."""
    return entry if abs(entry - now) <= width else now


@inner_kernel
def compare(model: Any, batch: Any, m: int, first: int, stop: int, stale: Any, p: Any) -> None:
    """Entries of some rows of a local batch in iteration ``m``: those of the ledger that may stay, and new ones."""
    loss, ledger = model.loss, model.ledger
    for i in range(first, stop):
        slot = batch.slots[i]
        if loss.squared:
            now = residual(batch.y[slot], batch.F[i, 0], loss.unit)
            batch.entry[0, i] = kept_residual(np.int64(ledger[m, slot]), now, stale.residual)
        else:
            probabilities(batch.F[i], p)
            for k in range(len(p)):
                batch.entry[k, i] = kept_entry(np.int64(ledger[m * len(p) + k, slot]), p[k], stale.odds)
