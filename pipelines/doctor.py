"""What this machine offers a run, and what of it can be reached from outside."""

from __future__ import annotations

import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import psutil

import raydt
from pipelines.running.summary import versions
from raydt.learners import learners
from raydt.streams.random_updates import warmup as warmup_streams

#: Addresses that only this machine reaches.
_LOOPBACK = ("127.", "::1")


def examine(with_ray: bool = False) -> dict[str, Any]:
    """Versions, processors, memory, kernel cache and Ray's settings.

    Parameters
    ----------
    with_ray : bool
        Also start a private local Ray, as a run without an address does, and list what its processes listen on.
    """
    memory, cache = psutil.virtual_memory(), Path(os.environ["NUMBA_CACHE_DIR"])
    shm = Path("/dev/shm")
    facts: dict[str, Any] = {
        "raydt": raydt.__version__,
        "sources": str(Path(raydt.__file__).parent),
        "platform": platform.platform(),
        **versions(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "shm_free_bytes": shutil.disk_usage(shm).free if shm.is_dir() else None,
        "numba_cache_dir": str(cache),
        "numba_cache_writable": _writable(cache),
        "ray_address": os.environ.get("RAY_ADDRESS"),
        "ray_auth_mode": os.environ.get("RAY_AUTH_MODE", "not set (a private local Ray uses a token)"),
    }
    if with_ray:
        facts |= _local_ray()
    return facts


def _local_ray() -> dict[str, Any]:
    from actors.cluster import connect

    before = {process.pid for process in psutil.process_iter()}
    cluster = connect("local", [{"CPU": 1.0}])
    try:
        ours = [process for process in psutil.process_iter(["pid", "name"]) if process.pid not in before]
        found = [listener for process in [*ours, psutil.Process()] for listener in listeners(process)]
    finally:
        cluster.close()
    return {
        "ray_auth_mode": os.environ.get("RAY_AUTH_MODE", "not set"),
        "listeners": found,
        "reachable_listeners": sum(not listener["loopback"] for listener in found),
    }


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
            "loopback": socket.laddr.ip.startswith(_LOOPBACK),
        }
        for socket in sockets
    ]


def _writable(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)


def warm_up() -> dict[str, Any]:
    """Compile every kernel; seconds by learner, and where the cache is."""
    seconds = {}
    for name, compile_kernels in {**{k: v.warmup for k, v in learners().items()}, "streams": warmup_streams}.items():
        began = time.perf_counter()
        compile_kernels()
        seconds[name] = time.perf_counter() - began
    return {"seconds": seconds, "numba_cache_dir": os.environ["NUMBA_CACHE_DIR"]}
