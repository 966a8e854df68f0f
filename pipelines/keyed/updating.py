"""An update of models by key: its rows are told apart by key, and each key is updated as a model of its own.

Invariant: what a key holds afterwards is what the same update makes of a run over the rows of its key alone. All keys
are checked and applied in memory before anything is written; groups of keys without a change are copied.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from pipelines.keyed.recorder import job_of
from pipelines.receipts import origin_of
from pipelines.running.checkpoint import Adoption
from pipelines.saved_runs import StatePlace, find_state
from pipelines.updating.change_files import (
    COUNTED,
    Applied,
    ChangeFile,
    ChangeStreams,
    Spelling,
    Told,
    grown,
    log_little,
    source_of,
)
from pipelines.updating.changes import (
    StateNames,
    deletions_given,
    grown_categories,
    insertions_of,
    known_categories,
    no_deletions,
    no_insertions,
    open_insertions,
    read_deletions,
    rows_given,
    sound_rows,
    unknown_error,
    without_a_config,
)
from pipelines.updating.lineage import ids_between, step_of
from pipelines.updating.new_state import Asked, apply_lists, components_after, copies_of, meta_after
from raydt.arrays.blocks import Lazy
from raydt.arrays.elementary import AnyArray, Ints
from raydt.errors import InputError, ModelFileError, UpdateError
from raydt.examples.store import Subjects
from raydt.folders.checkpoint import Checkpoint
from raydt.keyed.groups import GROUPS, Key, group_of, in_order
from raydt.keyed.members import KeyedJob, narrow, pooled
from raydt.keyed.packing import Figures, SavedKeys, live, open_keys, packed
from raydt.keyed.source import KeySource, SharedSource
from raydt.keyed.stream import KeyedStream
from raydt.learners import traits_of
from raydt.learners.base import WeightSum, too_little_of_keys
from raydt.messages import message
from raydt.redaction import quoted
from raydt.sessions.receipt import Receipt, receipt_of_keys
from raydt.sessions.receipt_chain import Origin
from raydt.sessions.saved_model import BY_KEY, SavedModel
from raydt.sources.base import Rows
from raydt.sources.file_source import FileSource
from raydt.sources.files.datafile import DataFile, TableInMemory
from raydt.streams.base import Tally, known
from raydt.streams.deletion_log import ChangelogStream, LoggedDeletions, LogKeys

#: Keys that an error names.
_SHOWN = 10


class Changed(NamedTuple):
    """The receipt and the new state of one key after an update."""

    receipt: Receipt
    held: dict[str, Any]  #: As the group of the key holds it.


class KeysAfter:
    """The state after an update, from the one before and the keys that have changed."""

    def __init__(self, keys: SavedKeys, changed: Mapping[Key, Changed]) -> None:
        self._keys, self._changed = keys, changed
        self._groups: dict[int, dict[Key, dict[str, Any]]] = {}
        for key in in_order(changed):
            group = group_of(key)
            self._groups.setdefault(group, dict(keys.of_group(group)))[key] = changed[key].held
        self._figures = Figures(*(column.copy() for column in keys.figures))
        for group, held in self._groups.items():
            keys.count(self._figures, group, held)

    def receipt(self, copies: tuple[str, ...]) -> Receipt:
        """Return the receipt over all keys."""
        receipts = {key: self._changed[key].receipt for key in in_order(self._changed)}
        before, after = self._keys.figures, self._figures
        active, digests = (int(before.active.sum()), int(after.active.sum())), (before.digest, after.digest)
        receipt = receipt_of_keys(self._keys.outline().options, receipts, active=active, digests=digests, copies=copies)
        return replace(receipt, subjects=tuple(dict.fromkeys(who for one in receipts.values() for who in one.subjects)))

    def components(self, stream: Mapping[str, Any], scores: Mapping[str, Any]) -> Mapping[str, dict[str, Any]]:
        """Return the components of the state; groups are read, and packed, as they are asked for.

        ``stream`` and ``scores`` are of all keys.
        """
        of_groups = self._keys.groups
        names = {f"group-{group:03d}": group for group in sorted({*of_groups, *self._groups})}
        first = {"coordinator": self._figures._asdict(), "stream": dict(stream), "scores": dict(scores)}
        first = {name: one for name, one in first.items() if one}

        def part(name: str) -> dict[str, Any]:
            if name in first:
                return first[name]
            group = names[name]
            return packed(self._groups[group]) if group in self._groups else dict(of_groups[group])

        return Lazy([*first, *names], part)


class UpdateOfKeys:
    """An update by lists, in memory; as :class:`pipelines.updating.lists.UpdateOfOne`.

    ModelFileError if the folder has models without their rows.
    """

    def __init__(self, keys: SavedKeys, place: StatePlace) -> None:
        require_state(keys)
        self._keys, self._place, self._common = keys, place, keys.outline()

    def origin(self) -> Origin:
        """Return what a chain has to name of the models."""
        return origin_of(self._place.folder.location, self._common, lambda: self._keys.counted().digest)

    def apply(self, asked: Asked) -> Receipt:
        """Read the lists, tell them apart by key and apply them; errors as of :func:`pipelines.update`.

        UpdateError if an id lives under several keys, and its list does not say which is meant.
        """
        common, column = self._common, str(self._keys.meta[BY_KEY])
        self._names = names = StateNames.of(common, asked.label, asked.id_column)
        self._gone, deleted = no_deletions(), dict[Key, TableInMemory]()
        missing: tuple[Any, ...] = ()
        if asked.delete is not None:
            told = deletions_given(asked.delete, names.keys)
            listed = ListedDeletions(KeysOfState(self._keys), names, told, column)
            deleted, missing = listed.by_key(), tuple(listed.missing)
            if missing and asked.missing == "error":
                raise unknown_error(listed.log, list(missing))
            path = None if isinstance(told, DataFile) else told
            self._gone = replace(self._gone, missing=missing, path=path, file=listed.log.file)
        self._new, inserted = no_insertions(common, names, self._gone), dict[Key, Rows]()
        shared: SharedSource | None = None
        if asked.insert is not None:
            given = rows_given(asked.insert)
            source = open_insertions(given, asked.kind, common, names, column)
            shared, chunks = SharedSource(source, traits_of(common.options).reading), list(sound_rows(source))
            names.require_labels(common, source, np.concatenate([self._new.y, *(c.y for c in chunks)]), source.where)
            inserted, path = rows_by_key(shared, chunks), None if isinstance(given, DataFile) else given
            self._new = replace(
                self._new,
                path=path,
                source=source,
                classes=source.classes or common.classes,
                categories=grown_categories(source, common),
            )
        copies = copies_of(common, self._place, self._gone.path or None)
        self._changed, weighed = {}, dict[Key, WeightSum]()
        for key in in_order({*deleted, *inserted}):
            rows = None if shared is None or key not in inserted else (shared, inserted[key])
            one = self._applied(key, deleted.get(key), rows, asked, copies)
            if one is not None:
                self._changed[key], weighed[key] = one
        log_little(too_little_of_keys(weighed.items(), traits_of(common.options)))
        self._after = KeysAfter(self._keys, self._changed)
        self._receipt = replace(self._after.receipt(copies), missing=missing, note=asked.note)
        return self._receipt

    def _applied(
        self,
        key: Key,
        deleted: TableInMemory | None,
        rows: tuple[SharedSource, Rows] | None,
        asked: Asked,
        copies: tuple[str, ...],
    ) -> tuple[Changed, WeightSum] | None:
        """Update one key, and add up the weights of its live examples; None if nothing of it changes."""
        saved, begins = opened(self._keys, key)
        names, session = StateNames.of(saved, asked.label, asked.id_column), saved.session()
        find = session.coordinator.store.find if not begins else lambda ids: np.full(len(ids), -1)
        gone = no_deletions() if deleted is None else read_deletions(deleted, names, find, "skip")
        new = no_insertions(saved, names, gone)
        if rows is not None:
            source = source_of_key(rows[0], saved, names)
            source.give(rows[1])
            new = insertions_of(source, self._new.path, saved, names, find, gone)
        if not len(gone.ids) and not len(new.ids):
            return None
        warmup = self._keys.warmup if begins else None
        receipt = apply_lists(saved, names, session, gone, new, copies=copies, warmup=warmup)
        components = components_after(saved, session, names, gone, new)
        if "scores" in components:
            components["scores"] = narrow(components["scores"])
        counts = {"inserts": len(new.ids), "deletes": len(gone.ids)}
        next_id = max(names.next_id, int(new.ids.max(initial=-1)) + 1)
        own = {"classes": new.classes, "categories": new.categories, "next_id": next_id}
        own["offset"] = int(saved.meta["offset"]) + len(gone.ids) + len(new.ids)
        weighed = WeightSum.of_live(session.coordinator.store)
        return Changed(receipt, {**components, "meta": {**own, "counts": counts_after(saved, counts)}}), weighed

    def contents(self) -> tuple[dict[str, Any], Mapping[str, dict[str, Any]]]:
        """Return ``meta`` and components of the new state."""
        keys, new = self._keys, self._new
        step = step_of(self._common, self._place.folder.location, self._names, self._gone, new, self._receipt)
        known = new.classes, new.categories
        meta = meta_of_keys(keys, self._place, self._names, {**step, "keys": len(self._changed)}, known)
        return meta, self._after.components(stream_of_keys(self._names, known), keys.components.get("scores", {}))


class KeysWithExamples(Protocol):
    """Keys with live examples."""

    @property
    def kind(self) -> str:
        """Kind of the keys."""

    def __iter__(self) -> Iterator[Key]: ...

    def of(self, key: Key) -> tuple[Mapping[str, Any], Ints, Callable[[], Subjects]] | None:
        """Return the state of a key's stream, the ids of its live examples, and their subjects; None without any."""


