"""Sums of trees and targets, an exact GBDT, bins and histograms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from pipelines.running.intake import answered, split_at_multiples
from raydt.arrays.blocks import SparseRows
from raydt.arrays.kernel import kernel
from raydt.audits.bins import FeatureBins, Question, SortedValues, TargetSums, derived_together, of_all, target_sums
from raydt.batches.binning import SPARSE, Bins, CellStore, code_of, joined, learn_bins
from raydt.errors import InputError
from raydt.examples.updates import (
    CATEGORICAL,
    DELETE,
    INSERT,
    MOST,
    NUMERIC,
    UNIT,
    BatchResult,
    Features,
    UpdateBatch,
    history_of_live,
)
from raydt.learners import learners
from raydt.learners.base import Case
from raydt.learners.fudyadt import build_divided
from raydt.learners.fudyadt.build import Listing, build, new_scratch
from raydt.learners.fudyadt.build_divided import NODES_AT_ONCE, DividedBuild
from raydt.learners.fudyadt.histograms import COUNTED, new_histograms
from raydt.learners.gbdt.audit import audit
from raydt.learners.gbdt.options import GBDTOptions
from raydt.parallel import limited
from raydt.sessions.session import InProcessSession, small_stream
from raydt.trees.canonical_arrays import route
from raydt.trees.counted_tree import TreeRules, new_tree
from raydt.trees.records import FREE, LEAVES, MEMBER, NODES, USED
from raydt.trees.shapley import HasTreeSum, TreeSum, tree_sum_of
from tests.cases import CASES, Trial, every_case
from tests.oracles import digests as twin
from tests.oracles.digests import CategoryBins, NumericBins
from tests.refusals import refused
from tests.strategies import AWKWARD, CLOSE, HUGE
from tests.volume import examples

# -- tree sum --------------------------------------------------------------------------------------------------------
# Every case as a sum of trees: equal in every bit to what the learner predicts, and to a slow twin.


def rows_of(case: Case, n: int, seed: int) -> tuple[Any, SparseRows | None]:
    """Rows like those of the small streams, with numbers between and beyond theirs, and categories nobody has."""
    draw = np.random.default_rng(seed)
    X = np.stack([draw.integers(-1, 6, n), draw.random(n) * 1.4 - 0.2, draw.integers(-1, 4, n)], axis=1)
    X[: n // 4, :2] = draw.standard_normal((n // 4, 2)) * 1e3
    if case.missing:
        X[::5, 0] = X[3::7, 1] = np.nan  # the latter were complete in training
    if not case.sparse:
        return X, None
    lengths = draw.integers(0, 4, n)
    indices = [np.sort(draw.choice(5, size, replace=False)) for size in lengths]
    sparse = SparseRows.of_lengths(lengths, np.concatenate(indices).astype(np.int32), 5)
    return (X if case.dense else X[:, :0]), sparse


def plain(X: Any, sparse: SparseRows | None) -> Any:
    """Rows as one matrix, sparse features as columns of 0 and 1."""
    if sparse is None:
        return X
    ones = np.zeros((len(X), sparse.n_features))
    ones[np.repeat(np.arange(len(X)), np.diff(sparse.indptr)), sparse.indices] = 1.0
    return np.hstack([X, ones])


def predictor_of(trial: Trial) -> Any:
    """The predictor of a case after its small stream."""
    features, batch = small_stream(trial.case)
    session = InProcessSession(trial.learner, trial.options, features, 1, trial.case.plan)
    session.apply(batch)
    session.finish()
    return trial.learner.predictor(trial.options, features, session.model())


def described(trial: Trial) -> tuple[Any, TreeSum | None]:
    """The predictor of a case and its trees; None of a model that is no sum of trees, and says so."""
    predictor = predictor_of(trial)
    refused = refusal_of(predictor, trial.case.classes)
    return predictor, None if refused else tree_sum_of(predictor, trial.case.classes)


def refusal_of(predictor: Any, classes: int) -> str:
    """Why a model is no sum of trees; empty if it is one."""
    if not isinstance(predictor, HasTreeSum):
        return "it is no sum of trees"
    if not len(getattr(predictor, "_leaves", ())):
        return ""
    with refused("learners.naive_leaves", InputError) as caught:
        tree_sum_of(predictor, classes)
    return str(caught.value)


@every_case("sum of trees")
def test_outputs_are_the_learners_own_and_those_of_the_twin(trial: Trial) -> None:
    predictor, trees = described(trial)
    if trees is None:
        return
    X, sparse = rows_of(trial.case, 400, 1)
    given = {} if sparse is None else {"sparse": sparse}
    scores = trees.scores(X, sparse)
    assert [twin.scores(trees, row) for row in plain(X, sparse)] == scores.tolist()
    labels = predictor.predict(X, **given)
    if not trial.case.classes:
        assert scores[:, 0].tolist() == labels.tolist()
        return
    if trees.link == "identity":
        shares = np.empty_like(scores)
        shares[:, trees.codes] = scores
        assert shares.tolist() == predictor.predict_proba(X, trial.case.classes, **given).tolist()
    else:
        assert scores.tolist() == predictor.scores(X, **given).tolist()
    one = trees.outputs == 1
    codes = np.where(scores[:, 0] > 0, trees.codes[0], 0) if one else trees.codes[scores.argmax(axis=1)]
    tied = np.sort(scores, axis=1)[:, -2] == scores.max(axis=1) if scores.shape[1] > 1 else np.zeros(len(X), bool)
    assert codes[~tied].tolist() == labels[~tied].tolist()
    if not trial.case.sparse or trial.case.dense:
        assert codes.tolist() == labels.tolist()


@every_case("sum of trees")
def test_covers_count_the_live_examples(trial: Trial) -> None:
    _, trees = described(trial)
    if trees is None:
        return
    assert trees.cover is not None
    inner = trees.feature >= 0
    assert (trees.cover[trees.left[inner]] + trees.cover[trees.right[inner]] == trees.cover[inner]).all()
    assert trees.cover.min() >= 0
    assert trees.cover[trees.starts[:-1]].max() > 0


def test_a_model_of_another_kind_is_refused() -> None:
    assert not isinstance(object(), HasTreeSum)
    with refused("learners.no_trees", InputError):
        tree_sum_of(object(), 2)


# -- target sums -----------------------------------------------------------------------------------------------------
# Sums of numeric targets of parts of all rows (``raydt.audits.bins``) are those of all, exactly.

numbers = st.floats(-1e300, 1e300) | st.sampled_from((0.0, 5e-324, -5e-324, 0.1, 2.0**53 + 1))
rows = st.lists(st.tuples(numbers, st.just(UNIT) | st.integers(0, MOST), st.integers(0, 3)), max_size=12)


@examples(300)
@given(rows, st.booleans())
def test_sums_of_parts_are_exact(rows: list[tuple[float, int, int]], alike: bool) -> None:
    y = np.array([target for target, *_ in rows], np.float64)
    weight = np.array([UNIT if alike else units for _, units, _ in rows], np.int64)
    part = np.array([owner for *_, owner in rows], np.int64)
    of_parts = [target_sums(y[part == one], weight[part == one]) for one in range(4)]
    assert all(type(number) in (Fraction, int, float) for one in of_parts for number in one)  # nothing by row
    found, total = of_all(of_parts), int(weight.sum())
    exact = sum((Fraction(one) * units for one, units in zip(y.tolist(), weight.tolist(), strict=True)), Fraction(0))
    assert found == TargetSums(exact, total, min(y, default=math.inf), max(y, default=-math.inf))
    if alike and rows:
        assert found.mean == math.fsum(y.tolist()) / len(y)
    else:
        assert found.mean == (float(exact / UNIT) / (total / UNIT) if total else 0.0)


# -- statistics within -----------------------------------------------------------------------------------------------
# Statistics within a batch are those of batches that end there: every case of every learner that reports them.

UPDATES = 240
#: Statistics that are known at the end of a batch only.
AT_THE_END = ("active", "rounds", "bytes_exchanged")
REPORTING = [trial for trial in CASES if trial.learner.traits(trial.options).reports_within]


class Seen:
    """What a run records: statistics at each multiple of ``every``, and predictions, refusals and log of all."""

    def __init__(self, pairs: Iterable[tuple[UpdateBatch, BatchResult]], every: int) -> None:
        self.statistics: dict[int, dict[str, int]] = {}
        self.predictions: list[Any] = []
        self.refused: list[tuple[int, int]] = []
        self.log: list[tuple[Any, ...]] = []
        for batch, result in pairs:
            stop = batch.start + result.applied
            if stop % every == 0:
                self.statistics[stop] = {n: v for n, v in result.statistics.items() if n not in AT_THE_END}
            self.predictions += result.predictions[: result.applied].tolist()
            self.refused += [(batch.start + refusal.position, refusal.reason) for refusal in result.refused]
            self.log += zip(*(column.tolist() for column in result.log.values()), strict=True)


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    ("trial", "every", "size"),
    [
        pytest.param(trial, *cut, id=f"{trial.name}-{cut}", marks=pytest.mark.nightly if (i + j) % 2 else [])
        for i, trial in enumerate(REPORTING)
        for j, cut in enumerate(((1, 240), (5, 64), (7, 16), (50, 240)))
    ],
)
def test_statistics_within_a_batch_are_those_of_batches_that_end_there(
    trial: Trial, every: int, size: int, tmp_path: Path
) -> None:
    stream = trial.stream(tmp_path, UPDATES)
    batches = list(stream.batches(size))
    cut, whole = trial.session(stream), trial.session(stream)

    pieces = chain.from_iterable(split_at_multiples(batch, every) for batch in batches)
    wanted = Seen(cut.process(pieces, skip_refused=True), every)
    asked = [replace(batch, every=every) for batch in batches]
    results = whole.process(asked, skip_refused=True)
    found = Seen(chain.from_iterable(answered(batch, result) for batch, result in results), every)

    assert found.statistics == wanted.statistics
    assert len(found.statistics) >= UPDATES // every
    assert found.predictions == wanted.predictions
    assert found.refused == wanted.refused
    assert str(found.log) == str(wanted.log)  # NaN equals NaN
    assert whole.digest() == cut.digest()
    assert found.statistics[max(found.statistics)]["splits"] > 0, "a tree that never splits proves nothing"


@pytest.mark.parametrize("trial", REPORTING, ids=lambda trial: trial.name)
def test_statistics_within_a_batch_take_no_message(trial: Trial, tmp_path: Path) -> None:
    stream = trial.stream(tmp_path, UPDATES)
    batches = list(stream.batches(64))
    sessions = {every: trial.session(stream) for every in (0, 5)}
    traffic = []
    for every, session in sessions.items():
        list(session.process([replace(batch, every=every) for batch in batches], skip_refused=True))
        traffic.append((session.statistics()["rounds"], session.statistics()["bytes_exchanged"]))
    assert traffic[0] == traffic[1]
    assert traffic[0][0] >= len(batches)


@pytest.mark.parametrize("stop", [0, 1, 4, 5, 6, 9])
def test_pieces_end_with_the_update_that_stops_the_stream(stop: int, tmp_path: Path) -> None:
    trial = REPORTING[0]
    batch = next(trial.stream(tmp_path, UPDATES).batches(10))
    session = trial.session(trial.stream(tmp_path, UPDATES))
    bad = batch.id.copy()
    bad[stop] = bad[0] if stop else 0
    op = batch.op.copy()
    if not stop:
        op[0] = 1  # a deletion of nothing
    (asked, result), *_ = session.process([replace(batch, id=bad, op=op, every=5)])
    pieces = list(answered(asked, result))
    assert sum(piece.applied for _, piece in pieces) == result.applied
    assert [piece.start for piece, _ in pieces] == ([0, 5] if result.applied > 5 else [0])


# -- gbdt exactness --------------------------------------------------------------------------------------------------
# What whole numbers make exact: deletion as if it had never been, any order.

FEATURES = Features(("a", "b", "c", "d"), (False, False, False, True))
ROWS = 240
OBJECTIVES = ("binary", "multiclass", "squared_error")


class Replay:
    """A session, and calls of its own that are one D' each."""

    def __init__(self, objective: str, **others: Any) -> None:
        small = {
            "max_iter": 5,
            "max_leaf_nodes": 6,
            "max_bins": 16,
            "candidate_fraction": 0.5,
            "update_every": 10**9,
            "retrain": "never",
        }
        self.options = GBDTOptions(**{**small, "objective": objective, **others})
        self.session = InProcessSession(learners()["gbdt"], self.options, FEATURES, 2)
        self.seq = 0

    def send(self, op: Sequence[int], ids: Sequence[int], X: Any = (), y: Any = (), warmup: int = 0) -> None:
        """Updates that wait for more."""
        kind = np.float64 if self.options.regression else np.int32
        batch = UpdateBatch(
            self.seq,
            np.array(op, np.int8),
            np.array(ids, np.int64),
            np.array(X, np.float64).reshape(-1, len(FEATURES)),
            np.array(y, kind),
            0 if self.options.regression else 3,
            np.full(len(op), -1),
            warmup=warmup,
        )
        self.seq += len(op)
        assert not self.session.apply(batch).refused

    def apply(self, *updates: Any, **others: Any) -> int:
        """One D'; returns how many trees it has retrained."""
        before = self.session.statistics()["rebuilds"]
        self.send(*updates, **others)
        self.session.finish()
        return self.session.statistics()["rebuilds"] - before

    def failures(self) -> list[str]:
        """What an audit of the live rows finds."""
        state, groups = self.session.state()
        return audit(self.options, FEATURES, state, history_of_live(state, groups, FEATURES)).failures


