"""The confidence tree: its estimator, its audit, and the bounds of its rules."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

import raydt.finders.pool as pool_module
import raydt.learners.confidence_tree.shard as shard_module
from raydt import ConfidenceTreeClassifier
from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import DELETE, INSERT, Features, History, UpdateBatch
from raydt.finders.finder import xlogx_table
from raydt.learners.confidence_tree import LEARNER
from raydt.learners.confidence_tree.bounds import (
    BEST,
    COUNTS,
    CRITERIA,
    entropy_width,
    gini_width,
    kearns_mansour_width,
    merge,
)
from raydt.learners.confidence_tree.naive_bayes import LeafPrediction
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.messages import message
from raydt.sessions.session import InProcessSession
from tests.oracles import confidence_bounds as printed
from tests.refusals import findings

# -- confidence tree estimator ---------------------------------------------------------------------------------------
# ConfidenceTreeClassifier: scikit-learn's checks, parameters, cuts of calls, NaN, sparse rows, deletion, saving.

RNG = np.random.default_rng(5)
X = np.round(RNG.normal(size=(600, 4)), 1)
Y = (X[:, 0] > 0).astype(int) + (X[:, 2] > 0.5)


def test_few_first_rows_and_bins_that_stay_are_warned_of() -> None:
    tree = ConfidenceTreeClassifier(renew_bins=0)
    with pytest.warns(UserWarning, match=re.escape(message("learners.few_rows", rows="5 rows"))):
        tree.partial_fit(X[:5], Y[:5])
    tree.partial_fit(X[5:], Y[5:])
    ConfidenceTreeClassifier(renew_bins=0).partial_fit(X[:20], Y[:20])  # nor do later calls warn, or renewed bins
    ConfidenceTreeClassifier().partial_fit(X[:5], Y[:5])


@pytest.mark.filterwarnings("ignore:ConfidenceTreeClassifier. the bins:UserWarning")
@pytest.mark.parametrize("first", [1, 5, 400])
def test_a_first_call_of_few_rows_is_enough(first: int) -> None:
    """Its rows make the first bins only; with bins that stay, one row leaves nothing to split by."""
    rng = np.random.default_rng(4)
    X = rng.random((3000, 3))
    y = X[:, 1] > 0.5
    right = {}
    for renew_bins in (None, 0):
        tree = ConfidenceTreeClassifier(renew_bins=renew_bins, leaf_prediction="majority")
        tree.partial_fit(X[:first], y[:first], [False, True])
        for begin in range(first, 2500, 100):
            tree.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
        right[renew_bins] = tree.score(X[2500:], y[2500:])
    assert right[None] > 0.95
    assert right[0] < 0.95 or first > 1


def test_naive_bayes_leaves_predict_where_no_split_is_sure() -> None:
    """Three weak features: together they tell more than the majority, and nothing is left after a deletion."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 1500)
    X = rng.normal(size=(1500, 3)) + y[:, None]
    by_kind = {}
    for kind in ("majority", "naive_bayes", "adaptive"):
        tree = ConfidenceTreeClassifier(leaf_prediction=kind, c=1.0).fit(X[:1000], y[:1000])
        by_kind[kind] = tree.score(X[1000:], y[1000:])
        shares = tree.predict_proba(X[1000:])
        assert (tree.predict(X[1000:]) == tree.classes_[shares.argmax(axis=1)]).all()
        tree.forget(tree.row_ids_)
        assert len(set(tree.predict(X).tolist())) == 1
    assert by_kind["majority"] < 0.6 < 0.75 < by_kind["naive_bayes"]
    assert by_kind["adaptive"] == by_kind["naive_bayes"]


@pytest.mark.parametrize("kind", get_args(LeafPrediction))
def test_a_receipt_tells_of_choices_wherever_leaves_choose(kind: str) -> None:
    tree = ConfidenceTreeClassifier(leaf_prediction=kind).fit([[i % 5] for i in range(30)], [i % 2 for i in range(30)])
    told = [copy for copy in tree.forget([3]).copies if copy.startswith("which prediction of a leaf was right")]
    assert len(told) == kind.startswith("adaptive")


# -- confidence tree audit -------------------------------------------------------------------------------------------
# The audit of confidence trees holds on sound states of every rule, and finds each kind of damage.


