"""Trees of node records whose leaves list their examples: what the learners that grow such trees share.

A tree is a named tuple with ``nodes`` (records with at least ``parent``, ``left``, ``right``, ``depth``, ``feature``,
``threshold`` and ``head``; ``left`` of a free node is the next free one), ``counts`` (classes by node) and ``reg``.

Invariants: node 0 is the root; the examples of a leaf form a doubly linked list through the ``MEMBER`` records of their
slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty, is_one, trimmed
from raydt.arrays.elementary import AnyArray, Floats, Int32s, Ints
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.evaluation.scoring import LEVELS
from raydt.examples.store import SlotColumns, Weighting
from raydt.examples.updates import Weights
from raydt.trees.state_schema import UNIT_ARRAY, AnyInts, Arrays, unit_of, weights_of_state

#: Registers of a tree: nodes ever used, head of the free ones (-1: none), nodes, leaves.
USED, FREE, NODES, LEAVES = range(4)
#: Feature of a node that is a leaf.
LEAF = -1
#: Leaf of a live slot, and its neighbours in the leaf's list (-1 at the ends).
MEMBER = np.dtype([("leaf", np.int32), ("next", np.int32), ("prev", np.int32)])


class Examples(NamedTuple):
    """The live examples by slot: the leaf of each (``MEMBER``), its class, the sequence number of its insertion."""

    members: npt.NDArray[np.void]
    y: Int32s
    born: Ints


T = TypeVar("T", bound=Any)


class NodeTree(Protocol):
    """Interface of a tree, as used here."""

    @property
    def nodes(self) -> npt.NDArray[np.void]:
        """Records by node id."""

    @property
    def reg(self) -> Ints:
        """Registers."""


@inner_kernel
def total(counts: Any, node: int) -> int:
    """Number of rows of the class counts of a node."""
    n = 0
    for k in range(counts.shape[1]):
        n += counts[node, k]
    return n


@inner_kernel
def level_at(counts: Any, node: int) -> int:
    """The share of class 1 at a node as a level (:mod:`raydt.evaluation.scoring`); of no examples one half. O(K)."""
    n = np.int64(total(counts, node))
    return (2 * LEVELS * counts[node, 1] + n) // (2 * n) if n > 0 else LEVELS // 2


@kernel
def majority(counts: Any, node: int) -> int:
    """Class of most rows of a node; the smaller class on a tie."""
    best = 0
    for k in range(1, counts.shape[1]):
        if counts[node, k] > counts[node, best]:
            best = k
    return best


def without_room(tree: T) -> T:
    """Return a tree of arrays by node, and registers ``reg``, without room beyond the nodes ever used. O(nodes)."""
    used = int(tree.reg[USED])
    kept: T = type(tree)(*(array if array is tree.reg else trimmed(array, used) for array in tree))
    return kept


@inner_kernel
def new_node(tree: Any, parent: int) -> int:
    """Take a node; the caller has made room."""
    reg = tree.reg
    node: int = reg[FREE]
    if node >= 0:
        reg[FREE] = tree.nodes[node].left
    else:
        node = reg[USED]
        reg[USED] += 1
    tree.nodes[node].parent = parent
    tree.nodes[node].depth = tree.nodes[parent].depth + 1
    reg[NODES] += 1
    return node


@inner_kernel
def split_node(tree: Any, node: int, feature: int, threshold: float) -> tuple[int, int]:
    """Make a leaf internal and return its two new children, whose counts the caller sets."""
    left = new_node(tree, node)
    right = new_node(tree, node)
    tree.nodes[node].feature = feature
    tree.nodes[node].threshold = threshold
    tree.nodes[node].left = left
    tree.nodes[node].right = right
    tree.reg[LEAVES] += 1
    return left, right


@inlined_kernel
def link(tree: Any, members: Any, leaf: int, slot: int) -> None:
    """Put a slot at the head of a leaf's list."""
    head = tree.nodes[leaf].head
    members[slot].leaf = leaf
    members[slot].next = head
    members[slot].prev = -1
    if head >= 0:
        members[head].prev = slot
    tree.nodes[leaf].head = slot


