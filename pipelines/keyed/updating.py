"""An update of a state: what it is given is told apart by member, and each is updated as a model of its own.

Invariant: what a key holds afterwards is what the same update makes of a run over the rows of its key alone. All keys
are checked and applied in memory before anything is written; groups of keys without a change are copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from pipelines.keyed.recorder import job_of
from pipelines.receipts import origin_of
from pipelines.running.checkpoint import Adoption
from pipelines.saved_runs import StatePlace
from pipelines.updating.change_files import COUNTED, Applied, ChangeFile, ChangeStreams, Spelling, Told, log_little
from pipelines.updating.changes import (
    StateNames,
    deletions_given,
    grown_categories,
    no_deletions,
    no_insertions,
    open_deletions,
    open_insertions,
    rows_given,
)
from pipelines.updating.lineage import ids_between, step_of
from pipelines.updating.members import Lists, examples_of, rows_of_changes
from pipelines.updating.new_state import Asked, apply_lists, components_after, copies_of, meta_after
from raydt.arrays.blocks import Lazy
from raydt.arrays.elementary import AnyArray
from raydt.errors import InputError
from raydt.folders.checkpoint import Checkpoint
from raydt.keyed.groups import GROUPS, Key, group_of, in_order
from raydt.keyed.members import KeyedJob, narrow, pooled
from raydt.keyed.packing import Figures, Member, SavedKeys, packed
from raydt.keyed.source import KeySource
from raydt.keyed.stream import KeyedStream
from raydt.learners import traits_of
from raydt.learners.base import WeightSum, too_little_of_keys
from raydt.messages import message
from raydt.sessions.receipt import Receipt, receipt_of_keys
from raydt.sessions.receipt_chain import Origin
from raydt.sessions.saved_model import BY_KEY, SavedModel
from raydt.sources.files.datafile import DataFile
from raydt.streams.base import Tally, known


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


class _Update:
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


class UpdateOfLists(_Update):
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
                known = {"classes": classes, "categories": categories}
                self._new = replace(self._new, path=lists.path, source=source, **known)
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


# Change logs applied to models by key: the rows of each key are a change log of their own.
#
# Invariant: as of :mod:`pipelines.keyed.updating`. Every row names its key, that of a deletion, too.

#: What is counted of a key in its state, and told of by an adoption.
_KEPT = ("inserts", "deletes", "replaced", "queries")


class UpdateOfChanges(_Update):
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
    counts = counts_after(saved, {name: applied.told[1][name] for name in _KEPT})
    scores = narrow(applied.prequential) if narrowed else applied.prequential
    return {**components, "scores": scores, "meta": {**own, "counts": counts}}


# A state of models by key that ``raydt update`` wrote becomes the only checkpoint of its run.
#
# Invariant: as of :mod:`pipelines.running.checkpoint`. A key that the updates have changed goes on from there as a run
# of its rows alone does; the others go on as they were.

_NONE = {"id": np.empty(0, dtype=np.int64), "born": np.empty(0, dtype=np.int64)}


class KeyedAdoption(Adoption):
    """The adoption of a state of models by key."""

    _position = "row"

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
        counts = {name: own["counts"].get(name, 0) - told.get(name, 0) for name in _KEPT}
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
