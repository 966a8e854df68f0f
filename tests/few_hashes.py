"""Sets of deleted ids that keep few hashes in memory and have a small filter, as those of long runs do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import pipelines.running.requests


@contextmanager
def few_in_memory(recent: int = 1, bits: int = 5) -> Iterator[None]:
    """Keep ``recent`` hashes in memory, and have a filter of 2 to the power of ``bits`` bits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelines.running.requests, "_RECENT", recent)
        patch.setattr(pipelines.running.requests, "_BITS", bits)
        yield
