"""A finished run is rewritten so that its folder holds live examples only, and its newest checkpoint alone.

Invariant: every step leaves a run that can be read, and can be done again: after a kill at any point, purge goes
through from the beginning and ends with the same files. A purge that is repeated changes no byte. The model and its
digest stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config import as_written
from pipelines.purging.dictionaries import (
    Scope,
    erased_categories,
    erased_classes,
    erased_records,
    erased_stream,
    live_categories,
    next_running,
)
from pipelines.purging.rehearsal import Notes, Rehearsal
from pipelines.purging.work import Work, foreign_files
from pipelines.report.page import render
from pipelines.reporting import report_of
from pipelines.run_files import MODEL, STATES, is_named_by_run, is_of_run, is_unfinished
from pipelines.run_folder import RunFolder
from pipelines.running.ending import damaged_summary, read_summary, write_summary
from pipelines.running.records.table_parts import Parts
from pipelines.saved_runs import last_state, states_of_any_format
from raydt.errors import FormatVersionError, InputError
from raydt.folders.arrays import load_folder, save_folder
from raydt.folders.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from raydt.folders.manifest import FORMAT_VERSION, OF_THE_FOLDER, read_manifest
from raydt.folders.text_ids import in_format_1
from raydt.learners import description_of
from raydt.messages import Message, message
from raydt.sessions.copies import OF_A_PURGED_RUN
from raydt.sessions.saved_model import understood
from raydt.sources.files.formats import DIALECT

Components = Mapping[str, Mapping[str, Any]]
#: What becomes of a batch of rows, by table.
Choices = dict[str, Callable[[pa.RecordBatch], pa.RecordBatch]]

#: Tables that name examples or sparse features; the others hold counts, and numbers of splits.
PREDICTIONS, QUARANTINE, EVENTS, REPORT = "predictions", "quarantine", "events", "report.html"


class RunPurge(Work):
    """The purge of a run; InputError if it is not completed, is damaged, or a link has a name of ours."""

    clock = "ended in summary.json"

    out_of_reach: tuple[str, ...] = OF_A_PURGED_RUN

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        self._summary = read_summary(folder)
        if self._summary["status"] != "completed":
            raise InputError(message("purges.not_completed", status=self._summary["status"]), file=folder.location)
        try:
            self.since = datetime.fromisoformat(self._summary["ended"]).astimezone(timezone.utc)
        except (LookupError, TypeError, ValueError) as error:
            raise damaged_summary(folder, message("purges.end_time", reason=str(error))) from error
        self._states = states_of_any_format(folder)
        self.foreign = foreign_files(folder, self._is_ours)
        if not self._states.root.startswith(f"{folder.root}/"):
            self.foreign += foreign_files(self._states, self._is_ours)
        place = last_state(self._states)
        self._checkpoint: Checkpoint = read_checkpoint(place)
        self._origin: dict[str, Any] = {}
        self._open(place)
        self.out_of_reach = (*self._deleted_elsewhere(), *self.out_of_reach)
        # Read before anything is written: the files they are in will be replaced.
        self._components = {name: self._checkpoint.components[name] for name in ("stream", "recorder", "scores")}

    def _open(self, place: RunFolder) -> None:
        """Understand the last state."""
        folder, meta, components = self.folder, self._checkpoint.meta, self._checkpoint.components
        try:
            self.saved = understood(meta, components, place.location)
            session = self.saved.session()
            self._model, self._digest = session.model(), str(session.digest())
        except FormatVersionError:
            self.saved = understood(meta, components, place.location, any_format=True)
            model = load_folder(folder.path("model"), "model", filesystem=folder.filesystem)[1]
            self._model, self._digest = model["arrays"], str(self._summary["model_digest"])
            self._origin = {key: meta[key] for key in ("format_version", "raydt_version")}
            self.out_of_reach = (*self.out_of_reach, message("purges.arrays"))

    def _deleted_elsewhere(self) -> Iterator[Message]:
        """Yield where examples that live here are deleted: states beside the run that updates have made from it."""
        beside = self.folder.inside("..")
        for state in map(beside.inside, sorted(beside.names())):
            with suppress(InputError, OSError):  # no state, or one that is damaged: nothing is known of it
                lineage = read_manifest(state).meta.get("lineage", [])
                deleted = sum(step["deletes"] for step in lineage)
                if deleted and self._digest in (step["digest_before"] for step in lineage):
                    places = {"state": state.location, "run": self.folder.location}
                    yield message("purges.deleted_in_state", deletes=deleted, **places)

    def digest(self) -> str:
        """Return the digest of the model; InputError if it is not the one of the summary."""
        if self._checkpoint.meta["format_version"] == FORMAT_VERSION and self._digest != self._summary["model_digest"]:
            raise InputError(message("purges.other_digest"), file=self.folder.location)
        return self._digest

    def prepare(self, scope: Scope) -> None:
        """Find out what dictionaries and texts will be, and which tables change."""
        self._scope, saved = scope, self.saved
        self._stream = erased_stream(saved, self._components["stream"], scope)
        self._classes = erased_classes(saved)
        #: Of the manifests of state and model.
        self._names = {"classes": self._classes, "categories": erased_categories(saved, saved.categories)}
        # Summary and predictions have labels as text. After a purge that was killed the summary may have names that the
        # state has no more.
        old = [*zip(saved.classes, self._classes, strict=True)]
        old += zip(self._summary.get("classes", []), self._classes, strict=False)
        self._changes = {str(name): str(new) for name, new in old if str(name) != str(new)}
        self._listed: dict[str, Any] = self._components["recorder"]["tables"]
        self._chosen: Choices = {PREDICTIONS: self._live_rows, QUARANTINE: lambda batch: batch.slice(0, 0)}
        features = saved.features
        if features.sparse and features.sparse_column not in self._stream["source"].get("categories", {}):
            indices = live_categories(saved).get(str(features.sparse_column), set())
            self._known = pa.array([-1, *range(len(features.names)), *(len(features.names) + i for i in indices)])
            self._chosen[EVENTS] = self._live_features
        self._find_changes()

    def _find_changes(self) -> None:
        """Find out which tables change."""
        self._changed = {
            name: Parts(self.folder, name).changed_by(self._listed[name], choose)
            for name, choose in self._chosen.items()
            if name in self._listed
        }

    def plan(self) -> Notes:
        """Find out what :meth:`rewrite` would do, by doing it on folders that change nothing."""
        folder = Rehearsal(self.folder)
        listed: dict[str, Any] = {}
        for name, changed in self._changed.items():
            kept = [] if changed else self._listed[name]["parts"]
            for part in filter(is_of_run, set(folder.files(name)) - {f"{name}/{part}" for part in kept}):
                folder.delete(part)
            if changed:  # the real list differs from the one before, too
                listed[name] = {"parts": [], "bytes": []}
        self._write_state(Rehearsal(self._states, folder.notes), listed)
        self._write_rest(folder)
        if folder.has(REPORT):
            stale, page = bool(folder.notes.gone or folder.notes.rewritten), ""
            if not stale:
                with self.folder.local() as run:
                    page = render([run], [self.folder.location])
            folder.write_text(REPORT, page)
        return folder.notes

    def rewrite(self) -> None:
        """Do all steps."""
        if self._digest != self._summary["model_digest"]:  # of an earlier format, which may compute it in another way
            self._summary = {**self._summary, "model_digest": self._digest}
            write_summary(self.folder, self._summary)
        tables, listed = {}, {}
        for name, changed in self._changed.items():
            tables[name] = parts = Parts(self.folder, name)
            parts.restore(self._listed[name])
            if changed:
                parts.rewrite(self._chosen[name])
                listed[name] = parts.state()
        self._write_state(self._states, listed)
        for parts in tables.values():
            parts.finish()
        self._write_rest(self.folder)
        if self.folder.has(REPORT):
            self.folder.delete(REPORT)
            report_of([self.folder.location], None)

    def name_of(self, path: str) -> str:
        """Return what the receipt calls a file: its name in the run's folder, or all of its place."""
        if path.startswith(f"{self.folder.root}/"):
            return super().name_of(path)
        return self._states.location + path.removeprefix(self._states.root)

    def has(self, name: str) -> bool:
        """Return True if a file that :meth:`name_of` has named is there."""
        states = f"{self._states.location}/"
        return self._states.has(name[len(states) :]) if name.startswith(states) else super().has(name)

    # ---------------------------------------------------------------- steps

    def _write_state(self, states: RunFolder, listed: dict[str, Any]) -> None:
        """Rewrite the newest checkpoint, which lists the parts of tables; the other checkpoints go with that."""
        tables = {name: {**state, **listed.get(name, {})} for name, state in self._listed.items()}
        before = self._checkpoint.meta
        meta = {key: value for key, value in before.items() if key not in OF_THE_FOLDER}
        if "config" in meta and not self._origin:  # the rules by which rows were read follow from the former format
            meta["config"] = as_written(meta["config"], before["format_version"])
        self._write_alone(states, *self._state(meta, tables))

    def _write_alone(self, states: RunFolder, meta: dict[str, Any], components: Components) -> None:
        CheckpointStore(states, 1).write_alone(self._checkpoint.number, meta, components)

    def _state(self, meta: dict[str, Any], tables: dict[str, Any]) -> tuple[dict[str, Any], Components]:
        """Return ``meta``, given as it was, and the components of the state, which lists these tables."""
        components = self._components
        meta |= {**self._names, "next_id": next_running(self.saved), **self._origin}
        recorder, scores = erased_records(self.saved, components["recorder"], components["scores"])
        stream = self._stream
        if self._origin and "id_remembered" in stream:
            stream = in_format_1(stream)
        rest = {"stream": stream, "recorder": {**recorder, "tables": tables}, "scores": scores}
        if not self._origin:  # it is written in the present format
            rest["coordinator"] = self.saved.completed()
        return meta, {name: rest.get(name) or part for name, part in self._checkpoint.components.items()}

    def _write_rest(self, folder: RunFolder) -> None:
        """Rewrite all but state, tables and report; remove the quarantine and what interrupted writes have left."""
        folder.discard_table(QUARANTINE)
        self._write_model(folder)
        self._write_texts(folder)
        self._sweep(folder)

    def _live_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Predictions of examples that live or are out of scope; what was only asked, without an id, too.

        None where they are numbers: one may be the label of a single deleted example. The batch itself, if all stays.
        """
        if pa.types.is_floating(batch.schema.field("prediction").type):
            return batch.slice(0, 0)
        kind, column = batch.schema.field("id").type, batch.column("id")
        if self._scope.names is not None:
            live = pc.invert(pc.is_in(column, pa.array(sorted(self._scope.names), kind)))
        else:
            ids: list[Any] = self.saved.arrays["id"].tolist()
            if pa.types.is_string(kind):
                names = dict(zip(self._stream["id_codes"].tolist(), self._stream["ids"], strict=True))
                ids = [names[code] for code in ids]
            live = pc.is_in(column, pa.array(ids, kind))
        kept = pc.or_(live, pc.is_null(column))
        chosen = batch if pc.all(kept).as_py() else batch.filter(kept)
        for name in ("prediction", "truth"):
            values = chosen.column(name).to_pylist()
            if any(value in self._changes for value in values):
                new = pa.array([self._changes.get(value, value) for value in values], chosen.schema.field(name).type)
                chosen = chosen.set_column(chosen.schema.get_field_index(name), chosen.schema.field(name), new)
        return chosen

    def _live_features(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Events with -1 in the place of sparse features that no live example has, as their numbers are values."""
        chosen = batch
        for place, field in enumerate(batch.schema):
            if field.name.endswith("feature"):
                numbers = batch.column(place)
                known = pc.is_in(numbers, self._known.cast(field.type))
                if not pc.all(known).as_py():
                    numbers = pc.if_else(known, numbers, pa.scalar(-1, field.type))
                    chosen = chosen.set_column(place, field, numbers)
        return chosen

    def _write_model(self, folder: RunFolder) -> None:
        kept = ("learner", "features", "classes", "categories", "config_hash", "source_fingerprint", "offset")
        meta = {key: self._checkpoint.meta[key] for key in (*kept, DIALECT) if key in self._checkpoint.meta}
        meta |= self._names | self._origin
        save_folder(folder.inside(MODEL), "model", *self._model_of(meta))

    def _model_of(self, meta: dict[str, Any]) -> tuple[dict[str, Any], Components]:
        """Return ``meta``, given as of one model, and components of the model."""
        return meta, {"arrays": self._model}

    def _write_texts(self, folder: RunFolder) -> None:
        """Rewrite summary and log: names of classes and tokens that are erased, and messages, may quote an example."""
        write_summary(folder, self._told(self._summary))
        if folder.has("log.jsonl"):
            lines = [line for line in folder.read_text("log.jsonl").splitlines() if _says_nothing(line)]
            folder.write_text("log.jsonl", "".join(f"{line}\n" for line in lines))

    def _told(self, summary: dict[str, Any]) -> dict[str, Any]:
        """Return the summary as it will be."""
        features = self.saved.features
        tokens = self._stream["source"].get("categories", {}).get(features.sparse_column, [])
        statistics = {} if self._origin else self._components["recorder"]["statistics"]
        own = description_of(self.saved.options).outcome(statistics, lambda feature: features.name(feature, tokens))
        classes = [self._changes.get(name, name) for name in summary.get("classes", [])]
        return {**summary, **own, **({"classes": classes} if "classes" in summary else {})}

    def _sweep(self, folder: RunFolder) -> None:
        """Remove what interrupted writes have left; of checkpoints it is gone by now."""
        for path in list(folder.files()):
            if is_unfinished(path) and is_of_run(path):
                folder.delete(path)

    def _is_ours(self, path: str) -> bool:
        """Return True if the run names a file or folder so; the filesystem has it whole."""
        states = f"{self._states.root}/"
        if path.startswith(states):
            return is_named_by_run(f"{STATES}/{path.removeprefix(states)}")
        return is_named_by_run(path.removeprefix(f"{self.folder.root}/"))


def _says_nothing(line: str) -> bool:
    """Whether a record of the log can quote no value: one of an event, which is no warning."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and record.get("level") == "INFO" and record.get("event") is not None
