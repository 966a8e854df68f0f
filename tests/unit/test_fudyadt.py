"""FuDyADT: examples by hand, options, and its audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import inf, nextafter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeRegressor

from pipelines.display import audit_lines
from raydt import FullyDynamicTreeClassifier, FullyDynamicTreeRegressor
from raydt.audits.recorded_tree import AuditReport
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import DELETE, INSERT, UPDATE, Features, History, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan, auto_epsilon, epsilon_bound
from raydt.learners.fudyadt import dynamic_tree
from raydt.learners.fudyadt.audit import audit
from raydt.learners.fudyadt.histograms import largest_build
from raydt.learners.fudyadt.options import LEAST_BETA, FuDyADTOptions
from raydt.sessions.session import InProcessSession
from raydt.trees import counted_tree
from raydt.trees.canonical_arrays import live_tree
from raydt.trees.records import smoothed_shares
from tests.oracles.digests import places, violations
from tests.oracles.fudyadt import TO_LEFT, TO_RIGHT, UNDECIDED, Example, FudyadtTwin, Node, Split, twin_with
from tests.refusals import findings, refused
from tests.strategies import Stream, fudyadt_options, streams
from tests.volume import examples

# -- fudyadt ---------------------------------------------------------------------------------------------------------
# FuDyADT: its guarantee to the last bit, edges of the coordinator, numeric labels, and how well it predicts.

LEARNER = learners()["fudyadt"]

# ---------------------------------------------------------------------- the guarantee

#: alpha, beta, min_samples_split.
PROMISES = ((0.1, 0.2, 2), (1.0, 1.0, 2), (1.0, 1.0, 50), (1e-300, 0.5, 2), (0.5, 2**-40, 3))
PROMISES_OF_NUMBERS = ((0.005, 0.01, 2), (1.0, 0.01, 2), (0.3, 1.0, 50), (1.0, 1.0, 2))


@pytest.mark.parametrize(
    ("criterion", "promises"), [("gini", PROMISES), ("squared_error", PROMISES_OF_NUMBERS)], ids=["classes", "numbers"]
)
def test_auto_epsilon_is_the_last_float_below_the_bound(criterion: str, promises: Any) -> None:
    for alpha, beta, size in promises:
        bound, a, b, most = (
            epsilon_bound(alpha, beta, size, criterion),
            Fraction(alpha),
            Fraction(beta),
            Fraction(1, size),
        )
        rounding = Fraction(1, 2**30)
        of_numbers = min(most, a / 2 - rounding, b / (1 + b) - rounding)
        assert bound == (of_numbers if criterion == "squared_error" else min(most, a / (4 + a), b / (6 + b)))
        epsilon = auto_epsilon(alpha, beta, size, criterion)
        assert Fraction(epsilon) < bound <= Fraction(nextafter(epsilon, inf))
    assert auto_epsilon(1.0, 1.0, 2) == 0.14285714285714285 < Fraction(1, 7)


@pytest.mark.parametrize(
    ("alpha", "beta", "criterion"),
    [
        *((*of, criterion) for of in ((0.0, 0.2), (0.1, 0.0)) for criterion in ("gini", "squared_error")),
        (1e-9, 0.1, "squared_error"),
        (0.1, 1e-10, "squared_error"),
    ],
)
def test_too_small_an_alpha_or_beta_has_no_epsilon(alpha: float, beta: float, criterion: str) -> None:
    assert epsilon_bound(alpha, beta, 2, criterion) == 0
    with refused("learners.no_epsilon", ConfigError, alpha=alpha, beta=beta):
        auto_epsilon(alpha, beta, 2, criterion)


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


# ---------------------------------------------------------------------- edges of the coordinator

FEATURES = Features(("a", "b", "c"), (False, False, True))
RNG = np.random.default_rng(8)
X = np.column_stack([RNG.normal(size=(200, 2)), RNG.integers(0, 4, 200)]).astype(np.float64)
Y = ((X[:, 0] > 0) ^ (X[:, 2] == 1)).astype(np.int32)


def session_of_classes() -> InProcessSession:
    return InProcessSession(LEARNER, LEARNER.Options(), FEATURES, 2, WorkPlan())


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_class_announced_after_a_refusal_does_not_show(size: int) -> None:
    op = np.array([INSERT, INSERT, INSERT, DELETE, INSERT], dtype=np.int8)
    key, y = np.array([0, 1, 2, 99, 3]), np.array([0, 1, 0, 2], dtype=np.int32)
    run = session_of_classes()
    for begin in range(0, 5, size):
        part = slice(begin, min(begin + size, 5))
        rows = slice(int((op[:begin] == INSERT).sum()), int((op[: part.stop] == INSERT).sum()))
        classes = max(2, int(y[: rows.stop].max(initial=0)) + 1)
        row = np.full(part.stop - begin, -1)
        result = run.apply(UpdateBatch(begin, op[part], key[part], X[:4][rows], y[rows], classes, row))
        if result.refused:
            break
    assert run.statistics()["active"] == 3
    assert run.state()[0]["counts"].shape[1] == 2
    expected = session_of_classes()
    expected.apply(UpdateBatch(0, op[:3], key[:3], X[:3], y[:3], 2, np.full(3, -1)))
    assert run.digest() == expected.digest()


def test_more_rows_and_classes_than_an_element_holds_are_refused() -> None:
    assert largest_build(2) == 2**31
    classes = 2**26
    assert largest_build(classes) == 64
    run = session_of_classes()
    n = largest_build(classes) + 1
    huge = UpdateBatch(0, np.full(n, INSERT, np.int8), np.arange(n), X[:n], Y[:n], classes, np.full(n, -1))
    with refused("learners.examples", InputError, examples=65, what="of 67,108,864 classes", most=64):
        run.apply(huge)
    assert run.statistics()["active"] == 0


@pytest.mark.parametrize("epsilon", [-0.1, 1e19, float("inf"), float("nan")])
def test_epsilon_has_to_be_a_sensible_number(epsilon: float) -> None:
    with refused("learners.epsilon", most=1e6):
        LEARNER.Options(kind="fudyadt", epsilon=epsilon)


# ---------------------------------------------------------------------- numeric labels


def numbers(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return X, np.round(10 * (X[:, 0] > 0.5) + 4 * X[:, 1] + 0.3 * rng.normal(size=n), 1)


def of_numbers(**given: Any) -> Any:
    return LEARNER.Options(kind="fudyadt", criterion="squared_error", **given)


def test_as_good_as_a_tree_of_the_same_depth() -> None:
    X, y = numbers(3000)
    ours = FullyDynamicTreeRegressor(max_depth=6).fit(X[:1000], y[:1000]).partial_fit(X[1000:2000], y[1000:2000])
    ours.forget(ours.row_ids_[:300])
    theirs = DecisionTreeRegressor(max_depth=6, random_state=0).fit(X[:2000], y[:2000])
    assert ours.score(X[2000:], y[2000:]) > theirs.score(X[2000:], y[2000:]) - 0.02
    report = ours.audit()
    assert (report.conformance, report.feasibility, report.failures) == ("holds", "proven", [])
    assert "leaf_variance" in report.worst
    assert "variance of a leaf that may be split" in audit_lines(report.as_dict(), "fudyadt", None)


def test_labels_beyond_the_range_count_as_its_ends() -> None:
    tree = FullyDynamicTreeRegressor(label_range=(0.0, 8.0), smoothing=0).fit([[0.0], [1.0]], [-100.0, 100.0])
    assert tree.predict([[0.0], [1.0]]).tolist() == [0.0, 8.0]
    tree.partial_fit([[2.0]], [9.0])
    assert tree.forget_examples([[2.0]], [9.0]).active == 2  # by value they are what they were


def test_a_range_that_is_not_declared_follows_the_labels() -> None:
    tree = FullyDynamicTreeRegressor(smoothing=0).fit([[0.0], [1.0]], [1.0, 5.0])
    for n, y in enumerate((7.0, -40.0, 1e6)):
        tree.partial_fit([[2.0 + n]], [y])
        assert tree.predict([[2.0 + n]]).tolist() == [pytest.approx(y, rel=1e-3)]
    assert tree.session_.statistics()["rebuilds"] == 4  # each of the three lies outside
    assert tree.audit().ok


def test_a_label_that_was_deleted_leaves_nothing_in_the_range_of_exact_trees() -> None:
    tree = FullyDynamicTreeRegressor(epsilon=0.0).fit([[0.0], [1.0]], [1.0, 5.0])
    assert tree.partial_fit([[2.0]], [1e6]).forget(tree.row_ids_).active == 2
    assert tree.session_.model()["label_range"].tolist() == [1.0, 5.0]
    tree.forget([0, 1])
    assert np.isnan(tree.session_.model()["label_range"]).all()
    assert tree.predict([[0.0]]).tolist() == [0.0]
    assert tree.partial_fit([[2.0]], [3.0]).predict([[0.0]]).tolist() == [3.0]
    assert tree.audit().ok


def test_a_stream_of_numbers_needs_no_warmup() -> None:
    X, y = numbers(200)
    tree, whole = FullyDynamicTreeRegressor(epsilon=0.0), FullyDynamicTreeRegressor(epsilon=0.0)
    for begin in range(0, 200, 50):
        tree.partial_fit(X[begin : begin + 50], y[begin : begin + 50])
    assert tree.predict(X).tolist() == whole.fit(X, y).predict(X).tolist()


def test_a_stream_of_noise_is_hardly_worse_than_its_mean() -> None:
    draws, errors = np.random.default_rng(4), {30.0: 0.0, 0.0: 0.0}
    X, y = draws.random((1000, 3)), draws.normal(size=1000)
    for smoothing in errors:
        tree = FullyDynamicTreeRegressor(smoothing=smoothing).fit(X[:300], y[:300])
        for i in range(300, 1000):
            errors[smoothing] += (tree.predict(X[i : i + 1])[0] - y[i]) ** 2 / 700
            tree.partial_fit(X[i : i + 1], y[i : i + 1])
    assert errors[30.0] < 1.03 * np.var(y[300:]) < errors[0.0]


def test_an_empty_leaf_predicts_what_the_nearest_node_above_does() -> None:
    X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 7.0, 8.0]
    tree = FullyDynamicTreeRegressor(epsilon=5.0, alpha=0.0, beta=0.0, max_depth=1, smoothing=0).fit(X, y)
    tree.forget(tree.row_ids_[2:])
    assert tree.session_.statistics()["leaves"] == 2
    assert tree.predict([[0.0], [3.0]]).tolist() == [0.5, 0.5]
    tree.forget(tree.row_ids_[:2])
    assert tree.predict([[0.0]]).tolist() == [0.0]


def test_defaults_of_alpha_and_beta_depend_on_the_criterion() -> None:
    assert (of_numbers().alpha, of_numbers().beta) == (0.005, 0.01)
    assert (of_numbers(alpha=0.1).alpha, of_numbers(alpha=0.1).beta) == (0.1, 0.01)
    assert (LEARNER.Options().alpha, LEARNER.Options().beta) == (0.02, 0.2)
    own = {name: FullyDynamicTreeRegressor().get_params()[name] for name in ("alpha", "beta")}
    assert own == {"alpha": 0.005, "beta": 0.01}


@pytest.mark.parametrize("label_range", [(1.0, 1.0), (2.0, 1.0), (0.0, float("inf")), (float("nan"), 1.0), (0, 1e300)])
def test_a_range_that_is_none_is_refused(label_range: tuple[float, float]) -> None:
    with refused("learners.label_range"):
        of_numbers(label_range=label_range)


def test_classes_have_no_range() -> None:
    with refused("learners.class_range"):
        LEARNER.Options(label_range=(0.0, 1.0))


def test_more_examples_than_sums_can_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_tree, "MOST_EXAMPLES", 20)
    X, y = numbers(21)
    tree = FullyDynamicTreeRegressor().fit(X[:20], y[:20])
    with refused("learners.examples", InputError, examples=21, most=20):
        tree.partial_fit(X[20:], y[20:])
    assert tree.session_.statistics()["active"] == 20


# ---------------------------------------------------------------------- defaults and smoothing


def rare(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Six numbers, two of which say how likely the rare class is: 6 % of the rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, (rng.random(n) < 1 / (1 + np.exp(4 - 1.5 * X[:, 0] - X[:, 1]))).astype(np.int64)


def auc(y: np.ndarray, scores: np.ndarray) -> float:
    """Share of the pairs of a row of class 1 and one of class 0 that the scores order; a tie is half a pair."""
    ones, zeros = scores[y == 1][:, None], scores[y == 0][None]
    return float((ones > zeros).mean() + (ones == zeros).mean() / 2)


@pytest.fixture(scope="module")
def trees() -> dict[str, Any]:
    """Trees of the same rare class: with default arguments, and with the defaults of before there was smoothing."""
    X, y = rare(6000, 1)
    earlier = {"alpha": 0.1, "max_depth": None, "smoothing": 0.0}
    return {
        "now": FullyDynamicTreeClassifier().fit(X, y),
        "plain": FullyDynamicTreeClassifier(smoothing=0.0).fit(X, y),
        "earlier": FullyDynamicTreeClassifier(**earlier).fit(X, y),
    }


def test_the_defaults_find_a_rare_class(trees: dict[str, Any]) -> None:
    X, y = rare(3000, 2)
    areas = {name: auc(y, tree.predict_proba(X)[:, 1]) for name, tree in trees.items()}
    assert areas["now"] > areas["plain"] + 0.1
    assert areas["now"] > areas["earlier"] + 0.1
    assert areas["now"] > 0.75


def test_smoothing_changes_predictions_only(trees: dict[str, Any]) -> None:
    assert trees["now"].digest() == trees["plain"].digest()


def test_by_hand() -> None:
    """A root of 6 and 2 rows, a leaf of 4, and two leaves of one class each below: the weight of a parent is 3 d^3."""
    model = {
        "feature": np.array([0, -1, 0, -1, -1], np.int32),
        "left": np.array([1, -1, 3, -1, -1], np.int32),
        "right": np.array([2, -1, 4, -1, -1], np.int32),
        "counts": np.array([[6, 2], [4, 0], [2, 2], [0, 2], [2, 0]]),
    }
    middle = (2 + 3 * 0.75) / (4 + 3)
    first = [0.75, (4 + 3 * 0.75) / (4 + 3), middle, 24 * middle / (2 + 24), (2 + 24 * middle) / (2 + 24)]
    expected = [[share, 1 - share] for share in first]
    np.testing.assert_allclose(smoothed_shares(model, 2, 3000.0), expected, rtol=1e-14)
    assert smoothed_shares(model, 2, 0.0).tolist() == [[0.75, 0.25], [1, 0], [0.5, 0.5], [0, 1], [1, 0]]
    wider = smoothed_shares(model, 3, 3000.0)  # a class that no row has
    np.testing.assert_array_equal(wider[:, :2], smoothed_shares(model, 2, 3000.0))
    assert not wider[:, 2].any()
    model["counts"][:] = 0
    assert smoothed_shares(model, 2, 3000.0).tolist() == [[0.5, 0.5]] * 5


def test_a_restored_tree_reads_no_side_of_missing_numbers_from_fresh_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree of more nodes than there is room for at first, whose state has decided no side."""

    def dirty(array: Any, capacity: int) -> Any:
        more = np.frombuffer(b"\x7f" * (capacity * array.dtype.itemsize), dtype=array.dtype).copy()
        more[: len(array)] = array
        return more

    monkeypatch.setattr(counted_tree, "grown", dirty)
    n = 201
    inner, at = np.arange(n) % 2 == 0, np.arange(n)
    inner[-1] = False
    arrays = {
        "feature": np.where(inner, 0, -1).astype(np.int32),
        "threshold": np.zeros(n),
        "left": np.where(inner, at + 1, -1).astype(np.int32),
        "right": np.where(inner, at + 2, -1).astype(np.int32),
        "s": np.zeros(n, dtype=np.int64),
        "c": np.zeros(n, dtype=np.int64),
        "built": np.zeros(n, dtype=np.int64),
        "counts": np.zeros((n, 2), dtype=np.int64),
    }
    tree = live_tree(arrays, counted_tree.TreeRules(0.1, 0.0, 2, 1000))
    assert not tree.nodes["missing"][:n].any()


