"""Calls of a kernel whose types are known: the same results, before and after they are, and in copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import Repeated, kernel


class Pair(NamedTuple):
    """Arrays as kernels take them."""

    a: Any
    b: Any


@kernel
def weighted_sum(pair: Any, times: int, doubled: bool) -> int:
    """Sum of products."""
    found = np.int64(0)
    for i in range(len(pair.a)):
        found += pair.a[i] * pair.b[i]
    result: int = found * times * (2 if doubled else 1)
    return result


def test_calls_give_the_same_whether_types_are_looked_at_or_not() -> None:
    """Also with arrays of other lengths, and NumPy's numbers."""
    repeated = Repeated(weighted_sum)
    for n in range(40):
        pair = Pair(np.arange(n, dtype=np.int64), np.full(n, 3, dtype=np.int32))
        assert repeated(pair, np.int64(n), n % 2 == 0) == weighted_sum(pair, n, n % 2 == 0)
    assert repeated._called is not weighted_sum


def test_copies_look_again() -> None:
    """What is called cannot be copied; the kernel can, by its name."""
    repeated = Repeated(weighted_sum)
    pair = Pair(np.arange(3, dtype=np.int64), np.full(3, 3, dtype=np.int32))
    for _ in range(20):
        repeated(pair, 1, False)
    for other in (copy.deepcopy(repeated), pickle.loads(pickle.dumps(repeated))):
        assert other._called is weighted_sum
        assert other(pair, 1, True) == 18
