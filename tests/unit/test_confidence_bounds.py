"""Widths and rules of the confidence tree are those of the equations; a rule that is a little off is told apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import pytest

from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from tests.oracles import confidence_bounds as printed

POINTS = 1000
TOLERANCE = Decimal("1e-12")
#: How far from a threshold the tests of rules go: nearer than any mistake would move it.
NEAR = 1e-6


def integers(seed: int, most: float) -> Iterator[int]:
    """Small and large ones alike."""
    draws = np.random.default_rng(seed)
    while True:
        yield int(10 ** draws.uniform(0, math.log10(most)))


def points(seed: int) -> Iterator[dict[str, Any]]:
    """Examples, time, depth, features, classes, and the settings of a rule."""
    draws = np.random.default_rng(seed)
    ms, ds = integers(seed + 1, 1e9), integers(seed + 2, 2e9)
    for _ in range(POINTS):
        m = next(ms)
        t = m * int(10 ** draws.uniform(0, 4)) + int(draws.integers(0, 3))
        delta = float(10 ** -draws.choice([draws.uniform(0.05, 2), draws.uniform(2, 100)]))
        c = float(10 ** draws.uniform(-3, 1))
        depth, K = int(draws.integers(0, 70)), int(draws.integers(2, 40))
        yield {"m": m, "t": t, "depth": depth, "d": next(ds), "K": K, "delta": delta, "c": c}


SETTINGS: list[dict[str, Any]] = [
    *({"rule": "ctree", "criterion": c} for c in ("gini", "entropy", "kearns_mansour")),
    *({"rule": "ctree", "criterion": c, "confidence": "theorem"} for c in ("gini", "entropy", "kearns_mansour")),
    *({"rule": "hoeffding", "criterion": c} for c in ("gini", "entropy")),
    {"rule": "corrected"},
    {"rule": "mcdiarmid"},
]
each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: " ".join(str(v) for v in s.values()))


def options_of(point: dict[str, Any], setting: dict[str, Any], tie: float = 0.0) -> ConfidenceTreeOptions:
    practical = setting["rule"] == "ctree" and "confidence" not in setting
    own = {"c": point["c"]} if practical else {"delta": "1/t" if point["m"] % 5 == 2 else point["delta"]}
    return ConfidenceTreeOptions(**setting, **own, tie_threshold=tie)


def place(point: dict[str, Any], options: ConfidenceTreeOptions) -> tuple[int, int, int, int, int]:
    K = 2 if options.resolved_criterion == "kearns_mansour" else point["K"]
    return point["m"], point["t"], point["depth"], point["d"], K


def gap(options: ConfidenceTreeOptions, eps: float) -> float:
    """By how much a score has to be less than another."""
    both = options.rule in ("ctree", "corrected")
    bits = printed.criterion_of(options) == "entropy" and options.rule != "ctree"
    return eps * (2 if both else 1) * (math.log(2) / 2 if bits else 1)


@pytest.mark.turns(4)
@each_setting
def test_widths_of_rules(setting: dict[str, Any]) -> None:
    for point in points(7):
        options = options_of(point, setting)
        m, t, depth, d, K = place(point, options)
        exact = printed.width(options, m, t, depth, d, K)
        assert abs(Decimal(options.split_rule(d).width(m, t, depth, K)) - exact) <= TOLERANCE * exact


@each_setting
def test_rules_decide_as_printed(setting: dict[str, Any]) -> None:
    """Just before and just after a threshold."""
    for point in islice(points(11), 100):
        options = options_of(point, setting)
        m, t, depth, d, K = place(point, options)
        rule = options.split_rule(d)
        eps = float(printed.width(options, m, t, depth, d, K))
        for rival in (gap(options, eps) * (1 + NEAR), gap(options, eps) * (1 - NEAR)):
            decided = rule.reason(0.0, rival, rival, rule.width(m, t, depth, K))
            assert decided == printed.reason(options, 0.0, rival, rival, eps)


@each_setting
def test_at_the_threshold_itself(setting: dict[str, Any]) -> None:
    """C-Tree splits at equality (line 6 of Algorithm 1), the others do not ("exceeds")."""
    rule = ConfidenceTreeOptions(**setting).split_rule(9)
    width = 0.125
    if rule.rule == "ctree":
        rival = 0.75
        assert rule.beats(rival - 2 * width, rival, width)
        assert not rule.beats(math.nextafter(rival - 2 * width, 1.0), rival, width)
    elif not rule.bits:
        lead = 2 * width if rule.rule == "corrected" else width
        assert not rule.beats(0.0, lead, width)
        assert rule.beats(0.0, math.nextafter(lead, 1.0), width)
    else:  # a lead whose value in bits is a float64 exactly
        lead = 0.1
        bits = lead * 2 / math.log(2)
        assert not rule.beats(0.0, lead, bits)
        assert rule.beats(0.0, lead, math.nextafter(bits, 0.0))


@each_setting
def test_ties(setting: dict[str, Any]) -> None:
    """Narrow enough, and of some gain: not strictly narrower, not without gain, not if ties are off."""
    rule = ConfidenceTreeOptions(**setting, tie_threshold=0.05).split_rule(9)
    off = ConfidenceTreeOptions(**setting).split_rule(9)
    assert rule.reason(0.3, 0.3, 0.4, 0.05) == 1
    assert rule.reason(0.3, 0.3, 0.4, math.nextafter(0.05, 1.0)) is None
    assert rule.reason(0.3, 0.3, 0.3, 0.05) is None
    assert off.reason(0.3, 0.3, 0.4, 0.05) is None
    assert rule.reason(0.1, 9.0, 9.0, 0.05) == 0
