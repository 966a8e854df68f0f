"""GBDT: rounds, candidates, targets, vectors, and what is promised where nothing is renewed."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt import OnlineGradientBoostingClassifier, OnlineGradientBoostingRegressor
from raydt.arrays.elementary import TOGETHER, add_pair, power_of_two, probabilities
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.batches.binning import learn_bins
from raydt.examples.updates import CATEGORICAL, DELETE, INSERT, NUMERIC, Features, UpdateBatch
from raydt.exchange.messages import MET
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.gbdt.candidates import classes_in, constant_of, draw, joined_summary, scale_of, summary_of
from raydt.learners.gbdt.derivatives import Loss, derive, derive_together, quantise, quantised
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.row_shard import RowShard
from raydt.learners.gbdt.split_search import FIELDS, REFRESHED, Slack
from raydt.learners.gbdt.split_search import ROWS as ROWS_RETRAINED
from raydt.learners.gbdt.staleness import DRIFT_LIMIT, compare, largest_moves, move, staleness
from raydt.sessions.session import InProcessSession
from tests.oracles.online_gbdt import OnlineGBDT, Row
from tests.volume import examples

# -- gbdt rounds -----------------------------------------------------------------------------------------------------
# Trees that several shards grow: how many rounds they take, and that what is opened ahead leaves no trace.

FEATURES = Features(("a", "b", "c", "d"), (False, False, False, True))


class Told:
    """A session of regressions, each call of which is one D', and the requests that its shards were sent."""

    def __init__(self, shards: int, here: bool = False, **options: Any) -> None:
        small = {"max_bins": 32, "candidate_fraction": 1.0, "update_every": 10**9, "l2_regularization": 0.0}
        fixed = GBDTOptions(**{**small, "objective": "squared_error", **options})
        plan = WorkPlan(0, shared_store=here)  # else the shards do all work
        self.session = InProcessSession(learners()["gbdt"], fixed, FEATURES, shards, plan)
        self.requests: list[tuple[str, Any]] = []
        self._seq = 0
        worker = self.session.shards[0].worker
        handle = worker.handle

        def listen(method: str, payload: Any) -> Any:
            self.requests.append((method, payload))
            return handle(method, payload)

        worker.handle = listen  # type: ignore[method-assign]

    def apply(self, op: int, ids: npt.NDArray[np.int64], X: Any = (), y: Any = (), warmup: int = 0) -> None:
        """Insert or delete rows."""
        n = len(ids)
        rows, targets = np.array(X, np.float64).reshape(-1, len(FEATURES)), np.array(y, np.float64)
        batch = UpdateBatch(
            self._seq, np.full(n, op, np.int8), ids, rows, targets, 0, np.full(n, -1, np.int64), warmup=warmup
        )
        self._seq += n
        assert not self.session.apply(batch).refused
        self.session.finish()

    def train(self, X: Any, y: Any) -> Counter[str]:
        """Train; how many of each request there were."""
        self.apply(INSERT, np.arange(len(X)), X, y, len(X))
        return Counter(method for method, _ in self.requests)

    @property
    def searched(self) -> list[int]:
        """Leaves that the owners searched in each round of the only tree."""
        parts = [payload["parts"][0] for method, payload in self.requests if method == MET]
        return [len(part) for part in parts if np.ndim(part) == 2 and part.shape[1] == FIELDS]

    @property
    def trees(self) -> Any:
        return self.session.coordinator.ensemble.trees  # type: ignore[attr-defined]

    def depth(self, tree: int) -> int:
        """Edges from the root of a tree to its deepest leaf."""
        deepest = 0
        for node in np.flatnonzero(self.trees.feature[tree] == -1):
            depth, up = 0, self.trees.parent[tree, node]
            while up >= 0:
                depth, up = depth + 1, self.trees.parent[tree, up]
            deepest = max(deepest, depth)
        return deepest


