"""Models by key at work on Ray: the driver reads rows and sends each to the process that owns the group of its key.

Invariant: results come in the order of the batches. Processes do not speak to each other, and what one holds follows
from the rows of its own keys alone, so that the number of processes changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from actors.cluster import Cluster, bundles
from actors.keys import KeyedAssignment, KeyGroups
from actors.liveness import Peer, Watch
from actors.session import AHEAD, PATIENCE, ShardParts
from actors.shard import node
from actors.starting import Wanted, end_actors, started
from actors.writable import own
from raydt.arrays.types import Arrays, Ints
from raydt.errors import ExchangeError
from raydt.exchange.snapshot import Segment, Snapshot
from raydt.folders.folder import Folder
from raydt.folders.manifest import read_manifest
from raydt.keyed.groups import digest_of_groups, group_of, owners
from raydt.keyed.sent import Sending, SentRows, WholeSource
from raydt.keyed.session import KeyedResult, put_together
from raydt.keyed.store import write_groups
from raydt.keyed.stream import KeyedBatch
from raydt.keyed.table_keys import told_apart
from raydt.messages import message
from raydt.sessions.warmup import BY_KEY, compile_missing
from raydt.sources.base import Rows


class RayKeyedSession:
    """Actors with the models of all keys; implements :class:`raydt.sessions.session.Session` for rows of any keys.

    Arguments and errors are as of :class:`actors.session.RaySession`.
    """

    def __init__(
        self,
        cluster: Cluster,
        assignment: KeyedAssignment,
        source: WholeSource,
        *,
        shards: int,
        resources: Mapping[str, Mapping[str, Any]] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._cluster, self._source = cluster, source
        self._watch = Watch(patience, cluster.answers if cluster.started else None)
        self._group: Any = None
        self._peers: list[Peer] = []
        self._under_way: deque[tuple[KeyedBatch, int, bool, list[Any]]] = deque()
        self._owner_of_group = np.array(owners({}, shards))
        self._owners = np.empty(0, dtype=np.int64)  # by code of the key
        self._sending = Sending(source)
        self._numbers = count(1)  # of snapshots
        self._statistics: dict[str, int] = {}
        requested = bundles(shards, resources)[1:]
        compile_missing(assignment.learner, assignment.options, BY_KEY)
        try:
            if not cluster.started:
                self._group = cluster.reserve(requested)
            wanted = [Wanted(KeyGroups, bundle, index) for index, bundle in enumerate(requested)]
            started(cluster, self._group, wanted, self._peers)
            opened = [
                peer.handle.open.remote(assignment, index, bundle["CPU"])
                for index, (peer, bundle) in enumerate(zip(self._peers, requested, strict=True))
            ]
            self._here = all(number == node() for number in self._watch.collect(opened, self._peers))
        except BaseException:
            self.close()
            raise

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

    @property
    def under_way(self) -> int:
        """Batches sent."""
        return len(self._under_way)

    def finish(self) -> Any:
        """Complete what waits for more updates; what was recorded of that, as of an empty batch."""
        result = put_together(self._all("finish"), 0)
        self._statistics = result.statistics
        return result

    def digest(self) -> str:
        """Digest over all keys."""
        return digest_of_groups({group: digest for of_one in self._all("digests") for group, digest in of_one.items()})

    def statistics(self) -> dict[str, int]:
        """Statistics, summed up over all keys."""
        return dict(self._statistics)

    def snapshot(self, segments: Sequence[Segment] = ()) -> Snapshot:
        """A snapshot here and now."""
        number = next(self._numbers)
        return self._snapshot(number, self._all("set_aside", number, segments))

    def models(self) -> Iterator[tuple[str, Arrays]]:
        """Yield components of a model folder, those of one process after another."""
        for peer in self._peers:
            (found,) = self._watch.collect([peer.handle.models.remote()], [peer])
            yield from found

    def key_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table of keys, in the order of groups."""
        rows = [row for rows in self._all("key_rows") for row in rows]
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

    def close(self) -> None:
        """End the actors and give back what was reserved."""
        end_actors(self._cluster, self._group, self._peers)
        self._peers, self._group = [], None
        self._under_way.clear()

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        """Ask all processes."""
        self._require_idle()
        calls = [getattr(peer.handle, method).remote(*arguments) for peer in self._peers]
        return [own(one) for one in self._watch.collect(calls, self._peers)]

    def _require_idle(self) -> None:
        if not self._peers:
            raise ExchangeError(message("cluster.closed"))
        if self._under_way:
            raise ExchangeError(message("cluster.busy", batches=self.under_way))


def _some(rows: Rows, places: Ints) -> Rows:
    """Return some rows, with the bad ones among them."""
    part = rows[places]
    if rows.bad:
        at = {int(place): new for new, place in enumerate(places.tolist())}
        part.bad.update((at[place], error) for place, error in rows.bad.items() if place in at)
    return part
