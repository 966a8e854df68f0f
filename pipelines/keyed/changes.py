"""Change logs applied to models by key: the rows of each key are a change log of their own.

Invariant: as of :mod:`pipelines.keyed.updating`. Every row names its key, that of a deletion, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from pipelines.keyed.updating import (
    Changed,
    KeysAfter,
    counts_after,
    meta_of_keys,
    opened,
    require_state,
    rows_by_key,
    source_of_key,
    stream_of_keys,
)
from pipelines.receipts import origin_of
from pipelines.saved_runs import StatePlace
from pipelines.updating.applying import COUNTED, Applied, Told
from pipelines.updating.change_files import ChangeFile, ChangeStreams, Spelling, grown, source_of
from pipelines.updating.changes import StateNames, no_deletions, no_insertions, sound_rows
from pipelines.updating.contents import components_after
from pipelines.updating.lineage import step_of
from raydt.arrays.types import AnyArray
from raydt.keyed.groups import Key, in_order
from raydt.keyed.saved import SavedKeys
from raydt.keyed.scores import narrow, pooled
from raydt.keyed.source import KeySource, SharedSource
from raydt.learners import traits_of
from raydt.sessions.receipt import Receipt
from raydt.sessions.receipt_chain import Origin
from raydt.sessions.saved_model import BY_KEY, SavedModel
from raydt.sources.base import Rows
from raydt.streams.changelog import ChangelogStream
from raydt.streams.tally import known

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
    """Change logs applied to models by key, in memory; as :class:`pipelines.updating.change_job.ChangesOfOne`."""

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
        self._updates, sums = 0, list[AnyArray]()
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
