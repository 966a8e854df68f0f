"""Answers while a run learns: its newest snapshot is read in the background, and rows are predicted over HTTP.

Invariant: an answer is made by one model, whose digest it names, and equals what ``raydt predict`` gives for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """Return a module: each is imported when it is asked for."""
    if name not in ("application", "served"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
