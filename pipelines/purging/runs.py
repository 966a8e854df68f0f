"""A finished run is rewritten so that its folder holds live examples only, and its newest checkpoint alone.

Invariant: every step leaves a run that can be read, and can be done again: after a kill at any point, purge goes
through from the beginning and ends with the same files. A purge that is repeated changes no byte. The model and its
digest stay as they are.
"""

from __future__ import annotations

import json
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import compress, dropwhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from pipelines.config import as_written
from pipelines.report.page import render
from pipelines.reporting import report_of
from pipelines.run_folder import MODEL, STATES, RunFolder, is_named_by_run, is_of_run, is_of_state, is_unfinished
from pipelines.running.ending import damaged_summary, read_summary, write_summary
from pipelines.running.records import Parts
from pipelines.saved_runs import last_state, open_members, states_of_any_format
from pipelines.updating.changes import StateNames, without_a_config
from raydt.encoding.columns import number_of
from raydt.errors import FormatVersionError, InputError, UpdateError
from raydt.examples.store import Subjects
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
from raydt.keyed.packing import SavedKeys, SavedOne, live
from raydt.learners import description_of, traits_of
from raydt.messages import Message, message
from raydt.presentation.charts import counted
from raydt.redaction import quoted
from raydt.sessions.saved_model import SavedModel, understood
from raydt.sessions.session import OF_A_PURGED_RUN, OF_A_PURGED_STATE
from raydt.sources.files.jsonl import DIALECT
from raydt.streams.deletion_log import LoggedDeletions
from raydt.streams.row_stream import AbsentRows

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


# Whose copies a purge erases, and what it leaves out of dictionaries and texts.
#
# A category, token or class that no live example has, and a text id that is not live, may be the deleted example
# itself. Codes are places in a dictionary, so that a value cannot be removed: another takes its place, which no data
# have.


@dataclass(frozen=True)
class Scope:
    """Ids whose copies are erased, as the files have them."""

    names: frozenset[Any] | None  #: Integers or text; None: all that are not live.

    def erases(self, name: Any) -> bool:
        """Return whether a purge removes the copies of an example that is not live."""
        return self.names is None or name in self.names


def read_ids(path: str, states: Iterable[SavedModel]) -> Scope:
    """Read ids to erase, of one state at least; InputError if they are unreadable, UpdateError if one is live."""
    log: LoggedDeletions | None = None
    for saved in states:
        names = StateNames.of(saved)
        if log is None:
            keys = names.keys._replace(subject_kind=None)
            with without_a_config():
                log = LoggedDeletions(path, ".", keys, "list of ids", "state")
            if not log.ids:
                raise InputError(message("purges.no_ids"), file=log.file.name)
        live = live_names(saved)
        row = next((row for row, name in enumerate(log.ids) if name in live), None)
        if row is not None:
            said = message("purges.live_id", id=quoted(log.ids[row]))
            raise UpdateError(said, file=log.file.name, row=row, column=log.column)
    assert log is not None
    return Scope(frozenset(log.ids))


def live_names(saved: SavedModel) -> set[Any]:
    """The ids of live examples, as files have them."""
    names, codes = StateNames.of(saved), saved.arrays["id"]
    return set(names.ids.names_of(codes) if names.text_ids else codes.tolist())


def stand_in(code: int, like: Any, taken: set[Any]) -> Any:
    """Return what takes the place of a value, not among those ``taken``; what a purge has put there stays."""
    if isinstance(like, str):
        text = f"erased {code}"
        if like.rstrip("_") == text:
            return like
        while text in taken:
            text += "_"
        return text
    number = -(2**52) - code
    while number in taken and number != like:
        number -= 1
    return float(number) if isinstance(like, float) else number


def erased(values: Sequence[Any], live: set[int]) -> list[Any]:
    """The values of a dictionary, those of live codes as they are; booleans stay, as they can tell nobody apart."""
    taken = set(values)
    return [
        value if code in live or isinstance(value, bool) or value is None else stand_in(code, value, taken)
        for code, value in enumerate(values)
    ]


def live_categories(saved: SavedModel) -> dict[str, set[int]]:
    """Numbers of the categories of live examples, by feature; of sparse features, the indices that are 1."""
    features, found = saved.features, {}
    dense = len(features.names)
    for number, arrays in saved.groups.items():
        owned = features.group_columns(number)
        for place, column in enumerate(owned[owned < dense].tolist()):
            if features.categorical[column]:
                values = arrays["X"][:, place]
                found[features.names[column]] = set(values[~np.isnan(values)].astype(np.int64).tolist())
        if features.sparse and "sparse_values" in arrays:
            found.setdefault(str(features.sparse_column), set()).update(arrays["sparse_values"].tolist())
    return found


