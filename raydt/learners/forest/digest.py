"""The digest of a forest: a hash of each tree, made again for those that have changed.

Invariant: the digest is a function of the trees, of labels by id, and of nothing else, whatever was hashed before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from raydt.arrays.digest import Part, digest
from raydt.arrays.types import AnyArray, Ints
from raydt.learners.forest.label_scale import Scale
from raydt.learners.forest.model import stored
from raydt.learners.forest.nodes import TreeArrays


def class_counts(roots: Sequence[Ints]) -> Ints:
    """Add up the class counts of the roots of trees, each of shape (trees, classes); some may know fewer classes."""
    counts = np.zeros(max(one.shape[1] for one in roots), dtype=np.int64)
    for one in roots:
        counts[: one.shape[1]] += one.sum(axis=0)
    return counts


class ForestDigest:
    """Hashes of all trees."""

    def __init__(self, trees: int) -> None:
        self._hashes = np.zeros((trees, 32), dtype=np.uint8)
        self._stale = np.ones(trees, dtype=np.bool_)
        self._counted: tuple[bytes | Scale, int] | None = None  # what the columns of ``totals`` were

    def note(self, numbers: Ints | slice) -> None:
        """Note that some trees have changed."""
        self._stale[numbers] = True

    def of(
        self,
        trees: Callable[[Ints], Iterable[TreeArrays]],
        counted: Ints | Scale,
        more: Iterable[Part],
        per_row: int = 1,
    ) -> str:
        """Return the digest of the trees and of ``more``. O(nodes of the trees that have changed).

        ``trees`` gives some of them by number; ``counted`` are the codes of the classes that live examples have, in
        ascending order of their labels, or the scale of numeric labels. Totals are hashed over ``per_row``.
        """
        key = counted if isinstance(counted, Scale) else counted.tobytes(), per_row
        if key != self._counted:
            self.note(slice(None))
            self._counted = key
        numbers = np.flatnonzero(self._stale)
        for number, tree in zip(numbers.tolist(), trees(numbers), strict=True):
            self._hashes[number] = np.frombuffer(_hash(tree, counted, per_row), dtype=np.uint8)
            self._stale[number] = False
        exponent: list[Part] = []
        if isinstance(counted, Scale):
            exponent.append(("exponent", np.array([counted.exponent], dtype=np.int64)))
        return digest([("trees", self._hashes), *exponent, *more])


def _hash(tree: TreeArrays, counted: Ints | Scale, per_row: int) -> bytes:
    """Hash a tree in canonical form; the left child is the next node."""
    if isinstance(counted, Scale):
        totals = stored(tree.totals, counted, per_row)
    else:  # a tree that no row has reached yet may know fewer classes
        totals = np.zeros((len(tree.totals), len(counted)), dtype=np.int64)
        known = counted < tree.totals.shape[1]
        totals[:, known] = tree.totals[:, counted[known]] // per_row
    names: dict[str, AnyArray] = {
        "feature": tree.feature,
        "threshold": tree.threshold,
        "right": tree.right,
        "totals": totals,
    }
    return bytes.fromhex(digest(names.items()).partition(":")[2])
