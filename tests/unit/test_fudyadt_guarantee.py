"""The bound on epsilon, exactly."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nextafter

import pytest

from raydt.errors import ConfigError
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.fully_dynamic import auto_epsilon, epsilon_bound


def test_auto_epsilon_is_the_last_float_below_the_bound() -> None:
    for alpha, beta, size in ((0.1, 0.2, 2), (1.0, 1.0, 2), (1.0, 1.0, 50), (1e-300, 0.5, 2), (0.5, 2**-40, 3)):
        bound, epsilon = epsilon_bound(alpha, beta, size), auto_epsilon(alpha, beta, size)
        assert Fraction(epsilon) < bound <= Fraction(nextafter(epsilon, inf))
    assert auto_epsilon(1.0, 1.0, 2) == 0.14285714285714285 < Fraction(1, 7)


@pytest.mark.parametrize(("alpha", "beta", "name"), [(0.0, 0.2, "alpha"), (0.1, 0.0, "beta")])
def test_auto_epsilon_needs_alpha_and_beta(alpha: float, beta: float, name: str) -> None:
    with pytest.raises(ConfigError, match=f"auto needs {name} > 0"):
        auto_epsilon(alpha, beta, 2)
    assert epsilon_bound(alpha, beta, 2) == 0


def test_a_promise_is_kept_to_the_last_bit() -> None:
    """The bound itself is excluded; the float below it, which auto takes, is not."""
    bound = float(epsilon_bound(0.2, 0.4, 21))
    assert FuDyADTOptions(alpha=0.2, beta=0.4, min_samples_split=21).promise().promised
    for epsilon, promised in ((nextafter(bound, 0), True), (nextafter(bound, 1), False), (1.9, False)):
        options = FuDyADTOptions(epsilon=epsilon, alpha=0.2, beta=0.4, min_samples_split=21)
        assert options.promise().promised is promised
    assert FuDyADTOptions(epsilon=0.01, alpha=0.0).promise().reason.startswith("alpha is 0")
