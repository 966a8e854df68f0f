"""The shard actor: a process with one :class:`raydt.exchange.links.NumberedShard` for each CPU that it reserves.

A shard is a thread, a process or a node: messages number the shards of all processes in order, and those of one process
answer at the same time, in threads. Where the shards of a learner divide their work among threads themselves, a process
has one of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import ray

import raydt
from actors.channel import LOOPBACK, Address, Channel
from actors.cluster import use_cpus
from actors.liveness import Peer
from actors.processes import peak_rss_bytes
from raydt.arrays import kernel
from raydt.arrays.elementary import Ints
from raydt.errors import InputError, NotWrittenError, RaydtError
from raydt.examples.row_owners import parts_for
from raydt.examples.updates import Features
from raydt.exchange import links as exchange_shard
from raydt.exchange import messages as faults
from raydt.exchange.links import advanced
from raydt.exchange.meetings import swap_together
from raydt.exchange.messages import Buckets, EndOfPass, GroupSnapshot, Parts, Payload, Position, fault
from raydt.folders.arrays import FileEntry, SavedIds
from raydt.folders.folder import Folder
from raydt.folders.segments import CheckpointPlace, Written, write_each
from raydt.learners.base import Learner, LearnerOptions
from raydt.messages import message
from raydt.parallel import clocks, run
from raydt.sessions.saved_model import read_parts
from raydt.sessions.session import DIVIDED, compile_missing
from raydt.sources.divided import BlockReport, Opening, SourceFeatures
from raydt.streams.id_dictionary import IdPart, Moment

# Whether a process that has not answered yet is at work: the processor time of its working threads.
#
# An actor publishes its :class:`Pulse` by a control method on another thread, since kernels release Python's lock. A
# process that is stopped does not answer, and one that waits for ever answers with the same figure each time. To hand
# over something large shows as well, since Ray pickles on the method's own thread; but threads of the moment copy each
# array above a megabyte, during which the clock stands still.


class Progress(NamedTuple):
    """Progress of an actor: processor seconds of its working threads, and True if it waits for another shard."""

    seconds: float
    waits: bool = False


class Pulse:
    """Processor time of the threads that have called :meth:`beat` and of their helpers, for any thread to read (Linux).

    They must last as long as the process, as those do on which Ray calls the methods of an actor.
    """

    def __init__(self) -> None:
        self._clocks: dict[int, int] = {}
        self._at_storage, self._counting = 0, threading.Lock()  # calls that wait for a disk or for a network

    def beat(self) -> None:
        """Declare the calling thread to be a working one."""
        thread = threading.get_ident()
        self._clocks[thread] = time.pthread_getcpuclockid(thread)

    @contextlib.contextmanager
    def storage(self) -> Iterator[None]:
        """Context in which this process reads or writes files, which is progress, however long they take."""
        with self._counting:
            self._at_storage += 1
        try:
            yield
        finally:
            with self._counting:
                self._at_storage -= 1

    @contextlib.contextmanager
    def writing(self, folder: Folder) -> Iterator[None]:
        """As :meth:`storage`, to write parts of a snapshot into a folder; NotWrittenError if that fails."""
        try:
            with self.storage():
                yield
        except OSError as error:
            raise NotWrittenError(message("machine.not_written", reason=str(error)), file=folder.root) from error
        finally:
            fault("shard.after_parts")

    def seconds(self) -> float:
        """Processor time of all working threads so far, and of those that work for them; 0 before the first beat.

        Within :meth:`storage` the time of the clock is added: a disk is waited for, as by the driver.
        """
        seconds = time.monotonic() if self._at_storage else 0.0
        for clock in [*self._clocks.values(), *clocks()]:
            with contextlib.suppress(OSError):  # at the end of the process threads end one by one
                seconds += time.clock_gettime(clock)
        return seconds


# Which sources a process has loaded, so that the processes of one job can be shown to run the same ones.


@dataclass(frozen=True, slots=True)
class Identity:
    """Sources of one process: version, SHA-256 over the Python files, their folder; and which process it is."""

    version: str
    sources: str
    path: str
    pid: int
    host: str


@cache
def identity() -> Identity:
    """The identity of this process: every ``.py`` file of ``raydt`` and ``actors``, by relative path and content."""
    sha = hashlib.sha256()
    folders = [Path(raydt.__file__).resolve().parent, Path(__file__).resolve().parent]
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            content = file.read_bytes()
            sha.update(f"{file.relative_to(folder.parent).as_posix()}\0{len(content)}\0".encode() + content)
    return Identity(raydt.__version__, sha.hexdigest(), str(folders[0].parent), os.getpid(), platform.node())


def require_same(mine: Identity, theirs: Identity, name: str) -> None:
    """Refuse (RaydtError) a process that has loaded other sources, naming both folders and versions."""
    if (mine.version, mine.sources) == (theirs.version, theirs.sources):
        return
    here = (mine.path, mine.host) == (theirs.path, theirs.host)
    id = "cluster.changed_sources" if here else "cluster.other_sources"
    raise RaydtError(message(id, name=name, theirs=theirs, mine=mine))


# Arrays that arrive in a process become its own.
#
# What Ray delivers is read-only and may be shared memory. Numba compiles a kernel once more for a read-only array,
# and a view of ten elements keeps a whole message alive; a copy on arrival rules out both.

T = TypeVar("T")


def own(value: T) -> T:
    """``value`` with every read-only array in it, at any depth of mappings, lists and dataclasses, copied."""
    result: Any = value
    if isinstance(value, np.ndarray):
        result = value if value.flags.writeable else value.copy(order="K")
    elif isinstance(value, Mapping):
        result = {key: own(item) for key, item in value.items()}
    elif isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple takes its fields one by one
        result = type(value)(*map(own, value))
    elif isinstance(value, list | tuple):
        result = type(value)(own(item) for item in value)
    elif is_dataclass(value) and not isinstance(value, type):
        result = type(value)(**{field.name: own(getattr(value, field.name)) for field in fields(value)})
    owned: T = result
    return owned


Groups = Ints


class Assignment(NamedTuple):
    """Learner, options and features of a session, alike in all processes: each builds its half of the learner."""

    epoch: int  #: At least 1.
    learner: Learner
    options: LearnerOptions
    features: Features


def shards_of_each(cpus: float, processes: int, learner: Learner, options: LearnerOptions, features: Features) -> int:
    """Return how many shards each of so many processes has: one for each whole CPU, if there is work for all."""
    if cpus < 2 or learner.traits(options).shard_threads:
        return 1
    useful = max(features.groups, learner.traits(options).parts)
    return min(int(cpus), -(-useful // processes))


def groups_of(features: Features, processes: Sequence[Peer]) -> list[list[Groups]]:
    """Return the feature groups of every shard of each process."""
    groups = iter(features.assign(sum(process.shards for process in processes)))
    return [[next(groups) for _ in range(process.shards)] for process in processes]


def node() -> str:
    """Return the number of the node on which this process is; empty without Ray."""
    number: str = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
    return number


def _one_by_one(parts: Parts) -> Iterator[tuple[int | Buckets, GroupSnapshot]]:
    """Yield the parts and keep none of them."""
    for place, whose in enumerate(list(parts)):
        if place:
            fault("shard.between_parts")
        yield whose, parts.pop(whose)


class Worker:
    """A process of a session: what it has loaded, how far it is, and what it answers of that which it holds."""

    def __init__(self) -> None:
        self._pulse = Pulse()
        self._held: Any = None

    def identity(self) -> Identity:
        """The sources that this process has loaded."""
        self._pulse.beat()
        return identity()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of what this process holds."""
        self._pulse.beat()
        return getattr(self._held, method)(*arguments)

    def progress(self) -> Progress:
        """Return the progress of this actor; called while the actor works."""
        return Progress(self._pulse.seconds())


