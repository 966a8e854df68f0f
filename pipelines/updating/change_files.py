"""The files of change logs as streams of updates for a saved state.

Invariant: every file is read with the dictionaries of the state and of the files before it, so that a category, a label
or a text id has the same code in all of them. A file is known by the hash of its contents, whatever it is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from pydantic import TypeAdapter

from pipelines.updating.changes import Insertions, StateNames, grown_categories, no_deletions, no_insertions
from pipelines.updating.model_data import (
    known_categories,
    live_features,
    require_columns,
    require_numbers,
    without_a_config,
)
from raydt.arrays.types import AnyArray, Ints
from raydt.errors import InputError
from raydt.examples.subjects import Subjects
from raydt.examples.updates import CARRIES_ROW, UpdateBatch
from raydt.keyed.source import KeySource
from raydt.learners import traits_of
from raydt.messages import message
from raydt.redaction import quoted_columns
from raydt.sessions.saved_model import SavedModel
from raydt.sources.envelope import AFTER, BEFORE
from raydt.sources.file_source import FileSource
from raydt.sources.files.datafile import DataFile
from raydt.sources.files.formats import Dialect, find_kind, open_file
from raydt.sources.files.jsonl import JsonLinesDataFile
from raydt.sources.options import SourceOptions
from raydt.streams.absent import AbsentRows
from raydt.streams.changelog import Changelog, ChangelogStream
from raydt.streams.text_ids import TextIds

#: Columns that hold operations where nobody names one, in the order in which they are tried.
OPERATIONS = ("op", "__op", "_change_type", "row_kind")

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
                file = open_file(form, place, as_text, dialect)
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
    ) -> None:
        if names.id is None:
            raise InputError(message("updates.no_change_ids"))
        self._saved, self._names, self._on_error = saved, names, on_error
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
            stream = ChangelogStream(Changelog(on_error=self._on_error, warmup=self._warmup), source)
        at = {"seq": self.seq, "row": 0, "n_classes": len(self._saved.classes), "source": source.state()}
        stream.restore({**at, **self._stream, **self._absent})
        return stream

    def _source(self, one: ChangeFile) -> FileSource | KeySource:
        return source_of(self._saved, replace(self._names, labels=self._labels), self.given, one)

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
    values = {"kind": file.kind, "path": one.path, **columns, **spelling}
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
