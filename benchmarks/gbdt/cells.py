"""What a value costs until its bin is known, and a row until it is in a histogram: CPU time of the kernels alone.

The bin of a value beside ``numpy.searchsorted``. A histogram of all rows, and of one in twenty, whose cells are not in
the cache yet; without lists, and with a list of 4 to 8 entries for each row. 1,000,000 rows, 25 features.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gbdt.command import Request
from kit import progress, show

from raydt.arrays.kernel import kernel
from raydt.batches.binning import Cells, encode, learn_bins
from raydt.examples.updates import NO_WEIGHTS, NUMERIC
from raydt.learners.gbdt.candidates import add_cells

ROWS, COLUMNS, CUTS, LISTED = 1_000_000, 25, (15, 63, 254, 1023), 100


@kernel
def _add(slots: Any, g: Any, cells: Any, segment: Any, sums: Any) -> None:
    add_cells(slots, g, NO_WEIGHTS, False, cells, segment, sums)


def _seconds(work: Callable[[], object], repeats: int) -> float:
    """Median CPU seconds after a call that is not counted."""
    taken = []
    for _ in range(repeats + 1):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return statistics.median(taken[1:])


def _searched(repeats: int) -> list[list[str]]:
    rng = np.random.default_rng(1)
    X, none, rows = rng.random((1 << 14, COLUMNS)), np.empty(0, dtype=np.int32), []
    slots, codes = np.arange(len(X), dtype=np.int32), np.empty((COLUMNS, len(X)), dtype=np.uint16)
    for cuts in CUTS:
        bins = learn_bins(X, np.full(COLUMNS, NUMERIC, dtype=np.int8), cuts + 1, "quantile", none)
        parts = [bins.values[a:b] for a, b in zip(bins.starts[:-1], bins.starts[1:], strict=True)]

        def with_numpy(parts: list[Any] = parts) -> list[Any]:
            return [np.searchsorted(part, X[:, j]) for j, part in enumerate(parts)]

        own = _seconds(lambda bins=bins: encode(X, bins, slots, codes), repeats)  # type: ignore[misc]
        assert all(np.array_equal(ours, theirs) for ours, theirs in zip(codes, with_numpy(), strict=True))
        rows.append([str(cuts), *(f"{1e9 * s / X.size:.1f}" for s in (own, _seconds(with_numpy, repeats)))])
        progress(*rows[-1])
    return rows


def _added(repeats: int) -> list[list[str]]:
    rng, per = np.random.default_rng(1), CUTS[2] + 2
    first = np.arange(COLUMNS, dtype=np.int64) * per
    segment = (np.arange(COLUMNS)[:, None] * 26 + np.arange(per) * 26 // per).ravel()
    segment = np.append(segment, np.arange(LISTED) + 26 * COLUMNS).astype(np.uint32)
    sums = np.zeros((26 * COLUMNS + LISTED + 1, 2), dtype=np.int64)
    matrix, columns = rng.integers(0, per, (ROWS, COLUMNS), dtype=np.uint8), np.empty((0, ROWS), dtype=np.uint8)
    begin = np.arange(ROWS, dtype=np.int64) * 8
    values = (rng.integers(0, LISTED, 8 * ROWS) + COLUMNS * per).astype(np.uint32)
    lists = {
        "without lists": (begin, begin, values[:0]),
        "with lists": (begin, begin + rng.integers(4, 9, ROWS), values),
    }
    table = []
    for name, three in lists.items():
        cells, row = Cells(columns, matrix, first, *three), [name]
        for share in (1.0, 0.05):
            slots = np.flatnonzero(rng.random(ROWS) < share).astype(np.int32)
            g = rng.integers(-60_000, 60_000, len(slots)).astype(np.int32)
            taken = _seconds(lambda s=slots, g=g, c=cells: _add(s, g, c, segment, sums), repeats)  # type: ignore[misc]
            row.append(f"{1e9 * taken / len(slots):.1f}")
        table.append(row)
        progress(*row)
    return table


def run(request: Request) -> None:
    """Print both tables."""
    show("The bin of a value, ns", ["cuts", "raydt", "numpy.searchsorted"], _searched(request.seeds))
    show("A row of 25 features into a histogram, ns", ["", "all rows", "one in twenty"], _added(request.seeds))
