"""A learner at a batch barrier: everything a checkpoint needs, at one position of the stream.

Examples are named by their birth: the number of the update that inserted them, which no two live examples share.
What never changes of an example (its id, label and features) is stored once, in a *segment* of all examples that
were born in a range and lived when it was written. ``raydt.sessions.snapshots`` takes snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.types import Arrays, Ints
from raydt.exchange.messages import Buckets, GroupSnapshot, Position

#: In a state without rows, because their owners have these: how many are live, and wait to be inserted and deleted.
OWNED = "owned"
#: In what owners have written of the rows in some buckets: births of all that are stored, also of those deleted since.
STORED = "stored"

#: What a shard has set aside of its feature groups, and of its own rows.
Parts = dict["int | Buckets", GroupSnapshot]


class Segment(NamedTuple):
    """Examples born from ``first`` up to before ``stop``; ``rows`` of them were stored."""

    first: int
    stop: int
    rows: int
    owned: bool = (
        False  #: Whether the owners of the rows, and not the coordinator, have written ids, labels and births.
    )

    @property
    def range(self) -> list[int]:
        """What a manifest says of it."""
        return list(self[:3])


class Owned(NamedTuple):
    """Numbers of examples, where the owners of the rows have these."""

    live: list[int]  #: Live examples of each segment that is stored and stays, and those that are new.
    counts: Ints  #: Shape (3,): live ones; those that wait to be inserted and to be deleted.


@dataclass(frozen=True, slots=True)
class Barrier:
    """The wish for a snapshot after a batch.

    Whoever takes the snapshot asks for ``segments`` at the last moment, since it is known only then whether the
    snapshot before is written. So a stream that is read ahead of its results can have a wish at every place where one
    is due. Which wishes come true changes no result.
    """

    stream: dict[str, Any]  #: State of the stream after the batch.
    #: Decide now: what is stored already, in order; None if there is to be no snapshot, or not yet.
    segments: Callable[[], Sequence[Segment] | None] = tuple


@dataclass(slots=True)
class Snapshot:
    """A learner at a barrier."""

    since: int  #: The examples born from here on are in ``rows``; those before are stored.
    #: Shape (live examples,): births of all live examples, ascending. None, where their owners have them: in the parts.
    born: Ints
    rows: Arrays  #: What never changes of the examples born since, in this order.
    state: Arrays  #: Everything else the coordinator knows; arrays by example are in the order of ``born``.
    aside: Position  #: Epoch and number under which the shards have set their parts aside.
    #: The feature groups by number, and the buckets of rows, one shard after the other; can be taken once, by another
    #: thread too.
    parts: Iterable[Parts] = field(default=())
    owned: Owned | None = None  #: What is known of the rows where their owners have them.


def living(born: Ints, edges: Ints) -> Ints:
    """Count births, which ascend, between neighbours of some edges, and from the last one on."""
    return np.diff(np.append(np.searchsorted(born, edges), len(born)))
