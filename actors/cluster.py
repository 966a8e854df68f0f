"""Connecting to Ray: a private one for this process, or a cluster that runs already.

Invariant: :func:`connect` never attaches to a cluster nobody named, nor to another than the one named. A private
Ray has logical processors for all actors, however few the machine has; on a cluster the actors' resources are
reserved before any actor starts, and a cluster that lacks them is an error with both figures.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import logging
import math
import os
import secrets
import shutil
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.processes import follow_this_process, no_longer_follow
from actors.telemetry import require_endpoint
from raydt.errors import ConfigError, RaydtError
from raydt.exchange.messages import VARIABLE
from raydt.installation import INSTALLED, others
from raydt.messages import message
from raydt.parallel import affinity

# Environment of the processes of a job: where compiled kernels are cached, how many threads they use, their token.
#
# Environment variables decide speed and access, never results. A variable the user has set is left alone.


def set_numba_cache_dir() -> Path:
    """Have Numba cache compiled kernels in the user's cache folder; to be called before kernels are imported.

    The folder is ``NUMBA_CACHE_DIR`` if set, else ``raydt/numba`` in ``XDG_CACHE_HOME`` or ``~/.cache``. Beside
    the sources, Numba's own choice, it may be read-only, and every process would compile for itself. A relative path is
    made absolute, since :func:`importing_from_driver` changes the working directory.
    """
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raydt" / "numba"
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or default).absolute()
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    return folder


def of_actors() -> dict[str, str]:
    """Variables every actor is started with: no threads of Numba's own, the kernel cache, faults."""
    handed_on = ("NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS", VARIABLE)
    inherit = {name: os.environ[name] for name in handed_on if name in os.environ}
    return {"NUMBA_NUM_THREADS": "1", **inherit}


def use_cpus(cpus: float) -> None:
    """Have this process, an actor, use the CPUs that it has reserved, as far as the machine lets it, but at least one.

    A variable that the driver's user has set is of the driver's process.
    """
    os.environ["OMP_NUM_THREADS"] = str(max(1, int(cpus)))


def without_metrics_ports() -> dict[str, str]:
    """Variables that keep the autoscaler and the dashboard of a private Ray from serving metrics of their own.

    Each would listen on all addresses without a token, whatever ``include_dashboard`` says. Ray has no switch for that:
    with a port that does not exist, it logs one error and starts without the endpoint.
    """
    names = ("AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT")
    return {name: os.environ.get(name, "-1") for name in names}


def before_local_ray() -> None:
    """Environment variables of a private Ray: no usage statistics, token authentication.

    The token lives in the environment of this process and its children only. Ray would otherwise write one to
    ``~/.ray/auth_token``, which changes how clusters started later by ``ray start`` behave.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "ray" not in sys.modules:
        # A Ray that is imported has read this variable; since 2.60 it turns authentication on by itself.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    has_token = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    wanted = os.environ.get("RAY_AUTH_MODE", "token") == "token"
    if wanted and not has_token and not (Path.home() / ".ray" / "auth_token").exists():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


@contextlib.contextmanager
def inherited(variables: Mapping[str, str]) -> Iterator[None]:
    """Processes started inside the block get these variables; this process has its own again after it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def importing_from_driver() -> Iterator[None]:
    """Ray workers of a driver connected inside the block import the driver's ``raydt``.

    Ray puts the directory the driver is in first on its workers' import path. There may be another copy of the
    sources in it, such as a clone, while the driver runs an installed one.
    """
    import raydt

    root = Path(raydt.__file__).resolve().parents[1]
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    before = Path.cwd()
    os.chdir("/" if root in installed else root)
    try:
        yield
    finally:
        os.chdir(before)


# A private Ray without the services that nobody asks anything of: they take more than half of ``ray.init``.
#
# Invariant: this decides how long a start takes, and nothing else. Ray's functions are replaced only while a private
# Ray starts; where a version of Ray has them under other names or with other parameters, they are left alone.
#
# Not started are the autoscaler (the only node is here), the log monitor (it prints the output of workers at the
# driver, which a job does not want) and, with its web server, the dashboard. Its only module here reports usage:
# nothing is reported of a private Ray, also where ``RAY_USAGE_STATS_ENABLED`` is 1. The agent of the node loads what
# Ray without ``[default]`` has. And the driver asks every 20 ms whether the node is there, not every second.

