"""FuDyADT's tree as a member of an ensemble: one process holds it whole, on rows that the ensemble keeps by slot.

UPDATE and BUILD are those of ``live_tree`` and ``build``, and so are the guarantees, within the features that each node
draws from its path. Every rebuild is done here, whatever its size: nothing is sent. Labels are classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.memory import grown
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.learners.audit_report import AuditReport
from raydt.learners.fudyadt.audit import audit
from raydt.learners.fudyadt.build import Listing, Scratch, build, new_scratch
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.fudyadt.presort import largest_build
from raydt.learners.live_tree import (
    UNBORN,
    climb,
    count_example,
    most_nodes,
    new_tree,
    route,
    start_node,
    stays_leaf,
    with_room,
)
from raydt.learners.nodes import LEAVES, MEMBER, NODES, link, link_members, preorder, take_rows, unlink
from raydt.learners.recorded_draws import Drawn
from raydt.learners.sequential import ADD, REMOVE
from raydt.learners.tree_arrays import ARRAY_TYPES, CERTIFICATE_TYPES, canonical_tree, check_tree, live_tree
from raydt.learners.whole_trees import (
    DEPTH,
    PATH,
    ROWS,
    SUBTREES,
    Arrays,
    Draws,
    Rows,
    TreeKind,
    Work,
    add_vote,
)
from raydt.learners.whole_trees import NODES as BUILT_NODES

Slots = npt.NDArray[np.int32]


@kernel
def advance_alone(
    tree: Any, members: Any, number: int, rows: Any, work: Any, begin: int, end: int, due: int, rules: Any, scratch: Any
) -> tuple[int, int]:
    """Take the steps from ``begin`` up to before ``end``; in the first only rebuild the node ``due``, unless it is -1.

    Returns
    -------
    step, due : int
        Where there is no room for a rebuild, and its node; ``(end, -1)`` at the end.
    """
    member, y, born = rows.member, rows.y, rows.born
    for i in range(begin, end):
        if due < 0:
            kind, slot, place = work.kind[i], np.int64(work.slot[i]), np.int64(work.place[i])
            if place >= 0:
                add_vote(tree.counts, route(tree, rows.categorical, work.X, work.row[i]), False, work.votes[place])
            if kind != ADD and kind != REMOVE:
                continue
            mine = False
            for m in range(member.shape[1]):
                mine = mine or member[slot, m] == number
            if not mine:
                continue
            if kind == REMOVE:
                leaf, by, birth = np.int64(unlink(tree, members, slot)), -1, 2 * born[slot] + 1
            else:
                leaf, by, birth = np.int64(route(tree, rows.categorical, rows.X, slot)), 1, np.int64(UNBORN)
                link(tree, members, leaf, slot)
            work.done[i, PATH] += np.int64(tree.nodes[leaf].depth) + 1
            due = np.int64(climb(tree, leaf, np.int64(y[slot]), by, birth, rules))
            if due < 0:
                continue
        n, depth = np.int64(tree.statistics[due].n), np.int64(tree.nodes[due].depth)
        if tree.nodes[due].feature < 0 and stays_leaf(tree, due, rules):
            head = tree.nodes[due].head
            start_node(tree, due, work.stamp[i], rules)
            tree.nodes[due].head = head
            made = np.int64(1)
        else:
            if n > len(scratch.slots) or len(tree.nodes) - tree.reg[NODES] < most_nodes(n, depth, rules):
                return i, due
            slots, labels = scratch.slots[:n], scratch.labels[:n]
            take_rows(tree, members, due, slots)
            for r in range(n):
                labels[r] = y[slots[r]]
            before = tree.reg[NODES]
            listing = Listing(rows.X, rows.categorical, slots, slots, labels, scratch.numbers)
            build(tree, members, due, listing, rules, work.stamp[i], scratch)
            made = tree.reg[NODES] - before + 1
        work.done[i, SUBTREES] += 1
        work.done[i, ROWS] += n
        work.done[i, BUILT_NODES] += made
        work.done[i, DEPTH] = min(work.done[i, DEPTH], depth)
        due = np.int64(-1)
    return end, np.int64(-1)


@kernel
def _votes(tree: Any, categorical: Any, X: Any, out: Any) -> None:
    """Add the votes of a tree for each row."""
    for i in range(len(X)):
        add_vote(tree.counts, route(tree, categorical, X, i), False, out[i])


@kernel
def _route_all(tree: Any, categorical: Any, X: Any, slots: Any, leaf: Any) -> None:
    """The leaf of each row in some slots."""
    for i in range(len(slots)):
        leaf[i] = route(tree, categorical, X, np.int64(slots[i]))


@kernel
def _collect(tree: Any, members: Any, slots: Any, y: Any, by: int) -> None:
    """Count rows in or out of the root, which is a leaf."""
    for i in range(len(slots)):
        slot = np.int64(slots[i])
        if by > 0:
            link(tree, members, np.int64(0), slot)
        else:
            unlink(tree, members, slot)
        count_example(tree, np.int64(0), np.int64(y[slot]), by)


class Bench:
    """Working memory of the trees of a process, of which one works at a time."""

    def __init__(self, features: int) -> None:
        self._features, self._classes = features, 2
        self.scratch: Scratch = new_scratch(16, features, 2)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "scratch": None}  # it has labels that were at hand, of deleted examples, too

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self.scratch = new_scratch(16, self._features, self._classes)

    def room(self, rows: int, classes: int) -> Scratch:
        """Working memory of a BUILD of so many rows."""
        if rows > len(self.scratch.slots) or classes != self._classes:
            self._classes = classes
            self.scratch = new_scratch(max(rows + rows // 2, len(self.scratch.slots)), self._features, classes)
        return self.scratch


class WholeTree:
    """A FuDyADT tree, and which of the ensemble's rows its leaves hold.

    Parameters
    ----------
    rules : Rules
    bench : Bench
    classes : int
    """

    def __init__(self, rules: Any, bench: Bench, classes: int) -> None:
        self._rules, self._bench = rules, bench
        self._tree, self._members = new_tree(1, max(2, classes)), np.empty(0, dtype=MEMBER)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self._members = np.require(self._members, requirements="W")
        arrays = self._tree._asdict().items()
        self._tree = self._tree._replace(**{name: np.require(array, requirements="W") for name, array in arrays})

    @property
    def _classes(self) -> int:
        classes: int = self._tree.counts.shape[1]
        return classes

    def know(self, classes: int) -> None:
        """Room for so many classes."""
        self._tree = with_room(self._tree, 0, classes)

    def reserve(self, slots: int) -> None:
        """Room for rows in slots below ``slots``."""
        if slots > len(self._members):
            self._members = grown(self._members, slots)

    def take(self, number: int, rows: Rows, work: Work, begin: int, end: int) -> None:
        """Take steps of the examples of tree ``number``."""
        due = -1
        while True:
            scratch = self._bench.room(0, self._classes)
            rest = rows, work, begin, end, due, self._rules, scratch
            begin, due = advance_alone(self._tree, self._members, number, *rest)
            if due < 0:
                return
            self._make_room(due)

    def _make_room(self, node: int) -> Scratch:
        n, depth = int(self._tree.statistics["n"][node]), int(self._tree.nodes["depth"][node])
        self._tree = with_room(self._tree, most_nodes(n, depth, self._rules), self._classes)
        return self._bench.room(n, self._classes)

    def collect(self, slots: Slots, rows: Rows, by: int) -> None:
        """Count rows in (``by`` 1) or out (-1) of the root, which is not built yet."""
        _collect(self._tree, self._members, slots, rows.y, by)

    def build(self, rows: Rows, stamp: int) -> None:
        """Build the tree from the rows in its root."""
        scratch, n = self._make_room(0), int(self._tree.statistics["n"][0])
        slots = np.empty(n, dtype=np.int32)
        take_rows(self._tree, self._members, 0, slots)
        labels = rows.y[slots].astype(np.int32)
        listing = Listing(rows.X, rows.categorical, slots, slots, labels, scratch.numbers)
        build(self._tree, self._members, 0, listing, self._rules, stamp, scratch)

    def votes(self, X: npt.NDArray[np.float64], categorical: npt.NDArray[np.bool_], out: npt.NDArray[np.int64]) -> None:
        """Add the votes of the tree for each row to ``out``. O(depth) a row."""
        _votes(self._tree, categorical, X, out)

    def arrays(self) -> Arrays:
        """Canonical arrays of the tree."""
        return canonical_tree(self._tree, self._rules.certified)[0]

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], slots: Slots, rows: Rows) -> None:
        """Become the tree of some arrays. Each row lies in the leaf to which its features lead."""
        self._tree = live_tree(dict(arrays), self._rules)
        self._members = grown(np.empty(0, dtype=MEMBER), len(rows.y))
        leaf = np.empty(len(slots), dtype=np.int32)
        _route_all(self._tree, rows.categorical, rows.X, slots, leaf)
        self._members["leaf"][slots] = leaf
        link_members(self._tree, self._members, slots)

    def shape(self) -> tuple[int, int, int]:
        """Nodes, leaves, and the depth of the deepest node. O(nodes)."""
        reg = self._tree.reg
        return int(reg[NODES]), int(reg[LEAVES]), preorder(self._tree)[2]


class WholeTrees(TreeKind):
    """FuDyADT trees for ensembles.

    Parameters
    ----------
    options : FuDyADTOptions
    """

    settable = ("alpha", "beta", "epsilon", "schedule")
    exercise = (
        {"tree_options": {"alpha": 0.01, "beta": 0.05}, "max_depth": 8},
        {"tree_options": {"epsilon": 0.3, "alpha": 0.0, "beta": 0.0}, "max_depth": 4},
    )

    def __init__(self, options: FuDyADTOptions) -> None:
        self._options = options
        self._benches: dict[int, Bench] = {}

    @property
    def types(self) -> Mapping[str, np.dtype[Any]]:
        """Size and time of each node's BUILD, updates since, and certificates."""
        own = ARRAY_TYPES | (CERTIFICATE_TYPES if self._options.certified else {})
        return {name: dtype for name, dtype in own.items() if name in ("s", "c", "built", *CERTIFICATE_TYPES)}

    def plant(self, features: Features, draws: Draws, classes: int) -> WholeTree:
        """A tree without examples."""
        rules = self._options.rules()._replace(features=draws.features, root_key=draws.key)
        if len(features) not in self._benches:
            self._benches[len(features)] = Bench(len(features))
        return WholeTree(rules, self._benches[len(features)], classes)

    def most_rows(self, classes: int) -> int:
        """Rows of one BUILD."""
        return largest_build(classes)

    def check(self, arrays: Arrays, features: Features, classes: int) -> None:
        """One tree in preorder, with counters that can be."""
        check_tree(arrays, len(features), classes, self._options.certified)

    def audit(self, features: Features, draws: Drawn, state: Arrays, history: History) -> AuditReport:
        """The two verdicts on one tree, within the features that its nodes draw."""
        return audit(self._options, features, state, history, draws)
