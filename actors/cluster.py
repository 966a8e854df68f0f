"""Connecting to Ray: a private one for this process, or a cluster that runs already.

Invariant: :func:`connect` never attaches to a cluster nobody named, nor to another than the one named. A private
Ray has logical processors for all actors, however few the machine has; on a cluster the actors' resources are
reserved before any actor starts, and a cluster that lacks them is an error with both figures.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from actors.environment import before_local_ray, importing_from_driver, inherited, of_actors, without_metrics_ports
from actors.processes import follow_this_process, no_longer_follow
from actors.services import without_idle_services
from actors.telemetry import require_endpoint
from raydt.errors import ConfigError, RaydtError
from raydt.messages import message
from raydt.namesakes import others
from raydt.parallel.cpus import affinity

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
        """Whether Ray's own processes are there: its head and, of a private Ray, the one that starts the actors."""
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
    """Whether surely nothing adds nodes: Ray's monitor reports each node as a type of its own, which nothing starts.

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
    """Whether :func:`connect` would start a private Ray, which takes up to half a minute; imports nothing."""
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
    """What nobody has reserved on each node of the Ray that this process is connected to."""
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
    """Options of ``ray.init`` with which workers import our packages, where others of the same names are in sight."""
    return {"runtime_env": {"worker_process_setup_hook": "raydt.namesakes.claim"}} if others() else {}


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
