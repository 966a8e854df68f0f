"""Files and frames of rows read under the columns of a saved model, to predict them, or to change the model.

Invariant: what is opened here has every column that was asked for, with the model's features in its order.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from pipelines.run_folder import fitting
from raydt.arrays.elementary import Floats, Ints
from raydt.encoding.columns import holds_text, holds_tokens, integer_of
from raydt.encoding.features import holds_indices, is_empty_list
from raydt.errors import InputError, UpdateError
from raydt.estimators.frames import as_table
from raydt.examples.store import Subjects
from raydt.examples.updates import (
    NEWEST_RULES,
    Features,
    Targets,
    classes_in,
)
from raydt.keyed.groups import Key
from raydt.keyed.packing import TEXT_KEY
from raydt.keyed.source import KeySource, SharedSource
from raydt.learners import traits_of
from raydt.messages import marked, message, quoted, quoted_columns
from raydt.sessions.saved_model import SavedModel
from raydt.sources.base import FileOptions, Rows, Source
from raydt.sources.file_source import FileSource
from raydt.sources.files.csv import CsvDataFile
from raydt.sources.files.datafile import DataFile, TableInMemory
from raydt.sources.files.jsonl import USUAL, Dialect, find_kind, open_file
from raydt.sources.options import SourceOptions
from raydt.streams.deletion_log import LogKeys
from raydt.streams.id_dictionary import TextIds
from raydt.streams.row_stream import AbsentRows

#: The entry of a step of a lineage, and of ``meta`` of the state before it, for the rules by which its rows are read.
RULES = "rules"

#: Live examples that say which features have values.
_SHOWN = 1 << 14


@contextmanager
def without_a_config() -> Iterator[None]:
    """Errors in the block do not advise to set keys of a config, since there is none."""
    try:
        yield
    except InputError as error:
        error = error.without_skipping()
        if error.remedy is None or "source." not in error.remedy:
            raise error from None
        wider = "source.n_features" in error.remedy
        raise error.but(remedy=message("updates.more_features" if wider else "updates.correct")) from None


def rules_of(saved: SavedModel) -> int:
    """Return the rules by which rows given to a state are read: the newest, but those of an update read again."""
    return int(saved.meta.get(RULES, NEWEST_RULES))


def numbers_of(features: Features) -> list[str]:
    """Return the names of the features that are numbers."""
    return [name for name in features.names if name not in set(features.categorical_names)]


def null_values(saved: SavedModel, kind: str) -> dict[str, Any]:
    """Return the option of a source of text files that says what the run has taken for missing; none of others."""
    known = Dialect.of(saved.meta).null_values
    return {"null_values": [*known]} if known is not None and kind in ("csv", "jsonl") else {}


def find_rows(
    saved: SavedModel,
    data: str | DataFile,
    kind: str | None,
    *,
    wanted: Mapping[str, str],
    columns: Mapping[str, str | None] = MappingProxyType({}),
    as_text: tuple[str, ...] = (),
    predicted: bool = False,
) -> tuple[list[DataFile], FileOptions]:
    """Find the files that ``data`` (a file, folder or pattern, or an open file) stands for, and how to read them.

    They have the features and the columns ``wanted``, with what names each for messages. ``columns`` are others, by
    keys of a source; those ``as_text``, and categories, stay text in CSV. Of rows that are to be ``predicted``, labels
    of the rows before may be missing, all of them. InputError if a file or column is missing.
    """
    features = saved.features
    needed = [*features.names, *([features.sparse_column] if features.sparse else [])]
    for name in wanted:
        if name in needed:
            said = message("updates.feature_column", who=wanted[name])
            raise InputError(said, file=data.name if isinstance(data, DataFile) else data, column=name)
    categorical = features.categorical_names
    values: dict[str, Any] = {"label": None, **columns, "features": needed, "categorical": categorical}
    values |= {"n_features": features.sparse or None, "rules": rules_of(saved)}
    if isinstance(data, DataFile):
        files = [data]
        values |= {"kind": data.kind, "path": data.name, **null_values(saved, data.kind)}
    else:
        with without_a_config():
            or_else, dialect = ", or add --kind parquet, arrow, csv, jsonl or libsvm", Dialect.of(saved.meta)
            form, places = find_kind(data, ".", kind, or_else=or_else, dialect=dialect)
            as_text = (*categorical, *as_text)
            rest = as_text, dialect, values["rules"], numbers_of(features)
            files = [open_file(form, place, *rest) for place in places]
        values |= {"kind": form.kind, "path": data, **null_values(saved, form.kind)}
    if predicted and not any(name in file.names for file in files for name in saved.previous):
        values["features"] = needed = [name for name in needed if name not in saved.previous]
        values["categorical"] = [name for name in categorical if name not in saved.previous]
    options: FileOptions = TypeAdapter[Any](SourceOptions).validate_python(values)
    for file in files:
        require_columns(file, needed, wanted)
    return files, options


def require_columns(file: DataFile, needed: Sequence[str], wanted: Mapping[str, str]) -> None:
    """Refuse (InputError) a file that lacks a feature ``needed``, or a column ``wanted`` as of :func:`find_rows`."""
    for name in [*needed, *wanted]:
        if name not in file.names:
            there, near = quoted_columns(file.names), difflib.get_close_matches(name, file.names, 1)
            said = message("updates.no_feature", columns=there)
            if name in wanted and near:
                other = marked(repr(near[0]), "another column")
                said = message("updates.near_column", who=wanted[name], near=other, columns=there)
            elif name in wanted:
                said = message("updates.no_column", who=wanted[name], columns=there)
            raise InputError(said, file=file.name, column=name)


def type_empty(saved: SavedModel, file: DataFile) -> None:
    """Give features without a value in any row of a file the types that the model knows: all of them are missing."""
    known = dict.fromkeys(saved.features.names, pa.float64())
    known |= {
        name: pa.array((saved.categories.get(name) or [""])[:1]).type for name in saved.features.categorical_names
    }
    empty = {
        field.name: known[field.name] for field in file.schema if pa.types.is_null(field.type) and field.name in known
    }
    file.schema = pa.schema([field.with_type(empty.get(field.name, field.type)) for field in file.schema])
    file.untyped |= {*empty}


def open_rows(saved: SavedModel, files: list[DataFile], options: FileOptions, **dictionaries: Any) -> FileSource:
    """Open files as a source that codes categories as the model does, and new ones beyond; ``dictionaries`` go on."""
    features = saved.features
    for file in files:
        type_empty(saved, file)
        types = {name: file.schema.field(name).type for name in options.features or ()}
        tokens = features.sparse_column in saved.categories
        lists = [
            n for n, kind in types.items() if is_empty_list(kind) or (holds_tokens if tokens else holds_indices)(kind)
        ]
        odd_one = set(lists) ^ ({features.sparse_column} if features.sparse else set())
        if odd_one and file.n_rows != 0:
            known = "numbers" if not features.sparse else "lists of tokens" if tokens else "lists of indices"
            said = message("updates.other_column", known=known, found="something else")
            raise InputError(said, file=file.name, column=min(odd_one))
    last = () if {*saved.previous} & {*(options.features or ())} else tuple(saved.previous.values())
    with without_a_config():
        source = FileSource(options, files, reading=replace(traits_of(saved.options).reading, previous=last))
    require_numbers(features, source, files[0])
    source.restore({**source.state(), "categories": known_categories(saved, files), **dictionaries})
    return source


def require_numbers(features: Features, source: FileSource, file: DataFile) -> None:
    """Refuse (InputError) text in a column in which the model knows numbers."""
    text = set(source.features.categorical_names) - set(features.categorical_names)
    if text:
        odd = next(name for name in features.names if name in text)
        raise InputError(message("updates.other_column", known="numbers", found="text"), file=file.name, column=odd)


def known_categories(saved: SavedModel, files: list[DataFile]) -> dict[str, list[Any]]:
    """Return the model's categories as the files write them: a column of text has text, also of digits."""
    schema = files[0].schema
    text = {field.name for field in schema if isinstance(files[0], CsvDataFile) or holds_text(field.type)}
    own = {*saved.previous} - {*schema.names}  # which no file writes
    if saved.features.sparse:
        own.add(saved.features.sparse_column)  # tokens are text, whatever they look like
    return {
        name: values if name in own else _as_in_file(values, name in text) for name, values in saved.categories.items()
    }


