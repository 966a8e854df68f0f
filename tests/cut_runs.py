"""Runs to which something happens at a point that they pass, such as the death of their driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines import replay
from raydt.exchange.messages import injected

Handler = Callable[[str], None]


class Gone(BaseException):
    """The driver is no more."""


def gone() -> None:
    """End the driver here."""
    raise Gone


def at(n: int, act: Callable[[], object] = gone, point: str = "driver.recorded") -> Handler:
    """Return a handler that does something, by default end the driver, at the n-th pass through a point."""
    passed = iter(range(1, 10**6))

    def handler(name: str) -> None:
        if name == point and next(passed) == n:
            act()

    return handler


def cut(config: dict[str, Any], run: Path, n: int, point: str = "driver.recorded") -> Path:
    """Replay a job until its driver is gone."""
    with injected(at(n, point=point)), pytest.raises(Gone):
        replay(config, run)
    return run
