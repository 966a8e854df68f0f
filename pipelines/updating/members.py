"""What an update is given, told apart by member: a run without keys has one, to which all of it belongs.

Invariant: what a member gets is what the same update gives a run over the rows of its key alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from pipelines.updating.change_files import ChangeFile, FileParts, Spelling, grown, source_of
from pipelines.updating.changes import (
    Deletions,
    Find,
    Insertions,
    Missing,
    StateNames,
    insertions_of,
    no_deletions,
    no_insertions,
    open_deletions,
    read_deletions,
    sound_rows,
    source_of_key,
    unknown_error,
    without_a_config,
)
from raydt.arrays.elementary import Ints
from raydt.errors import UpdateError
from raydt.examples.store import Subjects
from raydt.examples.updates import Targets
from raydt.keyed.groups import Key, group_of
from raydt.keyed.packing import Member, SavedKeys, live
from raydt.keyed.source import KeySource, SharedSource
from raydt.learners import traits_of
from raydt.learners.base import LearnerOptions
from raydt.messages import message
from raydt.redaction import quoted
from raydt.sessions.saved_model import SavedModel
from raydt.sources.base import Rows
from raydt.sources.file_source import FileSource
from raydt.sources.files.datafile import TableInMemory
from raydt.streams.deletion_log import LoggedDeletions, LogKeys

#: Keys that an error names.
_SHOWN = 10

#: State of the stream of a key, the ids of its live examples, and their subjects.
Examples = tuple[Mapping[str, Any], Ints, Callable[[], Subjects]]


def examples_of(members: SavedKeys, key: Key) -> Examples | None:
    """Return the live examples of a key of a state; None without any."""
    held = members.of_group(group_of(key)).get(key)
    if held is None or not live(held):
        return None
    return held["stream"], held["coordinator"]["id"], lambda: StateNames.of(members.understood(held)).subjects


class Lists:
    """Lists of an update: ids or subjects to delete, and rows to insert.

    ``column`` is that of the keys, which are of a ``kind``; None without keys. ``examples`` gives those of a key.
    ``missing`` is what is done about ids and subjects without a live example.
    """

    def __init__(
        self,
        names: StateNames,
        column: str | None,
        kind: str,
        examples: Callable[[Key], Examples | None],
        missing: Missing,
    ) -> None:
        self._names, self._column, self._kind, self._examples = names, column, kind, examples
        self._told = missing
        self._deleted: dict[Member, LoggedDeletions] = {}
        self._inserted: dict[Member, Callable[[SavedModel, StateNames], FileSource | KeySource]] = {}
        self.missing: list[Any] = []  #: Ids and subjects without a live example under any key.
        self.path: str | None = ""  #: Of the rows to insert.

    @property
    def keys(self) -> set[Member]:
        """Members that the lists name."""
        return {*self._deleted, *self._inserted}

    def of(self, key: Member, saved: SavedModel, names: StateNames, find: Find) -> tuple[Deletions, Insertions]:
        """Return what is deleted and inserted of a member; ``find`` is as of :func:`read_deletions`."""
        gone = no_deletions()
        if key in self._deleted:
            gone = read_deletions(self._deleted[key], names, find, self._told if self._column is None else "skip")
        if key not in self._inserted:
            return gone, no_insertions(saved, names, gone)
        return gone, insertions_of(self._inserted[key](saved, names), self.path, saved, names, find, gone)

    def insert(self, source: FileSource, options: LearnerOptions) -> list[Targets]:
        """Tell rows apart; InputError of the first bad one. Return the labels of rows that have keys."""
        if self._column is None:
            self._inserted = {None: lambda saved, names: source}
            return []
        shared, chunks = SharedSource(source, traits_of(options).reading), list(sound_rows(source))
        labels = [chunk.y.copy() for chunk in chunks]
        for key, rows in rows_by_key(shared, chunks).items():
            self._inserted[key] = partial(_given, shared, rows)
        return labels

    def delete(self, log: LoggedDeletions, keys: Iterable[Key]) -> None:
        """Tell a list apart by its column of keys, if it has one; else by which of the ``keys`` each lives under.

        UpdateError if ids live under several keys, and there is no column of keys; or if some may not be missing.
        """
        column = self._column
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
                self._deleted[key] = open_deletions(table, self._names)

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
        if self._names.text_ids:
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


def rows_by_key(shared: SharedSource, chunks: Iterable[Rows]) -> dict[Key, Rows]:
    """Return the rows of each key in chunks of a source, with the bad ones among them."""
    parts: dict[Key, list[Rows]] = {}
    for chunk in chunks:
        for key, rows, _ in shared.split(chunk):
            if key is not None:
                parts.setdefault(key, []).append(rows)
    return {key: Rows.joined(found) for key, found in parts.items()}


def rows_of_changes(
    files: Sequence[ChangeFile], common: SavedModel, names: StateNames, spelling: Spelling, column: str, *, skip: bool
) -> tuple[dict[Key, FileParts], int, SavedModel]:
    """Return the rows of each key, how many bad ones have no key, and ``common`` with what files say of all keys."""
    parts, skipped = dict[Key, FileParts](), 0
    for one in files:
        source = source_of(common, names, spelling, one, column)
        shared = SharedSource(source, traits_of(common.options).reading)
        chunks = list(source.rows() if skip else sound_rows(source))
        skipped += sum(int((chunk.key[[*chunk.bad]] < 0).sum()) for chunk in chunks if chunk.key is not None)
        for key, rows in rows_by_key(shared, chunks).items():
            parts.setdefault(key, {})[one.path] = shared, rows
        common = grown(common, source)
        names = replace(names, labels=source.state()["labels"])
    return parts, skipped, common
