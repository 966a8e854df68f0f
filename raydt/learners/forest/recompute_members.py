"""Which trees of a forest hold which examples, by the definitions, for audits: NumPy, and nothing of the fast path."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from raydt.arrays.types import Bools, Ints
from raydt.audits.recorded_draws import Words, numbers_at
from raydt.parallel.threads import ranges, run

if TYPE_CHECKING:
    from raydt.learners.forest.options import ForestOptions

#: Rows whose trees are drawn together.
_TOGETHER = 1 << 10


def copies_of(options: ForestOptions) -> int:
    """Return the trees that each example lives in: ceil(q T), with q as it is written."""
    return max(1, math.ceil(Fraction(repr(options.sample_share)) * options.n_estimators))


def _rotated(words: Words, by: int) -> Words:
    turned: Words = (words << np.uint64(by)) | (words >> np.uint64(64 - by))
    return turned


def siphash(seed: int, ids: Ints) -> Words:
    """SipHash-2-4 of ids under the key of a seed."""
    key = hashlib.blake2b(str(seed).encode(), digest_size=16, person=b"raydt-forest").digest()
    k0, k1 = (np.uint64(int.from_bytes(key[i : i + 8], "little")) for i in (0, 8))
    number = ids.astype(np.uint64)
    starts = b"somepseudorandomlygeneratedbytes"
    v = [np.full(len(ids), int.from_bytes(starts[8 * i : 8 * i + 8], "big"), dtype=np.uint64) for i in range(4)]
    for i, word in enumerate((k0, k1, k0, k1)):
        v[i] ^= word

    def rounds(times: int) -> None:
        for _ in range(times):
            v[0] += v[1]
            v[1] = _rotated(v[1], 13) ^ v[0]
            v[0] = _rotated(v[0], 32)
            v[2] += v[3]
            v[3] = _rotated(v[3], 16) ^ v[2]
            v[0] += v[3]
            v[3] = _rotated(v[3], 21) ^ v[0]
            v[2] += v[1]
            v[1] = _rotated(v[1], 17) ^ v[2]
            v[2] = _rotated(v[2], 32)

    for word in (number, np.full(len(ids), 8 << 56, dtype=np.uint64)):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= np.uint64(255)
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def members(options: ForestOptions, ids: Ints) -> Bools:
    """Return which trees hold which examples, shape (n, T), tree after tree in memory. O(n T)."""
    trees, copies = np.arange(options.n_estimators), copies_of(options)
    held = np.zeros((len(ids), options.n_estimators), dtype=np.bool_, order="F")

    def choose(part: slice) -> None:
        for begin in range(part.start, part.stop, _TOGETHER):
            some = slice(begin, min(begin + _TOGETHER, part.stop))
            drawn = numbers_at(siphash(options.random_state, ids[some])[:, None], trees)
            chosen = drawn <= np.partition(drawn, copies - 1, axis=1)[:, [copies - 1]]
            for row in np.flatnonzero(chosen.sum(axis=1) > copies):  # of equal numbers, the first trees
                chosen[row] = False
                chosen[row, np.argsort(drawn[row], kind="stable")[:copies]] = True
            held[some] = chosen

    run([partial(choose, part) for part in ranges(len(ids), _TOGETHER, 4)])
    return held
