"""The two kinds of target: class codes (int32, -1 where there is none) and numbers (float64, NaN where there is none).

Invariant: the dtype of an array says which kind it holds, so that code can serve both kinds without a flag. Predictions
are arrays of the same two kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from raydt.arrays.types import AnyArray, Bools, Floats, Ints
from raydt.messages import message

#: Class codes or numbers, shape (n,).
Targets = AnyArray

CODES = np.dtype(np.int32)
NUMBERS = np.dtype(np.float64)

#: Most classes of any learner. A tree counts every class at every node, so that time and memory are O(nodes x classes):
#: where each label is its own class, as ids are, that is quadratic in the rows and a rebuild cubic.
MOST_CLASSES = 1000

#: Least and largest absolute value of a number other than 0. Squares of such numbers and of their differences, and sums
#: of these squares, are normal float64; learners, metrics and audits rely on it.
NUMBERS_FROM, NUMBERS_TO = 1e-140, 1e140
OUT_OF_RANGE = message("examples.label_range", least=NUMBERS_FROM, most=NUMBERS_TO)


def out_of_range(numbers: Floats) -> Bools:
    """Mask of the numbers that no learner takes, shape (n,); NaN is not among them."""
    size = np.abs(numbers)
    mask: Bools = (size > NUMBERS_TO) | ((size < NUMBERS_FROM) & (size > 0.0))
    return mask


def dtype_of(regression: bool) -> np.dtype[Any]:
    """The dtype of what a learner is taught."""
    return NUMBERS if regression else CODES


def no_targets(n: int, dtype: np.dtype[Any]) -> Targets:
    """``n`` targets, none of which is there."""
    return np.full(n, np.nan if dtype == NUMBERS else -1, dtype=dtype)


def there(targets: Targets) -> Bools:
    """Mask of the targets that are there, shape (n,)."""
    mask: Bools = ~np.isnan(targets) if targets.dtype == NUMBERS else targets >= 0
    return mask


def in_order(labels: Sequence[Any], positive: bool = False) -> Ints:
    """Class codes in ascending order of their labels, shape (classes,), where ``labels`` are those of codes 0, 1, ...

    Numbers and truth values ascend by size, strings by code points. Under ``positive`` class 0 is the rest whatever it
    is called, and comes first. O(K log K).
    """
    codes = range(len(labels))
    return np.array(codes if positive else sorted(codes, key=labels.__getitem__), dtype=np.int64)


def classes_in(targets: Targets) -> int:
    """The largest class code + 1; 0 where there is none, and of numbers. O(n)."""
    return 0 if targets.dtype == NUMBERS else int(targets.max(initial=-1)) + 1
