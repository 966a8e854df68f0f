"""The two inputs of an update: ids or subjects to delete, and rows to insert.

Invariant: what is returned here can be applied as a whole, but for labels that the learner itself refuses. Ids to
delete are live in the state and different, rows are complete, and their ids are new or those of rows deleted by the
same update.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import TypeAdapter

from pipelines.run_folder import fitting
from raydt.arrays.blocks import SparseRows, concatenated
from raydt.arrays.elementary import AnyArray, Floats, Ints
from raydt.encoding.columns import holds_text, holds_tokens, integer_of
from raydt.encoding.features import holds_indices, is_empty_list
from raydt.errors import InputError, UpdateError
from raydt.estimators.frames import as_table
from raydt.examples.store import Subjects, objects
from raydt.examples.updates import (
    DELETE,
    DUPLICATE_ID,
    INSERT,
    NEWEST_RULES,
    REFUSALS,
    UNKNOWN_ID,
    Features,
    Targets,
    Weights,
    classes_in,
    dtype_of,
    no_targets,
    refuse_numbered,
    running_ids,
    unless_equal,
)
from raydt.keyed.packing import TEXT_KEY
from raydt.keyed.source import KeySource, SharedSource
from raydt.learners import traits_of
from raydt.messages import Message, message
from raydt.redaction import marked, quoted, quoted_columns
from raydt.sessions.saved_model import SavedModel
from raydt.sources.base import FileOptions, Rows, Source
from raydt.sources.file_source import FileSource
from raydt.sources.files.csv import CsvDataFile
from raydt.sources.files.datafile import DataFile, TableInMemory
from raydt.sources.files.jsonl import USUAL, Dialect, find_kind, open_file
from raydt.sources.options import SourceOptions
from raydt.streams.deletion_log import LoggedDeletions, LogKeys
from raydt.streams.id_dictionary import TextIds
from raydt.streams.row_stream import AbsentRows

# Files of rows read under the columns of a saved model: to predict them, or to insert them.
#
# Invariant: what is opened here has every column that was asked for, with the model's features in its order.

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


def find_rows(
    saved: SavedModel,
    data: str | DataFile,
    kind: str | None,
    *,
    wanted: Mapping[str, str],
    columns: Mapping[str, str | None] = MappingProxyType({}),
    as_text: tuple[str, ...] = (),
) -> tuple[list[DataFile], FileOptions]:
    """Find the files that ``data`` (a file, folder or pattern, or an open file) stands for, and how to read them.

    They have the features and the columns ``wanted``, with what names each for messages. ``columns`` are others, by
    keys of a source; those ``as_text``, and categories, stay text in CSV. InputError if a file or column is missing.
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
        values |= {"kind": data.kind, "path": data.name}
    else:
        with without_a_config():
            or_else, dialect = ", or add --kind parquet, arrow, csv, jsonl or libsvm", Dialect.of(saved.meta)
            form, places = find_kind(data, ".", kind, or_else=or_else, dialect=dialect)
            as_text = (*categorical, *as_text)
            files = [open_file(form, place, as_text, dialect, values["rules"]) for place in places]
        values |= {"kind": form.kind, "path": data}
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