def data(objective: str, n: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows with ties, NaN and categories, and labels that follow them."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 4)) * 4) / 4
    X[:, 3] = rng.integers(0, 5, n)
    X[rng.random(n) < 0.1, 1] = np.nan
    score = X[:, 0] + np.where(X[:, 3] == 2, 1.5, 0.0) + 0.5 * np.nan_to_num(X[:, 1]) + 0.3 * rng.normal(size=n)
    if objective == "squared_error":
        return X, score
    return X, np.digitize(score, [0.2] if objective == "binary" else [-0.5, 0.7]).astype(np.int32)


def trained(objective: str, **others: Any) -> tuple[Replay, Any, Any]:
    """A model of the first 240 rows, and rows."""
    X, y = data(objective, 2000)
    replay = Replay(objective, **others)
    replay.apply([INSERT] * ROWS, range(ROWS), X[:ROWS], y[:ROWS], warmup=ROWS)
    return replay, X, y


@pytest.mark.turns(3)
@pytest.mark.parametrize("tolerance", [0.5, 1.0])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_insert_then_delete_restores_the_model(objective: str, tolerance: float) -> None:
    """Unless a tree is retrained, whatever the D' holds besides."""
    replay, X, y = trained(objective, robustness_tolerance=tolerance, derivatives="retrained")
    eligible = 0
    for i in range(ROWS, 2000):
        state, digest = replay.session.state(), replay.session.digest()
        size = 1 + i % 3
        new = [10_000 + i + 3 * n for n in range(size)]
        at = [ROWS + (i * 7 + n) % 1700 for n in range(size)]
        touched = replay.apply([INSERT] * size, new, X[at], y[at])
        assert touched or replay.session.digest() != digest
        touched += replay.apply([DELETE] * size, new)
        if touched:
            replay.session.restore(*state)
        else:
            assert replay.session.digest() == digest
            eligible += 1
        if eligible == 75:
            break
    assert eligible == 75


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_neither_order_nor_grouping_of_deletions_within_one_update_matters(objective: str) -> None:
    rng = np.random.default_rng(2)
    for trial in range(4):
        gone = rng.choice(ROWS, 30, replace=False)
        digests = set()
        for cut in (30, 7, 1):
            replay, _, _ = trained(objective, random_state=trial, update_every=ROWS + 30)
            order = rng.permutation(gone)
            for begin in range(0, 30, cut):
                some = order[begin : begin + cut]
                replay.send([DELETE] * len(some), some)
            replay.session.finish()
            digests.add(replay.session.digest())
        assert len(digests) == 1


# -- binning ---------------------------------------------------------------------------------------------------------
# Bins against their slow twin: every code of seen and unseen values, every cut.

near = st.sampled_from((1e-11, 9e-11, 1e-10, 1.0000000001e-10, 2e-10, 1e-9))
values = st.one_of(
    st.integers(-3, 3).map(float),
    st.sampled_from(AWKWARD + HUGE + CLOSE),
    st.builds(lambda base, step: base + step, st.integers(-2, 2).map(float), near),
    st.floats(allow_nan=False, allow_infinity=False),
)
numbers_binning = st.lists(st.one_of(values, values, values, st.just(math.nan)), max_size=40)
categories = st.lists(st.integers(-1, 6).map(float), max_size=40)
bins_at_most = st.sampled_from((2, 3, 4, 5, 8, 16, 1024))
methods = st.sampled_from(("doubling", "quantile"))
NO_SPARSE = np.empty(0, dtype=np.int32)


def learned(column: list[float], kind: int, max_bins: int, method: str = "doubling") -> Bins:
    X = np.array(column, np.float64).reshape(-1, 1) + 0.0
    return learn_bins(X, np.array([kind], np.int8), max_bins, method, NO_SPARSE)


@kernel
def _one_by_one(x: Any, bins: Any, out: Any) -> None:
    for i in range(len(x)):
        out[i] = code_of(x[i], bins, 0)


def codes(bins: Bins, xs: list[float]) -> list[int]:
    """Codes of values of the only feature, by the search for many values and by the search for one."""
    cells, slots = CellStore(bins, 1), np.arange(len(xs), dtype=np.int32)
    x, alone = np.array(xs, np.float64), np.empty(len(xs), dtype=np.int64)
    cells.make_room(slots)
    cells.add_columns(slots, x.reshape(-1, 1))
    _one_by_one(x, bins, alone)
    together: list[int] = cells.cells.columns[0, slots].tolist()
    assert together == alone.tolist()
    return together


@examples(400)
@given(numbers_binning, st.lists(values, max_size=20), bins_at_most, methods)
def test_numeric_bins_equal_the_twin(column: list[float], later: list[float], max_bins: int, method: str) -> None:
    twin, bins = NumericBins(column, max_bins, method), learned(column, NUMERIC, max_bins, method)
    assert bins.values.tolist() == twin.boundaries
    asked = [*column, *later, *twin.boundaries, math.nan]
    assert codes(bins, asked) == [twin.code(x) for x in asked]
    assert int(bins.cuts()[0]) == len(twin.cuts)
    assert twin.cuts == list(range(len(twin.cuts)))
    every = [twin.code(x) for x in column]
    assert int(bins.default[0]) == max(sorted(set(every)), key=every.count, default=0)


@examples(200)
@given(numbers_binning, bins_at_most, methods)
def test_bins_are_at_most_as_many_as_asked_for_and_in_the_order_of_values(
    column: list[float], max_bins: int, method: str
) -> None:
    bins = learned(column, NUMERIC, max_bins, method)
    known = sorted(x for x in column if not math.isnan(x))
    used = set(codes(bins, column))
    assert len(used) <= max(max_bins, 2)
    assert codes(bins, known) == sorted(codes(bins, known))
    # No bin of numbers is empty, so that every cut separates something of the first rows.
    assert set(codes(bins, known)) == set(range(len(bins.values) + 1)) or not known


@examples(200)
@given(categories, bins_at_most)
def test_category_bins_equal_the_twin(column: list[float], max_bins: int) -> None:
    twin, bins = CategoryBins(column, max_bins), learned(column, CATEGORICAL, max_bins)
    asked = [-1.0, *map(float, range(9))]
    assert codes(bins, asked) == [twin.code(x) for x in asked]
    assert list(range(int(bins.cuts()[0]))) == twin.cuts
    every = [twin.code(x) for x in column]
    assert int(bins.default[0]) == max(sorted(set(every)), key=every.count, default=0)


@examples(100)
@given(st.lists(st.tuples(values, st.integers(-1, 4).map(float), values), max_size=30), bins_at_most, methods)
def test_columns_do_not_see_each_other(rows: list[tuple[float, ...]], max_bins: int, method: str) -> None:
    X = np.array(rows, np.float64).reshape(-1, 3) + 0.0
    kinds = np.array([NUMERIC, CATEGORICAL, NUMERIC], np.int8)
    sparse = np.array([3, 70, 10**9], dtype=np.int32)
    whole = learn_bins(X, kinds, max_bins, method, sparse)
    alone = [learn_bins(X[:, [j]], kinds[[j]], max_bins, method, NO_SPARSE) for j in range(3)]
    alone.append(learn_bins(X[:, :0], kinds[:0], max_bins, method, sparse))
    for name, array in joined(alone)._asdict().items():
        np.testing.assert_array_equal(array, getattr(whole, name))
        assert array.dtype == getattr(whole, name).dtype
    assert whole.kinds.tolist() == [NUMERIC, CATEGORICAL, NUMERIC, SPARSE, SPARSE, SPARSE]
    assert whole.cuts()[3:].tolist() == [1, 1, 1]
    order = np.array([4, 2, 0, 5, 1])
    for chosen, j in zip(whole.select(order).cuts(), order, strict=True):
        assert chosen == whole.cuts()[j]
    assert whole.select(order).sparse.tolist() == [70, 10**9]
    places = np.array([-1, 0, 2, 3, 4, 5])
    assert whole.numbers(places).tolist() == [-1, 0, 2, 6, 73, 10**9 + 3]
    assert whole.places(whole.numbers(places)).tolist() == places.tolist()
    assert whole.places(np.array([3, 5, 7, 74, 2**31 - 2])).tolist() == [6] * 5
    again = Bins.from_arrays(whole.arrays())
    assert all(np.array_equal(a, b) for a, b in zip(again, whole, strict=True))


# -- derived bins ----------------------------------------------------------------------------------------------------
# Bins that an audit derives from parts of the rows, against their slow twin on all rows.


@pytest.mark.parametrize(
    ("column", "max_bins", "boundaries"),
    [
        ([1.0, 2.0, 3.0], 3, [1.5, 2.5]),  # the printed loop would allow a fourth bin
        # Bins of width 1e-10 * 2**34 (about 1.72) are the first to be at most two: [1, 2] and [3, 4].
        ([1.0, 2.0, 3.0, 4.0], 2, [2.5]),
        ([0.0, 9e-11, 1.0], 2, [4.5e-11 + 0.5]),
        ([0.0, 9e-11, 1.0], 1024, [4.5e-11, 4.5e-11 + 0.5]),  # no two values share a bin while there are bins for all
        # Three bins of 1e-10 * 2**-2 hold [0, 1e-11, 2e-11], [6e-11] and [9e-11]; those of 2**-3 are four.
        ([0.0, 1e-11, 2e-11, 6e-11, 9e-11], 3, [4e-11, 7.5e-11]),
        ([5.0, math.nan], 2, []),
        ([math.nan], 8, []),
    ],
)
def test_bins_by_hand(column: list[float], max_bins: int, boundaries: list[float]) -> None:
    assert learned(column, NUMERIC, max_bins).values.tolist() == pytest.approx(boundaries)
    assert NumericBins(column, max_bins, "doubling").boundaries == pytest.approx(boundaries)


def test_bins_of_equal_frequency_by_hand() -> None:
    column = [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert learned(column, NUMERIC, 2, "quantile").values.tolist() == [1.5]
    assert learned(column, NUMERIC, 4, "quantile").values.tolist() == [1.5, 3.5]


def derived(
    columns: list[list[float]], kinds: list[bool], owner: list[int], parts: int, most: int, method: str
) -> list[FeatureBins]:
    """The bins of columns whose rows are with their owners, asked for together."""
    whose = np.array([owner[i % len(owner)] % parts for i in range(len(columns[0]))])
    X = np.array(columns, np.float64).T.reshape(-1, len(columns)) + 0.0
    of_parts = [[SortedValues(X[whose == part, j], kind) for j, kind in enumerate(kinds)] for part in range(parts)]

    def ask(questions: dict[int, Question]) -> list[dict[int, Any]]:
        return [{j: part[j].answer(question) for j, question in questions.items()} for part in of_parts]

    found = derived_together(dict(enumerate(kinds)), most, method, ask)
    return [found[j] for j in range(len(kinds))]


owners = st.lists(st.integers(0, 6), min_size=1, max_size=12)


@examples(400)
@given(numbers_binning, categories, owners, st.integers(1, 4), bins_at_most, methods)
def test_bins_of_parts_equal_the_twins(
    column: list[float], codes: list[float], owner: list[int], parts: int, most: int, method: str
) -> None:
    codes = (codes + [-1.0] * len(column))[: len(column)]
    of_numbers, of_categories = derived([column, codes], [False, True], owner, parts, most, method)
    twin, other = NumericBins(column, most, method), CategoryBins(codes, most)
    assert of_numbers.values.tolist() == twin.boundaries
    assert of_numbers.seen == any(map(math.isnan, column))
    assert (of_categories.values.tolist(), of_categories.seen) == (other.kept, other.has_other)


@examples(20)
@given(st.integers(0, 2**32), st.integers(1, 4), methods, st.sampled_from((2, 30, 255)))
def test_long_columns(seed: int, parts: int, method: str, most: int) -> None:
    """More distinct values than bins, of many sizes, many of them repeated."""
    draw = np.random.default_rng(seed)
    column = np.round(draw.standard_normal(700) * 10.0 ** draw.integers(-12, 12, 700), 12)
    column = draw.choice(column, 900) + 0.0
    (found,) = derived([column.tolist()], [False], draw.integers(0, 7, 11).tolist(), parts, most, method)
    assert found.values.tolist() == NumericBins(column.tolist(), most, method).boundaries


# -- fudyadt histograms ----------------------------------------------------------------------------------------------
# BUILD with columns of few values counted, or divided among threads, and with all columns sorted: the same tree.

AWKWARD_HISTOGRAMS = np.array(
    [-1e300, -5e-324, 0.0, 5e-324, 0.1, 1.0, 1.0000000000000002, 16777216.000000004, 1e308, 1.7e308]
)


def table(rng: np.random.Generator, n: int, classes: int, kinds: list[str]) -> tuple[npt.NDArray[Any], ...]:
    """Columns of the given kinds, and classes that depend on them."""
    columns = {
        "binary": lambda: (rng.random(n) < rng.random() ** 2).astype(float),
        "few": lambda: rng.choice(AWKWARD_HISTOGRAMS, n),
        "category": lambda: np.minimum(rng.geometric(0.2, n), 9).astype(float),
        "constant": lambda: np.full(n, 2.5),
        "many": lambda: rng.normal(size=n),
        "mass": lambda: np.where(rng.random(n) < 0.7, 1.0, rng.normal(size=n)),
        "most": lambda: rng.integers(0, 256, n) * 0.1,
        "few or none": lambda: rng.choice([*AWKWARD_HISTOGRAMS, np.nan, np.nan], n),
        "many or none": lambda: np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
    }
    X = np.column_stack([columns[kind]() for kind in kinds])
    ranks = np.column_stack([np.unique(x, return_inverse=True)[1] for x in X.T])
    y = (ranks[:, 0] % 3 + ranks.sum(axis=1) // 2 + (rng.random(n) < 0.2)) % classes
    return X, y.astype(np.int32)


def built(
    X: Any, y: Any, classes: int, categorical: Any, depth: int, most: int, threads: int = 0
) -> tuple[dict[str, Any], int]:
    """The nodes of a tree in preorder with the leaf of each row, and how many columns of up to ``most`` values were
    counted; the counters that were reserved sufficed. With ``threads``, the BUILD is divided among them."""
    n, d = X.shape
    tree = new_tree(2 * n + threads * NODES_AT_ONCE, classes)
    tree.counts[0] = np.bincount(y, minlength=classes)
    members = np.zeros(n, dtype=MEMBER)
    histograms = new_histograms(n, d, classes, most, 1)
    reserved = len(histograms.cells)
    histograms = histograms._replace(cells=np.full(reserved + 2 * n * d, -1, dtype=np.int32))
    scratch = new_scratch(n, d, classes)._replace(histograms=histograms)
    rows = np.arange(n, dtype=np.int32)
    listing, rules = Listing(X, categorical, rows, rows, y), TreeRules(0.1, 0.0, 2, depth, True, 0.2)
    if threads:
        with limited(threads):
            DividedBuild(tree, members, listing, rules, 7, scratch).run(0)
        free, used, nodes, leaves = set(), *tree.reg[[USED, NODES, LEAVES]].tolist()
        at = int(tree.reg[FREE])
        while at >= 0:
            free.add(at)
            at = int(tree.nodes["left"][at])
        assert len(free) == used - nodes
        assert leaves == (nodes + 1) // 2
    else:
        build(tree, members, 0, listing, rules, 7, scratch)
    assert (histograms.cells[reserved:] == -1).all()
    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        if tree.nodes["feature"][node] >= 0:
            stack += [int(tree.nodes["right"][node]), int(tree.nodes["left"][node])]
    place = np.full(len(tree.nodes), -1)
    place[order] = np.arange(len(order))
    assert all(members["leaf"][i] == route(tree, categorical, X, i, False) for i in range(n))
    nodes = {name: tree.nodes[name][order].tobytes() for name in ("feature", "threshold", "missing", "depth", "label")}
    nodes["statistics"] = tree.statistics[order].tobytes()
    nodes["counts"] = tree.counts[order].tobytes()
    return {**nodes, "leaf": place[members["leaf"]].tolist()}, int(histograms.reg[COUNTED])


@examples(150)
@given(
    st.sampled_from((5, 40, 300, 2000)),
    st.integers(2, 4),
    st.lists(
        st.sampled_from(("binary", "few", "category", "constant", "many", "mass", "most")), min_size=1, max_size=8
    ),
    st.sampled_from((3, 10, 1000)),
    st.data(),
)
def test_counting_columns_changes_nothing(
    n: int, classes: int, kinds: list[str], depth: int, data: st.DataObject
) -> None:
    X, y = table(np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))), n, classes, kinds)
    drawn = data.draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    categorical = np.array(drawn) & np.array([kind not in ("many", "mass") for kind in kinds])
    sorted_, none = built(X, y, classes, categorical, depth, 0)
    counted, some = built(X, y, classes, categorical, depth, 256)
    event(f"counted columns: {'none' if not some else 'all' if some == len(kinds) else 'some'}")
    assert none == 0
    assert counted == sorted_
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_divided, "_FEW_CELLS", data.draw(st.sampled_from((1, 100, 2000))))
        for threads in (1, 2, 3, 5):
            assert built(X, y, classes, categorical, depth, data.draw(st.sampled_from((0, 256))), threads)[0] == counted


