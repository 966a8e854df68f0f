"""Weights of examples in fixed point, and how those of classes are found and multiplied with them.

A weight is a whole number of units of ``2**-16``, so that 1 is :data:`UNIT`. Products and sums of them are integers: a
sum does not depend on the order, and a deletion takes away what the insertion has added.

Invariant: where no example has another weight than 1, there is no array of weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from raydt.arrays.memory import grown
from raydt.errors import InputError
from raydt.examples.targets import Targets
from raydt.messages import message

#: Bits after the binary point, and a weight of 1.
BITS = 16
UNIT = 1 << BITS
#: Least and largest weight in units (0 counts like no row at all), and the largest sum of the weights of live examples:
#: sums of derivatives, of which an example has less than 2**30 times its weight, stay within 63 bits.
LEAST, MOST, LARGEST_SUM = 0, 2**32 - 1, 2**48

#: Weights in units, shape (n,).
Weights = npt.NDArray[np.uint32]
DTYPE = np.dtype(np.uint32)
#: No array: all weights are 1.
NONE: Weights = np.empty(0, dtype=DTYPE)


def out_of_range(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Mask of the numbers that are no weights, shape (n,); NaN is among them."""
    inside: npt.NDArray[np.bool_] = (weights == 0.0) | ((weights >= 1.0 / UNIT) & (weights <= MOST / UNIT))
    return ~inside


def fixed(weights: npt.NDArray[np.float64]) -> Weights:
    """Round weights to whole units: those in range that are not 0 are at least one."""
    return np.rint(weights * UNIT).astype(DTYPE)


def unless_equal(weights: Weights | None) -> Weights | None:
    """Return None for weights that are all 1."""
    return None if weights is None or (weights == UNIT).all() else weights


