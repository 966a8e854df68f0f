"""After any updates the forest is its slow twin, which is built from nothing on the live examples: digests are equal.

Sequences are random, adversarial (near-ties that alternate), adaptive to the model, they delete and insert again, and
permute insertions; shards, batches, where the trees are seen, restores, and eager or lazy rebuilding are drawn, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.examples.features import Features
from raydt.examples.updates import DELETE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from tests import volume
from tests.oracles.forest import Forest, Rules
from tests.volume import examples

pytestmark = pytest.mark.timeout(3000)

LEARNER = learners()["forest"]
#: Sequences of updates that each drawn example takes: 10,000 in nightly runs, 500 in every run.
SEQUENCES = 10 if volume.nightly else 2
Update = tuple[int, int, tuple[float, ...], float]


class Run:
    """A session with a forest, and its twin."""

    def __init__(self, draws: np.random.Generator, numeric: bool, missing: bool) -> None:
        self.draws, self.missing = draws, missing
        d = int(draws.integers(1, 5))
        categorical = tuple(bool(c) for c in draws.random(d) < 0.4)
        T = int(draws.integers(1, 6))
        self.rules = Rules(
            categorical,
            T,
            float(draws.choice([0.1, 0.3, 0.5, 1.0])),
            int(draws.integers(1, d + 1)),
            int(draws.integers(1, 4)),
            int(draws.choice([0, 1, 3, 20, 90])),
            int(draws.integers(2, 6)),
            int(draws.integers(-3, 3)),
            numeric,
        )
        r = self.rules
        self.options = LEARNER.Options(
            n_estimators=T,
            sample_share=r.q,
            max_features=r.P,
            thresholds=r.S,
            max_depth=r.max_depth,
            min_samples_split=r.min_samples_split,
            random_state=r.seed,
            criterion="squared_error" if numeric else "gini",
            rebuild=str(draws.choice(["eager", "lazy"])),
        )
        self.features = Features(tuple(f"x{j}" for j in range(d)), categorical, int(draws.integers(1, 4)))
        self.shards, self.shared = int(draws.integers(1, 4)), bool(draws.random() < 0.5)
        self.twin, self.seq = Forest(self.rules), 0
        self.classes = 1
        self.session = self.fresh()

    def fresh(self) -> InProcessSession:
        """A session without examples."""
        plan = WorkPlan(shared_store=self.shared)
        session = InProcessSession(LEARNER, self.options, self.features, self.shards, plan)
        session.coordinator.keeps_open = bool(self.draws.random() < 0.5)  # type: ignore[attr-defined]
        return session

    def restart(self) -> None:
        """Go on with another session, from the state of this one."""
        state = self.session.state()
        self.shards = int(self.draws.integers(1, 4))
        self.session = self.fresh()
        self.session.restore(*state)

    def row(self) -> tuple[float, ...]:
        """Features with few distinct values, or many, or missing ones, or large ones."""
        x = []
        for category in self.rules.categorical:
            kind = self.draws.random()
            value = float(self.draws.integers(0, 4))
            if self.missing and kind < 0.15:
                value = -1.0 if category else np.nan
            elif not category and kind > 0.8:
                value = float(self.draws.normal() * 10.0 ** self.draws.integers(-3, 200))
            x.append(value + 0.0)
        return tuple(x)

    def label(self) -> float:
        """Of few classes, or a number."""
        if self.rules.numeric:
            return float(self.draws.choice([0.0, -1.5, 1.25, 1e-3, 7.0, -1000.0]))
        return float(self.draws.integers(0, int(self.draws.integers(1, 4))))

    def apply(self, updates: list[Update], check: bool = True) -> None:
        """Apply updates in batches; predictions are the twin's before each of them, if they are checked."""
        begin = 0
        while begin < len(updates):
            part = updates[begin : begin + int(self.draws.integers(1, 12))]
            expected = []
            for op, key, x, y in part:
                if op in (DELETE, UPDATE):
                    del self.twin.examples[key]
                expected.append(self.twin.vote(x) if check and op in (INSERT, QUERY, UPDATE) else None)
                if op in (INSERT, UPDATE):
                    self.twin.examples[key] = x, y
            result = self.session.apply(self.batch(part))
            assert not result.refused
            found = [None if e is None else p for e, p in zip(expected, result.predictions.tolist(), strict=True)]
            assert found == expected
            begin += len(part)

    def batch(self, part: list[Update]) -> UpdateBatch:
        """Updates as a learner takes them."""
        op = np.array([update[0] for update in part], dtype=np.int8)
        rows = [update for update in part if update[0] != DELETE]
        self.classes = max([self.classes, *(int(row[3]) + 1 for row in rows)])
        dtype = np.float64 if self.rules.numeric else np.int32
        X = np.array([row[2] for row in rows], dtype=np.float64).reshape(len(rows), len(self.features))
        ids, y = (np.array(column) for column in ([u[1] for u in part], [row[3] for row in rows]))
        classes = 0 if self.rules.numeric else self.classes
        start, self.seq = self.seq, self.seq + len(part)
        return UpdateBatch(start, op, ids, X, y.astype(dtype), classes, np.full(len(part), -1))

    def same(self) -> None:
        """The digest is the twin's, and so are predictions before it, which leave open what they do not pass."""
        for _ in range(int(self.draws.integers(0, 3))):
            row = self.row()
            assert self.session.coordinator.predict(np.array([row]))[0] == self.twin.vote(row)
        assert self.session.digest() == self.twin.digest()

    @property
    def live(self) -> list[int]:
        """Ids of the live examples."""
        return list(self.twin.examples)

    def draw(self, ids: list[int]) -> int:
        """One of some ids."""
        return ids[int(self.draws.integers(len(ids)))]