def test_columns_of_few_values_are_counted() -> None:
    X, y = table(np.random.default_rng(1), 2000, 2, ["binary", "few", "category", "many", "most"])
    categorical = np.array([False, False, True, False, False])
    assert built(X, y, 2, categorical, 10, 256)[1] == 4


@pytest.mark.parametrize("columns", ["bits", "ladder", "mixed"])
def test_counters_for_the_logarithm_of_the_rows_suffice(columns: str) -> None:
    """Halves all the way down, one row after another cut off, and both: columns of few values, hence few counters."""
    n, values = 4096, 4
    i = np.arange(n)
    bits = (i[:, None] >> np.arange(12)) & 1
    ladder = (i[:, None] < np.arange(1, 60)).astype(int)
    X = {"bits": bits, "ladder": ladder, "mixed": np.hstack([bits, ladder])}[columns].astype(float)
    X[:2] = [[2.0], [3.0]]  # a histogram has counters of these values too, which no half of the rows needs
    y = ((bits.sum(axis=1) + i // 7) % 2).astype(np.int32)
    assert len(new_histograms(n, X.shape[1], 2, values, 1).cells) < n * X.shape[1] / 10
    numeric = np.zeros(X.shape[1], dtype=bool)
    counted, columns_counted = built(X, y, 2, numeric, 1000, values)
    assert columns_counted == X.shape[1]
    assert counted == built(X, y, 2, numeric, 1000, 0)[0]


def test_the_reserve_of_a_large_build_is_small() -> None:
    assert new_histograms(1_000_000, 50, 2).cells.nbytes < 3e6
