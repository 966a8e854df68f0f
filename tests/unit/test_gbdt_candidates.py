"""Which cuts are candidates: one of each run of neighbours, as the twin of the audit finds them."""

import numpy as np
import pytest

from raydt.audits.recorded_bins import derived_bins
from raydt.batches.binning import learn_bins
from raydt.examples.features import CATEGORICAL, NUMERIC
from raydt.learners.gbdt.candidates import draw
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.recompute_candidates import RecomputedCandidates

ITERATIONS = 200


def _bins(method: str):
    """Two numeric features of many values and one of few, and a categorical one; as kernels and as twins take them."""
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.normal(size=900), rng.exponential(size=900), *rng.integers(0, [[4], [40]], (2, 900))])
    kinds = np.array([NUMERIC, NUMERIC, NUMERIC, CATEGORICAL], dtype=np.int8)
    twins = [derived_bins(X[:, j], kind == CATEGORICAL, 64, method) for j, kind in enumerate(kinds)]
    return learn_bins(X, kinds, 64, method, np.empty(0, dtype=np.int32)), twins


@pytest.mark.parametrize("method", ["doubling", "quantile"])
def test_candidates_are_those_of_the_twin(method):
    bins, twins = _bins(method)
    options = GBDTOptions(max_bins=64, candidate_fraction=0.15, binning=method, random_state=3)
    drawn = draw(bins, np.arange(4), bins.cuts(), 10, 3, ITERATIONS)
    twin = RecomputedCandidates(twins, 0, options)
    assert twin.per_feature == 10
    assert np.array_equal(twin.cuts, bins.cuts())
    feature = np.repeat(np.arange(4), np.diff(drawn.first))
    for m in (0, 1, ITERATIONS - 1):
        features, cuts = twin.of(m)
        assert np.array_equal(features, feature)
        assert np.array_equal(cuts, drawn.cuts[m])


def test_each_run_of_neighbours_has_one_and_each_cut_its_turn():
    bins, _ = _bins("quantile")
    cuts = bins.cuts()
    drawn = draw(bins, np.arange(4), cuts, 10, 3, ITERATIONS)
    for j in range(4):
        mine = drawn.cuts[:, drawn.first[j] : drawn.first[j + 1]]
        runs = mine.shape[1]
        assert runs == min(10, cuts[j])
        begins = np.arange(runs) * cuts[j] // runs
        assert np.array_equal(np.searchsorted(begins, mine, side="right") - 1, np.tile(np.arange(runs), (len(mine), 1)))
        length = np.diff(np.append(begins, cuts[j]))
        expected = ITERATIONS / np.repeat(length, length)
        times = np.bincount(mine.ravel(), minlength=cuts[j])
        assert (np.abs(times - expected) < 5 * np.sqrt(expected)).all()
