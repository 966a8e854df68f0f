"""The compiled finders: bit for bit the twin's answers and buckets; within 1 + alpha, however features are grouped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.finders.finder import Finder
from raydt.finders.scores import score_of, xlogx_table
from raydt.kernel import kernel
from raydt.sparse import hashed_groups
from tests.oracles.sparse_battery import differences, tallies
from tests.sparse_streams import Event, sparse_stream, sparse_streams

ALPHAS = (0.05, 0.1, 0.5, 2.0)


@kernel
def _score(entropy: bool, table: Any, n: int, c1: int, n1: int, c11: int) -> float:
    return score_of(entropy, table, n, c1, n1, c11)


class Compiled:
    """A compiled finder, a row at a time; now and then it is saved and restored."""

    def __init__(self, name: str, alpha: float, entropy: bool, groups: int = 1, restored_every: int = 0) -> None:
        self.finder, self.groups, self.entropy = Finder(name, entropy, alpha, groups), groups, entropy
        self.new = lambda: Finder(name, entropy, alpha, groups)
        self.every, self.steps = restored_every, 0
        self.answer: tuple[int, float] = (-1, 0.0)

    def add(self, row: Sequence[int], y: int) -> None:
        self._take(row, y, 1)

    def remove(self, row: Sequence[int], y: int) -> None:
        self._take(row, y, -1)

    def _take(self, row: Sequence[int], y: int, sign: int) -> None:
        self.steps += 1
        if self.every and self.steps % self.every == 0:
            states, old = [self.finder.state(g) for g in range(self.groups)], self.finder
            self.finder = self.new()
            self.finder.restore(old.n, old.c1, states)
        feature = np.array(sorted(row), dtype=np.int32)
        unit = hashed_groups(feature, self.groups).astype(np.int32)
        where = np.array([0, len(feature)]), feature, unit
        found = self.finder.apply(np.array([sign], np.int8), np.array([y], np.int8), *where, np.array([True]))[0]
        n, c1 = self.finder.n, self.finder.c1
        table = xlogx_table(n)
        whole = float(_score(self.entropy, table, n, c1, 0, 0)) if n else 0.0
        candidates = [
            (float(_score(self.entropy, table, n, c1, n1, c11)), j) for j, n1, c11 in found.tolist() if j >= 0
        ]
        score, best = min(candidates, default=(whole, -1))
        self.answer = best, score

    def best(self) -> tuple[int, float]:
        return self.answer


class Reporting(Compiled):
    """With its buckets."""

    @property
    def bucket(self) -> dict[int, int]:
        states = [self.finder.state(g) for g in range(self.groups)]
        return {
            j: k for state in states for j, k in zip(state["feature"].tolist(), state["bucket"].tolist(), strict=True)
        }


STREAMS = [sparse_stream(seed) for seed in range(12)]


@pytest.mark.parametrize(("name", "alpha"), [*product(("updgini", "updent"), ALPHAS)])
def test_answers_and_buckets_are_the_twins(name: str, alpha: float) -> None:
    assert differences(name, alpha, lambda: Reporting(name, alpha, name == "updent"), STREAMS[:6]) == []
    assert differences(name, alpha, lambda: Reporting(name, alpha, name == "updent", 1, 7), STREAMS[6:]) == []


@given(st.sampled_from(["updgini", "updent"]), st.sampled_from([0.01, 0.3, 10.0]), sparse_streams())
def test_short_streams(name: str, alpha: float, stream: list[Event]) -> None:
    assert differences(name, alpha, lambda: Reporting(name, alpha, name == "updent"), [stream]) == []


@pytest.mark.parametrize(("name", "alpha"), [*product(("updgini", "updent"), (0.1, 2.0))])
def test_groups_and_scan_keep_the_guarantee(name: str, alpha: float) -> None:
    entropy = name == "updent"
    makes = {
        "groups": lambda: Compiled(name, alpha, entropy, groups=5),
        "scan": lambda: Compiled("scan", alpha, entropy, groups=3),
    }
    found = tallies(name, alpha, makes, STREAMS)
    for tally in found.values():
        assert (tally.violations, tally.misreported) == (0, 0)
        assert tally.nonzero > 1000
    assert found["scan"].suboptimal == 0
