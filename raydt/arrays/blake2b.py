"""BLAKE2b (RFC 7693) with 32 bytes, without a key, for kernels: thousands of short hashes in one call.

Most of ``hashlib``'s time for a short hash goes to Python objects. Invariant: the bytes are those of
``hashlib.blake2b(data, digest_size=32, person=person)``, to which the tests compare them.

Symbols (RFC 7693): h = ``state``, m = ``words``, v[0..15] = ``a0`` .. ``d3``, t = ``seen``, G = :func:`_mix`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import inlined_kernel, inner_kernel

#: Bytes of a hash and of a block.
SIZE, BLOCK = 32, 128
#: Words of scratch: the state, and one block.
SCRATCH = 24
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
_8, _16, _24, _32, _40, _48, _56, _63 = (np.uint64(bits) for bits in (8, 16, 24, 32, 40, 48, 56, 63))
_1, _ALL, _BYTE = np.uint64(1), np.uint64(2**64 - 1), np.uint64(0xFF)

Words = npt.NDArray[np.uint64]


def start(person: bytes) -> Words:
    """State before the first block: the initial vector and the parameters, uint64, shape (8,)."""
    parameters = np.zeros(8, dtype="<u8")
    parameters[0] = SIZE | 1 << 16 | 1 << 24  # no key, and a sequence of bytes, not a tree
    parameters[6:] = np.frombuffer(person.ljust(16, b"\0"), dtype="<u8")
    state: Words = IV ^ parameters.astype(np.uint64)
    return state


@inlined_kernel
def _mix(a: Any, b: Any, c: Any, d: Any, x: Any, y: Any) -> Any:
    a = a + b + x
    d ^= a
    d = (d >> _32) | (d << _32)
    c = c + d
    b ^= c
    b = (b >> _24) | (b << _40)
    a = a + b + y
    d ^= a
    d = (d >> _16) | (d << _48)
    c = c + d
    b ^= c
    b = (b >> _63) | (b << _1)
    return a, b, c, d


@inlined_kernel
def _round(v: Any, words: Any, r: int) -> Any:
    a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3 = v
    a0, b0, c0, d0 = _mix(a0, b0, c0, d0, words[SIGMA[r, 0]], words[SIGMA[r, 1]])
    a1, b1, c1, d1 = _mix(a1, b1, c1, d1, words[SIGMA[r, 2]], words[SIGMA[r, 3]])
    a2, b2, c2, d2 = _mix(a2, b2, c2, d2, words[SIGMA[r, 4]], words[SIGMA[r, 5]])
    a3, b3, c3, d3 = _mix(a3, b3, c3, d3, words[SIGMA[r, 6]], words[SIGMA[r, 7]])
    a0, b1, c2, d3 = _mix(a0, b1, c2, d3, words[SIGMA[r, 8]], words[SIGMA[r, 9]])
    a1, b2, c3, d0 = _mix(a1, b2, c3, d0, words[SIGMA[r, 10]], words[SIGMA[r, 11]])
    a2, b3, c0, d1 = _mix(a2, b3, c0, d1, words[SIGMA[r, 12]], words[SIGMA[r, 13]])
    a3, b0, c1, d2 = _mix(a3, b0, c1, d2, words[SIGMA[r, 14]], words[SIGMA[r, 15]])
    return a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3


@inner_kernel
def _compress(state: Any, words: Any, seen: Any, last: Any) -> None:
    h0, h1, h2, h3, h4, h5, h6, h7 = state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7]
    v = (h0, h1, h2, h3, h4, h5, h6, h7, IV[0], IV[1], IV[2], IV[3], IV[4] ^ seen, IV[5], IV[6] ^ last, IV[7])
    for r in range(12):
        v = _round(v, words, r)
    for i in range(8):
        state[i] ^= v[i] ^ v[i + 8]


@inlined_kernel
def _word(data: Any, at: int) -> Any:
    """Eight bytes as a little-endian word."""
    low = np.uint64(data[at]) | np.uint64(data[at + 1]) << _8 | np.uint64(data[at + 2]) << _16
    low |= np.uint64(data[at + 3]) << _24 | np.uint64(data[at + 4]) << _32 | np.uint64(data[at + 5]) << _40
    return low | np.uint64(data[at + 6]) << _48 | np.uint64(data[at + 7]) << _56


@inner_kernel
def hash_bytes(begun: Any, data: Any, begin: int, end: int, scratch: Any, out: Any, at: int) -> None:
    """Write the hash of ``data[begin:end]`` to ``out[at : at + 32]``; both uint8, in one dimension. O(end - begin).

    ``begun`` is the :func:`start` for what is hashed, ``scratch`` has ``SCRATCH`` words.
    """
    state, words = scratch[:8], scratch[8:]
    for i in range(8):
        state[i] = begun[i]
    block = np.int64(begin)
    while True:
        rest = np.int64(end) - block
        for i in range(16):
            if 8 * i + 8 <= rest:
                words[i] = _word(data, block + 8 * i)
                continue
            words[i] = 0
            for j in range(8 * i, rest):
                words[i] |= np.uint64(data[block + j]) << np.uint64(8 * (j - 8 * i))
        if rest <= BLOCK:
            break
        _compress(state, words, np.uint64(block + BLOCK - begin), np.uint64(0))
        block += BLOCK
    _compress(state, words, np.uint64(end - begin), _ALL)
    for i in range(4):
        for j in range(8):
            out[at + 8 * i + j] = np.uint8(state[i] >> np.uint64(8 * j) & _BYTE)
