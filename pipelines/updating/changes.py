"""The two files of an update: ids to delete, and rows to insert.

Invariant: what is returned here can be applied as a whole, but for labels that the learner itself refuses. Ids to
delete are known to the state and given once, rows are complete, and their ids are new or those of rows deleted by the
same update.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.run_folder import fitting
from pipelines.updating.model_data import find_rows, open_rows, without_a_config
from raydt.arrays.sparse import SparseRows, concatenated
from raydt.errors import InputError, UpdateError
from raydt.examples.targets import Targets, classes_in, dtype_of, no_targets
from raydt.examples.updates import DELETE, DUPLICATE_ID, INSERT, REFUSALS, UNKNOWN_ID, refuse_numbered, running_ids
from raydt.examples.weights import Weights, unless_equal
from raydt.learners import traits_of
from raydt.messages import Message, message
from raydt.redaction import quoted
from raydt.sessions.saved_model import SavedModel
from raydt.sources.file_source import FileSource
from raydt.sources.files.datafile import DataFile
from raydt.streams.deletion_log import LoggedDeletions
from raydt.streams.text_ids import TextIds

Find = Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class StateNames:
    """Names of the examples and labels of a state, as files of changes have them."""

    label: str  #: Label column.
    weight: str | None  #: Column of weights.
    id: str | None  #: Column of ids; without one, new rows get running numbers.
    text_ids: bool  #: Whether ids are text, and the state holds their codes.
    ids: TextIds  #: Codes of text ids; none where they are integers.
    #: Of the state's source: ``classes`` (none where labels are numbers), or ``positive``, ``rest`` and ``names``.
    labels: dict[str, Any]
    next_id: int  #: The next running number.
    numbered: list[list[int]]  #: As of :func:`raydt.examples.updates.refuse_numbered`.

    @classmethod
    def of(cls, saved: SavedModel, label: str | None = None, id_column: str | None = None) -> StateNames:
        """Return the columns recorded in a state; ``label`` and ``id_column`` take precedence over its column names.

        ModelFileError if the stream of the state is damaged.
        """
        columns = saved.meta.get("columns", {})
        stream = saved.components.get("stream", {})
        with fitting("the stream of the state"):
            labels, ids = stream.get("source", {}).get("labels", {}), TextIds()
            labels = labels if "positive" in labels else {"classes": saved.classes}
            if "id_codes" in stream:
                ids.restore(stream)
        return cls(
            label=label or columns.get("label") or "y",
            weight=columns.get("weight"),
            id=id_column or columns.get("id"),
            text_ids=columns.get("id_kind") == "text",
            ids=ids,
            labels=labels,
            next_id=saved.next_id,
            numbered=saved.meta.get("numbered", []),
        )


@dataclass(frozen=True, slots=True)
class Deletions:
    """Ids to delete."""

    names: npt.NDArray[Any]  #: Shape (m,): as in the file: int64, or strings.
    ids: npt.NDArray[np.int64]  #: Shape (m,): as in the state.
    path: str = ""  #: As it was given.
    file: DataFile | None = None  #: Where they were read.


@dataclass(frozen=True, slots=True)
class Insertions:
    """Rows to insert, and what the state knows once they are in."""

    names: npt.NDArray[Any]  #: ``names``, ``ids``: As of :class:`Deletions`.
    ids: npt.NDArray[np.int64]
    X: npt.NDArray[np.float64]  #: Shape (n, d).
    sparse: SparseRows | None
    y: Targets  #: Shape (n,).
    classes: list[Any]
    categories: dict[str, list[Any]]
    all_ids: TextIds  #: As ``StateNames.ids``, once the update is applied.
    path: str = ""  #: As it was given.
    source: FileSource | None = None  #: Where they were read.
    weight: Weights | None = None  #: Shape (n,): their weights; None if all are 1.

    def refused(self, error: UpdateError, row: int, label: str) -> UpdateError:
        """The same error, naming file, row and label of the row that the learner refuses."""
        assert self.source is not None
        said = {"label": quoted(float(self.y[row])), "problem": error.parts["problem"], "remedy": error.remedy}
        return _at(self.source, row, label, message("updates.refused_label", **said))


def no_deletions() -> Deletions:
    """Where no file of ids is given."""
    return Deletions(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def no_insertions(saved: SavedModel, names: StateNames, deletions: Deletions) -> Insertions:
    """Where no file of rows is given."""
    all_ids = deepcopy(names.ids)
    if names.text_ids:
        all_ids.give(deletions.names, np.full(len(deletions.ids), DELETE, dtype=np.int8))
    none = np.empty(0, dtype=np.int64)
    width = saved.features.sparse
    X, y = (
        np.empty((0, len(saved.features.names))),
        no_targets(0, dtype_of(traits_of(saved.options).reading.regression)),
    )
    sparse = SparseRows.empty(width) if width else None
    return Insertions(none, none, X, sparse, y, saved.classes, saved.categories, all_ids)


def read_deletions(path: str, names: StateNames, find: Find) -> Deletions:
    """Read a file with the column ``id``, as in a deletion log; other columns are passed over.

    ``find`` gives the slot of the live example of each id, -1 where there is none. InputError if the file cannot be
    read, has a column ``after`` or no row, or an id is missing or of another type; UpdateError if one is not live, or
    given twice.
    """
    with without_a_config():
        log = LoggedDeletions(path, ".", "text" if names.text_ids else "integer", "list of ids", "state")
    if "after" in log.file.names:
        raise InputError(message("updates.positions"), file=log.file.name, column="after")
    if not log.ids:
        raise InputError(message("updates.no_ids"), file=log.file.name)
    ids = names.ids.look(_texts(log.ids)) if names.text_ids else np.array(log.ids, dtype=np.int64)
    refuse_numbered(names.numbered, ids, log.file.name)
    unknown = find(ids) < 0
    if unknown.any():
        row = int(np.argmax(unknown))
        problem, remedy = REFUSALS[UNKNOWN_ID]
        said = message("updates.unknown_id", id=quoted(log.ids[row]), problem=problem, remedy=remedy)
        raise UpdateError(said, file=log.file.name, row=row, column="id")
    again = _first_repeated(ids)
    if again is not None:
        said = message("updates.repeated_id", id=quoted(log.ids[again]))
        raise UpdateError(said, file=log.file.name, row=again, column="id")
    return Deletions(_texts(log.ids) if names.text_ids else ids, ids, path, log.file)


def read_insertions(
    path: str, kind: str | None, saved: SavedModel, names: StateNames, find: Find, deletions: Deletions
) -> Insertions:
    """Read rows with the columns of the model; new categories, labels and text ids get the next codes.

    ``path`` is a file, folder or pattern, of a ``kind`` that is by default that of its names; ``find`` is as of
    :func:`read_deletions`, and ids of ``deletions`` of the same update are free again. InputError for a missing column,
    a value that cannot be used, or a label that is not allowed; UpdateError if an id is live, or given twice.
    """
    source = _open(path, kind, saved, names)
    chunks = []
    with without_a_config():
        for chunk in source.rows():
            if chunk.bad:
                raise chunk.bad[min(chunk.bad)]
            chunks.append(chunk)
    empty = no_insertions(saved, names, deletions)
    X = np.concatenate([empty.X, *(chunk.X for chunk in chunks)])
    sparse = [part for part in (empty.sparse, *(chunk.sparse for chunk in chunks)) if part is not None]
    y = np.concatenate([empty.y, *(chunk.y for chunk in chunks)])
    _check_labels(source, y, saved, names)
    given: npt.NDArray[Any] = running_ids(names.next_id, len(y), path)
    if names.id is not None:
        given = np.concatenate([empty.names, *(chunk.names if names.text_ids else chunk.id for chunk in chunks)])
    ids = empty.all_ids.give(given, np.full(len(given), INSERT, dtype=np.int8)) if names.text_ids else given
    live = (find(ids) >= 0) & ~np.isin(ids, deletions.ids)
    if live.any():
        row = int(np.argmax(live))
        said = message("updates.live_id", id=quoted(given.tolist()[row]), problem=REFUSALS[DUPLICATE_ID][0])
        raise _at(source, row, names.id, said)
    again = _first_repeated(ids)
    if again is not None:
        raise _at(source, again, names.id, message("updates.repeated_id", id=quoted(given.tolist()[again])))
    ones = concatenated(sparse) if sparse else None
    categories = _grown_categories(source, saved)
    weights = [chunk.weight for chunk in chunks if chunk.weight is not None]
    weight = unless_equal(np.concatenate(weights)) if weights else None
    return Insertions(given, ids, X, ones, y, source.classes, categories, empty.all_ids, path, source, weight)


def _open(path: str, kind: str | None, saved: SavedModel, names: StateNames) -> FileSource:
    """The rows to insert, with the dictionaries of the state."""
    if names.text_ids and names.id is None:
        raise InputError(message("updates.text_ids"), file=path)
    wanted = {names.label: "--label or the state"}
    if names.id is not None:
        wanted[names.id] = "--id or the state"
    if names.weight is not None:
        wanted[names.weight] = "the state"
    known = names.labels.get("classes", [*names.labels.get("positive", ()), *names.labels.get("rest", ())])
    text = [names.label] if known and all(isinstance(label, str) for label in known) else []
    text += [names.id] if names.text_ids and names.id is not None else []
    files, options = find_rows(
        saved,
        path,
        kind,
        wanted=wanted,
        label=names.label,
        id_column=names.id,
        as_text=tuple(text),
        weight=names.weight,
    )
    source = open_rows(saved, files, options, labels=names.labels)
    if names.id is not None and (source.id_kind == "text") != names.text_ids and files[0].count():
        here, there = ("text", "integers") if source.id_kind == "text" else ("integers", "text")
        raise InputError(message("updates.other_ids", found=here, wanted=there), file=files[0].name, column=names.id)
    return source


def _check_labels(source: FileSource, y: Targets, saved: SavedModel, names: StateNames) -> None:
    """Refuse new labels where all classes were declared, and where they are of another kind."""
    known = len(saved.classes)
    if classes_in(y) <= known:
        return
    new = np.flatnonzero(y >= known)
    label, row = source.classes[y[new[0]]], int(new[0])
    said = {"label": quoted(label), "classes": _some(saved.classes, 20)}
    if saved.meta.get("declared", False):
        raise _at(source, row, names.label, message("updates.unknown_label", **said))
    if known and isinstance(label, str) != isinstance(saved.classes[0], str):
        raise _at(source, row, names.label, message("updates.other_label", **said))


def _grown_categories(source: FileSource, saved: SavedModel) -> dict[str, list[Any]]:
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
    return int(value) if value.lstrip("-").isdigit() and str(int(value)) == value else None


def _texts(values: list[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _first_repeated(ids: npt.NDArray[np.int64]) -> int | None:
    """Position of the first id that came before; O(n log n)."""
    order = np.argsort(ids, kind="stable")
    again = order[1:][ids[order[1:]] == ids[order[:-1]]]
    return int(again.min()) if len(again) else None


def _at(source: FileSource, row: int, column: str | None, problem: Message) -> UpdateError:
    file, file_row = source.where(row)
    return UpdateError(problem, file=file, row=file_row, column=column)
