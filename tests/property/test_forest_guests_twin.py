"""A forest of FuDyADT trees is its slow twin after any updates: digests and predictions are equal, on any shards,
batches and restores, with and without a warm-up; and the audit proves each tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.updates import DELETE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.fully_dynamic import auto_epsilon
from raydt.sessions.session import InProcessSession
from tests.oracles.forest import Rules
from tests.oracles.forest_guests import GuestForest
from tests.volume import examples

pytestmark = pytest.mark.timeout(1500)

LEARNER = learners()["forest"]
FOREVER = np.iinfo(np.int64).max


class Run:
    """A session with a forest, its twin, and the history of both."""

    def __init__(self, draws: np.random.Generator) -> None:
        self.draws = draws
        d, T = int(draws.integers(1, 6)), int(draws.integers(1, 6))
        categorical = tuple(bool(c) for c in draws.random(d) < 0.4)
        self.rules = Rules(
            categorical,
            T,
            float(draws.choice([0.1, 0.5, 1.0])),
            int(draws.integers(1, d + 1)),
            5,
            int(draws.choice([1, 3, 20])),
            int(draws.integers(2, 6)),
            int(draws.integers(-3, 3)),
        )
        self.warmup = int(draws.integers(1, 25)) if draws.random() < 0.5 else 0
        own, twin = self._trees()
        self.twin = GuestForest(self.rules, self.warmup, **twin)
        r = self.rules
        self.options = LEARNER.Options(
            trees="fudyadt",
            tree_options=own,
            n_estimators=T,
            sample_share=r.q,
            max_features=r.P,
            max_depth=r.max_depth,
            min_samples_split=r.min_samples_split,
            random_state=r.seed,
        )
        self.features = Features(tuple(f"x{j}" for j in range(d)), categorical, int(draws.integers(1, 4)))
        self.seq, self.classes = 0, 2
        self.ever: list[list[Any]] = []
        self.session = self.fresh()

    def _trees(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Options of the trees, as the forest and as the twin takes them."""
        if self.draws.random() < 0.3:
            epsilon = float(self.draws.choice([0.0, 0.3, 2.0]))
            return {"epsilon": epsilon, "alpha": 0.0, "beta": 0.0}, {"epsilon": epsilon}
        alpha, beta = float(self.draws.choice([0.01, 0.3])), float(self.draws.choice([0.02, 0.3]))
        own = {"alpha": alpha, "beta": beta}
        epsilon = auto_epsilon(alpha, beta, self.rules.min_samples_split)
        if self.draws.random() < 0.3:
            return own | {"schedule": "published"}, {"epsilon": epsilon, "alpha": alpha}
        return own, {"epsilon": epsilon, "alpha": alpha, "certificate": beta}

    def fresh(self) -> InProcessSession:
        """A session without examples."""
        plan = WorkPlan(shared_store=bool(self.draws.random() < 0.5))
        return InProcessSession(LEARNER, self.options, self.features, int(self.draws.integers(1, 4)), plan)

    def restart(self) -> None:
        """Continue with another session, from the state of this one."""
        state = self.session.state()
        self.session = self.fresh()
        self.session.restore(*state)

    def row(self) -> tuple[float, ...]:
        """Few distinct values, so that splits tie, or many."""
        many = self.draws.random() < 0.3
        values = self.draws.normal(size=len(self.rules.categorical)) if many else self.draws.integers(0, 3, 99)
        return tuple(
            float(int(abs(v)) if category else v) for v, category in zip(values, self.rules.categorical, strict=False)
        )

    def updates(self, n: int) -> None:
        """Draw and apply updates in batches; every prediction is the twin's."""
        while n > 0:
            size = int(self.draws.integers(1, 12))
            ops, ids, X, y, expected = [], [], [], [], []
            for _ in range(size):
                live = sorted(self.twin.live)
                op = int(self.draws.choice([INSERT, INSERT, DELETE, DELETE, UPDATE, QUERY])) if live else INSERT
                key = (
                    int(self.draws.integers(-(2**62), 2**62))
                    if op in (INSERT, QUERY)
                    else live[self.draws.integers(len(live))]
                )
                x, label = self.row(), int(self.draws.integers(0, int(self.draws.integers(1, 5))))
                self.classes = max(self.classes, label + 1)
                ops.append(op)
                ids.append(key)
                if op != DELETE:
                    X.append(x)
                    y.append(label)
                expected.append(self.take(op, key, x, label))
            batch = UpdateBatch(
                self.seq,
                np.array(ops, dtype=np.int8),
                np.array(ids),
                np.array(X, dtype=np.float64).reshape(len(X), len(self.features)),
                np.array(y, dtype=np.int32),
                self.classes,
                np.full(size, -1),
                self.warmup,
            )
            result = self.session.apply(batch)
            assert not result.refused
            found = result.predictions.tolist()
            assert [None if e is None else p for e, p in zip(expected, found, strict=True)] == expected
            self.seq += size
            n -= size

    def take(self, op: int, key: int, x: tuple[float, ...], label: int) -> int | None:
        """One update of the twin and of the history; the prediction before an insertion, where there is one."""
        self.twin.step()
        self.twin.know(self.classes)
        seq = self.twin.seq - 1
        if op in (DELETE, UPDATE):
            self.twin.delete(key, first_half=op == UPDATE)
            next(entry for entry in reversed(self.ever) if entry[0] == key)[4] = seq
        predicted = None if op == DELETE or seq < self.warmup else self.twin.predict(x)
        if op in (INSERT, UPDATE):
            self.twin.insert(key, x, label)
            self.ever.append([key, x, label, seq, FOREVER])
        return predicted

    def same(self) -> None:
        """The digest is the twin's."""
        assert self.session.digest() == self.twin.digest()

    def audited(self) -> None:
        """The audit finds nothing, and proves what the options promise."""
        ids, X, y, inserted, deleted = zip(*self.ever, strict=True)
        history = History(
            np.array(ids),
            np.array(X, dtype=np.float64),
            np.array(y, dtype=np.int32),
            np.array(inserted),
            np.array(deleted),
            self.warmup,
        )
        state, groups = self.session.state()
        report = LEARNER.audit(self.options, self.features, state, history, groups)
        assert report.conformance == "holds", report.failures[:3]
        assert report.feasibility == ("proven" if self.options.promise().promised else "not_promised")


@examples(200, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_digest_and_prediction_is_the_twins(seed: int) -> None:
    run = Run(np.random.default_rng(seed))
    run.updates(int(run.draws.integers(1, 40)))
    run.same()
    if run.draws.random() < 0.5:
        run.restart()
        run.same()
    run.updates(int(run.draws.integers(1, 40)))
    run.same()
    if run.seq < run.warmup:
        run.session.finish()
        run.twin.finish()
        run.warmup = run.seq
        run.same()
    run.audited()
