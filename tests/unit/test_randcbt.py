"""RandCBT: the tree is that of Algorithm 2 as printed, and rows fill its leaves evenly."""

import hashlib

import numpy as np
import pytest

from raydt.arrays.elementary import stream_key, uniform
from raydt.sources.divided import open_source
from raydt.sources.options import RandCbt
from raydt.sources.synthetic import random_tree

CASES = [
    RandCbt(n=20_000),
    RandCbt(n=3_001, leaves=7, n_features=2, drift=2, seed=-3, noise=0.0),
    RandCbt(n=999, leaves=1_000, n_features=1, noise=0.5),
    RandCbt(n=5, leaves=2, drift=4),
]
SEEDS = range(40)


def read(options, start=0):
    chunks = list(open_source(options).rows(start))
    return tuple(np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in ("X", "y", "id"))


def printed(leaves, d, draw):
    """Algorithm 2 line by line: leaves from left to right as (low, high, is left), and thresholds."""
    found, thresholds = [], []

    def rand_cbt(num_leaves, low, high, is_left):
        if num_leaves == 1:
            found.append((low, high, is_left))
            return
        x = next(draw)
        left_leaves = max(1, int(np.floor(num_leaves * x)))
        right_leaves = num_leaves - left_leaves
        i = int(next(draw) * d)
        v = low[i] + (high[i] - low[i]) * next(draw)
        thresholds.append(v)
        rand_cbt(left_leaves, low, [*high[:i], v, *high[i + 1 :]], True)
        rand_cbt(right_leaves, [*low[:i], v, *low[i + 1 :]], high, False)

    rand_cbt(leaves, [0.0] * d, [1.0] * d, None)
    return found, thresholds


def tree_of(seed, leaves=50, d=5):
    return random_tree(stream_key(seed, "randcbt trees"), 0, leaves, d)


def membership(X, tree):
    """Which leaf's region each row lies in; shape (rows, leaves)."""
    return ((tree.low <= X[:, None, :]) & (X[:, None, :] < tree.high)).all(axis=2)


@pytest.mark.parametrize(("leaves", "d"), [(50, 5), (2, 1), (3, 2), (700, 3)])
def test_the_tree_is_that_of_the_printed_recursion(leaves, d):
    for seed in SEEDS:
        tree = tree_of(seed, leaves, d)
        draws = uniform(stream_key(seed, "randcbt trees"), np.arange(3 * (leaves - 1)))
        found, thresholds = printed(leaves, d, iter(draws))
        assert len(thresholds) == leaves - 1
        for column, values in zip(tree, zip(*found, strict=True), strict=True):
            np.testing.assert_array_equal(column, np.array(values))


def test_every_leaf_has_as_many_rows_and_its_share_of_labels():
    options = RandCbt(n=50_000, leaves=20, noise=0.3, seed=11)
    X, y, _ = read(options)
    (tree,) = open_source(options).trees
    inside = membership(X, tree)
    assert (inside.sum(axis=1) == 1).all()
    assert (inside.sum(axis=0) == 2_500).all()
    shares = (inside * y[:, None]).sum(axis=0) / 2_500
    assert np.abs(shares - np.where(tree.left, 0.7, 0.3)).max() < 0.04
    for leaf in range(20):
        own = (X[inside[:, leaf]] - tree.low[leaf]) / (tree.high - tree.low)[leaf]
        assert np.abs(own.mean(axis=0) - 0.5).max() < 0.03
        assert np.abs(own.std(axis=0) - 12**-0.5).max() < 0.02
    places = np.where(inside)[0][np.argsort(np.where(inside)[1], kind="stable")].reshape(20, -1)
    assert np.abs(places.mean(axis=1) / 50_000 - 0.5).max() < 0.03  # shuffled


@pytest.mark.parametrize("options", CASES, ids=str)
def test_a_row_does_not_depend_on_where_reading_starts_or_how_much_is_read_at_once(options, monkeypatch):
    X, y, ids = read(options)
    assert ids.tolist() == list(range(options.n))
    for start in (1, 4, options.n // 2, options.n - 1):
        for part, whole in zip(read(options, start), (X, y, ids), strict=True):
            np.testing.assert_array_equal(part, whole[start:])
    short = options.model_copy(update={"limit": 4})
    np.testing.assert_array_equal(read(short)[0], X[:4])
    monkeypatch.setattr("raydt.sources.synthetic.CHUNK_DRAWS", 1)
    np.testing.assert_array_equal(read(options)[0], X)


def test_bits_are_the_same_everywhere():
    digest = hashlib.sha256()
    for options in CASES:
        X, y, _ = read(options)
        digest.update(X.astype("<f8").tobytes() + y.astype("<i4").tobytes())
    assert digest.hexdigest() == "911b9bbed18cf7cfae4549a1551548dd1e7da71027dfb69ef54d9733fa6f500a"