@inlined_kernel
def unlink(tree: Any, members: Any, slot: int) -> int:
    """Take a slot out of its leaf's list and return the leaf."""
    leaf: int = np.int64(members[slot].leaf)
    before = members[slot].prev
    after = members[slot].next
    if before >= 0:
        members[before].next = after
    else:
        tree.nodes[leaf].head = after
    if after >= 0:
        members[after].prev = before
    return leaf


@inner_kernel
def count_path(tree: Any, leaf: int, label: int, by: int) -> int:
    """Count an example in (``by`` 1) or out (-1) at all nodes from its leaf to the root; return their number."""
    node, nodes = leaf, 0
    while node >= 0:
        tree.counts[node, label] += by
        node = np.int64(tree.nodes[node].parent)
        nodes += 1
    return nodes


@inner_kernel
def goes_left(value: float, threshold: float, categorical: bool) -> bool:
    """The routing rule: ``value == threshold`` for a category, ``value <= threshold`` for a number."""
    return value == threshold if categorical else value <= threshold


@kernel
def route(tree: Any, categorical: Any, rows: Any, row: int) -> int:
    """Leaf of one row of ``Rows``. NaN goes right, and a sparse feature that is 0 goes left. O(depth log ones)."""
    node, dense = 0, len(categorical)
    while tree.nodes[node].feature >= 0:
        j = tree.nodes[node].feature
        if j < dense:
            left = goes_left(rows.X[row, j], tree.nodes[node].threshold, categorical[j])
        else:
            left = not is_one(rows.indices, rows.indptr[row], rows.indptr[row + 1], j - dense)
        node = np.int64(tree.nodes[node].left) if left else np.int64(tree.nodes[node].right)
    return node


@inlined_kernel
def next_in_preorder(nodes: Any, node: int, root: int) -> int:
    """The node after ``node`` in the preorder of the nodes from ``root`` down, -1 after the last of them.

    ``nodes`` are records with ``parent``, ``left`` and ``right`` (-1 in a leaf). Of the nodes above only ``right`` is
    read, so that a node may be freed as soon as the one after it is known. O(1) amortised over a walk.
    """
    following: int = np.int64(-1)
    if nodes[node].right >= 0:
        following = np.int64(nodes[node].left)
        return following
    while node != root and nodes[nodes[node].parent].right == node:
        node = np.int64(nodes[node].parent)
    if node != root:
        following = np.int64(nodes[nodes[node].parent].right)
    return following


@kernel
def list_nodes(nodes: Any, root: int, below: Any) -> int:
    """Ids of the nodes below one, without itself, in preorder; their number. O(nodes below)."""
    n = 0
    node = next_in_preorder(nodes, np.int64(root), root)
    while node >= 0:
        below[n] = node
        n += 1
        node = next_in_preorder(nodes, node, root)
    return n


@inlined_kernel
def free_below(tree: Any, root: int, node: int, freed: int) -> int:
    """Free a node below ``root`` that has been visited; returns how many are free now."""
    if node != root:
        freed += 1
        tree.nodes[node].left = tree.reg[FREE]
        tree.reg[FREE] = node
    return freed


@inlined_kernel
def close(tree: Any, root: int, freed: int) -> None:
    """Make a node a leaf without a list, of which so many descendants were freed."""
    tree.reg[NODES] -= freed
    tree.reg[LEAVES] -= freed // 2
    tree.nodes[root].feature = LEAF
    tree.nodes[root].left = tree.nodes[root].right = tree.nodes[root].head = -1


@kernel
def take_rows(tree: Any, members: Any, root: int, slots: Any) -> int:
    """List the slots below a node and free its descendants; the node itself becomes a leaf without a list.

    Returns the number of slots. O(nodes and rows below).
    """
    n = freed = 0
    node = np.int64(root)
    while node >= 0:
        after = next_in_preorder(tree.nodes, node, root)
        slot = tree.nodes[node].head  # -1 of an inner node
        while slot >= 0:
            slots[n] = slot
            n += 1
            slot = members[slot].next
        freed = free_below(tree, root, node, freed)
        node = after
    close(tree, root, freed)
    return n


