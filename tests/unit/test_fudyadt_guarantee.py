"""The bound on epsilon, exactly."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nextafter

import numpy as np
import pytest

from raydt import FullyDynamicTreeClassifier, FullyDynamicTreeRegressor
from raydt.errors import ConfigError
from raydt.learners.fudyadt.options import LEAST_BETA, FuDyADTOptions
from raydt.learners.fully_dynamic import auto_epsilon, epsilon_bound
from tests.refusals import refused


def test_auto_epsilon_is_the_last_float_below_the_bound() -> None:
    for alpha, beta, size in ((0.1, 0.2, 2), (1.0, 1.0, 2), (1.0, 1.0, 50), (1e-300, 0.5, 2), (0.5, 2**-40, 3)):
        bound, epsilon = epsilon_bound(alpha, beta, size), auto_epsilon(alpha, beta, size)
        assert Fraction(epsilon) < bound <= Fraction(nextafter(epsilon, inf))
    assert auto_epsilon(1.0, 1.0, 2) == 0.14285714285714285 < Fraction(1, 7)


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.2), (0.1, 0.0)])
def test_auto_epsilon_needs_alpha_and_beta(alpha: float, beta: float) -> None:
    with refused("learners.no_epsilon", ConfigError, alpha=alpha, beta=beta):
        auto_epsilon(alpha, beta, 2)
    assert epsilon_bound(alpha, beta, 2) == 0


def test_a_promise_is_kept_to_the_last_bit() -> None:
    """The bound itself is excluded; the float below it, which auto takes, is not."""
    bound = float(epsilon_bound(0.2, 0.4, 21))
    assert FuDyADTOptions(alpha=0.2, beta=0.4, min_samples_split=21).promise().promised
    for epsilon, promised in ((nextafter(bound, 0), True), (nextafter(bound, 1), False), (1.9, False)):
        options = FuDyADTOptions(epsilon=epsilon, alpha=0.2, beta=0.4, min_samples_split=21)
        assert options.promise().promised is promised
    assert FuDyADTOptions(epsilon=0.01, alpha=0.0).promise().reason.id == "learners.no_epsilon"


def test_certificates_refuse_a_beta_that_their_rounding_would_not_cover() -> None:
    """What they leave for rounding, 1e-12, took all of such a beta: an audit found certificates that had run out."""
    for beta in (5e-13, nextafter(LEAST_BETA, 0)):
        with refused("learners.certificate_beta", least=LEAST_BETA):
            FuDyADTOptions(beta=beta)
        assert not FuDyADTOptions(beta=beta, schedule="published").certified
        assert FuDyADTOptions(beta=beta, epsilon=0.1).beta == beta


def test_an_audit_agrees_with_certificates_of_the_least_beta() -> None:
    for seed, estimator in enumerate((FullyDynamicTreeClassifier, FullyDynamicTreeRegressor)):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 6, (400, 3)).astype(float)
        y = rng.integers(0, 3, 400) + (X[:, 0] > 2)
        for beta in (LEAST_BETA, 1e-6):
            tree = estimator(beta=beta).fit(X[:200], y[:200])
            for start in range(200, 400, 20):
                tree.partial_fit(X[start : start + 20], y[start : start + 20])
                tree.forget(tree.row_ids_[::2])
            report = tree.audit()
            assert (report.conformance, report.feasibility, report.failures) == ("holds", "proven", [])
