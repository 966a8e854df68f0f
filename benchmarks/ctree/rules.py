"""The three trees of the paper and their grids: C-Tree over c, H-Tree and CorrH-Tree over delta.

The paper takes 200 values of each, c in (0, 2) and delta in (0, 1). Nearly all of c's give trees of one leaf on its
synthetic streams, so that a short grid has to look where trees grow. The width of a baseline is w / sqrt(m) with
w = sqrt(ln(1/delta) / 2), that of C-Tree (eq. 8, twice) about 10 c / sqrt(m), since sqrt(ln(m^2 h^2 t d)) is about 5
for leaves of a thousand examples. All three grids go through the same widths w at equal ratios.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

#: Names in tables, and the rule of each.
RULES = {"C-Tree": "ctree", "H-Tree": "hoeffding", "CorrH-Tree": "corrected"}

#: Least and greatest w: around trees of 50 leaves on the synthetic streams, and around the best trees on real data.
SYNTHETIC, REAL = (0.05, 0.5), (0.02, 1.0)

#: C-Tree's c for a w, see above.
_C = 0.1

#: What all trees share: the paper's grace period, no ties, leaves that predict their majority; bins that stay.
COMMON = {
    "kind": "confidence_tree",
    "grace_period": 100,
    "tie_threshold": 0.0,
    "leaf_prediction": "majority",
    "max_bins": 256,
    "renew_bins": 0,
}


def grids(settings: int, between: tuple[float, float]) -> list[dict[str, list[Any]]]:
    """List the grid of each sweep: together all rules, each with ``settings`` values between two widths."""
    widths = np.geomspace(*between, settings).tolist()
    return [
        {"learner.rule": ["ctree"], "learner.c": [float(f"{_C * w:.4g}") for w in widths]},
        {"learner.rule": ["hoeffding", "corrected"], "learner.delta": [float(f"{_delta(w):.6g}") for w in widths]},
    ]


def _delta(w: float) -> float:
    return math.exp(-2.0 * w * w)
