"""A private Ray without the services that nobody asks anything of: they take more than half of its start.

Invariant: this decides how long a start takes, and nothing else. Ray's functions are replaced only while a private Ray
starts; where a version of Ray has them under other names or with other parameters, they are left alone.

Not started are the autoscaler (the only node is here), the log monitor (it prints the output of workers at the driver,
which a job does not want) and, with its web server, the dashboard (whose only module here reports usage, which is
switched off). The agent of the node loads what Ray without ``[default]`` has. And the driver asks every 20 ms whether
the node is there, not every second.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

#: Seconds between two questions whether the node is there, and until Ray's own way of asking is taken.
_ASK_SECONDS, _WAIT_SECONDS = 0.02, 20.0


@contextlib.contextmanager
def without_idle_services(*, metrics: bool) -> Iterator[None]:
    """A Ray that starts inside the block has only its head, its raylet and the agents of its node.

    Parameters
    ----------
    metrics : bool
        It serves metrics, for which its agent needs everything that it can load.
    """
    replacements: list[tuple[str, str, str, tuple[str, ...], Callable[..., Any]]] = [
        ("parameter", "RayParams", "__init__", ("no_monitor", "include_log_monitor"), _without_monitors),
        ("node", "Node", "start_api_server", ("include_dashboard", "raise_on_failure"), _without_dashboard),
        ("services", "", "get_node", ("gcs_address", "node_id"), _as_soon_as_it_is_there),
    ]
    if not metrics:
        replacements.append(("utils", "", "get_dashboard_dependency_error", (), _small_agent))
    with contextlib.ExitStack() as restoring:
        for module, kind, name, parameters, replacement in replacements:
            with contextlib.suppress(AttributeError, ImportError, TypeError, ValueError):
                owner = importlib.import_module(f"ray._private.{module}")
                owner = getattr(owner, kind) if kind else owner
                original = getattr(owner, name)
                if {*parameters} <= inspect.signature(original).parameters.keys():
                    restoring.callback(setattr, owner, name, original)
                    setattr(owner, name, functools.wraps(original)(replacement(original)))
        yield


def _without_monitors(init: Callable[..., None]) -> Callable[..., None]:
    def replacement(parameters: Any, *given: Any, **named: Any) -> None:
        init(parameters, *given, **{**named, "no_monitor": True, "include_log_monitor": False})

    return replacement


def _without_dashboard(start: Callable[..., None]) -> Callable[..., None]:
    def replacement(node: Any, **named: Any) -> None:
        node._webui_url = ""

    return replacement


def _small_agent(error: Callable[[], ImportError | None]) -> Callable[[], ImportError | None]:
    return lambda: ImportError("a private Ray has no dashboard")


def _as_soon_as_it_is_there(get_node: Callable[..., Any]) -> Callable[..., Any]:
    def replacement(gcs_address: str, node_id: str) -> Any:
        import ray

        compiled: Any = ray._raylet
        with contextlib.suppress(Exception):  # Ray itself asks next, and says what is wrong
            head, until = compiled.GcsClient(address=gcs_address), time.monotonic() + _WAIT_SECONDS
            while not head.get_all_node_info() and time.monotonic() < until:
                time.sleep(_ASK_SECONDS)
        return get_node(gcs_address, node_id)

    return replacement