def _as_in_file(values: list[Any], as_text: bool) -> list[Any]:
    if as_text:
        return [str(value) if isinstance(value, int) else value for value in values]
    whole = [integer_of(value) if isinstance(value, str) else None for value in values]
    return values if None in whole else whole


def live_features(saved: SavedModel) -> Floats:
    """Return features of the first live examples of a state, shape (n, d); none of a model."""
    features = saved.features
    d = len(features.names)
    given = {number: arrays["X"][:_SHOWN] for number, arrays in saved.groups.items() if "X" in arrays}
    X = np.full((max(map(len, given.values()), default=0), d), np.nan)
    for number, values in given.items():
        owned = features.group_columns(number)
        X[: len(values), owned[owned < d]] = values
    return X


@dataclass(frozen=True, slots=True)
class StateNames:
    """Names of the examples and labels of a state, as files of changes have them."""

    label: str  #: Label column.
    id: str | None  #: Column of ids; without one, new rows get running numbers.
    text_ids: bool  #: Whether ids are text, and the state holds their codes.
    #: Of the state's source: ``classes`` (none where labels are numbers), or ``positive``, ``rest`` and ``names``.
    labels: dict[str, Any]
    next_id: int  #: The next running number.
    numbered: list[list[int]]  #: As of :func:`raydt.examples.updates.refuse_numbered`.
    subject: str | None  #: Column of subjects.
    subject_kind: str | None  #: ``integer`` or ``text``; None where no row has a subject.
    weight: str | None  #: Column of weights.
    text_key: str | None = None  #: Column of keys that are text, of models by key.
    dialect: Dialect = USUAL  #: Of the files of the run's source.
    ids: TextIds = field(default_factory=TextIds)  #: Codes of text ids; none where they are integers.
    subjects: Subjects = field(default_factory=Subjects)  #: Of the live examples.
    absent: AbsentRows = field(default_factory=AbsentRows)  #: Rows of which the source has only a bad state.

    @classmethod
    def of(cls, saved: SavedModel, label: str | None = None, id_column: str | None = None) -> StateNames:
        """Return the columns recorded in a state, or given instead; ModelFileError if it is damaged."""
        columns = saved.meta.get("columns", {})
        stream = saved.components.get("stream", {})
        with fitting("the stream of the state"):
            labels = stream.get("source", {}).get("labels", {})
            names = cls(
                label=label or columns.get("label") or "y",
                weight=columns.get("weight"),
                id=id_column or columns.get("id"),
                text_ids=columns.get("id_kind") == "text",
                labels=labels if "positive" in labels else {"classes": saved.classes},
                next_id=saved.next_id,
                numbered=saved.meta.get("numbered", []),
                subject=(columns.get("subject") or "subject") if columns.get("subject_kind") else None,
                subject_kind=columns.get("subject_kind"),
                text_key=saved.meta.get(TEXT_KEY),
                dialect=Dialect.of(saved.meta),
            ).at(stream)
            if "subject_codes" in stream and "coordinator" in saved.components:
                names.subjects.keep(saved.arrays["id"], saved.arrays["born"])
        return names

    def at(self, stream: Mapping[str, Any]) -> StateNames:
        """Return the names with the ids, subjects and absent rows of the state of a stream."""
        ids, subjects, absent = TextIds(), Subjects(), AbsentRows()
        absent.restore(stream)
        if "id_codes" in stream:
            ids.restore(stream)
        if "subject_codes" in stream:
            subjects.restore(stream)
        return replace(self, ids=ids, subjects=subjects, absent=absent)

    def state(self) -> dict[str, Any]:
        """Return what :meth:`at` takes."""
        ids = self.ids.state() if self.text_ids else {}
        return ids | (self.subjects.state() if self.subject_kind is not None else {}) | self.absent.state()

    def component(self, saved: SavedModel, live: tuple[Ints, Ints]) -> dict[str, Any]:
        """Return the stream of a state with the classes and categories of ``saved``, and what is ``live`` of all."""
        if self.text_ids:
            self.ids.keep(set(live[0].tolist()))
        if self.subject_kind is not None:
            self.subjects.keep(*live)
        return {"source": self.dictionaries(saved), **self.state()}

    def dictionaries(self, saved: SavedModel) -> dict[str, Any]:
        """Return the dictionaries of a source with the classes and categories of ``saved``."""
        labels = self.labels if "positive" in self.labels else {"classes": saved.classes}
        return {"categories": saved.categories, "labels": labels}

    @property
    def keys(self) -> LogKeys:
        """Columns that a list of deletions may name."""
        kind = "text" if self.text_ids else "integer"
        return LogKeys(kind, self.id, self.subject_kind, self.subject, self.dialect)

    @property
    def text(self) -> list[str]:
        """Columns that stay text, whatever they look like, since the state knows text there."""
        known = self.labels.get("classes", [*self.labels.get("positive", ()), *self.labels.get("rest", ())])
        ones = (self.label, bool(known) and all(isinstance(label, str) for label in known))
        kinds = (ones, (self.id, self.text_ids), (self.subject, self.subject_kind == "text"))
        found = [name for name, is_text in kinds if name is not None and is_text]
        return found if self.text_key is None else [*found, self.text_key]

    def roles(self, key: str | None = None) -> dict[str, str | None]:
        """Return the columns beside the features, by keys of a source; ``key`` is the column of keys."""
        return {"label": self.label, "id": self.id, "subject": self.subject, "weight": self.weight, "key": key}

    def wanted(self, key: str | None = None) -> dict[str, str]:
        """Return the same columns, with what names each, for messages."""
        by_option = {"label": "--label or the state", "id": "--id or the state"}
        return {name: by_option.get(role, "the state") for role, name in self.roles(key).items() if name is not None}

    def require_kinds(self, source: FileSource, file: DataFile) -> None:
        """Refuse (InputError) ids or subjects of another kind than the state's."""
        wanted = "text" if self.text_ids else "integer"
        for name, found, kind, said in (
            (self.id, source.id_kind, wanted, "updates.other_ids"),
            (self.subject, source.subject_kind, self.subject_kind, "updates.other_subjects"),
        ):
            if name is not None and (found == "text") != (kind == "text") and file.count():
                here, there = ("text", "integers") if found == "text" else ("integers", "text")
                raise InputError(message(said, found=here, wanted=there), file=file.name, column=name)

    def require_labels(
        self, saved: SavedModel, source: Source, y: Targets, where: Callable[[int], tuple[str, int]]
    ) -> None:
        """Refuse (InputError) a label beyond declared classes, or of another kind; ``where`` gives its place."""
        known = len(saved.classes)
        if not known or classes_in(y) <= known:
            return
        new = int(np.argmax(y >= known))
        label, (file, row) = source.classes[y[new]], where(new)
        said = {"label": quoted(label), "classes": _some(saved.classes, 20)}
        if saved.meta.get("declared", False):
            raise UpdateError(message("updates.unknown_label", **said), file=file, row=row, column=self.label)
        if isinstance(label, str) != isinstance(saved.classes[0], str):
            raise UpdateError(message("updates.other_label", **said), file=file, row=row, column=self.label)

    @property
    def columns(self) -> dict[str, str | None]:
        """Entry ``columns`` of the manifest of a state."""
        id_kind = "text" if self.text_ids else "integer"
        whose = {"subject": self.subject, "subject_kind": self.subject_kind} if self.subject_kind else {}
        heavy = {} if self.weight is None else {"weight": self.weight}
        return {"label": self.label, "id": self.id, "id_kind": id_kind, **whose, **heavy}


