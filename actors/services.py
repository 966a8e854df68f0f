"""A private Ray without the services that nobody asks anything of: they take more than half of ``ray.init``.

Invariant: this decides how long a start takes, and nothing else. Ray's functions are replaced only while a private Ray
starts; where a version of Ray has them under other names or with other parameters, they are left alone.

Not started are the autoscaler (the only node is here), the log monitor (it prints the output of workers at the driver,
which a job does not want) and, with its web server, the dashboard. Its only module here reports usage: nothing is
reported of a private Ray, also where ``RAY_USAGE_STATS_ENABLED`` is 1. The agent of the node loads what Ray without
``[default]`` has. And the driver asks every 20 ms whether the node is there, not every second.
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
