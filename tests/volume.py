"""How much a test run draws: a share of the examples in every run, all of them in nightly ones."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

#: Set by ``conftest`` for runs of ``pytest -m nightly``.
nightly = False

#: Every run draws this share of a test's examples, and at least so many unless a test says fewer.
SHARE, LEAST = 60, 2


def examples(n: int, least: int = LEAST, **rest: Any) -> settings:
    """Return the settings of a property test that draws ``n`` examples nightly, and at least ``least`` in each run."""
    return settings(max_examples=n if nightly else min(n, max(least, n // SHARE)), **rest)


def in_turn(name: str, cases: Sequence[Any], n: int) -> list[Any]:
    """Return whether a daily run takes each case of a test with a name: ``n`` of them, evenly spread from any on."""
    first, size = zlib.crc32(name.encode()), len(cases)
    places = {(first + i * size // n) % size for i in range(n)} if n < size else set(range(size))
    return [place in places for place in range(size)]


def spread(items: Sequence[T], n: int) -> Sequence[T]:
    """All items nightly; otherwise at most ``n``, evenly spread and with the first."""
    return items if nightly else items[:: -(-len(items) // n) or 1]


def by_night(daily: Sequence[Any], more: Sequence[Any]) -> list[Any]:
    """Parameters of a test: ``daily`` of every run, and ``more`` of nightly ones."""
    return [*daily, *(pytest.param(one, marks=pytest.mark.nightly) for one in more)]
