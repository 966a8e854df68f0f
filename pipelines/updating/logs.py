"""Change logs as a source of changes: files of operations, of each member of a state, scored before they are learned.

Invariant: every file is read with the dictionaries of the state and of the files before it, so that a category, a label
or a text id has the same code in all of them. A file is known by the hash of its contents, whatever it is called.
Figures are those at the moment of each update, whatever comes after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from pipelines.updating.changes import (
    StateNames,
    absolute,
    grown,
    known_categories,
    live_features,
    null_values,
    numbers_of,
    require_columns,
    require_numbers,
    rows_by_key,
    rules_of,
    sound_rows,
    source_of_key,
    type_empty,
    without_a_config,
)
from raydt.arrays.elementary import AnyArray, Int32s, Ints
from raydt.errors import InputError
from raydt.examples.store import objects
from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    INSERT,
    NUMBERS,
    REFUSALS,
    UPDATE,
    WITH_ID,
    BatchResult,
    Log,
    Targets,
    UpdateBatch,
    cut_at,
    dtype_of,
    joined,
    no_targets,
)
from raydt.keyed.groups import in_order
from raydt.keyed.packing import Member
from raydt.keyed.source import KeySource, SharedSource
from raydt.learners import traits_of
from raydt.learners.description import Call
from raydt.messages import message, quoted_columns
from raydt.sessions.receipt import Method, Receipt, receipt_of
from raydt.sessions.saved_model import SavedModel
from raydt.sessions.session import InProcessSession
from raydt.sources.base import AFTER, BEFORE, Rows
from raydt.sources.encoder import EncodedSource
from raydt.sources.file_source import FileSource
from raydt.sources.files.datafile import DataFile
from raydt.sources.files.jsonl import Dialect, JsonLinesDataFile, find_kind, open_file
from raydt.sources.options import SourceOptions
from raydt.streams.base import Replay, Tally, known
from raydt.streams.deletion_log import Changelog, ChangelogStream

log = logging.getLogger(__name__)

#: Columns that hold operations where nobody names one, in the order in which they are tried.
OPERATIONS = ("op", "__op", "_change_type", "row_kind")

#: The rows of one key in each file, by its path, with what all keys share of it.
FileParts = dict[str, tuple[SharedSource, Rows]]
Spelling = dict[str, Any]  #: Keys ``op``, ``envelope`` and ``op_values`` of a source.
#: What is done at a row that cannot be used, or an update that is refused.
OnError = Literal["fail", "skip"]


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """One file of changes."""

    path: str  #: As it was given, or found in a folder.
    file: DataFile
    sha256: str

    def described(self) -> dict[str, Any]:
        """Return how a lineage names the file."""
        return {"path": self.path, "kind": self.file.kind, "sha256": self.sha256, "rows": self.file.count()}


def find_changes(paths: Sequence[str], kind: str | None, saved: SavedModel, names: StateNames) -> list[ChangeFile]:
    """Open all files of paths, in order; InputError for a missing, unclear or unusable one, or one twice."""
    found: dict[str, ChangeFile] = {}
    as_text = (*saved.features.categorical_names, *names.text)
    or_else, dialect = ", or add --kind parquet, arrow, csv or jsonl", Dialect.of(saved.meta)
    with without_a_config():
        for path in paths:
            form, places = find_kind(path, ".", kind, or_else=or_else, dialect=dialect)
            for place in places:
                if place.name in found:
                    raise InputError(message("updates.file_twice"), file=place.name)
                file = open_file(form, place, as_text, dialect, rules_of(saved), numbers_of(saved.features))
                found[place.name] = ChangeFile(place.name, file, file.content_hash())
    return list(found.values())


def applied_files(meta: Mapping[str, Any]) -> set[str]:
    """Return the hashes of the files of changes that a state has in it, by its ``meta``."""
    steps = [step.get("files", {}).get("changes", []) for step in meta.get("lineage", [])]
    known = {file["sha256"] for files in steps for file in files}
    of_run = meta.get("config", {}).get("stream", {}).get("model") == "changelog"
    return (
        known
        | {file["sha256"] for file in meta.get("source", {}).get("files", []) if of_run}
        | set(meta.get("read", []))
    )


def read_before(saved: SavedModel) -> dict[str, Any]:
    """Return what ``meta`` of a new state has to know of the changes that the state before it has read."""
    found = {
        "read": sorted(applied_files(saved.meta)),
        "spelling": spelling_of(saved, None, None),
        "weighted_metrics": is_weighted(saved.meta),
    }
    return {name: value for name, value in found.items() if value}


def is_weighted(meta: Mapping[str, Any]) -> bool:
    """Return True if scores count each prediction by the weight of its row, as those of the run did."""
    of_run = meta.get("config", {}).get("output", {})
    return bool(meta.get("weighted_metrics", of_run.get("weighted_metrics", False)))


def spelling_of(saved: SavedModel, op: str | None, envelope: str | None) -> Spelling:
    """Return how changes are written: as the options say, else as the state has read changes before; else empty."""
    if op is not None or envelope is not None:
        return {"op": op, "envelope": envelope} if op is not None else {"envelope": envelope}
    source = saved.meta.get("config", {}).get("source", {})
    known = saved.meta.get("spelling") or {name: source.get(name) for name in ("op", "envelope", "op_values")}
    return {name: value for name, value in known.items() if value is not None} if known.get("op") else {}


def guessed(file: DataFile, spelling: Spelling) -> Spelling:
    """Return the spelling of a file: the one given, or what its columns say. InputError if they say nothing."""
    if spelling:
        return spelling
    if BEFORE in file.names and AFTER in file.names and "op" in file.names:
        return {"op": "op", "envelope": "debezium"}
    for name in OPERATIONS:
        if name in file.names:
            return {"op": name}
    raise InputError(message("updates.no_operations", columns=quoted_columns(file.names)), file=file.name)


def source_of(
    saved: SavedModel, names: StateNames, given: Spelling, one: ChangeFile, key: str | None = None
) -> FileSource:
    """Return the rows of a file, with the dictionaries of the state; ``key`` is the column of keys, if it has some."""
    file, features = one.file, saved.features
    spelling = guessed(file, given)
    needed = [*features.names, *([features.sparse_column] if features.sparse else [])]
    columns: dict[str, Any] = {
        **names.roles(key),
        "features": needed,
        "categorical": features.categorical_names,
        "n_features": features.sparse or None,
    }
    if isinstance(file, JsonLinesDataFile):
        file.expect(_types(saved, names), (AFTER,) if spelling.get("envelope") else ())
    elif not spelling.get("envelope"):
        if names.id in file.names and {names.label, *needed}.isdisjoint(file.names):  # it can only delete
            file.expect(_types(saved, names))
        require_columns(file, needed, names.wanted(key))
        type_empty(saved, file)
    values = {"kind": file.kind, "path": one.path, "rules": rules_of(saved), **columns, **spelling}
    values |= null_values(saved, file.kind)
    with without_a_config():
        options = TypeAdapter[Any](SourceOptions).validate_python(values)
        source = FileSource(options, [file], reading=traits_of(saved.options).reading)
        names.require_kinds(source, file)
        if file.count():
            require_numbers(features, source, file)
        source.restore({**source.state(), "categories": known_categories(saved, [file]), "labels": names.labels})
    source.lost.expect(live_features(saved))
    return source


def _types(saved: SavedModel, names: StateNames) -> dict[str, pa.DataType]:
    """Return the types of the columns that JSON lines, and files of deletions alone, may leave out."""
    features = saved.features
    assert names.id is not None
    types = dict.fromkeys(features.names, pa.float64()) | dict.fromkeys(features.categorical_names, pa.string())
    if features.sparse:
        of_tokens = features.sparse_column in saved.categories
        types[features.sparse_column] = pa.list_(pa.string() if of_tokens else pa.int64())
    label: Any = saved.classes[0] if saved.classes else 0.0
    types[names.label] = pa.scalar(label).type
    types[names.id] = pa.string() if names.text_ids else pa.int64()
    if names.subject is not None:
        types[names.subject] = pa.string() if names.subject_kind == "text" else pa.int64()
    return types if names.weight is None else types | {names.weight: pa.float64()}


#: Counts of an update, as in a summary.
COUNTED = ("inserts", "deletes", "replaced", "queries", "predictions", "refused", "skipped")
#: What is counted of a key in its state, and told of by an adoption.
KEPT = ("inserts", "deletes", "replaced", "queries")

#: Updates in a batch that is applied, and in one that is replayed.
_BATCH, _REPLAYED = 1 << 12, 1 << 14

_NONE = np.empty(0, dtype=np.int64)
_OF_STATE = object()  #: In place of the subject of an example that the state before had.


class _Deleted(NamedTuple):
    """Examples that updates deleted, in their order."""

    seq: Ints  #: Numbers of the updates.
    ids: Ints
    names: list[Any]  #: Ids as the user knows them.
    y: Targets
    whose: list[Any]  #: Their subjects; :data:`_OF_STATE` of an example that was live before the updates.

    @staticmethod
    def joined(parts: Sequence[_Deleted]) -> _Deleted:
        """Return the examples of parts, at least one, in their order."""
        seq, ids, names, y, whose = zip(*parts, strict=True)
        lists = ([*chain.from_iterable(one)] for one in (names, whose))
        return _Deleted(np.concatenate(seq), np.concatenate(ids), next(lists), np.concatenate(y), next(lists))


class LogChanges:
    """The updates of files for one member, from its state on; ``parts`` are those of one key, if there are keys.

    Known once they are applied or replayed: the number ``seq`` of the next update, ``counts``, ``scores`` to go on
    from, ``figures`` of a row of the metrics table, ``sums`` of the scores of these updates alone, and the ids
    ``inserted``.
    """

    def __init__(
        self,
        saved: SavedModel,
        names: StateNames,
        files: Sequence[ChangeFile],
        spelling: Spelling,
        on_error: OnError = "fail",
        parts: FileParts | None = None,
    ) -> None:
        if names.id is None:
            raise InputError(message("updates.no_change_ids"))
        self.saved, self._names, self._parts = saved, names, parts
        self._files, self._spelling, self._skips = files, spelling, on_error == "skip"
        self.seq = self._begin = int(saved.meta["offset"])
        self._labels: dict[str, Any] = names.labels
        self._at = names.state()
        self.counts, self.scores, self.figures = dict[str, int](), dict[str, Any](), dict[str, Any]()
        self.sums: AnyArray = np.zeros(0)
        nothing = no_targets(0, dtype_of(traits_of(saved.options).reading.regression))
        self._gone = [_Deleted(_NONE, _NONE, [], nothing, [])]
        self._whose: dict[int, Any] = {}  # subjects of the live examples that these updates have inserted, by id
        self._new_ids: list[Ints] = []
        self._new_names: list[Any] = []
        self._path: list[AnyArray] = []
        self._logs: list[Log] = []

    def _streams(self, warmup: int | None) -> Iterator[ChangelogStream]:
        """Yield the stream of each file; it has to be read to its end before the next one is asked for."""
        warmup = self.seq if warmup is None else warmup  # changes end a warm-up that is under way
        for one in self._files:
            if self._parts is not None and one.path not in self._parts:
                continue
            stream = self._opened(one, warmup)
            yield stream
            at, source = stream.state(), stream.source
            assert isinstance(source, FileSource | KeySource)
            self.seq, self._labels, warmup = int(at["seq"]), at["source"]["labels"], stream.warmup
            self._at = {name: at[name] for name in (*self._at, "absent") if name in at}
            self.saved = grown(self.saved, source)

    def _opened(self, one: ChangeFile, warmup: int) -> ChangelogStream:
        names, part = replace(self._names, labels=self._labels), None if self._parts is None else self._parts[one.path]
        with without_a_config():
            source: FileSource | KeySource = (
                source_of(self.saved, names, self._spelling, one)
                if part is None
                else source_of_key(part[0], self.saved, names)
            )
            stream = ChangelogStream(Changelog(on_error="skip" if self._skips else "fail", warmup=warmup), source)
        at = {"seq": self.seq, "row": 0, "n_classes": len(self.saved.classes), "source": source.state()}
        stream.restore({**at, **self._at})
        if isinstance(source, KeySource) and part is not None:
            source.give(part[1])  # once it has the dictionaries of the state
        return stream

    def replay(self, replay: Replay, warmup: int | None) -> tuple[Ints, Ints]:
        """Replay the updates; return ids that were live before and are deleted, and those inserted that live then."""
        for stream in self._streams(warmup):
            for batch in stream.batches(_REPLAYED):
                replay.add(batch)
        history, begin = replay.result(), self._begin
        gone = (history.inserted < begin) & (history.deleted >= begin) & (history.deleted < self.seq)
        return history.id[gone], history.id[(history.inserted >= begin) & (history.deleted >= self.seq)]

    def apply(self, session: InProcessSession, copies: tuple[str, ...], warmup: int | None) -> Receipt:
        """Apply the updates to a session of the state, which begins if a ``warmup`` is given; return the receipt.

        InputError for a bad row, UpdateError for a refused update.
        """
        begins, tally = warmup is not None, None
        digest = None if begins else session.digest()
        before, active = session.statistics(), session.coordinator.store.live
        for stream in self._streams(warmup):
            tally = self._tally(stream, tally)
            for batch in stream.batches(_BATCH):
                for name in stream.source.lost.take() if isinstance(stream.source, EncodedSource) else ():
                    log.warning(message("rows.lost", column=name), extra={"event": "lost_column"})
                self._require_labels(stream, batch)
                whose = stream.subjects_since(batch.start)
                for piece in _pieces(batch):
                    self._apply(session, piece, stream, tally, whose)
            tally.record_skipped(stream.take_skipped())
        assert tally is not None
        if begins or traits_of(self.saved.options).collects_updates:
            self._logs.append(session.finish())
        self.counts = {name: int(getattr(tally, name)) for name in COUNTED}
        self.sums = tally.prequential.sums() - self.sums
        tally.prequential.mark()
        self.figures = known({name: float(values[-1]) for name, values in tally.prequential.take_rows().items()})
        self.scores, self.inserted = tally.prequential.state(), np.concatenate([_NONE, *self._new_ids])
        return self._receipt(session, digest, before, active, copies)

    def _require_labels(self, stream: ChangelogStream, batch: UpdateBatch) -> None:
        """Refuse labels of a batch, as of :meth:`StateNames.require_labels`."""
        rows = batch.row[CARRIES_ROW[batch.op]]
        self._names.require_labels(self.saved, stream.source, batch.y, lambda place: stream.where(int(rows[place])))

    def _tally(self, stream: ChangelogStream, before: Tally | None) -> Tally:
        """Return the counts of a file, which go on from those of the file before, or from the scores of the state."""
        tally = Tally(stream, weighted=is_weighted(self.saved.meta))
        if before is not None:
            tally.restore(before.state())
            return tally
        if "scores" in self.saved.components:
            tally.prequential.restore(self.saved.components["scores"])
        self.sums = tally.prequential.sums()
        tally.prequential.mark()  # a window begins
        tally.prequential.take_rows()
        tally.updates = self._begin
        return tally

    def _apply(
        self,
        session: InProcessSession,
        batch: UpdateBatch,
        stream: ChangelogStream,
        tally: Tally,
        whose: Mapping[int, Any],
    ) -> None:
        store = session.coordinator.store
        by_value = batch.op[0] == DELETE_VALUE  # alone in its piece
        asked = _equal(session, batch) if by_value else store.find(batch.id)
        ids, y = (
            column[asked] if len(column) else np.zeros(len(asked), column.dtype) for column in (store.id, store.y)
        )
        named = ids if by_value else batch.id
        result = session.apply(batch, skip_refused=self._skips)
        tally.record(batch, result, 0.0)
        if result.applied < len(batch):
            refusal = result.refused[-1]
            remedy = message("updates.skip_update", remedy=REFUSALS[refusal.reason][1])
            raise tally.update_error(batch, refusal).but(remedy=remedy)
        taken = np.ones(len(batch), dtype=np.bool_)
        taken[[refusal.position for refusal in result.refused]] = False
        deleted = np.flatnonzero(taken & ((batch.op == DELETE) | (batch.op == UPDATE) | by_value))
        at = deleted + batch.start
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

    def _receipt(
        self,
        session: InProcessSession,
        digest: str | None,
        before: Mapping[str, int],
        active: int,
        copies: tuple[str, ...],
    ) -> Receipt:
        method, gone, names = Method.of(self.saved.options), _Deleted.joined(self._gone), self._names
        statistics, path = session.statistics(), np.concatenate([np.empty(0, dtype=np.int32), *self._path])
        result = BatchResult(len(path), np.empty(0), log=joined(self._logs), path=path, statistics=statistics)
        counts = {name: statistics[name] - before[name] for name in method.traits.counts}
        effects = method.description.effects(Call(gone.seq, path[gone.seq - self._begin], result, counts))
        labels = gone.y
        if gone.y.dtype != NUMBERS:
            labels = np.array([*self.saved.classes, None], dtype=object)[:-1][gone.y]
        whose = None
        if names.subject_kind is not None:
            of_state = names.subjects.of(gone.ids)
            whose = np.where([one is _OF_STATE for one in gone.whose], of_state, objects(gone.whose))
        return receipt_of(
            method,
            effects,
            {"id": _shown(gone.names, gone.ids), "label": labels},
            _shown(self._new_names, self.inserted),
            active=(active, session.coordinator.store.live),
            digests=(digest, session.digest()),
            copies=copies,
        ).answering(whose, (), ())

    def component(self, live: tuple[Ints, Ints]) -> dict[str, Any]:
        """Return the component of the stream of the state afterwards, of which these ids and births are ``live``."""
        return self._names.at(self._at).component(self.saved, live)


def _equal(session: InProcessSession, batch: UpdateBatch) -> Int32s:
    """Return the slot of the example that a deletion by value takes: of those that equal its row, the oldest."""
    if not session.coordinator.store.live:
        return np.empty(0, dtype=np.int32)
    sparse = {} if batch.sparse is None else {"sparse": batch.sparse}
    equal = session.coordinator.find_equal(batch.X, 0, batch.y[0].item(), **sparse)
    return session.driver.run(equal)[:1]


def _shown(names: list[Any], ids: Ints) -> AnyArray:
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


class Logs:
    """Files of changes to the state ``common``, told apart by the ``column`` of keys; None without keys."""

    def __init__(
        self,
        files: Sequence[ChangeFile],
        common: SavedModel,
        names: StateNames,
        spelling: Spelling,
        on_error: OnError,
        column: str | None,
    ) -> None:
        self.known, self.names = common, names  #: ``known``: With the classes and categories of all keys.
        self.skipped, self.missing = 0, list[Any]()  #: Bad rows that have no key; ids: none.
        self._given = files, spelling, on_error
        self._parts: dict[Member, FileParts | None] = {None: None} if column is None else {}
        for one in files if column is not None else ():
            source = source_of(self.known, names, spelling, one, column)
            shared = SharedSource(source, traits_of(common.options).reading)
            chunks = list(source.rows() if on_error == "skip" else sound_rows(source))
            self.skipped += sum(int((chunk.key[[*chunk.bad]] < 0).sum()) for chunk in chunks if chunk.key is not None)
            for key, rows in rows_by_key(shared, chunks).items():
                parts = self._parts.setdefault(key, {})
                assert parts is not None
                parts[one.path] = shared, rows
            self.known = grown(self.known, source)
            names = replace(names, labels=source.state()["labels"])

    @property
    def keys(self) -> list[Member]:
        """Members that the files name."""
        return [None] if None in self._parts else in_order(self._parts)

    def of(self, key: Member, saved: SavedModel, names: StateNames) -> LogChanges:
        """Return the updates of a member, by its state."""
        return LogChanges(saved, names, *self._given, self._parts[key])

    def files(self, paths: Mapping[str, str | None], missing: Sequence[Any]) -> dict[str, Any]:
        """Return how a lineage names the files."""
        return {"changes": [{**one.described(), "path": absolute(one.path)} for one in self._given[0]]}