def by_the_theorem(
    n: int, noise: float, gone: tuple[int, ...] = (), **settings: Any
) -> tuple[Any, Features, dict[str, Any], Any, History]:
    """Options, features, state, groups and history of a tree on two bits, the first of which is the label.

    Rows that are ``gone`` are deleted in the end.
    """
    rng = np.random.default_rng(1)
    X = rng.integers(0, 2, (n, 2)).astype(float)
    options = LEARNER.Options(confidence="theorem", rival="split", **settings)
    features = Features(("a", "b"), (False, False), 2)
    session = InProcessSession(LEARNER, options, features, 2)
    y, key = (X[:, 0] != (rng.random(n) < noise)).astype(np.int32), np.arange(n)
    op = np.array([INSERT] * n + [DELETE] * len(gone), np.int8)
    session.apply(UpdateBatch(0, op, np.append(key, gone).astype(np.int64), X, y, 2, np.arange(len(op)), 10))
    died = np.full(n, np.iinfo(np.int64).max)
    died[[*gone]] = n + np.arange(len(gone))
    return options, features, *session.state(), History(key, X, y, key, died, 10)


def test_another_past_is_found() -> None:
    """A row that was counted, and is gone, has another label; and one was never there."""
    options, features, state, groups, h = by_the_theorem(6000, 0.0, (20,), delta=0.1)
    y, kept = h.y.copy(), np.delete(np.arange(len(h.y)), 20)
    y[20] = 1 - y[20]
    less = History(h.id[kept], h.X[kept], h.y[kept], h.inserted[kept], h.deleted[kept], h.warmup)
    for history, wrong in ((h, set()), (replace(h, y=y), {"own"}), (less, {"m"})):
        report = LEARNER.audit(options, features, state, history, groups)
        assert {f"audits.record:{name}" for name in wrong} <= findings(report)
        assert report.ok == (not wrong)


def test_a_split_by_the_theorem_is_proven_and_a_doubtful_one_is_not() -> None:
    options, features, state, groups, history = by_the_theorem(6000, 0.0, delta=0.1)
    assert state["split_reason"].tolist() == [0]
    report = LEARNER.audit(options, features, state, history, groups)
    assert (report.failures, report.conformance, report.feasibility) == ([], "holds", "proven")
    assert 1 <= report.worst["theorem_lead"] < 1.2
    assert report.reason.id == "learners.proven_splits"
    surer = options.model_copy(update={"delta": 1e-9})
    report = LEARNER.audit(surer, features, state, history, groups)
    assert (report.conformance, report.feasibility) == ("violated", "violated")
    assert "audits.lead" in findings(report)


def test_ties_are_proven_to_be_ties_and_count_in_no_lead() -> None:
    options, features, state, groups, history = by_the_theorem(22_000, 0.03, delta=0.5, tie_threshold=0.2)
    assert state["split_reason"].tolist() == [0, 1, 1]
    report = LEARNER.audit(options, features, state, history, groups)
    assert (report.failures, report.conformance, report.feasibility) == ([], "holds", "proven")
    assert report.reason.id == "learners.proven_ties"
    assert report.reason.parameters["lack"] == 0.4
    assert message("audits.measured_splits", splits="1 split", ties=2) in report.reason
    assert 1 <= report.worst["theorem_lead"] == pytest.approx(report.worst["lead"])
    forged = {**state, "split_reason": np.array([0, 0, 1])}
    report = LEARNER.audit(options, features, forged, history, groups)
    assert (report.conformance, report.feasibility) == ("violated", "violated")


def test_a_tree_without_splits_has_nothing_to_prove() -> None:
    options, features, state, groups, history = by_the_theorem(500, 0.0, delta=0.1)
    report = LEARNER.audit(options, features, state, history, groups)
    assert (report.feasibility, report.worst) == ("proven", {})
    assert report.reason.endswith(message("audits.no_split"))


@pytest.mark.parametrize(
    ("settings", "reason", "limit"),
    [
        ({"delta": "1/t"}, "falling_delta", None),
        ({"tie_threshold": 0.25}, "ties", 0.5),
        ({"tie_threshold": 0.25, "criterion": "kearns_mansour"}, "ties", 0.5),
        ({"tie_threshold": 0.1735, "criterion": "entropy"}, "ties", 0.347),
        ({"max_bins": 1025}, "many_bins", None),
    ],
)
def test_what_is_not_promised(settings: dict[str, Any], reason: str, limit: float | None) -> None:
    promised = {"confidence": "theorem", "rival": "split"}
    less = {"tie_threshold": 0.001, "max_bins": 1}  # below their limits they are promised
    below = {name: value - less[name] if name in less else value for name, value in settings.items()}
    refused = LEARNER.Options(**promised, **settings).promise()
    assert not refused.promised
    assert refused.reason.id == f"learners.{reason}"
    assert refused.reason.parameters.get("limit") == pytest.approx(limit, abs=1e-3)
    assert LEARNER.Options(**promised, **below).promise().promised == bool(less.keys() & settings.keys())


