"""A state that ``raydt update`` wrote becomes the only checkpoint of its run, which then resumes from it.

Invariant: the log names the updates before the checkpoint is complete, and the checkpoints before it go after that.
So whatever is killed, the run resumes from the new checkpoint, or refuses to resume from an older one, in which
deleted examples live (:func:`pipelines.running.plans.require_updated`). A member that the updates have changed goes on
from there as a run of its rows alone does; the others go on as they were.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipelines.config import Config
from pipelines.run_folder import RunFolder, fitting
from pipelines.running.keyed import StreamsOfKeys, recorder_of, streams_of
from pipelines.running.plans import begins_with, require_same
from pipelines.saved_runs import find_state, members_of, open_members
from pipelines.updating.logs import KEPT
from raydt.errors import InputError
from raydt.folders.arrays import OF_THE_FOLDER, read_manifest
from raydt.folders.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from raydt.keyed.packing import Member, SavedKeys
from raydt.messages import message
from raydt.sources.base import SourceIdentity
from raydt.streams.base import Stream, Tally

log = logging.getLogger(__name__)

#: Event in the log that has the updates of a run, as in its lineage.
UPDATED = "run_updated"

_NONE = {"id": np.empty(0, dtype=np.int64), "born": np.empty(0, dtype=np.int64)}


class Followed(NamedTuple):
    """A member after updates from elsewhere: its state, and by how much its counts and ids have changed."""

    held: dict[str, Any]  #: What the member holds in the new checkpoint.
    counts: Counter[str]  #: By how much its counts have grown.
    gone: list[Any]  #: Ids that were deleted, as the source has them.
    new: list[Any]  #: Ids that were inserted.


class Adoption:
    """The adoption of a state by a run; InputError unless ``update`` made it from a checkpoint of the run."""

    def __init__(self, config: Config, folder: RunFolder, store: CheckpointStore, state: str | Path) -> None:
        self._config, self._folder, self._store = config, folder, store
        place = find_state(state).folder
        self._saved, self._place = open_members(place), place.location
        self._keyed = self._saved.unit == "row"
        self._steps: list[dict[str, Any]] = self._saved.meta.get("lineage", [])
        if not self._steps:
            raise InputError(message("runs.not_updated"), file=self._place)
        lineages = [(number, self._lineage(number)) for number in reversed(store.numbers())]
        #: Whether the run has these updates already.
        self.done = bool(lineages) and begins_with(lineages[0][1] or [], self._steps)
        made_from = [
            (number, known) for number, known in lineages if known is not None and self._follows(number, known)
        ]
        self._before = made_from[0][0] if made_from else None
        self._new = self._steps[len(made_from[0][1]) :] if made_from else []
        if self._before is None and not self.done:
            raise InputError(message("runs.unknown_state", run=folder.location), file=self._place)

    def _lineage(self, number: int) -> list[dict[str, Any]] | None:
        """Return the lineage of a checkpoint; None if its manifest is damaged."""
        try:
            meta = read_manifest(self._store.folder.inside(str(number))).meta
        except InputError:
            return None
        return list(meta.get("lineage", []))

    def _follows(self, number: int, known: list[dict[str, Any]]) -> bool:
        """Return True if the state was made from the checkpoint with this number and lineage."""
        steps, unit = self._steps, self._saved.unit
        return len(known) < len(steps) and begins_with(steps, known) and steps[len(known)][unit] == number

    def run(self, data: SourceIdentity, stream: Stream) -> None:
        """Make the state the only checkpoint of the run; ``stream``, of its config, is not to be used afterwards.

        ConfigError or InputError if the checkpoint does not lead to the state; NotWrittenError.
        """
        if self.done:
            return
        place = self._store.folder.inside(str(self._before))
        before = read_checkpoint(place)
        known = members_of(before.meta, before.components, place.location)
        with fitting(place.location):
            require_same(self._config, data, stream, before.meta, place.location)
            if not known.has_digest(self._new[0]["digest_before"]):
                raise InputError(message("runs.other_digest", checkpoint=place.location), file=self._place)
            meta, components = self._contents(before, known, stream)
        log.info("run updated", extra={"event": UPDATED, "lineage": self._steps})
        self._folder.delete("summary.json")
        self._store.continue_from(before)  # none of a later update stays
        self._store.write_alone(int(meta["offset"]), meta, components)

    def _contents(
        self, before: Checkpoint, known: SavedKeys, stream: Any
    ) -> tuple[dict[str, Any], Mapping[str, Mapping[str, Any]]]:
        """Return ``meta`` and components of the new checkpoint."""
        saved, parts = self._saved, before.components
        stream.restore(parts["stream"])
        self._require_tables(parts["recorder"], parts["scores"], stream)
        streams = streams_of(self._config, stream)
        changes = {
            key: self._followed(streams, known, key) for key in saved if not self._keyed or "meta" in saved.held(key)
        }
        held: dict[Any, dict[str, Any]] = {key: one.held for key, one in changes.items()}
        meta = self._meta(before)
        if not self._keyed:
            return meta, held[None]
        totals, groups = Counter(parts["recorder"]["totals"]), known.groups_with(held)
        there = np.array(parts["coordinator"]["keys"])
        for group, ones in groups.items():
            there[group] = len(ones)
        at = dict(parts["stream"])
        for key, one in changes.items():
            totals.update(one.counts)
            if stream.table is not None:
                stream.table.follow_update(key, one.gone, one.new)
        if stream.table is not None:  # it is followed, and knows the keys of its ids
            at |= {"source": {**at["source"], "keys": stream.source.keys}, **stream.table.state()}
        first = {"coordinator": {"keys": there}, "stream": at}
        first |= {"recorder": {**parts["recorder"], "totals": dict(totals)}, "scores": parts["scores"]}
        return {**meta, "offset": before.number}, known.regrouped(first, groups)

    def _followed(self, streams: StreamsOfKeys, known: SavedKeys, key: Member) -> Followed:
        """Return what has become of a member."""
        saved, after = self._saved.saved(key), self._saved.held(key)
        if key in known:
            held = known.held(key)
            recorder, scores, arrays = dict(held["recorder"]), held["scores"], held["coordinator"]
            stream: Any = streams.begin(key, held["stream"])
        else:
            stream, arrays = streams.of(key), _NONE
            recorder = Tally(stream, weighted=self._config.output.weighted_metrics).narrow_state()
            scores = recorder.pop("prequential")
            recorder["statistics"] = saved.session().statistics()
        start, offset = int(recorder["updates"]), int(saved.meta["offset"])
        if self._keyed:
            own, told = after["meta"]["counts"], recorder.get("followed", {})
            counts = {name: own.get(name, 0) - told.get(name, 0) for name in KEPT}
        else:
            counts = {name: sum(step.get(name, 0) for step in self._new) for name in KEPT}
        if counts["inserts"] and stream.source.id_kind == "row":
            raise InputError(message("runs.running_numbers"), file=self._place)
        new = saved.arrays["born"] >= start
        deleted, inserted = np.setdiff1d(arrays["id"], saved.arrays["id"][~new]), saved.arrays["id"][new]
        gone = stream.names_of(deleted)
        stream.follow_update(deleted, inserted, offset - start, after["stream"], len(saved.classes))
        recorder |= {
            "updates": offset,
            **{name: recorder[name] + count for name, count in counts.items()},
            "next_id": saved.next_id,
            "n_classes": max(recorder["n_classes"], len(saved.classes)),
            **({"followed": dict(own)} if self._keyed else {}),
        }
        model = {name: after[name] for name in after if name not in ("meta", "stream", "scores", "recorder")}
        rest = {"stream": stream.state(), "scores": scores, "recorder": recorder}
        return Followed(
            {**model, **rest}, Counter({**counts, "updates": offset - start}), gone, stream.names_of(inserted)
        )

    def _require_tables(self, recorder: Mapping[str, Any], scores: Mapping[str, Any], stream: Any) -> None:
        """Refuse (InputError) a checkpoint whose tables are not there in full."""
        tables = recorder_of(self._folder, self._config, stream)
        try:
            tables.require({**recorder, "prequential": scores})
        except InputError as error:
            raise InputError(message("runs.later_tables", run=self._folder.location), file=self._place) from error

    def _meta(self, before: Checkpoint) -> dict[str, Any]:
        """Return ``meta`` of the new checkpoint."""
        meta = {name: value for name, value in before.meta.items() if name not in OF_THE_FOLDER}
        meta["config"] = self._config.resolved()  # with the rules of reading, which may follow from the former format
        meta |= {name: self._saved.meta[name] for name in ("classes", "categories", "offset", "next_id", "lineage")}
        if self._config.checkpoint.max_age is not None:
            meta["copies_since"] = time.time()  # only live examples are in it
        return meta