@kernel
def mark_rows(tree: Any, members: Any, root: int, bits: Any) -> None:
    """As :func:`take_rows`, but set the bit of each slot: in bytes, the first slot has the lowest of the first byte."""
    freed = 0
    node = np.int64(root)
    while node >= 0:
        after = next_in_preorder(tree.nodes, node, root)
        slot = np.int64(tree.nodes[node].head)
        while slot >= 0:
            bits[slot >> 3] |= np.uint8(1 << (slot & 7))
            slot = np.int64(members[slot].next)
        freed = free_below(tree, root, node, freed)
        node = after
    close(tree, root, freed)


@kernel
def list_rows(tree: Any, members: Any, leaf: int, slots: Any) -> None:
    """Slots of one leaf, in the order of its list, into an array of their number."""
    slot = tree.nodes[leaf].head
    for i in range(len(slots)):
        slots[i] = slot
        slot = members[slot].next


@kernel
def list_leaves(tree: Any, members: Any, leaves: Any, slots: Any) -> int:
    """Slots of some leaves, one leaf after the other, into an array with room; returns how many there are."""
    n = 0
    for leaf in leaves:
        slot = tree.nodes[leaf].head
        while slot >= 0:
            slots[n] = slot
            slot = members[slot].next
            n += 1
    return n


@kernel
def link_members(tree: Any, members: Any, slots: Any) -> None:
    """Put slots into the lists of the leaves that ``members.leaf`` names."""
    for slot in slots:
        link(tree, members, np.int64(members[slot].leaf), slot)


def listed(tree: NodeTree, leaf: Int32s, capacity: int) -> npt.NDArray[np.void]:
    """``MEMBER`` records for so many slots, of which 0, 1, ... lie in the leaves given; the tree gets their lists."""
    members = empty(capacity, MEMBER)
    members["leaf"][: len(leaf)] = leaf
    link_members(tree, members, np.flatnonzero(leaf >= 0).astype(np.int32))  # an example of weight 0 is in no leaf
    return members


@kernel
def number_nodes(nodes: Any, order: Any, position: Any) -> int:
    """Node ids in preorder, and the position of each in it; returns the largest depth. O(nodes)."""
    n = 0
    deepest: int = 0
    node = np.int64(0)
    while node >= 0:
        order[n] = node
        position[node] = n
        n += 1
        deepest = max(deepest, np.int64(nodes[node].depth))
        node = next_in_preorder(nodes, node, 0)
    return int(deepest)


def preorder(tree: NodeTree) -> tuple[Int32s, Int32s, int]:
    """Node ids in preorder, the position of each (-1: not in the tree, as the last entry), and the largest depth."""
    order = np.empty(int(tree.reg[NODES]), dtype=np.int32)
    position = np.full(len(tree.nodes) + 1, -1, dtype=np.int32)
    deepest = int(number_nodes(tree.nodes, order, position[:-1]))
    return order, position, deepest


@inlined_kernel
def weight_above(depth: int, smoothing: float) -> float:
    """The m of :func:`refine` at a depth."""
    d = np.float64(depth)
    m: float = smoothing * (d * d * d) / 1000.0
    return m


@inlined_kernel
def refined(seen: float, n: float, m: float, above: float) -> float:
    """An m-estimate of the mean of ``n`` values that add up to ``seen``, towards ``above``; that if m is infinite."""
    mean: float = (seen + m * above) / (n + m) if m < np.inf else above
    return mean


