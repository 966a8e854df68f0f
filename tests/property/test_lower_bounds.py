"""FuDyADT on the paper's lower-bound constructions and on streams made to hurt it.

On each: the model is the twin's, the audit proves feasibility all along, and the rows of all rebuilds stay below the
proof's upper bound and above what feasibility forces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import ceil, log2
from typing import Any

import pytest

from raydt.examples.updates import UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from tests.oracles.fudyadt import FudyadtTwin, Node, canonical, twin_with
from tests.oracles.lower_bounds import STREAMS, Pendulum
from tests.strategies import Stream

LEARNER = learners()["fudyadt"]
Options = dict[str, Any]


def session_of(stream: Stream, options: Options) -> InProcessSession:
    return InProcessSession(
        LEARNER, LEARNER.Options(**options), stream.features, 2, WorkPlan(local_work_limit=40, shared_store=False)
    )


def twin_of(stream: Stream, options: Options) -> FudyadtTwin:
    return twin_with(stream.categorical, options)


class Run:
    """A stream through session and twin: equal throughout, audited throughout, and measured.

    ``height`` is the largest height of the tree, ``size`` the largest live set, ``updates`` the insertions and
    deletions (an ``update`` is two).
    """

    def __init__(self, stream: Stream, options: Options, size: int = 7) -> None:
        self.options = options
        self.session, self.twin = session_of(stream, options), twin_of(stream, options)
        self.height = self.size = self.updates = 0
        self.results: list[tuple[UpdateBatch, list[int], list[tuple[int, int, int, int]]]] = []
        for batch in stream.batches([size]):
            result = self.session.apply(batch)
            assert result.applied == len(batch)
            self.updates += result.inserts + result.deletes
            predictions, log = self._twin_takes(stream, batch)
            where = f"updates {batch.start} to {batch.stop}"
            assert result.predictions.tolist() == predictions, where
            assert canonical(self.session.state()[0]) == self.twin.canonical(), where
            self.audit(stream, where)
            self.results.append((batch, predictions, log))
        statistics = self.session.statistics()
        assert (statistics["rebuilds"], statistics["rebuilt_rows"]) == (self.twin.rebuilds, self.twin.rebuilt_rows)

    def _twin_takes(self, stream: Stream, batch: UpdateBatch) -> tuple[list[int], list[tuple[int, int, int, int]]]:
        predictions, log = [], []
        for at in range(batch.start, batch.stop):
            result = self.twin.process(stream.batch(at, at + 1))
            predictions += result.predictions
            log += result.log
            self.size = max(self.size, len(self.twin.live))
            if result.log:
                self.height = max(self.height, height(self.twin.root))
        return predictions, log

    def audit(self, stream: Stream, where: str) -> None:
        options = LEARNER.Options(**self.options)
        state, groups = self.session.state()
        report = LEARNER.audit(options, stream.features, state, self.twin.history(), groups)
        assert (report.conformance, report.failures) == ("holds", []), where
        promised = options.alpha > 0 and options.beta > 0
        assert report.feasibility == ("proven" if promised else "not_promised"), where

    def most_rows(self) -> float:
        """The proof of the cost with its constants: rows that all rebuilds of the run can have.

        Published schedule: a rebuild of v, due to the exhausted node i at or below it, takes |S_v| <= s(v) + c(v)
        rows; s(v) <= s_hat < 2 s(i), epsilon s(i) < c(i) <= c(v); so |S_v| <= (2 / epsilon + 1) c(v). An update is
        counted in a c(v) at most once per node of its path, that is height + 1 times, and (P1) at most once per value
        of ceil(log2 s) and for s = 0. With certificates the same holds of inner nodes with epsilon_c; besides, an
        update counts for one leaf, for every pure node above it, and for k rows of a node that became too small.
        """
        epsilon, options = float(self.twin.epsilon), LEARNER.Options(**self.options)
        levels = min(self.height + 1, ceil(log2(max(2, self.size))) + 2)
        if not options.certified:
            return self.updates * (2 / epsilon + 1) * levels
        inner = (2 * (2 + options.beta) / options.beta + 1) * levels
        pure = (4 / options.alpha + 1) * (self.height + 1)
        return self.updates * (inner + 1 / epsilon + 1 + pure + options.min_samples_split - 1)

    def root_rebuilds(self) -> Iterator[list[int]]:
        """Rows of each rebuild of the root, batch by batch."""
        for _, _, log in self.results:
            yield [rows for _, rows, depth, _ in log if depth == 0]


def height(node: Node) -> int:
    deepest, waiting = 0, [(node, 0)]
    while waiting:
        v, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting += [(child, depth + 1) for child in (v.left, v.right) if child is not None]
    return deepest


# ---------------------------------------------------------------------- a root that has to change


def feature_of_root_at_turns(pendulum: Pendulum, options: Options) -> list[int]:
    session = session_of(pendulum.stream, options)
    features, begin = [], 0
    for stop, _ in pendulum.turns:
        session.apply(pendulum.stream.batch(begin, stop))
        features.append(int(session.state()[0]["feature"][0]))
        begin = stop
    return features


@pytest.mark.parametrize(
    "beta", [pytest.param(0.05, marks=pytest.mark.nightly), 0.1, pytest.param(0.2, marks=pytest.mark.nightly)]
)
def test_the_root_follows_the_pendulum_at_the_price_of_1_over_beta(beta: float) -> None:
    margin, swings = 0.01, 5
    pendulum = Pendulum(100, beta, margin, swings)
    options = {"alpha": 0.5, "beta": beta, "max_depth": 2}
    assert feature_of_root_at_turns(pendulum, options) == [feature for _, feature in pendulum.turns]
    run = Run(pendulum.stream, options, size=9)
    root = [rows for built in run.root_rebuilds() for rows in built if rows >= pendulum.n - 1]
    assert len(root) >= swings
    swinging = run.updates - pendulum.n
    assert sum(root) / swinging >= 0.9 / (2 * (beta + margin))  # 0.9: the reach is rounded to whole examples
    assert run.twin.rebuilt_rows <= run.most_rows()


# ---------------------------------------------------------------------- streams of our own


SETTINGS: dict[str, Options] = {
    "default": {"alpha": 0.1, "beta": 0.2},
    "strict": {"alpha": 0.01, "beta": 0.02, "max_depth": 3},
    "published": {"alpha": 0.1, "beta": 0.2, "schedule": "published"},
    "coarse": {"alpha": 0.5, "beta": 0.5, "min_samples_split": 5},
    "experiments": {"alpha": 0.0, "beta": 0.0, "epsilon": 0.3, "max_depth": 12},
    "lazy": {"alpha": 0.0, "beta": 0.0, "epsilon": 2.0},
}


def streams_and_settings() -> Iterator[Any]:
    """All pairs; every test run takes each stream with one setting, in turn."""
    for (i, make), (j, name) in product(enumerate(STREAMS), enumerate(SETTINGS)):
        yield pytest.param(
            make, name, id=f"{make.__name__}-{name}", marks=[] if i % len(SETTINGS) == j else pytest.mark.nightly
        )


@pytest.mark.turns(3)
@pytest.mark.parametrize(("make", "name"), list(streams_and_settings()))
def test_adversarial_streams(make: Callable[[], Stream], name: str) -> None:
    run = Run(make(), SETTINGS[name], size=11)
    assert run.twin.rebuilt_rows <= run.most_rows()
    assert run.twin.rebuilds > 0