#: Seconds between two questions whether the node is there, and until Ray's own way of asking is taken.
_ASK_SECONDS, _WAIT_SECONDS = 0.02, 20.0


@contextlib.contextmanager
def without_idle_services(*, metrics: bool) -> Iterator[None]:
    """Start Ray inside the block with only its head, its raylet and its agents, which serve ``metrics``."""
    # Of what is passed on as it comes, only the parameters that are set have to be there.
    replacements: list[tuple[str, str, str, set[str], bool, Callable[..., Any]]] = [
        ("parameter", "RayParams", "__init__", {"no_monitor", "include_log_monitor"}, False, _without_monitors),
        (
            "node",
            "Node",
            "start_api_server",
            {"self", "include_dashboard", "raise_on_failure"},
            True,
            _without_dashboard,
        ),
        ("services", "", "get_node", {"gcs_address", "node_id"}, True, _as_soon_as_it_is_there),
    ]
    if not metrics:
        replacements.append(("utils", "", "get_dashboard_dependency_error", set(), True, _small_agent))
    with contextlib.ExitStack() as restoring:
        for module, kind, name, parameters, exactly, replacement in replacements:
            with contextlib.suppress(AttributeError, ImportError, TypeError, ValueError):
                owner = importlib.import_module(f"ray._private.{module}")
                owner = getattr(owner, kind) if kind else owner
                original = getattr(owner, name)
                has = {*inspect.signature(original).parameters}
                if has == parameters or (has > parameters and not exactly):
                    restoring.callback(setattr, owner, name, original)
                    setattr(owner, name, functools.wraps(original)(replacement(original)))
        yield


def _without_monitors(init: Callable[..., None]) -> Callable[..., None]:
    def replacement(parameters: Any, *given: Any, **named: Any) -> None:
        init(parameters, *given, **{**named, "no_monitor": True, "include_log_monitor": False})

    return replacement


def _without_dashboard(start: Callable[..., None]) -> Callable[..., None]:
    def replacement(node: Any, *given: Any, **named: Any) -> None:
        node._webui_url = ""

    return replacement


def _small_agent(error: Callable[..., ImportError | None]) -> Callable[..., ImportError | None]:
    return lambda *given, **named: ImportError("a private Ray has no dashboard")


def _as_soon_as_it_is_there(get_node: Callable[..., Any]) -> Callable[..., Any]:
    until: float | None = None  # of all calls: Ray calls again where it has no answer

    def replacement(gcs_address: str, *given: Any, **named: Any) -> Any:
        nonlocal until
        import ray

        until = time.monotonic() + _WAIT_SECONDS if until is None else until
        compiled: Any = ray._raylet
        with contextlib.suppress(Exception):  # Ray itself asks next, and says what is wrong
            ask = compiled.GcsClient(address=gcs_address).get_all_node_info
            most = {"timeout": 1} if "timeout" in inspect.signature(ask).parameters else {}
            while time.monotonic() < until and not ask(**most):
                time.sleep(_ASK_SECONDS)
        return get_node(gcs_address, *given, **named)

    return replacement


Bundle = dict[str, float]

#: Object store of a private Ray. Messages are small; exported states pass through it one shard at a time.
STORE_BYTES = 512 * 2**20

#: A private Ray sends arguments and replies of up to so many bytes with their message, not through the object store
#: (from 100 kB on by default): a round with two shards and 125 kB each way then takes 2.1 ms, not 4.4.
INLINE_BYTES = 2**20

#: Seconds to wait for a cluster's resources: enough for an autoscaler to add a node. After the first few, the wait is
#: announced.
RESERVE_SECONDS, UNANNOUNCED_SECONDS = 120.0, 2.0

#: Bytes that the name of a socket can have, and how Ray names the folder of a session.
_LONGEST_SOCKET, _SESSION = 107, "session_2026-01-01_00-00-00_000000_{}"

#: Seconds within which a server must answer.
ANSWER_SECONDS = 10.0

#: What a client of HTTP/2, and so of gRPC, sends first (RFC 9113, 3.4): a line and an empty frame of type SETTINGS. A
#: server sends such a frame first, too; the fourth byte is its type.
_GREETING, _SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), 4

log = logging.getLogger(__name__)


