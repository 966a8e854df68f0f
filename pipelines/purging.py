"""``purge``: a finished run is rewritten so that its folder holds live examples only.

Invariant: every step leaves a run that can be read, and can be done again: after a kill at any point, purge goes
through from the beginning and ends with the same files. The model and its digest stay as they are.

What is rewritten: the newest checkpoint with one segment of the live rows, dictionaries, predictions, model, summary,
report and log; the other checkpoints, the quarantine and temporary files are removed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.erasing import erased_classes, erased_stream, replaced
from pipelines.lock import LOCK, locked
from pipelines.reporting import report_of
from pipelines.run_folder import RunFolder
from pipelines.running.outcome.summary import read_summary
from pipelines.running.records.table_parts import Parts
from pipelines.saving import config_of, last_state, states_of
from raydt.errors import InputError
from raydt.folders.arrays import save_folder
from raydt.folders.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.learners.base import NOTHING_DIVIDED
from raydt.sessions.saved_model import SavedModel, understood
from raydt.sessions.session import InProcessSession

#: Tables that name examples; the others hold counts, and numbers of splits.
PREDICTIONS, QUARANTINE = "predictions", "quarantine"

#: What no example is in.
_UNTOUCHED = ("config.yaml", "metrics", "events")

#: Where copies remain that purge cannot reach.
OUT_OF_REACH = (
    "the source of the run, its deletion log, and files of ids given to update",
    "states, models, predictions and reports that were written elsewhere, and receipts that were printed",
    "thresholds of splits and bins of numbers in the model, which were chosen while the deleted examples were in",
    "backups, snapshots and object versions of the folder; disk blocks of files that were deleted or replaced",
    "memory of processes that are still running, swap space, core dumps, and logs of Ray",
)


def purge(run: str | Path, *, dry_run: bool = False) -> dict[str, Any]:
    """Rewrite or remove every file of a run that holds an example that is not live.

    Parameters
    ----------
    run : path or URI
        The folder of a completed run.
    dry_run : bool
        Find out what would be done, and change nothing.

    Returns
    -------
    dict
        ``digest`` of the model, the same before and after; ``active`` examples; ``rewritten`` and ``removed`` files;
        ``out_of_reach``.

    Raises
    ------
    InputError
        There is no completed run, its folder is damaged, or its state is not the one of its summary.
    """
    folder = RunFolder.existing(run)
    summary = read_summary(folder)
    if summary["status"] != "completed":
        raise InputError(
            f"the run is {summary['status']}, not completed",
            file=folder.location,
            remedy="Complete it with raydt resume, or remove the folder",
        )
    with locked(folder):
        return _Purge(folder, summary).run(dry_run)


class _Purge:
    def __init__(self, folder: RunFolder, summary: dict[str, Any]) -> None:
        self._folder, self._summary = folder, summary
        self._states = states_of(config_of(folder), folder)
        place = last_state(self._states)
        self._checkpoint: Checkpoint = read_checkpoint(place)
        meta = {**self._checkpoint.meta, "kind": "state"}
        self._saved: SavedModel = understood(meta, self._checkpoint.components, place.location)
        self._session = InProcessSession(
            self._saved.learner, self._saved.options, self._saved.features, 1, NOTHING_DIVIDED
        )
        self._session.restore(self._saved.arrays, self._saved.groups)
        # Read before anything is written: the files they are in will be replaced.
        self._components = {name: self._checkpoint.components[name] for name in ("stream", "recorder", "scores")}
        self._ids = self._saved.arrays["id"].tolist()
        self._stream, self._classes = (
            erased_stream(self._saved, self._components["stream"]),
            erased_classes(self._saved),
        )
        # After a purge that was killed the summary may have names that the state has no more.
        old = [*zip(self._saved.classes, self._classes, strict=True)]
        old += zip(self._summary.get("classes", []), self._classes, strict=False)
        self._changes = {name: new for name, new in old if name != new and isinstance(name, str)}
        self._before = self._contents()

    def run(self, dry_run: bool) -> dict[str, Any]:
        """Do all steps, or none."""
        digest = self._session.digest()
        if digest != self._summary["model_digest"]:
            raise InputError(
                "the digest of the last state is not the one of the summary",
                file=self._folder.location,
                remedy="Find out with raydt audit what was changed",
            )
        if not dry_run:
            tables = self._write_state()
            for table in tables:
                table.finish()
            self._folder.delete_folder(QUARANTINE)
            self._write_model()
            self._write_texts()
            self._sweep()
        after = self._contents()
        touched = [name for name in self._before if name not in _UNTOUCHED and name.split("/")[0] not in _UNTOUCHED]
        return {
            "run": self._folder.location,
            "dry_run": dry_run,
            "digest": digest,
            "active": self._session.coordinator.store.live,
            "replaced": sorted(touched if dry_run else (name for name in touched if name not in after)),
            "rewritten": sorted(name for name in touched if name in after) if not dry_run else [],
            "out_of_reach": list(OUT_OF_REACH),
        }

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
        for key in ("kind", "raydt_version", "segments"):
            meta.pop(key, None)
        rest = {"stream": self._stream, "recorder": {**recorder, "tables": listed}, "scores": components["scores"]}
        store = CheckpointStore(self._states, 1)
        store.write(self._checkpoint.number, meta, self._session.snapshot(), rest)
        return tables

    def _names(self) -> dict[str, Any]:
        """Classes and categories of the manifests of state and model."""
        categories = self._stream["source"]["categories"]
        given = {name: categories.get(name, values) for name, values in self._saved.categories.items()}
        return {"classes": self._classes, "categories": given}

    def _live_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Predictions of the examples that live; what was only asked, without an id, too.

        None where they are numbers: one may be the label of a single deleted example.
        """
        if pa.types.is_floating(batch.schema.field("prediction").type):
            return batch.slice(0, 0)
        ids: list[Any] = self._ids
        if pa.types.is_string(batch.schema.field("id").type):
            names = self._stream["source"]["ids"]
            ids = [names[code] for code in ids]
        live, column = pa.array(ids, batch.schema.field("id").type), batch.column("id")
        chosen = batch.filter(pc.or_(pc.is_in(column, live), pc.is_null(column)))
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
            last = name.rpartition("/")[2]
            if last.startswith(".") and last != LOCK:
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
        found.pop(LOCK, None)
        return found


def _says_nothing(line: str) -> bool:
    """Whether a record of the log can quote no value: one of an event, which is no warning."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and record.get("level") == "INFO" and record.get("event") is not None
