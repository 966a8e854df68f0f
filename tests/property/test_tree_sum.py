"""Sums of trees, of targets, statistics within a batch, and an exact GBDT."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.running.intake import answered, split_at_multiples
from raydt.arrays.blocks import SparseRows
from raydt.audits.bins import TargetSums, of_all, target_sums
from raydt.errors import InputError
from raydt.examples.updates import DELETE, INSERT, MOST, UNIT, BatchResult, Features, UpdateBatch, history_of_live
from raydt.learners import learners
from raydt.learners.base import Case
from raydt.learners.gbdt.audit import audit
from raydt.learners.gbdt.options import GBDTOptions
from raydt.sessions.session import InProcessSession, small_stream
from raydt.trees.shapley import HasTreeSum, TreeSum, tree_sum_of
from tests.cases import CASES, Trial, every_case
from tests.oracles import feasibility as twin
from tests.refusals import refused
from tests.volume import examples

# -- tree sum --------------------------------------------------------------------------------------------------------
#
# Sums of trees, of targets, and statistics within a batch.

# -- tree sum --------------------------------------------------------------------------------------------------------
#
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
#
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
#
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
#
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
