"""The digest of a confidence tree: most of what is hashed is encoded once, and kept until it changes.

An update changes the counts and tallies of nodes, the number of examples taken, and rows. Whatever else there is (the
shape of the tree, the records of its splits, bins, totals) changes with a check, a restart, a renewal or a new class.

Invariant: the digest is that of all arrays by name (``docs/reference/formats.md``), whatever was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import numpy as np

from raydt.arrays.digest import Part, digest, encoded
from raydt.arrays.types import Arrays
from raydt.batches.binning import Bins
from raydt.learners.confidence_tree.dynamic_tree import LiveConfidenceTree
from raydt.learners.confidence_tree.leaf_predictions import leaf_tallies

#: What a state has beside the model: slots, places, when classes were weighed, and rows, which enter by the root of a
#: tree of hashes.
_SKIPPED = ("place", "trial_place", "seq", "leaf", "was_right", "weighed")


class ModelDigest:
    """Digests of a tree as it changes."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._bins: Bins | None = None
        self._kept: list[bytes | str] = []  # in the order of names; a name stands for an array that changes

    def of(self, live: LiveConfidenceTree, totals: Arrays, state: Callable[[], Arrays], rows: Part) -> str:
        """Return the digest. O(nodes), of counts alone unless something else has changed.

        ``totals`` are the counters of the state, whose arrays ``state`` makes; ``rows`` is the part of all rows.
        """
        changing = live.changing() | leaf_tallies(live) | {"t": totals["t"]}
        fixed = (int(value[0]) for name, value in totals.items() if name not in ("t", "seq"))
        key = live.outline.version, changing["counts"].shape[1], *fixed
        if key != self._key or live.bins is not self._bins:
            everything = state() | changing
            self._kept = list(_kept([(name, everything[name]) for name in sorted(everything)], changing))
            self._key, self._bins = key, live.bins
        parts = (part if isinstance(part, bytes) else (part, changing[part]) for part in self._kept)
        return digest([*parts, rows])


def _kept(parts: list[Part], changing: Arrays) -> Iterator[bytes | str]:
    """Encode what lies between the arrays that change."""
    between: list[Part] = []
    for name, values in parts:
        if name in changing:
            yield encoded(between)
            yield name
            between = []
        elif name not in _SKIPPED:
            between.append((name, np.asarray(values)))
    yield encoded(between)
