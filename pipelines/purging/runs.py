"""A finished run is rewritten so that its folder holds live examples only, and its newest checkpoint alone.

Invariant: every step leaves a run that can be read, and can be done again: after a kill at any point, purge goes
through from the beginning and ends with the same files. A purge that is repeated changes no byte. The model and its
digest stay as they are.
"""

from __future__ import annotations

import json
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from itertools import dropwhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from pipelines.config import as_written
from pipelines.purging.erasure import Erasure, Scope, live_categories, read_ids
from pipelines.report.page import render
from pipelines.reporting import report_of
from pipelines.run_folder import MODEL, STATES, RunFolder, is_named_by_run, is_of_run, is_of_state, is_unfinished
from pipelines.running.ending import damaged_summary, read_summary, write_summary
from pipelines.running.records import Parts
from pipelines.saved_runs import last_state, members_of, open_members, require_erasable, states_of_any_format
from pipelines.whereabouts import SavedPlace, places_in
from raydt.arrays.elementary import Arrays
from raydt.errors import FormatVersionError, InputError
from raydt.folders.arrays import (
    FORMAT_VERSION,
    MANIFEST,
    OF_THE_FOLDER,
    in_format_1,
    load_folder,
    read_manifest,
    save_folder,
)
from raydt.folders.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from raydt.keyed.packing import KeyedStore, SavedKeys, SavedOne, live
from raydt.learners import description_of
from raydt.messages import Message, message
from raydt.presentation.charts import counted
from raydt.sessions.saved_model import BY_KEY, SavedModel, understood
from raydt.sessions.session import OF_A_PURGED_RUN, OF_A_PURGED_STATE
from raydt.sources.files.jsonl import DIALECT

# A folder that notes what would be written and removed, and changes nothing.
#
# Invariant: whoever reads it finds what would be there by then, as far as names, manifests and other JSON files go. So
# the code that writes a checkpoint or a model can be run on it, and its notes say what the same code will do to the
# files of the real folder.


@dataclass
class Notes:
    """Paths of files, as their filesystem has them."""

    gone: set[str] = field(default_factory=set)  #: Files that would be removed.
    rewritten: set[str] = field(default_factory=set)  #: Files that would have other contents.
    #: All files that would be written; the contents of JSON files, else None.
    written: dict[str, bytes | None] = field(default_factory=dict)


class Rehearsal(RunFolder):
    """A folder that changes nothing, and adds to ``notes`` what would change of the real one."""

    def __init__(self, folder: RunFolder, notes: Notes | None = None) -> None:
        self.__dict__.update(folder.__dict__)
        self.notes = Notes() if notes is None else notes

    def publish(self, name: str, data: bytes | memoryview) -> None:
        """Note a file that would be written."""
        path, notes = self.path(name), self.notes
        notes.gone.discard(path)
        notes.rewritten.discard(path)
        notes.written[path] = bytes(data) if name.endswith(".json") else None
        size = super().size(name)
        if size is not None and (size != len(data) or super().read(name) != data):
            notes.rewritten.add(path)

    def delete(self, name: str, *, lasting: bool = False) -> None:
        """Note a file that would be removed."""
        self._remove(self.path(name))

    def discard(self, name: str = "") -> None:
        """Folders stay."""

    def files(self, name: str = "") -> Iterator[str]:
        """Files that would be there."""
        within = f"{self.root}/"
        new = {path.removeprefix(within) for path in self.notes.written if path.startswith(f"{self.path(name)}/")}
        yield from {path for path in super().files(name) if self.path(path) not in self.notes.gone} | new

    def has(self, name: str) -> bool:
        """Return True if an entry would exist."""
        path = self.path(name)
        return path in self.notes.written or (path not in self.notes.gone and super().has(name))

    def names(self, name: str = "") -> list[str]:
        """Entries that would be there; folders stay."""
        within = self.path(name).rstrip("/")
        kept = {one for one in super().names(name) if posixpath.join(within, one) not in self.notes.gone}
        new = {path[len(within) + 1 :].split("/")[0] for path in self.notes.written if path.startswith(f"{within}/")}
        return sorted(kept | new)

    def size(self, name: str) -> int | None:
        """Bytes that a JSON file would have."""
        data = self.notes.written.get(self.path(name))
        return super().size(name) if data is None else len(data)

    def read(self, name: str) -> bytes:
        """Contents that a JSON file would have."""
        data = self.notes.written.get(self.path(name))
        return super().read(name) if data is None else data

    def _remove(self, path: str) -> None:
        notes = self.notes
        notes.written.pop(path, None)
        notes.rewritten.discard(path)
        if self._look(path).type == fs.FileType.File:
            notes.gone.add(path)


