"""One digest for a sequence of named arrays, the same on every machine.

Invariant: two sequences have the same digest exactly if names, order, dtypes, shapes and little-endian bytes are equal
(``docs/reference/formats.md``). Which arrays describe a model is the learner's to say; what is large enters by the root
of a tree of hashes (``raydt.examples.row_digest``, ``raydt.trees.packed_trees``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import AnyArray, Ints
from raydt.arrays.kernel import emitted_kernel, inner_kernel, kernel
from raydt.messages import message

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