# -- confidence bounds -----------------------------------------------------------------------------------------------
# Widths and rules of the confidence tree are those of the equations; a rule that is a little off is told apart.

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


# -- confidence coverage ---------------------------------------------------------------------------------------------
# The three theorems hold: |Phi-hat - Phi| <= eps at least as often as they say, in parts and as a whole.
#
# What is estimated is the score that the tree splits by.

Floats = npt.NDArray[np.float64]
SIZES = (10, 45, 300, 2000)
DELTAS = (0.9, 0.5, 0.05)
DRAWS = 4000

#: P(Y = y, F = k), by side and class. ``RARE`` has an expected count of about one on either side at each m.
TWO = {
    "told apart": [[0.5, 0.0], [0.0, 0.5]],
    "of no use": [[0.25, 0.25], [0.25, 0.25]],
    "of some use": [[0.35, 0.15], [0.1, 0.4]],
    "small side": [[0.02, 0.01], [0.4, 0.57]],
    "rare class": [[0.49, 0.01], [0.47, 0.03]],
    "steep": [[0.427, 0.073], [0.427, 0.073]],
}
THREE = {
    "alike": [[1 / 6] * 3, [1 / 6] * 3],
    "of some use": [[0.3, 0.1, 0.1], [0.05, 0.2, 0.25]],
    "rare": [[0.45, 0.01, 0.02], [0.49, 0.02, 0.01]],
}


def rare(m: int) -> list[list[float]]:
    """As many of class 1 on either side as make an empty cell likely."""
    p = 0.35 / m
    return [[0.5 - p, p], [0.5 - p, p]]


def estimates(criterion: str, counts: npt.NDArray[np.int64]) -> Floats:
    """Phi-hat of many samples of one size, as the tree computes it; ``counts``: shape (draws, sides, classes)."""
    draws, _, K = counts.shape
    candidates = np.full((draws, 1, 3, COUNTS + K), -1, dtype=np.int64)
    candidates[:, 0, BEST, :COUNTS], candidates[:, 0, BEST, COUNTS:] = 0, counts[:, 0]
    found, scores, impurity = np.empty_like(candidates[:, 0]), np.empty((draws, 3)), np.empty(draws)
    table = xlogx_table(int(counts[0].sum()))
    merge(CRITERIA.index(criterion), True, table, counts.sum(axis=1), candidates, found, scores, impurity)
    return scores[:, BEST]


def misses(criterion: str, joint: Sequence[Sequence[float]], m: int, eps: float) -> int:
    """Samples of m whose estimate is further than eps from the truth."""
    shape = np.shape(joint)
    draws = np.random.default_rng(m).multinomial(m, np.ravel(joint), DRAWS).reshape(DRAWS, *shape)
    error = estimates(criterion, draws) - printed.GIVEN[criterion](joint)
    return int((np.abs(error) > eps).sum())


def allowed(delta: float) -> float:
    """More misses than this show that the probability of one is larger than delta."""
    return DRAWS * delta + 4 * math.sqrt(DRAWS * delta * (1 - delta))


THEOREMS: list[tuple[str, dict[str, Any], Callable[[int, float], float]]] = [
    ("entropy", TWO, entropy_width),
    ("entropy", THREE, lambda m, delta: entropy_width(m, delta, 3)),
    ("gini", TWO, gini_width),
    ("gini", THREE, gini_width),
    ("kearns_mansour", TWO, kearns_mansour_width),
]
NAMES = [f"{criterion} of {len(next(iter(joints.values()))[0])}" for criterion, joints, _ in THEOREMS]


@pytest.mark.parametrize(("criterion", "joints", "width"), THEOREMS, ids=NAMES)
def test_coverage(criterion: str, joints: dict[str, Any], width: Callable[[int, float], float]) -> None:
    for m in SIZES:
        more = {"likely empty": rare(m)} if joints is TWO else {}
        for name, joint in (joints | more).items():
            for delta in DELTAS:
                assert misses(criterion, joint, m, width(m, delta)) <= allowed(delta), (name, m, delta)


@pytest.mark.parametrize(("criterion", "joints", "width"), THEOREMS, ids=NAMES)
def test_coverage_is_put_to_the_test(criterion: str, joints: dict[str, Any], width: Any) -> None:
    """The same samples show that a width of a fortieth does not cover."""
    delta = 0.05
    for m in SIZES:
        assert max(misses(criterion, joint, m, width(m, delta) / 40) for joint in joints.values()) > allowed(delta), m


