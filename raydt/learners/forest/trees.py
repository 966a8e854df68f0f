"""Exact trees of a shard, in pools: they take steps, build open leaves, and give canonical arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import grown, put_rows, trimmed
from raydt.arrays.elementary import Bools, Floats, Int32s, Ints, Slots, bits, bits_at, stream_key
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel
from raydt.examples.digest import Words
from raydt.examples.updates import UNIT, Features, Log, Weights, filled
from raydt.learners.batch_coordinator import ADD, LOOK, REMOVE, SHARDS
from raydt.learners.forest.build import change, open_path, resolve
from raydt.learners.forest.model import Counted, hashed_roots, vote
from raydt.learners.forest.nodes import (
    DEPTH,
    MOST_ENTRIES,
    NODES,
    NOWHERE,
    PATH,
    REBUILDS,
    REBUILT_DEPTH,
    REBUILT_NODES,
    REBUILT_ROWS,
    ROWS,
    SUBTREES,
    ForestArrays,
    ForestRows,
    ForestRules,
    ForestSteps,
    TreeArrays,
    count,
    has_room,
    most_rows,
    new_forest,
    new_scratch,
    with_classes,
    with_room,
    without_room,
)
from raydt.learners.forest.options import ForestOptions
from raydt.parallel import ranges, run, threads
from raydt.trees.canonical_arrays import WORDS
from raydt.trees.records import MEMBER, link, mass_of, next_in_preorder, unlink

# The steps of a batch, in one compiled loop over neighbouring trees of a shard.

#: Why the loop stopped: all steps are taken, or there is no room in a pool or in scratch.
ENDED, ROOM = 0, 1


@inlined_kernel
def _may_build(forest: Any, tree: int, scratch: Any) -> bool:
    """Return True if there is room to build a tree of one row more."""
    n = np.int64(forest.nodes[forest.roots[tree]].n) + 1
    enough: bool = len(scratch.slots) > n and has_room(forest, n)
    return enough


@inner_kernel
def _open_and_vote(forest: Any, examples: Any, scratch: Any, rules: Any, votes: Any) -> bool:
    """Add the votes for the row at hand, before which what it passes is built; False, and no votes, without room."""
    for tree in range(len(forest.roots)):
        if forest.shape[tree, 2] > 0:
            if not _may_build(forest, tree, scratch):
                return False
            open_path(forest, tree, examples, scratch, rules)
    vote(forest, scratch.row, examples, rules.numeric, votes)
    return True


@kernel
def look(forest: Any, X: Any, begin: int, examples: Any, scratch: Any, rules: Any, votes: Any) -> int:
    """Add the votes for the rows of ``X`` from ``begin`` on; where there is no room, or the number of rows."""
    for i in range(begin, len(X)):
        for j in range(X.shape[1]):
            scratch.row[j] = X[i, j]
        if not _open_and_vote(forest, examples, scratch, rules, votes[i]):
            return i
    return len(X)


@kernel
def advance(
    forest: Any, work: Any, begin: int, first: int, end: int, examples: Any, scratch: Any, rules: Any
) -> tuple[int, int, int]:
    """Take the steps from ``begin`` up to before ``end``; in the first begin at membership ``first`` (-1: the vote).

    Returns the step and membership at which it stopped, and why.
    """
    k, d, reg = examples.member.shape[1], examples.X.shape[1], forest.reg
    for i in range(begin, end):
        kind, slot = work.kind[i], np.int64(work.slot[i])
        if first < 0:
            if kind != REMOVE:
                for j in range(d):
                    scratch.row[j] = work.X[work.row[i], j]
            # The vote comes before any tree knows the row; where there was no room the step is taken up again here.
            at = np.int64(work.place[i])
            if at >= 0 and not _open_and_vote(forest, examples, scratch, rules, work.votes[at]):
                return i, first, ROOM
            work.done[i, DEPTH] = NOWHERE
            first = 0
        if kind != ADD and kind != REMOVE:
            first = -1
            continue
        for j in range(d):
            scratch.row[j] = examples.X[slot, j]
        by = 1 if kind == ADD else -1
        for m in range(first, k):
            tree = np.int64(examples.member[slot, m]) - forest.first
            if tree < 0 or tree >= len(forest.roots):
                continue
            # Asked before anything changes: a rebuild that ran out of room half-way could not be repeated.
            if not _may_build(forest, tree, scratch):
                return i, m, ROOM
            reg[REBUILDS] = reg[REBUILT_ROWS] = reg[REBUILT_NODES] = 0
            reg[REBUILT_DEPTH] = NOWHERE
            work.done[i, PATH] += change(forest, tree, slot, slot * k + m, by, examples, scratch, rules)
            if reg[REBUILDS]:
                work.done[i, SUBTREES] += reg[REBUILDS]
                work.done[i, ROWS] += reg[REBUILT_ROWS]
                work.done[i, NODES] += reg[REBUILT_NODES]
                work.done[i, DEPTH] = min(work.done[i, DEPTH], reg[REBUILT_DEPTH])
        first = -1
    return end, -1, ENDED


# Neighbouring trees of a shard with nodes, blocks and scratch of their own: what one thread at a time changes.
#
# A tree is in one pool. Rows, and the lists of the rows in leaves, are the shard's: the pools share them, and each
# changes the entries of its own trees only.


@kernel
def _copy_out(forest: Any, trees: Any, place: Any, out: Any) -> None:
    """Write some of the trees in preorder into ``TreeArrays``; an open leaf is a leaf. ``place`` is scratch by node."""
    nodes, at = forest.nodes, 0
    for i in range(len(trees)):
        begin, root = at, np.int64(forest.roots[trees[i] - forest.first])
        node = root
        while node >= 0:
            parent = nodes[node].parent
            if parent >= 0 and nodes[parent].right == node:
                out.right[place[parent]] = at - begin
            place[node] = at
            out.feature[at] = max(np.int64(nodes[node].feature), np.int64(-1))
            out.threshold[at] = nodes[node].threshold
            out.right[at] = -1
            for m in range(forest.totals.shape[1]):
                out.totals[at, m] = forest.totals[node, m]
            at += 1
            node = next_in_preorder(nodes, node, root)


@kernel
def _mark(forest: Any, k: int, found: Any) -> None:
    """Mark the slots of all rows."""
    for tree in range(len(forest.roots)):
        root = np.int64(forest.roots[tree])
        node = root
        while node >= 0:
            entry = forest.nodes[node].head
            while entry >= 0:
                found[entry // k] = True
                entry = forest.members[entry].next
            node = next_in_preorder(forest.nodes, node, root)


@kernel
def _gather_or_scatter(forest: Any, slots: Any, by: int, examples: Any, numeric: bool) -> None:
    """Put rows into the open roots of their trees (``by`` 1), or take them out (-1)."""
    k = examples.member.shape[1]
    for i in range(len(slots)):
        slot = np.int64(slots[i])
        for at in range(k):
            tree = np.int64(examples.member[slot, at]) - forest.first
            if tree < 0 or tree >= len(forest.roots):
                continue
            root = np.int64(forest.roots[tree])
            count(forest, root, examples.y[slot], by, by * mass_of(examples.weight, slot), numeric)
            forest.touched[tree] = True
            forest.hashed[root] = False
            if by > 0:
                link(forest, forest.members, root, slot * k + at)
            else:
                unlink(forest, forest.members, slot * k + at)


class TreePool:
    """Trees, and what their builds need; ``examples`` of its methods are the rows of the shard."""

    def __init__(self, forest: ForestArrays, rules: ForestRules, categorical: Bools) -> None:
        self.forest, self.rules, self._categorical = forest, rules, categorical
        self.new_scratch(0)
        self._hashes: Words = np.empty((0, WORDS), dtype="<u8")
        self._hashed_by: Any = None  # which totals were hashed; of others, and before the first, nothing is

    @property
    def width(self) -> int:
        """Classes that are counted, or how many numbers of numeric labels."""
        width: int = self.forest.totals.shape[1]
        return width

    def new_scratch(self, rows: int) -> None:
        """Take scratch for builds of so many rows."""
        self.scratch = new_scratch(rows, self.width, self.rules, self._categorical)

    def trim(self) -> None:
        """Give up the scratch, and room for more nodes."""
        self.forest = without_room(self.forest)
        self.new_scratch(0)

    def know(self, order: Ints) -> None:
        """Count all classes, whose codes are in ascending order of their labels."""
        grows = len(order) > self.width
        self.forest = with_classes(self.forest, order)
        if grows:
            self.new_scratch(len(self.scratch.slots))

    def take(self, work: ForestSteps, begin: int, end: int, examples: ForestRows) -> None:
        """Take steps; leaves that are opened may stay so."""
        at, first = begin, -1
        while True:
            at, first, why = advance(self.forest, work, at, first, end, examples, self.scratch, self.rules)
            if why == ENDED:
                return
            self._make_room()

    def votes(self, X: Floats, examples: ForestRows) -> Ints:
        """Votes of these trees, shape (n, K), or (n, 2) of numbers; open leaves that no row passes stay open."""
        out, at = np.zeros((len(X), 2 if self.rules.numeric else self.width), dtype=np.int64), 0
        while (at := look(self.forest, X, at, examples, self.scratch, self.rules, out)) < len(X):
            self._make_room()
        return out

    def open_rows(self) -> int:
        """Return the rows of trees with open leaves."""
        waiting = self.forest.roots[self.forest.shape[:, 2] > 0]
        return int(self.forest.nodes["n"][waiting].sum())

    def resolve(self, examples: ForestRows) -> None:
        """Build all open leaves."""
        for tree in np.flatnonzero(self.forest.shape[:, 2]).tolist():
            while not resolve(self.forest, tree, examples, self.scratch, self.rules):
                self._make_room()

    def _make_room(self) -> None:
        """Make room to build the largest tree again, with one row more."""
        rows = int(most_rows(self.forest)) + 1
        self.forest = with_room(self.forest, rows)
        if len(self.scratch.slots) <= rows:
            self.new_scratch(max(rows + rows // 4, 64))

    def roots(self, counted: Counted) -> npt.NDArray[np.uint8]:
        """Return the hash of each tree, shape (trees, 32). O(nodes that have changed since the last one)."""
        forest = self.forest
        if self._hashed_by != counted.key:
            forest.hashed[:] = False
            self._hashed_by = counted.key
        if len(self._hashes) < len(forest.nodes):
            self._hashes = grown(self._hashes, len(forest.nodes))
        deepest = self.rules.max_depth
        return hashed_roots(forest.nodes, forest.roots, forest.totals, counted, forest.hashed, self._hashes, deepest)

    def arrays(self, places: Ints) -> TreeArrays:
        """Return those of some trees that are in this pool, in canonical form. O(nodes)."""
        forest = self.forest
        places = places[(places >= forest.first) & (places < forest.first + len(forest.roots))]
        sizes = forest.shape[places - forest.first, 0].astype(np.int64)
        n = int(sizes.sum())
        out = TreeArrays(
            sizes,
            np.empty(n, dtype=np.int32),
            np.empty(n),
            np.empty(n, dtype=np.int32),
            np.empty((n, self.width), dtype=np.int64),
        )
        _copy_out(forest, places, np.empty(len(forest.nodes), dtype=np.int64), out)
        return out


# Which trees an example lives in, and where the sequences of the trees begin: pure functions of the seed.
#
# *Membership.* SipHash-2-4 (Aumasson, Bernstein, INDOCRYPT 2012) of the id, under a key of 128 bits that BLAKE2b makes
# of the seed, starts a sequence of SplitMix64 (``raydt.arrays.elementary``) with a number for each tree: an example
# lives in the k trees of the smallest numbers. Whoever does not know the seed cannot choose ids that fill one tree.
#
# *Nodes.* The key of a root is number ``tree`` of the sequence of the seed; those below follow from the path
# (``candidates``).
#
# ``tests/oracles/forest.py`` has all of this in plain integers.

_13, _16, _17, _21, _32, _64 = (np.uint64(n) for n in (13, 16, 17, 21, 32, 64))
_V0, _V1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_V2, _V3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_LENGTH, _END = np.uint64(8 << 56), np.uint64(0xFF)


class Seeds(NamedTuple):
    """Keys made of the seed: two words of memberships, and that of the roots."""

    k0: np.uint64
    k1: np.uint64
    roots: np.uint64


def seeds_of(seed: int) -> Seeds:
    """The keys of any integer."""
    words = hashlib.blake2b(str(seed).encode(), digest_size=16, person=b"raydt-forest").digest()
    k0, k1 = (np.uint64(int.from_bytes(words[i : i + 8], "little")) for i in (0, 8))
    return Seeds(k0, k1, stream_key(seed, "trees of a forest"))


@inner_kernel
def _rotated(word: np.uint64, by: np.uint64) -> np.uint64:
    turned: np.uint64 = (word << by) | (word >> (_64 - by))
    return turned


@inner_kernel
def _mixed(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    """One round of SipHash."""
    v0 += v1
    v2 += v3
    v1 = _rotated(v1, _13) ^ v0
    v3 = _rotated(v3, _16) ^ v2
    v0 = _rotated(v0, _32)
    v2 += v1
    v0 += v3
    v1 = _rotated(v1, _17) ^ v2
    v3 = _rotated(v3, _21) ^ v0
    v2 = _rotated(v2, _32)
    return v0, v1, v2, v3


@kernel
def siphash(k0: np.uint64, k1: np.uint64, number: np.uint64) -> np.uint64:
    """SipHash-2-4 of the eight bytes of a number, little-endian, under the key (k0, k1)."""
    v0, v1, v2, v3 = k0 ^ _V0, k1 ^ _V1, k0 ^ _V2, k1 ^ _V3
    for word in (number, _LENGTH):
        v3 ^= word
        v0, v1, v2, v3 = _mixed(v0, v1, v2, v3)
        v0, v1, v2, v3 = _mixed(v0, v1, v2, v3)
        v0 ^= word
    v2 ^= _END
    for _ in range(4):
        v0, v1, v2, v3 = _mixed(v0, v1, v2, v3)
    out: np.uint64 = v0 ^ v1 ^ v2 ^ v3
    return out


@inlined_kernel
def _precedes(numbers: Any, trees: Any, i: int, number: np.uint64, tree: int) -> bool:
    """Return True if entry i has a smaller number, or the same and a smaller tree."""
    first: bool = numbers[i] < number or (numbers[i] == number and trees[i] < tree)
    return first


@inner_kernel
def _select(numbers: Any, trees: Any, k: int) -> None:
    """Put the k smallest numbers first, in any order, each with its tree: Hoare's FIND, O(trees) expected."""
    low, high = 0, len(numbers) - 1
    while low < high:
        number, tree = numbers[k - 1], trees[k - 1]
        i, j = low, high
        while i <= j:
            while _precedes(numbers, trees, i, number, tree):
                i += 1
            while numbers[j] > number or (numbers[j] == number and trees[j] > tree):
                j -= 1
            if i <= j:
                numbers[i], numbers[j] = numbers[j], numbers[i]
                trees[i], trees[j] = trees[j], trees[i]
                i += 1
                j -= 1
        if j < k - 1:
            low = i
        if k - 1 < i:
            high = j