# -- fudyadt audit ---------------------------------------------------------------------------------------------------
# The audit of FuDyADT passes what the twin makes, and finds every single thing that is wrong with it.

CATEGORICAL = (False, True, False)
FEATURES_AUDIT = Features(("a", "b", "c"), CATEGORICAL)
OPTIONS: dict[str, Any] = {"epsilon": 0.25, "alpha": 0.0, "beta": 0.0, "max_depth": None, "min_samples_split": 2}
CERTIFIED: dict[str, Any] = {"alpha": 0.1, "beta": 0.2}
PROMISED: dict[str, Any] = {**OPTIONS, "epsilon": auto_epsilon(0.5, 0.5, 2), "alpha": 0.5, "beta": 0.5}
WARMUP = 60


def batch(n: int = 400, seed: int = 10) -> UpdateBatch:
    """A stream whose label depends on all three features, with every kind of change after the warm-up."""
    rng = np.random.default_rng(seed)
    live: list[int] = []
    op, key, X, y = [], [], [], []
    for i in range(n):
        kind = INSERT if i < n // 2 else int(rng.choice([INSERT, DELETE, UPDATE], p=[0.35, 0.45, 0.2]))
        x = [rng.integers(12) / 4, rng.integers(4), rng.integers(40) / 8]
        label = int(x[0] > 1.5) + int(x[1] == 2 and x[2] > 2.0) if rng.random() < 0.9 else int(rng.integers(3))
        chosen = i if kind == INSERT else live[int(rng.integers(len(live)))]
        live.append(chosen) if kind == INSERT else kind == DELETE and live.remove(chosen)
        op.append(kind)
        key.append(chosen)
        if kind != DELETE:
            X.append(x)
            y.append(label)
    return UpdateBatch(
        0,
        np.array(op, np.int8),
        np.array(key, np.int64),
        np.array(X, np.float64),
        np.array(y, np.int32),
        3,
        np.full(n, -1),
        warmup=WARMUP,
    )


