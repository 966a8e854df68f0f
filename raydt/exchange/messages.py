"""How a coordinator and its shards talk: requests as values, machines without I/O.

A coordinator's algorithm is a generator. It yields :class:`Ask` (a request to every shard; the generator receives the
replies in shard order), :class:`Tell` (no reply) or :class:`Combine` (a pass on which shards meet), and reads from
top to bottom like the paper. A driver delivers them: in process (``driver``), on Ray (``actors``), or a simulator
(``tests/simulation``).

Invariant: every delivered request carries ``(epoch, seq)``. A shard answers the number it answered last from
its saved reply, takes the next number, and refuses everything else; one request is outstanding at a time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from raydt.arrays.types import AnyArray, Int32s, Ints
from raydt.exchange.blocks import FeatureReader

Payload = Mapping[str, Any]
#: Epoch and number of a message.
Position = tuple[int, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request every shard answers with one packed array; ``each`` adds a mapping per shard to ``payload``."""

    method: str
    payload: Payload
    each: Sequence[Payload] | None = None

    def for_shard(self, index: int) -> dict[str, Any]:
        """The complete payload of one shard."""
        return {**self.payload, **(self.each[index] if self.each is not None else {})}


@dataclass(frozen=True, slots=True)
class Tell(Ask):
    """A request without a reply. It is acknowledged before the next request is sent."""


@dataclass(frozen=True, slots=True)
class Combine(Ask):
    """A pass that the shards make together, on which they meet to put together what each of them has a part of.

    At a meeting each shard has one part for every shard, in shard order. Each gets the parts made for it by the request
    :data:`MET`, and goes on to the next meeting, or to the end. So a shard may *own* what it puts together, for
    instance the sums of a range of features, and tell all what it has found. All shards meet equally often. The
    generator receives the :class:`Ended` of each.

    Shards meet among themselves (``links``), or the driver takes parts from one to the other (:func:`in_requests`).
    """


class Ended(NamedTuple):
    """The end of a pass at one shard."""

    result: Any
    met: int  #: How often the shards have met.


#: The request by which shards that have met go on: ``parts``, one of each shard.
MET = "met"


#: A coordinator's algorithm: yields requests, receives the replies of all shards, returns a result.
Exchange = Generator[Ask, list[Any], T]


def in_requests(exchange: Exchange[T]) -> Exchange[T]:
    """Return the same exchange, each :class:`Combine` of it as plain requests, for a driver to deliver."""
    try:
        request = next(exchange)
        while True:
            if not isinstance(request, Combine):
                replies = yield request
            else:
                replies = yield Ask(request.method, request.payload, request.each)
                while not isinstance(replies[0], Ended):
                    replies = yield Ask(MET, {}, [{"parts": parts} for parts in zip(*replies, strict=True)])
            request = exchange.send(replies)
    except StopIteration as end:
        result: T = end.value
        return result


#: The request that every shard answers itself, for a snapshot (``raydt.sessions.snapshots``).
SET_ASIDE = "set_aside"


class GroupSnapshot(NamedTuple):
    """One feature group in a snapshot: what never changes, of some of its examples; and all else, in full."""

    rows: dict[str, AnyArray]
    state: dict[str, AnyArray]


@dataclass(frozen=True, slots=True)
class Buckets:
    """A shard's part of the rows, where shards own whole rows: all in the buckets ``begin`` to before ``end``.

    ``raydt.examples.row_owners`` says which these are. In a snapshot they have a part of their own beside the feature
    groups: arrays of the coordinator's state that have an entry for each example, here for those of the buckets.
    """

    begin: int
    end: int

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.begin, self.end))

    def __len__(self) -> int:
        return self.end - self.begin


class ShardWorker(Protocol):
    """A learner's work on one shard."""

    columns: Ints
    reader: FeatureReader | None  #: Of a shard that reads features itself (:attr:`raydt.learners.base.Traits.reads`).

    def handle(self, method: str, payload: Payload) -> Any:
        """Answer one request."""

    def rows(self, slots: Int32s) -> dict[int, dict[str, Any]]:
        """Arrays of each owned feature group that never change, one entry for each example in ``slots``; copies."""

    def state(self, slots: Int32s) -> Mapping[Any, dict[str, Any]]:
        """All other arrays of each owned feature group and, if it owns whole rows, of its :class:`Buckets`.

        Arrays by example are in the order of ``slots``, all that live. Copies: they are written while the next batches
        change the originals.
        """

    def restore(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Replace everything by the arrays of the owned groups (both kinds, of all examples, in slots 0, 1, ...)."""


@runtime_checkable
class TrimmedWorker(Protocol):
    """A worker that has room for more than its rows and what was counted."""

    def trim(self) -> None:
        """Give up room that the next request makes again: no request may come for long."""
