"""Metrics of classes and targets, with weights, and runs that are scored."""

from __future__ import annotations

import csv
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pipelines import replay, train
from raydt.evaluation.classification import Delayed, Prequential, ScoredRows
from raydt.evaluation.regression import PrequentialErrors
from raydt.evaluation.scoring import LEVELS, NO_LEVEL, levels_of
from raydt.examples.updates import CARRIES_ROW, DELETE, UNIT, UPDATE, UpdateBatch
from raydt.keyed.members import whole
from raydt.learners import learners
from raydt.sessions.session import InProcessSession, small_stream
from tests.oracles.confidence_bounds import SlowAdwin
from tests.refusals import refused
from tests.volume import examples

# -- evaluation ------------------------------------------------------------------------------------------------------
# Metrics against river on the same predictions, and against loops over the definitions of MOA and of the papers.

river_metrics = pytest.importorskip("river.metrics")
drift = pytest.importorskip("river.drift")

EXACT = 1e-12


def stream(n: int, K: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels that stay for a while, predictions that are mostly right, and scores that go with them."""
    draw = np.random.default_rng(seed)
    truth = np.repeat(draw.integers(0, K, n), draw.integers(1, 6, n))[:n].astype(np.int32)
    prediction = np.where(draw.random(n) < 0.7, truth, draw.integers(0, K, n)).astype(np.int32)
    share = np.clip(0.35 * (prediction == 1) + 0.6 * draw.random(n), 0, 1)
    return truth, prediction, np.rint(share * LEVELS).astype(np.uint16)


def rows_of(metrics, columns, edges):
    """Metrics of the stream with a mark at each edge."""
    for begin, end in pairwise(edges):
        metrics.update(*(column[begin:end] for column in columns))
        metrics.mark()
    return metrics.take_rows()


def river_value(metric, truth, prediction):
    for t, p in zip(truth.tolist(), prediction.tolist(), strict=True):
        metric.update(t, p)
    return metric.get()


EDGES = [0, 7, 250, 251, 900, 2000]


@pytest.mark.parametrize("K", [2, 4])
def test_classification_equals_river(K):
    truth, prediction, levels = stream(2000, K, K)
    rows = rows_of(Prequential(positive=K == 2), (truth, prediction, levels), EDGES)
    for k, (begin, end) in enumerate(pairwise(EDGES)):
        for prefix, part in (("", slice(0, end)), ("window_", slice(begin, end))):
            for name, metric in (("accuracy", river_metrics.Accuracy()), ("kappa", river_metrics.CohenKappa())):
                theirs, ours = river_value(metric, truth[part], prediction[part]), rows[prefix + name][k]
                # river calls the kappa of a single class 0, where chance is always right: it is undefined here.
                assert ours == pytest.approx(theirs, abs=EXACT) or (math.isnan(ours) and theirs == 0.0)
        whole = slice(0, end)
        for name, metric in (("macro_f1", river_metrics.MacroF1()), ("f1", river_metrics.F1(pos_val=1))):
            if K == 2 or name != "f1":  # without a positive class there is no F1
                theirs = river_value(metric, truth[whole], prediction[whole])
                assert rows[name][k] == pytest.approx(theirs, abs=EXACT)


@pytest.mark.parametrize("ties", [False, True])
def test_auc_equals_scikit_learn_and_without_ties_river(ties):
    """Of examples with one score, river's AUC counts some pairs otherwise than one half."""
    truth, prediction, levels = stream(2000, 2, 1)
    if not ties:
        levels = (2 * np.argsort(np.argsort(levels, kind="stable"))).astype(np.uint16)
    rows = rows_of(Prequential(positive=True), (truth, prediction, levels), EDGES)
    for k, (begin, end) in enumerate(pairwise(EDGES)):
        for name, part in (("auc", slice(0, end)), ("window_auc", slice(begin, end))):
            if len(set(truth[part].tolist())) < 2:
                assert math.isnan(rows[name][k])
                continue
            assert rows[name][k] == pytest.approx(roc_auc_score(truth[part], levels[part]), abs=EXACT)
            if not ties:
                theirs = river_value(river_metrics.RollingROCAUC(window_size=2000), truth[part] == 1, levels[part])
                assert rows[name][k] == pytest.approx(theirs, abs=EXACT)


@pytest.mark.parametrize("seed", range(3))
def test_resting_between_calls_changes_no_score_and_holds_no_whole_table(seed):
    random = np.random.default_rng(seed)
    tired, steady = Prequential(), Prequential()
    for _ in range(5):
        truth, prediction = random.integers(0, 2, (2, 40)).astype(np.int32)
        levels = random.integers(0, LEVELS + 1, 40).astype(np.uint16)
        for one in (tired, steady):
            one.score(truth, prediction, one.rivals(truth), levels)
        tired.rest()
        for ask in (Prequential.scores, Prequential.state, Prequential.mark, Prequential.take_rows, Prequential.state):
            np.testing.assert_equal(ask(tired), ask(steady))
            assert not tired._dense.size
    again = Prequential()
    again.restore(tired.state())
    np.testing.assert_equal(again.scores(), steady.scores())


def test_auc_is_undefined_without_a_score_of_every_prediction_and_beyond_two_classes():
    truth, prediction, levels = stream(300, 2, 3)
    some = levels.copy()
    some[7] = NO_LEVEL
    for columns in ((truth, prediction), (truth, prediction, some), (truth + 1, prediction, levels)):
        metrics = Prequential()
        metrics.update(*columns)
        assert math.isnan(metrics.scores()["auc"])


def test_levels_are_shares_rounded():
    positive, total = np.array([0, 1, 1, 3, 5]), np.array([0, 3, 1, 7, 8192])
    expected = [int(NO_LEVEL), round(LEVELS / 3), LEVELS, round(3 * LEVELS / 7), 3]
    assert levels_of(positive, total, of_nothing=int(NO_LEVEL)).tolist() == expected


def moa(truth, prediction, factor):
    """Faded estimates of MOA: each sum is multiplied by the factor before a value is added."""
    weight = right = no_change = majority = 0.0
    K = int(max(truth.max(), prediction.max())) + 1
    true, predicted, seen, last = [0.0] * K, [0.0] * K, [0] * K, 0
    for t, p in zip(truth.tolist(), prediction.tolist(), strict=True):
        leader = max(range(K), key=lambda k: (seen[k], -k))  # MOA counts t before it asks for the majority
        weight, right = weight * factor + 1, right * factor + (t == p)
        no_change, majority = no_change * factor + (last == t), majority * factor + (leader == t)
        true, predicted = [x * factor for x in true], [x * factor for x in predicted]
        true[t], predicted[p], seen[t], last = true[t] + 1, predicted[p] + 1, seen[t] + 1, t
    accuracy, chance = right / weight, sum(a * b for a, b in zip(true, predicted, strict=True)) / weight**2
    rivals = {"kappa": chance, "kappa_temporal": no_change / weight, "kappa_m": majority / weight}
    return {"accuracy": accuracy} | {name: (accuracy - pc) / (1 - pc) for name, pc in rivals.items()}


@pytest.mark.parametrize("K", [2, 5])
@pytest.mark.parametrize("factor", [1.0, 0.99])
def test_kappas_and_fading_equal_the_definitions_of_moa(K, factor):
    truth, prediction, _ = stream(1500, K, 10 + K)
    metrics = Prequential(fading=factor)
    metrics.update(truth, prediction)
    expected = moa(truth, prediction, factor)
    for name, value in expected.items():
        assert metrics.faded()[f"faded_{name}"] == pytest.approx(value, abs=EXACT)
        if factor == 1.0:
            assert metrics.scores()[name] == pytest.approx(value, abs=EXACT)


@pytest.mark.parametrize("seed", range(3))
def test_regression_equals_river(seed):
    draw = np.random.default_rng(seed)
    truth = 50 + draw.normal(size=900)
    prediction = truth + draw.normal(size=900) / 2
    rows = rows_of(PrequentialErrors(), (truth, prediction), [0, 100, 101, 900])
    makers = {"mse": river_metrics.MSE, "rmse": river_metrics.RMSE, "mae": river_metrics.MAE, "r2": river_metrics.R2}
    for k, (begin, end) in enumerate(pairwise([0, 100, 101, 900])):
        for prefix, part in (("", slice(0, end)), ("window_", slice(begin, end))):
            for name, make in makers.items():
                theirs, ours = river_value(make(), truth[part], prediction[part]), rows[prefix + name][k]
                # river calls R2 of one label 0, where there is no variation: it is undefined here.
                assert ours == pytest.approx(theirs, rel=EXACT) or (math.isnan(ours) and theirs == 0.0)


def test_faded_errors_equal_a_loop():
    draw = np.random.default_rng(4)
    truth, prediction = draw.normal(size=400), draw.normal(size=400)
    metrics = PrequentialErrors(fading=0.98)
    metrics.update(truth, prediction)
    weights = 0.98 ** np.arange(399, -1, -1)
    mse = np.average((truth - prediction) ** 2, weights=weights)
    variance = np.average((truth - np.average(truth, weights=weights)) ** 2, weights=weights)
    faded = metrics.faded()
    assert faded["faded_mse"] == pytest.approx(mse, rel=EXACT)
    assert faded["faded_rmse"] == pytest.approx(math.sqrt(mse), rel=EXACT)
    assert faded["faded_mae"] == pytest.approx(np.average(np.abs(truth - prediction), weights=weights), rel=EXACT)
    assert faded["faded_r2"] == pytest.approx(1 - mse / variance, rel=1e-11)


class TestAlarms:
    @staticmethod
    def outcomes(seed):
        """Errors whose share changes now and then."""
        draw = np.random.default_rng(seed)
        shares = draw.choice([0.02, 0.1, 0.2, 0.3, 0.5, 0.8], size=draw.integers(1, 8))
        return np.concatenate([draw.random(draw.integers(20, 3000)) < share for share in shares])

    @pytest.mark.turns(10)
    @pytest.mark.parametrize("seed", range(40))
    def test_changes_are_those_of_river_and_alarms_those_of_the_twin(self, seed):
        wrong, delta = self.outcomes(seed), [0.002, 0.05, 0.3][seed % 3]
        metrics, adwin, twin = Prequential(delta=delta), drift.ADWIN(delta=delta), SlowAdwin(delta)
        expected = []
        for at, error in enumerate(wrong.tolist()):
            adwin.update(error)
            found = twin.update(int(error))
            assert adwin.drift_detected == (found is not None)
            if found is not None and found[2] > found[1]:
                expected.append((at, *found))
        metrics.update(np.zeros(len(wrong), dtype=np.int32), wrong.astype(np.int32))
        assert [tuple(alarm) for alarm in metrics.take_alarms()] == expected
        assert metrics.alarms == len(expected)
        assert metrics.take_alarms() == []

    def test_an_alarm_says_what_has_changed(self):
        quiet, loud = np.zeros(600, dtype=np.int32), np.ones(200, dtype=np.int32)
        metrics = Prequential()
        metrics.update(np.zeros(800, dtype=np.int32), np.concatenate([quiet, loud]), seq=np.arange(800) * 2)
        [alarm] = metrics.take_alarms()
        assert 1200 < alarm.seq < 1300
        assert alarm.before < 0.01
        assert alarm.after > 0.9

    @examples(25)
    @given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(1, 400), max_size=8))
    def test_nothing_depends_on_batches_or_a_restore(self, seed, cuts):
        wrong = self.outcomes(seed)[:1500].astype(np.int32)
        truth = np.zeros(len(wrong), dtype=np.int32)
        whole, part, alarms, begin = Prequential(), Prequential(), [], 0
        whole.update(truth, wrong)
        for size in [*cuts, len(wrong)]:
            end = min(len(wrong), begin + size)
            part.update(truth[begin:end], wrong[begin:end], seq=np.arange(begin, end))
            alarms += part.take_alarms()
            state, part = part.state(), Prequential()
            part.restore(state)
            begin = end
        assert alarms == whole.take_alarms()
        assert repr(part.state()) == repr(whole.state())