def run(twin: FudyadtTwin, updates: UpdateBatch | None = None) -> FudyadtTwin:
    assert not twin.process(updates or batch()).refused
    return twin


def twin_for(options: dict[str, Any], kind: type[FudyadtTwin] = FudyadtTwin) -> FudyadtTwin:
    twin = kind(CATEGORICAL, epsilon=0.0)
    twin.__dict__.update(twin_with(CATEGORICAL, options).__dict__)
    return twin


def audited(twin: FudyadtTwin, options: dict[str, Any], history: History | None = None) -> AuditReport:
    return audit(FuDyADTOptions(**options), FEATURES_AUDIT, twin.state(), history or twin.history())


# ---------------------------------------------------------------------- what is right passes


def test_epsilon_at_the_bound_is_not_promised() -> None:
    options = {**PROMISED, "epsilon": float(epsilon_bound(0.5, 0.5, 2)) + 1e-9}
    report = audited(run(twin_for(options)), options)
    assert (report.conformance, report.feasibility) == ("holds", "not_promised")
    assert report.reason.id == "learners.large_epsilon"
    assert round(report.reason.parameters["bound"], 7) == 0.0769231


@examples(120)
@given(st.booleans().flatmap(lambda lacks: streams(missing=lacks)), fudyadt_options())
def test_differential_verdicts_and_measures_equal_brute_force(stream: Stream, options: dict[str, Any]) -> None:
    twin = twin_with(stream.categorical, options)
    for updates in stream.batches([len(stream)]):
        twin.process(updates)
    report = audit(FuDyADTOptions(**options), stream.features, twin.state(), twin.history())
    assert (report.conformance, report.failures) == ("holds", [])
    gaps = [place.best - place.own for place in places(twin) if not place.node.is_leaf]
    assert report.worst["gap"] == pytest.approx(float(max(gaps, default=0)), abs=1e-12)
    if report.feasibility != "not_promised":
        assert violations(twin, options["alpha"], options["beta"]) == []
        assert report.feasibility == "proven"


