"""A learner at a batch barrier: everything a checkpoint needs, at one position of the stream.

Examples are named by their birth: the number of the update that inserted them, which no two live examples share.
What never changes of an example (its id, label and features) is stored once, in a *segment* of all examples that
were born in a range and lived when it was written. ``raydt.sessions.snapshots`` takes snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.exchange.messages import GroupSnapshot, Position

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
