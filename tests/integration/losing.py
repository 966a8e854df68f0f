"""Runs that lose a process and are then interrupted, at updates of the tables that are counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raydt.errors import ProcessLostError
from raydt.exchange.faults import injected


@contextmanager
def lost_and_interrupted(interrupted_at: int, *, lost_at: int = 12) -> Iterator[None]:
    """A shard is lost, and later the driver interrupted, which must end what runs here."""
    recorded = 0

    def strike(point: str) -> None:
        nonlocal recorded
        if point == "driver.recorded":
            recorded += 1
            if recorded == lost_at:
                raise ProcessLostError("a shard was killed")
            if recorded == interrupted_at:
                raise KeyboardInterrupt

    with injected(strike), pytest.raises(KeyboardInterrupt):
        yield
