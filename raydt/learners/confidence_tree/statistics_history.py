"""The statistics of a confidence tree at moments within a batch.

Windows are processed as if no leaf were split, and steps after a split again: changes do not come to light in the order
of the stream. Each is therefore noted with the stamp of its step, and the moments are put together at the end of the
batch, from what the tree was at its beginning.

Invariant: the statistics at a moment are those of a batch that ends there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from raydt.arrays.types import Ints


@dataclass(slots=True)
class _Period:
    """Changes after a step at which the statistics are known."""

    stamp: int
    statistics: Mapping[str, int]
    splits: list[tuple[int, int, bool]] = field(default_factory=list)  #: Stamp, depth, and whether for a tie.
    checks: list[Ints] = field(default_factory=list)


class StatisticsHistory:
    """Changes of one batch by the stamps of their steps, from the statistics before it on."""

    def __init__(self, statistics: Mapping[str, int]) -> None:
        self._periods = [_Period(-1, statistics)]

    def split(self, stamp: int, depth: int, *, tie: bool) -> None:
        """Note that a leaf of this depth was split, for a tie or because the rule holds."""
        self._periods[-1].splits.append((stamp, depth, tie))

    def checked(self, stamps: Ints) -> None:
        """Note checks of leaves."""
        self._periods[-1].checks.append(stamps)

    def know(self, stamp: int, statistics: Mapping[str, int], *, at_once: bool = False) -> None:
        """Note the statistics after a step; nothing after it has been processed.

        ``at_once``: whatever was noted since the last such step has taken effect with this one only.
        """
        if at_once:
            self._periods[-1].splits, self._periods[-1].checks = [], []
        self._periods.append(_Period(stamp, statistics))

    def after(self, updates: int) -> dict[str, int]:
        """Statistics of the tree once so many updates of the stream had been applied. O(changes)."""
        bound = 2 * updates  # stamps of later steps are not below it
        period = next(period for period in reversed(self._periods) if period.stamp < bound)
        splits = [(depth, tie) for stamp, depth, tie in period.splits if stamp < bound]
        was = period.statistics
        return {
            "nodes": was["nodes"] + 2 * len(splits),
            "leaves": was["leaves"] + len(splits),
            "depth": max([was["depth"], *(depth + 1 for depth, _ in splits)]),
            "checks": was["checks"] + sum(int(np.count_nonzero(stamps < bound)) for stamps in period.checks),
            "splits": was["splits"] + len(splits),
            "ties": was["ties"] + sum(tie for _, tie in splits),
            "restarted": was["restarted"],
        }
