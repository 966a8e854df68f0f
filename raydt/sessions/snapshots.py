"""Taking a snapshot of a learner at a batch barrier, and where its next segment of rows begins.

Invariant: a snapshot is taken between two batches, and within the numbered exchange, so that the arrays the shards set
aside and those the coordinator returns belong to the same position, whichever message is lost, repeated or late.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from raydt.arrays.types import Arrays, Ints
from raydt.examples.row_owners import joined_by_birth
from raydt.exchange.meeting import together
from raydt.exchange.messages import SET_ASIDE, Ask, Buckets, Exchange
from raydt.exchange.snapshot import OWNED, Owned, Segment, Snapshot, living
from raydt.learners.batch_coordinator import BatchCoordinator


def take_snapshot(coordinator: BatchCoordinator, segments: Sequence[Segment] = ()) -> Exchange[Snapshot]:
    """Take the coordinator's half of a snapshot after those of the shards, but for stored ``segments``."""
    yield from coordinator.gather_state()
    segments = list(takewhile(lambda segment: segment.owned == coordinator.rows_are_owned, segments))
    if coordinator.rows_are_owned:
        return (yield from _snapshot_of_owners(coordinator, segments))
    slots = coordinator.in_order_of_birth()
    born = coordinator.born(slots)
    since = next_segment(born, segments)
    stored = int(np.searchsorted(born, since))
    aside, *_ = yield Ask(SET_ASIDE, {"slots": slots, "stored": stored})
    return Snapshot(since, born, coordinator.rows(slots[stored:]), coordinator.state(slots), aside)


def _snapshot_of_owners(coordinator: BatchCoordinator, segments: Sequence[Segment]) -> Exchange[Snapshot]:
    """As :func:`take_snapshot`, where shards own rows: they agree on the order of these, and the coordinator counts."""
    counted = yield Ask("living", {"edges": _edges(segments)})
    live = np.sum(counted, axis=0).tolist()
    since = _first_of_next(live, segments)
    kept = sum(segment.first < since for segment in segments)
    yield from together("order", {"since": since})
    none = np.empty(0, dtype=np.int32)
    aside, *_ = yield Ask(SET_ASIDE, {"slots": none, "stored": 0})
    state = coordinator.state(none)
    owned = Owned([*live[:kept], sum(live[kept:])], state.pop(OWNED))
    return Snapshot(since, np.empty(0, dtype=np.int64), {}, state, aside, owned=owned)


def next_segment(born: Ints, segments: Sequence[Segment]) -> int:
    """Return the birth from which on the next segment holds all live examples; it supersedes segments from there on.

    A segment is written again together with those after it once they have as many live examples as it has, so that n
    examples lie in O(log n) segments and each is written O(log n) times; and all are, once most of what is stored is
    deleted. ``born`` of the live examples ascends, ``segments`` are in order. O(k log n).
    """
    return _first_of_next(living(born, _edges(segments)).tolist(), segments) if segments else 0


def _edges(segments: Sequence[Segment]) -> Ints:
    """Return where each segment begins and the last one ends."""
    return np.array([segment.first for segment in segments] + [segments[-1].stop if segments else 0], dtype=np.int64)


def _first_of_next(live: Sequence[int], segments: Sequence[Segment]) -> int:
    """As :func:`next_segment`, from the live examples of each segment and of those after all (:func:`living`)."""
    *stored, total = live
    if not segments or sum(segment.rows for segment in segments) > 2 * sum(stored):
        return 0
    first = segments[-1].stop
    for segment, alive in zip(reversed(segments), reversed(stored), strict=True):
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
    if snapshot.owned is not None:
        return {**snapshot.state, **joined_by_birth(buckets)}, groups
    return {**snapshot.state, **snapshot.rows, "born": snapshot.born}, groups
