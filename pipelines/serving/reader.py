"""The snapshots of a run, and the thread that looks for newer ones, loads them and swaps one reference.

Invariant: what is loaded is one snapshot, whole: its manifest is the same before and after its files were read.
:attr:`SnapshotReader.current` only ever becomes such a model; whoever took it keeps it for its answer.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.redaction import may_quote, said
from pipelines.run_files import STATES
from pipelines.run_folder import RunFolder, fitting
from pipelines.saved_runs import config_of, states_of
from pipelines.serving.served import Served, ServedKeys, ServedModel, Snapshot
from raydt.errors import ModelFileError, RaydtError
from raydt.folders.arrays import open_folder
from raydt.folders.manifest import MANIFEST, complete, newest, read_manifest
from raydt.keyed.saved import SavedKeys
from raydt.messages import message
from raydt.sessions.saved_model import BY_KEY, MODEL, open_model, outlined, understood


class Found(NamedTuple):
    """Where a snapshot lies; two with the same mark are the same one."""

    folder: RunFolder
    mark: tuple[str, int, int]  #: Place, time of the last change (ns) and size of its manifest.


class Snapshots:
    """The snapshots of a place: a run, its model, its checkpoints or a state.

    ModelFileError if the place is neither a run, finished or going on, nor a model or state.
    """

    def __init__(self, place: str | Path) -> None:
        self._folder = RunFolder(place)
        self._states: RunFolder | None = None  # of a run
        self._is_run = self._folder.has("config.yaml") and not self._folder.has(MANIFEST)
        self._model: tuple[Any, int] | None = None  # mark of the model, and its update
        if self._is_run:
            self._states = states_of(config_of(self._folder), self._folder)
        elif self.find() is None:
            raise ModelFileError(message("models.no_model"), file=self._folder.location)

    def find(self) -> Found | None:
        """Return the newest complete snapshot; None if there is none yet. A few looks at the storage.

        Of a run in chapters it is that of the newest chapter which has one.
        """
        if self._states is None:
            folder = newest(self._folder)
            return _found(folder) if folder.has(MANIFEST) else None
        chapters = reversed(self._folder.chapters())
        found = (self._find(chapter, chapter.inside(STATES)) for chapter in chapters)
        return next(filter(None, found), None) or self._find(self._folder, self._states)

    def _find(self, run: RunFolder, states: RunFolder) -> Found | None:
        """Return the newest complete snapshot of a run or chapter."""
        numbers = complete(states)
        state = states.inside(str(numbers[-1])) if numbers else None
        inside = run.inside(MODEL)
        if inside.has(MANIFEST):
            found = _found(inside)
            if self._model is None or self._model[0] != found.mark:
                self._model = found.mark, int(read_manifest(inside).meta.get("offset", 0))
            if not numbers or self._model[1] >= numbers[-1]:
                return found
        return None if state is None else _found(state)


def _found(folder: RunFolder) -> Found:
    info = folder.filesystem.get_file_info(folder.path(MANIFEST))
    return Found(folder, (folder.location, info.mtime_ns or 0, info.size or 0))


def load(found: Found) -> Served:
    """Read a snapshot; ModelFileError or OSError if it is damaged, or was removed meanwhile.

    The rows of a state are left alone if its learner finds the model without them
    (:meth:`raydt.learners.base.Learner.model_within`).
    """
    folder = found.folder
    place, digest = folder.location, _seal(folder)
    meta, components = open_folder(folder.root, filesystem=folder.filesystem)
    with fitting(place):
        snapshot = Snapshot(digest, meta.get("offset"), found.mark[1] / 1e9, place)
    served: Served
    if BY_KEY in meta:
        served = ServedKeys(SavedKeys(meta, dict(components), place), snapshot)
    elif meta["kind"] == "model":
        saved = understood(meta, components, place)
        served = ServedModel(saved, snapshot, saved.predictor())
    else:
        saved = outlined(meta, components, place)
        with fitting(place):
            within = saved.learner.model_within(saved.options, saved.features, components["coordinator"])
        if within is None:
            saved = open_model(folder.root, filesystem=folder.filesystem)
        else:
            saved = understood({**meta, "kind": "model"}, {"arrays": within}, place)
        served = ServedModel(saved, snapshot, saved.predictor())
    if _seal(folder) != digest:
        raise ModelFileError(message("models.broken_seal"), file=folder.path(MANIFEST))
    return served


def _seal(folder: RunFolder) -> str:
    """The hash by which a manifest is sealed; it covers the hashes of all files that the manifest names."""
    with fitting(folder.path(MANIFEST)):
        return f"sha256:{json.loads(folder.read(MANIFEST))['sha256']}"


log = logging.getLogger(__name__)

#: Seconds between two looks, and before a snapshot that could not be used is tried again.
LOOK_SECONDS, AGAIN_SECONDS = 1.0, 30.0
#: Added to the niceness of the thread that loads, which otherwise takes half of the core that answers.
_NICE = 10


class SnapshotReader:
    """Follows the snapshots of a place; :meth:`start` it, or :meth:`look` yourself."""

    def __init__(self, place: str | Path, every: float = LOOK_SECONDS) -> None:
        self.current: Served | None = None
        self.swaps = self.failures = 0
        self._snapshots, self._every, self._quote = Snapshots(place), every, may_quote(place)
        self._mark: tuple[str, int, int] | None = None
        self._failed: tuple[Any, float] = "", 0.0  # mark of what could not be used, and when it is tried again
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="raydt-snapshots", daemon=True)

    def look(self) -> bool:
        """Load the newest snapshot if it is another one; return whether it was swapped in."""
        found = None
        try:
            found = self._snapshots.find()
            if found is None or found.mark == self._mark:
                return False
            if found.mark == self._failed[0] and time.monotonic() < self._failed[1]:
                return False
            served = load(found)
        except (RaydtError, OSError, MemoryError) as error:
            if not self._is_superseded(found):
                self._keep(found, error)
            return False
        self.current, self._mark = served, found.mark
        self.swaps += 1
        snapshot = served.snapshot
        log.info(message("serving.swapped", update=snapshot.update, digest=snapshot.digest))
        return True

    def _is_superseded(self, found: Found | None) -> bool:
        """Return True if its run has removed a snapshot meanwhile: the next look finds a newer one."""
        with suppress(RaydtError, OSError):
            newest = self._snapshots.find()
            return found is not None and (newest is None or newest.mark != found.mark)
        return False

    def _keep(self, found: Found | None, error: BaseException) -> None:
        """Say once that a snapshot cannot be used."""
        mark = None if found is None else found.mark
        if mark != self._failed[0]:
            now = self.current
            served = message("serving.first") if now is None else _of(now)
            log.warning(message("serving.kept", served=served, reason=said(error, self._quote)))
        self.failures += 1
        self._failed = mark, time.monotonic() + AGAIN_SECONDS

    def start(self) -> None:
        """Look from now on, in the background."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        if sys.platform == "linux":  # elsewhere a thread has no priority of its own: answers come first
            with suppress(OSError):
                thread = threading.get_native_id()
                os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICE)
        while not self._stop.wait(self._every):
            try:
                self.look()
            except Exception as error:  # the model that is served stays, whatever a new one does
                self._keep(None, error)


def _of(served: Served) -> str:
    return message("serving.of_update", update=served.snapshot.update)