def bundles(shards: int, resources: Mapping[str, Mapping[str, Any]] | None = None) -> list[Bundle]:
    """Return bundles of a Ray placement group, of the coordinator and then each shard, by ``resources``."""
    if shards < 1:
        raise ConfigError(message("cluster.no_shard", shards=shards))
    return [_bundle((resources or {}).get(role, {}), role) for role in ["coordinator"] + ["shard"] * shards]


def _bundle(request: Mapping[str, Any], role: str) -> Bundle:
    unknown = request.keys() - {"num_cpus", "memory", "resources"}
    if unknown:
        raise ConfigError(message("cluster.unknown_resource", role=role, names=", ".join(sorted(unknown))))
    memory = {"memory": float(request["memory"])} if request.get("memory") else {}
    return {"CPU": float(request.get("num_cpus", 1)), **memory, **(request.get("resources") or {})}


class Cluster:
    """A connection to Ray.

    ``started``: Ray was started for this process, and is ended by :meth:`close`. ``address``: ``host:port`` of its
    head, empty if this process is not connected. ``reserve_seconds``: how long to wait for resources.
    """

    reserve_seconds = RESERVE_SECONDS

    def __init__(self, *, started: bool, connected: bool = True) -> None:
        import ray

        self.started, self._connected = started, connected
        self._had_room = False  # nodes that are lost may come back
        self.address = ""
        self._listeners: list[str] = []
        self._session = _session_folder() if started else None
        self._follower = follow_this_process() if started else None
        if ray.is_initialized():
            self.address = ray.get_runtime_context().gcs_address
            self._listeners = [self.address]
        if started:
            # The only node; on a cluster another node may be lost, and the job continues on the others.
            self._listeners += [
                f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
                for node in ray.nodes()  # type: ignore[no-untyped-call]
            ]

    def answers(self) -> bool:
        """Return True if Ray's own processes answer: its head and, of a private Ray, the one that starts actors."""
        try:
            for address in self._listeners:
                _require_server(address)
        except ConfigError:
            return False
        return True

    def actor_environment(self) -> dict[str, Any]:
        """Options of an actor that give it the variables it needs; a private Ray has handed them down already."""
        return {} if self.started else {"runtime_env": {"env_vars": of_actors()}}

    def reserve(self, requested: Sequence[Bundle]) -> Any:
        """Reserve resources, spread over the nodes; ConfigError if there will never be so many, or none in time."""
        from ray.util.placement_group import placement_group, remove_placement_group

        # There is no bundle of nothing; an actor that asks for nothing is placed with a byte of memory.
        placed = [bundle if any(bundle.values()) else {**bundle, "memory": 1} for bundle in requested]
        group = placement_group(placed, strategy="SPREAD")
        unannounced = min(UNANNOUNCED_SECONDS, self.reserve_seconds)
        if group.wait(unannounced):
            self._had_room = True
            return group
        if not self._had_room and _is_too_small(requested) and _is_fixed():
            remove_placement_group(group)
            raise ConfigError(message("cluster.too_small", lacking=_shortage(requested)))
        waiting = message("cluster.waiting", lacking=_shortage(requested), seconds=self.reserve_seconds)
        log.warning("%s", waiting, extra={"event": "waiting_for_resources"})
        if group.wait(self.reserve_seconds - unannounced):
            self._had_room = True
            return group
        remove_placement_group(group)
        raise ConfigError(message("cluster.no_resources", lacking=_shortage(requested), seconds=self.reserve_seconds))

    def close(self) -> None:
        """End what :func:`connect` began."""
        import ray

        if self._connected:
            self._connected = False
            no_longer_follow(self._follower)
            ray.shutdown()
            if self._session is not None:
                shutil.rmtree(self._session, ignore_errors=True)  # logs, and spilled objects with rows in them


def _shortage(requested: Sequence[Bundle]) -> str:
    """Resources that a job needs and a cluster lacks."""
    import ray

    needs: Bundle = {}
    for bundle in requested:
        for name, amount in bundle.items():
            needs[name] = needs.get(name, 0) + amount
    has: Bundle = ray.cluster_resources()  # type: ignore[no-untyped-call]
    nodes = free_on_nodes()
    free = {name: sum(node.get(name, 0) for node in nodes) for name in needs}
    lacking = [name for name in needs if has.get(name, 0) < needs[name]] or [
        name for name in needs if free[name] < needs[name]
    ]
    figures = "; ".join(
        message("cluster.lack", needed=needs[name], resource=_plural(name), there=has.get(name, 0), free=free[name])
        for name in lacking or needs
    )
    if not lacking:  # there is enough, in pieces
        largest = max(requested, key=lambda bundle: bundle["CPU"])
        most = {name: max(node.get(name, 0) for node in nodes) for name in largest}
        each = [
            message("cluster.node", needed=largest[name], resource=_plural(name), free=most[name]) for name in largest
        ]
        figures += "; " + message("cluster.small_nodes", most_needed=", ".join(each))
    return figures