# The contract of a purge, of a run and of a state.
#
# Invariant: nothing that a symbolic link leads to is read or changed. A link under a name of ours is an error, since
# what it leads to would keep the deleted examples.


class Work(ABC):
    """The purge of a run or of a state, found out by doing it on a folder that changes nothing, and then done."""

    members: SavedKeys  #: Of the last state.
    saved: SavedModel  #: What they have in common.
    since: datetime  #: When the run ended, or the state was written.
    clock: str  #: What says so.
    foreign: list[str]  #: Files in the folder that raydt did not write.
    out_of_reach: tuple[str, ...]  #: Where copies may remain.

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @property
    def active(self) -> int:
        """Live examples."""
        return sum(live(self.members.held(key)) for key in self.members)

    def read_ids(self, path: str) -> Scope:
        """Read a list of ids, none of which may be live; see :func:`pipelines.purging.erasure.read_ids`."""
        states = (self.members.saved(key) for key in self.members)
        return read_ids(path, states if any(True for _ in self.members) else [self.members.beginning()])

    @abstractmethod
    def digest(self) -> str:
        """Return the digest of the model."""

    def former(self) -> str | None:
        """Return the digest in the format before the present one; None if the learner has had no other."""
        return self.members.former()

    @abstractmethod
    def prepare(self, scope: Scope) -> None:
        """Find out what dictionaries and texts will be, and which tables change."""

    @abstractmethod
    def plan(self) -> Notes:
        """Find out which files :meth:`rewrite` would remove or give other contents."""

    @abstractmethod
    def rewrite(self) -> None:
        """Do all steps."""

    def name_of(self, path: str) -> str:
        """Return what the receipt calls a file: its name in the folder."""
        return path.removeprefix(f"{self.folder.root}/")

    def has(self, name: str) -> bool:
        """Return True if a file that :meth:`name_of` has named is there."""
        return self.folder.has(name)


