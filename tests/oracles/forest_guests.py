"""A forest of FuDyADT trees, slowly: each tree is the paper's twin, on its members and on the features its nodes draw.

Memberships and what a node draws are those of ``tests/oracles/forest.py``, in plain integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from raydt.arrays.digest import digest
from tests.oracles.digests import row_parts
from tests.oracles.forest import LEFT, ORDER, RIGHT, Rules, below, splitmix
from tests.oracles.fudyadt import Example, FudyadtTwin, Node


class MemberTwin(FudyadtTwin):
    """The twin of a tree whose nodes may be split on ``features`` features that they draw, by the key of their path."""

    def __init__(self, categorical: tuple[bool, ...], key: int, features: int, **rest: Any) -> None:
        super().__init__(categorical, **rest)
        self.root_key = self.key = key
        self.features = features

    def drawn(self) -> set[int]:
        """The features that the node at hand draws."""
        order = list(range(len(self.categorical)))
        own = splitmix(self.key, ORDER)
        for place in range(self.features):
            other = place + below(own, place, len(order) - place)
            order[place], order[other] = order[other], order[place]
        return set(order[: self.features])

    def candidates(self, examples: list[Example]) -> Iterator[tuple[int, float]]:
        drawn = self.drawn()
        return ((j, threshold) for j, threshold in super().candidates(examples) if j in drawn)

    def rebuild(self, path: list[Node], depth: int, time: int) -> None:
        self.key = self.root_key
        for parent, child in pairwise(path[: depth + 1]):
            self.key = splitmix(self.key, LEFT if parent.left is child else RIGHT)
        super().rebuild(path, depth, time)

    def build(self, examples: list[Example], depth: int, time: int) -> Node:
        key, sides = self.key, iter((LEFT, RIGHT))
        node = Node(s=len(examples), c=0, built=time, at_build=list(examples), m0=self.mass(self.counts(examples)))
        split = self.best_split(examples) if self.may_split(examples, depth) else None
        if split is None:
            node.examples = examples
            return node
        node.feature, node.threshold = split
        parts: list[list[Example]] = [[], []]
        for e in examples:
            parts[not self.goes_left(node, e.x)].append(e)
        children = []
        for part in parts:
            self.key = splitmix(key, next(sides))
            children.append(self.build(part, depth + 1, time))
        node.left, node.right = children
        node.m0 = self.mass_left(node)
        return node


class GuestForest:
    """Memberships, and a twin for each tree. ``rest`` are the options of the trees."""

    def __init__(self, rules: Rules, warmup: int, **rest: Any) -> None:
        self.rules, self.warmup, self.seq = rules, warmup, 0
        self.live: dict[int, Example] = {}
        self.warming = warmup > 0
        own = {"max_depth": rules.max_depth, "min_samples_split": rules.min_samples_split, **rest}
        self.trees = [MemberTwin(rules.categorical, rules.root(t), rules.P, **own) for t in range(rules.T)]

    def know(self, classes: int) -> None:
        """There are so many classes from now on."""
        for tree in self.trees:
            tree.n_classes = max(tree.n_classes, classes)

    def step(self) -> None:
        """Count an update that comes; the first after the warm-up finds the trees built."""
        if self.seq >= self.warmup:
            self.finish()
        self.seq += 1

    def finish(self) -> None:
        """End the warm-up."""
        if self.warming:
            for tree in self.trees:
                tree.rebuild([tree.root], 0, 2 * min(self.warmup, self.seq) - 1)
        self.warming = False

    def insert(self, key: int, x: tuple[float, ...], y: int) -> None:
        """Insert an example with the update that was counted last."""
        self.live[key] = Example(key, x, y, self.seq - 1)
        for t in self.rules.members(key):
            if self.warming:
                self.trees[t].root.examples.append(self.live[key])
            else:
                self.trees[t].update(self.live[key], True, 2 * self.seq - 1)

    def delete(self, key: int, *, first_half: bool = False) -> None:
        """Delete an example with the update that was counted last, or with its first half."""
        example = self.live.pop(key)
        example.died = self.seq - 1
        for t in self.rules.members(key):
            if self.warming:
                self.trees[t].root.examples.remove(example)
            else:
                self.trees[t].update(example, False, 2 * self.seq - 1 - first_half)

    def predict(self, x: tuple[float, ...]) -> int:
        """The class of most votes, of equals the smaller; class 0 without any vote."""
        votes: Counter[int] = Counter()
        for tree in self.trees:
            counts = tree.counts(tree.path(x)[-1].examples)
            if sum(counts):
                votes.update({k: (c << 40) // sum(counts) for k, c in enumerate(counts)})
        return min(votes, key=lambda k: (-votes[k], k), default=0) if votes.total() else 0

    def digest(self) -> str:
        """Digest of the model."""
        states = [tree.state() for tree in self.trees]
        classes = sorted({e.y for e in self.live.values()})
        parts: list[tuple[str, Any]] = [("tree_nodes", np.array([len(s["feature"]) for s in states], dtype=np.int64))]
        names = ["feature", "threshold", "left", "right"]
        parts += [(name, np.concatenate([s[name] for s in states])) for name in names]
        parts.append(("totals", np.concatenate([s["counts"][:, classes] for s in states])))
        names = ["s", "c", "built", *(name for name in ("m0", "gone") if name in states[0])]
        parts += [(name, np.concatenate([s[name] for s in states])) for name in names]
        ids = sorted(self.live)
        ranks = np.array([classes.index(self.live[i].y) for i in ids], dtype=np.int32)
        return digest([*parts, *row_parts(np.array(ids, dtype=np.int64), y=ranks)])
