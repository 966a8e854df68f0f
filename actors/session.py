"""A learner at work on Ray: the driver process creates the actors, owns them, and feeds the coordinator.

Invariant: results come in the order of the batches, and no batch after one that was not taken in full has any
effect, although a few are under way at any time. Actors are never restarted by Ray: a fault ends the session with
one error, and whoever owns it starts another, with the next epoch.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import ray

from actors.cluster import Cluster, bundles, use_cpus
from actors.liveness import IDS, PARTS, READING, Peer, Watch
from actors.processes import peak_rss_bytes
from actors.shard import Assignment, FeatureShard, Worker, groups_of, node, own, shards_of_each
from actors.starting import Actors, Wanted
from raydt.arrays import kernel
from raydt.arrays.elementary import Arrays
from raydt.errors import ExchangeError
from raydt.examples.row_owners import RowOwners, parts_for
from raydt.examples.updates import BatchResult, Features, Log, UpdateBatch
from raydt.exchange import messages as faults
from raydt.exchange.links import Traffic
from raydt.exchange.messages import (
    Ask,
    Buckets,
    Combine,
    EndOfPass,
    Exchange,
    Parts,
    Payload,
    Position,
    Segment,
    Snapshot,
    Tell,
    fault,
)
from raydt.folders.arrays import FileEntry, SavedIds, publish
from raydt.folders.folder import Folder
from raydt.folders.segments import CheckpointPlace, PartsElsewhere, Written, whole_rows, write_parts
from raydt.learners.base import Learner, LearnerOptions, WorkPlan
from raydt.learners.batch_coordinator import rows_in
from raydt.messages import message
from raydt.sessions.session import (
    DIVIDED,
    ONE_MODEL,
    Engine,
    SmallModel,
    compile_missing,
    holds,
    most_cells,
    ones_of,
    whole,
)
from raydt.sources.base import Source
from raydt.sources.divided import BlockReport, DividedReading, Opening
from raydt.streams.id_dictionary import Moment

# The Ray driver of the exchange: one round is one call to every process of shards and one reply from each.
#
# On a pass (``Combine``) processes meet over a channel of their own, which is opened before the first one.
#
# Invariant: one message is outstanding at each shard. A ``Tell`` is not waited for when it is sent, but before the
# next message is. Messages are numbered within an epoch; nothing is ever sent twice, and Ray retries nothing.

T = TypeVar("T")

#: From this size on, what several shards receive alike is put into the object store once.
PUT_BYTES = 1_000_000

#: Length of the secret by which shards of one session know each other.
SECRET_BYTES = 32


class RayDriver:
    """Runs generators against shard actors that have begun ``epoch``, one message to each, in shard order."""

    def __init__(self, shards: Sequence[Peer], epoch: int, watch: Watch) -> None:
        self.shards = list(shards)
        self.traffic = Traffic()
        self._epoch, self._seq = epoch, 0
        self._watch = watch
        self._unanswered: list[Any] = []
        self._connected = False  # the shards have a channel

    def run(self, exchange: Exchange[T]) -> T:
        """Drive ``exchange`` to its end; after an error of it or a shard the model is at no defined position."""
        try:
            request = next(exchange)
            while True:
                self.acknowledge()
                calls = self._send(request)
                self.traffic.rounds += 1
                replies: list[Any] = []
                if isinstance(request, Tell):
                    self._unanswered = calls
                else:
                    found = [own(of_process) for of_process in self._watch.collect(calls, self.shards)]
                    self.traffic.count(found)
                    of_each = self._ended(found) if isinstance(request, Combine) else found
                    replies = [reply for of_process in of_each for reply in of_process]
                del calls  # a reference kept over the next round keeps its payload in the object store
                request = exchange.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result

    def acknowledge(self) -> None:
        """Wait until every shard has done the last request."""
        unanswered, self._unanswered = self._unanswered, []
        if unanswered:
            self._watch.collect(unanswered, self.shards)

    def _ended(self, found: list[tuple[list[EndOfPass], int]]) -> list[list[EndOfPass]]:
        """Count what processes have sent each other on a pass, a round for each meeting; returns how it ended."""
        ended = [of_process for of_process, _ in found]
        self.traffic.rounds += ended[0][0].met
        self.traffic.bytes += sum(sent for _, sent in found)
        return ended

    def _connect(self) -> None:
        """Have the processes open channels to each other. Nobody else gets to know their secret."""
        loopback = all(shard.pid is not None for shard in self.shards)
        listening = [shard.handle.listen.remote(loopback) for shard in self.shards]
        addresses, secret = self._watch.collect(listening, self.shards), secrets.token_bytes(SECRET_BYTES)
        self._watch.collect([shard.handle.connect.remote(addresses, secret) for shard in self.shards], self.shards)
        self._connected = True

    def _send(self, request: Ask) -> list[Any]:
        if isinstance(request, Combine) and not self._connected:
            self._connect()
        self._seq += 1
        shared: Any = request.payload
        if len(self.shards) > 1 and _size(shared) >= PUT_BYTES:
            shared = ray.put(dict(request.payload))
        calls, payloads = [], iter(request.each) if request.each is not None else itertools.repeat({})
        for shard in self.shards:
            each: list[Payload] = list(itertools.islice(payloads, shard.shards))
            self.traffic.count(request.payload, each)
            method = shard.handle.combine if isinstance(request, Combine) else shard.handle.receive
            calls.append(method.remote(self._epoch, self._seq, request.method, shared, each))
        return calls


def _size(payload: Mapping[str, Any]) -> int:
    traffic = Traffic()
    traffic.count(payload)
    return traffic.bytes


# The coordinator actor: runs a learner's generators, by itself while the model is small, then with the shards.
#
# Invariant: a batch is applied only at the position the model is at. What the driver has sent ahead of a batch that
# was not taken in full, or that failed, comes back untouched.

_NOWHERE = -1


class Coordinator(Worker):
    """A learner's coordinator in a process of its own, which operators find as ``ray::Coordinator``."""

    def __init__(self) -> None:
        super().__init__()
        self._held: Engine[Any]
        self._small: SmallModel | None
        self._position: int | None = None  # sequence number of the next update; None = whatever comes first

    def open(
        self,
        assignment: Assignment,
        plan: WorkPlan,
        shards: Sequence[Peer],
        patience: float,
        cpus: float,
    ) -> None:
        """Build the coordinator of the processes ``shards``, whose shards have begun the epoch."""
        self._pulse.beat()
        epoch, learner, options, features = assignment
        use_cpus(cpus)
        self._most = most_cells(learner.traits(options).divided, plan)
        # As the driver has on its machine.
        compile_missing(learner, options, DIVIDED if self._most == 0 else ONE_MODEL, features)
        kernel.load()
        faults.begin_epoch(epoch)
        self._learner, self._options, self._features, self._shards = learner, options, features, list(shards)
        self._plan, self._watch = replace(plan, shared_store=False), Watch(patience)
        self._ray = RayDriver(shards, epoch, self._watch)
        self._begin(self._new())

    def apply(
        self, batches: Sequence[tuple[UpdateBatch, Sequence[Segment] | None]], skip_refused: bool
    ) -> list[BatchResult | None]:
        """Apply batches, each with the segments stored before its snapshot; None after one not taken in full."""
        return [self._apply(batch, skip_refused, segments) for batch, segments in batches]

    def _apply(
        self, batch: UpdateBatch, skip_refused: bool, segments: Sequence[Segment] | None = None
    ) -> BatchResult | None:
        """Apply one batch, with ``segments`` followed by a snapshot; None, without effect, at another position."""
        self._pulse.beat()
        if self._position is not None and batch.start != self._position:
            return None
        fault("coordinator.before_batch")
        self._position = _NOWHERE  # until the batch has ended well
        if self._small is not None and (batch.blocks or not self._small.holds_with(batch)):
            self._divide(self._small)
        result = self._held.apply(own(batch), skip_refused=skip_refused, segments=segments)
        if result.snapshot is not None:
            fault("coordinator.before_snapshot")
        result.statistics["peak_rss_bytes"] = peak_rss_bytes()
        self._position = batch.start + result.applied
        fault("coordinator.after_batch")
        return result

    def finish(self) -> Log:
        """Complete what waits for more updates; the log of that."""
        self._pulse.beat()
        fault("coordinator.before_finish")
        log = self._held.finish()
        self._ray.acknowledge()
        return log

    def statistics(self) -> dict[str, int]:
        """Statistics of the coordinator and of the traffic, and ``peak_rss_bytes`` of this process."""
        return {**self._held.statistics(), "peak_rss_bytes": peak_rss_bytes()}

    def snapshot(self, segments: Sequence[Segment]) -> Snapshot:
        """A snapshot here and now, without the ``parts`` that shards have set aside."""
        snapshot: Snapshot = self.ask("snapshot", segments)
        fault("coordinator.before_snapshot")
        return snapshot

    def holds(self, rows: int, ones: int) -> bool:
        """Return True if a model of ``rows`` rows is restored here, with its groups, and not at the shards."""
        self._pulse.beat()
        return holds(self._features, self._most, rows, ones)

    def restore(self, state: Arrays, groups: dict[int, Arrays] | None) -> None:
        """Replace everything by a saved state; the next batch may begin anywhere. Without groups, shards have them."""
        self._pulse.beat()
        fault("coordinator.before_restore")
        self._ray.acknowledge()
        if groups is None:
            self._begin(None)
            self._held.coordinator.restore(own(state))
        else:
            small = SmallModel(self._learner, self._options, self._features, self._most)
            small.restore(own(state), own(groups))
            self._begin(small)
        self._position = None

    def _new(self) -> SmallModel | None:
        """An empty model, if this process may hold one."""
        return None if self._most == 0 else SmallModel(self._learner, self._options, self._features, self._most)

    def _begin(self, small: SmallModel | None) -> None:
        """Go on with a model that this process holds, or with the shards."""
        self._small = small
        if small is not None:
            self._held = small.session
            self._held.traffic = self._ray.traffic
        else:
            compile_missing(self._learner, self._options, DIVIDED, self._features)
            shards = sum(process.shards for process in self._shards)
            coordinator = self._learner.coordinator(self._options, self._features, shards, self._plan)
            self._held = Engine(coordinator, self._ray)

    def _divide(self, small: SmallModel) -> None:
        """Give the rows of a model to the shards."""
        state, groups = small.session.state()
        self._begin(None)
        self._held.coordinator.restore(state)
        restored = [
            shard.handle.restore.remote({group: groups[group] for group in np.concatenate(owned).tolist()})
            for shard, owned in zip(self._shards, groups_of(self._features, self._shards), strict=True)
        ]
        self._watch.collect(restored, self._shards)


