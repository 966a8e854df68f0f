"""Masses: what learners count where examples have weights.

A count is a number of rows as long as all weights are 1. With the first other weight all counts become *masses*: whole
numbers of units of ``2**-16`` (``raydt.examples.weights``), to which an example adds its weight. Ratios of counts, and
the scores that are made of products of them, have the same bits for either, because floats scale by powers of two
exactly. Whatever compares a count with a number of rows takes ``unit`` units for a row: 1, or ``UNIT`` of masses.

States and models have ``unit`` where counts are masses. They stay so when the last weight other than 1 is deleted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inlined_kernel
from raydt.arrays.types import AnyArray
from raydt.examples.slot_columns import SlotColumns
from raydt.examples.weighting import Weighting
from raydt.examples.weights import Weights
from raydt.trees.state_schema import UNIT_ARRAY, AnyInts, Arrays, unit_of, weights_of_state


@inlined_kernel
def mass_of(weights: Any, slot: int, unit: int = 1) -> int:
    """Mass of one example, by the weights of all slots in units; ``unit`` if there are none."""
    mass: int = np.int64(weights[slot]) if len(weights) > 0 else np.int64(unit)
    return mass


def masses_by_slot(weighting: Weighting, store: SlotColumns) -> Weights:
    """What all examples of a store count, by slot, in units; all one row if those with other weights are gone."""
    if weighting.factors is None:
        store.weigh()
    return weighting.by_slot(store)


def unit_array(unit: int) -> dict[str, AnyArray]:
    """Return the array that says in a state or model that counts are masses; none if they are not."""
    return {UNIT_ARRAY.name: np.array([unit], dtype=UNIT_ARRAY.dtype)} if unit > 1 else {}


def masses_of(state: Arrays) -> AnyInts:
    """Mass of each example of a state, shape (rows,); 1 where counts are numbers of rows."""
    if unit_of(state) == 1:
        return np.ones(len(state["y"]), dtype=np.int64)
    return weights_of_state(state).astype(np.int64)