class FeatureShard(Worker):
    """One process: its shards own feature groups and answer requests about them.

    A plain class that Ray wraps; operators find it as ``ray::FeatureShard`` in ``ps``. It is built in two steps,
    so that a process with other sources is found out before it is handed objects it may not understand.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shards: list[exchange_shard.NumberedShard]
        self._channel: Channel | None = None
        self._ids = IdPart()
        self._sources: list[SourceFeatures]

    def open(self, assignment: Assignment, index: int, groups: Sequence[Groups], cpus: float, at_once: bool) -> str:
        """Build the shards of process ``index``, which own ``groups``, and return the number of its node."""
        self._pulse.beat()
        epoch, learner, options, features = assignment
        use_cpus(cpus)
        if at_once:
            compile_missing(learner, options, DIVIDED, features)  # as the driver has on its machine
            kernel.load()
        faults.begin_epoch(epoch, index)
        self._groups = own(list(groups))
        self._shards = [exchange_shard.NumberedShard(learner.shard(options, features, g), index) for g in self._groups]
        for shard in self._shards:
            shard.begin_epoch(epoch)
        self._features, self._reads = features, learner.traits(options).reads
        return node()

    def receive(self, epoch: int, seq: int, method: str, shared: Payload, each: Sequence[Payload]) -> list[Any]:
        """Deliver message ``seq`` to every shard: what all shards got and what this one got. Returns their replies."""
        self._pulse.beat()
        fault("shard.before_answer")
        replies = run(
            [
                partial(shard.receive, epoch, seq, method, own({**shared, **payload}))
                for shard, payload in zip(self._shards, each, strict=True)
            ]
        )
        fault("shard.after_answer")
        return replies

    def listen(self, loopback: bool) -> Address:
        """Open a port for the other processes, on this node's own address or for processes of this machine only."""
        self._pulse.beat()
        host = LOOPBACK if loopback else ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        self._channel = Channel(self._shards[0].index, self._shards[0].epoch, host)
        return self._channel.address

    def connect(self, addresses: Sequence[Address], secret: bytes) -> None:
        """Connect to the processes of shards that this one needs, which have the same secret, and close the port."""
        self._pulse.beat()
        assert self._channel is not None
        self._channel.connect(addresses, secret)

    def combine(
        self, epoch: int, seq: int, method: str, shared: Payload, each: Sequence[Payload]
    ) -> tuple[list[EndOfPass], int]:
        """Deliver message ``seq``, a pass with all other shards; return how it ended, and the bytes sent."""
        self._pulse.beat()
        fault("shard.before_answer")
        assert self._channel is not None
        before = self._channel.sent
        halves = [
            shard.combine(epoch, seq, method, own({**shared, **payload}))
            for shard, payload in zip(self._shards, each, strict=True)
        ]
        received: list[Any] = [None] * len(halves)
        while True:
            made = run([partial(advanced, half, given) for half, given in zip(halves, received, strict=True)])
            if isinstance(made[0], StopIteration):
                fault("shard.after_answer")
                return [end.value for end in made], self._channel.sent - before
            if received[0] is not None:
                fault("shard.between_meetings")
            received = swap_together(self._channel.swap, made)

    def open_source(self, opening: Opening) -> bool:
        """Open the source for every shard, to read what it needs of the rows; False if it is not here."""
        self._pulse.beat()
        self._sources = []
        with self._pulse.storage(), contextlib.suppress(InputError):
            for shard, groups in zip(self._shards, self._groups, strict=True):
                owned = groups if self._reads == "columns" else None
                shard.worker.reader = SourceFeatures(opening, self._features, owned)
                self._sources.append(shard.worker.reader)
            return True
        return False

    def close_source(self) -> None:
        """Close the source, and drop the blocks that no batch has used."""
        self._pulse.beat()
        self._sources = []
        for shard in self._shards:
            shard.worker.reader = None

    def check_block(self, start: int, stop: int, unwanted: Sequence[int]) -> list[BlockReport]:
        """Have every shard read a block of rows and report on it; called concurrently with the work."""
        self._pulse.beat()
        fault("shard.before_block")
        with self._pulse.storage():
            return run([partial(source.check, start, stop, unwanted) for source in self._sources])

    def ids(self, method: str, given: tuple[Any, ...]) -> Any:
        """Call a method of this process's part of the text ids; called concurrently with the work."""
        self._pulse.beat()
        fault("shard.before_ids")
        return getattr(self._ids, method)(*given)

    def write_ids(self, moment: Moment, buckets: Buckets, folder: Folder) -> list[FileEntry]:
        """Write the text ids of a moment into the folder of a checkpoint, beside the work; NotWrittenError."""
        self._pulse.beat()
        fault("shard.before_ids_written")
        with self._pulse.writing(folder):
            return self._ids.write(moment, buckets, folder)

    def read_ids(self, folder: Folder, buckets: Buckets) -> int:
        """Replace the text ids of this process by those of some buckets of a state; ModelFileError if damaged."""
        self._pulse.beat()
        fault("shard.before_restore")
        with self._pulse.storage():
            return self._ids.read(SavedIds.of(folder), buckets)

    def take_aside(self, number: Position) -> Parts:
        """Return the last snapshot, of this number, once; called concurrently with the work."""
        self._pulse.beat()
        fault("shard.before_parts")
        return {group: part for shard in self._shards for group, part in shard.take_aside(number).items()}

    def write_aside(self, number: Position, place: CheckpointPlace) -> Written:
        """Write the last snapshot, of this number, once, beside the work; NotWrittenError if that fails."""
        parts = self.take_aside(number)
        with self._pulse.writing(place.folder):
            return write_each(place, _one_by_one(parts))

    def restore(self, parts: dict[Any, dict[str, Any]]) -> None:
        """Replace everything by the arrays of the owned groups, and of buckets, if rows are divided by these."""
        self._pulse.beat()
        fault("shard.before_restore")
        buckets = {part: arrays for part, arrays in parts.items() if isinstance(part, Buckets)}
        for shard, owned in zip(self._shards, self._groups, strict=True):
            owns: dict[Any, Any] = {group: parts[group] for group in owned.tolist()}
            shard.worker.restore(own(owns | buckets))

    def restore_from(self, folder: Folder, owned: Sequence[Buckets] = ()) -> None:
        """Replace everything by a state in a folder, of which the shards read their own parts.

        ModelFileError if one is damaged: a feature group, or rows in buckets that they own.
        """
        self._pulse.beat()
        fault("shard.before_restore")
        with self._pulse.storage():
            parts = read_parts(folder)
            for shard in self._shards:
                shard.worker.restore(parts)
            for whose in parts_for(owned, [part for part in parts if isinstance(part, Buckets)]):
                parts[whose]

    def work(self) -> dict[str, Any]:
        """Return the columns and work of this process, and its ``peak_rss_bytes``; ``seconds`` of the busiest shard."""
        works = [shard.work() for shard in self._shards]
        columns = [column for work in works for column in work["columns"]]
        seconds = max(work["seconds"] for work in works)
        return {**works[0], "columns": columns, "seconds": seconds, "peak_rss_bytes": peak_rss_bytes()}

    def progress(self) -> Progress:
        """Return the progress of this actor; called while the actor works."""
        return Progress(self._pulse.seconds(), self._channel is not None and self._channel.waits)
