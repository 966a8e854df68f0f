"""Prequential metrics against a loop over single examples, and against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.evaluation.classification import Prequential


def feed(metrics, pairs, sizes=None):
    truth = np.array([t for t, _ in pairs], dtype=np.int32)
    prediction = np.array([p for _, p in pairs], dtype=np.int32)
    begin = 0
    for size in sizes or [len(pairs)]:
        metrics.update(truth[begin : begin + size], prediction[begin : begin + size])
        begin += size
    return metrics


class SlowTwin:
    """One example at a time, with dictionaries."""

    def __init__(self):
        self.cells, self.seen, self.last = {}, {}, 0
        self.no_change = self.majority = 0

    def update(self, truth, prediction):
        if prediction >= 0:
            self.cells[truth, prediction] = self.cells.get((truth, prediction), 0) + 1
            self.no_change += truth == self.last
            most = max(self.seen.values(), default=0)
            leader = min((k for k, n in self.seen.items() if n == most), default=0)
            self.majority += truth == leader
        self.last = truth
        self.seen[truth] = self.seen.get(truth, 0) + 1


@given(
    pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 5)), max_size=60),
    cuts=st.lists(st.integers(0, 20), max_size=10),
)
def test_batches_equal_a_loop_over_examples(pairs, cuts):
    metrics, twin = Prequential(), SlowTwin()
    sizes = [size for size in cuts if size]
    feed(metrics, pairs, [*sizes, max(0, len(pairs) - sum(sizes))])
    for truth, prediction in pairs:
        twin.update(truth, prediction)
    assert {(int(t), int(p)): int(n) for (t, p), n in np.ndenumerate(metrics.confusion) if n} == twin.cells
    hits = metrics.snapshot()
    assert (hits.no_change, hits.majority) == (twin.no_change, twin.majority)
    assert hits.scored == sum(twin.cells.values())
    assert hits.learner == sum(n for (t, p), n in twin.cells.items() if t == p)


def test_nothing_scored_is_nan_not_zero():
    metrics = feed(Prequential(), [(0, -1)])
    assert all(math.isnan(value) for value in metrics.scores().values())
    assert all(math.isnan(share) for share in metrics.baselines().values())


def test_f1_needs_a_positive_class():
    pairs = [(0, 0), (1, 1), (2, 1)]
    assert math.isnan(feed(Prequential(), pairs).scores()["f1"])
    assert feed(Prequential(positive=True), pairs).scores()["f1"] == pytest.approx(2 / 3)
    assert feed(Prequential(), pairs[:2]).scores()["f1"] == 1.0


def test_kappa_does_not_overflow_on_long_streams():
    metrics = feed(Prequential(), [(0, 0)] * 3 + [(1, 1)] * 3 + [(0, 1), (1, 0)])
    for counts in (metrics.counts.hits, metrics.counts.classes):
        counts *= 10**10
    assert metrics.scores()["kappa"] == pytest.approx(0.5)


def test_a_window_is_what_was_scored_since_the_mark_before():
    metrics = feed(Prequential(), [(0, 0), (1, 0)])
    metrics.mark()
    feed(metrics, [(1, 1), (1, 1)])
    metrics.mark()
    rows = metrics.take_rows()
    assert rows["accuracy"].tolist() == [0.5, 0.75]
    assert rows["window_accuracy"].tolist() == [0.5, 1.0]
    assert rows["window_no_change"].tolist() == [0.5, 1.0]
    assert rows["window_majority"].tolist() == [0.5, 0.5]
    assert set(rows) == set(Prequential.columns)
    assert len(metrics.take_rows()["accuracy"]) == 0