def absolute(path: str | None) -> str | None:
    """Return a path that is the same wherever a command is started; None of a table in memory."""
    return path if path is None or "://" in str(path) else os.path.abspath(path)


def grown(saved: SavedModel, source: FileSource | KeySource) -> SavedModel:
    """Return a state with the classes and categories that it knows once a source has been read."""
    classes = [] if traits_of(saved.options).reading.regression else source.classes
    return replace(saved, classes=classes or saved.classes, categories=grown_categories(source, saved))


def source_of_key(shared: SharedSource, saved: SavedModel, names: StateNames) -> KeySource:
    """Return the source of one key's rows in files, with the dictionaries of its state."""
    source = KeySource(shared)
    assert isinstance(shared.source, FileSource)
    source.restore({"categories": known_categories(saved, shared.source.data_files), "labels": names.labels})
    return source


def sound_rows(source: Source) -> Iterator[Rows]:
    """Yield the rows of a source; InputError of the first bad one."""
    with without_a_config():
        for chunk in source.rows():
            if chunk.bad:
                raise chunk.bad[min(chunk.bad)]
            yield chunk


def rows_by_key(shared: SharedSource, chunks: Iterable[Rows]) -> dict[Key, Rows]:
    """Return the rows of each key in chunks of a source, with the bad ones among them."""
    parts: dict[Key, list[Rows]] = {}
    for chunk in chunks:
        for key, rows, _ in shared.split(chunk):
            if key is not None:
                parts.setdefault(key, []).append(rows)
    return {key: Rows.joined(found) for key, found in parts.items()}


