"""Loading of a snapshot: what answers need of it is read and checked, in this process or in another one.

To read, hash and check a model takes some ten milliseconds of Python. A thread of the server that did so would take the
interpreter from every answer of that time, several times each. So a server has a process beside it that loads, and
hands over the arrays through a pipe. Invariant: what is loaded is one snapshot, whole: its manifest is the same before
and after its files were read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from pipelines.redaction import said
from pipelines.run_folder import RunFolder, fitting
from pipelines.serving.served import Served, ServedKeys, ServedModel, Snapshot
from pipelines.serving.snapshots import Found
from raydt.arrays.types import Arrays
from raydt.errors import ModelFileError, ProcessLostError, RaydtError
from raydt.exchange.links import Frame, FrameReader, packed
from raydt.folders.arrays import open_folder
from raydt.folders.manifest import MANIFEST
from raydt.keyed.saved import SavedKeys
from raydt.messages import message
from raydt.sessions.saved_model import BY_KEY, open_model, outlined, understood

#: What a snapshot may fail with, and the server goes on with the model that it has.
FAILURES = (RaydtError, OSError, MemoryError)
#: Name, in a frame, of the values that are no arrays; no array has it.
_PLAIN = " "
#: How the process begins: answers come first where cores are few, no module of the working directory is imported,
#: whatever prints does not do so between frames, and Ctrl-C is the server's affair. It stays in the server's session,
#: since Linux may share cores among sessions before it looks at niceness.
_BEGIN = """
import os, sys
sys.path = list(filter(None, sys.path))
if hasattr(os, "nice"):
    os.nice(10)
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
answers = os.dup(1)
os.dup2(2, 1)
from raydt.namesakes import claim
claim()
from pipelines.serving.loading import main
main(answers, sys.argv[1] == "True")
"""


class Parts(NamedTuple):
    """The part of a snapshot that answers need, checked: the arrays of one model, or the groups of models by key."""

    digest: str  #: Of the snapshot: the seal of its manifest.
    meta: dict[str, Any]
    components: dict[str, dict[str, Any]]


def load(found: Found) -> Served:
    """Read a snapshot here; ModelFileError or OSError if it is damaged, or was removed meanwhile."""
    return _served(read_parts(found.folder), found)


def read_parts(folder: RunFolder) -> Parts:
    """Read a snapshot; errors as of :func:`load`.

    The rows of a state are left alone if its learner finds the model without them
    (:meth:`raydt.learners.base.Learner.model_within`).
    """
    place, digest = folder.location, _seal(folder)
    meta, components = open_folder(folder.root, filesystem=folder.filesystem, file_by_file=True)
    if BY_KEY in meta:
        groups = [name for name in components if name.startswith("group-")]  # not the ids of all rows of the source
        parts = Parts(digest, meta, {name: dict(components[name]) for name in groups})
    else:
        parts = Parts(digest, meta, {"arrays": _arrays(folder, meta, components)})
        understood(_of_model(meta), parts.components, place)
    if _seal(folder) != digest:
        raise ModelFileError(message("models.broken_seal"), file=folder.path(MANIFEST))
    return parts


def _arrays(folder: RunFolder, meta: dict[str, Any], components: Mapping[str, Any]) -> Arrays:
    """Return the arrays of one model, or of the model within a state."""
    if meta["kind"] == "model":
        return dict(components["arrays"])
    saved = outlined(meta, components, folder.location)
    with fitting(folder.location):
        within = saved.learner.model_within(saved.options, saved.features, components["coordinator"])
    if within is not None:
        return within
    return open_model(folder.root, filesystem=folder.filesystem).session().model()


def _of_model(meta: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest's ``meta`` as that of the model in it."""
    return {**meta, "kind": "model"}


def _served(parts: Parts, found: Found) -> Served:
    """Return what answers with the parts of a snapshot."""
    meta, place = parts.meta, found.folder.location
    with fitting(place):
        snapshot = Snapshot(parts.digest, meta.get("offset"), found.mark[1] / 1e9, place)
    if BY_KEY in meta:
        return ServedKeys(SavedKeys(meta, parts.components, place), snapshot)
    saved = outlined(_of_model(meta), parts.components, place)
    return ServedModel(saved, snapshot, saved.predictor())