def test_a_state_in_little_room_is_the_same_state():
    random, one = np.random.default_rng(3), Prequential()
    truth, prediction = random.integers(0, 2, (2, 300)).astype(np.int32)
    for levels in (None, random.integers(0, LEVELS + 1, 300).astype(np.uint16)):
        one.update(truth, prediction, levels)
        one.mark()
        one.take_rows()
        one.update(truth, prediction, levels)
        again = Prequential()
        again.restore(one.narrow_state())
        np.testing.assert_equal(again.state(), one.state())
        for both in (one, again):
            both.update(truth, prediction, levels)
        np.testing.assert_equal(again.state(), one.state())
    good = one.narrow_state()
    for name in ("ranks", "window_ranks"):
        given = [([place], [1]) for place in (-1, 2 * (LEVELS + 1))]
        given += [([5, 5], [1, 1]), ([7, 3], [1, 1]), ([5], [0]), ([5], [-1]), ([5], [1, 1])]
        for places, numbers in given:
            wrong = {f"{name}_places": np.array(places, np.int32), f"{name}_numbers": np.array(numbers)}
            with refused("states.impossible", array=name):
                Prequential().restore(good | wrong)
            with refused("states.impossible", array=name):
                whole(good | wrong)


@examples(40)
@given(seed=st.integers(0, 10**6), weighted=st.booleans())
def test_many_are_updated_by_one_call_as_each_alone(seed, weighted):
    """Some of them with scores, and with no row; classes come later, and errors rise so that there are alarms."""
    random = np.random.default_rng(seed)
    together, alone = ([Prequential(k == 1, weighted=weighted) for k in range(4)] for _ in range(2))
    for turn in range(6):
        sizes, known = random.integers(0, 120, 4), (random.random(4) < 0.8).tolist()
        edges, n = np.append(0, np.cumsum(sizes)), int(sizes.sum())
        truth = random.integers(0, 2 + (random.random(n) < 0.1 * turn), n).astype(np.int32)
        prediction = np.where(random.random(n) < 0.2 * turn, 1 - truth.clip(0, 1), truth).astype(np.int32)
        prediction[random.random(n) < 0.1] = -1
        levels, seq = random.integers(0, LEVELS + 1, n).astype(np.uint16), np.arange(n) * 3
        levels[(random.random(n) < 0.1) | ~np.repeat(known, sizes)] = NO_LEVEL
        Prequential.update_all(together, edges, truth, prediction, levels, known, seq)
        for k, one in enumerate(alone):
            part = slice(edges[k], edges[k + 1])
            one.update(truth[part], prediction[part], levels[part] if known[k] else None, seq[part])
        for one, other in zip(together, alone, strict=True):
            assert one.take_alarms() == other.take_alarms()
            for each in (one, other):
                each.mark()
            np.testing.assert_equal(one.rows_of(one.take_marked()), other.rows_of(other.take_marked()))
            np.testing.assert_equal(one.state(), other.state())
            np.testing.assert_equal(one.narrow_state(), other.narrow_state())