def test_estimates_are_those_of_the_theorems() -> None:
    draws = np.random.default_rng(1)
    for criterion, K in (("gini", 2), ("gini", 3), ("entropy", 2), ("entropy", 3), ("kearns_mansour", 2)):
        for _ in range(20):
            counts = draws.multinomial(12, np.full(2 * K, 1 / (2 * K))).reshape(2, K)
            (estimate,) = estimates(criterion, counts[None])
            assert math.isclose(estimate, printed.GIVEN[criterion](counts / 12), abs_tol=1e-14)
    # Of two classes the Gini index is the sum of the harmonic means of p_k and q_k, that is P(Y = 0, F = k).
    joint = [[0.3, 0.2], [0.1, 0.4]]
    assert math.isclose(printed.gini_given(joint), 2 * 0.3 * 0.2 / 0.5 + 2 * 0.1 * 0.4 / 0.5)


# -- confidence limits -----------------------------------------------------------------------------------------------
# Confidence trees at the edges of what a shard takes at once, and with options and states that cannot be.


def test_leaves_are_split_where_dead_entries_are_freed_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves of a sliding window, whose labels turn around, are split while the pool of the shards is swept."""
    monkeypatch.setattr(shard_module, "_TOGETHER", 7)
    monkeypatch.setattr(shard_module, "free_dead", pool_module._sweep)
    n, window, width = 1500, 150, 400
    rng = np.random.default_rng(3)
    ones = [np.unique(np.append(rng.integers(10, width, 12), rng.integers(0, 10, 3))) for _ in range(n)]
    y = np.array([(0 in row) ^ (i // 250 % 2) for i, row in enumerate(ones)], dtype=np.int32)
    steps = [(op, i) for i in range(n) for op in ((INSERT, DELETE) if i >= window else (INSERT,))]
    op = np.array([kind for kind, _ in steps], dtype=np.int8)
    key = np.array([i if kind == INSERT else i - window for kind, i in steps])
    options = LEARNER.Options(grace_period=10, c=0.003)
    features = Features((), (), 3, sparse=width)
    digests = set()
    for shards in (1, 2):
        session = InProcessSession(LEARNER, options, features, shards)
        lengths = np.array([len(row) for row in ones])
        rows = SparseRows.of_lengths(lengths, np.concatenate(ones).astype(np.int32), width)
        session.apply(UpdateBatch(0, op, key, np.empty((n, 0)), y, 2, np.full(len(op), -1), 30, sparse=rows))
        state, groups = session.state()
        LEARNER.check(options, features, 2, state, groups)
        digests.add(session.digest())
        assert session.statistics()["splits"] > 2
    assert len(digests) == 1


def of_dense_rows(n_classes: int) -> tuple[Any, Features, InProcessSession]:
    options, features = LEARNER.Options(grace_period=10, c=0.01), Features(("a", "b"), (False, False), 2)
    session = InProcessSession(LEARNER, options, features, 2)
    X = np.random.default_rng(0).random((200, 2))
    y = (X[:, 0] > 0.5).astype(np.int32)
    op, key = np.full(200, INSERT, dtype=np.int8), np.arange(200)
    session.apply(UpdateBatch(0, op, key, X, y, n_classes, np.full(200, -1), 50))
    return options, features, session


def test_classes_that_were_announced_only_need_not_be_announced_again() -> None:
    options, features, session = of_dense_rows(9)
    again = InProcessSession(LEARNER, options, features, 2)
    again.restore(*session.state())
    X = np.random.default_rng(1).random((200, 2))
    batch = [np.full(200, INSERT, dtype=np.int8), np.arange(200, 400), X, (X[:, 1] > 0.5).astype(np.int32)]
    for one in (session, again):
        one.apply(UpdateBatch(200, *batch, 9 if one is session else 2, np.full(200, -1), 50))
    assert session.digest() == again.digest()


@pytest.mark.parametrize("name", ["was_right", "leaf"])
def test_who_was_right_and_the_tallies_of_a_leaf_show_in_the_digest(name: str) -> None:
    """Adaptive leaves predict by them: of two trees that differ in nothing else one may predict another class.

    A row in another leaf: nothing that the digest has of rows is another, but a leaf lacks its part.
    """
    options, features, session = of_dense_rows(2)
    state, groups = session.state()
    leaf, leaves = state["leaf"], np.flatnonzero(state["feature"] < 0)
    tallied = (2 * state["born"] + 1 > state["created"][leaf]) & (state["was_right"] > 0)
    row = int(np.flatnonzero(tallied)[0])
    other = state[name].copy()
    other[row] = state[name][row] ^ 1 if name == "was_right" else leaves[leaves != leaf[row]][0]
    again = InProcessSession(LEARNER, options, features, 2)
    again.restore({**state, name: other}, groups)
    assert again.digest() != session.digest()