def _seal(folder: RunFolder) -> str:
    """The hash by which a manifest is sealed; it covers the hashes of all files that the manifest names."""
    with fitting(folder.path(MANIFEST)):
        return f"sha256:{json.loads(folder.read(MANIFEST))['sha256']}"


# -------------------------------------------------------------------- in another process


class Loader:
    """A process that loads snapshots; it ends with this one, or when it is closed."""

    def __init__(self, quote: bool) -> None:
        self._quote = quote  #: Whether what it says of damage may have values in it.
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def begin(self) -> None:
        """Begin the process, unless it runs; OSError if that cannot be."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            where = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, "-c", _BEGIN, str(self._quote)]
            self._process = subprocess.Popen(
                command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=where
            )

    def load(self, found: Found) -> Served:
        """As :func:`load`; a process that ends is begun again once, then it is a ProcessLostError.

        RaydtError says what the process says of a snapshot that cannot be loaded.
        """
        try:
            try:
                told, components = self._asked(found.folder)
            except EOFError:
                self.close()
                told, components = self._asked(found.folder)
        except BaseException as error:
            self.close()  # the next answer must not begin with the rest of this one
            if isinstance(error, EOFError):
                raise ProcessLostError(message("serving.loader_ended")) from error
            raise
        if "error" in told:
            raise RaydtError(message("serving.not_loaded", reason=told["error"]))
        return _served(Parts(told["digest"], told["meta"], components), found)

    def interrupt(self) -> None:
        """End the process, whatever it does, and have no other begun; for any thread."""
        self._closed, process = True, self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process; for the thread that loads."""
        process, self._process = self._process, None
        if process is not None:
            with process:
                process.kill()

    def _asked(self, folder: RunFolder) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Have the snapshot in a folder read: what is said of it, and its components; EOFError if the process ends."""
        if not self._closed:
            self.begin()
        process = self._process
        if self._closed or process is None:  # asked last: who interrupts has seen the process, or is seen here
            raise EOFError
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(folder.address).encode() + b"\n")
        except OSError as error:
            raise EOFError from error
        contents = _contents(process.stdout)
        told = next(contents)
        return told, {name: next(contents) for name in told.get("components", ())}


def _contents(pipe: Any) -> Iterator[dict[str, Any]]:
    """Yield what :func:`_put` has written; EOFError where it ends."""
    reader = FrameReader()
    while True:
        frame = None
        while frame is None:
            if not (count := pipe.readinto(reader.space)):
                raise EOFError
            frame = reader.take(count)
        values = dict(cast("Mapping[str, Any]", frame.content))
        yield json.loads(values.pop(_PLAIN).tobytes()) | values


def _put(pipe: BinaryIO, values: Mapping[str, Any]) -> None:
    """Write values, arrays or of JSON, as one frame."""
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    plain = json.dumps({name: value for name, value in values.items() if name not in arrays})
    pipe.writelines(packed(Frame(0, 0, {**arrays, _PLAIN: np.frombuffer(plain.encode(), dtype=np.uint8)})))


def main(answers: int, quote: bool) -> None:
    """Load what the other process asks for, line by line, until it has ended; it reads the file ``answers``."""
    with os.fdopen(answers, "wb") as pipe:
        for line in sys.stdin.buffer:
            try:
                _answer(json.loads(line), quote, pipe)
            except BrokenPipeError:  # the server has ended
                os._exit(0)


def _answer(address: Sequence[str], quote: bool, pipe: BinaryIO) -> None:
    """Write what there is to say of a snapshot, and its components, none of which stays in memory here."""
    try:
        parts = read_parts(RunFolder.at(address))
    except Exception as error:  # the model that is served stays, whatever a new one does
        _put(pipe, {"error": said(error, quote)})
    else:
        _put(pipe, {"digest": parts.digest, "meta": parts.meta, "components": [*parts.components]})
        for values in parts.components.values():
            _put(pipe, values)
    pipe.flush()
