"""Resources of this machine, ports that can be reached from outside, and whether a folder can hold checkpoints."""

from __future__ import annotations

import os
import platform
import posixpath
import resource
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pyarrow as pa
from pyarrow import fs

import raydt
from pipelines.auditing import audit_run
from pipelines.display import Reporter, share
from pipelines.run_folder import RunFolder
from pipelines.running.ending import read_summary, versions
from pipelines.running.replay import RunResult, replay
from raydt.arrays.kernel_cache import compile_once
from raydt.errors import STORAGE_REMEDIES, ConfigError, InputError
from raydt.evaluation import warmup as warmup_evaluation
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.messages import Message, message
from raydt.parallel import affinity
from raydt.sessions.session import EVERY_USE, compile_missing
from raydt.streams.deletion_log import warmup as warmup_streams

#: Addresses that only this machine reaches.
_LOOPBACK = ("127.", "::1")

#: How long a listener may take to answer.
_ANSWER_SECONDS = 5.0

#: Bytes of the file that a probe writes.
PROBE_BYTES = 1 << 20

T = TypeVar("T")


def examine(with_ray: bool = False) -> dict[str, Any]:
    """Return versions, memory, kernel cache and Ray's settings; ``with_ray`` starts one, to list its ports."""
    memory, cache = psutil.virtual_memory(), Path(os.environ["NUMBA_CACHE_DIR"])
    shm = Path("/dev/shm")
    facts: dict[str, Any] = {
        "raydt": raydt.__version__,
        "sources": str(Path(raydt.__file__).parent),
        "platform": platform.platform(),
        **versions(),
        "cpus": affinity(),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "shm_free_bytes": shutil.disk_usage(shm).free if shm.is_dir() else None,
        "numba_cache_dir": str(cache),
        "numba_cache_writable": _writable(cache),
        "ray_address": os.environ.get("RAY_ADDRESS"),
        "ray_auth_mode": os.environ.get("RAY_AUTH_MODE", message("verdicts.no_mode")),
    }
    facts["copies"] = copies_on_this_machine()
    if with_ray:
        facts |= _local_ray()
    return facts


