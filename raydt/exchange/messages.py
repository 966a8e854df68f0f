"""The messages of a coordinator and its shards: requests as values, machines without I/O.

A coordinator's algorithm is a generator. It yields :class:`Ask` (a request to every shard; the generator receives the
replies in shard order), :class:`Tell` (no reply) or :class:`Combine` (a pass on which shards meet), and reads from
top to bottom like the paper. A driver delivers them: in process (``driver``), on Ray (``actors``), or a simulator
(``tests/simulation``).

Invariant: every delivered request carries ``(epoch, seq)``. A shard answers the number it answered last from
its saved reply, takes the next number, and refuses everything else; one request is outstanding at a time.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import AnyArray, Arrays, Floats, Int32s, Ints
from raydt.errors import ConfigError, RaydtError
from raydt.messages import message

# Blocks of rows whose features the shards have read themselves: what a numbered batch says of them.
#
# A block is a range of consecutive rows of the source. Whoever numbers the updates knows the codes of its categories; a
# shard has numbered them by their first appearance among the rows of the block.


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of a source from ``start`` up to before ``stop``."""

    start: int
    stop: int
    #: Of each categorical feature, by name: the code of each of its categories, in the order of their first appearance.
    #: Of a column of tokens: the code of each of these.
    codes: Mapping[str, Ints]


