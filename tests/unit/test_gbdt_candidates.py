"""Which cuts are candidates: one of each run of neighbours."""

import numpy as np

from raydt.batches.binning import learn_bins
from raydt.examples.updates import CATEGORICAL, NUMERIC
from raydt.learners.gbdt.candidates import draw

ITERATIONS = 200


def test_each_run_of_neighbours_has_one_and_each_cut_its_turn():
    """Two numeric features of many values and one of few, and a categorical one."""
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.normal(size=900), rng.exponential(size=900), *rng.integers(0, [[4], [40]], (2, 900))])
    kinds = np.array([NUMERIC, NUMERIC, NUMERIC, CATEGORICAL], dtype=np.int8)
    bins = learn_bins(X, kinds, 64, "quantile", np.empty(0, dtype=np.int32))
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
