"""Answers to requests, whatever carries them: uvicorn, for ``raydt serve``, or a deployment of Ray Serve.

Invariant: an answer to rows is made by the model that was current when the request came, and by no other.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import numpy as np

from pipelines.operation import in_threads_of_its_run
from pipelines.receipts import may_quote, quoting_as_its_run, said
from pipelines.run_folder import STATES, RunFolder, fitting
from pipelines.saved_runs import config_of, states_of
from pipelines.serving.served import AnsweringModel, Served, ServedKeys, ServedModel, parsed
from raydt.arrays.elementary import Arrays
from raydt.errors import ConfigError, InputError, ModelFileError, ProcessLostError, RaydtError
from raydt.exchange.links import Frame, FrameReader, packed
from raydt.folders.arrays import MANIFEST, complete, newest, open_folder, read_manifest
from raydt.keyed.packing import SavedKeys
from raydt.messages import Message, message
from raydt.sessions.saved_model import BY_KEY, MODEL, open_model, outlined, understood

if TYPE_CHECKING:
    import uvicorn

# The snapshots of a place: where the newest complete one lies.


class SnapshotPlace(NamedTuple):
    """The place of a snapshot; two with the same mark are the same one."""

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

    def find(self) -> SnapshotPlace | None:
        """Return the newest complete snapshot; None if there is none yet. A few looks at the storage.

        Of a run in chapters it is that of the newest chapter which has one.
        """
        if self._states is None:
            folder = newest(self._folder)
            return _found(folder) if folder.has(MANIFEST) else None
        chapters = reversed(self._folder.chapters())
        found = (self._find(chapter, chapter.inside(STATES)) for chapter in chapters)
        return next(filter(None, found), None) or self._find(self._folder, self._states)

    def _find(self, run: RunFolder, states: RunFolder) -> SnapshotPlace | None:
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


def _found(folder: RunFolder) -> SnapshotPlace:
    info = folder.filesystem.get_file_info(folder.path(MANIFEST))
    return SnapshotPlace(folder, (folder.location, info.mtime_ns or 0, info.size or 0))


# Loading of a snapshot: what answers need of it is read and checked, in this process or in another one.
#
# To read, hash and check a model takes some ten milliseconds of Python. A thread of the server that did so would take
# the interpreter from every answer of that time, several times each. So a server has a process beside it that loads,
# and hands over the arrays through a pipe. Invariant: what is loaded is one snapshot, whole: its manifest is the same
# before and after its files were read.

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
from raydt.installation import claim
claim()
from pipelines.serving.application import main
main(answers, sys.argv[1] == "True")
"""


class CheckedModel(NamedTuple):
    """The part of a snapshot that answers need, checked: the arrays of one model, or the groups of models by key."""

    digest: str  #: Of the snapshot: the seal of its manifest.
    meta: dict[str, Any]
    components: dict[str, dict[str, Any]]


def load(found: SnapshotPlace) -> Served:
    """Read a snapshot here; ModelFileError or OSError if it is damaged, or was removed meanwhile."""
    return _served(read_parts(found.folder), found)


def read_parts(folder: RunFolder) -> CheckedModel:
    """Read a snapshot; errors as of :func:`load`.

    The rows of a state are left alone if its learner finds the model without them
    (:meth:`raydt.learners.base.Learner.model_within`).
    """
    place, digest = folder.location, _seal(folder)
    meta, components = open_folder(folder.root, filesystem=folder.filesystem, file_by_file=True)
    if BY_KEY in meta:
        groups = [name for name in components if name.startswith("group-")]  # not the ids of all rows of the source
        parts = CheckedModel(digest, meta, {name: dict(components[name]) for name in groups})
    else:
        parts = CheckedModel(digest, meta, {"arrays": _arrays(folder, meta, components)})
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


def _served(parts: CheckedModel, found: SnapshotPlace) -> Served:
    """Return what answers with the parts of a snapshot."""
    meta, place = parts.meta, found.folder.location
    with fitting(place):
        snapshot = AnsweringModel(parts.digest, meta.get("offset"), found.mark[1] / 1e9, place)
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

    def load(self, found: SnapshotPlace) -> Served:
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
        return _served(CheckedModel(told["digest"], told["meta"], components), found)

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


# The thread that looks for newer snapshots of a run, has them loaded and swaps one reference.
#
# Invariant: :attr:`SnapshotReader.current` only ever becomes one whole snapshot; whoever took it keeps it for its
# answer.