def open_rows(saved: SavedModel, files: list[DataFile], options: FileOptions, **dictionaries: Any) -> FileSource:
    """Open files as a source that codes categories as the model does, and new ones beyond; ``dictionaries`` go on."""
    features = saved.features
    for file in files:
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
    with without_a_config():
        source = FileSource(options, files, reading=traits_of(saved.options).reading)
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
    tokens = saved.features.sparse_column if saved.features.sparse else None  # text, whatever it looks like
    return {
        name: values if name == tokens else _as_in_file(values, name in text)
        for name, values in saved.categories.items()
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


Find = Callable[[Ints], AnyArray]
#: What is done about ids and subjects without a live example.
Missing = Literal["error", "skip"]

_NO_IDS = np.empty(0, dtype=np.int64)
_NOBODY = np.empty(0, dtype=np.object_)


@dataclass(frozen=True, slots=True)
class StateNames:
    """Names of the examples and labels of a state, as files of changes have them."""

    label: str  #: Label column.
    id: str | None  #: Column of ids; without one, new rows get running numbers.
    text_ids: bool  #: Whether ids are text, and the state holds their codes.
    ids: TextIds  #: Codes of text ids; none where they are integers.
    #: Of the state's source: ``classes`` (none where labels are numbers), or ``positive``, ``rest`` and ``names``.
    labels: dict[str, Any]
    next_id: int  #: The next running number.
    numbered: list[list[int]]  #: As of :func:`raydt.examples.updates.refuse_numbered`.
    subject: str | None  #: Column of subjects.
    subject_kind: str | None  #: ``integer`` or ``text``; None where no row has a subject.
    subjects: Subjects  #: Of the live examples.
    weight: str | None  #: Column of weights.
    absent: AbsentRows  #: Rows of which the source has only a bad state.
    text_key: str | None = None  #: Column of keys that are text, of models by key.
    dialect: Dialect = USUAL  #: Of the files of the run's source.

    @classmethod
    def of(cls, saved: SavedModel, label: str | None = None, id_column: str | None = None) -> StateNames:
        """Return the columns recorded in a state, or given instead; ModelFileError if it is damaged."""
        subjects = Subjects()
        columns = saved.meta.get("columns", {})
        stream = saved.components.get("stream", {})
        with fitting("the stream of the state"):
            labels, ids, absent = stream.get("source", {}).get("labels", {}), TextIds(), AbsentRows()
            absent.restore(stream)
            labels = labels if "positive" in labels else {"classes": saved.classes}
            if "id_codes" in stream:
                ids.restore(stream)
            if "subject_codes" in stream:
                subjects.restore(stream)
                if "coordinator" in saved.components:
                    subjects.keep(saved.arrays["id"], saved.arrays["born"])
        return cls(
            label=label or columns.get("label") or "y",
            weight=columns.get("weight"),
            id=id_column or columns.get("id"),
            text_ids=columns.get("id_kind") == "text",
            ids=ids,
            labels=labels,
            next_id=saved.next_id,
            numbered=saved.meta.get("numbered", []),
            subject=(columns.get("subject") or "subject") if columns.get("subject_kind") else None,
            subject_kind=columns.get("subject_kind"),
            subjects=subjects,
            text_key=saved.meta.get(TEXT_KEY),
            absent=absent,
            dialect=Dialect.of(saved.meta),
        )

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


@dataclass(frozen=True, slots=True)
class Deletions:
    """Examples to delete."""

    names: AnyArray  #: Shape (m,): ids as in files: int64, or strings.
    ids: Ints  #: Shape (m,): as in the state.
    subjects: tuple[Any, ...] = ()  #: That were named, and have live rows.
    missing: tuple[Any, ...] = ()  #: Ids or subjects that were named, and have none.
    path: str | None = ""  #: As it was given; None in memory.
    file: DataFile | None = None  #: Where they were read.


@dataclass(frozen=True, slots=True)
class Insertions:
    """Rows to insert, and what the state knows once they are in."""

    names: AnyArray  #: ``names``, ``ids``: As of :class:`Deletions`.
    ids: Ints
    X: Floats  #: Shape (n, d).
    sparse: SparseRows | None
    y: Targets  #: Shape (n,).
    subjects: npt.NDArray[np.object_]  #: Shape (n,), or none.
    classes: list[Any]
    categories: dict[str, list[Any]]
    all_ids: TextIds  #: As ``StateNames.ids``, once the update is applied.
    path: str | None = ""  #: As it was given; None in memory.
    source: FileSource | KeySource | None = None  #: Where they were read.
    #: As ``StateNames.subjects``, once the update is applied; None where ``subjects`` tell it.
    all_subjects: Subjects | None = None
    all_absent: AbsentRows | None = None  #: The same of ``StateNames.absent``; None where ``names`` tell it.
    weight: Weights | None = None  #: Shape (n,): their weights; None if all are 1.

    def refused(self, error: UpdateError, row: int, label: str) -> UpdateError:
        """Return an error that also names file, row and label of the row that the learner refuses."""
        assert self.source is not None
        said = {"label": quoted(float(self.y[row])), "problem": error.parts["problem"], "remedy": error.remedy}
        return _at(self.source, row, label, message("updates.refused_label", **said))


def no_deletions() -> Deletions:
    """Return the deletions of an update without a file of ids."""
    return Deletions(_NO_IDS, _NO_IDS)


def no_insertions(saved: SavedModel, names: StateNames, deletions: Deletions) -> Insertions:
    """Return the insertions of an update without a file of rows."""
    all_ids = deepcopy(names.ids)
    if names.text_ids:
        all_ids.give(deletions.names, np.full(len(deletions.ids), DELETE, dtype=np.int8))
    width = saved.features.sparse
    X, y = (
        np.empty((0, len(saved.features.names))),
        no_targets(0, dtype_of(traits_of(saved.options).reading.regression)),
    )
    sparse = SparseRows.empty(width) if width else None
    return Insertions(_NO_IDS, _NO_IDS, X, sparse, y, _NOBODY, saved.classes, saved.categories, all_ids)


def open_deletions(given: str | DataFile, names: StateNames) -> LoggedDeletions:
    """Read a list with a column of ids or of subjects; InputError if it cannot be. Other columns are passed over."""
    with without_a_config():
        log = LoggedDeletions(given, ".", names.keys, "list of ids", "state")
    if "after" in log.file.names:
        raise InputError(message("updates.positions"), file=log.file.name, column="after")
    if not log.ids:
        raise InputError(message("updates.no_ids"), file=log.file.name)
    return log


def read_deletions(log: LoggedDeletions, names: StateNames, find: Find, missing: Missing = "error") -> Deletions:
    """Return the ids of a list, or those of its subjects, each once.

    ``find`` gives the slots of live examples, -1 of others, which ``missing`` may refuse: UpdateError names them all.
    """
    asked = list(dict.fromkeys(log.ids))
    subjects: tuple[Any, ...] = ()
    if log.by_subject:
        ids, _, whose = names.subjects.rows_of(asked)
        found = set(whose.tolist())
        subjects, unknown = tuple(one for one in asked if one in found), [one for one in asked if one not in found]
    else:
        ids = names.ids.look(objects(asked)) if names.text_ids else np.array(asked, dtype=np.int64)
        refuse_numbered(names.numbered, ids, log.file.name)
        live = find(ids) >= 0
        ids, unknown = ids[live], [one for one, lives in zip(asked, live.tolist(), strict=True) if not lives]
    if unknown and missing == "error":
        raise unknown_error(log, unknown)
    shown = objects(names.ids.names_of(ids)) if names.text_ids else ids
    return Deletions(shown, ids, subjects, tuple(unknown), None, log.file)


def unknown_error(log: LoggedDeletions, unknown: list[Any]) -> UpdateError:
    """Return the error that names all ids or subjects of a list that have no live example."""
    problem, remedy = REFUSALS[UNKNOWN_ID]
    if log.by_subject:
        said = message("updates.unknown_subjects", count=len(unknown), subjects=", ".join(map(quoted, unknown)))
    elif len(unknown) == 1:
        said = message("updates.unknown_id", id=quoted(unknown[0]), problem=problem, remedy=remedy)
    else:
        shown = ", ".join(map(quoted, unknown))
        said = message("updates.unknown_ids", count=len(unknown), ids=shown, remedy=remedy)
    return UpdateError(said, file=log.file.name, row=log.ids.index(unknown[0]), column=log.column)


def source_of_key(shared: SharedSource, saved: SavedModel, names: StateNames) -> KeySource:
    """Return the source of one key's rows in files, with the dictionaries of its state."""
    source = KeySource(shared)
    assert isinstance(shared.source, FileSource)
    source.restore({"categories": known_categories(saved, shared.source.data_files), "labels": names.labels})
    return source


def insertions_of(
    source: FileSource | KeySource,
    path: str | None,
    saved: SavedModel,
    names: StateNames,
    find: Find,
    deletions: Deletions,
) -> Insertions:
    """Return the rows of a source as insertions; new categories, labels and text ids get the next codes.

    ``find`` is as of :func:`read_deletions`; ids of ``deletions`` are free again. InputError for what cannot be used,
    UpdateError if an id is live, or given twice.
    """
    chunks = list(sound_rows(source))
    empty = no_insertions(saved, names, deletions)
    X = np.concatenate([empty.X, *(chunk.X for chunk in chunks)])
    sparse = [part for part in (empty.sparse, *(chunk.sparse for chunk in chunks)) if part is not None]
    y = np.concatenate([empty.y, *(chunk.y for chunk in chunks)])
    names.require_labels(saved, source, y, source.where)
    shown: AnyArray = running_ids(names.next_id, len(y), path)
    if names.id is not None:
        shown = np.concatenate([empty.names, *(chunk.names if names.text_ids else chunk.id for chunk in chunks)])
    ids = empty.all_ids.give(shown, np.full(len(shown), INSERT, dtype=np.int8)) if names.text_ids else shown
    live = (find(ids) >= 0) & ~np.isin(ids, deletions.ids)
    if live.any():
        row = int(np.argmax(live))
        said = message("updates.live_id", id=quoted(shown.tolist()[row]), problem=REFUSALS[DUPLICATE_ID][0])
        raise _at(source, row, names.id, said)
    again = _first_repeated(ids)
    if again is not None:
        raise _at(source, again, names.id, message("updates.repeated_id", id=quoted(shown.tolist()[again])))
    ones = concatenated(sparse) if sparse else None
    categories = grown_categories(source, saved)
    whose = np.concatenate([_NOBODY, *(chunk.subject for chunk in chunks if chunk.subject is not None)])
    weights = [chunk.weight for chunk in chunks if chunk.weight is not None]
    weight = unless_equal(np.concatenate(weights)) if weights else None
    return Insertions(
        shown, ids, X, ones, y, whose, source.classes, categories, empty.all_ids, path, source, weight=weight
    )


def sound_rows(source: Source) -> Iterator[Rows]:
    """Yield the rows of a source; InputError of the first bad one."""
    with without_a_config():
        for chunk in source.rows():
            if chunk.bad:
                raise chunk.bad[min(chunk.bad)]
            yield chunk


def open_insertions(
    given: str | DataFile, kind: str | None, saved: SavedModel, names: StateNames, key: str | None = None
) -> FileSource:
    """Open the rows to insert, with the dictionaries of the state; ``key`` is the column of keys, of models by key."""
    if names.text_ids and names.id is None:
        raise InputError(message("updates.text_ids"), file=given.name if isinstance(given, DataFile) else given)
    columns = names.roles(key)
    wanted = names.wanted(key)
    files, options = find_rows(saved, given, kind, wanted=wanted, columns=columns, as_text=tuple(names.text))
    source = open_rows(saved, files, options, labels=names.labels)
    names.require_kinds(source, files[0])
    return source


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


def _first_repeated(ids: Ints) -> int | None:
    """Position of the first id that came before; O(n log n)."""
    order = np.argsort(ids, kind="stable")
    again = order[1:][ids[order[1:]] == ids[order[:-1]]]
    return int(again.min()) if len(again) else None


def _at(source: FileSource | KeySource, row: int, column: str | None, problem: Message) -> UpdateError:
    file, file_row = source.where(row)
    return UpdateError(problem, file=file, row=file_row, column=column)


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
