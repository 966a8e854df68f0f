"""Digests of named arrays, and of the live rows of a store: made when first asked for, then kept up with changes.

The ids of changed rows are noted, and the next digest costs O(log n) for each; the tree is dropped when more have
changed than a new one would cost. Invariant: the digest is a function of the live rows and of the columns given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import empty, grown
from raydt.arrays.elementary import AnyArray, Arrays, Int32s, Ints, Slots, sort_pairs
from raydt.arrays.kernel import emitted_kernel, inner_kernel, kernel
from raydt.examples.row_owners import (
    BITS,
    CHILDREN,
    DEPTH,
    LONGEST,
    MOST,
    USED,
    Ids,
    RowOwners,
    buckets_of,
    change,
    key_of,
    keys_of,
    side_of,
    trie_of,
    whole_nodes,
    with_room,
)
from raydt.examples.store import ExampleStore
from raydt.examples.updates import filled
from raydt.exchange.messages import Buckets
from raydt.messages import message
from raydt.parallel import run

# One digest for a sequence of named arrays, the same on every machine.
#
# Invariant: two sequences have the same digest exactly if names, order, dtypes, shapes and little-endian bytes are
# equal (``docs/reference/formats.md``). Which arrays describe a model is the learner's to say; what is large enters by
# the root of a tree of hashes (the tree over rows below, ``raydt.trees.packed_trees``).

# BLAKE2b (RFC 7693) with 32 bytes, without a key, for kernels: thousands of short hashes in one call.
#
# Most of ``hashlib``'s time for a short hash goes to Python objects. Here four hashes are computed side by side, each
# in its lane of vectors of four words. Invariant: the bytes are those of ``hashlib.blake2b(data, digest_size=32,
# person=person)``, to which the tests compare them.
#
# Symbols (RFC 7693): h, t, f and m are the rows of ``room`` from ``STATE``, ``SEEN``, ``LAST`` and ``WORDS`` on.

#: Bytes of a hash and of a block.
SIZE, BLOCK = 32, 128
#: Hashes side by side, and the room that they take: uint64, shape (ROWS, LANES).
LANES, ROWS = 4, 26
STATE, SEEN, LAST, WORDS = 0, 8, 9, 10
IV = np.array(
    [
        0x6A09E667F3BCC908,
        0xBB67AE8584CAA73B,
        0x3C6EF372FE94F82B,
        0xA54FF53A5F1D36F1,
        0x510E527FADE682D1,
        0x9B05688C2B3E6C1F,
        0x1F83D9ABFB41BD6B,
        0x5BE0CD19137E2179,
    ],
    dtype=np.uint64,
)
#: Order in which the rounds use the words of a block; the last two repeat the first two.
SIGMA = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    ],
    dtype=np.uint64,
)
#: Of the sixteen words of a round's state, those that are mixed with each other: first columns, then diagonals.
_MIXED = (
    *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),
    *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),
)
_ALL = np.uint64(2**64 - 1)

Words = npt.NDArray[np.uint64]
Places = Ints


class HashJobs(NamedTuple):
    """The bytes to hash: those from ``begin`` up to before ``end``, whose hash becomes row ``to`` of all hashes."""

    begin: Places
    end: Places
    to: Places


def room_for(jobs: int) -> tuple[HashJobs, Words]:
    """Room for so many jobs, and for the work on them."""
    return HashJobs(*np.empty((3, jobs), dtype=np.int64)), np.zeros((ROWS, LANES), dtype=np.uint64)


def start(person: bytes) -> Words:
    """State before the first block: the initial vector and the parameters, uint64, shape (8,)."""
    parameters = np.zeros(8, dtype="<u8")
    parameters[0] = SIZE | 1 << 16 | 1 << 24  # no key, and a sequence of bytes, not a tree
    parameters[6:] = np.frombuffer(person.ljust(16, b"\0"), dtype="<u8")
    state: Words = IV ^ parameters.astype(np.uint64)
    return state


@emitted_kernel
def _compress(typing_context: Any, room: Any, sigma: Any) -> Any:
    """The compression of a block of each lane; the new states take the place of the old ones.

    LLVM makes no vectors of loops over lanes: it cannot know that the words chosen by a round do not move.
    """
    from llvmlite import ir
    from numba.core import cgutils as utilities
    from numba.core import types

    cgutils: Any = utilities
    if not all(isinstance(a, types.Array) and a.layout == "C" and a.dtype == types.uint64 for a in (room, sigma)):
        return None

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(64)
        vector = ir.VectorType(wide, LANES)
        data, orders = (
            context.make_array(kind)(context, builder, value=value).data
            for kind, value in zip((room, sigma), arguments, strict=True)
        )
        rows = builder.bitcast(data, vector.as_pointer())

        def every(word: int) -> Any:
            return ir.Constant(vector, [word] * LANES)

        def load(row: Any) -> Any:
            return builder.load(builder.gep(rows, [row]), align=8)

        def turned(word: Any, by: int) -> Any:
            return builder.or_(builder.lshr(word, every(by)), builder.shl(word, every(64 - by)))

        def at(row: int) -> Any:
            return ir.Constant(wide, row)

        h = [load(at(STATE + i)) for i in range(8)]
        v = [*h, *(every(int(word)) for word in IV)]
        v[12], v[14] = builder.xor(v[12], load(at(SEEN))), builder.xor(v[14], load(at(LAST)))
        kept = [cgutils.alloca_once_value(builder, word) for word in v]
        for word, cell in zip(v, kept, strict=True):
            builder.store(word, cell)
        with cgutils.for_range(builder, at(len(SIGMA))) as loop:
            order = builder.mul(loop.index, at(16))
            v = [builder.load(cell) for cell in kept]

            def word_at(i: int) -> Any:
                chosen = builder.load(builder.gep(orders, [builder.add(order, at(i))]))
                return load(builder.add(chosen, at(WORDS)))

            for i, (a, b, c, d) in enumerate(_MIXED):
                for half, to_d, to_b in ((0, 32, 24), (1, 16, 63)):
                    v[a] = builder.add(builder.add(v[a], v[b]), word_at(2 * i + half))
                    v[d] = turned(builder.xor(v[d], v[a]), to_d)
                    v[c] = builder.add(v[c], v[d])
                    v[b] = turned(builder.xor(v[b], v[c]), to_b)
            for word, cell in zip(v, kept, strict=True):
                builder.store(word, cell)
        v = [builder.load(cell) for cell in kept]
        for i in range(8):
            new = builder.xor(h[i], builder.xor(v[i], v[i + 8]))
            builder.store(new, builder.gep(rows, [at(STATE + i)]), align=8)
        return context.get_dummy_value()

    return types.void(room, sigma), emit


@emitted_kernel
def _word(typing_context: Any, data: Any, at: Any) -> Any:
    """Eight bytes from ``at`` on as a word: every machine that Numba compiles for is little-endian."""
    from llvmlite import ir
    from numba.core import types

    if not (isinstance(data, types.Array) and data.layout == "C" and data.dtype == types.uint8):
        return None

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = context.make_array(data)(context, builder, value=arguments[0]).data
        index = context.cast(builder, arguments[1], at, types.int64)
        return builder.load(builder.bitcast(builder.gep(first, [index]), ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, at), emit


@inner_kernel
def _enter(data: Any, begin: int, end: int, room: Any, lane: int) -> None:
    """Put the bytes of a block into a lane, and zeros after them."""
    whole = (end - begin) // 8
    for i in range(whole):
        room[WORDS + i, lane] = _word(data, begin + 8 * i)
    for i in range(whole, 16):
        room[WORDS + i, lane] = 0
    for j in range(begin + 8 * whole, end):
        room[WORDS + whole, lane] |= np.uint64(data[j]) << np.uint64(8 * (j - begin - 8 * whole))


@kernel
def hash_all(begun: Any, data: Any, jobs: Any, n: int, room: Any, hashes: Any) -> None:
    """Do the first ``n`` jobs. O(sum of bytes); neighbours that take as many blocks cost least.

    ``begun`` is the :func:`start` for what is hashed, ``data`` has bytes, ``hashes`` the four words of each hash.
    """
    for first in range(0, n, LANES):
        stop = min(first + LANES, n)
        blocks = np.int64(1)
        for lane in range(LANES):
            for i in range(8):
                room[STATE + i, lane] = begun[i]
        for j in range(first, stop):
            blocks = max(blocks, (jobs.end[j] - jobs.begin[j] + BLOCK - 1) // BLOCK)
        for b in range(blocks):  # the lanes of shorter ones go on for nothing
            for j in range(first, stop):
                at = jobs.begin[j] + b * BLOCK
                rest = jobs.end[j] - at
                if rest > 0 or b == 0:
                    _enter(data, at, min(at + BLOCK, jobs.end[j]), room, j - first)
                    room[SEEN, j - first] = b * BLOCK + min(BLOCK, rest)
                    room[LAST, j - first] = _ALL if rest <= BLOCK else np.uint64(0)
            _compress(room, SIGMA)
            for j in range(first, stop):
                rest = jobs.end[j] - jobs.begin[j] - b * BLOCK
                if rest <= BLOCK and (rest > 0 or b == 0):  # its last block
                    for i in range(4):
                        hashes[jobs.to[j], i] = room[STATE + i, j - first]


#: Formats of digests: the line that is hashed first. A learner has the newest whose arrays are its own.
DIGEST_2, DIGEST_3 = "raydt-digest-2", "raydt-digest-3"
#: A digest that is not complete: an object of hashlib.
Digest = Any
#: Numbers of a padded array that are made at a time.
_BLOCK = 1 << 16


class Padded(NamedTuple):
    """``head``, then ``rest`` times ``fill``, but 1 at the places ``ones``: an array too long to be made."""

    head: AnyArray
    rest: int
    fill: int
    ones: npt.NDArray[np.integer]

    def blocks(self) -> Iterator[AnyArray]:
        """The array, some numbers at a time."""
        yield self.head
        for begin in range(0, self.rest, _BLOCK):
            block = np.full(min(_BLOCK, self.rest - begin), self.fill, dtype=self.head.dtype)
            first, last = np.searchsorted(self.ones, [begin, begin + len(block)])
            block[self.ones[first:last] - begin] = 1
            yield block


#: A name and an array of booleans, integers or floats.
Part = tuple[str, AnyArray | Padded]


def encoded(parts: Iterable[Part]) -> bytes:
    """Return the bytes of named arrays as :func:`digest` takes them in their place, any number of times."""
    pieces: list[Any] = []
    _add(pieces.append, parts)
    return b"".join(pieces)


def digest(parts: Iterable[Part | bytes], begun: Digest | None = None) -> str:
    """Return ``sha256:`` and 64 hexadecimal digits of named arrays in the order given, whatever their memory layout.

    Floats count by their bits: -0.0 differs from 0.0, and one NaN from another. Arrays of other things than booleans,
    integers and floats are a ``TypeError``. ``begun`` is of the parts before these and stays as it is.
    """
    sha = begin_digest((), DIGEST_2) if begun is None else begun.copy()
    _add(sha.update, parts)
    return f"sha256:{sha.hexdigest()}"


def begin_digest(parts: Iterable[Part], format: str) -> Digest:
    """Begin a digest of a format that :func:`digest` goes on with, any number of times."""
    sha = hashlib.sha256(f"{format}\n".encode())
    _add(sha.update, parts)
    return sha


def _add(put: Callable[[Any], None], parts: Iterable[Part | bytes]) -> None:
    for part in parts:
        if isinstance(part, bytes):
            put(part)
            continue
        name, values = part
        padded = values if isinstance(values, Padded) else None
        array = np.asarray(values if padded is None else padded.head)
        if array.dtype.kind not in "biuf":
            raise TypeError(message("states.digest", part=name, dtype=array.dtype))
        dtype, label = array.dtype.newbyteorder("<"), name.encode()
        shape = ",".join(map(str, array.shape if padded is None else (len(array) + padded.rest,)))
        put(f"{len(label)}:".encode() + label + f"{dtype.str}({shape})\n".encode())
        for block in (array,) if padded is None else padded.blocks():
            little = block.astype(dtype, order="C", copy=False)
            # A view as bytes, not tobytes(): no copy. Empty arrays of several dimensions have no such view.
            put(little.reshape(-1).view(np.uint8).data if little.size else b"")


# A Merkle tree over rows by id, whose root follows what changes: O(log n) hashes for a row.
#
# The *key* of a row is a fixed bijection of its id. All rows lie below the root; a node of more than 32 rows has
# sixteen children, and the next four bits of the key say in which of them a row lies. So the shape depends on the set
# of ids only: not on slots, on the order in which rows came, or on rows that were there before. A leaf has its rows in
# ascending order of their keys.
#
# Invariant: a node that is not ``stale`` has the hash of the rows below it. Hashes are BLAKE2b of 32 bytes, so that two
# different sets of rows with the same root are a collision of BLAKE2b: as hard as 2**128 evaluations. The key spreads
# the rows and carries no security; ids that were chosen for it make a path of at most 16 nodes.
#
# Format: ``docs/reference/formats.md``. ``tests/oracles/digests.py`` hashes everything, in plain loops.

#: What is hashed of each of some rows, by ids and slots.
Records = Callable[[Ids, Slots], npt.NDArray[np.void]]

#: What tells hashes of leaves from those of other nodes.
OF_LEAVES = b"raydt-rows-leaf"
LEAF, INNER = start(OF_LEAVES), start(b"raydt-rows-node")
#: Rows whose bytes are gathered at once.
_TOGETHER = 1 << 16


@kernel
def _list_stale(trie: Any, out: Any, levels: Any) -> int:
    """Stale nodes, level by level from the root. Returns the number of levels.

    Those of level i are ``out[levels[i] : levels[i + 1]]``.
    """
    level, begin, end = np.int64(0), np.int64(0), np.int64(0)
    if trie.stale[0]:
        out[0], end = 0, 1
    while begin < end:
        levels[level] = begin
        level += 1
        n = end
        for i in range(begin, end):
            first = np.int64(trie.child[out[i]])
            if first >= 0:
                for child in range(first, first + CHILDREN):
                    if trie.stale[child]:
                        out[n] = child
                        n += 1
        begin, end = end, n
    levels[level] = end
    return int(level)


@kernel
def _list_rows(trie: Any, leaves: Any, ids: Any, slots: Any) -> None:
    n = np.int64(0)
    for leaf in leaves:
        begin = trie.begin[leaf]
        for i in range(begin, begin + trie.rows[leaf]):
            ids[n], slots[n] = trie.ids[i], trie.slots[i]
            n += 1


@kernel
def _hash_leaves(leaves: Any, counts: Any, data: Any, width: int, jobs: Any, room: Any, hashes: Any) -> None:
    """Hash leaves, given the bytes of their rows one after the other, ``width`` a row."""
    end = np.int64(0)
    for i in range(len(leaves)):
        jobs.to[i], jobs.begin[i] = leaves[i], end
        end += counts[i] * width
        jobs.end[i] = end
    hash_all(LEAF, data, jobs, len(leaves), room, hashes)


@kernel
def _hash_inner(nodes: Any, levels: Any, child: Any, data: Any, jobs: Any, room: Any, hashes: Any) -> None:
    """Hash nodes that are no leaves, the deepest level first; ``data`` has the bytes of ``hashes``."""
    for level in range(len(levels) - 2, -1, -1):
        n = np.int64(0)
        for i in range(levels[level], levels[level + 1]):
            first = np.int64(child[nodes[i]])
            if first >= 0:
                jobs.to[n], jobs.begin[n], jobs.end[n] = nodes[i], SIZE * first, SIZE * (first + CHILDREN)
                n += 1
        hash_all(INNER, data, jobs, n, room, hashes)


class RowTree:
    """The tree over rows with some ids, shape (n,), in slots, shape (n,)."""

    def __init__(self, ids: Ids, slots: Slots) -> None:
        self._trie = trie_of(ids, slots)
        self._hashes = empty((len(self._trie.rows), SIZE // 8), "<u8")
        self._stack = np.empty(LONGEST + CHILDREN, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._trie.rows[0])

    def change(self, ids: Ids, slots: Slots) -> None:
        """Say of rows that were inserted, deleted or changed where they are now; -1: nowhere. O(log n) a row."""
        done = 0
        while done < len(ids):
            trie = with_room(self._trie)
            if len(trie.rows) > len(self._hashes):
                self._hashes = grown(self._hashes[: trie.reg[USED]], len(trie.rows))
            self._trie = trie  # last: until then both are made again
            done = int(change(self._trie, ids, slots, done, self._stack))

    def root(self, records: Records) -> bytes:
        """The hash of all rows, 32 bytes; asks for the records of the rows in stale leaves, in threads."""
        trie, together = self._trie, _TOGETHER // MOST
        stale, levels = np.empty(int(trie.reg[USED]), dtype=np.int32), np.empty(2 + 64 // BITS, dtype=np.int64)
        levels = levels[: 1 + int(_list_stale(trie, stale, levels))]
        stale = stale[: levels[-1]]
        leaves = stale[trie.child[stale] < 0]

        def hash_part(part: Int32s) -> None:
            count = trie.rows[part]
            ids, slots = np.empty(int(count.sum()), dtype=np.int64), np.empty(int(count.sum()), dtype=np.int32)
            _list_rows(trie, part, ids, slots)
            data = records(ids, slots)
            _hash_leaves(part, count, data.view(np.uint8), data.itemsize, *room_for(len(part)), self._hashes)

        if len(leaves) <= together:
            hash_part(leaves)
        else:
            parts = [leaves[begin : begin + together] for begin in range(0, len(leaves), together)]
            run([partial(hash_part, part) for part in parts])
        data, (jobs, room) = self._hashes.view(np.uint8).reshape(-1), room_for(len(stale))
        _hash_inner(stale, levels, trie.child, data, jobs, room, self._hashes)
        trie.stale[stale] = False  # last: a call that is broken off hashes them again
        root: bytes = self._hashes[0].tobytes()
        return root

    def rows_of(self, leaf: int) -> tuple[Ids, Slots]:
        """Return ids and slots of the rows of a leaf."""
        rows = slice(int(self._trie.begin[leaf]), int(self._trie.begin[leaf] + self._trie.rows[leaf]))
        return self._trie.ids[rows], self._trie.slots[rows]


#: What a digest has of some rows beside their ids, by name.
Columns = Callable[[Slots], Mapping[str, npt.NDArray[np.generic]]]

#: A tree of so few rows, or of fewer than eight times the changes, is made anew.
_FEW = 64


class RowDigest:
    """Digest of the rows of one store."""

    Tree: ClassVar[type[RowTree]] = RowTree

    def __init__(self, store: ExampleStore) -> None:
        self._store, self._filled, self._weighted = store, store.filled, False
        self._tree: Any = None  # a ``Tree``, once somebody has asked
        self._changed: list[Ids] = []
        self._changes = 0

    def note(self, ids: Ids) -> None:
        """Note that rows were inserted, deleted or changed. O(1) before a digest, then O(ids)."""
        if self._tree is None or not len(ids):
            return
        self._changes += len(ids)
        if 8 * self._changes > max(len(self._tree), _FEW):
            self.forget()
        else:
            self._changed.append(ids.copy())

    def forget(self) -> None:
        """All rows may have changed."""
        self._tree, self._changed, self._changes = None, [], 0

    def part(self, columns: Columns, weighted: bool) -> Part:
        """Part of a digest: columns with types (of weights, unless all are 1) as its name, and the root of the rows."""
        store = self._store
        records = self._records(columns, weighted)
        if self._tree is None and store.live <= MOST:
            return _part_of_leaf(store, records)
        none = records(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32))
        return part_of(none.dtype, self._followed().root(records))

    def _records(self, columns: Columns, weighted: bool) -> Records:
        """Return what gives the records of rows, with weights if it is ``weighted``; others are made all anew."""
        store = self._store
        if (self._filled, self._weighted) != (store.filled, weighted):
            self.forget()
            self._filled, self._weighted = store.filled, weighted
        return partial(record_of, partial(with_weights, columns, store) if weighted else columns)

    def _followed(self) -> Any:
        """Return the tree of the rows as they are."""
        store = self._store
        if self._tree is None:
            slots = store.slots()
            self._tree = self.Tree(store.id[slots], slots)
        elif self._changed:
            ids = np.concatenate(self._changed)
            self._tree.change(ids, store.find(ids))
        self._changed, self._changes = [], 0
        return self._tree


def _part_of_leaf(store: ExampleStore, records: Records) -> Part:
    """Return the part of so few rows that their tree is one leaf: to make the tree takes longer than to hash it."""
    slots = store.slots()
    slots = slots[np.argsort(keys_of(store.id[slots]))]
    rows = records(store.id[slots], slots)
    return part_of(rows.dtype, hashlib.blake2b(rows.tobytes(), digest_size=SIZE, person=OF_LEAVES).digest())


def with_weights(columns: Columns, store: ExampleStore, slots: Slots) -> Mapping[str, npt.NDArray[np.generic]]:
    """Return the columns of some rows, and their weights."""
    return {**columns(slots), "weight": filled(store.weights(slots), len(slots))}


def record_of(columns: Columns, ids: Ids, slots: Slots) -> npt.NDArray[np.void]:
    """Return the records of some rows: their ids, and then the columns."""
    given = {"id": ids, **{name: np.asarray(column) for name, column in columns(slots).items()}}
    fields = [(name, column.dtype.newbyteorder("<"), column.shape[1:]) for name, column in given.items()]
    rows = np.empty(len(slots), dtype=fields)
    for name, column in given.items():
        rows[name] = column
    return rows


def part_of(record: np.dtype[np.void], root: bytes) -> Part:
    """Return the part of a digest: names and types of the columns, with their widths if they have one; and the root."""
    kinds = ((name, *(record[name].subdtype or (record[name], ()))) for name in record.names or ())
    named = ",".join(f"{name}{kind.str}{f'({shape[0]})' if shape else ''}" for name, kind, shape in kinds)
    return f"rows {named}", np.frombuffer(root, dtype=np.uint8)


# The roots of the trees over the rows of very many stores, whose labels are classes: for kernels, without any object.

#: Words of 32 bits of a row: its id and its label.
_OF_ROW = 3
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


class RowsWork(NamedTuple):
    """Room for the tree over the rows of one store."""

    keys: Words
    slots: Int32s
    records: npt.NDArray[np.uint32]
    bytes: npt.NDArray[np.uint8]  #: Those of the records.
    nodes: Ints  #: Shape (nodes, 4): where the rows of each begin and end, its depth, its first child or -1.
    hashes: Words  #: Shape (nodes, 4); the root is the first.
    hash_bytes: npt.NDArray[np.uint8]
    jobs: HashJobs
    room: Words


def rows_work(rows: int) -> RowsWork:
    """Return room for so many rows."""
    nodes = 1 + CHILDREN * (64 // BITS) * (rows // (MOST + 1))  # at each level so many nodes have more than MOST rows
    records, hashes = np.empty(_OF_ROW * rows, dtype="<u4"), np.empty((nodes, SIZE // 8), dtype="<u8")
    jobs, room = room_for(nodes)
    return RowsWork(
        keys=np.empty(rows, dtype=np.uint64),
        slots=np.empty(rows, dtype=np.int32),
        records=records,
        bytes=records.view(np.uint8),
        nodes=np.empty((nodes, 4), dtype=np.int64),
        hashes=hashes,
        hash_bytes=hashes.view(np.uint8).reshape(-1),
        jobs=jobs,
        room=room,
    )


@inner_kernel
def hash_rows(table: Any, ids: Any, y: Any, work: Any) -> None:
    """Hash the rows in the slots of a table, as :meth:`RowTree.root` does of ids and labels. O(n log n)."""
    keys, slots, nodes, jobs = work.keys, work.slots, work.nodes, work.jobs
    n = np.int64(0)
    for slot in table:
        if slot >= 0:
            keys[n], slots[n] = key_of(ids[slot]), slot
            n += 1
    sort_pairs(keys, slots, n)
    for i in range(n):
        number = np.uint64(ids[slots[i]])
        work.records[_OF_ROW * i], work.records[_OF_ROW * i + 1] = number & _LOW, number >> _32
        work.records[_OF_ROW * i + 2] = y[slots[i]]
    # All nodes, level by level.
    nodes[0, 0], nodes[0, 1], nodes[0, 2] = 0, n, 0
    node, used, leaves = np.int64(0), np.int64(1), np.int64(0)
    while node < used:
        begin, end, depth = nodes[node, 0], nodes[node, 1], nodes[node, 2]
        nodes[node, 3] = used if end - begin > MOST else -1
        if end - begin > MOST:
            for c in range(CHILDREN):
                stop = begin
                while stop < end and side_of(keys[stop], depth) == c:
                    stop += 1
                nodes[used, 0], nodes[used, 1], nodes[used, 2] = begin, stop, depth + 1
                begin = stop
                used += 1
        else:
            jobs.to[leaves], jobs.begin[leaves], jobs.end[leaves] = node, 4 * _OF_ROW * begin, 4 * _OF_ROW * end
            leaves += 1
        node += 1
    hash_all(LEAF, work.bytes, jobs, leaves, work.room, work.hashes)
    while node > 0:  # the others, the deepest level first
        depth, inner = nodes[node - 1, 2], np.int64(0)
        while node > 0 and nodes[node - 1, 2] == depth:
            node -= 1
            first = nodes[node, 3]
            if first >= 0:
                jobs.to[inner], jobs.begin[inner], jobs.end[inner] = node, SIZE * first, SIZE * (first + CHILDREN)
                inner += 1
        hash_all(INNER, work.hash_bytes, jobs, inner, work.room, work.hashes)


#: Parts of a digest of a tree of classes and of its rows, by their roots: the bytes before each.
_OF_TREE = encoded([("tree", np.zeros(SIZE, dtype=np.uint8))])[:-SIZE]
_OF_ROWS = encoded([part_of(np.dtype([("id", "<i8"), ("y", "<i4")]), bytes(SIZE))])[:-SIZE]
_BEGUN = begin_digest((), DIGEST_2)


def digest_of_roots(tree: bytes, rows: bytes) -> str:
    """Return the digest of a tree of classes and its rows, all of weight 1, from their roots."""
    sha = _BEGUN.copy()
    sha.update(_OF_TREE + tree + _OF_ROWS + rows)
    return f"sha256:{sha.hexdigest()}"


# The root of the tree of rows where shards own whole rows: hashes of subtrees from each, put together.
#
# A shard has a tree over its own rows, and gives the hashes of the nodes all of whose rows it owns (``whole_nodes``).
# Such a node is one of the tree over all rows, too, with the same hash. Where no more than 32 of the shard's rows are
# below the node's parent, that may be a leaf, with rows of several shards: then a shard gives the records themselves,
# at most 32 for each parent.
#
# Invariant: the root is that of one tree over all rows (``row_tree``), whatever the number of shards, or of buckets.

#: Rows, hash, and whether there are records instead, of every node that a shard has alone; and these records.
Hashes = Mapping[str, AnyArray]


class BucketTree(RowTree):
    """The tree over the rows of one shard."""

    def hashes(self, buckets: Buckets, records: Records) -> dict[str, AnyArray]:
        """Return ``rows``, ``hash`` and ``given`` of the nodes that have the rows of the own buckets.

        And ``records`` of the rows of the given ones by key.
        """
        self.root(records)
        trie, nodes = self._trie, whole_nodes(buckets)
        n, firsts = len(nodes), np.array([first for first, _ in nodes], dtype=np.int64)
        rows, given = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
        hashes, ids, slots = np.zeros((n, SIZE), dtype=np.uint8), [trie.ids[:0]], [trie.slots[:0]]
        leaves = set()
        for i, (first, depth) in enumerate(nodes):
            node = 0
            for level in range(DEPTH - 1, DEPTH - 1 - depth, -1):
                if trie.child[node] < 0:
                    break
                node = int(trie.child[node]) + (first >> BITS * level) % CHILDREN
            else:
                rows[i], hashes[i] = trie.rows[node], self._hashes[node].view(np.uint8)
                continue
            given[i] = True
            if node not in leaves:
                leaves.add(node)
                own_ids, own_slots = self.rows_of(node)
                ids.append(own_ids)
                slots.append(own_slots)
        few = np.concatenate(ids)
        below = np.searchsorted(firsts, buckets_of(few), side="right") - 1
        rows[given] = np.bincount(below, minlength=n)[given]
        told = records(few, np.concatenate(slots))
        return {"rows": rows, "hash": hashes, "given": given, "records": told.view(np.uint8).reshape(-1)}


class BucketDigest(RowDigest):
    """Hashes of the rows of a shard: made once, then kept up with what changes."""

    Tree = BucketTree

    def hashes(self, buckets: Buckets, columns: Columns, weighted: bool) -> dict[str, AnyArray]:
        """As :meth:`BucketTree.hashes`; records have ``columns`` and, if ``weighted``, weights."""
        records = self._records(columns, weighted)
        hashes: dict[str, AnyArray] = self._followed().hashes(buckets, records)
        return hashes


def joined_part(parts: Sequence[Mapping[str, Any]]) -> tuple[Arrays, Part]:
    """Return the columns of rows that wait to be deleted, by id, and the part of all rows, from what shards gave.

    Of each, :meth:`BucketDigest.hashes` and the columns of its rows that are ``leaving``; if these are none, too.
    """
    given = [one["leaving"] for one in parts]
    leaving = {name: np.concatenate([columns[name] for columns in given]) for name in given[0]}
    order = np.argsort(leaving["id"])
    leaving = {name: column[order] for name, column in leaving.items()}
    none: AnyArray = np.empty(0, dtype=np.int64)
    record = record_of(lambda slots: {name: leaving[name][slots] for name in leaving if name != "id"}, none, none).dtype
    return leaving, part_of(record, joined_root(parts, record.itemsize))


def joined_root(parts: Sequence[Hashes], width: int) -> bytes:
    """Return the root of all rows, from what the shards gave, in shard order; a record has ``width`` bytes."""
    rows, hashes, given = (np.concatenate([part[name] for part in parts]) for name in ("rows", "hash", "given"))
    told = np.concatenate([part["records"] for part in parts]).tobytes()
    nodes = [node for own in RowOwners(len(parts)).of_all() for node in whole_nodes(own)]
    ends = np.cumsum(np.where(given, rows, 0)) * width
    found = {
        node: (n, told[end - width * n : end] if own else None, one.tobytes())
        for node, n, own, end, one in zip(nodes, rows.tolist(), given, ends.tolist(), hashes, strict=True)
    }
    return _hash_of(*_joined_node(found, 0, 0))


def _joined_node(
    found: Mapping[tuple[int, int], tuple[int, bytes | None, bytes]], first: int, depth: int
) -> tuple[int, bytes | None, bytes]:
    """Return rows, records and hash of a node: the records of a leaf that may lie higher up, else the hash."""
    if (first, depth) in found:
        return found[first, depth]
    width = CHILDREN ** (DEPTH - depth - 1)
    children = [_joined_node(found, first + width * side, depth + 1) for side in range(CHILDREN)]
    rows = sum(n for n, *_ in children)
    if rows <= MOST:
        return rows, b"".join(records or b"" for _, records, _ in children), b""
    return rows, None, _inner(b"".join(_hash_of(*child) for child in children))


def _hash_of(rows: int, records: bytes | None, of_node: bytes) -> bytes:
    return of_node if records is None else _leaf(records)


def _leaf(records: bytes) -> bytes:
    return hashlib.blake2b(records, digest_size=SIZE, person=b"raydt-rows-leaf").digest()


def _inner(hashes: bytes) -> bytes:
    return hashlib.blake2b(hashes, digest_size=SIZE, person=b"raydt-rows-node").digest()
