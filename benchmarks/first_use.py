"""What the first use of large arrays costs, by how their memory is mapped, and what a part of a matrix costs.

Run: python benchmarks/first_use.py
"""

from __future__ import annotations

import mmap
import statistics
import time
from collections.abc import Callable

import numpy as np
from measure import machine

from raydt.arrays.blocks import block, empty, turned_block

SIZE, ROWS, COLUMNS, GROUP, ROUNDS = 1 << 26, 500_000, 40, 8, 15


def took(work: Callable[[], object]) -> float:
    """CPU milliseconds, median of the rounds after one that is not counted."""
    seconds = []
    for _ in range(ROUNDS + 1):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return 1e3 * statistics.median(seconds[1:])


def filled(access: int) -> None:
    """Map memory in pages of the usual size, and write to all of it."""
    pages = np.frombuffer(mmap.mmap(-1, SIZE, access=access), dtype=np.uint8)
    pages[:] = 1


X, rows = np.random.default_rng(0).random((ROWS, COLUMNS)), np.arange(ROWS, dtype=np.int32)
columns = np.arange(GROUP)
print(machine())
print(f"first use of {SIZE >> 20} MB, ms of CPU time:")
print(f"  shared {took(lambda: filled(mmap.ACCESS_WRITE)):.1f}, private {took(lambda: filled(mmap.ACCESS_COPY)):.1f}")
print(f"  raydt.arrays.blocks.empty {took(lambda: empty(SIZE, np.uint8).fill(1)):.1f}")
by_numpy, by_block = took(lambda: X[np.ix_(rows, columns)]), took(lambda: block(X, rows, columns))
print(f"{GROUP} of {COLUMNS} columns of {ROWS:,} rows, ms of CPU time:")
print(f"  X[np.ix_(rows, columns)] {by_numpy:.1f}, block {by_block:.1f}")
by_numpy, by_block = took(lambda: X[rows, :GROUP].T.copy()), took(lambda: turned_block(X, rows, columns))
print(f"  X[rows, :{GROUP}].T.copy() {by_numpy:.1f}, turned_block {by_block:.1f}")
