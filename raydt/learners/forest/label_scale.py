"""The unit of numeric labels: a power of two that follows the largest live label, wherever that changes.

Invariant: the exponent is a function of the live labels, so that it does not depend on the updates that led to them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raydt.learners.forest.model import LEAST_EXPONENT, exponent_of
from raydt.learners.sequential import ADD, LOOK, REMOVE

Ints = npt.NDArray[np.int64]

#: Exponents of float64 labels: from ``LEAST_EXPONENT`` to 1024, with room to spare.
_EXPONENTS = 2200


class LabelScale:
    """Counts the live labels by exponent.

    Attributes
    ----------
    exponent : int
        All live labels are below 2 to this power in absolute value.
    """

    def __init__(self) -> None:
        self.exponent = LEAST_EXPONENT
        self._live: Ints = np.zeros(_EXPONENTS, dtype=np.int64)

    def follow(self, kind: npt.NDArray[np.int32], y: npt.NDArray[np.float64]) -> tuple[Ints, Ints]:
        """Take the steps of a batch. O(steps).

        Parameters
        ----------
        kind : ndarray of int32, shape (n,)
            ``ADD``, ``REMOVE`` or ``LOOK``.
        y : ndarray of float64, shape (n,)
            Label of the example of each step.

        Returns
        -------
        changes : ndarray of int64, shape (c, 2)
            Steps after which the exponent is another one, with it.
        before : ndarray of int64, shape (n,)
            The exponent before each step.
        """
        before = np.full(len(kind), self.exponent)
        changes = []
        if len(kind):
            exponents = exponent_of(y) - LEAST_EXPONENT
            for i, (what, exponent) in enumerate(zip(kind.tolist(), exponents.tolist(), strict=True)):
                before[i] = self.exponent
                if what == LOOK:
                    continue
                self._live[exponent] += 1 if what == ADD else -1
                now = exponent + LEAST_EXPONENT
                if now < self.exponent or (what == REMOVE and self._live[exponent]):
                    continue
                now = self._largest()
                if now != self.exponent:
                    self.exponent = now
                    changes.append((i, now))
        return np.array(changes, dtype=np.int64).reshape(-1, 2), before

    def restore(self, y: npt.NDArray[np.float64]) -> None:
        """Begin with these live labels."""
        self._live = np.bincount(exponent_of(y) - LEAST_EXPONENT, minlength=_EXPONENTS)
        self.exponent = self._largest()

    def _largest(self) -> int:
        live = np.flatnonzero(self._live)
        return int(live[-1]) + LEAST_EXPONENT if len(live) else LEAST_EXPONENT
