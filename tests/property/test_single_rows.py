"""What updates of one example keep from one to the next, in a confidence tree, is what would be made anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raydt.examples.updates import DELETE_VALUE, INSERT, QUERY, Features, UpdateBatch
from raydt.learners.confidence_tree.coordinator import SingleRows
from raydt.learners.confidence_tree.learner import LEARNER
from raydt.sessions.session import InProcessSession
from tests.volume import examples

WARMUP, CLASSES, FEATURES = 8, 4, Features(("a", "b"), (False, True))
KINDS = ("majority", "naive_bayes", "adaptive", "adaptive_normal", "adaptive_inherited")


class Rows:
    """A session of one shard, and rows that it takes one by one or in batches; more classes come with time."""

    def __init__(self, options: dict[str, Any], seed: int) -> None:
        self.session = InProcessSession(LEARNER, LEARNER.Options(**options), FEATURES)
        self.draw, self.seq, self.classes, self.live = random.Random(seed), 0, 2, list[tuple[list[float], int]]()

    def drawn(self) -> tuple[list[float], int]:
        """An example of the classes known."""
        code = self.draw.randrange(self.classes)
        return [code + round(self.draw.random() * 2, 1), float(self.draw.randrange(3))], code

    def take(self, count: int) -> None:
        """Insert examples by one batch."""
        drawn = [self.drawn() for _ in range(count)]
        self.apply(INSERT, np.array([x for x, _ in drawn]), [code for _, code in drawn])
        self.live += drawn

    def apply(self, op: int, X: Any, codes: list[int]) -> None:
        ids = np.arange(self.seq, self.seq + len(X))
        ops, none = np.full(len(X), op, dtype=np.int8), np.full(len(X), -1)
        batch = UpdateBatch(self.seq, ops, ids, X, np.array(codes, np.int32), self.classes, none, WARMUP)
        assert self.session.apply(batch).applied == len(X)
        self.seq += len(X)

    def update(self) -> None:
        """Insert one example, or delete one by its values; by a batch only if that is needed."""
        inserts = len(self.live) < 10 or self.draw.random() < 0.7
        x, code = self.drawn() if inserts else self.live.pop(self.draw.randrange(len(self.live)))
        op, row = INSERT if inserts else DELETE_VALUE, np.array([x])
        if self.session.take_row(op, self.seq, row, code) is None:
            self.apply(op, row, [code])
        else:
            self.seq += 1
        if inserts:
            self.live.append((x, code))

    def require_current(self, what: str) -> None:
        """Require that no argument is an array that was replaced, and that all have room."""
        coordinator: Any = self.session.coordinator
        worker = self.session.shards[0].worker
        kept = coordinator._single._held(worker)
        anew = SingleRows(coordinator.live, coordinator._logs, 1)._held(worker)
        assert told(kept) == told(anew), what
        assert coordinator.predict_row(np.array([self.drawn()[0]]), worker) is not None


def told(arguments: Any) -> list[Any]:
    """Which objects all arrays are; of those that are written to for one row only, shape and type."""
    naive, other = arguments[3:]
    scratch = (naive.found, naive.found_normal, naive.sums, other.codes)
    own = [(array.shape, array.dtype) for array in scratch]
    return own + [id(array) for array in flat(arguments) if not any(array is one for one in scratch)]


def flat(parts: Any) -> Iterator[Any]:
    """All that is in tuples, and in tuples in these."""
    for part in parts:
        yield from flat(part) if isinstance(part, tuple) else (part,)


@examples(12)
@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from((0, 5, 60)), st.sampled_from((1, 1008)))
def test_what_is_kept_is_what_would_be_made_anew(seed: int, kind: str, renewal: int, first: int) -> None:
    """Leaves are split and sites added, bins renewed, rows come in batches, classes are new, states are restored.

    After 1,022 examples the table of logarithms grows.
    """
    options = {"c": 0.001, "grace_period": 2, "leaf_prediction": kind, "renew_bins": renewal, "max_bins": 32}
    rows = Rows(options, seed)
    rows.take(WARMUP)
    rows.take(first)
    for i in range(60):
        what = rows.draw.random()
        if what < 0.05:
            rows.take(rows.draw.randrange(1, 20))
        elif what < 0.1:
            rows.classes = min(rows.classes + 1, CLASSES)
            rows.apply(QUERY, np.array([rows.drawn()[0]]), [-1])  # which tells of a class before it comes
        elif what < 0.12:
            rows.session.restore(*rows.session.state())
        else:
            rows.update()
        rows.require_current(f"update {i}")
    state, groups = rows.session.state()
    LEARNER.check(LEARNER.Options(**options), FEATURES, CLASSES, state, groups)
    assert len(state["feature"]) > 1
    digest = rows.session.digest()
    rows.session.restore(state, groups)
    assert rows.session.digest() == digest
