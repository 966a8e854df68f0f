"""BUILD divided among threads: columns are coded, sorted, searched and partitioned in tasks, then subtrees are built.

The upper nodes are split one after the other, each by tasks of columns; a node of less than a share of the work is
left, and its subtree is a task. Such a task has its own scratch, and nodes that it is handed a few at a time. Columns,
histograms of the root and rows are shared: a task changes its columns, or the segments of its node.

Invariant: the tree is that of ``build``, but for the ids of its nodes, on which nothing depends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty
from raydt.arrays.elementary import Int32s
from raydt.arrays.kernel import kernel
from raydt.learners.fudyadt.build import (
    BuildScratch,
    Listing,
    build,
    count_root,
    divide_node,
    grow,
    in_order_of,
    partition_columns,
    push_children,
    search,
    sort_columns,
    start_root,
)
from raydt.learners.fudyadt.histograms import (
    CELLS,
    choose_counted,
    encode_columns,
    fill_codes,
    label_bits_of,
    most_counted,
)
from raydt.parallel import divided, ranges, run, threads
from raydt.trees.counted_tree import CountedTree, TreeRules
from raydt.trees.records import FREE, LEAVES, NODES, USED

T = TypeVar("T")

#: Nodes that a task is handed at a time.
NODES_AT_ONCE = 512
#: Cells of a step that is worth the start of other threads, about a quarter of a millisecond.
_FEW_CELLS = 1 << 17
#: Subtrees for each thread, at least: the last ones to end are small.
_SUBTREES = 8


def spare_nodes(rows: int, columns: int) -> int:
    """Return how many nodes the tasks of a BUILD may have at hand without using them."""
    return threads() * NODES_AT_ONCE if divided(rows * columns, _FEW_CELLS) else 0


class _Open(NamedTuple):
    """An open node, its segment of the columns, and its histogram, if it has one."""

    node: int
    first: int
    stop: int
    cells: Int32s | None


@kernel
def _hand_out(tree: Any, reg: Any, count: int) -> int:
    """Move free nodes of the tree to the registers of a task; how many."""
    given = 0
    while given < count:
        node = tree.reg[FREE]
        if node >= 0:
            tree.reg[FREE] = tree.nodes[node].left
        elif tree.reg[USED] < len(tree.nodes):
            node = tree.reg[USED]
            tree.reg[USED] += 1
        else:
            break
        tree.nodes[node].left = reg[FREE]
        reg[FREE] = node
        given += 1
    return given


@kernel
def _take_back(tree: Any, reg: Any) -> None:
    """Count the nodes of a task, and free those that it has not used."""
    node = reg[FREE]
    while node >= 0:
        after = np.int64(tree.nodes[node].left)
        tree.nodes[node].left = tree.reg[FREE]
        tree.reg[FREE] = node
        node = after
    tree.reg[NODES] += reg[NODES]
    tree.reg[LEAVES] += reg[LEAVES]


class DividedBuild:
    """One BUILD: as :func:`raydt.learners.fudyadt.build.build`."""

    def __init__(
        self,
        tree: CountedTree,
        members: npt.NDArray[np.void],
        listing: Listing,
        rules: TreeRules,
        stamp: int,
        scratch: BuildScratch,
    ) -> None:
        self._tree, self._members, self._listing = tree, members, listing
        self._rules, self._stamp, self._scratch = rules, stamp, scratch
        self._n, self._d, self._classes = len(listing.slots), len(scratch.E) - 1, tree.counts.shape[1]
        self._label_bits = int(label_bits_of(self._classes))
        self._nodes = threading.Lock()  # of the registers of the tree, and of ``_sides``
        self._sides: list[npt.NDArray[np.uint8]] = []  # of subtrees that are built: first use of memory is dear
        self._rooms = [scratch]  # for tasks of columns, made when they are needed

    def run(self, root: int) -> None:
        """Build the subtree at a leaf: what is little work, or has one thread, by the kernel that does it all."""
        listing, scratch, n = self._listing, self._scratch, self._n
        if not spare_nodes(n, self._d):
            build(self._tree, self._members, root, listing, self._rules, self._stamp, scratch)
            return
        if not start_root(self._tree, self._members, root, listing, self._rules, self._stamp):
            return
        self._fill_columns()
        histogram = int(count_root(listing, scratch, self._label_bits, self._classes))
        scratch.stack[0] = root, 0, n, histogram
        top, left = 1, list[_Open]()
        share = n * self._d // (_SUBTREES * threads())
        while top:
            top -= 1
            node, first, stop, histogram = scratch.stack[top].tolist()
            if node == root or (stop - first) * self._d > max(share, _FEW_CELLS):
                top = self._split(node, first, stop, histogram, top)
            else:
                left.append(_Open(node, first, stop, self._cells(histogram)))
        left.sort(key=lambda one: one.first - one.stop)  # the largest first
        self._each([partial(self._build_below, one) for one in left], n)

    def _each(self, tasks: Sequence[Callable[[], T]], rows: int) -> list[T]:
        """Do tasks over the columns of so many rows: in the calling thread if that is little work."""
        return run(tasks) if rows * self._d >= _FEW_CELLS else [task() for task in tasks]

    def _columns(self, rows: int, columns: int) -> list[slice]:
        """Divide columns among tasks: for few rows there is one."""
        return ranges(columns, each=2) if rows * self._d >= _FEW_CELLS else [slice(0, columns)]

    def _room(self, i: int) -> BuildScratch:
        """Return the scratch of the i-th task of columns."""
        while len(self._rooms) <= i:
            of = self._scratch
            H = of.histograms
            tables = {name: np.empty_like(getattr(H, name)) for name in ("table", "found", "rank")}
            spare, turned = empty(self._n, np.int64), empty(self._n, np.int64)
            digits, left = np.empty_like(of.digits), np.empty_like(of.left)
            own = of._replace(spare=spare, turned=turned, digits=digits, left=left, histograms=H._replace(**tables))
            self._rooms.append(own)
        return self._rooms[i]

    def _fill_columns(self) -> None:
        """Code or sort every column."""
        listing, E, n, d = self._listing, self._scratch.E, self._n, self._d
        H = self._scratch.histograms
        parts = ranges(n, _FEW_CELLS // max(1, d))
        self._each([partial(fill_codes, listing.X, listing.rows, part.start, part.stop, E) for part in parts], n)
        most, groups = int(most_counted(H, n)), self._columns(n, d)
        rooms = [self._room(i) for i in range(len(groups))]

        def encode(part: slice, room: BuildScratch) -> None:
            encode_columns(room.histograms, E, n, most, part.start, part.stop)

        def sort(part: slice, room: BuildScratch) -> None:
            sort_columns(listing, room, self._label_bits, part.start, part.stop)

        self._each([partial(encode, *each) for each in zip(groups, rooms, strict=True)], n)
        choose_counted(H, most, n, self._classes)
        self._each([partial(sort, *each) for each in zip(groups, rooms, strict=True)], n)

    def _split(self, node: int, first: int, stop: int, histogram: int, top: int) -> int:
        """Split a node by tasks of columns, and put its open children on the stack; its new height."""
        tree, listing, scratch = self._tree, self._listing, self._scratch
        groups = self._columns(stop - first, self._d)
        rooms = [self._room(i) for i in range(len(groups))]

        def find(part: slice, room: BuildScratch) -> tuple[float, int, int]:
            found: tuple[float, int, int] = search(
                tree, node, listing, room, first, stop, histogram, part.start, part.stop
            )
            return found

        best, feature, at = -1.0, -1, -1
        for found in self._each([partial(find, *each) for each in zip(groups, rooms, strict=True)], stop - first):
            if found[0] > best:  # of equals the smaller feature
                best, feature, at = found
        before = (tree, self._members, node, listing, self._rules, self._stamp, scratch, first, stop, histogram)
        sides: tuple[int, bool, bool, int, int] = divide_node(*before, feature, at)
        _, left, right, _, _ = sides
        if not (left or right):
            return top
        in_order = int(in_order_of(tree, node, listing, left))

        def part_columns(part: slice, room: BuildScratch) -> None:
            rest = in_order, left, right, part.start, part.stop
            partition_columns(room, first, stop, histogram, self._label_bits, *rest)

        groups = self._columns(stop - first, self._d + (histogram >= 0))
        rooms = [self._room(i) for i in range(len(groups))]
        self._each([partial(part_columns, *each) for each in zip(groups, rooms, strict=True)], stop - first)
        return int(push_children(tree, node, scratch, first, stop, histogram, self._label_bits, sides, top))

    def _cells(self, histogram: int) -> Int32s | None:
        """Return a copy of the histogram of a node that is left, since its place is used again."""
        size = int(self._scratch.histograms.reg[CELLS])
        return (
            self._scratch.histograms.cells[histogram * size : (histogram + 1) * size].copy() if histogram >= 0 else None
        )

    def _build_below(self, one: _Open) -> None:
        """Build the subtree of an open node."""
        of, rows, reg = self._scratch, one.stop - one.first, np.zeros_like(self._tree.reg)
        reg[FREE] = -1
        with self._nodes:
            side = self._sides.pop() if self._sides else empty(self._n, np.uint8)
        H = of.histograms
        if one.cells is not None:
            slots = min((rows.bit_length() + 1) * len(one.cells), 2 * rows * self._d)
            H = H._replace(cells=empty(max(slots, len(one.cells)), np.int32))
            H.cells[: len(one.cells)] = one.cells
        scratch = of._replace(
            spare=of.spare[one.first : one.stop],
            turned=of.turned[one.first : one.stop],
            side=side,
            stack=empty((rows + 2, 4), np.int64),
            digits=np.empty_like(of.digits),
            left=np.empty_like(of.left),
            histograms=H,
        )
        scratch.stack[0] = one.node, one.first, one.stop, -1 if one.cells is None else 0
        tree, top, nodes = self._tree._replace(reg=reg), 1, 0
        while top:
            with self._nodes:
                given = int(_hand_out(self._tree, reg, NODES_AT_ONCE))
            assert given, "the tree has no room for the nodes of its tasks"
            nodes += given
            top = int(grow(tree, self._members, self._listing, self._rules, self._stamp, scratch, top, nodes))
        with self._nodes:
            _take_back(self._tree, reg)
            self._sides.append(side)