# ---------------------------------------------------------------------- whatever is wrong is found


class LastOfEqual(FudyadtTwin):
    """Breaks ties of splits the wrong way."""

    def best_split(self, examples: list[Example]) -> Split | None:
        best = super().best_split(examples)
        if best is None:
            return None
        top = self.gain_key(examples, best)
        return [split for split in self.candidates(examples) if self.gain_key(examples, split) == top][-1]

    def gain_key(self, examples: list[Example], split: Split) -> Any:
        left = self.counts([e for e in examples if self.is_left(split, e.x)])
        total = self.counts(examples)
        n, n_left = len(examples), sum(left)
        squares = sum((a * n - n_left * b) ** 2 for a, b in zip(left, total, strict=True))
        return squares / (n_left * (n - n_left))


class FirstSplit(FudyadtTwin):
    """Takes the first split it sees."""

    def best_split(self, examples: list[Example]) -> Split | None:
        return next(self.candidates(examples), None)


class DeafToDeletions(FudyadtTwin):
    """Does not count deletions as updates."""

    def update(self, example: Example, insert: bool, time: int) -> None:
        if insert:
            super().update(example, insert, time)
        else:
            self.path(example.x)[-1].examples.remove(example)


class MissingRight(FudyadtTwin):
    """Tries missing numbers on the right only."""

    def candidates_of(self, j: int, examples: list[Example]) -> Iterator[Split]:
        return (split for split in super().candidates_of(j, examples) if split[2] != TO_LEFT)