def products(weights: Weights | int, factors: npt.NDArray[Any]) -> Weights:
    """Multiply weights, rounded to the nearest unit and kept within range."""
    whole = np.asarray(weights, dtype=np.uint64) * factors.astype(np.uint64)
    scaled = (whole + np.uint64(UNIT // 2)) >> np.uint64(BITS)
    found: Weights = np.clip(scaled, LEAST, MOST).astype(DTYPE)
    return found


def _text(label: Any) -> str:
    """Return a label as a config writes it: whole numbers without a fraction, truth values in small letters."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label).lower() if isinstance(label, bool) else str(label)


def by_label(class_weight: Mapping[Any, float]) -> tuple[tuple[str, float], ...]:
    """Return weights of classes with labels as text, in ascending order: the same for ``1`` and ``"1"``."""
    return tuple(sorted((_text(label), float(weight)) for label, weight in class_weight.items()))


def of_labels(class_weight: Sequence[tuple[str, float]], labels: Sequence[Any]) -> Weights:
    """Return the weight of each of some labels, in units; 1 of one without."""
    known = dict(class_weight)
    return fixed(np.array([known.get(_text(label), 1.0) for label in labels], dtype=np.float64))


def unknown_labels(class_weight: Sequence[tuple[str, float]], labels: Sequence[Any]) -> list[str]:
    """Return the labels with a weight that are none of ``labels``."""
    known = set(map(_text, labels))
    return [label for label, _ in class_weight if label not in known]


def balanced(weights: Weights | None, y: Targets, classes: int) -> npt.NDArray[np.int64]:
    """Return the factor of each class, in units: all classes come to weigh the same, and all examples what they did.

    That is n / (K n_c), with the sums of weights for n and n_c and the number of classes that occur for K; 1 of a
    class that does not occur.
    """
    given = np.full(len(y), UNIT, dtype=np.int64) if weights is None else weights.astype(np.int64)
    sums = [int(given[y == code].sum()) for code in range(classes)]
    total, occurring = sum(sums), sum(one > 0 for one in sums)
    factors = [UNIT if not one else round_half_up(UNIT * total, occurring * one) for one in sums]
    return np.array([min(factor, MOST) for factor in factors], dtype=np.int64)


def round_half_up(numerator: int, denominator: int) -> int:
    """Round a fraction of whole numbers."""
    return (2 * numerator + denominator) // (2 * denominator)


class Weighed(Protocol):
    """A store of examples, as far as their weights go."""

    y: Any  #: By slot.

    @property
    def capacity(self) -> int:
        """Number of slots."""

    @property
    def weighted(self) -> bool:
        """Whether some example has, or had, another weight than 1."""

    def weights(self, slots: Any) -> Weights:
        """Weights of the examples in some slots."""

    def put_weights(self, slots: Any, weights: Weights | None) -> None:
        """Enter the weights of new examples, None if all are 1."""

    def slots(self) -> npt.NDArray[np.int32]:
        """Live slots in ascending order."""


class Weighting:
    """What each example of a store counts: its own weight times that of its class, where classes have some."""

    def __init__(self, is_balanced: bool) -> None:
        self._is_balanced = is_balanced
        #: Of each class, int64 in units, once they are resolved; classes that come later have 1.
        self.factors: npt.NDArray[np.int64] | None = None
        self.resolved = 0  #: Updates of the stream before they were.
        self._by_slot = NONE
        self._bound = 0  # the sum of all weights is not larger

    def of(self, weights: Weights | None, y: Targets) -> Weights | None:
        """Return what examples count; None if all count 1."""
        if self.factors is None:
            return weights
        known = np.append(self.factors, UNIT)
        factors = known[np.minimum(y, len(self.factors))]
        return products(UNIT if weights is None else weights, factors)

    def of_slots(self, store: Weighed, slots: Any) -> Weights | None:
        """Return what the examples in some slots count; None if all count 1."""
        return self.of(store.weights(slots) if store.weighted else None, store.y[slots])

    def by_slot(self, store: Any) -> Weights:
        """Return what all examples count, by slot, for kernels; empty if all count 1."""
        if self.factors is not None:
            return self._by_slot
        return NONE if store.weight is None else store.weight

    def require(self, store: Weighed, weights: Weights | None, y: Targets) -> None:
        """Raise InputError unless the sums over the examples and new ones stay exact. Amortised O(new ones)."""
        new = self.of(weights, y)
        if new is None and not store.weighted:
            return
        more = len(y) * UNIT if new is None else int(new.sum(dtype=np.int64))
        if self._bound + more > LARGEST_SUM or not self._bound:
            slots = store.slots()
            live = self.of_slots(store, slots)
            self._bound = len(slots) * UNIT if live is None else int(live.sum(dtype=np.int64))
            if self._bound + more > LARGEST_SUM:
                raise InputError(message("examples.heavy", most=LARGEST_SUM >> BITS))
        self._bound += more

    def enter(self, store: Weighed, slots: Any) -> None:
        """Take note of new examples, whose labels and weights the store has."""
        if self.factors is not None and isinstance(store.y, np.ndarray):
            if len(self._by_slot) < store.capacity:
                self._by_slot = grown(self._by_slot, store.capacity)
            own = self.of_slots(store, slots)
            assert own is not None
            self._by_slot[slots] = own

    def resolve(self, store: Weighed, slots: npt.NDArray[np.int32], classes: int, seq: int) -> None:
        """Fix the weights of the classes by the examples in some slots, unless they are fixed or none are wanted.

        That is before update ``seq``.
        """
        if self._is_balanced and self.factors is None:
            weights = store.weights(slots) if store.weighted else None
            self.factors = balanced(weights, store.y[slots], classes)
            self.resolved, self._bound = seq, 0
            self.enter(store, store.slots())

    def state(self, store: Weighed, slots: npt.NDArray[np.int32]) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of a state, with the weights of the examples in some slots; none if all count 1."""
        arrays: dict[str, npt.NDArray[Any]] = {"weight": store.weights(slots)} if store.weighted else {}
        if self.factors is not None:
            arrays |= {"class_weight": self.factors, "weighed": np.array([self.resolved], dtype=np.int64)}
        return arrays

    def restore(self, store: Weighed, state: Mapping[str, npt.NDArray[Any]], slots: Any) -> None:
        """Continue with what :meth:`state` gave; the store has its rows again, in ``slots``."""
        if "weight" in state:
            store.put_weights(slots, np.asarray(state["weight"]))
        self.factors, self._by_slot, self._bound = None, NONE, 0
        if self._is_balanced and "class_weight" in state:
            self.factors, self.resolved = np.asarray(state["class_weight"]), int(state["weighed"][0])
            self.enter(store, slots)
