"""A digest that follows what changed is that of a slow twin, after rests, copies, saved states and interrupts."""

from __future__ import annotations

import copy
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from raydt.errors import HalfAppliedError
from raydt.examples.updates import DELETE, INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.forest import trees
from raydt.learners.gbdt import model
from raydt.sessions.session import InProcessSession
from tests.oracles.digests import gbdt_digest
from tests.oracles.forest import Forest, Rules

#: Columns, classes, and updates of the warm-up.
WIDTH, CLASSES, WARMUP = 3, 3, 40
OPTIONS = {
    "forest": {"n_estimators": 6, "max_depth": 4, "min_samples_split": 3, "max_features": 2, "thresholds": 2},
    # 70 iterations of three trees each: several parts of the ledger, the last one not full.
    "gbdt": {"max_iter": 70, "max_leaf_nodes": 4},
}


class Model:
    """A session whose digests are those of a twin."""

    def __init__(self, kind: str, seed: int) -> None:
        self.learner, self.draws = learners()[kind], np.random.default_rng(seed)
        self.options = self.learner.Options(**OPTIONS[kind])
        self.features = Features(tuple("abc"), (False,) * WIDTH, 2)
        self.session = self.new()
        self.rows: dict[int, tuple[tuple[float, ...], int]] = {}  # that live, in the order of their births
        self.seq = self.next_id = 0

    def new(self) -> InProcessSession:
        return InProcessSession(self.learner, self.options, self.features, 1)

    def batch(self, n: int) -> UpdateBatch:
        """Draw updates, and count them among the rows."""
        op, ids, X, y = [], [], [], []
        for _ in range(n):
            if self.seq and self.rows and self.draws.random() < 0.5:
                op.append(DELETE)
                ids.append(int(self.draws.choice([*self.rows])))
                del self.rows[ids[-1]]
                continue
            row = tuple(self.draws.integers(0, 6, WIDTH).astype(float).tolist())
            op.append(INSERT)
            ids.append(self.next_id)
            X.append(row)
            y.append(int(row[0] + self.draws.integers(0, 2)) % CLASSES)
            self.rows[ids[-1]], self.next_id = (row, y[-1]), self.next_id + 1
        start, self.seq = self.seq, self.seq + n
        values, codes = np.array(X).reshape(-1, WIDTH), np.array(y, dtype=np.int32)
        return UpdateBatch(
            start, np.array(op, dtype=np.int8), np.array(ids), values, codes, CLASSES, np.full(n, -1), WARMUP
        )

    def expected(self, former: bool) -> str:
        """The twin's digest."""
        if self.learner.kind == "gbdt":
            return gbdt_digest(self.session.state()[0], former)
        rules = Rules((False,) * WIDTH, T=6, max_depth=4, min_samples_split=3)
        return Forest(rules, {number: (row, float(y), Fraction(1)) for number, (row, y) in self.rows.items()}).digest(
            former
        )

    def check(self) -> None:
        for former in (False, self.draws.random() < 0.3):
            assert self.session.digest(former) == self.expected(former), self.seq

    # ---------------------------------------------------------------- what comes between

    def update(self) -> None:
        self.session.apply(self.batch(int(self.draws.integers(1, 9))))

    def rest(self) -> None:
        self.session.rest()

    def trim(self) -> None:
        self.session.coordinator.trim()

    def duplicate(self) -> None:
        self.session = copy.deepcopy(self.session)

    def reload(self) -> None:
        state, groups = self.session.state()
        self.session = self.new()
        self.session.restore(state, groups)

    def broken_digest(self) -> None:
        """Interrupt a digest before, or behind, one of the steps that hash something."""
        places = (
            [(trees, "hash_changed")]
            if self.learner.kind == "forest"
            else [(model, "_hash_trees"), (model, "_hash_ledger")]
        )
        module, name = places[int(self.draws.integers(len(places)))]
        real, behind = getattr(module, name), self.draws.random() < 0.5

        def broken(*arguments: Any) -> None:
            if behind:
                real(*arguments)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):  # no ledger may have changed
            patch.setattr(module, name, broken)
            self.session.digest()

    def broken_update(self) -> None:
        """Interrupt an update: the model is refused, and goes on from its last state."""
        state, rows, seq, driver = self.session.state(), dict(self.rows), self.seq, self.session.driver

        def broken(exchange: Any) -> None:
            type(driver).run(driver, exchange)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(driver, "run", broken)
            with pytest.raises(KeyboardInterrupt):
                self.session.apply(self.batch(6))
        with pytest.raises(HalfAppliedError):
            self.session.digest()
        self.rows, self.seq, self.session = rows, seq, self.new()
        self.session.restore(*state)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_digest_follows_what_changed(kind: str, seed: int) -> None:
    one = Model(kind, seed)
    one.session.apply(one.batch(WARMUP))
    one.check()
    between = (one.rest, one.trim, one.duplicate, one.reload, one.broken_digest, one.broken_update)
    for step in range(24):
        one.update()
        if one.draws.random() < 0.6:
            between[(step + int(one.draws.integers(len(between)))) % len(between)]()
        if one.draws.random() < 0.8:
            one.check()
    one.session.finish()
    one.check()
