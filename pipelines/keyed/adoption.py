"""A state of models by key that ``raydt update`` wrote becomes the only checkpoint of its run.

Invariant: as of :mod:`pipelines.running.checkpoint`. A key that the updates have changed goes on from there as a run of
its rows alone does; the others go on as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pipelines.keyed.recorder import job_of
from pipelines.running.checkpoint import Adoption
from pipelines.updating.lineage import ids_between
from pipelines.updating.members import KEPT
from raydt.arrays.blocks import Lazy
from raydt.errors import InputError
from raydt.folders.checkpoint import Checkpoint
from raydt.keyed.groups import GROUPS, Key
from raydt.keyed.members import KeyedJob
from raydt.keyed.packing import SavedKeys, packed
from raydt.keyed.source import KeySource
from raydt.keyed.stream import KeyedStream
from raydt.messages import message
from raydt.streams.base import Tally

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
                changes[key] = self._followed(job, held.get(key), one)
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

    def _followed(self, job: KeyedJob, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Followed:
        """Return what has become of a key."""
        saved = self._saved.understood(after)
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
        counts = {name: own["counts"].get(name, 0) - told.get(name, 0) for name in KEPT}
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