class KeysOfState:
    """The keys of a state, as :class:`KeysWithExamples`."""

    def __init__(self, keys: SavedKeys) -> None:
        self._keys = keys

    @property
    def kind(self) -> str:
        """Kind of the keys."""
        return self._keys.kind

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def of(self, key: Key) -> tuple[Mapping[str, Any], Ints, Callable[[], Subjects]] | None:
        """Return the state of a key's stream, the ids of its live examples, and their subjects; None without any."""
        held = self._keys.of_group(group_of(key)).get(key)
        if held is None or not live(held):
            return None
        ids = held["coordinator"]["id"]
        return held["stream"], ids, lambda: StateNames.of(self._keys.understood(held)).subjects


class ListedDeletions:
    """A list of ids or subjects to delete, told apart by key.

    By its column of keys, if it has one; else by where each lives.
    """

    def __init__(self, keys: KeysWithExamples, names: StateNames, given: str | DataFile, column: str) -> None:
        with without_a_config():
            self.log = LoggedDeletions(given, ".", names.keys, "list of ids", "state")
        if "after" in self.log.file.names:
            raise InputError(message("updates.positions"), file=self.log.file.name, column="after")
        if not self.log.ids:
            raise InputError(message("updates.no_ids"), file=self.log.file.name)
        self._keys, self._text, self._column = keys, names.text_ids, column
        self.missing: list[Any] = []

    def by_key(self) -> dict[Key, TableInMemory]:
        """Return the ids or subjects to delete of each key; what is live under none is ``missing``.

        UpdateError if ids live under several keys, and there is no column of keys.
        """
        log = self.log
        if self._column in log.file.names and self._column != log.column:
            kinds = LogKeys(self._keys.kind, self._column)
            with without_a_config():
                whose: list[Key] = _KeyColumn(log.file, ".", kinds, "list of ids", "state").ids
            asked: dict[Key, dict[Any, None]] = defaultdict(dict)
            for key, one in zip(whose, log.ids, strict=True):
                asked[key][one] = None
            living = {key: self._living(key, set(ones)) for key, ones in asked.items()}
            found = {key: [one for one in ones if one in living[key]] for key, ones in asked.items()}
            self.missing = list(
                dict.fromkeys(one for key, ones in asked.items() for one in ones if one not in living[key])
            )
        else:
            found = self._looked_up(dict.fromkeys(log.ids))
        return {key: self._table(ones) for key, ones in found.items() if ones}

    def _looked_up(self, asked: dict[Any, None]) -> dict[Key, list[Any]]:
        wanted, found = set(asked), dict[Key, list[Any]]()
        places: dict[Any, list[Key]] = defaultdict(list)
        for key in self._keys:
            for one in sorted(self._living(key, wanted), key=str):
                places[one].append(key)
                found.setdefault(key, []).append(one)
        several = [one for one in asked if len(places[one]) > 1]
        if several and not self.log.by_subject:
            keys = ", ".join(map(quoted, places[several[0]][:_SHOWN]))
            said = message(
                "keyed.several_keys", id=quoted(several[0]), count=len(several), keys=keys, column=self._column
            )
            row = self.log.ids.index(several[0])
            raise UpdateError(said, file=self.log.file.name, row=row, column=self.log.column)
        self.missing = [one for one in asked if not places[one]]
        order = {one: place for place, one in enumerate(asked)}
        return {key: sorted(ones, key=order.__getitem__) for key, ones in found.items()}

    def _living(self, key: Key, wanted: set[Any]) -> set[Any]:
        """Return which ids, or subjects, of some have live examples under a key; O(live examples of the key)."""
        if (held := self._keys.of(key)) is None:
            return set()
        stream, codes_of_ids, subjects = held
        if self.log.by_subject:
            there = wanted.intersection(stream.get("subjects", ()))
            return set(subjects().rows_of(there)[2].tolist()) if there else set()
        ids: list[Any] = codes_of_ids.tolist()
        if self._text:
            codes = zip(stream["ids"], stream["id_codes"].tolist(), strict=True)
            named = {code: name for name, code in codes if name in wanted}
            ids = [named[code] for code in ids if code in named]
        return wanted.intersection(ids)

    def _table(self, ones: Sequence[Any]) -> TableInMemory:
        kind = pa.string() if isinstance(ones[0], str) else pa.int64()
        return TableInMemory(pa.table({self.log.column: pa.array(ones, kind)}), self.log.file.name)