def erased_categories(saved: SavedModel, categories: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Categories by feature, with another value in the place of each that no live example has."""
    live, by_value = live_categories(saved), traits_of(saved.options).reading.by_value
    found = {}
    for name, values in categories.items():
        numbers = [number_of(value) for value in values] if by_value else range(len(values))
        kept = {code for code, number in enumerate(numbers) if number in live.get(name, set())}
        found[name] = erased(values, kept)
    return found


def erased_stream(saved: SavedModel, stream: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Return the component ``stream`` without what no live example has, but for text ids out of ``scope``."""
    source = dict(stream["source"])
    if "categories" not in source:  # examples that are drawn have no dictionaries
        return dict(stream)
    source["categories"] = erased_categories(saved, source["categories"])
    source["labels"] = _erased_labels(saved, source["labels"])
    rest = dict(stream)
    if "id_codes" in stream:
        alive, codes = set(saved.arrays["id"].tolist()), stream["id_codes"].tolist()
        kept = [code in alive or not scope.erases(name) for code, name in zip(codes, stream["ids"], strict=True)]
        rest["ids"] = list(compress(stream["ids"], kept))
        rest |= {name: stream[name][np.array(kept, dtype=np.bool_)] for name in ("id_codes", "id_died")}
    if "absent" in stream:
        absent = AbsentRows()
        absent.restore(stream)
        absent.forget(scope.erases)
        rest = {name: value for name, value in rest.items() if name != "absent"} | absent.state()
    if "subject_codes" in stream:
        subjects = Subjects()
        subjects.restore(stream)
        subjects.keep(saved.arrays["id"], saved.arrays["born"])
        rest |= subjects.state()
    return {**rest, "source": source}


def erased_classes(saved: SavedModel) -> list[Any]:
    """The classes of a state; those that its config or its user has named stay."""
    labels = saved.components.get("stream", {}).get("source", {}).get("labels", {})
    if "positive" in labels or saved.meta.get("declared", False) or not saved.classes:
        return saved.classes
    return erased(saved.classes, set(np.unique(saved.arrays["y"]).tolist()))


def _erased_labels(saved: SavedModel, labels: Mapping[str, Any]) -> dict[str, Any]:
    if "positive" in labels:  # which of the other labels live examples have is not known
        return {**labels, "rest": erased(labels["rest"], set())}
    if "classes" in labels:
        known = set(np.unique(saved.arrays["y"]).tolist())
        return {**labels, "classes": erased(labels["classes"], known)}
    return dict(labels)


def next_running(saved: SavedModel) -> int:
    """The next running number of a state; where ids are given none is handed out, and the largest one need not stay."""
    if saved.meta.get("columns", {}).get("id") is None:
        return saved.next_id
    return int(saved.arrays["id"].max(initial=-1)) + 1


def erased_records(saved: SavedModel, recorder: Mapping[str, Any], scores: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return ``recorder`` and ``scores`` of an ended stream without labels and queries of single examples."""
    asked = {name: values[:0] for name, values in recorder.items() if name.startswith("asked_")}
    registers = {"registers": np.zeros_like(scores["registers"])}
    return [{**recorder, **asked, "next_id": next_running(saved)}, {**scores, **registers}]


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
        """Read a list of ids, none of which may be live; see :func:`pipelines.purging.runs.read_ids`."""
        states = (self.members.saved(key) for key in self.members)
        return read_ids(path, states if any(True for _ in self.members) else [self.members.beginning()])

    @abstractmethod
    def digest(self) -> str:
        """Return the digest of the model."""

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
        self.members = SavedOne(self.saved, place.location)

    def _deleted_elsewhere(self) -> Iterator[Message]:
        """Yield where examples that live here are deleted: states beside the run that updates have made from it."""
        beside, run = self.folder.inside(".."), self.folder.location
        for name in sorted(beside.names()):
            with suppress(InputError, OSError):  # no state, or one that is damaged: nothing is known of it
                lineage = read_manifest(beside.inside(name)).meta.get("lineage", [])
                since = dropwhile(lambda step: step["digest_before"] != self._digest, lineage)
                if deleted := sum(step["deletes"] for step in since):
                    state = f"{run.rpartition('/')[0]}/{name}"
                    deletions = counted(deleted, "deletion")
                    yield message("purges.deleted_in_state", deletions=deletions, state=state, run=run)

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

    out_of_reach = OF_A_PURGED_STATE

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        self.members = open_members(folder)
        self.saved = self.members.outline()
        if self.saved.meta.get("segments") or self.saved.meta.get("config_hash") is not None:
            raise InputError(message("purges.checkpoint"), file=folder.location)
        self.foreign = foreign_files(folder, lambda path: is_of_state(path.removeprefix(f"{folder.root}/")))
        written = folder.filesystem.get_file_info(folder.path(MANIFEST)).mtime
        self.since = written.astimezone(timezone.utc) if written is not None else datetime.now(timezone.utc)

    def digest(self) -> str:
        """Return the digest of the model."""
        return self.members.total().digest

    def prepare(self, scope: Scope) -> None:
        """Find out what the dictionaries will be."""
        saved = self.saved
        self._meta: dict[str, Any] = {key: value for key, value in saved.meta.items() if key not in OF_THE_FOLDER}
        self._meta |= {"classes": erased_classes(saved), "categories": erased_categories(saved, saved.categories)}
        self._meta |= {"next_id": next_running(saved)}
        self._components = {name: saved.components[name] for name in saved.components}
        self._components["coordinator"] = saved.completed()
        if "stream" in self._components:
            self._components["stream"] = erased_stream(saved, self._components["stream"], scope)

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
