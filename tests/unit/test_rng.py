import numpy as np
import pytest

from raydt.arrays import elementary as rng

COUNTERS = np.concatenate([np.arange(2000), np.array([2**31, 2**32 + 1, 2**53 + 1, 2**62])])


def test_numbers_are_those_of_splitmix64():
    # First outputs for seed 0 of the reference program by Sebastiano Vigna (splitmix64.c).
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert rng.bits(np.uint64(0), np.arange(3)).tolist() == expected


def test_keys_are_stable():
    assert int(rng.stream_key(7, "sea")) == 0xE97971277BD46B92
    assert len({int(rng.stream_key(s, p)) for s in (-1, 0, 1, 10**30) for p in ("", "a", "b")}) == 12


@pytest.mark.parametrize("seed", [0, 1, -5, 2**70])
def test_scalar_twins_give_identical_values(seed):
    key = rng.stream_key(seed, "twin")
    assert [int(rng.bits_at(key, c)) for c in COUNTERS] == rng.bits(key, COUNTERS).tolist()
    assert [rng.uniform_at(key, c) for c in COUNTERS] == rng.uniform(key, COUNTERS).tolist()
    for n in (1, 2, 3, 1000, 2**40 + 1):
        assert [rng.below_at(key, c, n) for c in COUNTERS] == rng.below(key, COUNTERS, n).tolist()


def test_a_value_depends_on_its_counter_only():
    key = rng.stream_key(3, "place")
    together = rng.uniform(key, np.arange(100).reshape(20, 5))
    assert together.shape == (20, 5)
    assert together[7, 3] == rng.uniform(key, np.array([38]))[0]
    assert rng.uniform(rng.stream_key(4, "place"), np.array([38]))[0] != together[7, 3]


def test_counters_are_not_changed():
    counter = np.arange(5, dtype=np.uint64)
    rng.uniform(rng.stream_key(0, "x"), counter)
    assert counter.tolist() == [0, 1, 2, 3, 4]


def test_uniform_is_uniform():
    u = rng.uniform(rng.stream_key(1, "shape"), np.arange(200_000))
    assert u.min() >= 0.0
    assert u.max() < 1.0
    counts = np.histogram(u, bins=20, range=(0, 1))[0]
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.01


def test_below_is_in_range_even_for_the_largest_uniform():
    n = np.array([1, 2, 3, 5, 2**31 - 1, 2**31 + 1, 2**52 - 1], dtype=np.int64)
    largest = 1.0 - 2.0**-53
    assert ((largest * n).astype(np.int64) == n - 1).all()
    drawn = rng.below(rng.stream_key(2, "below"), np.arange(7000), 7)
    assert np.bincount(drawn, minlength=7).min() > 850
    assert set(drawn.tolist()) == set(range(7))