def rows_of(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows with ties and categories, and targets that follow them."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 4)) * 4) / 4
    X[:, 3] = rng.integers(0, 5, n)
    return X, X[:, 0] * (X[:, 1] > 0) + np.where(X[:, 3] == 2, 1.5, 0.0) + 0.3 * rng.normal(size=n)


def bits_of(n: int) -> tuple[Any, Any]:
    """A balanced tree of 8 leaves: three features are the digits of the target."""
    target = np.arange(n) % 8
    return np.stack([target >> 2, target >> 1 & 1, target & 1, 0 * target], axis=1), target


def test_a_balanced_tree_takes_as_many_rounds_as_it_is_deep() -> None:
    told = Told(2, max_iter=1, max_leaf_nodes=8)
    asked = told.train(*bits_of(64))
    assert told.trees.leaves[0] == 8
    assert told.depth(0) == 3
    # The root, then the children of one leaf, of two, of three; those of the last split are asked for by nobody.
    assert asked["train"] == 1
    assert told.searched == [1, 2, 4, 6]


def test_a_subtree_grows_again_from_the_split_that_was_found_with_the_rank() -> None:
    told = Told(2, max_iter=1, max_leaf_nodes=8, retrain="never")
    X, target = bits_of(64)
    told.train(X, target)
    told.requests.clear()
    told.apply(DELETE, np.flatnonzero(target >> 2))
    assert told.depth(0) == 2
    # The other two digits are left: nobody meets for the root.
    assert told.searched == [2, 4]


@pytest.mark.parametrize("shards", [2, 3])
@pytest.mark.parametrize("leaves", [4, 12, 30])
def test_no_tree_takes_more_rounds_than_it_is_deep(shards: int, leaves: int) -> None:
    """Where the bound on what is opened ahead is not reached."""
    for seed in range(5):
        told = Told(shards, max_iter=1, max_leaf_nodes=leaves)
        told.train(*rows_of(400, seed))
        assert len(told.searched) <= 1 + told.depth(0)


@pytest.mark.parametrize(("retrain", "kept"), [("always", False), ("auto", True)])
def test_a_model_that_equals_the_one_trained_anew_keeps_no_slope_of_former_labels(retrain: str, kept: bool) -> None:
    told = Told(1, here=True, max_iter=4, retrain=retrain)
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(60, 4)), draw.normal(size=60)
    told.apply(INSERT, np.arange(40), X[:40], y[:40], warmup=40)
    told.apply(INSERT, np.arange(40, 60), X[40:], y[40:])
    assert ("slope" in told.session.state()[0]) == kept


@pytest.mark.parametrize("rows", range(1, 7))
def test_shards_with_hardly_a_row_train_several_trees_an_iteration(rows: int) -> None:
    y = np.arange(rows, dtype=np.int32) % 3
    X = np.column_stack([np.arange(rows), np.arange(rows) % 2]).astype(np.float64)
    digests = set()
    for shards in (1, 2, 3, 5):
        options = GBDTOptions(max_iter=20, objective="multiclass")
        features = Features(("a", "b"), (False, False))
        session = InProcessSession(learners()["gbdt"], options, features, shards, WorkPlan(0, shared_store=False))
        op, row = np.full(rows, INSERT, dtype=np.int8), np.arange(rows)
        session.apply(UpdateBatch(0, op, row, X, y, 3, row, warmup=rows))
        digests.add(session.digest())
    assert len(digests) == 1


# -- gbdt candidates -------------------------------------------------------------------------------------------------
# Which cuts are candidates: one of each run of neighbours.

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


# -- gbdt targets ----------------------------------------------------------------------------------------------------
# Summaries of labels: those of parts of the rows say what all labels do, bit for bit.

NUMBERS = st.floats(-1e200, 1e200) | st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 5e-324, 2.0**-1030])


def scale(y: np.ndarray) -> tuple[float, int]:
    """The slow twin of ``scale_of``."""
    equal = len(set(y.tolist())) == 1
    origin = float(y[0]) if equal else math.fsum(y) / len(y)
    farthest = abs(origin) if equal else max(abs(value - origin) for value in y.tolist())
    mantissa, exponent = math.frexp(farthest)
    return origin, exponent - (mantissa == 0.5)


@given(st.lists(NUMBERS, min_size=1, max_size=30), st.integers(1, 4), st.randoms(use_true_random=False))
@examples(200)
def test_numbers(values: list[float], parts: int, random: object) -> None:
    y = np.array(values)
    owner = np.array([random.randrange(parts) for _ in values])  # type: ignore[attr-defined]
    summary = joined_summary([summary_of(y[owner == part]) for part in range(parts)])
    assert constant_of(summary) == constant_of(summary_of(y)) == math.fsum(y) / len(y)
    assert scale_of(summary) == scale_of(summary_of(y)) == scale(y)


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 4))
def test_classes(values: list[int], parts: int) -> None:
    y = np.array(values, dtype=np.int32)
    summary = joined_summary([summary_of(y[part::parts]) for part in range(parts)])
    assert constant_of(summary) == min(range(6), key=lambda k: (-values.count(k), k))
    assert classes_in(summary) == max(values, default=-1) + 1


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_no_rows(dtype: type) -> None:
    none = summary_of(np.empty(0, dtype=dtype))
    assert constant_of(joined_summary([none, none])) == 0
    if dtype is np.float64:
        assert scale_of(none) == (0.0, 0)


