"""Receipts of the deletions that a run reads from its source: one for each plan that has some, in one chain.

Invariant: each request is in one receipt of the chain, and a receipt that was written stays as it is. Whoever resumes
from an earlier checkpoint deletes again and comes to the receipts that are there; one that would say something else is
an error. What no receipt has yet is in the checkpoint, as hashes.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from pipelines.config import Config
from pipelines.receipts import now
from pipelines.run_folder import RECEIPT_KEY, RECEIPTS, RunFolder
from raydt.arrays.elementary import Ints
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import DELETE, INSERT, BatchResult, UpdateBatch, cut_at
from raydt.exchange.messages import fault
from raydt.keyed.session import KeyedResult
from raydt.keyed.source import TableKeys
from raydt.keyed.stream import KeyedBatch, KeyedStream
from raydt.learners import traits_of
from raydt.messages import message
from raydt.sessions.receipt import FORMAT, options_hash
from raydt.sessions.receipt_chain import (
    Chain,
    Key,
    OpenChain,
    Origin,
    Signer,
    erased_elsewhere,
    gone,
    opened,
    read_chain,
)
from raydt.sessions.session import IN_MEMORY, OF_A_RUN
from raydt.sources.live.followed import FollowedSource
from raydt.streams.base import Stream, Tally
from raydt.streams.deletion_log import ChangelogStream

# Where the receipts of requests end in a stream: at the end of each plan of a live source, else every so many updates.
#
# Invariant: a place is a number of updates, and follows from the stream, its plans, and the receipts that there are
# already. It does not depend on how the stream is cut into batches, nor on where a run was.


class Place(NamedTuple):
    """The place of requests in the source, and the time of the newest change there, if that is known."""

    name: str
    time: float | None = None


def requests_in(batch: UpdateBatch) -> Ints:
    """Return the positions of the deletions that source or deletion log ask for: not those a stream model chooses."""
    return np.flatnonzero((batch.op == DELETE) & (batch.row != -1))


def pieces_of(batch: Any, places: Sequence[int]) -> Iterator[Any]:
    """Yield a batch, of one model or of models by key, in pieces that begin at ascending places within it."""
    return cut_at(batch, places) if isinstance(batch, UpdateBatch) else batch.pieces(places)


class Marks:
    """Cuts batches where a receipt ends, and has the model's digest taken there.

    It belongs to whoever reads the stream, which may be ahead of whoever writes the receipts: ``places`` has, in order,
    the places of the receipts that end at batches with ``digest``. The stream is where reading begins; ``rows`` have
    requests that have no receipt yet, and receipts that end at ``known`` numbers of updates are there.
    """

    def __init__(self, stream: Stream, every: int, rows: Sequence[int] = (), known: Sequence[int] = ()) -> None:
        self._stream, self._every = stream, every
        self._live = stream.source if isinstance(stream.source, FollowedSource) else None
        self._known = deque(known)
        # Of the requests since the last receipt, the first and the last row, and the last row of the source.
        self._rows = (rows[0], rows[-1]) if rows else None
        self._row = int(stream.state()["row"]) - 1
        self.places: deque[Place] = deque()

    def of(self, batch: UpdateBatch) -> Iterator[UpdateBatch]:
        """Yield a batch in pieces, of which those that begin where a receipt ends want the digest before them."""
        asked, rows = requests_in(batch), np.maximum.accumulate(np.maximum(batch.row, self._row))
        marked: list[int] = []
        begun = 0
        for position in self._ends(batch, rows):
            self._note(batch, asked[(asked >= begun) & (asked < position)])
            begun = position
            if self._is_known(batch.start + position) or (self._rows is not None and not self._known):
                self.places.append(self.take())
                marked.append(position)
        self._note(batch, asked[asked >= begun])
        self._row = int(rows[-1]) if len(rows) else self._row
        for piece in pieces_of(batch, [position for position in marked if position]):
            yield replace(piece, digest=True) if piece.start - batch.start in marked else piece

    def take(self) -> Place:
        """Take the place of the receipt that ends here."""
        place, self._rows = self._place(), None
        return place

    def _ends(self, batch: UpdateBatch, rows: Ints) -> list[int]:
        """Return the positions in a batch before which a receipt ends if there are requests for it, ascending."""
        if not len(batch):
            return []
        known = [stop - batch.start for stop in self._known if batch.start <= stop < batch.stop]
        if self._live is None:
            first = -batch.start % self._every
            return sorted({*known, *range(first, len(batch), self._every)})
        begins = self._live.begins(self._row, int(rows[-1]))
        return sorted({*known, *np.searchsorted(rows, begins, side="left").tolist()})

    def _is_known(self, updates: int) -> bool:
        if self._known and self._known[0] == updates:
            self._known.popleft()
            return True
        return False

    def _note(self, batch: UpdateBatch, asked: Ints) -> None:
        if len(asked):
            rows = batch.row[asked]
            first = int(rows[0]) if self._rows is None else self._rows[0]
            self._rows = first, int(rows[-1])

    def _place(self) -> Place:
        """Return where the requests since the last receipt are."""
        if self._rows is None:
            return Place("")
        first, last = self._rows
        if self._live is not None:
            step = self._live.step_of(last)
            plan: dict[str, Any] = {} if step is None else step.plan
            return Place(self._live.live.place(plan) if plan else "", plan.get("time"))
        (file, begin), (_, end) = self._stream.where(first), self._stream.where(last)
        return Place(f"{file.rpartition('/')[2]}, rows {begin}-{end}")


# Hashes of the ids that are deleted now, of a run that may go on for months.
#
# Invariant: memory does not grow with the deletions. The hashes lie in a temporary file that only this process has.

#: Bits of the filter of ids, by the powers of 2: 16 MB.
_BITS = 27
#: Hashes that are kept in memory, at most.
_RECENT = 1 << 16
#: Spreads neighbouring ids over the filter (2^64 divided by the golden ratio).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class GoneIds:
    """A set of hashes of ids, with a filter of the ids themselves.

    ``hashes`` are those that were deleted before, of ids that nobody knows.
    """

    def __init__(self, hashes: Iterable[str] = ()) -> None:
        self._recent = set(hashes)
        self._all_known = not self._recent
        self._filter = np.zeros(1 << (_BITS - 3), dtype=np.uint8)
        self._file = sqlite3.connect("", check_same_thread=False)  # a file without a name, which ends with it
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("CREATE TABLE gone (hash TEXT PRIMARY KEY) WITHOUT ROWID")
        self._stored = False
        self._store()

    def may_have(self, ids: Sequence[Hashable]) -> Ints:
        """Return the positions of those of some ids that may be deleted: all that are, and few others. O(ids)."""
        if not self._all_known:
            return np.arange(len(ids))
        bits = self._bits(ids)
        return np.flatnonzero(self._filter[bits >> 3] & (1 << (bits & 7)))

    def note(self, ids: Sequence[Hashable]) -> None:
        """Let the filter know ids whose hashes are added, before or after."""
        bits = self._bits(ids)
        np.bitwise_or.at(self._filter, bits >> 3, (1 << (bits & 7)).astype(np.uint8))

    def add(self, *hashes: str) -> None:
        """Add some hashes."""
        self._recent.update(hashes)
        if len(self._recent) > _RECENT:
            self._store()

    def remove(self, hash: str) -> bool:
        """Remove a hash; returns whether it was there."""
        there = hash in self._recent
        self._recent.discard(hash)
        if self._stored:
            there |= self._file.execute("DELETE FROM gone WHERE hash = ?", (hash,)).rowcount > 0
        return there

    def _store(self) -> None:
        if self._recent:
            # In their order, neighbours lie on the same page: half the time.
            rows = ((hash,) for hash in sorted(self._recent))
            self._file.executemany("INSERT OR IGNORE INTO gone VALUES (?)", rows)
            self._recent, self._stored = set(), True

    @staticmethod
    def _bits(ids: Sequence[Hashable]) -> Ints:
        hashes = np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids)).astype(np.uint64)
        bits: Ints = ((hashes * _SPREAD) >> np.uint64(64 - _BITS)).astype(np.int64)
        return bits


#: What an entry says of requests, whenever and by whom it was written.
_SAID = ("learner", "digest_before", "digest_after", "active_before", "active", "deleted", "inserted", "missing")
#: The same of its ``source``.
_SAID_OF_SOURCE = ("updates", "at", "others")
#: Keys that no entry of requests has.
_OF_OTHERS = ("subjects", "note", "work", "keys", "rolled_back", "purged")


@dataclass
class _OpenReceipt:
    """Requests and returned examples since the last receipt, and where that one ended: plain JSON values."""

    begins: int = 0  #: Updates up to that receipt.
    digest: str = ""  #: Of the model there.
    inserts: int = 0  #: Rows that had come until there, replaced ones among them, and rows that had gone.
    deletes: int = 0
    taken: int = 0  #: Updates that are in the model, of a learner that collects them.
    latest: int = -1  #: The last update that was a request.
    lineage: int = 0  #: Updates of the model from elsewhere.
    written: bool = False  #: Whether there is a receipt.
    run: str | None = None  #: The run that the chain is about; None of an early version.
    head: str | None = None  #: Hash of the last line of the chain.
    deleted: list[tuple[str, int, int]] = field(default_factory=list)  #: Hash, number and row of each request.
    missing: list[tuple[str, int, int]] = field(default_factory=list)  #: The same of requests that had no example.
    #: By key, of a learner that collects updates: hash of the key and number of each request that it has not taken in.
    waiting: list[tuple[str, int]] = field(default_factory=list)
    inserted: dict[str, int] = field(default_factory=dict)  #: Numbers of insertions that brought an example back.


class Requests:
    """The receipts of a run, as its updates are applied; made by :func:`requests_of`."""

    def __init__(self, config: Config, chain: OpenChain, of: Mapping[str, Any], place: str, data: str) -> None:
        self._chain, self._of, self._every = chain, dict(of), config.output.metrics_every
        self._place, self._data = place, data
        self._learner, self._options = config.learner.kind, options_hash(config.learner)
        self._on_error = config.stream.on_error
        traits = traits_of(config.learner)
        self._renamed = len(traits.digests) > 1
        self._collects, self._copies = traits.collects_updates, [*OF_A_RUN, *traits.stays, IN_MEMORY]
        self._now, self._known = _OpenReceipt(), deque[dict[str, Any]]()
        self._gone = GoneIds()

    @property
    def head(self) -> str | None:
        """Return the hash of the last line that the run has come to; None without one."""
        return self._known[0]["previous"] if self._known else self._chain.head

    def begin(
        self,
        state: Mapping[str, Any] | None,
        run: str,
        steps: Sequence[Mapping[str, Any]],
        digest: Callable[[], str],
        stream: Stream,
        tally: Tally,
    ) -> Marks:
        """Begin where a checkpoint is (``state``; None: at the beginning), and return where receipts end from there.

        ``run`` is the id of the run, ``steps`` are its lineage. InputError if the chain is not that of the run.
        """
        lineage = len(steps)
        self._tally, self._source, self._by_key = tally, stream.source, isinstance(stream, KeyedStream)
        read = read_chain(self._chain.path, self._chain.key) if os.path.getsize(self._chain.path) else None
        entries = [] if read is None else read.entries
        ours = [entry for entry in entries if "source" in entry]
        self._now = _OpenReceipt(tally.updates, digest(), tally.inserts, tally.deletes, tally.updates, lineage)
        if state is not None:
            lists = ("deleted", "missing", "waiting")
            self._now = _OpenReceipt(**{**state, **{name: [*map(tuple, state.get(name, ()))] for name in lists}})
        begun = state is None and bool(entries)  # by a process that was killed before its first checkpoint
        self._now.run = self._now.run or (begun and (self._chain.named or {}).get("run")) or run
        self._require_ours(read, steps, begun)
        updated = self._now.lineage != lineage
        if updated:  # what comes is about another model; a gap in the chain shows it
            came, went = len(self._now.inserted), len(self._now.deleted)
            self._now.digest, self._now.lineage = digest(), lineage
            self._now.inserts, self._now.deletes = tally.inserts - came, tally.deletes - went
        for entry in ours:
            first, stop = entry["source"]["updates"]
            # One without updates is of the end of a run, which took in what waited.
            ends = first == stop == self._now.begins and entry["digest_before"] == self._now.digest
            # What was done before the update of the model from elsewhere, it does not come to again.
            if ends or (updated and self._now.begins < stop <= tally.updates):
                self._close(entry)
        begins = self._now.begins
        self._known = deque(entry for entry in ours if entry["source"]["updates"][1] > begins)
        known = {id(entry) for entry in self._known}
        before = [entry for entry in entries if id(entry) not in known]
        self._note_erased(before, stream)
        hashes = gone(before)
        self._gone = GoneIds(hashes.union(hash for hash, *_ in self._now.deleted).difference(self._now.inserted))
        return self._marked(stream)

    def _require_ours(self, chain: Chain | None, steps: Sequence[Mapping[str, Any]], begun: bool) -> None:
        """Refuse (InputError) a chain that is not the one of the run, by what it names and what the checkpoint has.

        No checkpoint tells the id of a run that has only ``begun``: its data does.
        """
        now = self._now
        if now.written and chain is None:
            raise InputError(message("receipts.lost", updates=now.begins), file=self._chain.path)
        if chain is not None:
            require_known(chain, vars(now), bool(steps))
        live = self._of if isinstance(self._source, FollowedSource) else {}
        first = steps[0]["digest_before"] if steps else now.digest
        ours = Origin(self._place, self._learner, now.run, self._data, first, live)
        if chain is not None and begun:
            chain.require(ours._replace(run=None))
        self._chain.about(ours)

    def _note_erased(self, entries: Sequence[Mapping[str, Any]], stream: Stream) -> None:
        """Tell a stream what was erased by other means than its source, which may delete it, too, once."""
        erased, now, key = erased_elsewhere(entries), self._now, self._chain.key
        erased.difference_update(now.inserted, (hash for hash, *_ in (*now.deleted, *now.missing)))

        def take(id: Any) -> bool:
            hash = key.hash(id)
            there = hash in erased
            erased.discard(hash)
            return there

        reader = stream.table if isinstance(stream, KeyedStream) else stream
        if isinstance(reader, TableKeys | ChangelogStream):
            reader.erased = take if erased else None

    def go_on(self, stream: Stream, tally: Tally) -> Marks:
        """Go on where a chapter has ended, as after :meth:`begin`."""
        self._tally, self._source, self._by_key = tally, stream.source, isinstance(stream, KeyedStream)
        return self._marked(stream)

    def _marked(self, stream: Stream) -> Marks:
        open_rows = [row for _, row in sorted((seq, row) for _, seq, row in (*self._now.deleted, *self._now.missing))]
        known = [entry["source"]["updates"][1] for entry in self._known]
        self._marks = Marks(stream, self._every, open_rows, known)
        return self._marks

    def note(self, batch: UpdateBatch, result: BatchResult) -> None:
        """Take an answered batch into account, after the tally, and write the receipt that ends before it."""
        if batch.digest:
            assert result.digest is not None
            before = tuple(getattr(self._tally, name) - getattr(result, name) for name in ("inserts", "deletes"))
            self._write(self._marks.places.popleft(), batch.start, result.digest, before)
        n, key = result.applied, self._chain.key
        asked = requests_in(batch)
        asked = asked[asked < n]
        names = _names(batch, asked)
        hashes = list(map(key.hash, names))
        self._gone.note(names)
        back = self._returning(batch, n)
        if back or result.refused:
            refused = {refusal.position for refusal in result.refused}
            events = [(at, hash, True) for at, hash in zip(asked.tolist(), hashes, strict=True)]
            events += [(at, key.hash(batch.name(at)), False) for at in back if at not in refused]
            for position, hash, goes in sorted(events):
                self._follow(hash, batch.start + position, int(batch.row[position]), goes, position in refused)
        elif names:
            numbers = (batch.start + asked).tolist()
            self._gone.add(*hashes)
            for hash in self._now.inserted.keys() & hashes:
                del self._now.inserted[hash]
            self._now.deleted += zip(hashes, numbers, batch.row[asked].tolist(), strict=True)
            self._now.latest = numbers[-1]
        if self._collects and self._by_key:
            self._note_waiting(cast(KeyedBatch, batch), cast(KeyedResult, result))
        elif self._collects and len(log := result.log.get("seq", ())):
            self._now.taken = int(np.max(log)) + 1

    def _note_waiting(self, batch: KeyedBatch, result: KeyedResult) -> None:
        """Note which requests their keys have not taken in."""
        now, hash = self._now, self._chain.key.hash
        here = [seq for _, seq, _ in takewhile(lambda one: one[1] >= batch.start, reversed(now.deleted))]
        if here:
            keys, codes = cast(FollowedSource, self._source).keys, batch.rows.key
            assert codes is not None
            now.waiting += [(hash(keys[int(codes[seq - batch.start])]), seq) for seq in reversed(here)]
        taken = {hash(key): row for key, row in result.taken}
        if taken:
            now.waiting = [one for one in now.waiting if one[1] > taken.get(one[0], -1)]

    def _returning(self, batch: UpdateBatch, n: int) -> list[int]:
        """Return the positions of insertions of examples that may have been deleted before."""
        inserts = np.flatnonzero(batch.op[:n] == INSERT)
        back: list[int] = inserts[self._gone.may_have(_names(batch, inserts))].tolist()
        return back

    def _follow(self, hash: str, seq: int, row: int, goes: bool, refused: bool) -> None:
        """Note a request, or an insertion: of an example that was deleted it counts as long as it stays."""
        if not goes:
            if self._gone.remove(hash):
                self._now.inserted[hash] = seq
        elif refused:
            self._now.missing.append((hash, seq, row))
        else:
            self._gone.add(hash)
            self._now.inserted.pop(hash, None)
            self._now.deleted.append((hash, seq, row))
            self._now.latest = seq

    def pause(self, digest: Callable[[], str]) -> None:
        """Write the receipt of a plan that has ended, where nothing new is there."""
        if isinstance(self._source, FollowedSource) and self._source.is_between and self._has_requests:
            self._write_here(digest())

    def end(self, digest: str, *, complete: bool) -> None:
        """Write the last receipt of a run that ends here for now, so that the chain leads to its state.

        The last checkpoint comes after it, and knows it. ``complete``: nothing waits for more updates. InputError if a
        receipt that is there is of more updates than a complete source has.
        """
        if complete:
            self._now.taken, self._now.waiting = self._tally.updates, []
        # A driver that is gone may have come farther: then its receipt is about these updates, too.
        ahead = bool(self._known) and self._known[0]["source"]["updates"][1] > self._tally.updates
        changed = self._now.begins < self._tally.updates or self._now.digest != digest
        if not ahead and (self._has_requests or self._known or (self._now.written and changed)):
            self._write_here(digest)
        if complete and self._known and not isinstance(self._source, FollowedSource):
            self._refuse(self._known[0])

    def state(self) -> dict[str, Any]:
        """Return the requests that no receipt has yet, and where the last one ended: plain JSON values."""
        now = self._now  # what is in the lists never changes
        copies = {name: [*getattr(now, name)] for name in ("deleted", "missing", "waiting")}
        return {**vars(now), **copies, "inserted": {**now.inserted}, "head": self.head}

    @property
    def _has_requests(self) -> bool:
        return bool(self._now.deleted or self._now.missing)

    def _write_here(self, digest: str) -> None:
        self._write(self._marks.take(), self._tally.updates, digest, (self._tally.inserts, self._tally.deletes))

    def _waiting(self) -> int | None:
        """Return the first update that waits for the learner's next batch, if a request does; by key such a request."""
        if self._by_key:
            return min((seq for _, seq in self._now.waiting), default=None)
        return self._now.taken if self._collects and self._now.latest >= self._now.taken else None

    def _write(self, place: Place, stop: int, digest: str, counts: Sequence[int]) -> None:
        """Write the receipt of all updates before ``stop``, up to which so many rows had come and gone."""
        was = self._now
        deleted, back = sorted(was.deleted), sorted(was.inserted)
        came, went = counts[0] - was.inserts, counts[1] - was.deletes
        waiting = self._waiting()
        entry: dict[str, Any] = {
            "learner": self._learner,
            "options_hash": self._options,
            "digest_before": was.digest,
            "digest_after": digest,
            "active_before": was.inserts - was.deletes,
            "active": counts[0] - counts[1],
            "deleted": [hash for hash, *_ in deleted],
            "inserted": back,
            **({"missing": sorted(hash for hash, *_ in was.missing)} if was.missing else {}),
            **({"copies": self._copies} if deleted else {}),
            "source": {
                "of": self._of,
                "place": place.name,
                **({} if place.time is None else {"time": place.time}),
                "updates": [was.begins, stop],
                "at": [seq for _, seq, _ in deleted],
                "others": [came - len(back), went - len(deleted)],
                **({} if waiting is None else {"waiting": waiting}),
                **({} if self._on_error == "fail" else {"on_error": self._on_error}),
            },
        }
        if self._known:
            there = self._known[0]
            said = [*_SAID, *_OF_OTHERS]
            if self._renamed and there["format"] < FORMAT:  # may have digests of a former format
                said = [name for name in said if not name.startswith("digest")]
            same = all(there.get(name) == entry.get(name) for name in said)
            if not same or any(there["source"][name] != entry["source"][name] for name in _SAID_OF_SOURCE):
                self._refuse(there)
            self._known.popleft()
            self._close(there)
            return
        self._close(self._chain.append_values(entry, time=now()))
        fault("requests.appended")

    def _refuse(self, entry: Mapping[str, Any]) -> None:
        """Raise the InputError of an entry that the run does not come to."""
        raise InputError(message("receipts.other_run", updates=entry["source"]["updates"][1]), file=self._chain.path)

    def _close(self, entry: Mapping[str, Any]) -> None:
        """Go on behind a receipt."""
        was, source = self._now, entry["source"]
        stop, (came, went) = source["updates"][1], source["others"]
        self._now = _OpenReceipt(
            begins=stop,
            digest=entry["digest_after"],
            inserts=was.inserts + came + len(entry["inserted"]),
            deletes=was.deletes + went + len(entry["deleted"]),
            taken=was.taken,
            run=was.run,
            latest=was.latest,
            waiting=was.waiting,
            lineage=was.lineage,
            written=True,
            deleted=[one for one in was.deleted if one[1] >= stop],
            missing=[one for one in was.missing if one[1] >= stop],
            inserted={hash: seq for hash, seq in was.inserted.items() if seq >= stop},
        )