def _is_too_small(requested: Sequence[Bundle]) -> bool:
    """Return True if all nodes, with nothing reserved, lack resources, or cannot hold all bundles that are alike."""
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    names = {name for bundle in requested for name in bundle}
    sums = {name: sum(bundle.get(name, 0) for bundle in requested) for name in names}
    if any(sum(node.get(name, 0) for node in alive) + 1e-6 < amount for name, amount in sums.items()):
        return True
    return any(sum(_copies(bundle, node) for node in alive) < requested.count(bundle) for bundle in requested)


def _copies(bundle: Bundle, node: Bundle) -> float:
    """Return the number of bundles of one kind that an empty node holds; Ray counts in units of 1e-4."""
    return min(((node.get(name, 0) + 1e-6) // amount for name, amount in bundle.items() if amount), default=math.inf)


def _is_fixed() -> bool:
    """Return True if surely nothing adds nodes: Ray's monitor reports each as a type of its own, which nothing starts.

    An autoscaler reports the types of its config. False if the monitor has not reported, or is not there, and for
    autoscalers of Ray's second generation (of KubeRay, say), which report elsewhere.
    """
    import ray

    try:
        from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
        from ray.experimental.internal_kv import _internal_kv_get

        report = json.loads(_internal_kv_get(DEBUG_AUTOSCALING_STATUS) or b"{}")["autoscaler_report"]
        active = set(report["active_nodes"])
    except (ImportError, KeyError, TypeError, ValueError):  # what is private to Ray may change
        return False
    nodes = {f"node_{node['NodeID']}" for node in ray.nodes()}  # type: ignore[no-untyped-call]
    return bool(active) and active <= nodes


def _session_folder() -> str | None:
    """Folder of the Ray that this process has just started, which nobody else uses."""
    import ray

    node = ray._private.worker._global_node
    return str(node.get_session_dir_path()) if node is not None and node.head else None


def _plural(name: str) -> str:
    return "CPUs" if name == "CPU" else name


def starts_ray(address: str | None = None) -> bool:
    """Return True if :func:`connect` would start a private Ray, which takes up to half a minute; imports nothing."""
    return not _is_connected() and _named(address) == "local"


def _is_connected() -> bool:
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


def _named(address: str | None) -> str:
    named = "" if address == "auto" else address  # as everywhere in Ray, RAY_ADDRESS says what auto is
    return named or os.environ.get("RAY_ADDRESS") or address or "local"


def connect(
    address: str | None = None, requested: Sequence[Bundle] = (), *, metrics_port: int | None = None
) -> Cluster:
    """Connect to Ray.

    ``address`` is ``local`` for a private Ray, ``auto`` for the cluster of this machine, or ``host:port``; by default
    ``RAY_ADDRESS`` (which ``ray job submit`` sets for its jobs), else ``local``. Where this process is connected
    already (a test, a notebook), that connection is used and left open, whatever it is to; ``host:port`` must then be
    its own. A private Ray offers at least the resources ``requested``, and serves metrics only with a ``metrics_port``,
    on all addresses and without a token.

    ConfigError if no cluster answers, a job cannot use the address, or metrics cannot be served; RaydtError if a
    private Ray cannot be started.
    """
    if _is_connected():
        if address not in (None, "auto", "local"):
            _require_connected_to(address)
        return Cluster(started=False, connected=False)
    address = _named(address)
    if "://" in address:
        raise ConfigError(message("cluster.url", address=address))
    return _start(requested, metrics_port) if address == "local" else _join(address)


def cpus() -> int:
    """CPUs of the Ray that this process is connected to."""
    import ray

    return int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]


def cpus_here() -> int:
    """CPUs of this machine that this process may use."""
    return affinity()


def free_on_nodes() -> list[Bundle]:
    """Return the free resources of each node of the Ray that this process is connected to."""
    import ray._private.state as state

    free: dict[str, Bundle] = state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return list(free.values())


def _start(requested: Sequence[Bundle], metrics_port: int | None = None) -> Cluster:
    if metrics_port is not None:
        require_endpoint(metrics_port)
    _require_short_paths()
    before_local_ray()
    import ray

    cpus = max(cpus_here(), -(-sum(bundle.get("CPU", 0) for bundle in requested) // 1))
    others: Bundle = {}
    for bundle in requested:
        for name in bundle.keys() - {"CPU", "memory"}:
            others[name] = others.get(name, 0) + bundle[name]
    try:
        with (
            _own_sigterm(),
            importing_from_driver(),
            inherited({**of_actors(), **without_metrics_ports()}),
            without_idle_services(metrics=metrics_port is not None),
        ):
            ray.init(
                "local",
                num_cpus=int(cpus),
                resources=others or None,
                include_dashboard=False,
                object_store_memory=STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _metrics_export_port=metrics_port,
                **_of_workers(),
                # Both ways: a driver keeps the settings of the Ray before this one.
                _system_config={
                    "enable_metrics_collection": metrics_port is not None,
                    "max_direct_call_object_size": INLINE_BYTES,
                },
            )
    except Exception as error:  # Ray says by a bare one that a process of its own did not start in time
        raise RaydtError(message("cluster.no_private_ray", reason=str(error))) from error
    return Cluster(started=True)


def _require_short_paths() -> None:
    """Refuse (ConfigError) a folder for temporary files in which the sockets of Ray would have too long names."""
    name = next((name for name in ("RAY_TMPDIR", "TMPDIR") if os.environ.get(name)), None)
    if name is not None:
        socket = os.path.join(os.environ[name], "ray", _SESSION.format(os.getpid()), "sockets", "plasma_store")
        if (excess := len(os.fsencode(socket)) - _LONGEST_SOCKET) > 0:
            said = {"name": name, "folder": os.environ[name], "excess": excess, "most": _LONGEST_SOCKET}
            raise ConfigError(message("cluster.long_tmpdir", **said))


def _of_workers() -> dict[str, Any]:
    """Options of ``ray.init`` with which workers import our packages, where their path does not lead to them."""
    return {"runtime_env": {"worker_process_setup_hook": "raydt.installation.claim"}} if INSTALLED or others() else {}


def _join(address: str) -> Cluster:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    try:
        if address != "auto":
            _require_server(address)
        else:  # the cluster on record may have ended without a trace
            _require_server(ray._private.services.get_ray_address_from_environment(address, None))
        with _own_sigterm(), importing_from_driver():
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **_of_workers())
    except ConfigError:
        raise
    except (RuntimeError, ConnectionError, OSError, TimeoutError, ValueError, ray.exceptions.RayError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        said = message("cluster.not_joined", address=address, reason=reason, version=ray.__version__)
        raise ConfigError(said) from error
    return Cluster(started=False)


def _require_server(address: str) -> None:
    """Refuse an address at which nothing answers in gRPC's protocol: Ray would try again for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(message("cluster.no_address", address=address))
    encrypted = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
    answer = b""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS) as connection:
            if encrypted:
                return
            with contextlib.suppress(OSError):
                connection.sendall(_GREETING)
                answer = connection.makefile("rb").read(4)
    except (OSError, UnicodeError) as error:
        raise ConfigError(message("cluster.no_cluster", address=address, reason=str(error))) from error
    if answer[3:] != bytes([_SETTINGS]):
        raise ConfigError(message("cluster.no_head", address=address))


def _require_connected_to(address: str) -> None:
    """Refuse an address that is not the one this process is connected to."""
    import ray

    here = ray.get_runtime_context().gcs_address
    (host, _, port), (our_host, _, our_port) = address.rpartition(":"), here.rpartition(":")
    if port != our_port or not _machine(host) & _machine(our_host):
        raise ConfigError(message("cluster.other_cluster", here=here, address=address))


def _machine(host: str) -> set[str]:
    """The network addresses a host name stands for; none if it is unknown."""
    import ray.util

    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host.strip("[]"), None)}
    except (OSError, UnicodeError):
        return set()
    # Ray names a head by the machine's own address where the user has written localhost.
    ours = {ray.util.get_node_ip_address()}  # type: ignore[no-untyped-call]
    return found | ours if found & {"127.0.0.1", "::1"} else found


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep this process's SIGTERM handler, which ``ray.init`` replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
