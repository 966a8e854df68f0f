"""The files of change logs as streams of updates for a saved state.

Invariant: every file is read with the dictionaries of the state and of the files before it, so that a category, a label
or a text id has the same code in all of them. A file is known by the hash of its contents, whatever it is called.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import TypeAdapter

from pipelines.updating.changes import (
    Deletions,
    Insertions,
    StateNames,
    grown_categories,
    known_categories,
    live_features,
    no_deletions,
    no_insertions,
    require_columns,
    require_numbers,
    rules_of,
    source_of_key,
    without_a_config,
)
from raydt.arrays.elementary import AnyArray, Int32s, Ints
from raydt.errors import InputError
from raydt.examples.store import Subjects, objects
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
from raydt.keyed.source import KeySource, SharedSource
from raydt.learners import description_of, traits_of
from raydt.learners.base import WeightSum
from raydt.learners.description import Call
from raydt.messages import Message, message
from raydt.redaction import quoted_columns
from raydt.sessions.receipt import Receipt, receipt_of
from raydt.sessions.saved_model import SavedModel
from raydt.sessions.session import InProcessSession
from raydt.sources.base import AFTER, BEFORE, Rows
from raydt.sources.encoder import EncodedSource
from raydt.sources.file_source import FileSource
from raydt.sources.files.datafile import DataFile
from raydt.sources.files.jsonl import Dialect, JsonLinesDataFile, find_kind, open_file
from raydt.sources.options import SourceOptions
from raydt.streams.base import Tally, known
from raydt.streams.deletion_log import Changelog, ChangelogStream
from raydt.streams.id_dictionary import TextIds
from raydt.streams.row_stream import AbsentRows

#: Columns that hold operations where nobody names one, in the order in which they are tried.
OPERATIONS = ("op", "__op", "_change_type", "row_kind")

#: The rows of one key in each file, by its path, with what all keys share of it.
FileParts = dict[str, tuple[SharedSource, Rows]]
Spelling = dict[str, Any]  #: Keys ``op``, ``envelope`` and ``op_values`` of a source.


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
                file = open_file(form, place, as_text, dialect, rules_of(saved))
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


class ChangeStreams:
    """Streams of files, one after another, which go on from a state.

    ``parts`` are those of one key, if there are keys; files without one are passed over.
    ``seq`` and ``known`` are those after the updates handed out so far: the number of the next update, and what a state
    knows then.
    """

    def __init__(
        self,
        saved: SavedModel,
        names: StateNames,
        spelling: Spelling,
        on_error: Literal["error", "skip"] = "error",
        warmup: int | None = None,
        parts: FileParts | None = None,
    ) -> None:
        if names.id is None:
            raise InputError(message("updates.no_change_ids"))
        self._saved, self._names, self._on_error = saved, names, on_error
        self._parts = parts
        self.seq = int(saved.meta["offset"])
        self._warmup = self.seq if warmup is None else warmup  # changes end a warm-up that is under way
        self._labels: dict[str, Any] = names.labels
        self._stream = names.ids.state() if names.text_ids else {}
        self._stream |= names.subjects.state() if names.subject_kind is not None else {}
        self._absent = names.absent.state()
        self.given = spelling  #: As of :func:`spelling_of`.

    @property
    def skips(self) -> bool:
        """Return True if bad rows and refused updates are passed over."""
        return self._on_error == "skip"

    @property
    def classes(self) -> list[Any]:
        """Labels in the order of their codes."""
        return self._saved.classes

    def known(self, shown: AnyArray, ids: Ints) -> Insertions:
        """Return the insertion of examples with these ids, without rows, and what a state knows after it."""
        names = replace(self._names, ids=TextIds(), subjects=Subjects())
        if names.text_ids:
            names.ids.restore(self._stream)
        if names.subject_kind is not None:
            names.subjects.restore(self._stream)
        absent = AbsentRows()
        absent.restore(self._absent)
        empty = no_insertions(self._saved, names, no_deletions())
        return replace(empty, names=shown, ids=ids, all_subjects=names.subjects, all_absent=absent)

    def streams(self, files: Iterable[ChangeFile]) -> Iterator[ChangelogStream]:
        """Yield the stream of each file; it has to be read to its end before the next one is asked for."""
        for one in files:
            if self._parts is not None and one.path not in self._parts:
                continue
            stream = self._opened(one)
            yield stream
            at, source = stream.state(), stream.source
            assert isinstance(source, FileSource | KeySource)
            self.seq, self._labels, self._warmup = int(at["seq"]), at["source"]["labels"], stream.warmup
            self._stream = {name: at[name] for name in self._stream}
            self._absent = stream.absent.state()
            self._saved = grown(self._saved, source)

    def _opened(self, one: ChangeFile) -> ChangelogStream:
        with without_a_config():
            source = self._source(one)
            stream = ChangelogStream(
                Changelog(on_error="skip" if self._on_error == "skip" else "fail", warmup=self._warmup), source
            )
        at = {"seq": self.seq, "row": 0, "n_classes": len(self._saved.classes), "source": source.state()}
        stream.restore({**at, **self._stream, **self._absent})
        if isinstance(source, KeySource) and self._parts is not None:
            source.give(self._parts[one.path][1])  # once it has the dictionaries of the state
        return stream

    def _source(self, one: ChangeFile) -> FileSource | KeySource:
        names = replace(self._names, labels=self._labels)
        if self._parts is not None:
            return source_of_key(self._parts[one.path][0], self._saved, names)
        return source_of(self._saved, names, self.given, one)

    def require_labels(self, stream: ChangelogStream, batch: UpdateBatch) -> None:
        """Refuse labels of a batch, as of :meth:`StateNames.require_labels`."""
        rows = batch.row[CARRIES_ROW[batch.op]]
        self._names.require_labels(self._saved, stream.source, batch.y, lambda place: stream.where(int(rows[place])))


def grown(saved: SavedModel, source: FileSource | KeySource) -> SavedModel:
    """Return a state with the classes and categories that it knows once a source has been read."""
    classes = [] if traits_of(saved.options).reading.regression else source.classes
    return replace(saved, classes=classes or saved.classes, categories=grown_categories(source, saved))


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
    values = {"kind": file.kind, "path": one.path, "rules": rules_of(saved), **columns, **spelling}
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


# The updates of change logs applied to a session, scored before they are learned, with what the receipt tells of them.
#
# Invariant: figures are those at the moment of each update, whatever comes after it.

log = logging.getLogger(__name__)


def warn_of_weights(options: Any, session: InProcessSession) -> None:
    """Warn if the weights of the live examples are too small to split a node."""
    log_little(WeightSum.of_live(session.coordinator.store).too_little(traits_of(options)))


def log_little(said: Message | None) -> None:
    """Log a warning of small weights, if there is one."""
    if said is not None:
        log.warning(said, extra={"event": "little_weight"})


_NONE = np.empty(0, dtype=np.int64)


#: Updates, counts and scores.
Told = tuple[int, dict[str, int], dict[str, Any]]


_OF_STATE = object()  #: In place of the subject of an example that the state before had.


#: Counts of an update, as in a summary.
COUNTED = ("inserts", "deletes", "replaced", "queries", "predictions", "refused", "skipped")


#: Updates in a batch.
_BATCH = 1 << 12


class Applied:
    """Application of the updates of change logs to a session, in their order.

    If it ``begins``, the session has seen no update.
    """

    def __init__(
        self, saved: SavedModel, session: InProcessSession, streams: ChangeStreams, *, begins: bool = False
    ) -> None:
        self._saved, self._session, self._streams, self._begins = saved, session, streams, begins
        self._begin = int(saved.meta["offset"])
        self.told: Told = (0, {}, {})
        self.sums: AnyArray = np.zeros(0)  #: Sums of the scores of these updates alone.
        self.prequential: dict[str, Any] = {}
        nothing = no_targets(0, dtype_of(traits_of(saved.options).reading.regression))
        self._gone = [_Deleted(_NONE, _NONE, [], nothing, [])]
        self._whose: dict[int, Any] = {}  # subjects of the live examples that these updates have inserted, by id
        self._new_ids: list[Ints] = []
        self._new_names: list[Any] = []
        self._path: list[AnyArray] = []
        self._logs: list[Log] = []

    def run(self, files: Sequence[ChangeFile], copies: tuple[str, ...]) -> Receipt:
        """Apply files, and return the receipt; InputError for a bad row, UpdateError for a refused update."""
        session, tally = self._session, None
        digest = None if self._begins else session.digest()
        before, active = session.statistics(), session.coordinator.store.live
        for stream in self._streams.streams(files):
            tally = self._tally(stream, tally)
            for batch in stream.batches(_BATCH):
                for name in stream.source.lost.take() if isinstance(stream.source, EncodedSource) else ():
                    log.warning(message("rows.lost", column=name), extra={"event": "lost_column"})
                self._streams.require_labels(stream, batch)
                whose = stream.subjects_since(batch.start)
                for piece in _pieces(batch):
                    self._apply(piece, stream, tally, whose)
            tally.record_skipped(stream.take_skipped())
        assert tally is not None
        if self._begins or traits_of(self._saved.options).collects_updates:
            self._logs.append(session.finish())
        counts = {name: int(getattr(tally, name)) for name in COUNTED}
        self.sums = tally.prequential.sums() - self.sums
        tally.prequential.mark()
        scores = known({name: float(values[-1]) for name, values in tally.prequential.take_rows().items()})
        self.told, self.prequential = (tally.updates - self._begin, counts, scores), tally.prequential.state()
        return self._receipt(digest, before, active, copies)

    def _tally(self, stream: ChangelogStream, before: Tally | None) -> Tally:
        """Return the counts of a file, which go on from those of the file before, or from the scores of the state."""
        tally = Tally(stream, weighted=is_weighted(self._saved.meta))
        if before is not None:
            tally.restore(before.state())
            return tally
        if "scores" in self._saved.components:
            tally.prequential.restore(self._saved.components["scores"])
        self.sums = tally.prequential.sums()
        tally.prequential.mark()  # a window begins
        tally.prequential.take_rows()
        tally.updates = self._begin
        return tally

    def _apply(self, batch: UpdateBatch, stream: ChangelogStream, tally: Tally, whose: Mapping[int, Any]) -> None:
        store = self._session.coordinator.store
        by_value = batch.op[0] == DELETE_VALUE  # alone in its piece
        asked = self._equal(batch) if by_value else store.find(batch.id)
        ids, y = (
            column[asked] if len(column) else np.zeros(len(asked), column.dtype) for column in (store.id, store.y)
        )
        named = ids if by_value else batch.id
        result = self._session.apply(batch, skip_refused=self._streams.skips)
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

    def _equal(self, batch: UpdateBatch) -> Int32s:
        """Return the slot of the example that a deletion by value takes: of those that equal its row, the oldest."""
        if not self._session.coordinator.store.live:
            return np.empty(0, dtype=np.int32)
        sparse = {} if batch.sparse is None else {"sparse": batch.sparse}
        equal = self._session.coordinator.find_equal(batch.X, 0, batch.y[0].item(), **sparse)
        return self._session.driver.run(equal)[:1]

    @property
    def session(self) -> InProcessSession:
        """The session."""
        return self._session

    @property
    def seq(self) -> int:
        """Number of the next update."""
        return self._streams.seq

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

    def _receipt(self, digest: str | None, before: Mapping[str, int], active: int, copies: tuple[str, ...]) -> Receipt:
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