class FewerExamples(FudyadtTwin):
    """Decides for the side of fewer examples."""

    def side_of_missing(self, v: Node) -> int:
        return v.missing or TO_LEFT + TO_RIGHT - super().side_of_missing(v)


def with_holes(updates: UpdateBatch, from_row: int) -> UpdateBatch:
    """The same, but that later rows lack numbers: of class 1 more often."""
    X, draw = updates.X.copy(), np.random.default_rng(5)
    lost = draw.random(X.shape) < np.where(updates.y == 1, 0.5, 0.1)[:, None]
    lost[:from_row] = False
    X[lost & ~np.array(CATEGORICAL)] = np.nan
    return replace(updates, X=X)


@pytest.mark.turns(3)
@pytest.mark.parametrize("options", [OPTIONS, CERTIFIED])
@pytest.mark.parametrize(
    ("kind", "from_row"), [(FudyadtTwin, 0), (FudyadtTwin, 280), (MissingRight, 0), (FewerExamples, 280)]
)
def test_sides_of_missing_numbers_are_checked(kind: type[FudyadtTwin], options: dict[str, Any], from_row: int) -> None:
    twin = run(twin_for(options, kind), with_holes(batch(), from_row))
    report = audited(twin, options)
    if kind is FudyadtTwin:
        assert (report.conformance, report.failures) == ("holds", [])
        assert {v.missing for v in twin.preorder(twin.root)} >= {UNDECIDED, TO_LEFT, TO_RIGHT}
    else:
        assert report.conformance == "violated"
        assert {"audits.node_value:missing", "audits.build_best"} & set(findings(report))


