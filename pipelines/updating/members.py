"""An update of a state in memory: what it is given is told apart by member, and each is updated as a model of its own.

A state is a mapping from keys to members; one without keys has one, to which all belongs.

Invariant: what a member holds afterwards is what the same update makes of a run over the rows of its key alone. All
members are checked and applied in memory before anything is written; groups of keys without a change are copied. The
new state is written as a whole, just after its receipt, or not at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.receipts import QUOTE_VALUES, may_quote, now, origin_of
from pipelines.run_folder import RunFolder, is_of_state
from pipelines.saved_runs import StatePlace, states_of
from pipelines.updating.change_files import (
    COUNTED,
    Applied,
    ChangeFile,
    ChangeStreams,
    FileParts,
    Spelling,
    Told,
    grown,
    log_little,
    read_before,
    source_of,
)
from pipelines.updating.changes import (
    Deletions,
    Find,
    Insertions,
    Missing,
    StateNames,
    deletions_given,
    grown_categories,
    insertions_of,
    no_deletions,
    no_insertions,
    open_deletions,
    open_insertions,
    read_deletions,
    rows_given,
    sound_rows,
    source_of_key,
    unknown_error,
    without_a_config,
)
from pipelines.updating.changes import Input as Given
from pipelines.updating.lineage import absolute, batch_of, names_after, step_of
from raydt.arrays.blocks import Lazy
from raydt.arrays.elementary import AnyArray, Ints
from raydt.errors import UpdateError
from raydt.examples.store import Subjects
from raydt.examples.updates import Targets
from raydt.folders.arrays import MANIFEST, save_folder
from raydt.keyed.groups import Key, group_of, in_order
from raydt.keyed.members import narrow, pooled
from raydt.keyed.packing import Figures, Member, SavedKeys, live, packed
from raydt.keyed.source import KeySource, SharedSource
from raydt.learners import traits_of
from raydt.learners.base import LearnerOptions, WeightSum, too_little_of_keys
from raydt.messages import message
from raydt.redaction import quoted
from raydt.sessions.receipt import Receipt, RefusedError, apply_with_receipt, receipt_of_keys
from raydt.sessions.receipt_chain import OpenChain, Origin
from raydt.sessions.saved_model import BY_KEY, SavedModel, model_meta, state_components
from raydt.sessions.session import OF_ANY_STATE, InProcessSession
from raydt.sources.base import Rows
from raydt.sources.file_source import FileSource
from raydt.sources.files.datafile import DataFile, TableInMemory
from raydt.sources.files.jsonl import DIALECT
from raydt.streams.base import known
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


# What an update makes of a session and of a state, and how the new state is written.


class Asked(NamedTuple):
    """Arguments of an update by lists; see :func:`update`."""

    delete: Given | None
    insert: Given | None
    missing: Missing
    label: str | None
    id_column: str | None
    kind: str | None
    note: str


def apply_lists(
    saved: SavedModel,
    names: StateNames,
    session: InProcessSession,
    gone: Deletions,
    new: Insertions,
    *,
    copies: tuple[str, ...],
    warmup: int | None = None,
) -> Receipt:
    """Apply an update to a session of a state, and return its receipt; UpdateError for a label that is refused.

    ``warmup`` is given of a model that begins: there is no digest before, and its rows are all that it will get.
    """
    batch = batch_of(int(saved.meta["offset"]), gone, new, "positive" in names.labels)
    ids: Any = np.concatenate([gone.names, new.names])
    whose = names.subjects.of(gone.ids) if names.subject_kind is not None else None
    first = None if warmup is None else ""
    batch = batch if warmup is None else replace(batch, warmup=warmup)
    try:
        receipt = apply_with_receipt(
            session, batch, new.classes, saved.options, ids=ids, copies=copies, digest_before=first
        )
    except RefusedError as error:  # ids were checked, so that it is the label of a new row
        raise new.refused(error, error.position - len(gone.ids), names.label) from error
    if warmup is not None:
        session.finish()
        receipt = replace(receipt, digest_before=None, digest_after=session.digest())
    return receipt.answering(whose, gone.subjects, gone.missing)


def meta_after(
    saved: SavedModel,
    folder: RunFolder,
    names: StateNames,
    step: dict[str, Any],
    known: tuple[list[Any], dict[str, Any]],
) -> dict[str, Any]:
    """Return ``meta`` of the state after an update, the last ``step`` of its lineage, less its running number.

    ``known`` are classes and categories.
    """
    meta = model_meta(saved.options, saved.features, *known)
    meta |= {key: saved.meta[key] for key in ("named", "declared", DIALECT) if key in saved.meta}
    meta |= read_before(saved)
    offset = int(saved.meta["offset"]) + step["deletes"] + step["inserts"]
    meta |= {"config_hash": None, "source_fingerprint": None, "offset": offset}
    meta |= {"lineage": [*saved.meta.get("lineage", []), step]}
    meta |= {"columns": names.columns}
    meta |= {"numbered": names.numbered} if names.numbered else {}
    return meta | ({} if may_quote(folder.location) else {QUOTE_VALUES: False})


def components_after(
    saved: SavedModel, session: InProcessSession, names: StateNames, gone: Deletions, new: Insertions
) -> dict[str, Any]:
    """Return the components of the state after an update."""
    components: dict[str, Any] = state_components(*session.state())
    live = components["coordinator"]["id"], components["coordinator"]["born"]
    components["stream"] = names_after(names, new, int(saved.meta["offset"]) + len(gone.ids), live)
    if "scores" in saved.components:  # for change logs that follow
        components["scores"] = saved.components["scores"]
    return components


def save_state(
    target: RunFolder, meta: dict[str, Any], components: Mapping[str, Any], receipt: Receipt, chain: OpenChain | None
) -> None:
    """Write the new state, unless it is there, and its receipt last but for the manifest; or neither."""

    def keep() -> None:
        if chain is not None:
            chain.append(receipt, time=now())
            meta["lineage"][-1]["receipt"] = chain.head  # the manifest comes after it

    if target.has(MANIFEST):
        keep()
        return
    try:
        save_folder(target, "state", meta, components, before_commit=keep)
    except BaseException:
        target.clear(is_of_state)
        if chain is not None:
            chain.withdraw()
        raise


def copies_of(saved: SavedModel, place: StatePlace, delete: str | Path | None) -> tuple[str, ...]:
    """Return the places in which copies of deleted examples may be, with paths where they are known."""
    run, config = place.run, place.config
    places = [message("updates.copy_state", path=place.folder.location)]
    series, _, _ = place.folder.location.rpartition("/")
    for step in reversed(saved.meta.get("lineage", [])):
        above, _, name = step["state"].rpartition("/")
        if above != series or place.folder.has(f"../{name}/{MANIFEST}"):  # else it was removed
            places.append(message("updates.copy_earlier_state", path=step["state"]))
        files = [*step["files"].get("changes", ()), *(file for kind, file in step["files"].items() if kind == "insert")]
        places += [message("updates.copy_rows", path=file["path"]) for file in files if file["path"] is not None]
    if run is not None and config is not None:
        path = getattr(config.source, "path", None)
        if path is not None:
            places.append(message("updates.copy_source", path=path if isinstance(path, str) else ", ".join(path)))
        places.append(message("updates.copy_states", path=states_of(config, run).location))
        places += [
            message(id, path=f"{run.location}/{name}")
            for id, name in (
                ("updates.copy_predictions", "predictions"),
                ("updates.copy_quarantine", "quarantine"),
                ("updates.copy_log", "log.jsonl"),
            )
            if run.has(name)
        ]
        places.append(message("updates.copy_model", path=f"{run.location}/model"))
        if config.cluster.backend == "ray":
            places.append(message("updates.copy_of_ray"))
    else:
        places.append(message("updates.copy_origin"))
    if delete is not None:
        places.append(message("updates.copy_ids", path=absolute(str(delete))))
    if any(saved.features.categorical):
        places.append(message("updates.copy_categories"))
    if saved.classes:
        places.append(message("updates.copy_classes"))
    return (*places, *OF_ANY_STATE)


class Changed(NamedTuple):
    """The receipt and the new state of one member after an update."""

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


class _MemberUpdate:
    """An update in memory, of each member of a state."""

    def __init__(self, members: SavedKeys, place: StatePlace) -> None:
        self._members, self._place, self.common = members, place, members.outline()
        self._column: str | None = members.meta.get(BY_KEY)
        self._changed: dict[Member, Changed] = {}
        self._weighed: dict[Member, WeightSum] = {}

    def origin(self) -> Origin:
        """Return what a chain has to name of the models."""
        return origin_of(self._place.folder.location, self.common, lambda: self._members.total().digest)

    def _together(self, copies: tuple[str, ...]) -> Receipt:
        """Return the receipt of all members; a warning says whose weights are too small to split a node."""
        traits = traits_of(self.common.options)
        if self._column is None:
            log_little(self._weighed[None].too_little(traits))
            return self._changed[None].receipt
        log_little(too_little_of_keys(self._weighed.items(), traits))
        self._after = KeysAfter(self._members, self._changed)
        return self._after.receipt(copies)

    def _contents(
        self,
        names: StateNames,
        step: dict[str, Any],
        known: tuple[list[Any], dict[str, list[Any]]],
        scores: Mapping[str, Any],
    ) -> tuple[dict[str, Any], Mapping[str, dict[str, Any]]]:
        """Return ``meta`` and components of the new state, whose lineage ends with a step.

        Classes and categories that are ``known``, and scores, are of all keys.
        """
        if self._column is None:
            held = dict(self._changed[None].held)
            own = held.pop("meta")
            meta = meta_after(self.common, self._place.folder, names, step, (own["classes"], own["categories"]))
            return meta | {"next_id": own["next_id"], "offset": own["offset"]}, held
        meta = meta_of_keys(self._members, self._place, names, {**step, "keys": len(self._changed)}, known)
        return meta, self._after.components(stream_of_keys(names, known), scores)


class UpdateOfLists(_MemberUpdate):
    """An update by lists."""

    def apply(self, asked: Asked) -> Receipt:
        """Read the lists, tell them apart by key and apply them; errors as of :func:`pipelines.update`.

        UpdateError if an id lives under several keys, and its list does not say which is meant.
        """
        common, column, members = self.common, self._column, self._members
        self._names = names = StateNames.of(common, asked.label, asked.id_column)
        self._gone = no_deletions()
        lists = Lists(names, column, members.kind, partial(examples_of, members), asked.missing)
        if asked.delete is not None:
            told = deletions_given(asked.delete, names.keys)
            log = open_deletions(told, names)
            lists.delete(log, members)
            path = None if isinstance(told, DataFile) else told
            self._gone = replace(self._gone, missing=tuple(lists.missing), path=path, file=log.file)
        self._new = no_insertions(common, names, self._gone)
        if asked.insert is not None:
            given = rows_given(asked.insert)
            source = open_insertions(given, asked.kind, common, names, column)
            lists.path = None if isinstance(given, DataFile) else given
            labels = lists.insert(source, common.options)
            if column is not None:
                names.require_labels(common, source, np.concatenate([self._new.y, *labels]), source.where)
                classes, categories = source.classes or common.classes, grown_categories(source, common)
                self._new = replace(self._new, path=lists.path, source=source, classes=classes, categories=categories)
        copies = copies_of(common, self._place, self._gone.path or None)
        for key in [None] if column is None else in_order(lists.keys):
            self._apply(key, lists, asked, copies)
        self._receipt = replace(self._together(copies), missing=self._gone.missing, note=asked.note)
        return self._receipt

    def _apply(self, key: Member, lists: Lists, asked: Asked, copies: tuple[str, ...]) -> None:
        """Update one member, unless nothing of a key changes."""
        saved, begins = opened(self._members, key)
        names = self._names if key is None else StateNames.of(saved, asked.label, asked.id_column)
        session = saved.session()
        find = session.coordinator.store.find if not begins else lambda ids: np.full(len(ids), -1)
        gone, new = lists.of(key, saved, names, find)
        if key is None:
            self._gone, self._new = replace(gone, path=self._gone.path), new
        elif not len(gone.ids) and not len(new.ids):
            return
        warmup = self._members.warmup if begins else None
        receipt = apply_lists(saved, names, session, gone, new, copies=copies, warmup=warmup)
        components = components_after(saved, session, names, gone, new)
        if key is not None and "scores" in components:
            components["scores"] = narrow(components["scores"])
        counts = {"inserts": len(new.ids), "deletes": len(gone.ids)}
        next_id = max(names.next_id, int(new.ids.max(initial=-1)) + 1)
        own = {"classes": new.classes, "categories": new.categories, "next_id": next_id}
        own["offset"] = int(saved.meta["offset"]) + len(gone.ids) + len(new.ids)
        self._changed[key] = Changed(receipt, {**components, "meta": {**own, "counts": counts_after(saved, counts)}})
        self._weighed[key] = WeightSum.of_live(session.coordinator.store)

    def contents(self) -> tuple[dict[str, Any], Mapping[str, dict[str, Any]]]:
        """Return ``meta`` and components of the new state."""
        new, scores = self._new, self._members.components.get("scores", {})
        step = step_of(self.common, self._place.folder.location, self._names, self._gone, new, self._receipt)
        return self._contents(self._names, step, (new.classes, new.categories), scores)


def opened(keys: SavedKeys, key: Member) -> tuple[SavedModel, bool]:
    """Return what a key holds, or the beginning of a new one, and whether it begins."""
    return (keys.saved(key), False) if key in keys else (keys.beginning(), True)


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


#: What is counted of a key in its state, and told of by an adoption.
KEPT = ("inserts", "deletes", "replaced", "queries")


class UpdateOfChanges(_MemberUpdate):
    """Change logs applied to the members of a state."""

    def apply(
        self,
        files: Sequence[ChangeFile],
        names: StateNames,
        spelling: Spelling,
        on_error: Literal["error", "skip"],
        copies: tuple[str, ...],
    ) -> tuple[Receipt, Told]:
        """Apply files, and return the receipt, updates, counts and scores.

        Errors as of :func:`pipelines.updating.apply_changes`.
        """
        self._names, counts, parts = names, Counter(dict.fromkeys(COUNTED, 0)), dict[Member, Any]({None: None})
        self._known: Any = None
        self._updates, self._sums, sums = 0, np.zeros(0), list[AnyArray]()
        if self._column is not None:
            skip = on_error == "skip"
            parts, skipped, common = rows_of_changes(files, self.common, names, spelling, self._column, skip=skip)
            self._known, counts["skipped"] = (common.classes, common.categories), skipped
        for key in parts if self._column is None else in_order(parts):
            saved, begins = opened(self._members, key)
            own = names if key is None else StateNames.of(saved, names.label, names.id)
            warmup = self._members.warmup if begins else None
            streams = ChangeStreams(saved, own, spelling, on_error, warmup, parts[key])
            applied = Applied(saved, saved.session(), streams, begins=begins)
            receipt = applied.run(files, copies)
            updates, of_key, scores = applied.told
            self._updates += updates
            counts.update(of_key)
            sums.append(applied.sums)
            if updates or key is None:
                receipt = receipt.answering(applied.whose(own), (), ())
                self._changed[key] = Changed(receipt, _held(saved, own, applied, narrowed=key is not None))
                self._weighed[key] = WeightSum.of_live(applied.session.coordinator.store)
        whole = self._together(copies)
        return whole, (self._updates, dict(counts), scores if self._column is None else self._scores(sums))

    def _scores(self, sums: Sequence[AnyArray]) -> dict[str, Any]:
        """Return scores over all keys: of these updates, and of all there have been."""
        numbers = bool(traits_of(self.common.options).reading.regression)
        here = np.sum(sums, axis=0) if sums else np.zeros(0)
        before = self._members.components.get("scores", {}).get("sums", np.zeros(0))
        self._sums = np.asarray(here + before if len(before) else here, dtype=np.float64)
        window = {f"window_{name}": score for name, score in pooled(here, numbers=numbers).items()}
        return known({**pooled(self._sums, numbers=numbers), **window})

    def contents(self, receipt: Receipt) -> tuple[dict[str, Any], Mapping[str, dict[str, Any]]]:
        """Return ``meta`` and components of the new state."""
        common, names, nothing = self.common, self._names, no_deletions()
        new = no_insertions(common, names, nothing)
        step = step_of(common, self._place.folder.location, names, nothing, new, receipt)
        meta, components = self._contents(names, step, self._known, {"sums": self._sums})
        offset = {} if self._column is None else {"offset": int(common.meta["offset"]) + self._updates}
        return meta | offset, components


def _held(saved: SavedModel, names: StateNames, applied: Applied, *, narrowed: bool) -> dict[str, Any]:
    """Return what a member holds after its changes, its scores ``narrowed`` as those of keys are."""
    new = applied.insertions
    components = components_after(saved, applied.session, names, applied.deletions, new)
    own = {"classes": new.classes, "categories": new.categories, "offset": applied.seq}
    own["next_id"] = max(names.next_id, int(new.ids.max(initial=-1)) + 1)
    counts = counts_after(saved, {name: applied.told[1][name] for name in KEPT})
    scores = narrow(applied.prequential) if narrowed else applied.prequential
    return {**components, "scores": scores, "meta": {**own, "counts": counts}}