@inner_kernel
def refine(counts: Any, node: int, depth: int, smoothing: float, shares: Any, above: int, below: int) -> None:
    """Estimate a node's shares, row ``below`` of ``shares``, from its class counts and its parent's row ``above``.

    An m-estimate: (count + m p) / (n + m), p the share in the parent, as if m examples distributed as in the parent had
    come before the node's own. m is ``smoothing`` at depth 10 and grows with the cube of the depth: the deeper a node,
    the more splits were chosen to make it pure. If ``smoothing`` is infinite, p is the share. Both rows may be the
    same. O(K).

    Source: Cestnik, Estimating probabilities: a crucial task in machine learning, ECAI 1990, with constant m.
    """
    m, n = weight_above(depth, smoothing), np.float64(total(counts, node))
    for k in range(shares.shape[1]):
        seen = counts[node, k] if k < counts.shape[1] else 0
        shares[below, k] = refined(np.float64(seen), n, m, shares[above, k])


@kernel
def _refine_below(feature: Any, left: Any, right: Any, counts: Any, depth: Any, smoothing: float, shares: Any) -> None:
    for node in range(len(feature)):
        if feature[node] >= 0:
            below = np.int64(depth[node] + 1)
            for child in (np.int64(left[node]), np.int64(right[node])):
                depth[child] = below
                refine(counts, child, below, smoothing, shares, node, child)


def smoothed_shares(model: Mapping[str, AnyArray], n_classes: int, smoothing: float) -> Floats:
    """Return shares of the classes at every node, shape (nodes, n_classes), each an m-estimate towards its parent's.

    ``model`` is a tree in preorder. The root has plain shares; with ``smoothing`` of 0 (:func:`refine`) all have,
    uniform at a node without examples. All is computed from integer counts, from the root down and in one order: the
    same bits wherever the counts were gathered. O(nodes x classes).
    """
    counts = model["counts"]
    if smoothing == 0:
        return shares_of(counts, n_classes)
    shares = np.empty((len(counts), n_classes))
    shares[:1] = shares_of(counts[:1], n_classes)
    depth = np.zeros(len(counts), dtype=np.int64)
    _refine_below(model["feature"], model["left"], model["right"], counts, depth, smoothing, shares)
    return shares


def shares_of(counts: Ints, n_classes: int) -> Floats:
    """Shares of ``n_classes`` classes by their counts, shape (n, any number of classes); uniform where all are 0."""
    shares = np.zeros((len(counts), n_classes))
    known = min(n_classes, counts.shape[1])
    shares[:, :known] = counts[:, :known]
    shares[shares.sum(axis=1) == 0] = 1.0
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


@inner_kernel
def threshold_between(a: float, b: float) -> float:
    """Midpoint of neighbouring distinct values a < b; a where rounding would reach b; infinity if b is missing."""
    if b != b:
        return np.inf
    t = 0.5 * a + 0.5 * b
    return t if a <= t < b else a


# Masses: what learners count where examples have weights.
#
# A count is a number of rows as long as all weights are 1. With the first other weight all counts become *masses*:
# whole numbers of units of ``2**-16`` (``raydt.examples.updates``), to which an example adds its weight. Ratios of
# counts, and the scores that are made of products of them, have the same bits for either, because floats scale by
# powers of two exactly. Whatever compares a count with a number of rows takes ``unit`` units for a row: 1, or ``UNIT``
# of masses.
#
# States and models have ``unit`` where counts are masses. They stay so when the last weight other than 1 is deleted.


@inlined_kernel
def mass_of(weights: Any, slot: int, unit: int = 1) -> int:
    """Mass of one example, by the weights of all slots in units; ``unit`` if there are none."""
    mass: int = np.int64(weights[slot]) if len(weights) > 0 else np.int64(unit)
    return mass


def masses_by_slot(weighting: Weighting, store: SlotColumns) -> Weights:
    """Return the units of all examples of a store, by slot; of one row each if those with other weights are gone."""
    if weighting.factors is None:
        store.weigh()
    return weighting.by_slot(store)


def unit_array(unit: int) -> dict[str, AnyArray]:
    """Return the array that says in a state or model that counts are masses; none if they are not."""
    return {UNIT_ARRAY.name: np.array([unit], dtype=UNIT_ARRAY.dtype)} if unit > 1 else {}