class _KeyColumn(LoggedDeletions):
    """The keys of a list, as its ids."""

    def _find_column(self, keys: LogKeys) -> tuple[bool, str]:
        return False, str(keys.id)


def require_state(keys: SavedKeys) -> None:
    """Refuse (ModelFileError) models without their rows."""
    if keys.meta["kind"] != "state":
        raise ModelFileError(message("runs.model_only"), file=keys.place)


def opened(keys: SavedKeys, key: Key) -> tuple[SavedModel, bool]:
    """Return what a key holds, or the beginning of a new one, and whether it begins."""
    return (keys.saved(key), False) if key in keys else (keys.beginning(), True)


def rows_by_key(shared: SharedSource, chunks: Iterable[Rows]) -> dict[Key, Rows]:
    """Return the rows of each key in chunks of a source, with the bad ones among them."""
    parts: dict[Key, list[Rows]] = {}
    for chunk in chunks:
        for key, rows, _ in shared.split(chunk):
            if key is not None:
                parts.setdefault(key, []).append(rows)
    return {key: Rows.joined(found) for key, found in parts.items()}


def source_of_key(shared: SharedSource, saved: SavedModel, names: StateNames) -> KeySource:
    """Return the source of one key's rows in files, with the dictionaries of its state."""
    source = KeySource(shared)
    assert isinstance(shared.source, FileSource)
    source.restore({"categories": known_categories(saved, shared.source.data_files), "labels": names.labels})
    return source