# -- gbdt vectors ----------------------------------------------------------------------------------------------------
# Loops that are written for vectors give the bits of the plain ones.


@kernel
def _together(F: Any, first: int, stop: int, p: Any, out: Any) -> None:
    derive_together(F, first, stop, p, out)


@kernel
def _compare(model: Any, batch: Any, first: int, stop: int, stale: Any, p: Any) -> None:
    compare(model, batch, 1, first, stop, stale, p)


@inner_kernel
def kept_entries(F: Any, ledger: Any, first: int, slot: int, stays: Any, p: Any, out: Any, at: int, i: int) -> None:
    """Entries of a row in the trees of an iteration, the first of which is ``first``, into ``out[at:, i]``.

    Those of the ledger where they stay, else those of the present score ``F``, shape (K',).
    """
    if len(p) == 1:
        entry = np.int64(ledger[first, slot])
        if not (stays[entry, 0] <= F[0] <= stays[entry, 1]):
            probabilities(F, p)
            entry = quantise(p[0])
        out[at, i] = entry
        return
    probabilities(F, p)
    for k in range(len(p)):
        entry = np.int64(ledger[first + k, slot])
        if not (stays[entry, 0] <= p[k] <= stays[entry, 1]):
            entry = quantise(p[k])
        out[at + k, i] = entry


@kernel
def _compare_plainly(F: Any, ledger: Any, slots: Any, stays: Any, p: Any, out: Any) -> None:
    for i in range(len(slots)):
        kept_entries(F[i], ledger, F.shape[1], slots[i], stays, p, out, 0, i)


@kernel
def _powers(k: Any, out: Any) -> None:
    for i in range(len(k)):
        out[i] = power_of_two(k[i])


@kernel
def _add(cells: Any, first: Any, second: Any, sums: Any) -> None:
    for i in range(len(cells)):
        add_pair(sums, cells[i], first[i], second[i])


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
@pytest.mark.parametrize("rows", [0, 1, TOGETHER, 2 * TOGETHER + 5])
@pytest.mark.parametrize("scale", [1e-3, 3.0, 400.0])
def test_derivatives(classes: int, rows: int, scale: float) -> None:
    F = np.random.default_rng(rows).normal(size=(rows + 1, classes)) * scale
    F[-1] = 0.0
    plain, vectors = (np.zeros((classes, rows + 1), dtype=np.int32) for _ in range(2))
    derive(F, np.zeros(rows + 1, dtype=np.int32), Loss(classes, False, 0.0, 1.0), np.empty(classes), plain)
    first = rows // 3
    _together(np.ascontiguousarray(F.T), first, rows, np.empty((classes + 2, TOGETHER)), vectors)
    assert np.array_equal(plain[:, first:rows], vectors[:, first:rows])
    assert not vectors[:, :first].any()
    assert not vectors[:, rows:].any()


class _Model(NamedTuple):
    """What ``compare`` needs of a model."""

    loss: Loss
    ledger: npt.NDArray[np.uint16]


class _Batch(NamedTuple):
    """What ``compare`` needs of a batch."""

    slots: npt.NDArray[np.int32]
    F: npt.NDArray[np.float64]
    entry: npt.NDArray[np.int32]
    differs: npt.NDArray[np.bool_]
    y: npt.NDArray[np.int32]


@pytest.mark.turns(2)
@pytest.mark.parametrize("classes", [1, 2, 10])
@pytest.mark.parametrize("tolerance", [0.05, 0.3])
def test_entries_that_stay(classes: int, tolerance: float) -> None:
    """Some rows of a batch, each in any slot, whose scores have moved by about the tolerance."""
    rng, rows, first = np.random.default_rng(classes), 3 * TOGETHER + 7, 5
    loss = Loss(classes, False, 0.0, 1.0)
    before = rng.normal(size=(2 * rows, classes)) * 4.0
    entries = quantised(before, np.zeros(len(before), dtype=np.int32), loss)
    ledger = np.concatenate([np.ones_like(entries), entries]).astype(np.uint16)  # of iterations 0 and 1
    slots = rng.permutation(2 * rows)[:rows].astype(np.int32)
    F = before[slots] + rng.normal(size=(rows, classes)) * tolerance / 2
    stale = staleness(tolerance, 2, 0, loss)
    differs = np.zeros(classes, dtype=np.bool_)
    plain, blocks = (np.zeros((classes, rows), dtype=np.int32) for _ in range(2))
    _compare_plainly(F, ledger, slots, stale.stays, np.empty(classes), plain)
    batch = _Batch(slots, np.ascontiguousarray(F.T), blocks, differs, np.zeros(1, dtype=np.int32))
    _compare(_Model(loss, ledger), batch, first, rows, stale, np.empty((classes + 2, TOGETHER)))
    assert np.array_equal(plain[:, first:], blocks[:, first:])
    assert not blocks[:, :first].any()
    assert differs[(blocks != entries[:, slots])[:, first:].any(axis=1)].all()
    stayed = (blocks == entries[:, slots])[:, first:].mean()
    assert 0.2 < stayed < 0.99


