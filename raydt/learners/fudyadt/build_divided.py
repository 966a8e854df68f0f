"""BUILD divided among threads: columns are coded, sorted, searched and partitioned in tasks, then subtrees are built.

The upper nodes are split one after the other, each by tasks of columns; a node of less than a share of the work is
left, and its subtree is a task. Such a task has its own scratch, and nodes that it is handed a few at a time. Columns,
histograms of the root and rows are shared: a task changes its columns, or the segments of its node.

Invariant: the tree is that of ``build``, but for the ids of its nodes, on which nothing depends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

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
        top, left, size = 1, list[tuple[int, Callable[[], None]]](), int(scratch.histograms.reg[CELLS])
        share = n * self._d // (_SUBTREES * threads())
        while top:
            top -= 1
            node, first, stop, histogram = scratch.stack[top].tolist()
            if node == root or (stop - first) * self._d > max(share, _FEW_CELLS):
                top = self._split(node, first, stop, histogram, top)
                continue
            own = slice(histogram * size, (histogram + 1) * size)
            cells = scratch.histograms.cells[own].copy() if histogram >= 0 else None  # its place is used again
            left.append((stop - first, partial(self._build_below, node, first, stop, cells)))
        run([task for _, task in sorted(left, key=lambda one: -one[0])])  # the largest first

    def _by_columns(self, task: Callable[[BuildScratch, int, int], T], rows: int, columns: int) -> list[T]:
        """Do a task of columns, each with scratch for a range of them; in this thread if few rows make it little."""
        much = rows * self._d >= _FEW_CELLS
        parts = ranges(columns, each=2) if much else [slice(0, columns)]
        tasks = [partial(task, self._room(i), part.start, part.stop) for i, part in enumerate(parts)]
        return run(tasks) if much else [task() for task in tasks]

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
        run([partial(fill_codes, listing.X, listing.rows, part.start, part.stop, E) for part in parts])
        most = int(most_counted(H, n))
        self._by_columns(lambda room, *part: encode_columns(room.histograms, E, n, most, *part), n, d)
        choose_counted(H, most, n, self._classes)
        self._by_columns(lambda room, *part: sort_columns(listing, room, self._label_bits, *part), n, d)

    def _split(self, node: int, first: int, stop: int, histogram: int, top: int) -> int:
        """Split a node by tasks of columns, and put its open children on the stack; its new height."""
        tree, listing, scratch, bits = self._tree, self._listing, self._scratch, self._label_bits
        place = first, stop, histogram
        found: list[tuple[float, int, int]] = self._by_columns(
            lambda room, *part: search(tree, node, listing, room, *place, *part), stop - first, self._d
        )
        _, *split = max(found, key=lambda one: one[0])  # of equals the first: the smaller feature
        sides: tuple[int, bool, bool, int, int] = divide_node(
            tree, self._members, node, listing, self._rules, self._stamp, scratch, *place, *split
        )
        _, left, right, _, _ = sides
        if not (left or right):
            return top
        kept = int(in_order_of(tree, node, listing, left)), left, right
        self._by_columns(
            lambda room, *part: partition_columns(room, *place, bits, *kept, *part),
            stop - first,
            self._d + (histogram >= 0),
        )
        return int(push_children(tree, node, scratch, *place, bits, sides, top))

    def _build_below(self, node: int, first: int, stop: int, cells: Int32s | None) -> None:
        """Build the subtree of an open node from its segment of the columns, and its histogram, if it has one."""
        of, rows, reg = self._scratch, stop - first, np.zeros_like(self._tree.reg)
        reg[FREE] = -1
        with self._nodes:
            side = self._sides.pop() if self._sides else empty(self._n, np.uint8)
        H = of.histograms
        if cells is not None:
            slots = min((rows.bit_length() + 1) * len(cells), 2 * rows * self._d)
            H = H._replace(cells=empty(max(slots, len(cells)), np.int32))
            H.cells[: len(cells)] = cells
        scratch = of._replace(
            spare=of.spare[first:stop],
            turned=of.turned[first:stop],
            side=side,
            stack=empty((rows + 2, 4), np.int64),
            digits=np.empty_like(of.digits),
            left=np.empty_like(of.left),
            histograms=H,
        )
        scratch.stack[0] = node, first, stop, -1 if cells is None else 0
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