class FeatureReader(Protocol):
    """A shard's way to the features it reads itself."""

    def take(self, rows: Ints, blocks: Sequence[Block]) -> tuple[Floats, SparseRows]:
        """Return the shard's features of rows in checked blocks, which are dropped behind the last row."""


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
    instance the sums of a range of features, and tell all what it has found. It says if a part is the same for all, and
    how parts are added: then it may get fewer, with the same sum (``meetings``). All shards meet equally often. The
    generator receives the :class:`EndOfPass` of each.

    Shards meet among themselves (``links``), or the driver takes parts from one to the other.
    """


class EndOfPass(NamedTuple):
    """The end of a pass at one shard."""

    result: Any
    met: int  #: How often the shards have met.


#: The request by which shards that have met go on: ``parts``, one of each shard.
MET = "met"


#: A coordinator's algorithm: yields requests, receives the replies of all shards, returns a result.
Exchange = Generator[Ask, list[Any], T]


#: The request that every shard answers itself, for a snapshot (``raydt.sessions.session``).
SET_ASIDE = "set_aside"


class GroupSnapshot(NamedTuple):
    """One feature group in a snapshot: what never changes, of some of its examples; and all else, in full."""

    rows: dict[str, AnyArray]
    state: dict[str, AnyArray]


#: Buckets of rows, and of text ids, that shards own; and in states whose parts have names of three digits.
BUCKETS, _FORMER_BUCKETS = 4096, 256
_COMPONENT = re.compile(r"(buckets|ids)-(?:([0-9]{4})-([0-9]{4})|([0-9]{3})-([0-9]{3}))")


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


def component_of(buckets: Buckets, what: str = "buckets") -> str:
    """Return the name of the component of a state that has the rows of some buckets, or the ``ids``."""
    return f"{what}-{buckets.begin:04d}-{buckets.end:04d}"


def buckets_in(component: str, what: str = "buckets") -> Buckets | None:
    """Return the buckets of a component with such a name, None of any other.

    A name of three digits is of the former 256 buckets, of which each is sixteen now.
    """
    found = _COMPONENT.fullmatch(component)
    if found is None or found[1] != what:
        return None
    begin, end = (int(former or now) for former, now in zip(found.groups()[3:], found.groups()[1:3], strict=True))
    width = 1 if found[4] is None else BUCKETS // _FORMER_BUCKETS
    return Buckets(begin * width, end * width)


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


# A learner at a batch barrier: everything a checkpoint needs, at one position of the stream.
#
# Examples are named by their birth: the number of the update that inserted them, which no two live examples share.
# What never changes of an example (its id, label and features) is stored once, in a *segment* of all examples that
# were born in a range and lived when it was written. ``raydt.sessions.session`` takes snapshots.

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
        """Return the entry of a manifest."""
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


# Named places at which a test, or an operator's drill, has this very program fail.
#
# A promise about faults is worth what its tests can do to the program, and what happens between two lines of it cannot
# be arranged from outside. So the places stay in the product, as in FoundationDB. They are off by default: a pass
# through :func:`fault` then costs one comparison with ``None``, and none lies inside a compiled kernel.
#
# Faults are asked for by :func:`injected` in this process, or by the environment variable ``RAYDT_FAULTS``, which is
# read once, when this module is imported, and handed on to the actors: a comma-separated list of
#
#     ``point@n#epoch=act``           the n-th pass through the point in a process while it is of that epoch
#     ``point/shard@n#epoch=act``     the same, but only in the process of one shard
#
# where ``epoch`` is 0 for the driver's own process, which has none, and the number of the incarnation in an actor. An
# act is ``kill`` (SIGKILL to itself), ``stop`` (SIGSTOP to itself), ``hang`` (the thread waits for ever and others work
# on, as where a network carries small messages and loses large ones) or ``raise`` (a
# :class:`~raydt.errors.RaydtError`).

VARIABLE = "RAYDT_FAULTS"

#: Every point and when it is passed. Those of ``driver``, ``checkpoint`` and ``run`` are in the driver's process.
POINTS = {
    "coordinator.before_batch": "a batch has arrived at the coordinator and nothing of it has been applied",
    "coordinator.after_batch": "a batch has been applied and its result not yet been sent",
    "coordinator.local_rebuild": "a subtree is about to be rebuilt by the coordinator, outside the compiled loop",
    "coordinator.before_snapshot": "the coordinator's part of a snapshot is complete and not yet been sent",
    "coordinator.before_restore": "a saved state has arrived at the coordinator",
    "coordinator.before_finish": "the coordinator has been asked to complete what waits for more updates",
    "shard.before_answer": "a request has arrived at a shard",
    "shard.after_answer": "a shard has done what was asked and not yet answered",
    "shard.between_meetings": "a shard has what the others have for it in the middle of a pass that they make together",
    "shard.before_block": "a shard has been asked to read rows itself, ahead of the batch that they are in",
    "shard.before_ids": "a shard has been asked for codes of text ids",
    "shard.before_ids_written": "a shard is about to write the text ids that it has, for a checkpoint",
    "shard.before_columns": "the coordinator has asked a shard for columns of rows that it does not keep itself",
    "shard.before_parts": "what a shard has set aside for a snapshot is about to be fetched, or written by it",
    "shard.between_parts": "a shard has written one of the parts it has set aside for a snapshot, and not yet the next",
    "shard.after_parts": "a shard has written what it has set aside for a snapshot, and nothing refers to it yet",
    "shard.before_restore": "a saved state has arrived at a shard",
    "driver.recorded": "the result of a batch is in the tables",
    "checkpoint.before_manifest": "all files of a checkpoint are written but the manifest",
    "checkpoint.after_manifest": "a checkpoint is committed and nothing that it makes superfluous is deleted",
    "follow.planned": "a plan of what is read next from a live source is on the disk, and no row of it has been read",
    "requests.appended": "a receipt of requests of the source is on the disk, and no checkpoint knows of it",
    "chapter.closed": "a chapter is closed, and the next one has not begun",
    "chapter.between_files": "a chapter that expires has lost its config, and not yet its other files",
    "run.before_compaction": "the stream has ended and the parts of the tables are not yet one",
    "run.before_summary": "everything but the summary is written",
    "run.before_report": "the summary is written and the report is not",
}

ACTS = ("kill", "stop", "hang", "raise")

_SPEC = re.compile(r"(?P<point>[a-z_.]+)(?:/(?P<shard>\d{1,6}))?@(?P<n>\d{1,9})#(?P<epoch>\d{1,9})=(?P<act>[a-z]+)")

#: What to do at a point. It may raise.
Handler = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Order:
    """One act that was asked for."""

    point: str
    shard: int | None
    n: int
    epoch: int
    act: str


class Plan:
    """The acts that ``RAYDT_FAULTS`` asks for, as the handler of one process.

    Parameters
    ----------
    spec : str
        See the module.

    Raises
    ------
    ConfigError
        The text is not a list of ``point@n#epoch=act``, or names a point or an act that does not exist.
    """

    def __init__(self, spec: str) -> None:
        self._orders = [_order(part.strip()) for part in spec.split(",") if part.strip()]
        self._passes: Counter[str] = Counter()
        self._epoch, self._shard = 0, -1

    def begin_epoch(self, epoch: int, shard: int | None = None) -> None:
        """Restart counting: this process is an actor of incarnation ``epoch`` from now on."""
        self._passes.clear()
        self._epoch, self._shard = epoch, -1 if shard is None else shard

    def __call__(self, point: str) -> None:
        """Note one pass, and do what was asked for it.

        Raises
        ------
        RaydtError
            The act is ``raise``.
        """
        self._passes[point] += 1
        for order in self._orders:
            if (order.point, order.n, order.epoch) == (point, self._passes[point], self._epoch) and order.shard in (
                None,
                self._shard,
            ):
                _act(order.act, point)


def _order(part: str) -> _Order:
    match = _SPEC.fullmatch(part)
    if match is None or int(match["n"]) < 1:
        raise ConfigError(message("exchange.fault_form", variable=VARIABLE, part=part))
    for name, known in (("point", tuple(POINTS)), ("act", ACTS)):
        if match[name] not in known:
            shown = {"variable": VARIABLE, "part": part, "known": ", ".join(known)}
            raise ConfigError(message("exchange.fault_name", what=name, **shown))
    shard = None if match["shard"] is None else int(match["shard"])
    return _Order(match["point"], shard, int(match["n"]), int(match["epoch"]), match["act"])


def _act(act: str, point: str) -> None:
    if act == "raise":
        raise RaydtError(message("exchange.fault", point=point, variable=VARIABLE))
    if act == "hang":
        threading.Event().wait()
    os.kill(os.getpid(), signal.SIGKILL if act == "kill" else signal.SIGSTOP)


_handler: Handler | None = Plan(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def fault(point: str) -> None:
    """Pass a point of :data:`POINTS`; nothing happens unless somebody asked for it."""
    if _handler is not None:
        _handler(point)


def begin_epoch(epoch: int, shard: int | None = None) -> None:
    """Say that this process is an actor of incarnation ``epoch``: of a shard, or (None) of the coordinator."""
    if isinstance(_handler, Plan):
        _handler.begin_epoch(epoch, shard)


@contextmanager
def injected(handler: Handler) -> Iterator[None]:
    """Call ``handler`` with the name of each point passed in this process, in place of ``RAYDT_FAULTS``."""
    global _handler
    before, _handler = _handler, handler
    try:
        yield
    finally:
        _handler = before