def test_powers_of_two() -> None:
    k = np.arange(-1022.0, 1024.0)
    found = np.empty_like(k)
    _powers(k, found)
    assert np.array_equal(found, np.ldexp(1.0, k.astype(np.int64)))


def test_pairs_are_two_sums_of_int64() -> None:
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 7, 1000).astype(np.uint16)
    first, second = rng.integers(-(2**62), 2**62, (2, 1000))
    sums, plain = np.zeros((7, 2), dtype=np.int64), np.zeros((7, 2), dtype=np.int64)
    _add(cells, first, second, sums)
    np.add.at(plain, cells, np.stack([first, second], axis=1))
    assert np.array_equal(sums, plain)


# -- online gbdt oracle ----------------------------------------------------------------------------------------------
# The slow twin of the online GBDT by itself: figures worked out by hand, invariants, and that it learns.


def model(rows: list[tuple[tuple[float, ...], float]], categorical: tuple[bool, ...] = (False,), **options: Any) -> Any:
    settings = {"max_iter": 1, "candidate_fraction": 1.0, "max_bins": 16, "learning_rate": 1.0, **options}
    twin = OnlineGBDT(categorical, GBDTOptions(**settings))
    twin.train(Row(i, x, y) for i, (x, y) in enumerate(rows))
    return twin


# -- gbdt slack ------------------------------------------------------------------------------------------------------
# Splits that surely stay are not judged again: the same model as when every split is judged, alone or with shards.


FEATURES_SLACK = Features(("a", "b", "c"), (False,) * 3)
ROWS, GONE = 600, 60


