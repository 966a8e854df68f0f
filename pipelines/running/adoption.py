"""A state that ``raydt update`` wrote becomes the only checkpoint of its run, which then resumes from it.

Invariant: the log names the updates before the checkpoint is complete, and the checkpoints before it go after that. So
whatever is killed, the run resumes from the new checkpoint, or refuses to resume from an older one, in which deleted
examples live (:func:`pipelines.running.differences.require_updated`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.config import Config
from pipelines.run_folder import RunFolder, fitting
from pipelines.running.differences import require_same
from pipelines.running.parts import parts_of
from pipelines.saved_runs import open_state
from pipelines.updating.lineage import begins_with, ids_between
from raydt.errors import InputError
from raydt.folders.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from raydt.folders.manifest import OF_THE_FOLDER, read_manifest
from raydt.messages import message
from raydt.sessions.saved_model import understood
from raydt.sources.identity import Identity
from raydt.streams.base import Stream

log = logging.getLogger(__name__)

#: Event in the log that has the updates of a run, as in its lineage.
UPDATED = "run_updated"


class Adoption:
    """The adoption of a state by a run; InputError unless ``update`` made it from a checkpoint of the run."""

    _position = "offset"  #: Entry of a step that has the number of the checkpoint that it follows.

    def __init__(self, config: Config, folder: RunFolder, store: CheckpointStore, state: str | Path) -> None:
        self._config, self._folder, self._store = config, folder, store
        self._saved, self._place = self._open(state)
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

    def _open(self, state: str | Path) -> tuple[Any, str]:
        """Return the state, and its place."""
        saved, place = open_state(state)
        return saved, place.location

    def _lineage(self, number: int) -> list[dict[str, Any]] | None:
        """Return the lineage of a checkpoint; None if its manifest is damaged."""
        try:
            meta = read_manifest(self._store.folder.inside(str(number))).meta
        except InputError:
            return None
        return list(meta.get("lineage", []))

    def _follows(self, number: int, known: list[dict[str, Any]]) -> bool:
        """Return True if the state was made from the checkpoint with this number and lineage."""
        steps = self._steps
        return len(known) < len(steps) and begins_with(steps, known) and steps[len(known)][self._position] == number

    def run(self, data: Identity, stream: Stream) -> None:
        """Make the state the only checkpoint of the run; ``stream``, of its config, is not to be used afterwards.

        ConfigError or InputError if the checkpoint does not lead to the state; NotWrittenError.
        """
        if self.done:
            return
        place = self._store.folder.inside(str(self._before))
        before = read_checkpoint(place)
        digest = self._digest(before, place.location)
        with fitting(place.location):
            require_same(self._config, data, stream, before.meta, place.location)
            if digest != self._new[0]["digest_before"]:
                raise InputError(message("runs.other_digest", checkpoint=place.location), file=self._place)
            meta, components = self._contents(before, stream)
        log.info("run updated", extra={"event": UPDATED, "lineage": self._steps})
        self._folder.delete("summary.json")
        self._store.continue_from(before)  # none of a later update stays
        self._store.write_alone(int(meta["offset"]), meta, components)

    def _digest(self, before: Checkpoint, place: str) -> str:
        """Return the digest of the model of a checkpoint."""
        return str(understood(before.meta, before.components, place).session().digest())

    def _contents(self, before: Checkpoint, stream: Any) -> tuple[dict[str, Any], Mapping[str, dict[str, Any]]]:
        saved, new, start = self._saved, self._new, before.number
        deletes, inserts = (sum(step[name] for step in new) for name in ("deletes", "inserts"))
        stream.restore(before.components["stream"])
        if inserts and stream.source.id_kind == "row":
            raise InputError(message("runs.running_numbers"), file=self._place)
        arrays = before.components["coordinator"]
        deleted, inserted = ids_between(arrays, saved.arrays, start)
        offset = int(saved.meta["offset"])
        names: Mapping[str, Any] = saved.components["stream"]
        stream.follow_update(deleted, inserted, offset - start, names, len(saved.classes))
        recorder, scores = dict(before.components["recorder"]), before.components["scores"]
        self._require_tables(recorder, scores, stream)
        recorder |= {
            "updates": offset,
            "inserts": recorder["inserts"] + inserts,
            "deletes": recorder["deletes"] + deletes,
            **{name: recorder[name] + sum(step.get(name, 0) for step in new) for name in ("replaced", "queries")},
            "next_id": saved.next_id,
            "n_classes": max(recorder["n_classes"], len(saved.classes)),
        }
        meta = self._meta(before)
        own = {name: saved.components[name] for name in saved.components if name != "stream"}
        return meta, {**own, "stream": stream.state(), "recorder": recorder, "scores": scores}

    def _require_tables(self, recorder: Mapping[str, Any], scores: Mapping[str, Any], stream: Any) -> None:
        """Refuse (InputError) a checkpoint whose tables are not there in full."""
        tables = parts_of(self._config).recorder(self._folder, self._config, stream)
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