WRONG_ALGORITHMS: list[tuple[type[FudyadtTwin], str]] = [
    (LastOfEqual, "audits.build_best"),
    (FirstSplit, "audits.build_best"),
    (DeafToDeletions, "audits.node_value:c"),
]


@pytest.mark.parametrize(("kind", "finding"), WRONG_ALGORITHMS)
def test_a_wrong_algorithm_is_found(kind: type[FudyadtTwin], finding: str) -> None:
    report = audited(run(twin_for(OPTIONS, kind)), OPTIONS)
    assert report.conformance == "violated"
    assert finding in findings(report)


class InsertionsCounted(FudyadtTwin):
    """Charges a certificate for insertions, too."""

    def gone(self, v: Node) -> int:
        return v.c


class LaterRowsCounted(FudyadtTwin):
    """Charges a certificate for the deletion of a row that came after the BUILD."""

    def update(self, example: Example, insert: bool, time: int) -> None:
        path = self.path(example.x)
        super().update(example, insert, time)
        for v in path:
            v.__dict__.setdefault("deletions", 0)
            v.__dict__["deletions"] += not insert

    def gone(self, v: Node) -> int:
        return int(v.__dict__.get("deletions", 0))


class StaleMass(FudyadtTwin):
    """Keeps m0 when a split is made where one was made before."""

    def build(self, examples: list[Example], depth: int, time: int) -> Node:
        node = super().build(examples, depth, time)
        if depth == 0:
            node.m0 = self.__dict__.setdefault("first", node.m0)
        return node


class UncheckedLeaves(FudyadtTwin):
    """Never looks at a leaf again."""

    def leaf_is_due(self, v: Node, depth: int) -> bool:
        return False


class UncheckedSplits(FudyadtTwin):
    """Never looks at a certificate."""

    def runs_out(self, v: Node) -> bool:
        return False


