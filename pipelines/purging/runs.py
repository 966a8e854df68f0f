"""A finished run is rewritten so that its folder holds live examples only.

Invariant: every step leaves a run that can be read, and can be done again: after a kill at any point, purge goes
through from the beginning and ends with the same files. The model and its digest stay as they are.

What is rewritten: the newest checkpoint with one segment of the live rows, dictionaries, predictions, model, summary,
report and log; the other checkpoints, the quarantine and temporary files are removed.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lock import LOCK
from pipelines.purging.dictionaries import erased_categories, erased_classes, erased_stream, replaced
from pipelines.purging.receipt import OUT_OF_REACH, PURGES
from pipelines.purging.scope import Scope
from pipelines.reporting import report_of
from pipelines.run_folder import RunFolder
from pipelines.running.outcome.summary import read_summary
from pipelines.running.records.table_parts import Parts
from pipelines.saving import config_of, last_state, states_of
from raydt.errors import InputError
from raydt.folders.arrays import save_folder
from raydt.folders.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.sessions.saved_model import SavedModel, understood

#: Tables that name examples; the others hold counts, and numbers of splits.
PREDICTIONS, QUARANTINE = "predictions", "quarantine"

#: What no example is in.
_UNTOUCHED = {"config.yaml", "metrics", "events", "alarms"}


class RunPurge:
    """The purge of a run.

    Parameters
    ----------
    folder : RunFolder

    Attributes
    ----------
    saved : SavedModel
        The last state.
    since : datetime
        When the run ended.

    Raises
    ------
    InputError
        There is no completed run, or its folder is damaged.
    """

    out_of_reach: tuple[str, ...] = (
        "the source of the run, its deletion log, and files of ids given to update",
        "states, models, predictions and reports that were written elsewhere, and receipts that were printed",
        *OUT_OF_REACH,
    )

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._summary = folder, read_summary(folder)
        if self._summary["status"] != "completed":
            raise InputError(
                f"the run is {self._summary['status']}, not completed",
                file=folder.location,
                remedy="Complete it with raydt resume, or remove the folder",
            )
        self.since = datetime.fromisoformat(self._summary["ended"])
        self._states = states_of(config_of(folder), folder)
        place = last_state(self._states)
        self._checkpoint: Checkpoint = read_checkpoint(place)
        meta = {**self._checkpoint.meta, "kind": "state"}
        self.saved: SavedModel = understood(meta, self._checkpoint.components, place.location)
        self._session = self.saved.session()
        # Read before anything is written: the files they are in will be replaced.
        self._components = {name: self._checkpoint.components[name] for name in ("stream", "recorder", "scores")}
        self._before = self._contents()

    @property
    def active(self) -> int:
        """Live examples."""
        return int(self._session.coordinator.store.live)

    def digest(self) -> str:
        """Of the model.

        Raises
        ------
        InputError
            It is not the one of the summary.
        """
        digest = str(self._session.digest())
        if digest != self._summary["model_digest"]:
            raise InputError(
                "the digest of the last state differs from that in the summary",
                file=self._folder.location,
                remedy="Run raydt audit to find what was changed",
            )
        return digest

    def prepare(self, scope: Scope) -> None:
        """Find out what dictionaries and texts will be."""
        self._scope, saved = scope, self.saved
        self._stream = erased_stream(saved, self._components["stream"], scope)
        self._classes = erased_classes(saved)
        # Summary and predictions have labels as text. After a purge that was killed the summary may have names that the
        # state has no more.
        old = [*zip(saved.classes, self._classes, strict=True)]
        old += zip(self._summary.get("classes", []), self._classes, strict=False)
        self._changes = {str(name): str(new) for name, new in old if str(name) != str(new)}

    def touched(self) -> list[str]:
        """Files that may be replaced or removed."""
        return [name for name in self._before if not (_UNTOUCHED & {name, name.split("/")[0]}) or _is_temporary(name)]

    def rewrite(self) -> None:
        """Do all steps."""
        tables = self._write_state()
        for table in tables:
            table.finish()
        self._folder.delete_folder(QUARANTINE)
        self._write_model()
        self._write_texts()
        self._sweep()

    def contents(self) -> list[str]:
        """Files of the folder, but for lock and receipt."""
        return list(self._contents())

    # ---------------------------------------------------------------- steps

    def _write_state(self) -> list[Parts]:
        """Rewrite tables and the newest checkpoint, which lists them; the other checkpoints go with that."""
        components = self._components
        recorder = dict(components["recorder"])
        tables, listed = [], dict(recorder["tables"])
        for name in (PREDICTIONS, QUARANTINE):
            if name not in listed:
                continue
            parts = Parts(self._folder, name)
            parts.restore(listed[name])
            if parts.names:
                parts.rewrite(self._live_rows if name == PREDICTIONS else lambda batch: batch.slice(0, 0))
                listed[name] = {**listed[name], **parts.state()}
            tables.append(parts)
        meta = {**self._checkpoint.meta, **self._names()}
        for key in ("kind", "raydt_version", "segments", "copies_since"):
            meta.pop(key, None)
        rest = {"stream": self._stream, "recorder": {**recorder, "tables": listed}, "scores": components["scores"]}
        store = CheckpointStore(self._states, 1)
        store.write(self._checkpoint.number, meta, self._session.snapshot(), rest)
        return tables

    def _names(self) -> dict[str, Any]:
        """Classes and categories of the manifests of state and model."""
        return {"classes": self._classes, "categories": erased_categories(self.saved, self.saved.categories)}

    def _live_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Predictions of examples that live or are out of scope; what was only asked, without an id, too.

        None where they are numbers: one may be the label of a single deleted example.
        """
        if pa.types.is_floating(batch.schema.field("prediction").type):
            return batch.slice(0, 0)
        kind, column = batch.schema.field("id").type, batch.column("id")
        if self._scope.names is not None:
            erased = pc.is_in(column, pa.array(sorted(self._scope.names), kind))
            chosen = batch.filter(pc.or_(pc.invert(erased), pc.is_null(column)))
        else:
            ids: list[Any] = self.saved.arrays["id"].tolist()
            if pa.types.is_string(kind):
                names = self._stream["source"]["ids"]
                ids = [names[code] for code in ids]
            chosen = batch.filter(pc.or_(pc.is_in(column, pa.array(ids, kind)), pc.is_null(column)))
        if not self._changes:
            return chosen
        columns = [
            pa.array([self._changes.get(value, value) for value in one.to_pylist()], one.type)
            if name in ("prediction", "truth")
            else one
            for name, one in zip(chosen.schema.names, chosen.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=chosen.schema)

    def _write_model(self) -> None:
        place = self._folder.inside("model")
        kept = ("learner", "features", "classes", "categories", "config_hash", "source_fingerprint", "offset")
        meta = {key: self._checkpoint.meta[key] for key in kept} | self._names()
        save_folder(place.root, "model", meta, {"arrays": self._session.model()}, filesystem=place.filesystem)

    def _write_texts(self) -> None:
        """Rewrite summary, log and report: classes that are erased, and messages, may quote an example."""
        folder = self._folder
        summary = replaced(self._summary, self._changes)
        folder.write_text("summary.json", json.dumps(summary, indent=2) + "\n")
        if folder.has("log.jsonl"):
            lines = [line for line in folder.read_text("log.jsonl").splitlines() if _says_nothing(line)]
            folder.write_text("log.jsonl", "".join(f"{line}\n" for line in lines))
        if folder.has("report.html"):
            folder.delete("report.html")
            report_of([folder.location], None)

    def _sweep(self) -> None:
        """Remove what interrupted writes have left."""
        for name in self._contents():
            if _is_temporary(name):
                self._folder.delete(name)

    def _contents(self) -> dict[str, int]:
        """Files of the run folder, by their names in it."""
        found: dict[str, int] = {}

        def walk(folder: Folder, prefix: str) -> None:
            for name in folder.names():
                inner = folder.inside(name)
                if inner.filesystem.get_file_info(inner.root).type.name == "Directory":
                    walk(inner, f"{prefix}{name}/")
                else:
                    found[prefix + name] = 0

        walk(self._folder, "")
        for name in (LOCK, PURGES):
            found.pop(name, None)
        return found


def _is_temporary(name: str) -> bool:
    """Whether an interrupted write has left a file."""
    last = name.rpartition("/")[2]
    return last.startswith(".") and last != LOCK


def _says_nothing(line: str) -> bool:
    """Whether a record of the log can quote no value: one of an event, which is no warning."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and record.get("level") == "INFO" and record.get("event") is not None
