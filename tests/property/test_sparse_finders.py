"""The compiled finders: bit for bit the twin's answers and buckets; within 1 + alpha, however features are grouped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.arrays.blocks import hashed_groups
from raydt.arrays.kernel import kernel
from raydt.finders import finder as finder_module
from raydt.finders import pool as pool_module
from raydt.finders.finder import Finder, FinderSteps, score_of, scores_of, xlogx_table
from tests.oracles.sparse_battery import differences, tallies
from tests.oracles.sparse_splits import BucketTwin
from tests.sparse_streams import Event, sparse_stream, sparse_streams

pytestmark = pytest.mark.nightly

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
        steps = FinderSteps(np.array([sign], np.int8), np.array([y], np.int8), *where, np.array([True]))
        found = self.finder.apply(steps)[0]
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
#: So many answers on 48 streams have to be suboptimal, by alpha. A small alpha leaves entropy hardly any.
SUBOPTIMAL = {"updgini": (10, 30, 300, 600), "updent": (0, 0, 100, 1000)}


@pytest.mark.parametrize(("name", "alpha"), [*product(("updgini", "updent"), ALPHAS)])
def test_answers_and_buckets_are_the_twins(name: str, alpha: float) -> None:
    assert differences(name, alpha, lambda: Reporting(name, alpha, name == "updent"), STREAMS[:6]) == []
    assert differences(name, alpha, lambda: Reporting(name, alpha, name == "updent", 1, 7), STREAMS[6:]) == []


@pytest.mark.parametrize("name", ["updgini", "updent"])
def test_answers_are_the_twins_when_dead_entries_are_freed_all_the_time(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed = []

    def sweep(pool: pool_module.Pool) -> None:
        before = int(pool.reg[pool_module.LIVE])
        pool_module._sweep(pool)
        freed.append(before - int(pool.reg[pool_module.LIVE]))

    monkeypatch.setattr(finder_module, "free_dead", sweep)
    assert differences(name, 0.1, lambda: Reporting(name, 0.1, name == "updent"), STREAMS[:6]) == []
    assert sum(freed) > 100


@given(st.sampled_from(["updgini", "updent"]), st.sampled_from([0.01, 0.3, 10.0]), sparse_streams())
def test_short_streams(name: str, alpha: float, stream: list[Event]) -> None:
    assert differences(name, alpha, lambda: Reporting(name, alpha, name == "updent"), [stream]) == []
    (tally,) = tallies(name, alpha, {"twin": lambda: BucketTwin(name, alpha)}, [stream]).values()
    assert (tally.violations, tally.misreported) == (0, 0)


@pytest.mark.parametrize(("name", "alpha"), [*product(("updgini", "updent"), ALPHAS)])
def test_answers_are_within_alpha_and_the_streams_could_tell(name: str, alpha: float) -> None:
    entropy = name == "updent"
    makes = {
        "one": lambda: Compiled(name, alpha, entropy),
        "groups": lambda: Compiled(name, alpha, entropy, groups=5),
        "scan": lambda: Compiled("scan", alpha, entropy, groups=3),
    }
    found = tallies(name, alpha, makes, [*STREAMS, *(sparse_stream(seed) for seed in range(12, 48))])
    for tally in found.values():
        assert (tally.violations, tally.misreported) == (0, 0)
        assert tally.states > 15_000
        assert tally.nonzero > tally.states / 2
        assert 1 <= tally.worst <= 1 + alpha
    assert found["one"].suboptimal >= SUBOPTIMAL[name][ALPHAS.index(alpha)]
    assert found["scan"].suboptimal == 0


@pytest.mark.parametrize("entropy", [False, True])
def test_scores_without_a_table_are_the_same_bits(entropy: bool) -> None:
    draws = np.random.default_rng(1)
    n = draws.integers(0, 5000, 2000)
    n1 = draws.integers(0, n + 1)
    c11 = draws.integers(0, n1 + 1)
    c1 = c11 + draws.integers(0, n - n1 + 1)
    table, found = xlogx_table(5000), np.empty(len(n))
    scores_of(entropy, 1, n, c1, n1, c11, found)
    counts = zip(n.tolist(), c1.tolist(), n1.tolist(), c11.tolist(), strict=True)
    assert found.tolist() == [_score(entropy, table, *of) if of[0] else 0.0 for of in counts]
    assert Finder("updgini", False, 0.5, 1)._table.nbytes == 8 * 1024
