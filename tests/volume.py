"""How much a test run draws: a share of the examples in every run, all of them in nightly ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import settings

T = TypeVar("T")

#: Set by ``conftest`` for runs of ``pytest -m nightly``.
nightly = False

#: Every run draws this share of a test's examples, and at least so many.
SHARE, LEAST = 28, 3


def examples(n: int, **rest: Any) -> settings:
    """Settings of a property test that draws ``n`` examples nightly."""
    return settings(max_examples=n if nightly else min(n, max(LEAST, n // SHARE)), **rest)


def spread(items: Sequence[T], n: int) -> Sequence[T]:
    """All items nightly; otherwise at most ``n``, evenly spread and with the first."""
    return items if nightly else items[:: -(-len(items) // n) or 1]