def grown_categories(source: FileSource | KeySource, saved: SavedModel) -> dict[str, list[Any]]:
    """The model's categories and, after them, the new ones of the file, written as the model writes them."""
    grown = {}
    for name, found in source.state()["categories"].items():
        known = saved.categories.get(name, [])
        all_values = dict.fromkeys(known)
        for value in found[len(known) :]:
            written = _like(value, known)
            if written is None or written in all_values:
                said = message("updates.other_category", category=quoted(value), known=_some(known, 5))
                raise InputError(said, file=source.where(0)[0], column=name)
            all_values[written] = None
        grown[name] = list(all_values)
    return {**saved.categories, **grown}


def _some(values: list[Any], most: int) -> str:
    """The first values of a dictionary, for a message."""
    return f"[{', '.join(map(quoted, values[:most]))}]"


def _like(value: Any, known: list[Any]) -> Any:
    """A category as the model would have it: text or a number as the others; None if that cannot be."""
    if not known or isinstance(value, str) == isinstance(known[0], str):
        return value
    if isinstance(known[0], str):
        return str(value)
    return integer_of(value)


# Inputs of ``update``: a path, or ids, a data frame or an Arrow table in memory.

#: What ``delete`` and ``insert`` of an update may be.
Input = str | Path | Any


def rows_given(given: Input) -> str | DataFile:
    """Return the path of rows, or a frame or table as a file; a named index is a column. InputError for others."""
    if isinstance(given, str | os.PathLike):
        return str(given)
    table = _table(given)
    if table is None:
        raise InputError(message("updates.no_table", name="insert", type=type(given).__name__))
    return TableInMemory(table, "insert")


