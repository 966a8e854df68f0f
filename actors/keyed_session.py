"""Models by key at work on Ray: the driver reads rows and sends each to the process that owns the group of its key.

Invariant: results come in the order of the batches. Processes do not speak to each other, and what one holds follows
from the rows of its own keys alone, so that the number of processes changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

import numpy as np
import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError
from ray.util.placement_group import remove_placement_group

from actors.cluster import Cluster, bundles, cpus, use_cpus
from actors.liveness import translate
from actors.processes import peak_rss_bytes
from actors.session import AHEAD, PATIENCE, ShardParts
from actors.shard import Identity, Worker, identity, node, own, require_same
from actors.starting import Actors, Wanted
from raydt.arrays import kernel
from raydt.arrays.elementary import Arrays, Ints
from raydt.errors import ProcessLostError
from raydt.exchange import messages as faults
from raydt.exchange.messages import Parts, Segment, Snapshot, fault
from raydt.folders.arrays import open_folder, read_manifest
from raydt.folders.folder import Folder
from raydt.folders.segments import CheckpointPlace, Written
from raydt.keyed.groups import digest_of_groups, group_of, owners
from raydt.keyed.members import KeyedJob
from raydt.keyed.packing import SavedKeys, write_groups
from raydt.keyed.session import KeyedResult, KeyedSession, put_together
from raydt.keyed.source import Sending, SentRows, SentSource, WholeSource, told_apart
from raydt.keyed.stream import KeyedBatch
from raydt.messages import message
from raydt.sessions.session import BY_KEY, compile_missing
from raydt.sources.base import Rows

# The actor of models by key: a process with the models of the keys of some groups. Keys need no other process.


class KeyGroups(Worker):
    """One process with the models of the keys of some groups; operators find it as ``ray::KeyGroups``."""

    def __init__(self) -> None:
        super().__init__()
        self._held: KeyedSession
        self._source: SentSource
        self._aside: dict[int, Parts] = {}

    def open(self, epoch: int, job: KeyedJob, index: int, cpus: float) -> str:
        """Begin the epoch of a job, without keys; returns the number of the node."""
        self._pulse.beat()
        use_cpus(cpus)
        compile_missing(job.learner, job.options, BY_KEY, job.features)
        kernel.load()
        faults.begin_epoch(epoch, index)
        assert isinstance(job.shared.source, SentSource)
        self._source, self._held = job.shared.source, KeyedSession(job)
        return node()

    def apply(self, sent: SentRows, number: int) -> KeyedResult:
        """Apply rows, each by the model of its key; a snapshot under ``number`` is set aside, if it is wanted."""
        self._pulse.beat()
        fault("shard.before_answer")
        self._source.take(sent.news)
        result = self._held.apply(KeyedBatch(0, own(sent.rows), sent.due, digest=sent.digest))
        if sent.stored is not None:
            result.keys = self.set_aside(number, sent.stored)
        fault("shard.after_answer")
        return result

    def set_aside(self, number: int, stored: Sequence[Segment]) -> Any:
        """Set a snapshot aside here and now; returns the keys of each group."""
        snapshot: Snapshot = self.ask("snapshot", stored)
        (parts,) = snapshot.parts
        self._aside = {number: parts}
        return snapshot.state["keys"]

    def take_aside(self, number: int) -> Parts:
        """Return the last snapshot, of this number, once; called concurrently with the work."""
        self._pulse.beat()
        fault("shard.before_parts")
        return self._aside.pop(number)

    def write_aside(self, number: int, place: CheckpointPlace) -> Written:
        """Write the last snapshot, of this number, once; called concurrently with the work."""
        parts = self.take_aside(number)
        with self._pulse.writing(place.folder):
            return write_groups(place, parts)

    def restore(self, groups: Mapping[int, Arrays], news: Any, folder: Folder | None = None) -> KeyedResult:
        """Replace everything by the packed keys of the owned groups."""
        self._pulse.beat()
        fault("shard.before_restore")
        self._source.take(news)
        self._held.restore({}, own(dict(groups)), None, folder)
        return self._held.result()

    def restore_from(self, folder: Folder, groups: Sequence[int], news: Any) -> KeyedResult:
        """Replace everything by the owned groups of a state in a folder that was found sound."""
        with self._pulse.storage():
            meta, components = open_folder(folder.root, "state", filesystem=folder.filesystem)
            saved = SavedKeys(meta, components, folder.root)
            owned = {group: saved.groups[group] for group in groups if group in saved.groups}
            return self.restore(owned, news, folder)

    def work(self) -> dict[str, Any]:
        """Return the work of this process, and its ``peak_rss_bytes``."""
        (work,) = self.ask("work")
        return {**work, "peak_rss_bytes": peak_rss_bytes()}


class RayKeyedSession(Actors):
    """Actors with the models of all keys; implements :class:`raydt.sessions.session.Session` for rows of any keys.

    Arguments and errors are as of :class:`actors.session.RaySession`; ``job`` has a :class:`SentSource` of ``source``.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: KeyedJob,
        source: WholeSource,
        *,
        shards: int,
        resources: Mapping[str, Mapping[str, Any]] | None = None,
        epoch: int = 1,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(cluster, patience)
        self._source = source
        self._owner_of_group = np.array(owners({}, shards))
        self._owners = np.empty(0, dtype=np.int64)  # by code of the key
        self._sending = Sending(source)
        self._numbers = count(1)  # of snapshots
        self._statistics: dict[str, int] = {}
        requested = bundles(shards, resources)[1:]
        compile_missing(job.learner, job.options, BY_KEY, job.features)
        with self._starting(requested):
            self._start([Wanted(KeyGroups, bundle, index) for index, bundle in enumerate(requested)])
            opened = [
                peer.handle.open.remote(epoch, job, index, bundle["CPU"])
                for index, (peer, bundle) in enumerate(zip(self._peers, requested, strict=True))
            ]
            self._here = all(number == node() for number in self._watch.collect(opened, self._peers))

    def process(
        self, batches: Iterable[KeyedBatch], *, skip_refused: bool = False
    ) -> Iterator[tuple[KeyedBatch, KeyedResult]]:
        """Apply batches in order; a few are sent ahead of the one whose results are awaited."""
        self._require_idle()
        source, ended = iter(batches), False
        while True:
            while not ended and len(self._under_way) < AHEAD:
                batch = next(source, None)
                if batch is None:
                    ended = True
                else:
                    self._send(batch)
            if not self._under_way:
                return
            batch, number, wanted, calls = self._under_way[0]
            results = [own(one) for one in self._watch.collect(calls, self._peers)]
            self._under_way.popleft()
            result = put_together(results, len(batch))
            result.refused = batch.refusals(result.refused_rows)
            self._statistics = result.statistics
            if wanted:
                result.snapshot = self._snapshot(number, [one.keys for one in results])
            yield batch, result

    def _send(self, batch: KeyedBatch) -> None:
        """Send each process the rows of its keys."""
        rows, number = told_apart(batch.rows), next(self._numbers)
        assert rows.key is not None
        stored = None if batch.barrier is None else batch.barrier.segments()
        self._note_owners()
        owner = np.where(rows.key < 0, -1, np.append(self._owners, -1)[rows.key])
        news = self._sending.news()
        calls = []
        for index, peer in enumerate(self._peers):
            due = None if batch.due is None else batch.due[self._owners[batch.due.key] == index]
            sent = SentRows(_some(rows, np.flatnonzero(owner == index)), news, stored, due, batch.digest)
            calls.append(peer.handle.apply.remote(sent, number))
        self._under_way.append((batch, number, stored is not None, calls))

    def _note_owners(self) -> None:
        """Find the owners of the keys that are new."""
        keys = self._source.keys
        if len(keys) > len(self._owners):
            groups = [group_of(key) for key in keys[len(self._owners) :]]
            self._owners = np.append(self._owners, self._owner_of_group[groups])

    def _snapshot(self, number: int, keys: Sequence[Any]) -> Snapshot:
        parts = ShardParts(number, self._peers, self._watch, self._here, write_groups)  # type: ignore[arg-type]
        return Snapshot(0, np.empty(0, dtype=np.int64), {}, {"keys": np.sum(keys, axis=0)}, (0, number), parts)

    def finish(self) -> Any:
        """Complete what waits for more updates; what was recorded of that, as of an empty batch."""
        result = put_together(own(self._all("ask", "finish")), 0)
        self._statistics = result.statistics
        return result

    def digest(self) -> str:
        """Digest over all keys."""
        digests = self._all("ask", "digests_of_groups")
        return digest_of_groups({group: digest for of_one in digests for group, digest in of_one.items()})

    def statistics(self) -> dict[str, int]:
        """Statistics, summed up over all keys."""
        return dict(self._statistics)

    def snapshot(self, segments: Sequence[Segment] = ()) -> Snapshot:
        """A snapshot here and now."""
        number = next(self._numbers)
        return self._snapshot(number, self._all("set_aside", number, segments))

    def model(self) -> dict[str, Arrays]:
        """Return the components of a model folder."""
        return {group: arrays for found in self._all("ask", "model") for group, arrays in found.items()}

    def key_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table of keys, in the order of groups."""
        rows = [row for rows in self._all("ask", "key_rows") for row in rows]
        return sorted(rows, key=lambda row: group_of(row["key"]))

    def restore(self, state: Arrays, groups: Mapping[int, Arrays], _: Any = None, folder: Folder | None = None) -> None:
        """Replace everything by a saved state; processes read their groups themselves, if they see the folder.

        Groups are dealt out by the sizes of their files: that of a key with half of the rows has a process to itself.
        """
        self._under_way.clear()
        if folder is not None:
            files = {file.component: file.bytes for file in read_manifest(folder).files}
            sizes = {group: files.get(f"group-{group:03d}", 0) for group in groups}
            self._owner_of_group = np.array(owners(sizes, len(self._peers)))
            self._owners = np.empty(0, dtype=np.int64)
        news, calls = self._sending.news(), []
        own_reading = folder is not None and (self._here or not folder.is_local)
        for index, peer in enumerate(self._peers):
            owned = np.flatnonzero(self._owner_of_group == index).tolist()
            if own_reading:
                calls.append(peer.handle.restore_from.remote(folder, owned, news))
            else:
                part = {group: groups[group] for group in owned if group in groups}
                calls.append(peer.handle.restore.remote(part, news))
        self._statistics = put_together([own(one) for one in self._watch.collect(calls, self._peers)], 0).statistics

    def work(self) -> list[dict[str, Any]]:
        """Work of each process."""
        return [{**work, "shard": index} for index, work in enumerate(self._all("work"))]


def _some(rows: Rows, places: Ints) -> Rows:
    """Return some rows, with the bad ones among them."""
    part = rows[places]
    if rows.bad:
        at = {int(place): new for new, place in enumerate(places.tolist())}
        part.bad.update((at[place], error) for place, error in rows.bad.items() if place in at)
    return part


# Independent pieces of work on Ray: one function, large objects that many of them read, one small item for each.
#
# Invariant: a large object is put into the object store once, whatever the number of its items. Ray repeats nothing: a
# piece whose process is lost is answered with the error, and the others go on.

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

#: Pieces handed to Ray at a time: enough for any autoscaler to see what is waiting.
UNDER_WAY = 1000

#: Seconds between two looks at ``stopped``.
LOOK_SECONDS = 0.2


def run_tasks(
    cluster: Cluster,
    work: Callable[[S, T], R],
    parts: Iterable[tuple[S, Sequence[T]]],
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, R | ProcessLostError]]:
    """Yield the place of each item among all parts and ``work(shared, item)``, as results come.

    Each is a Ray task of one CPU; a lost process gives its error as the result. ``work`` is a function of a module. Few
    parts are in memory at a time. Once ``stopped`` says so, what is under way is ended.
    """
    if not cluster.started:
        remove_placement_group(cluster.reserve([{"CPU": 1.0}]))  # a task that no node can take would wait for ever
    options = {"num_cpus": 1, "max_retries": 0, **cluster.actor_environment()}
    task: Any = ray.remote(**options)(_run)
    mine, remaining = identity(), iter(parts)
    waiting: Iterator[T] = iter(())
    everything: Any = None
    under_way: dict[Any, int] = {}
    index = 0
    try:
        while not stopped():
            while len(under_way) < UNDER_WAY:
                for item in waiting:
                    under_way[task.remote(mine, work, everything, item)] = index
                    index += 1
                    break
                else:
                    part = next(remaining, None) if len(under_way) < max(1, cpus()) else None
                    if part is None:
                        break
                    everything, waiting = ray.put(part[0]), iter(part[1])
                    del part
            if not under_way:
                return
            for reply in ray.wait(list(under_way), num_returns=1, timeout=LOOK_SECONDS)[0]:
                yield under_way.pop(reply), _answer(reply)
    finally:
        for reply in under_way:
            ray.cancel(reply, force=True)


def _run(theirs: Identity, work: Callable[[Any, Any], R], shared: Any, item: Any) -> R:
    require_same(theirs, identity(), "a worker process")
    return work(shared, item)


def _answer(reply: Any) -> Any:
    try:
        return ray.get(reply)
    except RayTaskError as error:
        raise translate(error, "a worker process") from error
    except OutOfMemoryError:
        return ProcessLostError(message("cluster.task_memory"))
    except RayError as error:
        return ProcessLostError(message("cluster.task_lost", error=type(error).__name__))


# Parts of an audit on Ray: each actor has the rows in some buckets, and answers for these.


class AuditPart(Worker):
    """One process with a part of an audit; operators find it as ``ray::AuditPart``."""

    def open(self, make: Callable[[Any], Any], item: Any, cpus: float) -> None:
        """Make the part, which reads its rows."""
        self._pulse.beat()
        use_cpus(cpus)
        kernel.load()
        with self._pulse.storage():
            self._held = make(item)


class PartsOnRay(Actors):
    """Parts in actors, as :class:`raydt.audits.bins.AuditParts`: ``make(item)`` of each item, a function of a module.

    Each has the ``resources`` of a shard. ConfigError if the cluster has too few; RaydtError, at any call, of a part
    that cannot be made or whose process is lost.
    """

    def __init__(
        self,
        cluster: Cluster,
        make: Callable[[Any], Any],
        items: Sequence[Any],
        resources: Mapping[str, Mapping[str, Any]],
        patience: float,
    ) -> None:
        super().__init__(cluster, patience)
        requested = bundles(len(items), resources)[1:]
        with self._starting(requested):
            self._start([Wanted(AuditPart, bundle, index) for index, bundle in enumerate(requested)])
            each = zip(self._peers, items, requested, strict=True)
            opened = [peer.handle.open.remote(make, item, bundle["CPU"]) for peer, item, bundle in each]
            self._watch.collect(opened, self._peers)

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Ask all parts at once."""
        return self._all("ask", method, *arguments)
