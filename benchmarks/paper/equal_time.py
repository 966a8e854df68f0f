"""The smallest epsilon whose time per update does not exceed a peer's, as the paper tunes it for Table 2."""

from __future__ import annotations

import math

from paper.bench import Bench, Measurement
from paper.datasets import DataSet

LARGEST = 2.0
CLOSE = 0.93  # of the peer's time: near enough
TRIALS = 8


def tune(bench: Bench, data: DataSet, target_us: float, max_depth: int) -> tuple[float, Measurement]:
    """Epsilon to two digits and its measurement, insert-only; 2 if even that takes longer than ``target_us``.

    Time is about inversely proportional to epsilon, which gives the next trial; where that leaves the bracket of a
    too slow and a fast enough epsilon, their geometric mean does. An epsilon below 1 / rows rebuilds at every update,
    as 0 does, so that 0 is tried in its place.
    """
    slow, fast, epsilon = 0.0, LARGEST, 0.5
    for _ in range(TRIALS):
        us = bench.ours(data, epsilon, max_depth).us
        if us > target_us:
            slow = max(epsilon, 1 / data.rows)
        else:
            fast = epsilon
            if epsilon == 0 or us >= CLOSE * target_us:
                break
        trial = epsilon * us / (0.97 * target_us)
        if not slow < trial < fast:
            trial = math.sqrt(slow * fast) if slow else fast / 2
        epsilon = float(f"{trial:.2g}") if trial * data.rows >= 1 else 0.0
        if epsilon == fast or 0 < epsilon <= slow:
            break
    return fast, bench.ours(data, fast, max_depth)
