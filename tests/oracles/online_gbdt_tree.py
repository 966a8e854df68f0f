"""Rows and nodes of the slow online GBDT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

#: Iteration and, within it, class of a tree.
Place = tuple[int, int]


@dataclass(eq=False)
class Row:
    """An example. ``ledger`` and ``leaf``: of each tree, what the row added to it, and the leaf that holds the row.

    ``drift``: by how much its scores have moved, at most, since all of them were compared, without how far its leaves
    have been from their values.
    """

    id: int
    x: tuple[float, ...]
    y: float
    codes: list[int] = field(default_factory=list)
    ledger: dict[Place, int] = field(default_factory=dict)
    leaf: dict[Place, Node] = field(default_factory=dict)
    drift: int = 0
    weight: int = 65536  # in units of 2**-16
    counts: int = 65536  # the weight times that of the class


@dataclass(eq=False)
class Node:
    """A node. ``above``, ``below``: how far a leaf has been above and below its value, which no row's drift has yet."""

    feature: int = -1
    cut: int = 0
    left: Node | None = None
    right: Node | None = None
    G: int = 0
    H: int = 0
    value: float = 0.0
    tried: tuple[int, int] | None = None
    rows: list[Row] = field(default_factory=list)  # of a leaf
    above: int = 0
    below: int = 0

    @property
    def is_leaf(self) -> bool:
        return self.feature < 0

    def preorder(self) -> Iterator[Node]:
        yield self
        if self.left is not None and self.right is not None:
            yield from self.left.preorder()
            yield from self.right.preorder()

    def leaves(self) -> list[Node]:
        return [v for v in self.preorder() if v.is_leaf]


@dataclass
class Work:
    """What one D' touched."""

    deletes: int = 0
    inserts: int = 0
    retrained: set[tuple[int, int, int]] = field(default_factory=set)  # pass, iteration, class
    rows: int = 0
    refreshed: int = 0
    trained: int = 0
    checked: int = 0
