"""The counts that learners predict of their messages are those that machines of the simulator exchange."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt.arrays.sparse import SparseRows
from raydt.examples.features import Features
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.exchange.driver import Traffic
from raydt.exchange.messages import Exchange, in_requests
from raydt.exchange.shard import FeatureShard
from raydt.learners.base import WorkPlan
from tests.cases import CASES, Trial, every_case
from tests.simulation.machines import CoordinatorMachine, Message, ShardMachine

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from costs import COSTS
from costs.counts import Cost, Costs, Machine, Rates, Shape, Sizes, seconds

ROWS, BATCH, COLUMNS, WIDTH = 3000, 512, 6, 40


@dataclass
class Counts:
    """What a quiet simulation has counted; ``time`` is logical: a message takes one unit each way."""

    rounds: int = 0
    sent: int = 0
    received: int = 0
    time: int = 0


class Quiet:
    """Machines of the simulator on a network that loses nothing: each message arrives one unit of time later."""

    def __init__(self, trial: Trial, shards: int) -> None:
        features, options = features_of(trial), trial.options
        self.counts, self._queue, self._now = Counts(), deque[tuple[int, Message]](), 0
        plan = WorkPlan(0, 0, shared_store=False)
        coordinator = trial.learner.coordinator(options, features, shards, plan)
        self.machine = CoordinatorMachine(1, coordinator, shards, self._post, lambda machine, seq: None)
        self.shards = []
        for index, groups in enumerate(features.assign(shards)):
            shard = FeatureShard(trial.learner.shard(options, features, groups), index)
            shard.begin_epoch(1)
            self.shards.append(ShardMachine(index, 1, shard))

    def _post(self, message: Message) -> None:
        self._queue.append((self._now + 1, message))

    def run(self, exchange: Exchange[Any]) -> Any:
        """Run an exchange to its end."""
        results: list[Any] = []
        self.machine.run(in_requests(exchange), results.append)
        while self._queue:
            self._now, message = self._queue.popleft()
            if message.method is None:
                self.counts.received += size_of(message.content)
                self.machine.receive(message)
            else:
                self.counts.sent += size_of(message.content)
                (answer,) = self.shards[message.shard].receive(message, pytest.fail)
                self._post(answer)
        self.counts.rounds, self.counts.time = self.machine.seq, self._now
        return results[0]

    def apply(self, batches: list[UpdateBatch]) -> Counts:
        """Apply batches; what they took."""
        before = replace(self.counts)
        for batch in batches:
            self.run(self.machine.coordinator.process(batch))
        return Counts(*(getattr(self.counts, name) - getattr(before, name) for name in vars(before)))


def size_of(content: Any) -> int:
    traffic = Traffic()
    traffic.count(content)
    return traffic.bytes


def features_of(trial: Trial) -> Features:
    names = tuple("abcdef") if trial.case.dense else ()
    categorical = tuple(name == "f" for name in names)
    return Features(names, categorical, groups=trial.options.feature_groups, sparse=WIDTH * trial.case.sparse)


def rows_of(trial: Trial, n: int) -> tuple[Any, Any, SparseRows | None]:
    """Features, labels and ones of rows."""
    draw, case = np.random.default_rng(3), trial.case
    X = draw.integers(0, 50, (n, COLUMNS)).astype(np.float64)
    X[:, 5] = draw.integers(0, 3, n)
    score = X[:, 0] + X[:, 1] + draw.normal(0, 10, n)
    y = np.digitize(score, [50.0] if case.classes == 2 else [40.0, 60.0]).astype(np.int32)
    sparse = None
    if case.sparse:
        indices = np.sort(draw.permuted(np.tile(np.arange(WIDTH, dtype=np.int32), (n, 1)), axis=1)[:, :3], axis=1)
        sparse = SparseRows.of_lengths(np.full(n, 3), np.ascontiguousarray(indices.ravel()), WIDTH)
        y = ((indices < WIDTH // 3).sum(axis=1) > 1).astype(np.int32) if case.classes == 2 else y
    target = y if case.classes else score
    return np.ascontiguousarray(X if case.dense else X[:, :0]), target, sparse


def first_batches(trial: Trial) -> list[UpdateBatch]:
    """A warm-up of all rows, in batches."""
    X, y, sparse = rows_of(trial, ROWS)
    parts = [np.arange(begin, min(begin + BATCH, ROWS)) for begin in range(0, ROWS, BATCH)]
    return [
        UpdateBatch(
            int(part[0]),
            np.full(len(part), INSERT, dtype=np.int8),
            part,
            X[part],
            y[part],
            trial.case.classes,
            np.full(len(part), -1),
            ROWS,
            sparse=None if sparse is None else sparse[part],
        )
        for part in parts
    ]


def next_batch(trial: Trial) -> UpdateBatch:
    """Rows are deleted and inserted again under other ids."""
    X, y, sparse = rows_of(trial, ROWS)
    half = np.arange(BATCH // 2)
    ids = np.stack([half, ROWS + half], axis=1).ravel()
    op = np.tile(np.array([DELETE, INSERT], dtype=np.int8), BATCH // 2)
    ones = None if sparse is None else sparse[half]
    return UpdateBatch(ROWS, op, ids, X[half], y[half], trial.case.classes, np.full(BATCH, -1), ROWS, sparse=ones)


def sizes_of(trial: Trial, shards: int) -> Sizes:
    features = features_of(trial)
    groups = sum(len(features.group_columns(g)) > 0 for g in range(features.groups)) or features.groups
    return Sizes(ROWS, len(features.names), 3.0 * trial.case.sparse, trial.case.classes, groups, shards, BATCH)


def shape_of(costs: Costs, sizes: Sizes, counted: Counts, nodes: int) -> Shape:
    """The shape of the model that was built: its levels from the rounds, its depth from the bytes to one shard."""

    def cost(levels: int, depth: float) -> Cost:
        return costs.first_model(sizes, Shape(levels, depth, nodes))

    levels = (counted.rounds - cost(0, 1.0).rounds) // per_level(costs, sizes)
    slope = cost(levels, 2.0).sent - cost(levels, 1.0).sent
    depth = 1.0 if not slope else 1 + (counted.sent - cost(levels, 1.0).sent) / slope
    return Shape(levels, depth, nodes)


def per_level(costs: Costs, sizes: Sizes) -> int:
    """Rounds of a level; at least 1."""
    flat, deep = (costs.first_model(sizes, Shape(levels, 1.0, 3)).rounds for levels in (0, 1))
    return max(1, deep - flat)


@every_case("rounds and bytes of messages")
def test_the_counts_are_those_of_the_simulator(trial: Trial) -> None:
    """The shape of the model is that of one shard; with more, rounds and bytes of the same model follow from it.

    What is sent is exact but for the rows of whole trees, which lie unevenly. What is received has parts whose number
    is an estimate: answers to checks, sums of leaves.
    """
    if trial.learner.kind not in COSTS:
        assert not trial.shipped
        return
    costs = COSTS[trial.learner.kind](trial.options)
    alone = Quiet(trial, 1)
    one, sizes = alone.apply(first_batches(trial)), sizes_of(trial, 1)
    shape = shape_of(costs, sizes, one, alone.machine.coordinator.statistics()["nodes"])
    expected = costs.first_model(sizes, shape)
    assert 0.6 * one.received <= expected.received <= 1.6 * one.received
    for shards in (2, 3):
        quiet, sizes = Quiet(trial, shards), sizes_of(trial, shards)
        counted, predicted = quiet.apply(first_batches(trial)), costs.first_model(sizes, shape)
        assert counted.rounds == one.rounds
        assert counted.time == 2 * counted.rounds
        assert 0 <= counted.rounds - predicted.rounds < per_level(costs, sizes)
        assert predicted.sent == pytest.approx(counted.sent, rel=0.06)
        grown = predicted.received - expected.received
        assert grown == pytest.approx(counted.received - one.received, rel=0.6, abs=0.03 * counted.received)
        counted, predicted = quiet.apply([next_batch(trial)]), costs.batch(sizes, shape)
        assert predicted.rounds <= counted.rounds
        assert predicted.sent <= counted.sent
        assert predicted.received <= 1.02 * counted.received


def test_a_forest_of_more_shards_sends_every_row_to_each_of_them() -> None:
    """What does not scale shows in the counts: a batch costs the coordinator more bytes with every shard."""
    trial = next(trial for trial in CASES if trial.learner.traits(trial.options).divided == "always")
    costs, sizes = COSTS[trial.learner.kind](trial.options), sizes_of(trial, 1)
    shape = costs.shape(ROWS)
    sent = [costs.batch(replace(sizes, shards=shards), shape).sent for shards in (4, 16, 64, 256)]
    assert [round(b / a) for a, b in itertools.pairwise(sent)] == [4, 4, 4]


def test_seconds_are_counts_times_rates() -> None:
    cost, rates, machine = Cost(10, 1000, 500, 4e6, 1000.0), Rates(5e-7, 1e-6, 1e-5, 2e-5), Machine(1e-3, 1e-4, 1e-6)
    assert seconds(cost, 1, rates, machine) == pytest.approx(2)  # one process sends nothing
    assert seconds(cost, 4, rates, machine) == pytest.approx(1 + 0.03 + 10 * 1.3e-3 + 1500e-6)
