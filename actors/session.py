"""A learner at work on Ray: the driver process creates the actors, owns them, and feeds the coordinator.

Invariant: results come in the order of the batches, and no batch after one that was not taken in full has any
effect, although a few are under way at any time. Actors are never restarted by Ray: a fault ends the session with
one error, and whoever owns it starts another, with the next epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from actors.cluster import Bundle, Cluster, bundles
from actors.coordinator import Coordinator
from actors.liveness import PARTS, READING, Peer, Watch
from actors.shard import Assignment, FeatureShard, groups_of, node, shards_of_each
from actors.starting import Wanted, end_actors, started
from actors.text_ids import IdsOnShards, plain
from actors.writable import own
from raydt.arrays.types import Arrays
from raydt.errors import ExchangeError
from raydt.examples.features import Features
from raydt.examples.row_owners import RowOwners, parts_for
from raydt.examples.updates import BatchResult, Log, UpdateBatch
from raydt.exchange.messages import Buckets, Position
from raydt.exchange.snapshot import Parts, Segment, Snapshot
from raydt.folders.folder import Folder
from raydt.folders.parts import PartsElsewhere, Place, Written, write_parts
from raydt.folders.rows import whole_rows
from raydt.learners.base import Learner, LearnerOptions, WorkPlan
from raydt.learners.batch_coordinator import rows_in
from raydt.messages import message
from raydt.sessions.local_phase import most_cells, ones_of
from raydt.sessions.snapshots import whole
from raydt.sessions.warmup import DIVIDED, ONE_MODEL, compile_missing
from raydt.sources.base import Source
from raydt.sources.divided import DividedReading
from raydt.sources.feature_reader import BlockReport, Opening

T = TypeVar("T")

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
        write: Callable[[Place, Parts], Written] = write_parts,
    ) -> None:
        self._number, self._shards, self._watch, self._here = number, shards, watch, here
        self._write = write

    def __iter__(self) -> Iterator[Parts]:
        """Fetch the parts one after the other: each is a large object in this process's memory."""
        for shard in self._shards:
            aside = shard.handle.take_aside.options(concurrency_group=PARTS).remote(self._number)
            yield self._watch.collect([aside], [shard])[0]

    def write(self, place: Place) -> Iterator[Written]:
        """Have the actors write at the same time. Where they may not see the folder, this process writes."""
        if place.folder.is_local and not self._here:
            yield from (self._write(place, parts) for parts in self)
            return
        place = replace(place, folder=plain(place.folder))
        writers = [shard.handle.write_aside.options(concurrency_group=PARTS) for shard in self._shards]
        calls = [writer.remote(self._number, place) for writer in writers]
        yield from self._watch.collect(calls, self._shards)


class RaySession:
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
        self._cluster = cluster
        self._features, self._watch = features, Watch(patience, cluster.answers if cluster.started else None)
        self._group: Any = None
        self._peers: list[Peer] = []
        self._under_way: deque[tuple[list[UpdateBatch], Any]] = deque()
        self._divided: DividedReading | None = None
        self._owns_rows = learner.traits(options).owns_rows
        self._here = False  # all shards are on this node, and see its folders
        requested = bundles(shards, resources)
        plan = plan or WorkPlan()
        at_once = most_cells(learner.traits(options).divided, plan) == 0
        compile_missing(learner, options, DIVIDED if at_once else ONE_MODEL)
        try:
            if not cluster.started:
                self._group = cluster.reserve(requested)
            in_each = shards_of_each(requested[-1]["CPU"], shards, learner, options, features)
            self._start(cluster, requested, in_each)
            assignment = Assignment(epoch, learner, options, features)
            self._open(assignment, plan, [bundle["CPU"] for bundle in requested], at_once)
        except BaseException:
            self.close()
            raise

    def _start(self, cluster: Cluster, requested: list[Bundle], shards: int) -> None:
        """Create the actors, those of shards with so many each, and make sure that they have loaded what this has."""
        wanted = [
            Wanted(Coordinator if index == 0 else FeatureShard, bundle, None if index == 0 else index - 1, shards)
            for index, bundle in enumerate(requested)
        ]
        started(cluster, self._group, wanted, self._peers)

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
        digest: str = self._ask("digest")
        return digest

    def statistics(self) -> dict[str, int]:
        """Statistics of the coordinator and of the traffic; ``peak_rss_bytes`` is that of the coordinator's process."""
        statistics: dict[str, int] = self._ask("statistics")
        return statistics

    def model(self) -> Arrays:
        """The predict-only model."""
        model: Arrays = self._ask("model")
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

    def close(self) -> None:
        """End the actors and give back what was reserved, also if they are stopped, or Ray is gone."""
        end_actors(self._cluster, self._group, self._peers)
        self._peers, self._group = [], None
        self._under_way.clear()

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

    def _require_idle(self) -> None:
        if not self._peers:
            raise ExchangeError(message("cluster.closed"))
        if self._under_way:
            raise ExchangeError(message("cluster.busy", batches=self.under_way))


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
