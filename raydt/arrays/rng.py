"""Counter-based randomness: a number is a pure function of (seed, purpose, counter).

No generator object, no hidden state: what is drawn does not depend on how often, in which order or in which process
anything else is drawn. The numbers are those of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
generators", OOPSLA 2014) started at a key made of seed and purpose; ``counter`` is the place in that sequence.

Invariant: the NumPy functions and their ``*_at`` twins for Numba give identical bits. Only integer operations and one
exact float multiplication are used, so the values do not depend on platform or library; for the same reason there is
no normal deviate here (it needs ``log``, which differs in the last bit).
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.types import Floats, Ints

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ONE, _11, _27, _30, _31 = (np.uint64(n) for n in (1, 11, 27, 30, 31))
_TO_UNIT = 2.0**-53


def stream_key(seed: int, purpose: str) -> np.uint64:
    """Key of the sequence that ``purpose`` draws from under ``seed``: any integer, any name."""
    key: np.uint64 = np.uint64(int.from_bytes(hashlib.sha256(f"{seed}:{purpose}".encode()).digest()[:8], "little"))
    return key


def bits(key: np.uint64, counter: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """Return 64 random bits of a :func:`stream_key` for each counter, which is at least 0; shape of ``counter``."""
    z = counter.astype(np.uint64)
    z += _ONE
    z *= _GAMMA
    z += key
    shifted = z >> _30
    z ^= shifted
    z *= _MIX_1
    z ^= np.right_shift(z, _27, out=shifted)
    z *= _MIX_2
    z ^= np.right_shift(z, _31, out=shifted)
    return z


def uniform(key: np.uint64, counter: npt.NDArray[np.integer]) -> Floats:
    """Uniform float64 in [0, 1), a multiple of 2**-53, for each counter; shape of ``counter``."""
    z = bits(key, counter)
    z >>= _11
    unit = z.astype(np.float64)
    unit *= _TO_UNIT
    return unit


def below(key: np.uint64, counter: npt.NDArray[np.integer], n: int | npt.NDArray[np.integer]) -> Ints:
    """Integer in [0, n) for each counter (one n, or one for each); probabilities are equal to n * 2**-53 (relative)."""
    return (uniform(key, counter) * n).astype(np.int64)


def permutation(key: np.uint64, n: int) -> Ints:
    """The numbers 0 to ``n`` - 1 in the order of their random bits, of equals the smaller first. O(n log n)."""
    return np.argsort(bits(key, np.arange(n)), kind="stable")


@kernel
def bits_at(key: np.uint64, counter: int) -> np.uint64:
    """:func:`bits` of one counter, for use inside Numba kernels."""
    z = key + (np.uint64(counter) + _ONE) * _GAMMA
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    mixed: np.uint64 = z ^ (z >> _31)
    return mixed


@kernel
def uniform_at(key: np.uint64, counter: int) -> float:
    """:func:`uniform` of one counter, for use inside Numba kernels."""
    unit: float = np.float64(bits_at(key, counter) >> _11) * _TO_UNIT
    return unit


@kernel
def below_at(key: np.uint64, counter: int, n: int) -> int:
    """:func:`below` of one counter, for use inside Numba kernels."""
    number: int = np.int64(uniform_at(key, counter) * n)
    return number
