"""Threads of the commands that read a run: as many as ``cluster.threads`` of its config says."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

from pipelines.run_folder import RunFolder
from pipelines.yaml12 import load_yaml
from raydt.errors import RaydtError
from raydt.parallel.threads import limited

P = ParamSpec("P")
R = TypeVar("R")


def within(work: Callable[P, R], context_of: Callable[[str | Path], AbstractContextManager[object]]) -> Callable[P, R]:
    """Have a function work in the context of its first argument, a place."""
    name = next(iter(inspect.signature(work).parameters))

    @functools.wraps(work)
    def work_within(*arguments: P.args, **named: P.kwargs) -> R:
        with context_of(cast("str | Path", arguments[0] if arguments else named[name])):
            return work(*arguments, **named)

    return work_within


def in_threads_of_its_run(work: Callable[P, R]) -> Callable[P, R]:
    """Have a function use the threads of the run that its first argument is, or lies in."""
    return within(work, lambda place: limited(most_threads(place)))


def most_threads(place: str | Path) -> int | None:
    """Return the most threads of a run, or of the one that a place lies in; None for no limit, or if none is known."""
    try:
        run = RunFolder.near(place)
        threads = None if run is None else load_yaml(run.read_text("config.yaml"))["cluster"]["threads"]
    except (OSError, ValueError, TypeError, LookupError, RaydtError):  # whoever needs the config says what is wrong
        return None
    return threads if isinstance(threads, int) and threads >= 1 else None
