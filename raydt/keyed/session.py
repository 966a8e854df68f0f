"""Models by key at work in this process: behind the interface of :class:`raydt.sessions.session.Session`.

Batches are rows of any keys (:class:`raydt.keyed.stream.KeyedBatch`), and a result has what was recorded of their keys.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from raydt.arrays.elementary import AnyArray, Arrays, Ints
from raydt.errors import InputError, RaydtError, message_of
from raydt.examples.updates import NUMBERS, BatchResult, Log, Refusal, Targets, UpdateBatch, there
from raydt.exchange.messages import GroupSnapshot, Parts, Segment, Snapshot
from raydt.folders.folder import Folder
from raydt.keyed.groups import GROUPS, Key, bytes_of, digest_of_groups
from raydt.keyed.members import KeyedJob, Member, Members, digests_of
from raydt.keyed.packing import fitting_keys, keys_of, packed
from raydt.keyed.source import Part
from raydt.keyed.stream import KeyedBatch
from raydt.messages import message
from raydt.parallel import work_seconds
from raydt.streams.base import Skipped, truths

# What is recorded of each key while it learns: rows of the metrics, predictions, rows passed over, alarms.
#
# Invariant: what is recorded at an update of a key depends on the key's own stream and model only, but for seconds.

#: Columns by name; lists of one length.
Columns = dict[str, list[Any]]

_COUNTS = ("inserts", "deletes", "predictions", "active")
_STRUCTURE = ("nodes", "leaves", "depth", "rebuilds")

#: What is summed up over all keys.
TOTALS = ("updates", "inserts", "deletes", "replaced", "queries", "predictions", "refused", "skipped")


class NewTableRows:
    """Rows of tables, by table, that were not taken yet; ``predicting`` says whether predictions are recorded."""

    def __init__(self, every: int, *, predicting: bool, own: Sequence[str] = ()) -> None:
        self.every, self._predicting, self._own = every, predicting, own
        self._columns: dict[str, Columns] = {}
        self._refused: list[tuple[int, int]] = []
        self._marked: list[Any] = []  # moments of the rows of the metrics, whose scores are made together
        self._evaluation: Any = None  # one of them, which knows how

    def record(self, member: Member, batch: UpdateBatch, result: BatchResult) -> None:
        """Take an answered batch of a key, which its tally has taken already."""
        n = result.applied
        for refusal in result.refused:
            row = member.source.place(int(batch.row[refusal.position]))
            if row >= 0:
                self._refused.append((row, refusal.reason))
        for refusal in batch.faults(result.refused):
            if refusal.position < n:
                error = member.tally.update_error(batch, refusal)
                row = member.source.place(int(batch.row[refusal.position]))
                seq = batch.start + refusal.position
                self._add("quarantine", member.key, seq=seq, source_row=row, file=error.file, reason=error.problem)
        if self._predicting:
            self._record_predictions(member, batch, result)
        for alarm in member.tally.prequential.take_alarms():
            named = zip(("seq", "predictions", "error_before", "error_after"), alarm, strict=True)
            self._add("alarms", member.key, **dict(named))
        if member.tally.updates % self.every == 0:
            self.mark(member)

    def _record_predictions(self, member: Member, batch: UpdateBatch, result: BatchResult) -> None:
        n = result.applied
        predictions, truth = result.predictions[:n], truths(batch, n)
        for place in np.flatnonzero(there(predictions)).tolist():
            self._add(
                "predictions",
                member.key,
                seq=batch.start + place,
                id=batch.name(place),
                prediction=_named(member, predictions, place),
                truth=_named(member, truth, place),
            )

    def record_skipped(self, member: Member, skipped: Sequence[Skipped]) -> None:
        """Note rows of a key that never became updates."""
        for entry in skipped:
            row = member.source.place(entry.row)
            self._add("quarantine", member.key, seq=-1, source_row=row, file=entry.file, reason=entry.reason)

    def mark(self, member: Member) -> None:
        """Add a row of the metrics of a key."""
        tally = member.tally
        member.marked = tally.updates
        tally.prequential.mark()
        self._marked += tally.prequential.take_marked()
        self._evaluation = tally.prequential
        counts = {name: getattr(tally, name) for name in _COUNTS}
        known = tally.statistics
        figures = {name: known.get(name, 0) for name in (*_STRUCTURE, *self._own)}
        more = {"seconds": tally.seconds, "alarms": getattr(tally.prequential, "alarms", 0)}
        times = {} if member.stream.times is None else {"time": tally.time}
        self._add("metrics", member.key, seq=tally.updates, **counts, **figures, **more, **times)

    def key_rows(self, members: Sequence[Member]) -> list[dict[str, Any]]:
        """Return the rows of keys in the table of keys, as they are now."""
        if not members:
            return []
        each = zip(members, digests_of(members), scores_of(members), strict=True)
        return [self._key_row(member) | {"digest": digest} | scores for member, digest, scores in each]

    def _key_row(self, member: Member) -> dict[str, Any]:
        tally = member.tally
        known = tally.statistics
        return {
            "key": member.key,
            **{name: getattr(tally, name) for name in (*TOTALS, "active")},
            **{name: known.get(name, 0) for name in (*_STRUCTURE, "rebuilt_rows", *self._own)},
            "alarms": getattr(tally.prequential, "alarms", 0),
            "seconds": tally.seconds,
        }

    def _add(self, table: str, key: Key, **values: Any) -> None:
        columns = self._columns.setdefault(table, defaultdict(list))
        columns["key"].append(key)
        for name, value in values.items():
            columns[name].append(value)

    def take(self) -> dict[str, Columns]:
        """Return the rows recorded since the last call."""
        taken, self._columns = self._columns, {}
        if self._marked:
            taken["metrics"].update(_scores(self._evaluation, self._marked))
            self._marked = []
        return taken

    def take_refused(self) -> list[tuple[int, int]]:
        """Return the rows of the source that keys have refused since the last call, and why."""
        taken, self._refused = self._refused, []
        return taken


def scores_of(members: Sequence[Member]) -> list[dict[str, float]]:
    """Return the scores of each key as they are now, by name; there is at least one key."""
    evaluations = [member.tally.prequential for member in members]
    scores = _scores(evaluations[0], [one.now() for one in evaluations])
    return [dict(zip(scores, values, strict=True)) for values in zip(*scores.values(), strict=True)]


def _scores(evaluation: Any, moments: Sequence[Any]) -> Columns:
    """Return scores at moments of evaluations of one kind, by name."""
    return {name: values.tolist() for name, values in evaluation.rows_of(moments).items()}


def _named(member: Member, codes: Targets, place: int) -> Any:
    """Return the label of a class code, or a number, as text; None of none."""
    if codes.dtype == NUMBERS:
        return None if np.isnan(codes[place]) else float(codes[place])
    code, classes = int(codes[place]), member.tally.classes
    return classes[code] if 0 <= code < len(classes) else None


#: Statistics that are summed up over all keys; of the depth the largest counts.
_SUMS = ("active", "nodes", "leaves", "rebuilds", "rebuilt_rows")


_totals_of = attrgetter(*TOTALS)


#: What a key adds to the sums over all keys (1), or takes from them (-1): its group, totals, statistics, depth, scores.
_Figures = tuple[int, int, tuple[int, ...], list[int], int, AnyArray]


class KeyFailedError(RaydtError):
    """A key refused an update or a row, and other keys went on: the run goes back to its last checkpoint."""

    exit_code = InputError.exit_code


@dataclass(slots=True)
class KeyedResult:
    """Reply to a batch of rows."""

    applied: int
    totals: Mapping[str, int]  #: Of all keys, as :data:`raydt.keyed.session.TOTALS`.
    scores: AnyArray  #: Sums over the keys of each group, shape (256, sums), for the pooled scores.
    tables: Mapping[str, Columns]
    statistics: dict[str, int]
    seconds: float = 0.0
    snapshot: Snapshot | None = None
    keys: Ints | None = None  #: keys of each group, if a snapshot was set aside
    inserts: int = 0  #: ``inserts``, ``deletes``: of all keys, by this batch.
    deletes: int = 0
    refused_rows: list[tuple[int, int]] = field(default_factory=list)  #: Rows that keys refused, and why.
    #: Of a learner that collects updates, keys that have taken in theirs, up to which row of all.
    taken: list[tuple[Key, int]] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)  #: As :meth:`raydt.keyed.stream.KeyedBatch.refusals`.
    digests: dict[int, str] | None = None  #: Of each group before a batch that wants them.
    digest: str | None = None  #: Over all keys before such a batch.
    log: Log = field(default_factory=dict)
    within: list[dict[str, int]] = field(default_factory=list)


def put_together(results: Sequence[KeyedResult], rows: int) -> KeyedResult:
    """Return the result of a batch of so many rows, of which each process has answered a part."""
    totals: Counter[str] = Counter()
    statistics: Counter[str] = Counter()
    tables: dict[str, Columns] = {}
    scores: AnyArray = np.zeros(0)
    for result in results:
        totals.update(result.totals)
        statistics.update({name: n for name, n in result.statistics.items() if name != "depth"})
        for table, columns in result.tables.items():
            known = tables.setdefault(table, {})
            for name, values in columns.items():
                known.setdefault(name, []).extend(values)
        if len(result.scores):
            scores = scores + result.scores if len(scores) else result.scores
    statistics["depth"] = max((result.statistics["depth"] for result in results), default=0)
    seconds = max((result.seconds for result in results), default=0.0)
    whole = KeyedResult(rows, totals, scores, tables, dict(statistics), seconds)
    whole.inserts, whole.deletes = (sum(getattr(one, name) for one in results) for name in ("inserts", "deletes"))
    whole.refused_rows = [row for one in results for row in one.refused_rows]
    whole.taken = [key for one in results for key in one.taken]
    if results and results[0].digests is not None:
        whole.digest = digest_of_groups({group: one for part in results for group, one in (part.digests or {}).items()})
    return whole


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Context, or decorator, without automatic garbage collection: what a block of many keys makes mostly lives on."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class KeyedSession:
    """The models of all keys, or of those of some groups."""

    def __init__(self, job: KeyedJob) -> None:
        traits = job.learner.traits(job.options)
        self._job, self.records = job, NewTableRows(job.every, predicting=job.predicting, own=traits.figures)
        self._sums = (*_SUMS, *traits.counts)
        self.members = Members(job)
        self._clear()
        self._seconds = 0.0
        self._frozen = 0  # keys whose objects are out of the garbage collector's sight
        self._digests: dict[int, str] = {}  # of groups that have not changed since
        self._dirty: set[int] = set()  # groups whose digests are not known
        self._unsaved: set[int] = set()  # groups that have changed since the last snapshot

    def _clear(self) -> None:
        self._totals = np.zeros(len(TOTALS), dtype=np.int64)
        self._scores: AnyArray = np.zeros(0)
        self._statistics = np.zeros(len(self._sums), dtype=np.int64)
        self._depths: Counter[int] = Counter()  # keys by depth
        self._noted: list[_Figures] = []  # of keys whose figures change, until they are entered into the sums

    @uncollected()
    def apply(self, batch: KeyedBatch) -> KeyedResult:
        """Apply the rows of a batch, each by the model of its key."""
        began = work_seconds()
        digests = self.digests_of_groups() if batch.digest else None
        before = self.totals()
        self._learn(self._job.shared.split(batch.rows, batch.due))
        result = self.result(len(batch))
        result.inserts, result.deletes = (result.totals[name] - before[name] for name in ("inserts", "deletes"))
        result.refused_rows, result.taken = self.records.take_refused(), self.members.take_taken()
        result.refused, result.digests = batch.refusals(result.refused_rows), digests
        result.digest = None if digests is None else digest_of_groups(digests)
        result.seconds = work_seconds() - began
        self._seconds += result.seconds
        self._freeze()
        stored = None if batch.barrier is None else batch.barrier.segments()
        if stored is not None:
            result.snapshot = self.snapshot(stored)
        return result

    def _freeze(self) -> None:
        """Spare the garbage collector the models, which live on: whenever there are a quarter more of them."""
        if len(self.members) > 1.25 * self._frozen:
            gc.collect(1)
            gc.freeze()
            self._frozen = len(self.members)

    def _learn(self, parts: Iterable[Part]) -> None:
        try:
            self.members.learn(parts, self)
        except InputError as error:
            raise KeyFailedError(message("keyed.refused", error=message_of(error))) from error
        self._note_changes()

    def _note_changes(self) -> None:
        changed = self.members.take_changed()
        self._dirty.update(changed)
        self._unsaved.update(changed)

    # -- what the members report ------------------------------------------------------------------------------

    def before(self, member: Member) -> None:
        """Take a key's figures out of the sums, before they change."""
        self._note(member, -1)

    def after(self, member: Member) -> None:
        """Enter a key's figures into the sums again."""
        self._note(member, 1)

    def _note(self, member: Member, sign: int) -> None:
        tally = member.tally
        known = tally.statistics
        figures = [known.get(name, 0) for name in self._sums]
        scores = tally.prequential.sums()
        self._noted.append((sign, member.group, _totals_of(tally), figures, known.get("depth", 0), scores))

    def _count(self) -> None:
        """Enter what was noted into the sums: of all keys at once, since there may be very many."""
        noted, self._noted = self._noted, []
        if not noted:
            return
        sign, groups, totals, figures, depths, sums = zip(*noted, strict=True)
        signs, scores = np.array(sign), np.array(sums)
        self._totals += signs @ np.array(totals, dtype=np.int64)
        self._statistics += signs @ np.array(figures, dtype=np.int64)
        for depth, by in zip(depths, sign, strict=True):
            self._depths[depth] += by
        if not len(self._scores):
            self._scores = np.zeros((GROUPS, scores.shape[1]), dtype=scores.dtype)
        np.add.at(self._scores, list(groups), signs[:, None] * scores)

    # -- the interface of a session -----------------------------------------------------------------------------

    def process(
        self, batches: Iterable[KeyedBatch], *, skip_refused: bool = False
    ) -> Iterator[tuple[KeyedBatch, KeyedResult]]:
        """Apply batches in order; whether refused updates are skipped is an option of the stream."""
        for batch in batches:
            yield batch, self.apply(batch)

    @property
    def under_way(self) -> int:
        """None: a batch is applied when it is asked for."""
        return 0

    @uncollected()
    def finish(self) -> Any:
        """Complete what waits for more updates; what was recorded of that, as of an empty batch."""
        self._unsaved.update(self.members.finish(self))
        self._note_changes()
        self._count()
        for group, held in enumerate(map(self.members.of_group, range(GROUPS))):
            if held:  # in one order: what floats were on the way depends on the blocks in which rows came
                sums = [held[key].tally.prequential.sums() for key in sorted(held, key=bytes_of)]
                self._scores[group] = np.sum(sums, axis=0)
        return self.result()

    def result(self, rows: int = 0) -> KeyedResult:
        """Return the figures of now, and what was recorded since the last call, for a batch of so many rows."""
        totals = self.totals()
        return KeyedResult(rows, totals, self._scores.copy(), self.records.take(), self.statistics())

    def totals(self) -> dict[str, int]:
        """Return :data:`TOTALS`, summed up over all keys."""
        self._count()
        return dict(zip(TOTALS, self._totals.tolist(), strict=True))

    @uncollected()
    def digest(self) -> str:
        """Digest over all keys; that of a group that has not changed is not made again."""
        return digest_of_groups(self.digests_of_groups())

    def digests_of_groups(self) -> dict[int, str]:
        """Return the digest of each group that has keys."""
        self._digests |= self.members.digest_of_groups(sorted(self._dirty))
        self._dirty = set()
        return dict(self._digests)

    def statistics(self) -> dict[str, int]:
        """Statistics, summed up over all keys."""
        self._count()
        counts = dict(zip(self._sums, self._statistics.tolist(), strict=True))
        depth = max((depth for depth, keys in self._depths.items() if keys), default=0)
        return {**counts, "depth": depth, "keys": len(self.members), "rounds": 0, "bytes_exchanged": 0}

    @uncollected()
    def snapshot(self, segments: Sequence[Segment] = ()) -> Snapshot:
        """A snapshot: packed, the groups that have changed since the last one, or are not stored (``segments``)."""
        parts: Parts = {}
        stored = {one.first for one in segments} - self._unsaved
        for group in range(GROUPS):
            held = self.members.of_group(group)
            if held and group not in stored:
                parts[group] = GroupSnapshot({}, packed(*self.members.states(group)))
        self._unsaved = set()
        return Snapshot(0, np.empty(0, dtype=np.int64), {}, {"keys": self.keys_of_groups()}, (0, 0), [parts])

    def keys_of_groups(self) -> Ints:
        """Return the number of keys of each group, shape (256,)."""
        return self.members.keys_of_groups()

    @uncollected()
    def model(self) -> dict[str, Arrays]:
        """Return the components of a model folder: of each group that has keys, what predicting needs."""
        held = [group for group in range(GROUPS) if self.members.of_group(group)]
        return {f"group-{group:03d}": packed(*self.members.models(group)) for group in held}

    def key_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table of keys, in the order of groups."""
        members = [one for group in range(GROUPS) for one in self.members.of_group(group).values()]
        return self.records.key_rows(members)

    def restore(self, state: Arrays, groups: Mapping[int, Arrays], _: Any = None, folder: Folder | None = None) -> None:
        """Replace everything by a saved state, of a ``folder``; ModelFileError if the arrays of a key do not fit."""
        self.members, place = Members(self._job), "" if folder is None else folder.root
        for group, arrays in groups.items():
            held = keys_of(arrays, group, place)
            with fitting_keys(group, place):
                self.members.restore(held)
        self._clear()
        self._digests = {}
        for member in self.members.by_key.values():
            self.after(member)
        self._dirty, self._unsaved = set(groups), set()
        self._freeze()

    def work(self) -> list[dict[str, Any]]:
        """One entry: this process has the models of all keys."""
        pid, keys = os.getpid(), len(self.members)
        return [{"shard": 0, "columns": 0, "keys": keys, "requests": 0, "seconds": self._seconds, "pid": pid}]

    def close(self) -> None:
        """Show the garbage collector the models again."""
        if self._frozen:
            gc.unfreeze()
            self._frozen = 0