def deletions_given(given: Input, keys: LogKeys) -> str | DataFile:
    """Return the path of a list of deletions, or what was given in memory as a file; InputError if neither."""
    if isinstance(given, str | os.PathLike):
        return str(given)
    table = pa.table({name: _column(values) for name, values in given.items()}) if isinstance(given, Mapping) else None
    table = _table(given) if table is None else table
    if table is None:
        name = getattr(given, "name", None)
        name = name if name in (*keys.of_ids, *keys.of_subjects) else "id"
        table = pa.table({name: _column(given)})
    return TableInMemory(table, "delete")


def _table(given: Any) -> pa.Table | None:
    """Return a frame as a table, its named index as columns; None if it is none."""
    names = getattr(getattr(given, "index", None), "names", None) or ()
    named = [name for name in names if name is not None]
    if hasattr(given, "columns") and named:
        given = given.reset_index(level=named)
    return as_table(given)


def _column(values: Any) -> pa.Array:
    """Return ids in memory as a column of integers or text; UUIDs are text."""
    if isinstance(values, pa.ChunkedArray | pa.Array):
        return values
    if isinstance(values, bytes) or not isinstance(values, Iterable):
        values = np.atleast_1d(np.asarray(values))
    listed = [value.item() if isinstance(value, np.generic) else value for value in values]
    plain = [str(value) if type(value).__name__ == "UUID" else value for value in listed]
    whole = [int(v) if isinstance(v, float) and v.is_integer() and abs(v) < 2**53 else v for v in plain]
    try:
        return pa.array(whole)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(message("updates.no_ids_in", reason=str(error)), file="delete") from error
