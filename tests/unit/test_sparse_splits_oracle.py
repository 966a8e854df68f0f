"""The slow twin of approximate best splits by itself: figures by hand, and widths of buckets."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.sparse_battery import apply
from tests.oracles.sparse_splits import (
    FINDERS,
    LEAST_RHO,
    RIM,
    Best,
    BruteForce,
    BucketTwin,
    Counts,
    EntropyBuckets,
    GiniBuckets,
    entropy,
    gini,
)
from tests.sparse_streams import Event, sparse_streams
from tests.volume import examples

pytestmark = pytest.mark.nightly

ALPHAS = (0.05, 0.1, 0.5, 2.0)

some_counts = st.builds(Counts, *(st.integers(0, 50) for _ in range(4))).filter(lambda c: c.n1 > 0)


def test_scores_by_hand() -> None:
    node = BruteForce("gini")
    assert node.best() == Best(-1, 0.0)
    for row, y in (((1, 2), 1), ((1,), 1), ((3,), 0), ((), 0), ((), 1)):
        node.add(row, y)
    # Feature 1: two rows of class 1; without it one of three is.
    assert node.scores() == {1: 2 * (0 + 2 * 1 / 3) / 5, 2: 2 * (0 + 2 * 2 / 4) / 5, 3: 2 * (0 + 1 * 3 / 4) / 5}
    assert node.best() == Best(1, 2 * (2 / 3) / 5)
    node.remove((1,), 1)
    node.remove((1, 2), 1)
    assert node.scores() == {3: 2 * (1 / 2) / 3}
    node.remove((3,), 0)
    assert node.best() == Best(-1, 0.5)  # no feature: the impurity of one row of each class
    assert BruteForce("entropy").best() == Best(-1, 0.0)
    assert entropy(Counts(1, 1, 1, 1)) == pytest.approx(math.log(2))


@given(some_counts)
def test_scores_are_conditional_impurities(c: Counts) -> None:
    n = c.n0 + c.n1
    sides = [(size, Fraction(ones, size)) for size, ones in ((c.n0, c.c01), (c.n1, c.c11)) if size]
    assert gini(c) == pytest.approx(float(sum(Fraction(size, n) * 2 * p * (1 - p) for size, p in sides)))
    parts = [(size, float(q)) for size, p in sides for q in (p, 1 - p) if q]
    assert entropy(c) == pytest.approx(-sum(size / n * q * math.log(q) for size, q in parts), abs=1e-12)
    pure = not (c.c00 * c.c01 or c.c10 * c.c11)
    assert (gini(c) == 0.0) is pure
    assert (entropy(c) == 0.0) is pure


# ---------------------------------------------------------------------- buckets


@pytest.mark.parametrize("alpha", [0.01, *ALPHAS, 10.0])
def test_updgini_buckets_are_as_narrow_as_proposition_5_2_needs(alpha: float) -> None:
    rule = GiniBuckets(alpha)
    beta = alpha / (alpha + 2)
    assert rule.buckets[-1].s < 1 <= rule.buckets[-1].t
    for k, bucket in enumerate(rule.buckets):
        mu = (bucket.s + bucket.t) / 2
        assert mu == pytest.approx((k / 2 + 1 / 4) * beta)
        wide = bucket.t / bucket.s if mu >= 0.5 else (1 - bucket.s) / (1 - bucket.t)
        assert wide <= (1 + alpha) * (1 + 1e-12)


@pytest.mark.parametrize("alpha", [0.01, *ALPHAS, 10.0])
def test_updent_buckets_are_as_narrow_as_proposition_4_2_needs(alpha: float) -> None:
    rule = EntropyBuckets(alpha)
    assert len(rule.buckets) == 2 * rule.K + 4
    for k in range(rule.K + 1):
        lower, upper = rule.buckets[1 + k], rule.buckets[rule.K + 3 + k]
        mu = math.exp(lower.B)
        assert mu < lower.s < lower.t < mu ** (1 / (1 + alpha))
        assert lower.s / mu == pytest.approx(1 + RIM, abs=RIM / 10)
        assert pytest.approx(math.log(1 - mu), rel=1e-6) == lower.A
        assert (upper.s, upper.t, upper.A, upper.B) == (lower.s, lower.t, lower.B, lower.A)
        assert (lower.mirrored, upper.mirrored) == (False, True)
    assert rule.level(LEAST_RHO) == rule.K
    assert rule.level(0.5) == 0


@pytest.mark.parametrize(("finder", "alpha"), [*product(FINDERS, [0.01, *ALPHAS, 10.0])])
def test_a_feature_is_put_well_inside_its_bucket(finder: str, alpha: float) -> None:
    twin = BucketTwin(finder, alpha)
    for n0 in (*range(1, 40), 997, 65_536, 2**30):
        some = {*range(20), *range(n0 // 2 - 2, n0 // 2 + 3), n0 - 2, n0 - 1, n0}
        for c01 in (c01 for c01 in some if 0 <= c01 <= n0):
            twin.n, twin.c1, twin.ones = n0 + 5, c01 + 2, {7: (5, 2)}
            twin.bucket = {7: twin.rule.place(twin.counts(7))}
            assert not twin.too_low(7)
            assert not twin.too_high(7)
            bucket, rho = twin.rule.buckets[twin.bucket[7]], c01 / n0
            rho = 1 - rho if bucket.mirrored else rho
            room = min(rho - bucket.s, bucket.t - rho)
            assert room > 0 or bucket.s == bucket.t == rho
    c = Counts(0, 0, 3, 4)
    assert twin.rule.place(c) == 0  # in every row: as rho = 0


@examples(300)
@given(st.sampled_from(ALPHAS), some_counts)
def test_centroids_of_updent_overestimate_by_at_most_alpha(alpha: float, c: Counts) -> None:
    """Proposition 4.2, for every bucket that may hold the feature."""
    rule, n = EntropyBuckets(alpha), c.n0 + c.n1
    c0, c1 = c.c00 + c.c10, c.c01 + c.c11
    for k, bucket in enumerate(rule.buckets):
        rho = (c.c00 if bucket.mirrored else c.c01) / c.n0 if c.n0 else 0.0
        if not bucket.s <= rho <= bucket.t:
            continue
        estimate = (rule.base(c, 1) + bucket.A * c.c10 + bucket.B * c.c11 - c0 * bucket.A - c1 * bucket.B) / n
        assert entropy(c) - 1e-12 <= estimate <= (1 + alpha) * entropy(c) + 1e-12, k


@examples(60)
@given(st.sampled_from(FINDERS), st.sampled_from(ALPHAS), sparse_streams())
def test_every_feature_is_within_its_bucket(finder: str, alpha: float, stream: list[Event]) -> None:
    twin = BucketTwin(finder, alpha)
    for event in stream:
        apply(twin, event)
        assert twin.bucket.keys() == twin.ones.keys()
        assert not any(twin.too_low(j) or twin.too_high(j) for j in twin.ones)
    gone = {event.id for event in stream if not event.insert}
    for event in stream:
        if event.insert and event.id not in gone:
            twin.remove(event.row, event.y)
    assert not twin.bucket
    assert twin.n == twin.c1 == 0