log = logging.getLogger(__name__)

#: Seconds between two looks, and before a snapshot that could not be used is tried again.
LOOK_SECONDS, AGAIN_SECONDS = 1.0, 30.0


class SnapshotReader:
    """Follows the snapshots of a place; :meth:`start` it, or :meth:`look` yourself."""

    def __init__(self, place: str | Path, every: float = LOOK_SECONDS) -> None:
        self.current: Served | None = None
        self.swaps = self.failures = 0
        self._snapshots, self._every, self._quote = Snapshots(place), every, may_quote(place)
        self._mark: tuple[str, int, int] | None = None
        self._failed: tuple[Any, float] = "", 0.0  # mark of what could not be used, and when it is tried again
        self._loader: Loader | None = None  # of the thread
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
            served = load(found) if self._loader is None else self._loader.load(found)
        except FAILURES as error:
            if not self._stop.is_set() and not self._is_superseded(found):
                self._keep(found, error)
            return False
        self.current, self._mark = served, found.mark
        self.swaps += 1
        snapshot = served.snapshot
        log.info(message("serving.swapped", update=snapshot.update, digest=snapshot.digest))
        return True

    def _is_superseded(self, found: SnapshotPlace | None) -> bool:
        """Return True if its run has removed a snapshot meanwhile: the next look finds a newer one."""
        with suppress(RaydtError, OSError):
            newest = self._snapshots.find()
            return found is not None and (newest is None or newest.mark != found.mark)
        return False

    def _keep(self, found: SnapshotPlace | None, error: BaseException) -> None:
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
        self._loader = Loader(self._quote)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()
        if self._loader is not None:
            self._loader.interrupt()
            self._thread.join()
            self._loader.close()

    def _work(self) -> None:
        if self._loader is not None:
            with suppress(OSError):  # it is begun again when it is needed
                self._loader.begin()
        while not self._stop.wait(self._every):
            try:
                self.look()
            except Exception as error:  # the model that is served stays, whatever a new one does
                self._keep(None, error)


def _of(served: Served) -> str:
    return message("serving.of_update", update=served.snapshot.update)


#: Bytes of a body.
MOST_BYTES = 8 << 20

_ALLOWED = {"/predict": "POST"} | dict.fromkeys(("/", "/health", "/livez", "/readyz", "/metrics"), "GET")
#: Asked by whoever starts and ends processes, who has no token; the answers tell nothing but that.
_PROBES = ("/livez", "/readyz")
#: Seconds of the buckets in which the times of predictions are counted.
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Response(NamedTuple):
    """Status, type and body of an answer."""

    status: HTTPStatus
    body: bytes
    kind: str = "application/json"