def copies_on_this_machine() -> list[Message]:
    """Return the places of this machine, outside run folders, that may hold rows; as ``erasure.md`` lists them."""
    folders = {Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray", Path(tempfile.gettempdir()) / "ray"}
    counts = ((folder, len(list(folder.glob("session_2*")))) for folder in sorted(folders))
    found = [message("verdicts.copy_sessions", folder=folder, sessions=count) for folder, count in counts if count]
    if list(Path("/dev/shm").glob("plasma*")):
        found.append(message("verdicts.copy_plasma"))
    if psutil.swap_memory().total:
        found.append(message("verdicts.copy_swap"))
    pattern = Path("/proc/sys/kernel/core_pattern")
    if pattern.exists() and resource.getrlimit(resource.RLIMIT_CORE)[0] != 0:
        found.append(message("verdicts.copy_cores", pattern=pattern.read_text(encoding="utf-8").strip()))
    return found


def _local_ray() -> dict[str, Any]:
    from actors.cluster import connect
    from actors.keyed_session import run_tasks

    before = {process.pid for process in psutil.process_iter()}
    cluster = connect("local", [{"CPU": 1.0}])
    try:
        ours = [process for process in psutil.process_iter(["pid", "name"]) if process.pid not in before]
        found = [listener for process in [*ours, psutil.Process()] for listener in listeners(process)]
        for listener in found:
            listener["metrics"] = serves_metrics(listener["address"], listener["port"])
        for _, opened in run_tasks(cluster, _port_of_a_shard, [(None, [0])]):
            found += opened if isinstance(opened, list) else []
    finally:
        cluster.close()
    served = ", ".join(f"{listener['address']}:{listener['port']}" for listener in found if listener["metrics"])
    return {
        "ray_metrics": message("verdicts.metrics", places=served) if served else message("verdicts.no_metrics"),
        "ray_auth_mode": os.environ.get("RAY_AUTH_MODE", "not set"),
        "listeners": found,
        "reachable_listeners": sum(not listener["loopback"] for listener in found),
    }


def _port_of_a_shard(_: Any, index: int) -> list[dict[str, Any]]:
    """Open the port of a shard in this process, one that Ray has started, and tell what it is."""
    from actors.channel import LOOPBACK, Channel

    with closing(Channel(index, 1, LOOPBACK)) as channel:
        found = [one for one in listeners(psutil.Process()) if one["port"] == channel.address[1]]
        return [
            {**one, "process": message("verdicts.channel"), "metrics": serves_metrics(one["address"], one["port"])}
            for one in found
        ]


def listeners(process: psutil.Process) -> list[dict[str, Any]]:
    """TCP sockets a process listens on; none if it has ended or may not be looked at."""
    try:
        name = process.name()
        sockets = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    except psutil.Error:
        return []
    return [
        {
            "process": name,
            "pid": process.pid,
            "address": socket.laddr.ip,
            "port": socket.laddr.port,
            "loopback": socket.laddr.ip.removeprefix("::ffff:").startswith(_LOOPBACK),
        }
        for socket in sockets
    ]


def serves_metrics(address: str, port: int) -> bool:
    """Return True if ``/metrics`` is answered to whoever asks, without a token."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    connection = HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):  # nobody, or another protocol
        return False
    finally:
        connection.close()


def probe(location: str) -> dict[str, Any]:
    """Do in a folder what checkpoints need of it, with a file of a name of its own, and undo it.

    The folder, as of ``checkpoint.path``, is made if it is not there, and removed again. Returns ``location``,
    ``bytes`` written, ``free_bytes`` of a local disk (else None), and ``seconds`` by step: ``write`` (and flush),
    ``replace``, ``list``, ``read``, ``rename``, ``delete``. ConfigError names the step that failed, why, and a remedy.
    """
    place = location[:300]
    if not location or location.endswith("://"):
        raise ConfigError(message("verdicts.probe_no_name", folder=place))
    try:
        folder = Folder(location)
    except InputError as error:
        raise ConfigError(message("verdicts.probe_uri", folder=place, problem=error.problem)) from error

    def attempt(step: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except (OSError, pa.ArrowException, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            other = message("verdicts.other_folder") if folder.is_local else message("verdicts.access")
            remedy = STORAGE_REMEDIES.get(getattr(error, "errno", None) or 0, other)
            said = message("verdicts.probe_step", folder=place, step=step, reason=reason, remedy=remedy)
            raise ConfigError(said) from error

    if attempt("look", lambda: folder.filesystem.get_file_info(folder.root).type) == fs.FileType.File:
        raise ConfigError(message("verdicts.probe_file", folder=place))
    absent = attempt("look", lambda: _absent(folder))
    name, moved = f"raydt-probe-{uuid.uuid4().hex}", f"raydt-probe-{uuid.uuid4().hex}"
    first, second = os.urandom(PROBE_BYTES), os.urandom(PROBE_BYTES)
    # Name and action of each step, what its result must show, and the message if it does not.
    steps: tuple[tuple[str, Callable[[], Any], Callable[[Any], bool], str], ...] = (
        ("write", lambda: folder.publish(name, first), lambda _: True, ""),
        ("replace", lambda: folder.publish(name, second), lambda _: True, ""),
        ("list", folder.names, lambda names: name in names, "verdicts.probe_list"),
        ("read", lambda: folder.read(name), lambda found: found == second, "verdicts.probe_read"),
        ("rename", lambda: folder.move(name, moved), lambda _: not folder.has(name), "verdicts.probe_still"),
        ("delete", lambda: folder.delete(moved), lambda _: not folder.has(moved), "verdicts.probe_still"),
    )
    seconds: dict[str, float] = {}
    try:
        for step, act, shows, fault in steps:
            began = time.perf_counter()
            if not shows(attempt(step, act)):
                raise ConfigError(message(fault, folder=place))
            seconds[step] = time.perf_counter() - began
    finally:
        _undo(folder, (name, moved), absent)
    existing = posixpath.dirname(absent[-1]) if absent else folder.root
    free = shutil.disk_usage(existing).free if folder.is_local else None
    return {"location": folder.location, "bytes": PROBE_BYTES, "free_bytes": free, "seconds": seconds}


def _absent(folder: Folder) -> list[str]:
    """Paths that making the folder will make, the deepest first."""
    missing, path = [], folder.root
    while path not in ("", "/") and folder.filesystem.get_file_info(path).type == fs.FileType.NotFound:
        missing.append(path)
        path = posixpath.dirname(path)
    return missing


def _undo(folder: Folder, names: tuple[str, ...], made: list[str]) -> None:
    """Leave nothing of a probe behind, as far as the filesystem lets us; what others have put there stays."""
    try:
        for name in names:
            folder.delete(name)
        for path in made:
            if folder.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
                return
            folder.filesystem.delete_dir(path)
    except (OSError, pa.ArrowException):
        return  # the step that failed says more


def _writable(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


def compile_all() -> dict[str, float]:
    """Compile every kernel that is not in the cache; return the seconds by learner."""
    compilers: dict[str, Callable[[], None]] = {
        **{kind: partial(compile_missing, learner, None, EVERY_USE) for kind, learner in learners().items()},
        "streams": partial(compile_once, "streams", "raydt.streams", warmup_streams),
        "evaluation": partial(compile_once, "evaluation", "raydt.evaluation", warmup_evaluation),
    }
    seconds = {}
    for name, compile_kernels_of in compilers.items():
        began = time.perf_counter()
        compile_kernels_of()
        seconds[name] = time.perf_counter() - began
    return seconds


# The demo: a job that needs no input, on a local Ray whose shards do part of the work, audited at the end.

#: Scores of the story.
_SCORES = ("accuracy", "no_change", "majority")

CONFIG = Path(__file__).with_name("demo.yaml")


def run_demo(out: str | Path | None = None, progress: Reporter | None = None, *, overwrite: bool = False) -> RunResult:
    """Replay the demo's stream and audit what came out."""
    result = replay(CONFIG, out, overwrite=overwrite, progress=progress)
    audit_run(result.path)
    return RunResult(result.path, read_summary(RunFolder(result.path)))


def story(summary: dict[str, Any], path: str) -> str:
    """Describe the demo in a few sentences."""
    scores = {
        name: share(value) for name, value in (summary["baselines"] | summary["metrics"]).items() if name in _SCORES
    }
    requests = sum(shard["requests"] for shard in summary["work"])
    return message("commands.demo", run=summary, scores=scores, requests=requests, path=path)
