"""Masses: what learners count where examples have weights.

A count is a number of rows as long as all weights are 1. With the first other weight all counts become *masses*: whole
numbers of units of ``2**-16`` (``raydt.examples.weights``), to which an example adds its weight. Ratios of counts, and
the scores that are made of products of them, have the same bits for either, because floats scale by powers of two
exactly. Whatever compares a count with a number of rows takes ``unit`` units for a row: 1, or :data:`UNIT` of masses.

States and models have ``unit`` where counts are masses. They stay so when the last weight other than 1 is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inlined_kernel
from raydt.examples.store import ExampleStore
from raydt.examples.weights import DTYPE, LARGEST_SUM, UNIT, Weighting, Weights
from raydt.trees.state_schema import EXAMPLES, UPDATES, Array

Arrays = Mapping[str, npt.NDArray[Any]]
Int64 = npt.NDArray[np.int64]


@inlined_kernel
def mass_of(weights: Any, slot: int) -> int:
    """Mass of one example, by the weights of all slots in units; 1 if there are none."""
    mass: int = np.int64(weights[slot]) if len(weights) > 0 else np.int64(1)
    return mass


def masses_by_slot(weighting: Weighting, store: ExampleStore) -> Weights:
    """What all examples of a store count, by slot, in units; all one row if those with other weights are gone."""
    weights = weighting.by_slot(store)
    return weights if len(weights) else np.full(store.capacity, UNIT, dtype=DTYPE)


#: The units of one row, in a state or model whose counts are masses.
MASS = Array("unit", np.int64, (1,), UNIT, UNIT + 1)


def unit_of(state: Arrays) -> int:
    """Units of one row in the counts of a state or model."""
    return UNIT if MASS.name in state else 1


def unit_array(unit: int) -> dict[str, npt.NDArray[Any]]:
    """Return the array that says in a state or model that counts are masses; none if they are not."""
    return {MASS.name: np.array([unit], dtype=MASS.dtype)} if unit > 1 else {}


def masses_of(state: Arrays) -> Int64:
    """Mass of each example of a state, shape (rows,); 1 where counts are numbers of rows."""
    rows = len(state["y"])
    if unit_of(state) == 1:
        return np.ones(rows, dtype=np.int64)
    weighting = Weighting(True)
    weighting.take(state.get("class_weight"))
    found = weighting.of(state.get("weight"), state["y"])
    return np.full(rows, UNIT, dtype=np.int64) if found is None else found.astype(np.int64)


def of_masses(declared: tuple[Array, ...], state: Arrays) -> tuple[Array, ...]:
    """Declare arrays as they are in a state or model: of masses with 64 bits, unless they are empty, and more room."""
    if unit_of(state) == 1:
        return declared
    bounds: dict[float | str | None, float] = {EXAMPLES: LARGEST_SUM + 1, UPDATES: 2**62}
    wide = ("bins", "n1", "c11")
    return tuple(
        of._replace(below=bounds.get(of.below, of.below), dtype=(np.int64, of.dtype) if of.name in wide else of.dtype)
        for of in declared
    )