class Application:
    """An ASGI application that answers by the current model of a reader; with a ``token``, only requests that have it.

    It is also the collector of its metrics.
    """

    def __init__(self, reader: SnapshotReader, token: str | None = None) -> None:
        from prometheus_client import CollectorRegistry, Histogram

        self.reader, self._token = reader, None if token is None else f"Bearer {token}".encode()
        self.answered: Counter[int] = Counter()  #: Requests by status.
        self.rows = 0  #: That were predicted.
        self._registry = CollectorRegistry()
        self._registry.register(cast(Any, self))
        self._seconds = Histogram(
            "raydt_serving_prediction_seconds",
            "Time from a request that is there to its answer",
            buckets=_BUCKETS,
            registry=self._registry,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request of HTTP, as a server of ASGI hands it over."""
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        found = await self.answer(scope, receive)
        headers = [(b"content-type", found.kind.encode()), (b"content-length", b"%d" % len(found.body))]
        if found.status == HTTPStatus.UNAUTHORIZED:
            headers.append((b"www-authenticate", b"Bearer"))
        if found.status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append((b"allow", _ALLOWED[_path(scope)].encode()))
        await send({"type": "http.response.start", "status": int(found.status), "headers": headers})
        await send({"type": "http.response.body", "body": found.body})

    async def answer(self, scope: Any, receive: Any) -> Response:
        """Read the body of a request, unless it is refused before, and answer."""
        path = _path(scope)
        headers, body, more = dict(scope["headers"]), bytearray(), True
        authorization, length = headers.get(b"authorization"), int(headers.get(b"content-length", 0))
        refusal = self.refusal(scope["method"], path, authorization)
        while more and refusal is None:
            if max(length, len(body)) > MOST_BYTES:
                refusal = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message("serving.large", most=MOST_BYTES))
                break
            part = await receive()
            if part["type"] == "http.disconnect":  # nobody waits: half a body is neither predicted nor counted
                return Response(HTTPStatus.BAD_REQUEST, b"")
            body += part.get("body", b"")
            more = part.get("more_body", False)
        if refusal is None:
            return self.respond(scope["method"], path, authorization, bytes(body))
        self.answered[refusal.status] += 1
        return refusal

    def respond(self, method: str, path: str, authorization: bytes | None, body: bytes) -> Response:
        """Answer one request."""
        try:
            response = self.refusal(method, path, authorization) or self._answer(path, body)
        except ModelFileError as error:  # a key of the snapshot that cannot be read: no fault of the request
            log.error(message("serving.failed", error=said(error, quote=False)))
            response = problem(HTTPStatus.INTERNAL_SERVER_ERROR, message("serving.failed", error=type(error).__name__))
        except InputError as error:
            large = error.message is not None and error.message.id == "serving.many"
            response = refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE if large else HTTPStatus.BAD_REQUEST, error)
        except Exception as error:  # one request fails, and the log says with what, but not with which values
            log.error(message("serving.failed", error=type(error).__name__))
            response = problem(HTTPStatus.INTERNAL_SERVER_ERROR, message("serving.failed", error=type(error).__name__))
        self.answered[response.status] += 1
        return response

    def refusal(self, method: str, path: str, authorization: bytes | None) -> Response | None:
        """Return why a request is refused before its body is read; None if it is not."""
        if (
            self._token is not None
            and path not in _PROBES
            and not hmac.compare_digest(authorization or b"", self._token)
        ):
            return problem(HTTPStatus.UNAUTHORIZED, message("serving.token"))
        if path not in _ALLOWED:
            return problem(HTTPStatus.NOT_FOUND, message("serving.path", path=path[:60]))
        if method != _ALLOWED[path]:
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, message("serving.method", method=method[:60], path=path))
        return None

    def _answer(self, path: str, body: bytes) -> Response:
        served = self.reader.current
        if path == "/metrics":
            from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

            return Response(HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_LATEST)
        if path == "/livez":
            return _json(HTTPStatus.OK, {"status": "ok"})
        if served is None:
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, message("serving.waits"))
        if path == "/readyz":
            return _json(HTTPStatus.OK, {"status": "ok"})
        if path != "/predict":
            return _json(HTTPStatus.OK, {"status": "ok", **served.snapshot.described(), **served.description()})
        began = time.perf_counter()
        table = parsed(body)
        response = _json(HTTPStatus.OK, served.answer(table))
        self.rows += table.rows
        self._seconds.observe(time.perf_counter() - began)
        return response

    def collect(self) -> Iterator[Any]:
        """Yield what is counted, for ``GET /metrics``."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        served, named = self.reader.current, "raydt_serving_{}".format
        requests = CounterMetricFamily(named("requests"), "Requests answered", labels=["status"])
        for status, n in list(self.answered.items()):
            requests.add_metric([str(int(status))], n)
        yield requests
        yield CounterMetricFamily(named("rows"), "Rows predicted", self.rows)
        yield CounterMetricFamily(named("swaps"), "Models swapped in", self.reader.swaps)
        yield CounterMetricFamily(
            named("snapshots_refused"), "Snapshots that could not be loaded", self.reader.failures
        )
        if served is not None:
            age = served.snapshot.described()["age_seconds"]
            yield GaugeMetricFamily(named("age_seconds"), "Age of the model that is served", age)
            if (update := served.snapshot.update) is not None:
                yield GaugeMetricFamily(named("update"), "Updates of the run that the model has seen", update)


def _path(scope: Any) -> str:
    """The path of a request below the place where the application is mounted."""
    return str(scope["path"].removeprefix(scope.get("root_path", ""))) or "/"


def _json(status: HTTPStatus, value: Any) -> Response:
    return Response(status, json.dumps(value, separators=(",", ":"), allow_nan=False).encode())


def problem(status: HTTPStatus, what: Message) -> Response:
    """Return the answer to a request that cannot be answered."""
    return _json(status, {"error": {"problem": what.problem, "remedy": what.remedy or None}})


def refused(status: HTTPStatus, error: InputError) -> Response:
    """Return the answer to rows that cannot be predicted; it quotes a value to the one who has sent it."""
    place = {"row": error.row, "column": error.column}
    remedy = error.remedy or message("serving.remedy")
    return _json(status, {"error": {"problem": error.problem, "remedy": remedy, **place}})


# ``raydt serve``: answers requests until SIGTERM or SIGINT, which end it in order.

#: Connections from which on requests get 503, and seconds for which one stays open after an answer.
MOST_CONNECTIONS, KEPT_SECONDS = 1024, 60

#: Environment variable of the token, and the least length of one.
TOKEN, LEAST_TOKEN = "RAYDT_SERVE_TOKEN", 16

#: Seconds after which a thread that loads a snapshot hands the interpreter to the one that answers; Python's 5 ms would
#: be 40 times as long as an answer takes.
_SWITCH_SECONDS = 1e-4


@in_threads_of_its_run
@quoting_as_its_run
def serve(
    place: str | Path,
    host: str = "127.0.0.1",
    port: int = 8765,
    *,
    every: float = 1.0,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, int]:
    """Answer requests with the newest model of a run, a model or a state, until SIGTERM or SIGINT.

    Looks for a newer snapshot ``every`` so many seconds. ``say`` gets one line when the server listens, and before it
    the token, if one was made: requests need a token if ``host`` is not a loopback address, or :data:`TOKEN` is set.
    Returns ``requests``, ``rows`` and ``swaps``. ConfigError for an address or token that cannot be used;
    ModelFileError if there is no run, model or state.
    """
    token = os.environ.get(TOKEN) or None
    if token is not None and len(token) < LEAST_TOKEN:
        raise ConfigError(message("serving.short_token", variable=TOKEN, least=LEAST_TOKEN))
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(32)
        say(message("serving.made_token", token=token))
    reader = SnapshotReader(place, every)
    reader.look()
    application = Application(reader, token)
    at = f"[{host}]" if ":" in host else host
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(message("serving.address", host=host, port=port, reason=reason)) from error
    # Head and body of an answer are two packets; the second must not wait for the first to be acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = server_of(application)
    # uvicorn has handlers of its own while it serves, and raises the signal again afterwards.
    end = lambda *_: setattr(server, "should_exit", True)  # noqa: E731
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    logging.getLogger("pipelines.serving").setLevel(logging.INFO)  # shown with --verbose
    switching = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    reader.start()
    say(message("serving.serving", place=str(place), host=at, port=listening.getsockname()[1]))
    try:
        server.run([listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.setswitchinterval(switching)
        reader.close()
    return {"requests": application.answered.total(), "rows": application.rows, "swaps": reader.swaps}


def server_of(application: Application) -> uvicorn.Server:
    """Return a server of HTTP/1.1, which is given the sockets on which it listens; its log has no line of a request."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            application,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=KEPT_SECONDS,
            timeout_graceful_shutdown=1,
        )
    )


def is_loopback(host: str) -> bool:
    """Return True if only processes of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# A Ray Serve application of the newest snapshot of a run: ``serve.run(application("runs/first"))``.
#
# Each replica has snapshots loaded by a process beside it and swaps one reference, so that no replica stops answering
# while a model is loaded, as it would in ``reconfigure``. Needs the extra ``serve``.


class Replica:
    """Answers HTTP requests, and calls of :meth:`predict` by handle, with the newest snapshot of a place."""

    def __init__(self, place: str, every: float = LOOK_SECONDS) -> None:
        self._reader = SnapshotReader(place, every)
        self._reader.look()
        self._reader.start()
        self._application = Application(self._reader)

    async def __call__(self, request: Any) -> Any:
        """Answer a request of Starlette's, as ``raydt serve`` does; a token is the proxy's business."""
        from starlette.responses import Response

        found = await self._application.answer(request.scope, request.receive)
        return Response(found.body, found.status, media_type=found.kind)

    def predict(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer what ``POST /predict`` takes; of a refusal, ``error`` says why."""
        answer: dict[str, Any] = json.loads(
            self._application.respond("POST", "/predict", None, json.dumps(body).encode()).body
        )
        return answer

    def close(self) -> None:
        """Look for snapshots no more."""
        self._reader.close()


def application(place: str | Path, every: float = LOOK_SECONDS, **options: Any) -> Any:
    """Return an application for ``ray.serve.run``; ``options`` are those of ``serve.deployment`` (``num_replicas``).

    All replicas must reach ``place``: a shared folder or an object store.
    """
    from ray import serve

    return serve.deployment(**options)(Replica).bind(str(place), every)