def randomly(run: Run, n: int) -> None:
    """Any updates."""
    updates: list[Update] = []
    live = set(run.live)
    for _ in range(n):
        op = int(run.draws.choice([INSERT, INSERT, INSERT, DELETE, DELETE, UPDATE, QUERY]))
        if not live and op != QUERY:
            op = INSERT
        key = int(run.draws.integers(-(2**62), 2**62)) if op in (INSERT, QUERY) else run.draw(sorted(live))
        live |= {key} if op == INSERT else set()
        live -= {key} if op == DELETE else set()
        updates.append((op, key, run.row(), run.label()))
    run.apply(updates, check=bool(run.draws.random() < 0.3))


def near_ties(run: Run, n: int) -> None:
    """Rows come and go by turns whose features tell the label equally well, so that the best split alternates."""
    d = len(run.rules.categorical)
    keys: list[int] = []
    for i in range(n):
        x = tuple(float((i >> (j % 3)) & 1) for j in range(d))
        keys.append(10_000 + i)
        run.apply([(INSERT, keys[-1], x, float(i & 1))], check=False)
    for _ in range(n // 2):
        key = run.draw(keys)
        x, y = run.twin.examples[key]
        run.apply([(DELETE, key, (), 0.0)], check=False)
        if run.draws.random() < 0.3:
            run.same()
        run.apply([(INSERT, key, x, y)], check=False)


def adaptively(run: Run, n: int) -> None:
    """Delete what hurts: an extreme of a feature that a tree splits on, or a row next to a threshold."""
    randomly(run, n)
    for _ in range(n // 2):
        roots = [nodes[0] for nodes in run.twin.trees() if nodes[0].feature >= 0]
        if not roots or not run.live:
            return
        root = roots[int(run.draws.integers(len(roots)))]
        values = {key: run.twin.examples[key][0][root.feature] for key in run.live}
        near = {key: abs(value - root.threshold) for key, value in values.items() if value == value}
        wanted = (min, max)[int(run.draws.integers(2))]
        run.apply([(DELETE, wanted(near, key=lambda key: near[key]), (), 0.0)], check=False)


def there_and_back(run: Run, n: int) -> None:
    """Delete some examples and insert them again, in another order: the same forest."""
    randomly(run, n)
    before = run.session.digest()
    gone = [key for key in run.live if run.draws.random() < 0.5]
    rows = {key: run.twin.examples[key] for key in gone}
    run.apply([(DELETE, key, (), 0.0) for key in run.draws.permutation(gone).tolist()], check=False)
    run.same()
    run.apply([(INSERT, key, *rows[key]) for key in run.draws.permutation(gone).tolist()], check=False)
    assert run.session.digest() == before


def permuted(run: Run, n: int) -> None:
    """Insert what is live in another order into an empty forest: the same digest."""
    randomly(run, n)
    before, rows = run.session.digest(), dict(run.twin.examples)
    run.twin, run.seq, run.session = Forest(run.rules), 0, run.fresh()
    run.apply([(INSERT, key, *rows[key]) for key in run.draws.permutation(list(rows)).tolist()], check=False)
    assert run.session.digest() == before


WAYS: tuple[Any, ...] = (randomly, near_ties, adaptively, there_and_back, permuted)


@examples(1000, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_every_digest_is_that_of_a_forest_from_nothing(seed: int, numeric: bool, missing: bool) -> None:
    for sequence in range(SEQUENCES):
        draws = np.random.default_rng([seed, sequence])
        run = Run(draws, numeric, missing)
        WAYS[(seed + sequence) % len(WAYS)](run, int(draws.integers(1, 30)))
        run.same()
        if draws.random() < 0.3:
            run.restart()
            randomly(run, 5)
            run.same()
        assert run.session.coordinator.statistics()["active"] == len(run.twin.examples)