def test_a_window_does_not_begin_with_more_than_there_is():
    one, zeros = Prequential(), np.zeros(9, np.int32)
    one.update(zeros, zeros, np.arange(9, dtype=np.uint16))
    one.mark()
    one.take_rows()
    good = one.narrow_state()
    for places, numbers in (([20], [1]), ([3], [2]), ([0, 2 * LEVELS], [1, 1])):
        wrong = {"window_ranks_places": np.array(places, np.int32), "window_ranks_numbers": np.array(numbers)}
        for narrow in (False, True):
            state = good | wrong
            with refused("states.impossible", array="window_ranks"):
                Prequential().restore(state if narrow else whole(state))


class SlowDelayed:
    """One row at a time, with a dictionary; the baselines are asked at the query."""

    def __init__(self):
        self.asked, self.seen, self.last = {}, [], 0
        self.scored = []

    def rivals(self):
        leader = max(sorted(set(self.seen)), key=self.seen.count) if self.seen else 0
        return self.last, leader

    def take(self, id_, query, truth, prediction):
        if query:
            self.asked[id_] = (prediction, *self.rivals())
            return
        self.scored.append((truth, *self.asked.pop(id_, (prediction, *self.rivals()))))
        self.seen.append(truth)
        self.last = truth


@examples(60)
@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 2), st.integers(0, 2)), max_size=50),
    cuts=st.lists(st.integers(1, 12), max_size=6),
)
def test_delayed_labels_equal_a_loop(rows, cuts):
    metrics, twin, begin = Prequential(), SlowDelayed(), 0
    delayed = Delayed(metrics)
    for row in rows:
        twin.take(*row)
    for size in [*cuts, len(rows) + 1]:
        part = rows[begin : begin + size]
        begin += size
        columns = [np.array([row[k] for row in part]) for k in range(4)]
        targets = (column.astype(np.int32) for column in columns[2:])
        delayed.update(
            ScoredRows(columns[0].astype(np.int64), columns[1].astype(bool), *targets, None, np.arange(len(part)))
        )
        state, delayed = delayed.state(), Delayed(metrics)
        delayed.restore(state, np.dtype(np.int32))
    hits = metrics.snapshot()
    assert hits.scored == len(twin.scored)
    for name, k in (("learner", 1), ("no_change", 2), ("majority", 3)):
        assert getattr(hits, name) == sum(entry[0] == entry[k] for entry in twin.scored)
    for k, id_ in enumerate(state["asked_id"].tolist()):
        assert state["asked_prediction"][k] == twin.asked[id_][0]


