"""Lists as a source of changes: ids or subjects to delete, and rows to insert, of each member of a state.

Invariant: a batch that is made here can be applied as a whole, but for labels that the learner itself refuses. Ids to
delete are live in the state and different, rows are complete, and their ids are new or those of rows deleted by the
same update.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pipelines.updating.changes import (
    StateNames,
    find_rows,
    grown,
    open_rows,
    rows_by_key,
    sound_rows,
    source_of_key,
    without_a_config,
)
from raydt.arrays.blocks import SparseRows, concatenated
from raydt.arrays.elementary import AnyArray, Ints
from raydt.errors import InputError, UpdateError
from raydt.examples.store import Subjects, objects
from raydt.examples.updates import (
    DELETE,
    DUPLICATE_ID,
    INSERT,
    REFUSALS,
    UNKNOWN_ID,
    UpdateBatch,
    dtype_of,
    in_order,
    no_targets,
    refuse_numbered,
    running_ids,
    unless_equal,
)
from raydt.keyed.groups import Key, group_of
from raydt.keyed.groups import in_order as keys_in_order
from raydt.keyed.packing import Member, SavedKeys, live
from raydt.keyed.source import KeySource, SharedSource
from raydt.learners import traits_of
from raydt.messages import Message, message, quoted
from raydt.sessions.receipt import Method, Receipt, RefusedError, apply_with_receipt
from raydt.sessions.saved_model import SavedModel
from raydt.sessions.session import InProcessSession
from raydt.sources.base import Rows
from raydt.sources.file_source import FileSource
from raydt.sources.files.datafile import DataFile, TableInMemory
from raydt.streams.base import Replay
from raydt.streams.deletion_log import LoggedDeletions, LogKeys

#: Slots of live examples by id, -1 of others.
Find = Callable[[Ints], AnyArray]
#: What is done about ids and subjects without a live example.
Missing = Literal["error", "skip"]
#: State of the stream of a key, the ids of its live examples, and their subjects.
Examples = tuple[Mapping[str, Any], Ints, Callable[[], Subjects]]

_NO_IDS = np.empty(0, dtype=np.int64)
#: Keys that an error names.
_SHOWN = 10


def open_deletions(given: str | DataFile, names: StateNames) -> LoggedDeletions:
    """Read a list with a column of ids or of subjects; InputError if it cannot be. Other columns are passed over."""
    with without_a_config():
        log = LoggedDeletions(given, ".", names.keys, "list of ids", "state")
    if "after" in log.file.names:
        raise InputError(message("updates.positions"), file=log.file.name, column="after")
    if not log.ids:
        raise InputError(message("updates.no_ids"), file=log.file.name)
    return log


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


class ListChanges:
    """The deletions, then the insertions, of one member; ``missing`` is what is done about ids that do not live.

    The rest is known once they are read: ``deleted`` and ``inserted`` ids, ``shown`` as the files have them, and what
    the state knows after them.
    """

    sums: AnyArray = np.zeros(0)  #: Of scores: lists are not scored.
    figures: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        saved: SavedModel,
        names: StateNames,
        log: LoggedDeletions | None = None,
        source: FileSource | KeySource | None = None,
        missing: Missing = "error",
    ) -> None:
        self.saved, self._names, self._log, self._source, self._told = saved, names, log, source, missing
        self.subjects, self.missing = tuple[Any, ...](), tuple[Any, ...]()  #: Named: with live rows, and without.
        self.scores = saved.components.get("scores")  #: For change logs that follow.

    def read(self, find: Find) -> UpdateBatch:
        """Return the update as a batch, which ends a warm-up that is under way.

        New categories, labels and text ids get the next codes. InputError for what cannot be used, UpdateError if an id
        to delete is not live, or one to insert is, or is given twice.
        """
        names, saved, start = self._names, self.saved, int(self.saved.meta["offset"])
        gone = self.deleted = self._deletions(find)
        shown_gone: AnyArray = objects(names.ids.names_of(gone)) if names.text_ids else gone
        self._whose = names.subjects.of(gone) if names.subject_kind is not None else None
        if names.text_ids:
            names.ids.give(shown_gone, np.full(len(gone), DELETE, dtype=np.int8))
        source, chunks = self._source, [] if self._source is None else list(sound_rows(self._source))
        X = np.concatenate([np.empty((0, len(saved.features.names))), *(chunk.X for chunk in chunks)])
        width = saved.features.sparse
        sparse = [SparseRows.empty(width)] if width else []
        sparse += [chunk.sparse for chunk in chunks if chunk.sparse is not None]
        y = no_targets(0, dtype_of(traits_of(saved.options).reading.regression))
        y = np.concatenate([y, *(chunk.y for chunk in chunks)])
        shown: AnyArray = _NO_IDS
        if source is not None:
            names.require_labels(saved, source, y, source.where)
            parts: list[Any] = [_NO_IDS, *(chunk.names if names.text_ids else chunk.id for chunk in chunks)]
            shown = np.concatenate(parts) if names.id is not None else self._numbered(len(y))
        ids = names.ids.give(shown, np.full(len(shown), INSERT, dtype=np.int8)) if names.text_ids else shown
        self._require_new(shown, ids, find)
        whose = [chunk.subject for chunk in chunks if chunk.subject is not None]
        if names.subject_kind is not None and whose:
            names.subjects.add(ids, start + len(gone) + np.arange(len(ids)), np.concatenate(whose))
        names.absent.bring(shown.tolist())
        weights = [chunk.weight for chunk in chunks if chunk.weight is not None]
        self.saved = saved = saved if source is None else grown(saved, source)
        self.inserted, self.shown, self._y = ids, np.concatenate([shown_gone, shown]), y
        self.counts = {"inserts": len(ids), "deletes": len(gone)}
        op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), [len(gone), len(ids)])
        known: dict[str, Any] = {"sparse": concatenated(sparse) if sparse else None}
        known |= {"class_order": in_order(saved.classes, "positive" in names.labels)}
        known |= {"weight": unless_equal(np.concatenate(weights)) if weights else None}
        row, n_classes = np.full(len(op), -1, dtype=np.int64), len(saved.classes)
        return UpdateBatch(start, op, np.concatenate([gone, ids]), X, y, n_classes, row, start, **known)

    def _deletions(self, find: Find) -> Ints:
        """Return the ids of the list, or those of its subjects, each once."""
        log, names = self._log, self._names
        if log is None:
            return _NO_IDS
        asked = list(dict.fromkeys(log.ids))
        if log.by_subject:
            ids, _, whose = names.subjects.rows_of(asked)
            found = set(whose.tolist())
            self.subjects = tuple(one for one in asked if one in found)
            unknown = [one for one in asked if one not in found]
        else:
            ids = names.ids.look(objects(asked)) if names.text_ids else np.array(asked, dtype=np.int64)
            refuse_numbered(names.numbered, ids, log.file.name)
            there = find(ids) >= 0
            ids, unknown = ids[there], [one for one, lives in zip(asked, there.tolist(), strict=True) if not lives]
        if unknown and self._told == "error":
            raise unknown_error(log, unknown)
        self.missing = tuple(unknown)
        return ids

    def _numbered(self, rows: int) -> Ints:
        """Return the running numbers of rows without ids."""
        assert self._source is not None
        return running_ids(self._names.next_id, rows, self._source.where(0)[0] if rows else None)

    def _require_new(self, shown: AnyArray, ids: Ints, find: Find) -> None:
        """Refuse (UpdateError) ids that are live, but for those deleted, or that are given twice."""
        there = (find(ids) >= 0) & ~np.isin(ids, self.deleted)
        if there.any():
            row = int(np.argmax(there))
            said = message("updates.live_id", id=quoted(shown.tolist()[row]), problem=REFUSALS[DUPLICATE_ID][0])
            raise self._at(row, self._names.id, said)
        order = np.argsort(ids, kind="stable")
        again = order[1:][ids[order[1:]] == ids[order[:-1]]]
        if len(again):
            row = int(again.min())
            raise self._at(row, self._names.id, message("updates.repeated_id", id=quoted(shown.tolist()[row])))

    def _at(self, row: int, column: str | None, problem: Message) -> UpdateError:
        assert self._source is not None
        file, file_row = self._source.where(row)
        return UpdateError(problem, file=file, row=file_row, column=column)

    def apply(self, session: InProcessSession, copies: tuple[str, ...], warmup: int | None) -> Receipt:
        """Apply the update to a session of the state, and return its receipt; errors as of :meth:`read`.

        ``warmup`` is given of a model that begins: there is no digest before, and its rows are all that it will get.
        UpdateError for a label that the learner refuses.
        """
        batch, method = self.read(session.coordinator.store.find), Method.of(self.saved.options)
        begins = warmup is not None
        batch = batch if warmup is None else replace(batch, warmup=warmup)
        classes, first = self.saved.classes, "" if begins else session.digest()
        try:
            receipt = apply_with_receipt(
                session, batch, classes, method, ids=self.shown, copies=copies, digest_before=first
            )
        except RefusedError as error:  # ids were checked, so that it is the label of a new row
            row = error.position - len(self.deleted)
            said = {"label": quoted(float(self._y[row])), "problem": error.parts["problem"], "remedy": error.remedy}
            raise self._at(row, self._names.label, message("updates.refused_label", **said)) from error
        if begins:
            session.finish()
            receipt = replace(receipt, digest_before=None, digest_after=session.digest())
        return receipt.answering(self._whose, self.subjects, self.missing)

    def replay(self, replay: Replay, warmup: int | None) -> tuple[Ints, Ints]:
        """Replay the update, in a history that begins if a ``warmup`` is given; return ids deleted and inserted."""
        batch = self.read(replay.find)
        replay.add(batch if warmup is None else replace(batch, warmup=warmup))
        return self.deleted, self.inserted

    @property
    def seq(self) -> int:
        """Number of the next update."""
        return int(self.saved.meta["offset"]) + len(self.deleted) + len(self.inserted)

    def component(self, live: tuple[Ints, Ints]) -> dict[str, Any]:
        """Return the component of the stream of the state afterwards, of which these ids and births are ``live``."""
        return self._names.component(self.saved, live)


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


def examples_of(members: SavedKeys, key: Key) -> Examples | None:
    """Return the live examples of a key of a state; None without any."""
    held = members.of_group(group_of(key)).get(key)
    if held is None or not live(held):
        return None
    return held["stream"], held["coordinator"]["id"], lambda: StateNames.of(members.understood(held)).subjects


class Lists:
    """Lists of an update of the state ``common``, told apart by the ``column`` of keys, which are of a ``kind``.

    Without a column (None) all belongs to the one member. ``examples`` gives those of a key; ``missing`` is what is
    done about ids and subjects without a live example.
    """

    skipped = 0  #: Bad rows without a key.

    def __init__(
        self,
        common: SavedModel,
        names: StateNames,
        column: str | None,
        kind: str,
        examples: Callable[[Key], Examples | None],
        missing: Missing,
    ) -> None:
        self.known, self.names = common, names  #: ``known``: With the classes and categories of all keys.
        self._column, self._kind, self._examples, self._told = column, kind, examples, missing
        self._deleted: dict[Member, LoggedDeletions] = {}
        self._inserted: dict[Member, Callable[[SavedModel, StateNames], FileSource | KeySource]] = {}
        self._log: LoggedDeletions | None = None
        self._source: FileSource | None = None
        self.missing: list[Any] = []  #: Ids and subjects without a live example under any key.

    @property
    def keys(self) -> list[Member]:
        """Members that the lists name."""
        return [None] if self._column is None else keys_in_order({*self._deleted, *self._inserted})

    def of(self, key: Member, saved: SavedModel, names: StateNames) -> ListChanges:
        """Return what is deleted and inserted of a member, by its state."""
        source = self._inserted[key](saved, names) if key in self._inserted else None
        missing = self._told if self._column is None else "skip"
        return ListChanges(saved, names, self._deleted.get(key), source, missing)

    def files(self, paths: Mapping[str, str | None], missing: Sequence[Any]) -> dict[str, Any]:
        """Return how a lineage names the lists at some ``paths`` (None: in memory), of which some ids are missing."""
        files, names = dict[str, Any](), self.names
        if self._log is not None:
            files["delete"] = {"path": paths["delete"], "sha256": self._log.file.content_hash(), "id": names.id}
            files["delete"] |= {"missing": "skip"} if missing else {}
        if self._source is not None:
            identity = self._source.identity()
            files["insert"] = {"path": paths["insert"], "kind": identity.description["kind"]}
            files["insert"] |= {"fingerprint": identity.fingerprint, "label": names.label, "id": names.id}
            files["insert"] |= {} if names.weight is None else {"weight": names.weight}
        return files

    def insert(self, source: FileSource) -> None:
        """Tell rows apart; InputError of the first bad one."""
        self._source = source
        if self._column is None:
            self._inserted = {None: lambda saved, names: source}
            return
        shared = SharedSource(source, traits_of(self.known.options).reading)
        chunks = list(sound_rows(source))
        y = [chunk.y.copy() for chunk in chunks]
        for key, rows in rows_by_key(shared, chunks).items():
            self._inserted[key] = partial(_given, shared, rows)
        none = no_targets(0, dtype_of(traits_of(self.known.options).reading.regression))
        self.names.require_labels(self.known, source, np.concatenate([none, *y]), source.where)
        self.known = grown(self.known, source)

    def delete(self, log: LoggedDeletions, keys: Iterable[Key]) -> None:
        """Tell a list apart by its column of keys, if it has one; else by which of the ``keys`` each lives under.

        UpdateError if ids live under several keys, and there is no column of keys; or if some may not be missing.
        """
        column, self._log = self._column, log
        if column is None:
            self._deleted = {None: log}
            return
        if column in log.file.names and column != log.column:
            with without_a_config():
                whose: list[Key] = _KeyColumn(log.file, ".", LogKeys(self._kind, column), "list of ids", "state").ids
            asked: dict[Key, dict[Any, None]] = defaultdict(dict)
            for key, one in zip(whose, log.ids, strict=True):
                asked[key][one] = None
            living = {key: self._living(log, key, set(ones)) for key, ones in asked.items()}
            found = {key: [one for one in ones if one in living[key]] for key, ones in asked.items()}
            self.missing = list(
                dict.fromkeys(one for key, ones in asked.items() for one in ones if one not in living[key])
            )
        else:
            found = self._looked_up(log, dict.fromkeys(log.ids), keys)
        if self.missing and self._told == "error":
            raise unknown_error(log, self.missing)
        for key, ones in found.items():
            if ones:
                kind = pa.string() if isinstance(ones[0], str) else pa.int64()
                table = TableInMemory(pa.table({log.column: pa.array(ones, kind)}), log.file.name)
                self._deleted[key] = open_deletions(table, self.names)

    def _looked_up(self, log: LoggedDeletions, asked: dict[Any, None], keys: Iterable[Key]) -> dict[Key, list[Any]]:
        wanted, found = set(asked), dict[Key, list[Any]]()
        places: dict[Any, list[Key]] = defaultdict(list)
        for key in keys:
            for one in sorted(self._living(log, key, wanted), key=str):
                places[one].append(key)
                found.setdefault(key, []).append(one)
        several = [one for one in asked if len(places[one]) > 1]
        if several and not log.by_subject:
            shown = ", ".join(map(quoted, places[several[0]][:_SHOWN]))
            said = {"id": quoted(several[0]), "count": len(several), "keys": shown, "column": self._column}
            row = log.ids.index(several[0])
            raise UpdateError(message("keyed.several_keys", **said), file=log.file.name, row=row, column=log.column)
        self.missing = [one for one in asked if not places[one]]
        order = {one: place for place, one in enumerate(asked)}
        return {key: sorted(ones, key=order.__getitem__) for key, ones in found.items()}

    def _living(self, log: LoggedDeletions, key: Key, wanted: set[Any]) -> set[Any]:
        """Return which ids, or subjects, of some have live examples under a key; O(live examples of the key)."""
        if (found := self._examples(key)) is None:
            return set()
        stream, codes_of_ids, subjects = found
        if log.by_subject:
            there = wanted.intersection(stream.get("subjects", ()))
            return set(subjects().rows_of(there)[2].tolist()) if there else set()
        ids: list[Any] = codes_of_ids.tolist()
        if self.names.text_ids:
            codes = zip(stream["ids"], stream["id_codes"].tolist(), strict=True)
            named = {code: name for name, code in codes if name in wanted}
            ids = [named[code] for code in ids if code in named]
        return wanted.intersection(ids)


class _KeyColumn(LoggedDeletions):
    """The keys of a list, as its ids."""

    def _find_column(self, keys: LogKeys) -> tuple[bool, str]:
        return False, str(keys.id)


def _given(shared: SharedSource, rows: Rows, saved: SavedModel, names: StateNames) -> KeySource:
    """Return the source of rows of one key, with the dictionaries of its state."""
    source = source_of_key(shared, saved, names)
    source.give(rows)
    return source
