"""Taking a snapshot of a learner at a batch barrier, and where its next segment of rows begins.

Invariant: a snapshot is taken between two batches, and within the numbered exchange, so that the arrays the shards set
aside and those the coordinator returns belong to the same position, whichever message is lost, repeated or late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.examples.row_owners import joined_buckets
from raydt.exchange.messages import SET_ASIDE, Ask, Buckets, Exchange
from raydt.exchange.snapshot import Segment, Snapshot
from raydt.learners.batch_coordinator import BatchCoordinator

Arrays = dict[str, "npt.NDArray[Any]"]


def take_snapshot(coordinator: BatchCoordinator, segments: Sequence[Segment] = ()) -> Exchange[Snapshot]:
    """Take the coordinator's half of a snapshot after those of the shards, but for stored ``segments``."""
    yield from coordinator.gather_state()
    slots = coordinator.in_order_of_birth()
    born = coordinator.born(slots)
    since = next_segment(born, segments)
    stored = int(np.searchsorted(born, since))
    yield from coordinator.gather_rows(slots[stored:])
    aside, *_ = yield Ask(SET_ASIDE, {"slots": slots, "stored": stored})
    return Snapshot(since, born, coordinator.rows(slots[stored:]), coordinator.state(slots), aside)


def next_segment(born: npt.NDArray[np.int64], segments: Sequence[Segment]) -> int:
    """Return the birth from which on the next segment holds all live examples; it supersedes segments from there on.

    A segment is written again together with those after it once they have as many live examples as it has, so that n
    examples lie in O(log n) segments and each is written O(log n) times; and all are, once most of what is stored is
    deleted. ``born`` of the live examples ascends, ``segments`` are in order. O(k log n).
    """
    if not segments:
        return 0
    first = segments[-1].stop
    edges = np.searchsorted(born, [segment.first for segment in segments] + [first])
    live = np.diff(edges).tolist()
    if sum(segment.rows for segment in segments) > 2 * sum(live):
        return 0
    total = len(born) - int(edges[-1])
    for segment, alive in zip(reversed(segments), reversed(live), strict=True):
        if alive > total:
            break
        total += alive
        first = segment.first
    return first


def whole(snapshot: Snapshot) -> tuple[Arrays, dict[int, Arrays]]:
    """The complete state of coordinator and groups, of a snapshot that was taken with nothing stored."""
    groups: dict[int, Arrays] = {}
    buckets: dict[Buckets, Arrays] = {}
    for part in snapshot.parts:
        for whose, found in part.items():
            arrays = {**found.rows, **found.state}
            if isinstance(whose, Buckets):
                buckets[whose] = arrays
            else:
                groups[whose] = arrays
    of_rows = joined_buckets(snapshot.rows["id"], buckets) if buckets else {}
    return {**snapshot.state, **of_rows, **snapshot.rows, "born": snapshot.born}, groups