# Text ids of a stream at the processes of shards: each has those of its buckets (``raydt.streams.id_dictionary``).
#
# The driver asks, in the thread that reads the stream; shards answer beside their work.


class IdsOnShards:
    """The parts of a dictionary of text ids; implements :class:`raydt.streams.id_dictionary.IdParts`.

    ``here`` says whether all processes see the folders of this one; else this one reads and writes local files, those
    of one part after the other. ProcessLostError if a process is lost: its ids are gone with it.
    """

    def __init__(self, shards: Sequence[Peer], watch: Watch, here: bool) -> None:
        self.parts = len(shards)
        self._shards, self._watch, self._here = shards, watch, here
        self._buckets = RowOwners(self.parts).of_all()

    def call(self, method: str, each: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Call a method of each part with arguments of its own, at the same time; None of a part that has none."""
        return self._call(IDS, "ids", [None if given is None else (method, given) for given in each])

    def write(self, moment: Moment, folder: Folder) -> list[FileEntry]:
        """Have the parts write the ids of a moment at the same time; NotWrittenError if one cannot."""
        if self._sees(folder):
            given = [(moment, buckets, plain(folder)) if len(buckets) else None for buckets in self._buckets]
            return [file for files in self._call(PARTS, "write_ids", given) for file in files or ()]
        files: list[FileEntry] = []
        for place, buckets in enumerate(self._buckets):
            if len(buckets):
                aside = self._call(PARTS, "ids", self._for_one(place, ("take", (moment,))))[place]
                files += publish(folder, buckets, aside)
        return files

    def read(self, saved: SavedIds) -> int:
        """Have the parts read their ids of a state, and return how many; ModelFileError if one is damaged."""
        if self._sees(saved.folder):
            given = [(plain(saved.folder), buckets) for buckets in self._buckets]
            return sum(self._call(IDS, "read_ids", given))
        self.call("begin", [()] * self.parts)
        count = 0
        for place, buckets in enumerate(self._buckets):
            for codes, names in saved.of_buckets(buckets):
                self.call("add", self._for_one(place, (names, codes)))
                count += len(codes)
        return count

    def _sees(self, folder: Folder) -> bool:
        """Return True if all processes see a folder."""
        return self._here or not folder.is_local

    def _for_one(self, place: int, given: tuple[Any, ...]) -> list[tuple[Any, ...] | None]:
        return [given if part == place else None for part in range(self.parts)]

    def _call(self, group: str, method: str, each: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        asked = {place: given for place, given in enumerate(each) if given is not None}
        shards = [self._shards[place] for place in asked]
        calls = [
            getattr(shard.handle, method).options(concurrency_group=group).remote(*given)
            for shard, given in zip(shards, asked.values(), strict=True)
        ]
        replies = dict(zip(asked, self._watch.collect(calls, shards), strict=True))
        return [replies.get(place) for place in range(self.parts)]


def plain(folder: Folder) -> Folder:
    """Return the same folder for a process that works elsewhere on this machine."""
    return Folder.at(folder.address) if folder.is_local else folder


#: Messages under way to the coordinator: one at work, one waiting, one being sent.
AHEAD = 3
#: Updates in a message from which on no further batch is added.
TOGETHER = 8192

#: Seconds without progress after which an actor is lost.
PATIENCE = 20.0


class ShardParts(PartsElsewhere):
    """Parts of a snapshot that the actors ``shards`` have set aside under a number; ``here``: all are on this node."""

    def __init__(
        self,
        number: Position,
        shards: Sequence[Peer],
        watch: Watch,
        here: bool,
        write: Callable[[CheckpointPlace, Parts], Written] = write_parts,
    ) -> None:
        self._number, self._shards, self._watch, self._here = number, shards, watch, here
        self._write = write

    def __iter__(self) -> Iterator[Parts]:
        """Fetch the parts one after the other: each is a large object in this process's memory."""
        for shard in self._shards:
            aside = shard.handle.take_aside.options(concurrency_group=PARTS).remote(self._number)
            yield self._watch.collect([aside], [shard])[0]

    def write(self, place: CheckpointPlace) -> Iterator[Written]:
        """Have the actors write at the same time. Where they may not see the folder, this process writes."""
        if place.folder.is_local and not self._here:
            yield from (self._write(place, parts) for parts in self)
            return
        place = replace(place, folder=plain(place.folder))
        writers = [shard.handle.write_aside.options(concurrency_group=PARTS) for shard in self._shards]
        calls = [writer.remote(self._number, place) for writer in writers]
        yield from self._watch.collect(calls, self._shards)


class RaySession(Actors):
    """Coordinator and shards as Ray actors; implements :class:`raydt.sessions.session.Session`.

    Kernels are compiled in this process first, so that the actors load them from the cache. ``resources`` are as of
    :func:`actors.cluster.bundles`, ``epoch`` is the number of this incarnation, from 1. ConfigError if the cluster has
    too few resources; RaydtError if the actors cannot be started, or have loaded other sources than this process.
    """

    def __init__(
        self,
        cluster: Cluster,
        learner: Learner,
        options: LearnerOptions,
        features: Features,
        *,
        shards: int,
        plan: WorkPlan | None = None,
        resources: Mapping[str, Mapping[str, Any]] | None = None,
        epoch: int = 1,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(cluster, patience)
        self._features = features
        self._divided: DividedReading | None = None
        self._owns_rows = learner.traits(options).owns_rows
        self._here = False  # all shards are on this node, and see its folders
        requested = bundles(shards, resources)
        plan = plan or WorkPlan()
        at_once = most_cells(learner.traits(options).divided, plan) == 0
        compile_missing(learner, options, DIVIDED if at_once else ONE_MODEL, features)
        with self._starting(requested):
            in_each = shards_of_each(requested[-1]["CPU"], shards, learner, options, features)
            wanted = [Wanted(FeatureShard, bundle, index, in_each) for index, bundle in enumerate(requested[1:])]
            self._start([Wanted(Coordinator, requested[0]), *wanted])
            assignment = Assignment(epoch, learner, options, features)
            self._open(assignment, plan, [bundle["CPU"] for bundle in requested], at_once)

    def _open(self, assignment: Assignment, plan: WorkPlan, cpus: Sequence[float], at_once: bool) -> None:
        """Build the two halves of the learner in the actors."""
        coordinator, *shards = self._peers
        # All at once: each loads compiled kernels, which takes as long as all the rest, and speaks to no other yet.
        opened = [coordinator.handle.open.remote(assignment, plan, shards, self._watch.patience, cpus[0])]
        opened += [
            shard.handle.open.remote(assignment, index, groups, cpus[1 + index], at_once)
            for index, (shard, groups) in enumerate(zip(shards, groups_of(self._features, shards), strict=True))
        ]
        self._here = all(number == node() for number in self._watch.collect(opened, self._peers)[1:])

    def process(
        self, batches: Iterable[UpdateBatch], *, skip_refused: bool = False
    ) -> Iterator[tuple[UpdateBatch, BatchResult]]:
        """Apply batches in order; a few are sent ahead of the one whose result is awaited.

        Ends after a batch that was not taken in full. To stop earlier, end ``batches`` and take the remaining
        results: until then other methods refuse, since batches are under way. An error that reading ``batches``
        raises is raised again once the results of those before it have been taken.

        A batch that wants a snapshot waits while the one before is being written, until the results of all that was
        sent are there: what is sent ahead must not decide which checkpoints there are.
        """
        self._require_idle()
        source: Iterator[UpdateBatch] | None = iter(batches)
        failure: Exception | None = None
        filled: list[UpdateBatch] = []
        while True:
            while len(self._under_way) < AHEAD and (filled or source is not None):
                if not filled and source is not None:
                    # The first message is sent at once; the coordinator is busy while the next are filled.
                    filled, failure = _take(source, TOGETHER if self._under_way else 1)
                    if failure is not None or not filled:
                        source = None
                barrier = filled[-1].barrier if filled else None
                segments = None if barrier is None else barrier.segments()
                now = len(filled)
                if barrier is not None and segments is None:  # those before the last one are sent
                    now = now - 1 or (0 if self._under_way else 1)
                if now:
                    self._under_way.append((filled[:now], self._send(filled[:now], segments, skip_refused)))
                    filled = filled[now:]
                elif filled:
                    break
            if not self._under_way:
                break
            results: list[BatchResult | None] = self._call(self._under_way[0][1])
            taken, _ = self._under_way[0]
            for index, (batch, result) in enumerate(zip(taken, results, strict=True)):
                last = index + 1 == len(taken) or result is None or result.applied < len(batch)
                if last:
                    self._under_way.popleft()
                if result is None:
                    raise ExchangeError(message("cluster.turn", update=batch.start))
                if result.applied < len(batch):
                    self._abandon()
                    source, filled = None, []
                result = own(result)
                if self._divided is not None and batch.start >= batch.warmup:
                    self._end_division()
                if result.snapshot is not None:
                    self._complete(result.snapshot)
                yield batch, result
                if last:
                    break
        if failure is not None:
            raise failure

    def id_parts(self) -> IdsOnShards | None:
        """Return the parts of a dictionary of text ids, which are empty; None where one process has rows anyway."""
        shards = self._peers[1:]
        return IdsOnShards(shards, self._watch, self._here) if self._owns_rows and len(shards) > 1 else None

    def divide(self, source: Source, opening: Opening, warmup: int) -> DividedReading | str:
        """Have the shards read what they need of the warm-up; the name of a shard that has no such source."""
        shards = self._peers[1:]
        opened = self._watch.collect([shard.handle.open_source.remote(opening) for shard in shards], shards)
        if not all(opened):
            return shards[opened.index(False)].name
        self._divided = DividedReading(source, self, warmup)
        return self._divided

    def _end_division(self) -> None:
        """Have the shards close the source: they have used what they need, and a warm-up may have ended early."""
        self._divided, shards = None, self._peers[1:]
        self._watch.collect([shard.handle.close_source.remote() for shard in shards], shards)

    def check(self, start: int, stop: int, unwanted: Sequence[int]) -> Callable[[], list[BlockReport]]:
        """Have every shard read a block of rows (:class:`raydt.sources.divided.Readers`). Safe in any thread."""
        shards, block = self._peers[1:], (start, stop, unwanted)
        checks = [shard.handle.check_block.options(concurrency_group=READING).remote(*block) for shard in shards]
        return lambda: [report for some in self._watch.collect(checks, shards) for report in some]

    def _with_blocks(self, batch: UpdateBatch) -> UpdateBatch:
        """The batch, with the blocks of its rows if the shards have read their features."""
        if self._divided is None or not batch.lacks_features:
            return batch
        return replace(batch, blocks=self._divided.blocks_of(batch.row))

    def _send(self, batches: list[UpdateBatch], segments: Sequence[Segment] | None, skip_refused: bool) -> Any:
        """Send batches in one message; with ``segments``, those stored before the snapshot that follows them."""
        wanted = [None] * (len(batches) - 1) + [None if segments is None else tuple(segments)]
        plain = (replace(self._with_blocks(batch), barrier=None, names=None, time=None) for batch in batches)
        sent = list(zip(plain, wanted, strict=True))
        return self._peers[0].handle.apply.remote(sent, skip_refused)

    @property
    def under_way(self) -> int:
        """Batches at the coordinator."""
        return sum(len(batches) for batches, _ in self._under_way)

    def finish(self) -> Log:
        """Complete what waits for more updates; the log of that."""
        log: Log = self._ask("finish")
        return log

    def digest(self) -> str:
        """Digest of the model."""
        digest: str = self._ask("ask", "digest")
        return digest

    def statistics(self) -> dict[str, int]:
        """Statistics of the coordinator and of the traffic; ``peak_rss_bytes`` is that of the coordinator's process."""
        statistics: dict[str, int] = self._ask("statistics")
        return statistics

    def model(self) -> Arrays:
        """The predict-only model."""
        model: Arrays = self._ask("ask", "model")
        return model

    def state(self) -> tuple[Arrays, dict[int, Arrays]]:
        """State of the coordinator, and of every feature group by number."""
        return whole(self.snapshot())

    def snapshot(self, segments: Sequence[Segment] = ()) -> Snapshot:
        """A snapshot here and now."""
        snapshot: Snapshot = self._ask("snapshot", tuple(segments))
        self._complete(snapshot)
        return snapshot

    def _complete(self, snapshot: Snapshot) -> None:
        """Add the parts of the shards, if the coordinator did not hold all."""
        if not snapshot.parts:
            # Those there are now: whoever takes the parts may do so while this session is closed.
            snapshot.parts = ShardParts(snapshot.aside, self._peers[1:], self._watch, self._here)

    def restore(
        self,
        state: Arrays,
        groups: Mapping[int, Arrays],
        buckets: Mapping[Buckets, Arrays] | None = None,
        folder: Folder | None = None,
    ) -> None:
        """Replace everything by a saved state, whatever is under way; shards read ``folder`` if they see it.

        ModelFileError if a part that a shard reads is damaged.
        """
        self._abandon()
        buckets, rows = buckets or {}, rows_in(state)
        held = self._ask("holds", rows, 0)  # before all ones are counted
        if held and (not self._features.sparse or self._ask("holds", rows, ones_of(groups))):
            state, groups = whole_rows(state, groups, buckets)
            self._ask("restore", state, dict(groups))
            return
        self._ask("restore", state, None)
        shards = self._peers[1:]
        each = iter(RowOwners(sum(shard.shards for shard in shards)).of_all())
        owned = [[next(each) for _ in range(shard.shards)] for shard in shards]
        if folder is not None and (self._here or not folder.is_local):
            place = plain(folder)
            calls = [shard.handle.restore_from.remote(place, mine) for shard, mine in zip(shards, owned, strict=True)]
            self._watch.collect(calls, shards)
            return
        for shard, mine, columns in zip(shards, owned, groups_of(self._features, shards), strict=True):
            part: dict[Any, Arrays] = {group: groups[group] for group in np.concatenate(columns).tolist()}
            part |= {some: buckets[some] for some in parts_for(mine, buckets)}
            self._watch.collect([shard.handle.restore.remote(part)], [shard])

    def work(self) -> list[dict[str, Any]]:
        """Work counters and ``peak_rss_bytes`` of each process of shards."""
        self._require_idle()
        shards = self._peers[1:]
        return self._watch.collect([shard.handle.work.remote() for shard in shards], shards)

    def _ask(self, method: str, *arguments: Any) -> Any:
        self._require_idle()
        return own(self._call(getattr(self._peers[0].handle, method).remote(*arguments)))

    def _call(self, reply: Any) -> Any:
        return self._watch.collect([reply], self._peers[:1])[0]

    def _abandon(self) -> None:
        """Wait for what is under way and drop its results."""
        while self._under_way:
            self._call(self._under_way[0][1])
            self._under_way.popleft()


def _take(source: Iterator[UpdateBatch], updates: int) -> tuple[list[UpdateBatch], Exception | None]:
    """Return batches for one message, up to a snapshot, and what reading raised; neither at the end."""
    taken: list[UpdateBatch] = []
    while sum(map(len, taken)) < updates:
        try:
            taken.append(next(source))
        except StopIteration:
            break
        except Exception as error:
            return taken, error
        if taken[-1].barrier is not None:
            break
    return taken, None
