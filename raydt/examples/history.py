"""The raw history that an audit works from: every example ever inserted, and when it was live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raydt.arrays.sparse import SparseRows, merged
from raydt.arrays.types import AnyArray, Floats, Ints
from raydt.examples.features import Features
from raydt.examples.targets import Targets
from raydt.examples.weights import Weights


@dataclass(frozen=True, slots=True)
class History:
    """Every example ever inserted, with the interval of updates during which it was live."""

    id: Ints  #: Shape (n,).
    X: Floats  #: Shape (n, d).
    y: Targets  #: Shape (n,).
    inserted: Ints  #: Shape (n,): sequence number of the insertion.
    deleted: Ints  #: Shape (n,): sequence number of the deletion, or the largest int64 while live.
    warmup: int = 0  #: Leading inserts that built the model at once.
    #: False if only the live examples are known (an estimator's store): what needs the past is not checked.
    complete: bool = True
    sparse: SparseRows | None = None  #: The sparse features, if there are some.
    weight: Weights | None = None  #: Shape (n,): the weights, unless all are 1.


def history_of_live(
    state: Mapping[str, AnyArray], groups: Mapping[int, Mapping[str, AnyArray]], features: Features
) -> History:
    """Return the history in a state: its live examples, from ``X`` and the sparse rows of all groups."""
    X = np.concatenate([groups[g]["X"] for g in sorted(groups)], axis=1)
    sparse = None
    if features.sparse:
        sparse = merged([SparseRows.of_arrays(groups[g], features.sparse) for g in sorted(groups)])
    live = np.full(len(X), np.iinfo(np.int64).max)
    weight = state.get("weight")
    return History(state["id"], X, state["y"], state["born"], live, complete=False, sparse=sparse, weight=weight)