def test_delayed_numbers_are_scored_as_they_were_asked():
    metrics = PrequentialErrors()
    delayed = Delayed(metrics)
    # The label 10 of row 1 is known before row 2 is asked about, 20 of row 2 is not before row 3 is.
    rows = [(1, True, np.nan, 4.0), (1, False, 10.0, 9.0), (2, True, np.nan, 5.0), (3, True, np.nan, 6.0)]
    rows += [(2, False, 20.0, 19.0), (3, False, 30.0, 29.0)]
    ids, query, truth, prediction = (np.array([row[k] for row in rows]) for k in range(4))
    delayed.update(ScoredRows(ids, query, truth, prediction, None, np.arange(6)))
    assert metrics.scores()["mae"] == (6 + 15 + 24) / 3
    assert metrics.baselines()["no_change"] == (10**2 + 10**2 + 20**2) / 3


# -- metrics ---------------------------------------------------------------------------------------------------------
# Prequential metrics against a loop over single examples, and against values worked out by hand.


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
    for counts in (metrics._tables.hits, metrics._tables.classes):
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


# -- regression metrics ----------------------------------------------------------------------------------------------
# Prequential errors against a loop over single predictions, however they are cut, and after a restore.

RNG = np.random.default_rng(5)
TRUTH = 1e6 + np.round(RNG.normal(size=200), 2)
PREDICTION = np.where(np.arange(200) < 30, np.nan, TRUTH + RNG.normal(size=200))


