"""What the live examples of a forest count, as its coordinator tells the shards.

Shards count rows until one has another weight than 1, and units of weights from then on. The model has units only as
long as a live example has another weight, or balanced classes have some: it is a function of the live examples.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raydt.arrays.types import AnyArray, Slots
from raydt.examples.store import ExampleStore
from raydt.examples.weighting import Weighting
from raydt.examples.weights import UNIT, Weights, filled
from raydt.trees.state_schema import UNIT_ARRAY


class RowWeights:
    """Weights of the examples in a store, times those of their classes."""

    def __init__(self, store: ExampleStore, is_balanced: bool, largest: int) -> None:
        self.weighting, self._store = Weighting(is_balanced, largest), store
        self.sent = False  #: The shards count weights.

    @property
    def counted(self) -> bool:
        """Whether a live example counts something else than 1, or may do so."""
        return self._store.uneven > 0 or self.weighting.factors is not None

    @property
    def per_row(self) -> int:
        """Units of the shards for one of the model."""
        return UNIT if self.sent and not self.counted else 1

    def of(self, slots: Slots) -> Weights | None:
        """Return what to send of the examples in some slots, in units; None where shards count rows."""
        self.sent = self.sent or self.counted
        if not self.sent:
            return None
        return filled(self.weighting.of_slots(self._store, slots), len(slots))

    def balance(self, seq: int) -> tuple[Slots, Weights] | None:
        """Find weights of classes by the live examples, before update ``seq``; what all count then, with their slots.

        None if they are known, or none are wanted.
        """
        if not self.weighting.is_open:
            return None
        slots = self._store.slots()
        self.weighting.balance(self._store, slots, seq)
        weights = self.of(slots)
        assert weights is not None
        return slots, weights

    @property
    def unit(self) -> dict[str, AnyArray]:
        """The array of a model that says so if it counts weights."""
        return {UNIT_ARRAY.name: np.array([UNIT])} if self.counted else {}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Continue from a state, whose rows the store has; the shards are told anew."""
        self.weighting.restore(state, self._store)
        self.sent = False
