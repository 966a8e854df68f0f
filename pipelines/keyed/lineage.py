"""The updates in the life of a run of models by key, repeated for an audit: each key has its part of every update.

Invariant: as of :mod:`pipelines.updating.lineage`. Where a list names no keys, an id is that of the key in whose
history it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pipelines.config import Config
from pipelines.keyed.changes import StreamsOfKey, rows_of_changes
from pipelines.keyed.streams import StreamsOfKeys
from pipelines.keyed.updating import ListedDeletions, rows_by_key, source_of_key
from pipelines.running.preflight import features_of
from pipelines.updating.change_files import find_changes
from pipelines.updating.changes import (
    StateNames,
    insertions_of,
    no_deletions,
    no_insertions,
    open_insertions,
    read_deletions,
    sound_rows,
)
from pipelines.updating.lineage import batch_of, names_after, read_again, replay_changes, state_before
from raydt.arrays.types import Ints
from raydt.examples.subjects import Subjects
from raydt.keyed.groups import Key
from raydt.keyed.saved import SavedKeys
from raydt.keyed.source import SharedSource
from raydt.learners import traits_of
from raydt.sessions.saved_model import BY_KEY, SavedModel
from raydt.sources.base import Rows
from raydt.sources.files.memory import TableInMemory
from raydt.streams.base import Stream
from raydt.streams.history import Replay

Histories = dict[Key, Replay]


class UpdateOfHistories:
    """One update of a lineage, which the histories of keys take in."""

    def __init__(self, config: Config, streams: StreamsOfKeys, saved: SavedKeys, only: Key | None) -> None:
        self._config, self._streams, self._saved, self._only = config, streams, saved, only
        self._features = features_of(streams.stream.source, config.learner)
        self._column = str(saved.meta[BY_KEY])

    def follow(self, step: Mapping[str, Any], histories: Histories) -> None:
        """Replay an update, and have the streams of its keys follow it; InputError if a file changed, or is gone.

        Histories of keys that begin are added to ``histories``.
        """
        self._step, self._histories = step, histories
        self._common = state_before(self._config, self._features, self._streams.stream, step, int(step["offset"]), 0)
        self._names = replace(
            StateNames.of(self._common), text_key=self._column if self._saved.kind == "text" else None
        )
        work = self._changes if "changes" in step["files"] else self._lists
        read_again(step, self._saved.place, work)

    def _lists(self, _: list[Any]) -> bool | None:
        """Replay an update of ids and rows; None if a file has changed."""
        files, common, names = self._step["files"], self._common, self._names
        deleted, inserted = dict[Key, TableInMemory](), dict[Key, Rows]()
        shared: SharedSource | None = None
        if (file := files.get("delete")) is not None:
            living = _KeysOfHistories(self._streams, self._histories, self._saved.kind, self._then)
            listed = ListedDeletions(living, names, file["path"], self._column)
            if listed.log.file.content_hash() != file["sha256"]:
                return None
            deleted = listed.by_key()
        if (file := files.get("insert")) is not None:
            source = open_insertions(file["path"], file["kind"], common, names, self._column)
            if source.identity().fingerprint != file["fingerprint"]:
                return None
            shared = SharedSource(source, traits_of(common.options).reading)
            inserted = rows_by_key(shared, sound_rows(source))
        for key in self._wanted({*deleted, *inserted}):
            then, own_names, replay, own = self._of(key)
            gone = no_deletions()
            if key in deleted:
                gone = read_deletions(deleted[key], own_names, replay.find, "skip")
            new = no_insertions(then, own_names, gone)
            if shared is not None and key in inserted:
                own_source = source_of_key(shared, then, own_names)
                own_source.give(inserted[key])
                new = insertions_of(own_source, None, then, own_names, replay.find, gone)
            seq = int(then.meta["offset"])
            batch = batch_of(seq, gone, new, own.source.positive is not None)
            replay.add(batch if seq else replace(batch, warmup=self._config.stream.warmup))
            known = names_after(own_names, new, seq + len(gone.ids), replay.living)
            self._follow(key, own, gone.ids, new.ids, len(batch), known, len(new.classes))
        return True

    def _changes(self, files: list[Any]) -> bool | None:
        """Replay an update by change logs; None if a file has changed."""
        read_as, common, names = self._step["read_as"], self._common, self._names
        found = [one for file in files for one in find_changes([file["path"]], file["kind"], common, names)]
        if [one.sha256 for one in found] != [file["sha256"] for file in files]:
            return None
        spelling, on_error = read_as["spelling"], read_as["on_error"]
        parts, _, _ = rows_of_changes(found, common, names, spelling, self._column, skip=on_error == "skip")
        for key in self._wanted(set(parts)):
            then, own_names, replay, own = self._of(key)
            seq = int(then.meta["offset"])
            streams = StreamsOfKey(then, own_names, spelling, on_error, None if seq else self._config.stream.warmup)
            streams.parts = parts[key]
            mine = [one for one in found if one.path in parts[key]]
            gone, new, begin, updates = replay_changes(streams, mine, replay, seq)
            known = names_after(own_names, new, begin, replay.living)
            self._follow(key, own, gone, new.ids, updates, known, len(new.classes))
        return True

    def _follow(
        self, key: Key, own: Any, deleted: Ints, inserted: Ints, updates: int, names: Any, n_classes: int
    ) -> None:
        """Have the stream of a key follow an update, and know what a table that is followed has after it."""
        gone = own.names_of(deleted)
        own.follow_update(deleted, inserted, updates, names, n_classes)
        if (table := self._streams.stream.table) is not None:
            table.follow_update(key, gone, own.names_of(inserted))

    def _wanted(self, keys: set[Key]) -> list[Key]:
        return [key for key in keys if self._only in (None, key)]

    def _of(self, key: Key) -> tuple[SavedModel, StateNames, Replay, Stream]:
        """Return what a state before the update says of a key, which may begin, with its history and stream."""
        _, own = self._streams.of(key)
        replay = self._histories.setdefault(key, Replay(own.source))
        then = self._then(own, replay)
        names = StateNames.of(then)
        names.subjects.keep(*replay.living)
        return then, names, replay, own

    def _then(self, own: Stream, replay: Replay) -> SavedModel:
        return state_before(self._config, self._features, own, self._step, own.state()["seq"], replay.next_id)


class _KeysOfHistories:
    """The keys of histories, as :class:`pipelines.keyed.updating.KeysWithExamples`."""

    def __init__(
        self,
        streams: StreamsOfKeys,
        histories: Histories,
        kind: str,
        then: Callable[[Stream, Replay], SavedModel],
    ) -> None:
        self._streams, self._histories, self.kind, self._then = streams, histories, kind, then

    def __iter__(self) -> Iterator[Key]:
        return iter(self._histories)

    def of(self, key: Key) -> tuple[Mapping[str, Any], Ints, Callable[[], Subjects]] | None:
        """Return the state of a key's stream, the ids of its live examples, and their subjects; None without any."""
        replay = self._histories.get(key)
        if replay is None or not replay.live:
            return None
        _, own = self._streams.of(key)
        return own.state(), replay.living[0], lambda: self._subjects(own, replay)

    def _subjects(self, own: Stream, replay: Replay) -> Subjects:
        subjects = StateNames.of(self._then(own, replay)).subjects
        subjects.keep(*replay.living)
        return subjects
