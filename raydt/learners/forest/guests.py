"""Trees of another learner in a forest: the same memberships, and a subset of the features at each node.

They have a past: which updates came when decides when a subtree is rebuilt. A state therefore has all that a tree
remembers; in which leaf a row is follows from its features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.memory import grown
from raydt.arrays.rng import bits
from raydt.examples.features import Features
from raydt.learners.forest.hashing import seeds_of
from raydt.learners.forest.holding import HeldTrees, Ints, Slots, TreeArrays
from raydt.learners.forest.options import ForestOptions
from raydt.learners.sequential import LOOK
from raydt.learners.whole_trees import Arrays, Draws, Rows, TreeKind, WholeTree, Work


def draws_of(options: ForestOptions, features: int, tree: int) -> Draws:
    """What one tree of the forest draws from."""
    tried = options.features_tried(features)
    key = bits(seeds_of(options.random_state).roots, np.array([tree]))[0]
    return Draws(key, 0 if tried == features else tried)


def guest_arrays(trees: list[Arrays], kind: TreeKind) -> TreeArrays:
    """Trees one after the other."""
    width = max((tree["counts"].shape[1] for tree in trees), default=2)
    totals = [np.pad(tree["counts"], ((0, 0), (0, width - tree["counts"].shape[1]))) for tree in trees]

    def joined(name: str, dtype: Any) -> npt.NDArray[Any]:
        return np.concatenate([np.empty(0, dtype), *(tree[name] for tree in trees)])

    return TreeArrays(
        np.array([len(tree["feature"]) for tree in trees], dtype=np.int64),
        joined("feature", np.int32),
        joined("threshold", np.float64),
        joined("right", np.int32),
        np.concatenate([np.empty((0, width), dtype=np.int64), *totals]),
        {name: joined(name, dtype) for name, dtype in kind.types.items()},
    )


class GuestTrees(HeldTrees):
    """Trees of another learner, and the rows in slots that they hold.

    Parameters
    ----------
    options : ForestOptions
    features : Features

    Attributes
    ----------
    built : int
        When the trees are built that wait for the end of the warm-up, in half updates; -1 where none do.
    """

    examples: Rows

    def __init__(self, options: ForestOptions, features: Features) -> None:
        kind = options.guests()
        assert kind is not None
        self.kind, self._width, self.built = kind, 2, -1
        self._trees: list[WholeTree] = []
        self._changed = self._resized = np.zeros(0, dtype=np.bool_)  # since they were fetched; since shape()
        self._shapes = np.zeros((0, 3), dtype=np.int64)
        super().__init__(options, features)

    @property
    def width(self) -> int:
        """Classes that are counted."""
        return self._width

    def _plant(self, width: int) -> None:
        draws = (draws_of(self.options, self._d, number) for number in self.numbers.tolist())
        self._trees = [self.kind.plant(self.features, drawn, width) for drawn in draws]
        self._changed, self._resized = (np.ones(len(self._trees), dtype=np.bool_) for _ in range(2))
        self._shapes = np.zeros((len(self._trees), 3), dtype=np.int64)
        for tree in self._trees:
            tree.reserve(len(self.examples.y))

    def clear(self) -> None:
        """No rows, and trees of one leaf."""
        self.examples = Rows(
            np.empty((0, self._d)),
            np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.int64),
            np.empty((0, self.options.copies), np.int32),
            self._categorical,
        )
        self._width, self.built = 2, -1
        self._plant(2)

    def know(self, order: Ints) -> None:
        """Room for all classes."""
        if len(order) > self._width:
            self._width = len(order)
            for tree in self._trees:
                tree.know(self._width)

    def reserve(self, slots: int) -> None:
        """Room for rows in slots below ``slots``."""
        had = len(self.examples.y)
        if slots <= had:
            return
        capacity = max(slots, had + had // 2, 64)
        held = self.examples
        for tree in self._trees:
            tree.reserve(capacity)
        self.examples = held._replace(
            X=grown(held.X, capacity),
            y=grown(held.y, capacity),
            born=grown(held.born, capacity),
            member=grown(held.member, capacity),
        )

    def put(self, slots: Slots, ids: Ints, X: npt.NDArray[np.float64], y: Ints, born: Ints) -> None:
        """Keep new rows, with the number of the update that inserted each."""
        super().put(slots, ids, X, y, born)
        if len(slots):
            self.examples.born[slots] = born

    def erase(self, slots: Slots) -> None:
        """Leave nothing of rows that no tree holds any more."""
        super().erase(slots)
        self.examples.born[slots] = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        held = self.examples
        self.examples = held._replace(**{name: np.require(a, requirements="W") for name, a in held._asdict().items()})

    def _holding(self, slots: Slots) -> npt.NDArray[np.int32]:
        """Places of the trees that hold some rows."""
        places = np.unique(self.examples.member[slots])
        held: npt.NDArray[np.int32] = places[places >= 0]
        return held

    def _wait(self, slots: Slots, by: int) -> None:
        member = self.examples.member[slots]
        for place in self._holding(slots).tolist():
            self._trees[place].collect(slots[(member == place).any(axis=1)], self.examples, by)
            self._note([place])

    def take(self, work: Work, begin: int, end: int) -> None:
        """Take steps: one tree after the other takes all."""
        moved = work.slot[begin:end][work.kind[begin:end] != LOOK]
        voting = bool((work.place[begin:end] >= 0).any())
        holding = self._holding(moved)
        self._note(holding)
        for place in range(len(self._trees)) if voting else holding.tolist():
            self._trees[place].take(place, self.examples, work, begin, end)

    def votes(self, X: npt.NDArray[np.float64]) -> Ints:
        """Votes of these trees, shape (n, K)."""
        out, rows = np.zeros((len(X), self._width), dtype=np.int64), np.ascontiguousarray(X, dtype=np.float64)
        for tree in self._trees:
            tree.votes(rows, self._categorical, out)
        return out

    def resolve(self) -> None:
        """Build the trees after the warm-up."""
        if self.built < 0:
            return
        for tree in self._trees:
            tree.build(self.examples, self.built)
        self.built = -1
        self._note(slice(None))

    def restore(self, trees: TreeArrays, slots: Slots) -> None:
        """Become the trees of a state, with the rows in these slots."""
        member, begin = self.examples.member[slots], 0
        for place, nodes in enumerate(trees.nodes.tolist()):
            part, begin = slice(begin, begin + nodes), begin + nodes
            feature = trees.feature[part]
            arrays: Arrays = {
                "feature": feature,
                "threshold": trees.threshold[part],
                "left": np.where(feature >= 0, np.arange(1, nodes + 1), -1).astype(np.int32),
                "right": trees.right[part],
                "counts": trees.totals[part],
                **{name: array[part] for name, array in trees.own.items()},
            }
            self._trees[place].restore(arrays, slots[(member == place).any(axis=1)], self.examples)
            self._trees[place].know(self._width)
        self._note(slice(None))

    def _note(self, places: Any) -> None:
        """Remember which trees have changed."""
        self._changed[places] = self._resized[places] = True

    def touched(self) -> Ints:
        """Places of the trees that have changed since the last call."""
        trees = np.flatnonzero(self._changed)
        self._changed[:] = False
        return trees

    def arrays(self, trees: Ints | None = None) -> TreeArrays:
        """Some of the trees, by place; all by default. O(nodes)."""
        places = range(len(self._trees)) if trees is None else trees.tolist()
        return guest_arrays([self._trees[place].arrays() for place in places], self.kind)

    def shape(self) -> tuple[int, int, int]:
        """Nodes, leaves, and the depth of the deepest node. O(nodes of the trees that have changed)."""
        for place in np.flatnonzero(self._resized).tolist():
            self._shapes[place] = self._trees[place].shape()
        self._resized[:] = False
        nodes, leaves, _ = self._shapes.sum(axis=0).tolist()
        return nodes, leaves, int(self._shapes[:, 2].max(initial=0))
