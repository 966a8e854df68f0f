"""The rank of the current split of a node among its candidates (paper, section 3.4)."""

from __future__ import annotations

from typing import Any

from raydt.arrays.kernel import kernel
from raydt.learners.gbdt.split_search import scan


@kernel
def better_candidates(
    visits: Any, limits: Any, forest: Any, c: Any, per: int, units: Any, found: Any, better: Any
) -> None:
    """How many candidates of each visited node gain more than its split."""
    for v in range(len(visits)):
        tree, node = visits[v, 0], visits[v, 1]
        m = tree // per
        row = m if len(c.cuts) > 1 else 0
        sums = forest.sums[tree, forest.place[tree, node]]
        better[v], _ = scan(sums, visits[v, 2], visits[v, 3], c, row, units, limits[v], True, found)
