"""The trees of a shard, of whatever kind: rows and memberships by slot, and what the shard asks of the trees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.examples.features import Features
from raydt.learners.forest.hashing import memberships, seeds_of
from raydt.learners.forest.options import ForestOptions
from raydt.learners.sequential import ADD, LOOK, REMOVE
from raydt.learners.whole_trees import Work

Slots = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]


class TreeArrays(NamedTuple):
    """Trees in preorder, one after the other: the left child of an inner node is the next node.

    Attributes
    ----------
    nodes : ndarray of int64, shape (trees,)
        How many each tree has.
    feature : ndarray of int32
        -1 of a leaf.
    threshold : ndarray of float64
    right : ndarray of int32
        Place of the right child within its tree; -1 of a leaf.
    totals : ndarray of int64, shape (nodes, K or 4)
        Class counts, or n, sum and sum of squares, in two words, of numeric labels in units.
    own : mapping of str to ndarray
        Further arrays by node of trees of another kind than exact ones.
    """

    nodes: Ints
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    right: npt.NDArray[np.int32]
    totals: Ints
    own: Mapping[str, npt.NDArray[Any]]


class HeldTrees(ABC):
    """Trees of a shard, and the rows in slots that they hold.

    Parameters
    ----------
    options : ForestOptions
    features : Features

    Attributes
    ----------
    numbers : ndarray of int64, shape (trees,)
        Which trees of the forest these are, ascending; none before :meth:`deal`.
    examples : named tuple
        Rows, labels and memberships by slot: at least ``X``, ``y`` and ``member``.
    """

    examples: Any

    def __init__(self, options: ForestOptions, features: Features) -> None:
        self.options, self.features, self.numbers = options, features, np.empty(0, dtype=np.int64)
        self.seeds = seeds_of(options.random_state)
        self._place = np.full(options.n_estimators, -1, dtype=np.int32)
        self._d, self._categorical = len(features), features.kinds.astype(np.bool_)
        self.clear()

    def deal(self, numbers: Ints) -> None:
        """Own these trees of the forest, before any row is in them."""
        if np.array_equal(numbers, self.numbers):
            return
        self.numbers = numbers
        self._place[:] = -1
        self._place[numbers] = np.arange(len(numbers))
        self._plant(self.width)

    # ---------------------------------------------------------------- what a kind of trees gives

    @property
    @abstractmethod
    def width(self) -> int:
        """Classes that are counted, or 4 numbers of numeric labels."""

    @abstractmethod
    def _plant(self, width: int) -> None:
        """Make every tree one leaf without rows."""

    @abstractmethod
    def clear(self) -> None:
        """No rows, and trees of one leaf."""

    @abstractmethod
    def know(self, order: Ints) -> None:
        """Room for all classes, whose codes are in ascending order of their labels."""

    @abstractmethod
    def reserve(self, slots: int) -> None:
        """Room for rows in slots below ``slots``."""

    @abstractmethod
    def _wait(self, slots: Slots, by: int) -> None:
        """Put rows into the roots of their trees (``by`` 1), which are not built yet, or take them out (-1)."""

    @abstractmethod
    def take(self, work: Work, begin: int, end: int) -> None:
        """Take steps; leaves that are opened may stay so."""

    @abstractmethod
    def votes(self, X: npt.NDArray[np.float64]) -> Ints:
        """Votes of these trees, shape (n, K), or (n, 2) of numbers."""

    @abstractmethod
    def resolve(self) -> None:
        """Build whatever is not built yet."""

    @abstractmethod
    def touched(self) -> Ints:
        """Places of the trees that have changed since the last call."""

    @abstractmethod
    def arrays(self, trees: Ints | None = None) -> TreeArrays:
        """Some of the trees, by place, in canonical form; all by default. O(nodes)."""

    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """Nodes, leaves, and the depth of the deepest node."""

    # ---------------------------------------------------------------- rows

    def put(self, slots: Slots, ids: Ints, X: npt.NDArray[np.float64], y: Ints, born: Ints) -> None:
        """Keep new rows, of which nothing is in the trees yet."""
        if not len(slots):
            return
        self.examples.X[slots] = X
        self.examples.y[slots] = y
        self.examples.member[slots] = self._place[self.members(ids)]

    def erase(self, slots: Slots) -> None:
        """Leave nothing of rows that no tree holds any more."""
        self.examples.X[slots] = 0.0
        self.examples.y[slots] = 0
        self.examples.member[slots] = -1

    def members(self, ids: Ints) -> npt.NDArray[np.int32]:
        """Trees of the forest that hold each example, shape (n, k)."""
        out = np.empty((len(ids), self.options.copies), dtype=np.int32)
        memberships(self.seeds, np.ascontiguousarray(ids, dtype=np.int64), self.options.n_estimators, out)
        return out

    def collect(self, kind: npt.NDArray[np.int32], slots: Slots) -> None:
        """Take steps while nothing is built: rows wait in the roots, in order."""
        changes = kind != LOOK  # a query changes nothing, and has no slot
        kind, slots = kind[changes], slots[changes]
        begin = 0
        for stop in [*np.flatnonzero(np.diff(kind == REMOVE)).tolist(), len(kind) - 1]:
            part = slots[begin : stop + 1]
            if len(part):
                self._wait(part, 1 if kind[begin] == ADD else -1)
            begin = stop + 1