class UncheckedSizes(FudyadtTwin):
    """Keeps the splits of nodes that became too small or pure."""

    def must_be_leaf(self, v: Node) -> bool:
        return False


WRONG_CERTIFICATES: list[tuple[type[FudyadtTwin], str]] = [
    (InsertionsCounted, "audits.node_value:gone"),
    (LaterRowsCounted, "audits.node_value:gone"),
    (StaleMass, "audits.node_value:m0"),
    (UncheckedLeaves, "audits.overdue"),
    (UncheckedSplits, "audits.certificate"),
    (UncheckedSizes, "audits.due_leaf"),
]


@pytest.mark.turns(2)
@pytest.mark.parametrize(("kind", "finding"), WRONG_CERTIFICATES)
def test_a_wrong_certificate_is_found(kind: type[FudyadtTwin], finding: str) -> None:
    updates = 300 if kind is StaleMass else 1000  # it rebuilds its root at every update, from some time on
    report = audited(run(twin_for(CERTIFIED, kind), batch(updates)), CERTIFIED)
    assert report.conformance == "violated"
    assert finding in findings(report)


def test_certificates_are_proven_and_used() -> None:
    report = audited(run(twin_for(CERTIFIED), batch(1000)), CERTIFIED)
    assert (report.conformance, report.feasibility, report.failures) == ("holds", "proven", [])
    assert report.reason.id == "audits.certified"
    assert report.reason.parameters["nodes"].startswith("all")
    assert 0 < report.worst["gap"] <= 0.2
    assert 0.5 < report.worst["slack"] <= 1


# ---------------------------------------------------------------------- a promise that is not kept


def test_a_broken_promise_is_a_violation() -> None:
    """Bad splits under an epsilon that promises good ones."""
    report = audited(run(twin_for(PROMISED, FirstSplit)), {**PROMISED, "beta": 0.1, "epsilon": 0.01})
    assert report.feasibility == "violated"
    assert report.reason.id == "audits.gain_gap"
    assert not report.ok


def test_leaves_that_should_be_split_violate() -> None:
    lazy = run(twin_for({**PROMISED, "max_depth": 1}))
    report = audited(lazy, {**PROMISED, "alpha": 0.3, "beta": 0.01, "epsilon": auto_epsilon(0.3, 0.01, 2)})
    assert report.feasibility == "violated"
    assert "audits.leaf_gain" in findings(report)
    assert report.worst["leaf_gini"] >= 0.3


# What a stream predicts: the smoothing that it has chosen.


def _rare(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of which a tenth is of class 1, more often where two features are large."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, (rng.random(n) < 1 / (1 + np.exp(2.9 - 1.4 * X[:, 0] - X[:, 1]))).astype(int)


def test_shares_order_the_rows_where_one_class_is_rare_whatever_is_chosen() -> None:
    X, y = _rare(4000)
    tree = FullyDynamicTreeClassifier().partial_fit(X[:50], y[:50], classes=[0, 1])
    for begin in range(50, 3000, 50):
        tree.partial_fit(X[begin : begin + 50], y[begin : begin + 50])
    shares = tree.predict_proba(X[3000:])[:, 1]
    positive = y[3000:] == 1
    assert np.mean(shares[positive][:, None] > shares[~positive][None, :]) > 0.6


def test_weights_count_when_a_stream_chooses() -> None:
    """A rare class of weight 10 is not given up for the other one."""
    X, y = _rare(2000)
    tree = FullyDynamicTreeClassifier(class_weight={0: 1, 1: 10})
    for begin in range(0, 2000, 50):
        tree.partial_fit(X[begin : begin + 50], y[begin : begin + 50], **({} if begin else {"classes": [0, 1]}))
    assert tree.predict(X)[y == 1].mean() > 0.5


def test_without_epsilon_rows_one_by_one_predict_what_training_does() -> None:
    X, y = _rare(300)
    tree = FullyDynamicTreeClassifier(epsilon=0).partial_fit(X[:1], y[:1], classes=[0, 1])
    for i in range(1, 300):
        tree.partial_fit(X[i : i + 1], y[i : i + 1])
    np.testing.assert_array_equal(tree.predict(X), FullyDynamicTreeClassifier(epsilon=0).fit(X, y).predict(X))