def foreign_files(folder: RunFolder, is_ours: Callable[[str], bool]) -> list[str]:
    """Return files that are not ours, links among them, sorted; InputError if a link has a name of ours."""
    found = []
    for name in folder.files():
        path = folder.path(name)
        if not is_ours(path):
            found.append(path)
        elif folder.is_link(name):
            raise InputError(message("purges.link"), file=path)
    return sorted(found)


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
        self._model: Arrays | None = None
        self._origin: dict[str, Any] = {}
        meta, components = self._checkpoint.meta, self._checkpoint.components
        try:
            self.members = require_erasable(members_of(meta, components, place.location))
            self.saved, self._digest = self.members.outline(), self.members.digest()
        except FormatVersionError:
            if BY_KEY in meta:
                raise
            self.saved = understood(meta, components, place.location, any_format=True)
            self.members = SavedOne(self.saved, place.location)
            model = load_folder(folder.path("model"), "model", filesystem=folder.filesystem)[1]
            self._model, self._digest = model["arrays"], str(self._summary["model_digest"])
            self._origin = {key: meta[key] for key in ("format_version", "raydt_version")}
            self.out_of_reach = (*self.out_of_reach, message("purges.arrays"))
        self.out_of_reach = (*self._deleted_elsewhere(), *self.out_of_reach)

    def _deleted_elsewhere(self) -> Iterator[Message]:
        """Yield where examples that live here are deleted: states beside the run that updates have made from it."""
        beside, run = self.folder.inside(".."), self.folder.location
        ours = self._digest, self._summary["model_digest"]
        for name in sorted(beside.names()):
            with suppress(InputError, OSError):  # no state, or one that is damaged: nothing is known of it
                lineage = read_manifest(beside.inside(name)).meta.get("lineage", [])
                since = dropwhile(lambda step: step["digest_before"] not in ours, lineage)
                if deleted := sum(step["deletes"] for step in since):
                    state = f"{run.rpartition('/')[0]}/{name}"
                    deletions = counted(deleted, "deletion")
                    yield message("purges.deleted_in_state", deletions=deletions, state=state, run=run)

    def digest(self) -> str:
        """Return the digest of the model; InputError if it is not the one of the summary."""
        is_read, stated = self._checkpoint.meta["format_version"] == FORMAT_VERSION, self._summary["model_digest"]
        if is_read and stated not in (self._digest, self._written):
            raise InputError(message("purges.other_digest"), file=self.folder.location)
        return self._digest

    def former(self) -> str | None:
        """Return the digest of the model as its run has written it, if that is the one of the former format."""
        return self._written

    @cached_property
    def _written(self) -> str | None:
        return None if self._digest == self._summary["model_digest"] else self.members.former()

    def prepare(self, scope: Scope) -> None:
        """Find out what dictionaries and texts will be, and which tables change."""
        # Made before anything is written: the files that it is read from will be replaced.
        erasure, features = Erasure(self.members, scope, self._model), self.saved.features
        self._left = len(erasure.members)
        self._meta = erasure.meta(self._checkpoint.meta)
        self._components, self._models = erasure.components(), erasure.models()
        self._components["stream"] |= self._purges(erasure)
        if self._origin and "id_remembered" in self._components["stream"]:
            self._components["stream"] = in_format_1(self._components["stream"])
        self._listed: dict[str, Any] = self._components["recorder"]["tables"]
        self._chosen: Choices = {PREDICTIONS: erasure.predictions, QUARANTINE: lambda batch: batch.slice(0, 0)}
        if BY_KEY in self._meta:
            self._chosen |= dict.fromkeys(("metrics", "alarms", "keys"), erasure.of_keys)
        stream = self._components["stream"]
        if (
            EVENTS in self._listed
            and features.sparse
            and features.sparse_column not in stream["source"].get("categories", {})
        ):
            indices = live_categories(self.saved).get(str(features.sparse_column), set())
            self._known = pa.array([-1, *range(len(features.names)), *(len(features.names) + i for i in indices)])
            self._chosen[EVENTS] = self._live_features
        self._changed = {
            name: Parts(self.folder, name).changed_by(self._listed[name], choose)
            for name, choose in self._chosen.items()
            if name in self._listed
        }

    def _purges(self, erasure: Erasure) -> dict[str, Any]:
        """Return where keys have been removed, this purge included: an audit knows there that they begin anew."""
        stream = self.members.components["stream"]
        before = list(stream.get("purges", ()))
        if len(erasure.members) == sum(1 for _ in self.members):
            return {"purges": before} if before else {}
        here = [int(stream["row"]), int(stream.get("deletions", 0)), len(self.members.meta.get("lineage", []))]
        return {"purges": [*before, here]}

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
        before, recorder = self._checkpoint.meta, self._components["recorder"]
        meta = {key: value for key, value in self._meta.items() if key not in OF_THE_FOLDER}
        if "config" in meta and not self._origin:  # the rules by which rows were read follow from the former format
            meta["config"] = as_written(meta["config"], before["format_version"])
        tables = {name: {**state, **listed.get(name, {})} for name, state in self._listed.items()}
        components = {**self._components, "recorder": {**recorder, "tables": tables}}
        store = (KeyedStore if BY_KEY in meta else CheckpointStore)(states, 1)
        store.write_alone(self._checkpoint.number, meta | self._origin, components)

    def _write_rest(self, folder: RunFolder) -> None:
        """Rewrite all but state, tables and report; remove the quarantine and what interrupted writes have left."""
        folder.discard_table(QUARANTINE)
        self._write_model(folder)
        self._write_texts(folder)
        self._sweep(folder)

    def _live_features(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Events with -1 in the place of sparse features that no live example has, as their numbers are values."""
        chosen = batch
        for place, described in enumerate(batch.schema):
            if described.name.endswith("feature"):
                numbers = batch.column(place)
                known = pc.is_in(numbers, self._known.cast(described.type))
                if not pc.all(known).as_py():
                    numbers = pc.if_else(known, numbers, pa.scalar(-1, described.type))
                    chosen = chosen.set_column(place, described, numbers)
        return chosen

    def _write_model(self, folder: RunFolder) -> None:
        kept = ("learner", "features", "classes", "categories", "config_hash", "source_fingerprint", "offset")
        meta = {key: self._meta[key] for key in (*kept, DIALECT, BY_KEY) if key in self._meta}
        save_folder(folder.inside(MODEL), "model", meta | self._origin, self._models)

    def _write_texts(self, folder: RunFolder) -> None:
        """Rewrite summary and log: names of classes and tokens that are erased, and messages, may quote an example."""
        write_summary(folder, self._told(self._summary))
        if folder.has("log.jsonl"):
            lines = [line for line in folder.read_text("log.jsonl").splitlines() if _says_nothing(line)]
            folder.write_text("log.jsonl", "".join(f"{line}\n" for line in lines))

    def _told(self, summary: dict[str, Any]) -> dict[str, Any]:
        """Return the summary as it will be."""
        if BY_KEY in self._meta:
            own: dict[str, Any] = {"keys": self._left}
        else:
            features, stream = self.saved.features, self._components["stream"]
            tokens = stream["source"].get("categories", {}).get(features.sparse_column, [])
            statistics = {} if self._origin else self._components["recorder"]["statistics"]
            own = description_of(self.saved.options).outcome(statistics, lambda feature: features.name(feature, tokens))
        # Those of the state: after a purge that was killed the summary may have names that the state has no more.
        classes = {"classes": [str(one) for one in self._meta["classes"]]} if "classes" in summary else {}
        return {**summary, **own, **classes}

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
    """Return True if a record of the log can quote no value: one of an event, which is no warning."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and record.get("level") == "INFO" and record.get("event") is not None


# A saved state on its own: its dictionaries are rewritten. Its rows are live ones only, as it was written.


class StatePurge(Work):
    """The purge of a state; InputError if it is damaged, no state, of a run, or a link has a name of ours."""

    clock = f"the time of {MANIFEST}"

    out_of_reach: tuple[str, ...] = OF_A_PURGED_STATE

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        self.members = require_erasable(open_members(folder))
        self.saved = self.members.outline()
        if self.saved.meta.get("segments") or self.saved.meta.get("config_hash") is not None:
            raise InputError(message("purges.checkpoint"), file=folder.location)
        self.foreign = foreign_files(folder, lambda path: is_of_state(path.removeprefix(f"{folder.root}/")))
        written = folder.filesystem.get_file_info(folder.path(MANIFEST)).mtime
        self.since = written.astimezone(timezone.utc) if written is not None else datetime.now(timezone.utc)
        before = [one for one in SavedPlace.of(folder).made_of if places_in(RunFolder(one))]
        self.out_of_reach = (*(message("purges.made_of", state=one) for one in before), *self.out_of_reach)

    def digest(self) -> str:
        """Return the digest of the model."""
        return self.members.total().digest

    def prepare(self, scope: Scope) -> None:
        """Find out what the dictionaries will be."""
        erasure = Erasure(self.members, scope)
        meta = {name: one for name, one in self.members.meta.items() if name not in OF_THE_FOLDER}
        self._meta, self._components = erasure.meta(meta), erasure.components()

    def plan(self) -> Notes:
        """Find out which files would be removed or get other contents."""
        folder = Rehearsal(self.folder)
        self._write(folder)
        return folder.notes

    def rewrite(self) -> None:
        """Write the state again, then remove what interrupted writes have left."""
        self._write(self.folder)

    def _write(self, folder: RunFolder) -> None:
        save_folder(folder, "state", self._meta, self._components)