@kernel
def memberships(seeds: Any, ids: Any, numbers: Any, trees: Any, out: Any) -> None:
    """Fill a row of ``out``, shape (n, k), for each of ``ids``: the trees that hold the example, in any order.

    Those are the trees of the smallest numbers; of equals the smaller. ``numbers`` and ``trees``, with an entry for
    each tree of the forest, are scratch. O(trees) for an example.
    """
    k = out.shape[1]
    for i in range(len(ids)):
        key = siphash(seeds.k0, seeds.k1, np.uint64(ids[i]))
        for t in range(len(trees)):
            trees[t] = t
            numbers[t] = bits_at(key, t)
        if k < len(trees):
            _select(numbers, trees, k)
        for m in range(k):
            out[i, m] = trees[m]


# The trees of a shard, in as many pools as pay for its threads.

T = TypeVar("T")

#: Pools for each thread, since the last ones to end are small; and in all, but one for each thread: a step of one row
#: costs 30 us more for each pool.
_EACH, _MOST = 4, 16
#: Rows, each counted in every tree that it is in, from which other threads are worth their start; and drawn numbers,
#: one for each row and tree of the forest.
_FEW, _FEW_NUMBERS = 32, 1 << 16


def _writable(value: Any) -> Any:
    """The same named tuples of arrays, where read-only ones (of a memory map) are copied."""
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else value.copy()
    return type(value)(*map(_writable, value)) if hasattr(value, "_fields") else value


