"""Counters and limits that audits of finders compute again from their definitions (``docs/explanation/guarantees.md``).

Nothing of the fast path is imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.types import Bools, Floats, Ints
from raydt.messages import Message, message


def _parts(counts: Ints, unit: int) -> Floats:
    """k log k of counts of k rows, in units."""
    values, at = np.unique(counts, return_inverse=True)
    of_values = np.array([k * math.log(max(k, 1) / unit) for k in values.tolist()])
    parts: Floats = of_values[at].reshape(counts.shape)
    return parts


def nats(size: Ints, ones: Ints, unit: int = 1) -> Floats:
    """Entropy of a side times its rows; a row is ``unit`` units of a count."""
    nats: Floats = _parts(size, unit) - _parts(size - ones, unit) - _parts(ones, unit)
    return nats


def score_of_counts(entropy: bool, n: Ints | int, c1: Ints | int, n1: Ints, c11: Ints, unit: int = 1) -> Floats:
    """Impurity of both sides of splits by their share of the rows; n1 is 0 for the impurity of the rows themselves."""
    sides = [(n1, c11), (n - n1, c1 - c11)]
    if entropy:
        of_sides = [nats(size, ones, unit) for size, ones in sides]
        scores: Floats = (of_sides[0] + of_sides[1]) / np.maximum(n, 1)
        return scores
    halves = [
        np.where(size > 0, (size - ones).astype(np.float64) * ones / np.maximum(size, 1), 0.0) for size, ones in sides
    ]
    scores = 2.0 * (halves[0] + halves[1]) / np.maximum(n, 1)
    return scores


class BucketLimits(NamedTuple):
    """Limits and keys by number of the bucket; ``exact`` ones hold rho = 0, or rho = 1 if mirrored."""

    entropy: bool
    unit: int  #: A row is so many units of a count.
    s: Floats
    t: Floats
    mu: Floats
    mirrored: Bools
    exact: Bools

    @classmethod
    def of(cls, finder: str, alpha: float, unit: int = 1) -> BucketLimits:
        """The buckets of ``updgini`` or ``updent``; of rows there are fewer than 2**31, of units up to 2**48."""
        if finder == "updgini":
            beta = alpha / (alpha + 2)
            half = np.arange(math.floor(2 / beta) + 1) / 2
            never = np.zeros(len(half), dtype=np.bool_)
            return cls(False, unit, (half - 0.25) * beta, (half + 0.75) * beta, (half + 0.25) * beta, never, never)
        last = math.floor(2 * math.log(31 if unit == 1 else 48) / math.log1p(alpha))
        low = [2.0 ** -((1 + alpha) ** (k / 2 + 0.75)) for k in range(last + 1)]
        high = [2.0 ** -((1 + alpha) ** (k / 2 - 0.25)) for k in range(last + 1)]
        s, t, mu = np.array([0.0, *low]), np.array([0.0, *high]), np.array([0.0, *low])
        mirrored, exact = np.repeat([False, True], len(s)), np.tile(np.arange(len(s)) == 0, 2)
        return cls(True, unit, np.tile(s * (1 + 1e-9), 2), np.tile(t * (1 - 1e-9), 2), np.tile(mu, 2), mirrored, exact)

    def outside(self, n: Ints | int, c1: Ints | int, n1: Ints, c11: Ints, bucket: Ints) -> Bools:
        """Whether rho of each feature is outside the limits of its bucket."""
        own = np.where(self.mirrored[bucket], n1 - c11, c11)
        total = np.where(self.mirrored[bucket], n - c1, c1)
        s, t = self.s[bucket], self.t[bucket]
        below = (s * n1 - own < s * n - total) & (s > 0)
        above = (own - t * n1 < total - t * n) & (t < 1)
        outside: Bools = below | above
        return outside

    def keys(self, n1: Ints, c11: Ints, bucket: Ints) -> Floats:
        """Score minimised by the feature that represents its bucket."""
        c10, mu = n1 - c11, self.mu[bucket]
        if not self.entropy:
            a, b = np.where(mu < 0.5, 0.0, -2.0 * mu), np.where(mu < 0.5, -2.0 * (1.0 - mu), 0.0)
            keys: Floats = 2.0 * (c10.astype(np.float64) * c11 / n1) + a * c10 + b * c11
            return keys
        logs = np.array([[math.log1p(-m), math.log(m)] if m else [0.0, 0.0] for m in self.mu.tolist()])[bucket]
        mirrored = self.mirrored[bucket]
        a, b = np.where(mirrored, logs[:, 1], logs[:, 0]), np.where(mirrored, logs[:, 0], logs[:, 1])
        keys = nats(n1, c11, self.unit) + a * c10 + b * c11
        return keys


def compare_group(
    number: int, group: Mapping[str, Ints], counted: Mapping[str, Ints], n: Ints | int, c1: Ints | int, buckets: Any
) -> list[Message]:
    """Compare a group's counters with those ``counted`` again, and features with the limits of ``buckets``."""
    if not all(np.array_equal(group[name], column) for name, column in counted.items()):
        return [message("audits.group_counts", what="counters", group=number)]
    bucket, feature = group["bucket"].astype(np.int64), counted["feature"]
    there = bucket == -1 if buckets is None else (bucket >= 0) & (bucket < len(buckets.s))
    if not there.all():
        return [message("audits.bucket", feature=feature[~there][0], bucket=bucket[~there][0])]
    if buckets is None:
        return []
    outside = buckets.outside(n, c1, counted["n1"], counted["c11"], bucket)
    if not outside.any():
        return []
    first = f"{feature[outside][0]}" + (f" at node {counted['node'][outside][0]}" if "node" in counted else "")
    count = int(outside.sum())
    return [message("audits.outside", features=count, group=number, first=first, bucket=bucket[outside][0])]