def require_known(chain: Chain, state: Mapping[str, Any], updated: bool) -> None:
    """Refuse (InputError) a chain without what a checkpoint knows of it, by the ``state`` of its requests.

    A run that was ``updated`` has other digests than its receipts until the next one is written.
    """
    requests = [one for one in chain.entries if "source" in one]
    begins, digest, head = state["begins"], state["digest"], state.get("head")
    ends = [(one["source"]["updates"][1], one["digest_after"]) for one in requests]
    there = not state["written"] or any(end == begins and (updated or after == digest) for end, after in ends)
    if not there or (head is not None and head not in chain.hashes):
        raise InputError(message("receipts.lost", updates=begins), file=chain.path)
    if requests and not state["written"]:
        first, before = requests[0]["source"]["updates"][0], requests[0]["digest_before"]
        if first != begins or not (updated or before == digest):
            raise InputError(message("receipts.other_run", updates=ends[0][0]), file=chain.path)


def _names(batch: UpdateBatch, positions: Ints) -> list[Any]:
    """Return the ids at some positions as the source has them."""
    return batch.id[positions].tolist() if batch.names is None else [batch.names[at] for at in positions.tolist()]


@contextmanager
def requests_of(config: Config, folder: RunFolder, stream: Stream) -> Iterator[Requests | None]:
    """Open the receipts of a run in its folder, if it is to write some.

    ConfigError if its folder is not on a local disk, or the key cannot be used; InputError if the chain cannot be.
    """
    if not config.writes_receipts:
        yield None
        return
    if not folder.is_local:
        raise ConfigError(message("receipts.remote_run").at(folder.location))
    output, place = config.output, Path(folder.root)
    if output.receipt_key is None:
        _make_key(place / RECEIPT_KEY)
    key = Key.read(output.receipt_key or place / RECEIPT_KEY)
    signer = Signer(output.receipt_sign) if output.receipt_sign is not None else None
    source = stream.source
    data = source.identity().fingerprint
    of = source.live.describe() if isinstance(source, FollowedSource) else {"data": data}
    with opened(place / RECEIPTS, key, signer, mend=True) as chain:
        yield Requests(config, chain, of, folder.location, data)


def _make_key(path: Path) -> None:
    """Make the key of a run, for its owner alone to read, whole or not at all; one that is there stays."""
    if path.exists():
        return
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(16)}")  # a name that the next process sweeps
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, f"{secrets.token_hex(32)}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(unfinished, path)
