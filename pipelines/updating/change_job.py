"""``update --changes``: change logs applied to a saved state, scored before they are learned.

Invariant: all files are applied, or none: the new state is written as a whole in the end, after a receipt of it. A file
whose contents a state has in it is passed over, so that a command that is given once more, or was killed anywhere,
applies each file once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.receipts import ReceiptFile, now, opened_receipts
from pipelines.redaction import quoting_as_its_run
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import StatePlace, find_state, open_state, states_of
from pipelines.threads_of_run import in_threads_of_its_run
from pipelines.updating.change_files import ChangeFile, ChangeStreams, applied_files, find_changes, spelling_of
from pipelines.updating.changes import Deletions, Insertions, StateNames
from pipelines.updating.job import contents_after, copies_of, save_state
from pipelines.updating.lineage import absolute
from pipelines.updating.model_data import without_a_config
from pipelines.updating.series import Series
from raydt.errors import ConfigError
from raydt.examples.subjects import objects
from raydt.examples.targets import NUMBERS, Targets, dtype_of, no_targets
from raydt.examples.updates import (
    DELETE,
    DELETE_VALUE,
    INSERT,
    REFUSALS,
    UPDATE,
    WITH_ID,
    BatchResult,
    Log,
    UpdateBatch,
    cut_at,
    joined,
)
from raydt.learners import description_of, traits_of
from raydt.learners.description import Call
from raydt.messages import message
from raydt.sessions.receipt import Receipt, receipt_of
from raydt.sessions.receipt_entry import checked_note
from raydt.sessions.saved_model import SavedModel
from raydt.sessions.session import InProcessSession
from raydt.streams.changelog import ChangelogStream
from raydt.streams.tally import Tally, known

_NONE = np.empty(0, dtype=np.int64)
_OF_STATE = object()  #: In place of the subject of an example that the state before had.

#: Counts of an update, as in a summary.
COUNTED = ("inserts", "deletes", "replaced", "queries", "predictions", "refused", "skipped")

#: Updates in a batch.
_BATCH = 1 << 12


@dataclass(frozen=True, slots=True)
class ChangesResult:
    """Outcome of :func:`apply_changes`."""

    state: str  #: The new state; the newest one there was, if no file was new; empty of a dry run.
    receipt: Receipt | None  #: None if no file was new.
    files: list[str]  #: Files that were applied.
    known: list[str]  #: Files passed over, since the state has their contents.
    updates: int = 0
    counts: dict[str, int] = field(default_factory=dict)  #: As in a summary: ``inserts``, ``replaced``, ``refused``...
    scores: dict[str, Any] = field(default_factory=dict)  #: Columns of a row of the metrics table.

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        told = {"out": self.state or None, "files": self.files, "known": self.known, "updates": self.updates}
        receipt = {} if self.receipt is None else self.receipt.as_dict()
        return {**told, **self.counts, "scores": self.scores, **receipt}


@in_threads_of_its_run
@quoting_as_its_run
def apply_changes(
    state: str | Path,
    changes: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    dry_run: bool = False,
    op: str | None = None,
    envelope: Literal["debezium"] | None = None,
    label: str | None = None,
    id_column: str | None = None,
    kind: str | None = None,
    on_error: Literal["error", "skip"] = "error",
    receipts: ReceiptFile | None = None,
    note: str = "",
    keep: int | None = None,
) -> ChangesResult:
    """Apply change logs to a saved state, and score each row before the model learns it.

    Parameters
    ----------
    state : path or URI
        As of :func:`pipelines.update`, or a folder of successive states, of which the newest is taken.
    changes : path or URI, or a sequence of these
        Files, folders or patterns: Parquet, Arrow IPC, CSV or JSON Lines, in the order in which they are applied. A
        file whose contents the state has in it is passed over.
    out : path or URI, optional
        Folder of successive states, new, empty or the one that ``state`` is: the new state is its entry named by the
        number of updates, its file ``latest`` names that entry, and ``report.html`` shows them all. By default the
        folder that ``state`` is.
    op, envelope : str, optional
        As in ``source``. By default as the changes before were written, else by the columns of the file.
    kind : {"parquet", "arrow", "csv", "jsonl"}, optional
        By default from the end of each name.
    on_error : {"error", "skip"}
        At a row that cannot be used, or an update that the model refuses: stop and write nothing, or pass it over.
    dry_run, label, id_column, receipts, note, keep : optional
        As of :func:`pipelines.update`.

    Raises
    ------
    ConfigError
        An ``out`` that cannot be used or that another process writes, or a key that cannot be used.
    InputError, UpdateError
        No usable state, a bad row or a refused update. Nothing has been written.
    """
    checked_note(note)
    paths = [str(one) for one in ([changes] if isinstance(changes, str | Path) else changes)]
    series = Series(RunFolder(out)) if out is not None else Series.of_state(state)
    if series is None and not dry_run:
        raise ConfigError(message("updates.no_target"))
    Series.require_keep(keep, series)
    writing = series if not dry_run else None
    with opened_receipts(receipts, dry_run=dry_run) as receipts_open, _writer(writing, state, keep):
        place = find_state(state)
        saved, folder = open_state(place.folder)
        names = StateNames.of(saved, label, id_column)
        new, old = _split(find_changes(paths, kind, saved, names), applied_files(saved.meta))
        known_files = [one.path for one in old]
        if not new:
            return ChangesResult(folder.location, None, [], known_files)
        session, streams = saved.session(), ChangeStreams(saved, names, spelling_of(saved, op, envelope), on_error)
        applied = _Applied(saved, session, streams)
        with without_a_config():
            receipt = applied.run(new, _copies(saved, place, new))
        receipt = replace(receipt.answering(applied.whose(names), (), ()), note=note)
        result = ChangesResult("", receipt, [one.path for one in new], known_files, *applied.told)
        if writing is None:
            return result
        gone, inserted = applied.deletions, applied.insertions
        meta, components = contents_after(saved, folder, session, names, gone, inserted, receipt)
        meta |= {"offset": streams.seq} | ({"spelling": streams.given} if streams.given else {})
        meta["lineage"][-1] |= {
            "files": {"changes": [{**one.described(), "path": absolute(one.path)} for one in new]},
            "read_as": {"spelling": streams.given, "label": names.label, "id": names.id, "on_error": on_error}
            | ({} if names.weight is None else {"weight": names.weight}),
            "updates": result.updates,
            "time": now(),
            "replaced": result.counts["replaced"],
            "queries": result.counts["queries"],
            "active": receipt.active,
            "scores": result.scores,
        }
        components["scores"] = applied.prequential
        target = writing.place(streams.seq)
        save_state(target, meta, components, receipt, receipts_open)
        return replace(result, state=target.location)


@contextmanager
def _writer(series: Series | None, state: str | Path, keep: int | None) -> Iterator[None]:
    """Be the only process that writes successive states, and name the newest of them in the end."""
    if series is None:
        yield
        return
    place = find_state(state)
    taken = [] if place.run is None or place.config is None else [place.run, states_of(place.config, place.run)]
    with series.open(place.folder, taken):
        yield
        series.point_to_newest(keep)


def _split(found: Sequence[ChangeFile], known_files: set[str]) -> tuple[list[ChangeFile], list[ChangeFile]]:
    """Return the files that are new, and those whose contents the state, or a file before them, has."""
    new: list[ChangeFile] = []
    old: list[ChangeFile] = []
    seen = set(known_files)
    for one in found:
        (old if one.sha256 in seen else new).append(one)
        seen.add(one.sha256)
    return new, old


def _copies(saved: SavedModel, place: StatePlace, files: Sequence[ChangeFile]) -> tuple[str, ...]:
    return (*copies_of(saved, place, None), *(message("updates.copy_changes", path=one.path) for one in files))


class _Applied:
    """Application of the updates of change logs to a session, in their order."""

    def __init__(self, saved: SavedModel, session: InProcessSession, streams: ChangeStreams) -> None:
        self._saved, self._session, self._streams = saved, session, streams
        self._begin = int(saved.meta["offset"])
        self.told: tuple[int, dict[str, int], dict[str, Any]] = (0, {}, {})  #: Updates, counts and scores.
        self.prequential: dict[str, Any] = {}
        nothing = no_targets(0, dtype_of(traits_of(saved.options).reading.regression))
        self._gone = [_Deleted(_NONE, _NONE, [], nothing, [])]
        self._whose: dict[int, Any] = {}  # subjects of the live examples that these updates have inserted, by id
        self._new_ids: list[npt.NDArray[np.int64]] = []
        self._new_names: list[Any] = []
        self._path: list[npt.NDArray[Any]] = []
        self._logs: list[Log] = []

    def run(self, files: Sequence[ChangeFile], copies: tuple[str, ...]) -> Receipt:
        """Apply files, and return the receipt; InputError for a bad row, UpdateError for a refused update."""
        session, tally = self._session, None
        digest, before, active = session.digest(), session.statistics(), session.coordinator.store.live
        for stream in self._streams.streams(files):
            tally = self._tally(stream, tally)
            for batch in stream.batches(_BATCH):
                self._streams.require_labels(stream, batch)
                whose = stream.subjects_since(batch.start)
                for piece in _pieces(batch):
                    self._apply(piece, stream, tally, whose)
            tally.record_skipped(stream.take_skipped())
        assert tally is not None
        if traits_of(self._saved.options).collects_updates:
            self._logs.append(session.finish())
        counts = {name: int(getattr(tally, name)) for name in COUNTED}
        tally.prequential.mark()
        scores = known({name: float(values[-1]) for name, values in tally.prequential.take_rows().items()})
        self.told, self.prequential = (tally.updates - self._begin, counts, scores), tally.prequential.state()
        return self._receipt(digest, before, active, copies)

    def _tally(self, stream: ChangelogStream, before: Tally | None) -> Tally:
        """Return the counts of a file, which go on from those of the file before, or from the scores of the state."""
        tally = Tally(stream)
        if before is not None:
            tally.restore(before.state())
            return tally
        if "scores" in self._saved.components:
            tally.prequential.restore(self._saved.components["scores"])
        tally.prequential.mark()  # a window begins
        tally.prequential.take_rows()
        tally.updates = self._begin
        return tally

    def _apply(self, batch: UpdateBatch, stream: ChangelogStream, tally: Tally, whose: Mapping[int, Any]) -> None:
        store, by_value = self._session.coordinator.store, bool((batch.op == DELETE_VALUE).any())
        asked = store.slots() if by_value else store.find(batch.id)
        ids, y = np.array(store.id[asked]), np.array(store.y[asked])
        result = self._session.apply(batch, skip_refused=self._streams.skips)
        tally.record(batch, result, 0.0)
        if result.applied < len(batch):
            refusal = result.refused[-1]
            remedy = message("updates.skip_update", remedy=REFUSALS[refusal.reason][1])
            raise tally.update_error(batch, refusal).but(remedy=remedy)
        taken = np.ones(len(batch), dtype=np.bool_)
        taken[[refusal.position for refusal in result.refused]] = False
        deleted = np.flatnonzero(taken & ((batch.op == DELETE) | (batch.op == UPDATE)))
        at = deleted + batch.start
        if by_value:  # one example, which the update does not name
            deleted = np.flatnonzero(store.find(ids) < 0)
            at = np.full(len(deleted), batch.start)
        named = ids if by_value else batch.id
        of_new = [self._whose.pop(one, _OF_STATE) for one in named[deleted].tolist()]
        self._gone.append(_Deleted(at, named[deleted], stream.names_of(named[deleted]), y[deleted], of_new))
        begun = np.flatnonzero(taken & ((batch.op == INSERT) | (batch.op == UPDATE)))
        inserted = batch.id[begun]
        if whose:
            numbers = (begun + batch.start).tolist()
            self._whose |= {one: whose[number] for one, number in zip(inserted.tolist(), numbers, strict=True)}
        self._new_ids.append(inserted)
        self._new_names += stream.names_of(inserted)
        self._path.append(result.path)
        self._logs.append(result.log)

    def whose(self, names: StateNames) -> npt.NDArray[np.object_] | None:
        """Return the subjects of the deleted examples, in the order of the receipt; None where no row has one."""
        if names.subject_kind is None:
            return None
        gone = _Deleted.joined(self._gone)
        of_state = names.subjects.of(gone.ids)
        return np.where([one is _OF_STATE for one in gone.whose], of_state, objects(gone.whose))

    @property
    def deletions(self) -> Deletions:
        """Ids that were deleted, those of replaced examples among them."""
        found = _Deleted.joined(self._gone)
        return Deletions(_shown(found.names, found.ids), found.ids)

    @property
    def insertions(self) -> Insertions:
        """Ids that were inserted, and what the state knows after them."""
        ids = np.concatenate([_NONE, *self._new_ids])
        return self._streams.known(_shown(self._new_names, ids), ids)

    def _receipt(self, digest: str, before: Mapping[str, int], active: int, copies: tuple[str, ...]) -> Receipt:
        options, session, gone = self._saved.options, self._session, _Deleted.joined(self._gone)
        statistics, path = session.statistics(), np.concatenate([np.empty(0, dtype=np.int32), *self._path])
        result = BatchResult(len(path), np.empty(0), log=joined(self._logs), path=path, statistics=statistics)
        grown = {name: statistics[name] - before[name] for name in traits_of(options).counts}
        effects = description_of(options).effects(Call(gone.seq, path[gone.seq - self._begin], result, grown))
        numeric = gone.y.dtype == NUMBERS
        labels = gone.y if numeric else np.array([*self._streams.classes, None], dtype=object)[:-1][gone.y]
        return receipt_of(
            options,
            effects,
            {"id": _shown(gone.names, gone.ids), "label": labels},
            _shown(self._new_names, np.concatenate([_NONE, *self._new_ids])),
            active=(active, session.coordinator.store.live),
            digests=(digest, session.digest()),
            copies=copies,
            log=result.log,
        )


class _Deleted(NamedTuple):
    """Examples that updates deleted, in their order."""

    seq: npt.NDArray[np.int64]  #: Numbers of the updates.
    ids: npt.NDArray[np.int64]
    names: list[Any]  #: Ids as the user knows them.
    y: Targets
    whose: list[Any]  #: Their subjects; :data:`_OF_STATE` of an example that was live before the updates.

    @staticmethod
    def joined(parts: Sequence[_Deleted]) -> _Deleted:
        """Return the examples of parts, at least one, in their order."""
        seq, ids, names, y, whose = zip(*parts, strict=True)
        lists = ([*chain.from_iterable(one)] for one in (names, whose))
        return _Deleted(np.concatenate(seq), np.concatenate(ids), next(lists), np.concatenate(y), next(lists))


def _shown(names: list[Any], ids: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return ids as the user knows them: int64, or strings."""
    return objects(names) if any(isinstance(name, str) for name in names) else ids


def _pieces(batch: UpdateBatch) -> Iterator[UpdateBatch]:
    """Yield a batch in pieces in which no id comes twice, and deletions by value are alone."""
    places: list[int] = []
    seen: set[int] = set()
    alone = False
    for place, (op, i) in enumerate(zip(batch.op.tolist(), batch.id.tolist(), strict=True)):
        if alone or op == DELETE_VALUE or (WITH_ID[op] and i in seen):
            places += [place] if place else []
            seen = set()
        alone = op == DELETE_VALUE
        if WITH_ID[op]:
            seen.add(i)
    return cut_at(batch, places)
