"""Prequential errors against a loop over single predictions, however they are cut, and after a restore."""

from __future__ import annotations

import math

import numpy as np
import pytest

from raydt.evaluation.regression import PrequentialErrors

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
