"""Bins of features for audits, as a state records them. Nothing of the fast path is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raydt.arrays.types import AnyArray, Floats, Ints
from raydt.examples.features import Features
from raydt.messages import message


class MalformedModelError(Exception):
    """Node arrays that are no trees in preorder, or bins that are none."""


@dataclass(frozen=True, eq=False)
class FeatureBins:
    """Bins of one feature: boundaries of numbers, or kept categories; ``seen``: the warm-up had others, or NaN."""

    categorical: bool
    values: Floats
    seen: bool

    @property
    def bins(self) -> int:
        """How many codes there are."""
        return len(self.values) + (1 if self.categorical else 2)

    @property
    def cuts(self) -> int:
        """How many cuts there are, numbered from 0: one of two categories, and no cut of fewer."""
        available = len(self.values) + self.seen
        return available - (available <= 2 and available > 0) if self.categorical else available

    def codes(self, x: Floats) -> Ints:
        """Bin of each value."""
        if self.categorical:
            codes = np.full(len(x), len(self.values))
            order = np.argsort(self.values)
            place = np.searchsorted(self.values, x, sorter=order)
            known = np.flatnonzero(place < len(order))
            known = known[self.values[order[place[known]]] == x[known]]
            codes[known] = order[place[known]]
            return codes
        return np.where(np.isnan(x), len(self.values) + 1, np.searchsorted(self.values, x))

    def equals(self, other: FeatureBins) -> bool:
        """Whether kind, values and what was seen are the same."""
        return (self.categorical, self.seen) == (other.categorical, other.seen) and np.array_equal(
            self.values, other.values
        )


def recorded_bins(state: Mapping[str, AnyArray], features: Features) -> tuple[list[FeatureBins], Ints]:
    """Return the bins of the dense features, and indices of the sparse ones that had both values then.

    The one cut of such a sparse feature has 0 on the left. Bins of other features are a ``MalformedModelError``.
    """
    starts, values, ranks = state["bins_starts"], state["bins_values"], state["bins_ranks"]
    kinds, sparse = features.kinds, np.asarray(state.get("bins_sparse", ()), dtype=np.int64)
    if not np.array_equal(state["bins_kinds"], kinds) or not len(starts) - 1 == len(kinds) == len(state["bins_seen"]):
        raise MalformedModelError(message("states.kinds", array="bins_kinds"))
    if len(sparse) and not (sparse[0] >= 0 and (np.diff(sparse) > 0).all() and sparse[-1] < features.sparse):
        raise MalformedModelError(message("states.order", array="bins_sparse"))
    if starts[0] != 0 or (np.diff(starts) < 0).any() or not starts[-1] == len(values) == len(ranks):
        raise MalformedModelError(message("states.order", array="bins_starts"))
    found = []
    for j, categorical in enumerate(features.categorical):
        part, rank = values[starts[j] : starts[j + 1]], ranks[starts[j] : starts[j + 1]]
        if categorical:
            if not np.array_equal(np.sort(rank), np.arange(len(rank))):
                raise MalformedModelError(message("states.ranks", array="bins_ranks"))
            part = part[np.argsort(rank)]
        found.append(FeatureBins(categorical, np.asarray(part, np.float64), bool(state["bins_seen"][j])))
    return found, sparse
