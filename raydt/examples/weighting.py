"""Effective weights of the examples of a store: the own weight, times the factor of the class where they balance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from raydt.arrays.memory import grown
from raydt.arrays.types import AnyArray, Ints
from raydt.errors import InputError
from raydt.examples.slot_columns import SlotColumns
from raydt.examples.store import ExampleStore
from raydt.examples.targets import Targets
from raydt.examples.weights import (
    BITS,
    LARGEST_SUM,
    NO_WEIGHTS,
    UNIT,
    Weights,
    balanced,
    of_codes,
    products,
    sum_of,
    sums_by_class,
)
from raydt.messages import message


class Weighting:
    """Effective weight of each example of a store: its own times that of its class, where these are balanced."""

    def __init__(self, is_balanced: bool, largest: int = LARGEST_SUM) -> None:
        self._is_balanced = is_balanced
        self._largest = largest  #: Sum of all weights up to which those of the learner are exact.
        #: Of each class, int64 in units, once they are resolved; classes that come later have 1.
        self.factors: Ints | None = None
        self.resolved = 0  #: Updates of the stream before they were.
        #: Factors to take, when they are resolved, in place of those that the examples give.
        self.given: Ints | None = None
        self._by_slot = NO_WEIGHTS
        self._most = self._new = 0  # the sum of all weights is not larger (0: not counted, all are 1); of new ones

    def of(self, weights: Weights | None, y: Targets) -> Weights | None:
        """Return what examples count, by their own weights and labels; None if all count 1."""
        if self.factors is None:
            return weights
        return products(UNIT if weights is None else weights, of_codes(self.factors, y))

    def of_slots(self, store: SlotColumns, slots: Any) -> Weights | None:
        """Return what the examples in some slots count; None if all count 1."""
        return self.of(store.weights(slots), store.y[slots])

    def by_slot(self, store: SlotColumns) -> Weights:
        """Return what all examples count, by slot, for kernels; empty if all count 1. Valid until the next batch."""
        if self.factors is not None:
            return self._by_slot
        return NO_WEIGHTS if store.weight is None else store.weight

    def reserve(self, store: SlotColumns) -> None:
        """Make room for what all slots of a store may count."""
        if self.factors is not None and len(self._by_slot) < store.capacity:
            self._by_slot = grown(self._by_slot, store.capacity)

    def enter(self, store: SlotColumns, slots: Any) -> None:
        """Take note of new examples, whose labels and weights the store has."""
        self.reserve(store)
        if self.factors is not None:
            counts = self.of_slots(store, slots)
            assert counts is not None
            self._by_slot[slots] = counts

    # ---------------------------------------------------------------- sums stay exact

    def sum_of(self, store: ExampleStore) -> int:
        """Add up what the live examples of a store count, in units. O(n)."""
        slots = store.slots()
        return sum_of(self.of_slots(store, slots), len(slots))

    def is_too_much(self, weights: Weights | None, y: Targets) -> bool:
        """Count new examples; True if the sum over all may be beyond the limit, or was not counted before."""
        new = self.of(weights, y)
        if new is None and not self._most:
            return False
        self._new, most = sum_of(new, len(y)), self._most
        self._most = most + self._new
        return not most or self._most > self._largest

    def require(self, live: int) -> None:
        """Raise InputError unless the sum stays exact: what the live examples count, and the new ones just counted."""
        self._most = live + self._new
        if self._most > self._largest:
            self._most = live
            raise InputError(message("examples.heavy", most=self._largest >> BITS))

    # ---------------------------------------------------------------- balanced classes

    @property
    def is_open(self) -> bool:
        """Whether factors are wanted and not yet resolved."""
        return self._is_balanced and self.factors is None

    def balance(self, store: SlotColumns, slots: Any, seq: int, classes: int = 0, later: Any = ()) -> bool:
        """Find the factors by the examples in some slots, if they are open, before update ``seq``; True if they were.

        There are as many as ``classes``, or as the examples need. The examples enter by them, ``later`` ones too.
        """
        if not self.is_open:
            return False
        self.resolve(sums_by_class(store.weights(slots), store.y[slots], classes), seq)
        self.enter(store, slots)
        self.enter(store, np.asarray(later, dtype=np.int32))
        return True

    def resolve(self, sums: Ints, seq: int) -> None:
        """Fix the factors by the sums of the own weights of each class, before update ``seq``; once."""
        self.take(balanced(sums) if self.given is None else self.given, seq)

    def take(self, factors: Ints | None, seq: int = 0) -> None:
        """Take factors that were resolved before update ``seq``."""
        self.factors, self.resolved, self._by_slot, self._most = factors, seq, NO_WEIGHTS, 0

    def digested(self) -> dict[str, AnyArray]:
        """Return the factors of classes, which belong to the digest; none before they are resolved."""
        return {} if self.factors is None else {"class_weight": self.factors}

    def state(self) -> dict[str, AnyArray]:
        """Return the arrays of a state beside the own weights: the factors, and when they were resolved."""
        found = self.digested()
        return found | {"weighed": np.array([self.resolved], dtype=np.int64)} if found else found

    def restore(self, state: Mapping[str, AnyArray], store: SlotColumns | None = None) -> None:
        """Continue with what :meth:`state` gave; the examples of a store that has been filled enter."""
        self.take(None)
        if self._is_balanced and "class_weight" in state:
            self.take(np.asarray(state["class_weight"]), int(state["weighed"][0]))
            if store is not None:
                self.enter(store, np.arange(store.used))
