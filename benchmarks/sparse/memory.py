"""Bytes per feature of a million: of those that were seen, and of those that were not."""

from __future__ import annotations

import numpy as np
from kit import progress, show
from sparse.command import Request
from sparse.contestants import CONTESTANTS, new, take
from sparse.data import Steps

FEATURES = 1_000_000
SEEN = (0, 10_000, 100_000, 1_000_000)
ONES = 10


def rows_of(seen: int, d: int, seed: int = 0) -> Steps:
    """Rows with ``ONES`` features each, in which ``seen`` of ``d`` features are 1 once."""
    rng = np.random.default_rng(seed)
    feature = rng.choice(d, seen, replace=False).astype(np.int32)
    indptr = np.append(np.arange(0, seen, ONES), seen)
    feature = np.concatenate([np.sort(part) for part in np.split(feature, indptr[1:-1])])
    n = len(indptr) - 1
    return Steps(np.ones(n, dtype=np.int8), rng.integers(0, 2, n, dtype=np.int8), indptr, feature)


def measure(who: str, seen: int, d: int) -> int:
    """Bytes of all arrays."""
    finder = new(who)
    if seen:
        take(finder, rows_of(seen, d), query=False)
    return finder.nbytes()


def run(request: Request) -> None:
    """Print the table."""
    rows = []
    for who in CONTESTANTS:
        empty = measure(who, 0, FEATURES)
        cells = [who, f"{empty:,}"]
        for seen in SEEN[1:]:
            found = measure(who, seen, FEATURES)
            cells += [f"{found / 2**20:.1f}", f"{(found - empty) / seen:.0f}"]
        same = measure(who, SEEN[1], FEATURES) - measure(who, SEEN[1], 2 * SEEN[1])
        rows.append([*cells, f"{same / (FEATURES - 2 * SEEN[1]):.0f}"])
        progress(*rows[-1])
    header = ["", "nothing seen, bytes"]
    header += [text for seen in SEEN[1:] for text in (f"{seen:,} seen, MB", "bytes per seen")]
    note = "All arrays of a finder, room to grow included; rows are kept elsewhere."
    show(f"Memory, d = {FEATURES:,}", [*header, "bytes per unseen"], rows, note)