class ExactTrees:
    """Exact trees of a shard, and the rows in slots that they hold."""

    def __init__(self, options: ForestOptions, features: Features) -> None:
        self.options, self.features = options, features
        #: Which trees of the forest these are, ascending; none before :meth:`deal`.
        self.numbers = np.empty(0, dtype=np.int64)
        self.rules, self.seeds = options.rules(len(features)), seeds_of(options.random_state)
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
        self._plant(self.width, self.pools[0].forest.order, self._members)

    @property
    def width(self) -> int:
        """Classes that are counted, or how many numbers of numeric labels."""
        return self.pools[0].width

    @property
    def _members(self) -> npt.NDArray[np.void]:
        """Return the lists of the rows in leaves, which all pools share."""
        return self.pools[0].forest.members

    def _plant(self, width: int, order: Ints, members: npt.NDArray[np.void]) -> None:
        """Make every tree one open leaf without rows, in a pool; entries keep their room."""
        keys, words = bits(self.seeds.roots, self.numbers), (self._d + 63) // 64
        self.pools = []
        for part in ranges(len(keys), each=max(1, min(_EACH, _MOST // threads()))):
            forest = new_forest(keys[part], self.rules, width, words)
            forest = forest._replace(members=members, order=order, first=part.start)
            self.pools.append(TreePool(forest, self.rules, self._categorical))

    def clear(self) -> None:
        """No rows, and trees of one leaf."""
        self.rules = self.options.rules(self._d)
        width = self.rules.label_columns if self.rules.numeric else 2
        self._plant(width, np.arange(width), np.empty(0, dtype=MEMBER))
        self.examples = self._features_of(np.empty((0, self._d)))

    def _features_of(self, X: Floats) -> ForestRows:
        """Return rows of which nothing is known but the features."""
        member = np.empty((0, self.options.copies), np.int32)
        return ForestRows(X, np.empty(0, dtype=np.int64), member, self._categorical)

    def sleep(self, slots: int) -> None:
        """Forget everything but the features of the rows, which are in slots below ``slots``, until :meth:`wake`."""
        examples = self._features_of(trimmed(self.examples.X, slots))
        self.pools = []  # first: an interrupt leaves trees that :meth:`wake` makes, of rows whose features are there
        self.rules, self.examples = self.options.rules(self._d), examples

    def wake(self) -> None:
        """Make every tree one open leaf without rows, and be ready for those whose features are known."""
        if self.pools:
            self._plant(self.width, self.pools[0].forest.order, self._members)
            return
        X = self.examples.X
        self.clear()
        self.reserve(len(X))
        self.examples.X[: len(X)] = X

    def __getstate__(self) -> dict[str, Any]:
        # Scratch has rows that were at hand, deleted ones too.
        return {**self.__dict__, "pools": [pool.forest for pool in self.pools]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        forests: list[Any] = state["pools"]
        self.examples = _writable(self.examples)
        members = _writable(forests[0].members) if forests else None  # none while asleep
        forests = [_writable(forest._replace(members=members)) for forest in forests]
        self.pools = [TreePool(forest, self.rules, self._categorical) for forest in forests]

    def _each(self, work: Callable[[TreePool], T], rows: int) -> list[T]:
        """Do work for every pool, with so many rows in all of them: few of them in the calling thread."""
        tasks = [partial(work, pool) for pool in self.pools]
        return run(tasks) if rows >= _FEW else [task() for task in tasks]

    # ---------------------------------------------------------------- rows

    def know(self, order: Ints) -> None:
        """Room for all classes, whose codes are in ascending order of their labels."""
        if not self.rules.numeric:
            for pool in self.pools:
                pool.know(order)

    def reserve(self, slots: int) -> None:
        """Room for rows in slots below ``slots``."""
        had = len(self.examples.y)
        if slots <= had:
            return
        k, held = self.options.copies, self.examples
        capacity = max(slots, min(max(had + had // 2, 64), MOST_ENTRIES // k))
        members = grown(self._members, capacity * k)
        for pool in self.pools:
            pool.forest = pool.forest._replace(members=members)
        self.examples = held._replace(
            X=grown(held.X, capacity), y=grown(held.y, capacity), member=grown(held.member, capacity)
        )
        if self.rules.unit > 1:
            self.examples = self.examples._replace(weight=grown(held.weight, capacity))

    def weigh(self) -> None:
        """Count weights from now on, unless they are counted; those of all rows there are, are 1.

        Every tree is one open leaf then.
        """
        if self.rules.unit == 1:
            self.rules = self.rules.weighed()
            self.examples = self.examples._replace(weight=filled(None, len(self.examples.y)))
            self.open_all(self.examples.y)

    def reweigh(self, slots: Slots, weight: Weights) -> None:
        """Count the rows in the trees by other weights, given with their slots; every tree is one open leaf then."""
        self.weigh()
        self.examples.weight[slots] = weight
        self.examples.member[slots[weight == 0]] = -1
        self.open_all(self.examples.y)

    def put(self, slots: Slots, ids: Ints, X: Floats, y: Ints, weight: Weights | None = None) -> None:
        """Keep new rows, of which nothing is in the trees yet; those of weight 0 will be in no tree."""
        if not len(slots):
            return
        put_rows(self.examples.X, slots, X)
        self.examples.y[slots] = y
        self.examples.member[slots] = self._place[self.members(ids)]
        if self.rules.unit > 1:
            self.examples.weight[slots] = UNIT if weight is None else weight
            self.examples.member[slots[self.examples.weight[slots] == 0]] = -1

    def erase(self, slots: Slots) -> None:
        """Leave nothing of rows that no tree holds any more."""
        self.examples.X[slots] = 0.0
        self.examples.y[slots] = 0
        self.examples.member[slots] = -1
        if self.rules.unit > 1:
            self.examples.weight[slots] = 0

    def members(self, ids: Ints) -> Int32s:
        """Trees of the forest that hold each example, shape (n, k)."""
        of_forest, ids = self.options.n_estimators, np.ascontiguousarray(ids, dtype=np.int64)
        out = np.empty((len(ids), self.options.copies), dtype=np.int32)

        def fill(part: slice) -> None:
            numbers, trees = (np.empty(of_forest, dtype=kind) for kind in (np.uint64, np.int32))
            memberships(self.seeds, ids[part], numbers, trees, out[part])

        run([partial(fill, part) for part in ranges(len(ids), _FEW_NUMBERS // of_forest, 4)])
        return out

    def collect(self, kind: Int32s, slots: Slots) -> None:
        """Take steps while nothing is built: rows wait in the roots, in order."""
        changes = kind != LOOK  # a query changes nothing, and has no slot
        kind, slots = kind[changes], slots[changes]
        begin = 0
        for stop in [*np.flatnonzero(np.diff(kind == REMOVE)).tolist(), len(kind) - 1]:
            part = slots[begin : stop + 1]
            if len(part):
                self._wait(part, 1 if kind[begin] == ADD else -1)
            begin = stop + 1

    def _wait(self, slots: Slots, by: int) -> None:
        """Put rows into the roots of their trees (``by`` 1), which are not built yet, or take them out (-1)."""
        examples, numeric = self.examples, self.rules.numeric
        self._each(
            lambda pool: _gather_or_scatter(pool.forest, slots, by, examples, numeric), len(slots) * self.options.copies
        )

    # ---------------------------------------------------------------- steps

    def take(self, work: ForestSteps, begin: int, end: int) -> None:
        """Take steps; leaves that are opened may stay so."""
        if len(self.pools) == 1:
            self.pools[0].take(work, begin, end, self.examples)
            return

        def of(pool: TreePool) -> ForestSteps:
            own = work._replace(votes=np.zeros_like(work.votes), done=np.zeros_like(work.done))
            pool.take(own, begin, end, self.examples)
            return own

        for own in self._each(of, (end - begin) * self.options.copies):
            np.minimum(work.done[begin:end, DEPTH], own.done[begin:end, DEPTH], out=work.done[begin:end, DEPTH])
            work.done[begin:end, :DEPTH] += own.done[begin:end, :DEPTH]
            work.votes[...] += own.votes

    def votes(self, X: Floats) -> Ints:
        """Votes of these trees, shape (n, K), or (n, 2) of numbers; open leaves that no row passes stay open."""
        rows = np.ascontiguousarray(X, dtype=np.float64)
        parts = self._each(lambda pool: pool.votes(rows, self.examples), len(rows) * len(self.numbers))
        votes: Ints = np.sum(parts, axis=0)
        return votes

    def resolve(self) -> None:
        """Build all open leaves."""
        self._each(lambda pool: pool.resolve(self.examples), sum(pool.open_rows() for pool in self.pools))

    def trim(self) -> None:
        """Give up scratch, and room for more nodes."""
        for pool in self.pools:
            pool.trim()

    def open_all(self, y: Ints) -> None:
        """Make every tree one open leaf of its rows, which get other labels, by slot."""
        slots = self._live()
        self.examples.y[: len(y)] = y
        self._plant(self.width, self.pools[0].forest.order, self._members)
        self._wait(slots, 1)

    def _live(self) -> Slots:
        """Slots of the rows in the trees, ascending. O(nodes + rows k)."""
        found = np.zeros(len(self.examples.y), dtype=np.bool_)
        for pool in self.pools:
            _mark(pool.forest, self.options.copies, found)
        return np.flatnonzero(found).astype(np.int32)

    # ---------------------------------------------------------------- what there is

    def sizes(self) -> tuple[Ints, Ints]:
        """Return the rows of each tree, and its nodes."""
        forests = [pool.forest for pool in self.pools]
        rows = np.concatenate([forest.nodes["n"][forest.roots] for forest in forests]).astype(np.int64)
        return rows, np.concatenate([forest.shape[:, 0] for forest in forests]).astype(np.int64)

    def touched(self) -> Ints:
        """Places of the trees that have changed since they were :meth:`taken`."""
        return np.concatenate([np.flatnonzero(pool.forest.touched) + pool.forest.first for pool in self.pools])

    def taken(self) -> None:
        """All trees have been taken note of."""
        for pool in self.pools:
            pool.forest.touched[:] = False

    def root_totals(self) -> Ints:
        """Totals of the roots, shape (trees, K)."""
        return np.concatenate([pool.forest.totals[pool.forest.roots] for pool in self.pools])

    def roots(self, counted: Counted) -> npt.NDArray[np.uint8]:
        """Return the hash of each tree, shape (trees, 32). O(nodes that have changed since the last one)."""
        return np.concatenate([pool.roots(counted) for pool in self.pools])

    def arrays(self, trees: Ints | None = None) -> TreeArrays:
        """Some of the trees, by place ascending, in canonical form; all by default. O(nodes)."""
        places = np.arange(len(self.numbers)) if trees is None else trees
        parts = self._each(lambda pool: pool.arrays(places), len(self.examples.y))
        return TreeArrays(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def shape(self) -> tuple[int, int, int]:
        """Nodes, leaves, and the depth of the deepest node."""
        forests = [pool.forest for pool in self.pools]
        nodes, leaves = np.sum([forest.shape[:, :2].sum(axis=0, dtype=np.int64) for forest in forests], axis=0).tolist()
        deep = np.flatnonzero(np.any([forest.levels.any(axis=0) for forest in forests], axis=0))
        return nodes, leaves, int(deep[-1]) if len(deep) else 0


# The log of what the steps of a batch have rebuilt.


def log_of(seq: Ints, done: Ints) -> Log:
    """Return an entry for each step after which something was rebuilt, in any tree.

    ``seq``, shape (steps,), are the updates of the steps; ``done``, (steps, 5), is as in ``ForestSteps``.
    """
    at = done[:, SUBTREES].nonzero()[0]
    if not len(at):
        return {}
    return {
        "seq": seq[at],
        "rows": done[at, ROWS],
        "depth": done[at, DEPTH].astype(np.int32),
        "nodes": done[at, NODES],
        "subtrees": done[at, SUBTREES],
        "place": np.full(len(at), SHARDS, dtype=np.int8),
        "seconds": np.zeros(len(at)),
    }