def counts_after(saved: SavedModel, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of all updates of a key since its run, with those of one more."""
    before: Mapping[str, int] = saved.components.get("meta", {}).get("counts", {})
    return {name: before.get(name, 0) + counts.get(name, 0) for name in {**before, **counts}}


def meta_of_keys(
    keys: SavedKeys,
    place: StatePlace,
    names: StateNames,
    step: dict[str, Any],
    known: tuple[list[Any], dict[str, list[Any]]],
) -> dict[str, Any]:
    """Return ``meta`` of the state after an update, the last ``step`` of its lineage.

    ``known`` are classes and categories of all keys.
    """
    row = keys.meta.get("row", keys.meta["offset"])  # of the source, at which the run was
    at = keys.components.get("stream", {})
    before: Mapping[str, Any] = at if "row" in at else (keys.meta.get("lineage") or [{}])[-1]
    step = {**step, "row": row, "deletions": int(before.get("deletions", 0))}  # where the run was in its source and log
    meta = meta_after(keys.outline(), place.folder, names, step, known)
    return meta | {BY_KEY: keys.meta[BY_KEY], "warmup": keys.warmup, "row": row, "next_id": 0}


def stream_of_keys(names: StateNames, known: tuple[list[Any], dict[str, list[Any]]]) -> dict[str, Any]:
    """Return the dictionaries of all keys as the component of a stream; ``known`` as of :func:`meta_of_keys`."""
    labels = names.labels if "positive" in names.labels else {"classes": known[0]}
    return {"source": {"categories": known[1], "labels": labels}}


# Change logs applied to models by key: the rows of each key are a change log of their own.
#
# Invariant: as of :mod:`pipelines.keyed.updating`. Every row names its key, that of a deletion, too.

#: What is counted of a key in its state, and told of by an adoption.
_KEPT = ("inserts", "deletes", "replaced", "queries")


class _Part(NamedTuple):
    """The rows of one key in one file."""

    shared: SharedSource
    rows: Rows


#: The rows of each key in each file, by its path.
PartsByKey = dict[Key, dict[str, _Part]]


def rows_of_changes(
    files: Sequence[ChangeFile], common: SavedModel, names: StateNames, spelling: Spelling, column: str, *, skip: bool
) -> tuple[PartsByKey, int, SavedModel]:
    """Return the rows of each key, how many bad ones have no key, and ``common`` with what files say of all keys."""
    parts, skipped = PartsByKey(), 0
    for one in files:
        source = source_of(common, names, spelling, one, column)
        shared = SharedSource(source, traits_of(common.options).reading)
        chunks = list(source.rows() if skip else sound_rows(source))
        skipped += sum(int((chunk.key[[*chunk.bad]] < 0).sum()) for chunk in chunks if chunk.key is not None)
        for key, rows in rows_by_key(shared, chunks).items():
            parts.setdefault(key, {})[one.path] = _Part(shared, rows)
        common = grown(common, source)
        names = replace(names, labels=source.state()["labels"])
    return parts, skipped, common


class ChangesOfKeys:
    """Change logs applied to models by key, in memory; as :class:`pipelines.updating.change_update.ChangesOfOne`."""

    def __init__(self, keys: SavedKeys, place: StatePlace) -> None:
        require_state(keys)
        self.common, self._keys, self._place = keys.outline(), keys, place

    def origin(self) -> Origin:
        """Return what a chain has to name of the models."""
        return origin_of(self._place.folder.location, self.common, lambda: self._keys.counted().digest)

    def apply(
        self,
        files: Sequence[ChangeFile],
        names: StateNames,
        spelling: Spelling,
        on_error: Literal["error", "skip"],
        copies: tuple[str, ...],
    ) -> tuple[Receipt, Told]:
        """Apply files; errors as of :func:`pipelines.updating.apply_changes`."""
        self._names, self._changed, counts = names, dict[Key, Changed](), Counter(dict.fromkeys(COUNTED, 0))
        parts = self._read(files, spelling, counts, skip=on_error == "skip")
        self._updates, sums, weighed = 0, list[AnyArray](), dict[Key, WeightSum]()
        for key in in_order(parts):
            saved, begins = opened(self._keys, key)
            own = StateNames.of(saved, names.label, names.id)
            warmup = self._keys.warmup if begins else None
            streams = StreamsOfKey(saved, own, spelling, on_error, warmup)
            streams.parts = parts[key]
            applied = Applied(saved, saved.session(), streams, begins=begins)
            receipt = applied.run([one for one in files if one.path in parts[key]], copies)
            updates, of_key, _ = applied.told
            self._updates += updates
            counts.update(of_key)
            sums.append(applied.sums)
            if updates:
                receipt = receipt.answering(applied.whose(own), (), ())
                self._changed[key] = Changed(receipt, _held(saved, own, applied))
                weighed[key] = WeightSum.of_live(applied.session.coordinator.store)
        log_little(too_little_of_keys(weighed.items(), traits_of(self.common.options)))
        self._after = KeysAfter(self._keys, self._changed)
        return self._after.receipt(copies), (self._updates, dict(counts), self._scores(sums))

    def _read(self, files: Sequence[ChangeFile], spelling: Spelling, counts: Counter[str], *, skip: bool) -> PartsByKey:
        """Return the rows of each key in each file, by its path; bad ones without a key are counted."""
        column = str(self._keys.meta[BY_KEY])
        parts, skipped, common = rows_of_changes(files, self.common, self._names, spelling, column, skip=skip)
        counts["skipped"] += skipped
        self._known = common.classes, common.categories
        return parts

    def _scores(self, sums: Sequence[AnyArray]) -> dict[str, Any]:
        """Return scores over all keys: of these updates, and of all there have been."""
        numbers = bool(traits_of(self.common.options).reading.regression)
        here = np.sum(sums, axis=0) if sums else np.zeros(0)
        before = self._keys.components.get("scores", {}).get("sums", np.zeros(0))
        self._sums = np.asarray(here + before if len(before) else here, dtype=np.float64)
        window = {f"window_{name}": score for name, score in pooled(here, numbers=numbers).items()}
        return known({**pooled(self._sums, numbers=numbers), **window})

    def contents(self, receipt: Receipt) -> tuple[dict[str, Any], Mapping[str, dict[str, Any]]]:
        """Return ``meta`` and components of the new state."""
        common, names = self.common, self._names
        nothing = no_deletions()
        step = step_of(
            common, self._place.folder.location, names, nothing, no_insertions(common, names, nothing), receipt
        )
        meta = meta_of_keys(self._keys, self._place, names, {**step, "keys": len(self._changed)}, self._known)
        components = self._after.components(stream_of_keys(names, self._known), {"sums": self._sums})
        return meta | {"offset": int(common.meta["offset"]) + self._updates}, components


class StreamsOfKey(ChangeStreams):
    """The streams of one key in files; ``parts`` has its rows by the paths of these."""

    parts: Mapping[str, _Part]

    def _source(self, one: ChangeFile) -> KeySource:
        return source_of_key(self.parts[one.path].shared, self._saved, replace(self._names, labels=self._labels))

    def _opened(self, one: ChangeFile) -> ChangelogStream:
        stream = super()._opened(one)
        assert isinstance(stream.source, KeySource)
        stream.source.give(self.parts[one.path].rows)  # once it has the dictionaries of the state
        return stream


def _held(saved: SavedModel, names: StateNames, applied: Applied) -> dict[str, Any]:
    """Return what a key holds after its changes."""
    new = applied.insertions
    components = components_after(saved, applied.session, names, applied.deletions, new)
    own = {"classes": new.classes, "categories": new.categories, "offset": applied.seq}
    own["next_id"] = max(names.next_id, int(new.ids.max(initial=-1)) + 1)
    counts = counts_after(saved, {name: applied.told[1][name] for name in _KEPT})
    return {**components, "scores": narrow(applied.prequential), "meta": {**own, "counts": counts}}


# A state of models by key that ``raydt update`` wrote becomes the only checkpoint of its run.
#
# Invariant: as of :mod:`pipelines.running.checkpoint`. A key that the updates have changed goes on from there as a run
# of its rows alone does; the others go on as they were.

#: Counts of a key that updates change.
_COUNTS = ("inserts", "deletes", "replaced", "queries")
_NONE = {"id": np.empty(0, dtype=np.int64), "born": np.empty(0, dtype=np.int64)}


class KeyedAdoption(Adoption):
    """The adoption of a state of models by key."""

    _position = "row"

    def _open(self, state: str | Path) -> tuple[SavedKeys, str]:
        place = find_state(state).folder
        keys = open_keys(place.root, filesystem=place.filesystem)
        if keys is None:
            raise ModelFileError(message("keyed.one"), file=place.location)
        return keys, place.location

    def _digest(self, before: Checkpoint, place: str) -> str:
        return SavedKeys(before.meta, before.components, place).figures.digest

    def _contents(self, before: Checkpoint, stream: Any) -> tuple[dict[str, Any], Mapping[str, dict[str, Any]]]:
        known, keys = SavedKeys(before.meta, before.components, self._place), self._saved
        stream.restore(before.components["stream"])
        recorder, scores = before.components["recorder"], before.components["scores"]
        self._require_tables(recorder, scores, stream)
        job, totals, there = job_of(self._config, stream), Counter(recorder["totals"]), np.zeros(GROUPS, dtype=np.int64)
        groups: dict[str, dict[str, Any]] = {}
        same: dict[str, int] = {}
        changes: dict[Key, Followed] = {}
        for group in sorted({*known.groups, *keys.groups}):
            held, after = dict(known.of_group(group)), keys.of_group(group)
            news = {key: one for key, one in after.items() if "meta" in one}
            for key, one in news.items():
                follower = _Follower(job, keys, self._place)
                changes[key] = follower.followed(held.get(key), one)
                held[key] = changes[key].held
                totals.update(changes[key].counts)
            there[group] = len(held)
            if news:
                groups[f"group-{group:03d}"] = packed(held)
            else:
                same[f"group-{group:03d}"] = group
        first = {
            "coordinator": {"keys": there},
            "stream": _with_changes(before.components["stream"], stream, changes),
            "recorder": {**recorder, "totals": dict(totals)},
            "scores": scores,
            **groups,
        }
        components = Lazy(
            [*first, *same], lambda name: first[name] if name in first else dict(known.groups[same[name]])
        )
        return {**self._meta(before), "offset": before.number}, components


class Followed(NamedTuple):
    """A key after updates from elsewhere: its state, and by how much its counts and ids have changed."""

    held: dict[str, Any]  #: What the key holds in the new checkpoint.
    counts: Counter[str]  #: By how much its counts have grown.
    gone: list[Any]  #: Ids that were deleted, as the source has them.
    new: list[Any]  #: Ids that were inserted.


def _with_changes(state: Mapping[str, Any], stream: KeyedStream, changes: Mapping[Key, Followed]) -> dict[str, Any]:
    """Return the state of a stream in which the ids of a table that is followed have their keys after updates."""
    if stream.table is None:
        return dict(state)
    stream.restore(dict(state))
    for key, one in changes.items():
        stream.table.follow_update(key, one.gone, one.new)
    return {**state, "source": {**state["source"], "keys": stream.source.keys}, **stream.table.state()}


class _Follower:
    """Keys that updates have changed."""

    def __init__(self, job: KeyedJob, keys: SavedKeys, place: str) -> None:
        self._job, self._keys, self._place = job, keys, place

    def followed(self, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Followed:
        """Return what has become of the key."""
        job, saved = self._job, self._keys.understood(after)
        source = KeySource(job.shared)
        stream: Any = job.stream.make(source)
        start, arrays = 0, _NONE
        if before is None:
            recorder = Tally(stream, weighted=job.weighted).narrow_state()
            scores = recorder.pop("prequential")
            recorder["statistics"] = saved.session().statistics()
        else:
            recorder, scores, arrays = dict(before["recorder"]), before["scores"], before["coordinator"]
            source.restore(before["stream"]["source"])
            source.go_to(int(before["stream"]["row"]), int(before["stream"].get("deletions", 0)))
            stream.restore(before["stream"])
            start = int(recorder["updates"])
        own, told = after["meta"], recorder.get("followed", {})
        counts = {name: own["counts"].get(name, 0) - told.get(name, 0) for name in _COUNTS}
        offset = int(own["offset"])
        if counts["inserts"] and source.id_kind == "row":
            raise InputError(message("runs.running_numbers"), file=self._place)
        deleted, inserted = ids_between(arrays, saved.arrays, start)
        gone = stream.names_of(deleted)
        stream.follow_update(deleted, inserted, offset - start, after["stream"], len(saved.classes))
        recorder |= {
            "updates": offset,
            **{name: recorder[name] + count for name, count in counts.items()},
            "next_id": own["next_id"],
            "n_classes": max(recorder["n_classes"], len(saved.classes)),
            "followed": dict(own["counts"]),
        }
        model = {name: one for name, one in after.items() if name not in ("meta", "stream", "scores", "recorder")}
        held = {**model, "stream": stream.state(), "scores": scores, "recorder": recorder}
        return Followed(held, Counter({**counts, "updates": offset - start}), gone, stream.names_of(inserted))