def masses_of(state: Arrays) -> AnyInts:
    """Mass of each example of a state, shape (rows,); 1 where counts are numbers of rows."""
    if unit_of(state) == 1:
        return np.ones(len(state["y"]), dtype=np.int64)
    return weights_of_state(state).astype(np.int64)


# The oldest example of a leaf that equals a row: for deletions of one example by value.


@kernel
def oldest_equal(tree: Any, examples: Any, X: Any, row: Any, leaf: int, code: int) -> int:
    """Slot of the oldest live example of a leaf that equals a row, shape (1, d), and has a class; -1 of none.

    ``X`` has the features by slot. NaN equals NaN. O(examples in the leaf x d).
    """
    oldest: int = np.int64(-1)
    slot = np.int64(tree.nodes[leaf].head)
    while slot >= 0:
        if examples.y[slot] == code and (oldest < 0 or examples.born[slot] < examples.born[oldest]):
            equal = True
            for j in range(row.shape[1]):
                a, b = X[slot, j], row[0, j]
                if a != b and (a == a or b == b):
                    equal = False
                    break
            if equal:
                oldest = slot
        slot = np.int64(examples.members[slot].next)
    return oldest


# Products, and differences of products, of which nothing is lost to rounding, or which are rounded once.


@inlined_kernel
def rest_of_product(rate: float, size: float, product: float) -> float:
    """Return the rounding error of a product of float64: ``rate * size - product``, exactly (Dekker's two-product)."""
    split = 134217729.0
    a = split * rate
    a_high = a - (a - rate)
    a_low = rate - a_high
    b = split * size
    b_high = b - (b - size)
    b_low = size - b_high
    rest: float = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return rest


@kernel
def floor_product(rate: float, size: int) -> int:
    """``floor(rate * size)`` of the exact product of a float64 and an integer below 2**53."""
    product = rate * size
    whole = np.floor(product)
    if whole == product and rest_of_product(rate, np.float64(size), product) < 0.0:
        whole -= 1.0
    return int(whole)


@inner_kernel
def difference_words(a: int, b: int, c: int, d: int) -> tuple[int, int]:
    """a b - c d in two words, ``high 2**48 + low``: a, d up to 2**58 in absolute value, b, c from 0 up to 2**40."""
    a_high, a_low, d_high, d_low = a >> 28, a & 0xFFFFFFF, d >> 28, d & 0xFFFFFFF
    b_high, b_low, c_high, c_low = b >> 20, b & 0xFFFFF, c >> 20, c & 0xFFFFF
    middle = ((a_high * b_low - c_low * d_high) << 8) + a_low * b_high - c_high * d_low  # in units of 2**20
    low = a_low * b_low - c_low * d_low + ((middle & 0xFFFFFFF) << 20)
    return a_high * b_high - c_high * d_high + (middle >> 28) + (low >> 48), low & 0xFFFFFFFFFFFF


@inner_kernel
def difference(a: int, b: int, c: int, d: int) -> float:
    """a b - c d, rounded once to float64: sums of labels a, d up to 2**56, of weights b, c up to 2**40."""
    high, low = difference_words(a, b, c, d)
    rounded: float = np.float64(high) * 281474976710656.0 + np.float64(low)
    return rounded


@inner_kernel
def rounded_words(high: int, low: int) -> float:
    """``high 2**60 + low``, rounded once to float64: high up to 2**53 in absolute value, low from 0 to below 2**60."""
    upper = np.float64(high) * 1152921504606846976.0
    middle, rest = np.float64(low >> 30) * 1073741824.0, np.float64(low & 0x3FFFFFFF)
    total = upper + middle
    lost = middle - (total - upper)  # by rounding, exactly: a multiple of 2**30
    if rest > 0.0 and abs(total) >= 19342813113834066795298816.0:
        # From 2**84 on the rest only says between which multiples of 2**30 the number lies; so it stays exact.
        rest = 536870912.0
    rounded: float = total + (lost + rest)
    return rounded
