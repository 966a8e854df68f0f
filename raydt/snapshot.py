"""A learner at a batch barrier: everything a checkpoint needs, of one position.

Invariant: a snapshot is taken between two batches, and within the numbered exchange, so that what the shards set
aside and what the coordinator says belong to the same position, whatever is lost, repeated or late.

Examples are named by their birth: the number of the update that inserted them, which no two live examples share.
What never changes of an example (its id, label and features) is stored once, in a *segment* of all examples that
were born in a range and lived when it was written; a later snapshot holds the examples born since, and the births of
all that live. Here is decided where the next segment begins, too: ranges are merged so that there are few of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.exchange import SET_ASIDE, Ask, Exchange, GroupSnapshot, Position

if TYPE_CHECKING:
    from raydt.learners.base import LearnerCoordinator

Arrays = dict[str, "npt.NDArray[Any]"]


class Segment(NamedTuple):
    """Examples born from ``first`` up to before ``stop``; ``rows`` of them were stored."""

    first: int
    stop: int
    rows: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """The wish for a snapshot after a batch.

    Attributes
    ----------
    stream : dict
        State of the stream after the batch.
    segments : sequence of Segment
        What is stored already, in order.
    """

    stream: dict[str, Any]
    segments: Sequence[Segment] = ()


@dataclass(slots=True)
class Snapshot:
    """A learner at a barrier.

    Attributes
    ----------
    since : int
        The examples born from here on are in ``rows``; those before are stored.
    born : ndarray of int64, shape (live examples,)
        Births of all live examples, ascending.
    rows : dict of str to ndarray
        What never changes of the examples born since, in this order.
    state : dict of str to ndarray
        Everything else the coordinator knows; arrays by example are in the order of ``born``.
    aside : tuple of int
        Epoch and number under which the shards have set their parts aside.
    parts : iterable of dict
        The feature groups by number, one shard after the other; can be taken once, by another thread too.
    """

    since: int
    born: npt.NDArray[np.int64]
    rows: Arrays
    state: Arrays
    aside: Position
    parts: Iterable[dict[int, GroupSnapshot]] = field(default=())


def take_snapshot(coordinator: LearnerCoordinator, segments: Sequence[Segment] = ()) -> Exchange[Snapshot]:
    """The coordinator's half of a snapshot, after every shard has set its own aside.

    Parameters
    ----------
    coordinator : LearnerCoordinator
        Between two batches.
    segments : sequence of Segment
        What is stored already.
    """
    slots = coordinator.in_order_of_birth()
    born = coordinator.born(slots)
    since = next_segment(born, segments)
    stored = int(np.searchsorted(born, since))
    aside, *_ = yield Ask(SET_ASIDE, {"slots": slots, "stored": stored})
    return Snapshot(since, born, coordinator.rows(slots[stored:]), coordinator.state(slots), aside)


def next_segment(born: npt.NDArray[np.int64], segments: Sequence[Segment]) -> int:
    """Birth from which on the next segment holds all live examples; segments from there on are superseded. O(k log n).

    A segment is written again together with those after it once they have as many live examples as it has, so that n
    examples lie in O(log n) segments and each is written O(log n) times; and all are, once most of what is stored is
    deleted.

    Parameters
    ----------
    born : ndarray of int64
        Of the live examples, ascending.
    segments : sequence of Segment
        In order.
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
    for part in snapshot.parts:
        groups |= {number: {**group.rows, **group.state} for number, group in part.items()}
    return {**snapshot.state, **snapshot.rows, "born": snapshot.born}, groups
