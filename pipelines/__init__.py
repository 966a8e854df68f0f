"""Jobs: a stream of insertions and deletions goes through a learner, and a run folder says what happened.

The names below are imported when they are first used, so that ``raydt --help`` does not load kernels and charts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from raydt.installation import claim

claim()  # before the next line, whose package may have a namesake in the working directory

from actors.cluster import set_numba_cache_dir  # noqa: E402

if TYPE_CHECKING:
    from pipelines.config import Config, load_config
    from pipelines.running.replay import RunResult, replay, resume
    from pipelines.sweeping import SweepResult, sweep
    from pipelines.training import train
    from pipelines.updating import apply_changes, update
    from pipelines.whereabouts import verify_erasure

__all__ = [
    "Config",
    "RunResult",
    "SweepResult",
    "apply_changes",
    "load_config",
    "replay",
    "resume",
    "sweep",
    "train",
    "update",
    "verify_erasure",
]

_HOMES = {
    "Config": "config",
    "load_config": "config",
    "RunResult": "running.replay",
    "replay": "running.replay",
    "resume": "running.replay",
    "train": "training",
    "update": "updating",
    "apply_changes": "updating",
    "verify_erasure": "whereabouts",
}
_HOMES |= {"SweepResult": "sweeping", "sweep": "sweeping"}

set_numba_cache_dir()  # before any kernel is imported: Numba reads it then, and actors inherit it


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pipelines' has no attribute {name!r}")
    return getattr(import_module(f"pipelines.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
