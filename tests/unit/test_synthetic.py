import hashlib

import numpy as np
import pytest

from raydt.sources.divided import open_source
from raydt.sources.options import Hyperplane, Sea
from raydt.sources.synthetic import SEA_THRESHOLDS

#: Options of generated numbers, and the first digits of the SHA-256 of their rows and labels, the same everywhere.
DIGESTS = {
    Sea(n=40_000, noise=0.1): "ce4950086cf338a8",
    Sea(n=999, drift=0, noise=0.0): "3c079292946bca63",
    Hyperplane(n=30_000, n_features=10): "4c17af6f5a6ed582",
    Hyperplane(n=500, n_features=1, drift=0): "bb45f2a77eb3cd30",
    Hyperplane(n=777, n_features=70, drift=5, seed=-3): "73548ff93c40f34d",
}
CASES = list(DIGESTS)


def read(options, start=0):
    source = open_source(options)
    chunks = list(source.rows(start))
    X, y, ids = (np.concatenate([getattr(c, name) for c in chunks]) for name in ("X", "y", "id"))
    return X, y, ids


@pytest.mark.parametrize("options", CASES, ids=str)
def test_a_row_does_not_depend_on_where_reading_starts(options):
    X, y, ids = read(options)
    assert ids.tolist() == list(range(options.n))
    for start in (1, 63, 64, options.n // 2, options.n - 1):
        X2, y2, ids2 = read(options, start)
        np.testing.assert_array_equal(X2, X[start:])
        np.testing.assert_array_equal(y2, y[start:])
        np.testing.assert_array_equal(ids2, ids[start:])
    assert not list(open_source(options).rows(options.n))


@pytest.mark.parametrize("options", CASES, ids=str)
def test_limit_cuts_and_changes_nothing_else(options):
    short = options.model_copy(update={"limit": 101})
    for cut, whole in zip(read(short), read(options), strict=True):
        np.testing.assert_array_equal(cut, whole[:101])
    assert open_source(short).n_rows == 101


@pytest.mark.parametrize("options", CASES, ids=str)
def test_bits_are_the_same_everywhere(options):
    X, y, _ = read(options)
    digest = hashlib.sha256(X.astype("<f8").tobytes() + y.astype("<i4").tobytes())
    assert digest.hexdigest()[:16] == DIGESTS[options]


def test_sea_follows_its_concepts():
    X, y, _ = read(Sea(n=8_000, noise=0.0, drift=7))
    assert X.min() >= 0.0
    assert X.max() < 10.0
    for part in range(8):
        rows = slice(part * 1000, (part + 1) * 1000)
        above = X[rows, 0] + X[rows, 1] > SEA_THRESHOLDS[part % 4]
        np.testing.assert_array_equal(y[rows], above)


def test_seeds_and_settings_show_in_the_fingerprint():
    prints = [open_source(o).identity().fingerprint for o in [*CASES, Sea(n=40_000, seed=8), Sea(n=40_001)]]
    assert len(set(prints)) == len(prints)
    assert open_source(Sea(n=40_000, noise=0.1)).identity().fingerprint == prints[0]


def test_the_source_says_what_it_is():
    source = open_source(Hyperplane(n=10, n_features=3))
    assert source.features.names == ("x0", "x1", "x2")
    assert source.features.categorical == (False, False, False)
    assert (source.classes, source.known_classes, source.n_rows, source.positive) == ([0, 1], 2, 10, None)
    assert source.where(4) == ("synthetic hyperplane", 4)
    assert source.state() == {}
