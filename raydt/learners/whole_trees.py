"""Whole trees of one learner as the members of another's ensemble: what both sides rely on.

The ensemble keeps rows, labels, births and memberships by slot (:class:`Rows`) and hands every tree the same steps
(:class:`Work`). A tree takes those of the examples it holds, and votes on each row for which a vote is wanted, just
before that step. Votes are whole numbers, which add up in any order.

A node draws from its path: the root has a key; the key of a left child is number 0, that of a right child number 1 of
the sequence of SplitMix64 (``raydt.arrays.rng``) that starts at its parent's key. A path of any length has a key.
Number 2 is the key of the order of features (Fisher and Yates), number 3 is left to the kind of tree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inlined_kernel, inner_kernel
from raydt.arrays.rng import below_at
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.learners.audit_report import AuditReport
from raydt.learners.recorded_draws import Drawn

Arrays = dict[str, "npt.NDArray[Any]"]

#: What the numbers of a node's sequence are keys of; 0 and 1 are those of its children.
ORDER, CUTS = 2, 3
#: A share of a class is counted in parts of 2**-40.
SHARE_BITS = 40
_HALF_BITS = SHARE_BITS // 2
#: Columns of what a step did: nodes counted; subtrees, rows and nodes rebuilt; depth of the topmost rebuild.
PATH, SUBTREES, ROWS, NODES, DEPTH = range(5)
#: The depth where nothing was rebuilt.
NOWHERE = 2**31 - 1


class Draws(NamedTuple):
    """What a tree draws from: the key of its root, and how many features each node may split on (0: all)."""

    key: np.uint64
    features: int


class Rows(NamedTuple):
    """By slot: features ``X``, shape (slots, d); class codes ``y``; ``born``, the number of the update that inserted
    the example; ``member``, shape (slots, k), its trees or -1. ``categorical``, shape (d,), tells the columns apart."""

    X: npt.NDArray[np.float64]
    y: npt.NDArray[np.int64]
    born: npt.NDArray[np.int64]
    member: npt.NDArray[np.int32]
    categorical: npt.NDArray[np.bool_]


class Work(NamedTuple):
    """Steps, the rows they bring, and what they lead to.

    Attributes
    ----------
    kind, slot : ndarray of int32, shape (steps,)
    row : ndarray of int32, shape (steps,)
        Of ``X``; -1 of a REMOVE.
    place : ndarray of int32, shape (steps,)
        Row of ``votes``; -1 where none is wanted.
    stamp : ndarray of int64, shape (steps,)
        Time in half updates; empty for trees that have no past.
    X : ndarray of float64, shape (rows, d)
    votes : ndarray of int64, shape (predictions, K or 2)
    done : ndarray of int64, shape (steps, 5)
    """

    kind: npt.NDArray[np.int32]
    slot: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    place: npt.NDArray[np.int32]
    stamp: npt.NDArray[np.int64]
    X: npt.NDArray[np.float64]
    votes: npt.NDArray[np.int64]
    done: npt.NDArray[np.int64]


class WholeTree(Protocol):
    """One tree, which one process holds alone."""

    def take(self, number: int, rows: Rows, work: Work, begin: int, end: int) -> None:
        """Take steps of the examples that have ``number`` among their trees; add votes and what was done."""

    def collect(self, slots: npt.NDArray[np.int32], rows: Rows, by: int) -> None:
        """Count rows in (``by`` 1) or out (-1) of the root, a leaf that is not built yet."""

    def build(self, rows: Rows, stamp: int) -> None:
        """Build the tree, at a time in half updates, from the rows in its root."""

    def votes(self, X: npt.NDArray[np.float64], categorical: npt.NDArray[np.bool_], out: npt.NDArray[np.int64]) -> None:
        """Add the votes of the tree for each row to ``out``, shape (n, K)."""

    def know(self, classes: int) -> None:
        """Room for so many classes."""

    def reserve(self, slots: int) -> None:
        """Room for rows in slots below ``slots``."""

    def arrays(self) -> Arrays:
        """Nodes in preorder: ``feature``, ``threshold``, ``left``, ``right``, ``counts``, and those of its kind."""

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], slots: npt.NDArray[np.int32], rows: Rows) -> None:
        """Become the tree of some arrays, with the rows in these slots."""

    def shape(self) -> tuple[int, int, int]:
        """Nodes, leaves, depth of the deepest node."""


class TreeKind(ABC):
    """What an ensemble needs of a learner whose trees it grows.

    Attributes
    ----------
    settable : tuple of str
        Options of the learner that may be set for members; the others are the ensemble's, or have no effect.
    exercise : tuple of mapping
        Options of small ensembles (``tree_options``, and others of the ensemble) that together use every kernel.
    types : mapping of str to dtype
        Node arrays beside ``feature``, ``threshold``, ``left``, ``right`` and ``counts``.
    """

    settable: ClassVar[tuple[str, ...]]
    exercise: ClassVar[tuple[Mapping[str, Any], ...]]

    @property
    @abstractmethod
    def types(self) -> Mapping[str, np.dtype[Any]]:
        """Node arrays of its own."""

    @abstractmethod
    def plant(self, features: Features, draws: Draws, classes: int) -> WholeTree:
        """A tree without examples."""

    @abstractmethod
    def most_rows(self, classes: int) -> int:
        """Rows that one tree can hold."""

    @abstractmethod
    def check(self, arrays: Arrays, features: Features, classes: int) -> None:
        """Require of the arrays of one tree from a file what kernels rely on; ValueError names the array."""

    @abstractmethod
    def audit(self, features: Features, draws: Drawn, state: Arrays, history: History) -> AuditReport:
        """Prove or refute what the kind promises of one tree, from its arrays and the raw examples of its members."""


@inlined_kernel
def drawn_feature(key: np.uint64, place: int, order: Any, swaps: Any) -> int:
    """The feature at the next place of a node's order; ``order`` is a permutation that the call changes in two places.

    Fisher and Yates; :func:`put_back` undoes it.
    """
    other = place + below_at(key, place, len(order) - place)
    swaps[place] = other
    feature = order[other]
    order[other] = order[place]
    order[place] = feature
    drawn: int = np.int64(feature)
    return drawn


@inlined_kernel
def put_back(order: Any, swaps: Any, drawn: int) -> None:
    """Make the identity of ``order`` again after so many draws."""
    for back in range(drawn):
        place = drawn - 1 - back
        other = swaps[place]
        feature = order[other]
        order[other] = order[place]
        order[place] = feature


@inner_kernel
def add_vote(totals: Any, node: int, numeric: bool, votes: Any) -> None:
    """Add the vote of a leaf; of numbers ``votes`` are the sum and how many trees it has. A leaf without rows has none.

    Of n rows, class k gets ``floor(2**40 c_k / n)``; of numbers the vote is ``floor(sum / n)`` in units.
    """
    if numeric:
        n = totals[node, 0]
        if n > 0:
            votes[0] += totals[node, 1] // n
            votes[1] += 1
        return
    n = np.int64(0)
    for k in range(totals.shape[1]):
        n += totals[node, k]
    if n > 0:
        for k in range(totals.shape[1]):
            if totals[node, k]:
                parts = totals[node, k] << _HALF_BITS  # in two steps: 2**40 c_k overflows from 2**23 rows on
                whole = parts // n
                votes[k] += (whole << _HALF_BITS) + ((parts - whole * n) << _HALF_BITS) // n


def leaf_votes(totals: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The votes of leaves with examples, shape (n, K), as :func:`add_vote` counts them."""
    n = totals.sum(axis=1, keepdims=True)
    parts = totals << _HALF_BITS
    whole = parts // n
    votes: npt.NDArray[np.int64] = (whole << _HALF_BITS) + ((parts - whole * n) << _HALF_BITS) // n
    return votes
