"""Environment of the processes of a job: where compiled kernels are cached, how many threads they use, their token.

Environment variables decide speed and access, never results. A variable the user has set is left alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from raydt.exchange.faults import VARIABLE


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
