"""Which trees an example lives in, and where the sequences of the trees begin: pure functions of the seed.

*Membership.* SipHash-2-4 (Aumasson, Bernstein, INDOCRYPT 2012) of the id, under a key of 128 bits that BLAKE2b makes of
the seed, starts a sequence of SplitMix64 (``raydt.arrays.elementary``) with a number for each tree: an example lives
in the k trees of the smallest numbers. Whoever does not know the seed cannot choose ids that fill one tree.

*Nodes.* The key of a root is number ``tree`` of the sequence of the seed; those below follow from the path
(``candidates``).

``tests/oracles/forest.py`` has all of this in plain integers.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.elementary import bits_at, stream_key
from raydt.arrays.kernel import inlined_kernel, inner_kernel, kernel

_13, _16, _17, _21, _32, _64 = (np.uint64(n) for n in (13, 16, 17, 21, 32, 64))
_V0, _V1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_V2, _V3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_LENGTH, _END = np.uint64(8 << 56), np.uint64(0xFF)
_12, _UNIT = np.uint64(12), 2.0**-52


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


@inlined_kernel
def unit_at(key: np.uint64, counter: int) -> float:
    """A number in (0, 1): an odd multiple of 2**-53."""
    unit: float = (np.float64(bits_at(key, counter) >> _12) + 0.5) * _UNIT
    return unit
