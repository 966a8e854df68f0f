"""Metrics against river on the same predictions, and against loops over the definitions of MOA and of the papers."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from raydt.evaluation.classification import Delayed, Prequential, ScoredRows
from raydt.evaluation.regression import PrequentialErrors
from raydt.evaluation.scoring import LEVELS, NO_LEVEL, levels_of
from raydt.keyed.members import whole
from tests.oracles.confidence_bounds import SlowAdwin
from tests.refusals import refused
from tests.volume import examples

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
            assert not tired.counts.ranks.size
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
