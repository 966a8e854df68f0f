"""ADWIN in plain loops: buckets are a list, the oldest first, and every cut is compared in full.

Written from Bifet and Gavalda, Learning from time-changing data with adaptive windowing (SDM 2007), section 4, with the
constants of river.
"""

from __future__ import annotations

import math

CLOCK, MOST_BUCKETS, LEAST_SIDE, GRACE = 32, 5, 5, 10


class SlowAdwin:
    """Feed outcomes (1: wrong) to :meth:`update`; it returns None, or what has changed."""

    def __init__(self, delta: float) -> None:
        self.delta = delta
        self.buckets: list[tuple[int, int]] = []  # size, errors
        self.n = 0

    def update(self, error: int) -> tuple[int, float, float] | None:
        """The length of the window and the shares of errors before and after the clearest cut, if there is one."""
        self.buckets.append((1, error))
        self.n += 1
        size = 1
        while sum(bucket[0] == size for bucket in self.buckets) > MOST_BUCKETS:
            at = next(k for k, bucket in enumerate(self.buckets) if bucket[0] == size)
            self.buckets[at : at + 2] = [(2 * size, self.buckets[at][1] + self.buckets[at + 1][1])]
            size *= 2
        if self.n % CLOCK or self.n <= GRACE:
            return None
        total = sum(errors for _, errors in self.buckets)
        variance = total / self.n * (1 - total / self.n)
        doubt = math.log(2 * math.log(self.n) / self.delta)
        cuts = []
        for k in range(1, len(self.buckets)):
            old = sum(size for size, _ in self.buckets[:k])
            new = self.n - old
            before = sum(errors for _, errors in self.buckets[:k]) / old
            after = sum(errors for _, errors in self.buckets[k:]) / new
            if old < LEAST_SIDE or new < LEAST_SIDE:
                continue
            inverse = 1 / (old - LEAST_SIDE + 1) + 1 / (new - LEAST_SIDE + 1)
            if abs(before - after) > math.sqrt(2 * inverse * variance * doubt) + 2 / 3 * doubt * inverse:
                cuts.append(((before - after) ** 2 * old * new, self.n, before, after))
        if not cuts:
            return None
        self.buckets, self.n = [], 0
        return max(cuts, key=lambda cut: cut[0])[1:]