def fed(sizes: list[int], evaluation: PrequentialErrors | None = None) -> PrequentialErrors:
    evaluation, begin = evaluation or PrequentialErrors(), 0
    for size in sizes:
        evaluation.update(TRUTH[begin : begin + size], PREDICTION[begin : begin + size])
        begin += size
    return evaluation


def test_scores_equal_a_loop() -> None:
    seen: list[float] = []
    errors, no_change, mean, truths = [], [], [], []
    for truth, prediction in zip(TRUTH.tolist(), PREDICTION.tolist(), strict=True):
        if not math.isnan(prediction):
            errors.append(truth - prediction)
            no_change.append(truth - seen[-1])
            mean.append(truth - math.fsum(seen) / len(seen))
            truths.append(truth)
        seen.append(truth)
    evaluation = fed([200])
    scores, baselines = evaluation.scores(), evaluation.baselines()
    assert list(scores) == ["mse", "rmse", "mae", "r2"]
    assert scores["rmse"] == math.sqrt(scores["mse"])
    assert scores["mse"] == pytest.approx(np.mean(np.square(errors)), rel=1e-12)
    assert scores["mae"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-12)
    assert scores["r2"] == pytest.approx(1 - np.mean(np.square(errors)) / np.var(truths), rel=1e-9)
    assert baselines["no_change"] == pytest.approx(np.mean(np.square(no_change)), rel=1e-12)
    assert baselines["mean"] == pytest.approx(np.mean(np.square(mean)), rel=1e-9)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_no_bit_depends_on_the_cut_or_on_a_restore(size: int) -> None:
    whole, parts = fed([200]), fed([size] * (200 // size) + [200 % size])
    restored = PrequentialErrors()
    restored.restore(fed([90]).state())
    restored.update(TRUTH[90:], PREDICTION[90:])
    for other in (parts, restored):
        assert repr(other.state()) == repr(whole.state())
    assert set(row(whole)) == set(PrequentialErrors.columns)


def row(evaluation: PrequentialErrors) -> dict[str, float]:
    evaluation.mark()
    return {name: float(values[-1]) for name, values in evaluation.take_rows().items()}


def test_a_window_is_summed_by_itself() -> None:
    evaluation = fed([120])
    evaluation.mark()
    evaluation.update(TRUTH[120:], PREDICTION[120:])
    window, error, truth = row(evaluation), (TRUTH - PREDICTION)[120:], TRUTH[120:]
    assert window["window_mse"] == pytest.approx(np.mean(error**2), rel=1e-13)
    assert window["window_rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-13)
    assert window["window_mae"] == pytest.approx(np.mean(np.abs(error)), rel=1e-13)
    assert window["window_r2"] == pytest.approx(1 - np.mean(error**2) / np.var(truth), rel=1e-12)


def test_what_cannot_be_said_is_nan() -> None:
    evaluation = PrequentialErrors()
    assert all(math.isnan(value) for value in {**evaluation.scores(), **evaluation.baselines()}.values())
    evaluation.update(np.array([2.0, 2.0]), np.array([0.0, 2.0]))
    assert evaluation.scores()["mse"] == 2.0
    assert evaluation.baselines() == {"no_change": 2.0, "mean": 2.0}
    assert math.isnan(evaluation.scores()["r2"])


def test_a_state_of_an_earlier_version_gives_the_same_scores() -> None:
    evaluation = fed([90])
    earlier = PrequentialErrors()
    sums, registers = evaluation.state()["sums"], evaluation.state()["registers"]
    n, last, first, total = registers.tolist()
    spread = np.array([last, first, total, *sums[5:].tolist()])
    earlier.restore({"scored": int(sums[0]), "inserted": int(n), "sums": sums[1:5], "registers": spread})
    for one in (evaluation, earlier):
        one.update(TRUTH[90:], PREDICTION[90:])
    assert earlier.scores() == evaluation.scores()
    assert earlier.baselines() == evaluation.baselines()


# -- weighted metrics ------------------------------------------------------------------------------------------------
# Metrics that count predictions by the weights of their rows, against those of repeated predictions.

DRAW = np.random.default_rng(3)
N = 400
COUNTS = DRAW.integers(0, 4, N)
#: Scores that do not depend on the order of predictions.
WHOLE = ("accuracy", "f1", "macro_f1", "kappa", "auc")


def test_whole_weights_count_like_repeated_predictions() -> None:
    truth, prediction = (DRAW.integers(0, 2, N).astype(np.int32) for _ in range(2))
    levels = DRAW.integers(0, 4097, N).astype(np.uint16)
    rivals = prediction[::-1].copy(), prediction
    weighted, repeated = Prequential(weighted=True), Prequential()
    for one in (weighted, repeated):
        one.rivals(truth)
    weighted.score(truth, prediction, rivals, levels, weight=(COUNTS * UNIT).astype(np.uint32))
    often = np.repeat(np.arange(N), COUNTS)
    repeated.score(truth[often], prediction[often], (rivals[0][often], rivals[1][often]), levels[often])
    assert {name: weighted.scores()[name] for name in WHOLE} == {name: repeated.scores()[name] for name in WHOLE}
    assert weighted.baselines() == repeated.baselines()
    assert weighted.figures(2)["confusion"] == repeated.figures(2)["confusion"]


def test_whole_weights_count_like_repeated_errors() -> None:
    truth, prediction = DRAW.normal(size=N), DRAW.normal(size=N)
    rivals = prediction[::-1].copy(), prediction
    weighted, repeated = PrequentialErrors(), PrequentialErrors()
    weighted.score(truth, prediction, rivals, weight=(COUNTS * UNIT).astype(np.uint32))
    often = np.repeat(np.arange(N), COUNTS)
    repeated.score(truth[often], prediction[often], (rivals[0][often], rivals[1][often]))
    for name, value in repeated.scores().items():
        assert weighted.scores()[name] == pytest.approx(value, rel=1e-12)


def config(path: Path, weighted: bool, **stream: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "parquet", "path": str(path), "weight": "w"},
        **({"stream": stream} if stream else {}),
        "learner": {"kind": "gbdt", "max_iter": 3, "max_leaf_nodes": 4},
        "cluster": {"backend": "in_process"},
        "output": {"weighted_metrics": weighted, "predictions": True, "report": False},
    }


def test_a_run_weighs_its_metrics_on_request(tmp_path: Path) -> None:
    x, w = DRAW.normal(size=N), DRAW.integers(1, 5, N).astype(np.float64)
    y = np.where(x + DRAW.normal(size=N) > 0, "yes", "no")
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": x, "w": w, "y": y}), path)
    accuracy = {}
    for weighted in (False, True):
        run = replay(config(path, weighted, model="incremental", warmup=200), tmp_path / f"run {weighted}")
        accuracy[weighted] = run.summary["metrics"]["accuracy"]
        said = pq.read_table(run.path + "/predictions")
        right = np.array(said["prediction"].to_pylist()) == np.array(said["truth"].to_pylist())
        weights = w[np.array(said["id"].to_pylist())] if weighted else None
        assert accuracy[weighted] == pytest.approx(np.average(right, weights=weights), rel=1e-12)
        trained = train(config(path, weighted), tmp_path / f"trained {weighted}").metrics
        accuracy[weighted] = accuracy[weighted], trained["accuracy"]
    assert accuracy[True][0] != accuracy[False][0]
    assert accuracy[True][1] != accuracy[False][1]


# -- scored runs -----------------------------------------------------------------------------------------------------
# Scores of whole runs: delayed labels, alarms, and the scores of class 1 that learners give.

IN_PROCESS = {"backend": "in_process", "shards": 1}


def rows_of_metrics(n: int, delay: int) -> list[dict[str, Any]]:
    """A query of each row, and its insert with the label ``delay`` rows later; the concept turns in the middle."""
    draw = np.random.default_rng(3)
    x = draw.random((n, 2)).round(3)
    label = np.where((x[:, 0] > 0.5) ^ (np.arange(n) > n // 2), "yes", "no")
    rows = []
    for i in range(n + delay):
        features = {"a": x[min(i, n - 1), 0], "b": x[min(i, n - 1), 1]}
        if i < n:
            rows.append({"op": "query", "id": i, **features, "label": ""})
        if i >= delay:
            k = i - delay
            rows.append({"op": "insert", "id": k, "a": x[k, 0], "b": x[k, 1], "label": label[k]})
    return rows


def delayed_run(folder: Path, batch_size: int, delayed: bool = True) -> Any:
    rows = rows_of_metrics(1500, 40)
    with (folder / "log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    source = {"kind": "csv", "path": str(folder / "log.csv"), "op": "op", "id": "id", "label": "label"}
    config = {
        "source": source,
        "stream": {"model": "changelog", "delayed_labels": delayed},
        "learner": {"kind": "fudyadt"},
        "cluster": {**IN_PROCESS, "batch_size": batch_size},
        "output": {"predictions": True, "metrics_every": 500, "report": False},
    }
    return replay(config, folder / f"run-{batch_size}-{delayed}")


def test_delayed_labels_are_scored_by_the_query(tmp_path: Path) -> None:
    run = delayed_run(tmp_path, 64)
    table = ds.dataset(f"{run.path}/predictions").to_table().to_pylist()
    asked = {row["id"]: row["prediction"] for row in table if row["truth"] is None}
    inserted = [row for row in table if row["truth"] is not None]
    hits = [row["truth"] == asked[row["id"]] for row in inserted]
    assert run.summary["metrics"]["accuracy"] == np.mean(hits)
    at_once = delayed_run(tmp_path, 64, delayed=False)
    assert at_once.summary["metrics"]["accuracy"] == np.mean([r["truth"] == r["prediction"] for r in inserted])
    assert at_once.summary["model_digest"] == run.summary["model_digest"]
    # Without a delay in between, no-change would have known the label of the row before.
    labels = [row["truth"] for row in inserted]
    known = [labels[k - 41] if k > 40 else run.summary["classes"][0] for k in range(len(labels))]
    assert run.summary["baselines"]["no_change"] == np.mean([a == b for a, b in zip(labels, known, strict=True)])


def test_no_score_and_no_alarm_depends_on_the_batches(tmp_path: Path) -> None:
    runs = [delayed_run(tmp_path, size) for size in (1, 37, 4096)]
    tables = [
        {name: ds.dataset(f"{run.path}/{name}").to_table().to_pydict() for name in ("metrics", "alarms")}
        for run in runs
    ]
    for table in tables:
        del table["metrics"]["seconds"]
    assert repr(tables[0]) == repr(tables[1]) == repr(tables[2])
    alarms = tables[0]["alarms"]
    assert len(alarms["seq"]) == runs[0].summary["metrics"]["alarms"] >= 1
    assert all(after > before for before, after in zip(alarms["error_before"], alarms["error_after"], strict=True))
    assert any(1500 < seq < 2200 for seq in alarms["seq"]), "the concept turns after update 1,540"
    summary = json.loads((Path(runs[0].path) / "summary.json").read_text())
    assert 0.5 < summary["metrics"]["auc"] < 1
    assert tables[0]["metrics"]["auc"][-1] == summary["metrics"]["auc"]


CASES = [
    pytest.param(kind, case, id=f"{kind}, {case.name}")
    for kind, learner in learners().items()
    for case in learner.cases()
    if case.classes == 2
]


@pytest.mark.turns(8)
@pytest.mark.parametrize(("kind", "case"), CASES)
def test_the_score_of_a_prediction_is_the_share_that_the_model_gives(kind: str, case: Any) -> None:
    """After the warm-up one update at a time, against ``predict_proba`` just before it."""
    learner = learners()[kind]
    features, batch = small_stream(case)
    options = {**case.options, "kind": kind}
    session = InProcessSession(learner, learner.Options.model_validate(options), features, 1, case.plan)
    traits = learner.traits(learner.Options.model_validate(options))
    row, given = 0, 0
    warmup, starts = case.warmup, [0, *range(max(1, case.warmup), len(batch))]
    for at, stop in zip(starts, [*starts[1:], len(batch)], strict=True):
        carried = int(CARRIES_ROW[batch.op[at:stop]].sum())
        part, rows = slice(at, stop), slice(row, row + carried)
        sparse = None if batch.sparse is None else batch.sparse[np.arange(row, row + carried)]
        one = UpdateBatch(
            *(at, batch.op[part], batch.id[part], batch.X[rows], batch.y[rows], 2, batch.row[part], warmup),
            sparse=sparse,
        )
        row += carried
        more: dict[str, Any] = {} if sparse is None else {"sparse": sparse}
        before = session
        if at and one.op[0] == UPDATE and (traits.parts or kind == "fudyadt"):  # they delete the old example first
            before = InProcessSession(learner, learner.Options.model_validate(options), features, 1, case.plan)
            before.restore(*session.state())
            none = None if sparse is None else sparse[np.empty(0, np.int64)]
            before.apply(
                UpdateBatch(at, np.array([DELETE], np.int8), one.id, one.X[:0], one.y[:0], 2, one.row, sparse=none)
            )
        before.driver.run(before.coordinator.gather())
        expected = before.coordinator.predict_proba(one.X, 2, **more) if carried and at else None
        result = session.apply(one)
        if result.levels is None or result.levels[0] == NO_LEVEL or expected is None or one.op[0] == DELETE:
            continue
        if session.statistics()["active"] > 1:
            assert int(result.levels[0]) == int(np.floor(expected[0, 1] * LEVELS + 0.5))
            given += 1
    assert given > 20, traits  # all learners give scores, as the documentation says