def batches(seed: int) -> list[UpdateBatch]:
    """Three classes that are nearly parted, so that most derivatives are tiny; then single rows leave and come back."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, ROWS).astype(np.int32)
    X = rng.normal(size=(ROWS, 3))
    X[:, 0] += 4.0 * y
    X[:, 1] -= 3.0 * (y == 1)
    op = [np.full(ROWS, INSERT)] + [np.array([DELETE, INSERT]) for _ in range(GONE)]
    ids = [np.arange(ROWS)] + [np.array([i, ROWS + i]) for i in range(GONE)]
    rows = [np.arange(ROWS)] + [np.array([i]) for i in range(GONE)]
    found, start = [], 0
    for o, i, r in zip(op, ids, rows, strict=True):
        none = np.full(len(o), -1, dtype=np.int64)
        found.append(UpdateBatch(start, o.astype(np.int8), i, X[r], y[r], 3, none, ROWS))
        start += len(o)
    return found


def slack_of(session: InProcessSession) -> Slack:
    local: Any = session.coordinator.shared.shard.own
    slack: Slack = local._room[0].slack
    return slack


def judging_all(session: InProcessSession) -> None:
    """Have every split judged in the next batch."""
    if session.coordinator.ensemble is not None and session.coordinator.shared.shard.own._room is not None:
        slack_of(session).level[:] = np.inf


@pytest.mark.timeout(900)
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("seed", "changed"),
    [
        (0, {}),
        pytest.param(1, {}, marks=pytest.mark.nightly),
        (2, {"robustness_tolerance": 0.0}),  # only the best candidate stays
        (3, {"robustness_tolerance": 0.4, "candidate_fraction": 0.5}),
        (4, {"l2_regularization": 0.5}),
    ],
)
def test_the_model_is_the_same_if_every_split_is_judged(seed: int, changed: dict[str, Any]) -> None:
    options = GBDTOptions(max_iter=20, max_bins=200, max_leaf_nodes=6, update_every=2, retrain="never", **changed)
    one, all_judged, shards = (
        InProcessSession(learners()["gbdt"], options, FEATURES_SLACK, shards, plan)
        for shards, plan in ((1, WorkPlan()), (1, WorkPlan()), (2, WorkPlan(0, 0, False)))
    )
    stayed = 0
    for batch in batches(seed):
        judging_all(all_judged)
        for session in (one, all_judged, shards):
            session.apply(batch)
        assert one.digest() == all_judged.digest() == shards.digest()
        if batch.start:
            slack = slack_of(one)
            stayed += int((np.isfinite(slack.level) & (slack.G > 0)).sum())  # a look would have made G 0 again
    assert stayed > 300


@pytest.mark.timeout(900)
@pytest.mark.parametrize("labels", ["classes", "numbers"])
def test_without_l2_every_split_is_judged(labels: str) -> None:
    """Without it the part of a side that has no rows may become as large as it likes; and nothing fails."""
    rng = np.random.default_rng(5)
    X, noise = rng.normal(size=(200, 3)), rng.normal(size=200)
    shared: dict[str, Any] = {"l2_regularization": 0.0, "max_iter": 8, "max_leaf_nodes": 5, "retrain": "never"}
    model: Any
    if labels == "classes":
        model, y = OnlineGradientBoostingClassifier(**shared), (X[:, 0] + noise > 0).astype(int)
    else:
        model, y = OnlineGradientBoostingRegressor(**shared), X[:, 0] + noise
    model.fit(X, y)
    for i in range(40):
        model.forget([i], digests=False)
    assert model.audit().conformance == "holds"


# -- gbdt staleness --------------------------------------------------------------------------------------------------
# Bounded staleness: what leaves note of their values; scores may move for a while before rows are compared.

STALE = staleness(0.3, 100, 0, Loss(1, False, 0.0, 1.0))


@pytest.mark.timeout(900)
@given(st.lists(st.floats(-0.002, 0.002), min_size=1, max_size=40))
def test_two_values_of_a_leaf_are_never_farther_apart_than_it_notes(changes: list[float]) -> None:
    above = below = 0
    values = [0.0]
    for change in changes:
        values.append(values[-1] + change)
        above, below = move.py_func(above, below, values[-1] - values[-2], STALE)
        assert above >= (max(values) - values[-1]) * STALE.units - 1e-6
        assert below >= (values[-1] - min(values)) * STALE.units - 1e-6


@pytest.mark.timeout(900)
def test_a_leaf_that_moves_back_notes_it_once() -> None:
    above = below = 0
    for _ in range(50):
        for change in (0.001, -0.001):
            above, below = move.py_func(above, below, change, STALE)
    assert 0.001 * STALE.units <= above + below < 0.001 * STALE.units + 101  # each change is rounded up


@pytest.mark.timeout(900)
def test_rows_below_retrained_subtrees_are_not_compared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single rows leave; a split stays only while it is the best, so that many trees are trained again."""
    rng = np.random.default_rng(3)
    rows = 1500
    X, y = rng.normal(size=(rows, 4)), rng.integers(0, 3, rows)
    X[:, 0] += 1.5 * y
    shared: dict[str, Any] = {"max_iter": 20, "max_leaf_nodes": 6, "robustness_tolerance": 0.0, "retrain": "never"}
    model = OnlineGradientBoostingClassifier(**shared).fit(X, y)
    found, update = [], RowShard.update

    def counted(self: RowShard, *given: Any) -> Any:
        counts = update(self, *given)
        e = self.ensemble
        assert int(e.drift.max()) + largest_moves(e.trees, e.per) <= DRIFT_LIMIT
        found.append((int(counts[ROWS_RETRAINED]), int(counts[REFRESHED]), int(e.drift.max())))
        return counts

    monkeypatch.setattr(RowShard, "update", counted)
    for i in range(60):
        model.forget([i], digests=False)
    retrained, compared, drift = np.array(found).T
    assert retrained.sum() > 20 * rows
    assert 0 < compared.sum() < 0.2 * retrained.sum()
    assert drift.max() > 0
    report = model.audit()
    assert (report.conformance, report.feasibility) == ("holds", "proven")


@pytest.mark.timeout(900)
def test_large_batches_compare_whatever_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    others = RowShard._others

    def noted(self: RowShard, *given: Any) -> Any:
        found = yield from others(self, *given)
        seen.append(self.ensemble.most_drift > 0)
        return found

    monkeypatch.setattr(RowShard, "_others", noted)
    rng = np.random.default_rng(4)
    model = OnlineGradientBoostingClassifier(max_iter=5, retrain="never").fit(
        rng.normal(size=(800, 2)), np.arange(800) % 2
    )
    model.forget(np.arange(3), digests=False)
    model.forget(np.arange(3, 7), digests=False)  # of 797
    assert seen == [True, False]
