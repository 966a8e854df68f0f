"""The trees of a state under an audit, and what their sums should be: the same for all rows and for parts of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from raydt.arrays.types import AnyArray, Floats, Ints
from raydt.audits.recorded_bins import FeatureBins
from raydt.examples.weights import UNIT
from raydt.learners.gbdt.derivatives import ONE, RESIDUAL_BITS, Loss
from raydt.learners.gbdt.recompute import Gains, RecomputedCandidates, recorded_trees

if TYPE_CHECKING:
    from raydt.learners.gbdt.options import GBDTOptions

#: A leaf of a classifier is clipped to it.
LARGEST_LEAF = 128.0


class AuditedTrees:
    """All trees of a state.

    Sparse features are numbered as the ones ``with_cut`` are, of which there are few. MalformedModelError if the nodes
    are no trees.
    """

    def __init__(
        self, options: GBDTOptions, state: Mapping[str, AnyArray], bins: list[FeatureBins], with_cut: Ints
    ) -> None:
        feature = state["node_feature"].astype(np.int64)
        above, place = feature >= len(bins), np.searchsorted(with_cut, feature - len(bins))
        there = np.append(with_cut, -1)[place] == feature - len(bins)
        feature = np.where(above, np.where(there, len(bins) + place, len(bins) + len(with_cut)), feature)
        classes = int(state["classes"][0])
        self.options, self.state, self.bins, self.with_cut, self.classes = options, state, bins, with_cut, classes
        self.binary = classes == 2 and options.objective in ("auto", "binary")
        self.width = 1 if options.regression or self.binary else classes
        self.unit = math.ldexp(1.0, int(state["exponent"][0]) - RESIDUAL_BITS)
        self.loss = Loss(self.width, options.regression, float(state["origin"][0]), self.unit)
        units = (2.0**-RESIDUAL_BITS, 1.0 / UNIT) if options.regression else (1.0 / ONE, 1.0 / ONE**2)
        self.gains = Gains(units, options.l2_regularization)
        self.candidates = RecomputedCandidates(bins, len(with_cut), options)
        self.tree = recorded_trees({**state, "node_feature": feature}, self.candidates.cuts)
        self.end = np.cumsum(state["tree_nodes"])
        self.tolerance = max(
            1, math.ceil(options.robustness_tolerance * min(self.candidates.per_feature, self.candidates.total))
        )

    def __len__(self) -> int:
        return len(self.tree)

    def nodes(self, t: int) -> slice:
        """Return where the nodes of a tree are among those of all."""
        return slice(int(self.end[t]) - len(self.tree[t]), int(self.end[t]))

    def leaf_values(self, G: Ints, H: Ints) -> Floats:
        """Algorithm 1, line 7, of sums, with l2_regularization; 0 where there is nothing."""
        empty, (of_G, of_H) = H == 0, self.gains.units
        beta = np.where(empty, 0.0, G * of_G / np.where(empty, 1.0, H * of_H + self.options.l2_regularization))
        if self.options.regression:
            return self.options.learning_rate * beta * math.ldexp(1.0, int(self.state["exponent"][0]))
        if not self.binary:
            beta = beta * ((self.classes - 1) / self.classes)
        values: Floats = self.options.learning_rate * np.clip(beta, -LARGEST_LEAF, LARGEST_LEAF)
        return values
