"""Weighted streams, weighted forests, and GBDT on sparse rows."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt import ExactForestRegressor
from raydt.arrays.blocks import SparseRows
from raydt.arrays.kernel import kernel
from raydt.examples.updates import DELETE, INSERT, UNIT, Features, History, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.forest.labels import (
    MOST_WEIGHT,
    SUMS,
    add_weighted,
    canonical_sums,
    floor_mean,
    weighted_lack,
)
from raydt.learners.forest.model import leaf_votes
from raydt.learners.gbdt.audit import audit
from raydt.learners.gbdt.options import GBDTOptions
from raydt.sessions.session import InProcessSession
from raydt.trees.records import rounded_words
from tests.crews import NUMBERS, crew
from tests.oracles.online_gbdt_stream import OnlineGBDTTwin, canonical
from tests.strategies import Stream, cuts, gbdt_options, gbdt_streams
from tests.volume import examples

# -- weighted streams ------------------------------------------------------------------------------------------------
# Rows with whole weights against repeated rows: the same model, bit for bit, under insertions and deletions.
#
# Features are numbers: bins of categories are in the order of how many rows have them.

pytestmark = pytest.mark.timeout(900)

GBDT = learners()["gbdt"]
#: Larger than every weight.
COPIES = 8
ALIVE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Round:
    """Rows to delete, by id, and to insert: cells, label and weight of each."""

    gone: tuple[int, ...]
    new: tuple[tuple[float, float, int, int], ...]


@st.composite
def rounds(draw: st.DrawFn) -> list[Round]:
    """A training, then updates; ids count the rows inserted so far."""
    cell = st.integers(0, 4).map(float)
    row = st.tuples(cell, cell, st.integers(0, 2), st.integers(1, 4))
    found, live, count = [], set(), 0
    for turn in range(draw(st.integers(1, 4))):
        gone = draw(st.sets(st.sampled_from(sorted(live)))) if live else set()
        new = draw(st.lists(row, min_size=0 if turn else 8, max_size=24))
        live = live - gone | set(range(count, count + len(new)))
        count += len(new)
        found.append(Round(tuple(sorted(gone)), tuple(new)))
    return found


def batch_of(
    some: Round, start: int, first: int, warmup: int, numbers: bool, repeated: bool, weights: list[int]
) -> Any:
    """A round as a batch; weights of all rows so far are in ``weights``."""
    copies = lambda id: range(weights[id]) if repeated else range(1)  # noqa: E731
    gone = [id * COPIES + copy for id in some.gone for copy in copies(id)]
    new = [(first + i, row) for i, row in enumerate(some.new)]
    added = [(id * COPIES + copy, row) for id, row in new for copy in copies(id)]
    y = [row[2] for _, row in added]
    return UpdateBatch(
        start,
        np.repeat(np.array([DELETE, INSERT], np.int8), [len(gone), len(added)]),
        np.array([*gone, *(id for id, _ in added)], np.int64),
        np.array([row[:2] for _, row in added], np.float64).reshape(-1, 2),
        np.array(y, np.float64) / 3 if numbers else np.array(y, np.int32),
        0 if numbers else 3,
        np.full(len(gone) + len(added), -1, np.int64),
        len(added) if warmup else 0,
        weight=None if repeated else np.array([UNIT * row[3] for _, row in added], np.uint32),
    )


def model_of(session: InProcessSession) -> dict[str, Any]:
    """What both have to agree in."""
    state = session.state()[0]
    names = [name for name in state if name.startswith("node_")]
    return {name: state[name].tolist() for name in [*names, "tree_nodes", "origin", "exponent", "classes"]}


@examples(25)
@given(
    rounds(),
    st.fixed_dictionaries(
        {
            "objective": st.sampled_from(("auto", "multiclass", "squared_error")),
            "max_iter": st.integers(1, 4),
            "max_leaf_nodes": st.integers(2, 6),
            "l2_regularization": st.sampled_from((0.0, 1.0)),
            "robustness_tolerance": st.sampled_from((0.0, 0.2)),
            "derivatives": st.sampled_from(("bounded", "changed_leaves", "retrained", "never")),
            "retrain": st.sampled_from(("never", "always")),
        }
    ),
    st.sampled_from((1, 2, 3)),
    st.booleans(),
    st.sampled_from(NUMBERS),
)
def test_gbdt(updates: list[Round], chosen: dict[str, Any], shards: int, shared: bool, threads: int) -> None:
    numbers = chosen["objective"] == "squared_error"
    chosen = chosen | {"max_bins": 16, "candidate_fraction": 0.5, "update_every": 2**40}
    options, features = GBDTOptions(**chosen), Features(("a", "b"), (False, False), groups=2)
    weighted, repeated = (
        InProcessSession(GBDT, options, features, shards, WorkPlan(0, shared_store=shared)) for _ in range(2)
    )
    weights: list[int] = []
    seq, first = [0, 0], 0
    with crew(threads, None):
        for turn, some in enumerate(updates):
            weights += [row[3] for row in some.new]
            for which, session in enumerate((weighted, repeated)):
                batch = batch_of(some, seq[which], first, turn == 0, numbers, which == 1, weights)
                seq[which] = batch.stop
                session.apply(batch)
                session.finish()
            first += len(some.new)
            assert model_of(weighted) == model_of(repeated), f"round {turn}"
        restored = InProcessSession(GBDT, options, features, 2, WorkPlan(0, shared_store=False))
        restored.restore(*weighted.state())
        assert restored.digest() == weighted.digest()
        assert model_of(restored) == model_of(weighted)
    assert GBDT.audit(options, features, weighted.state()[0], history_of(updates, numbers), {}).failures == []


def history_of(updates: list[Round], numbers: bool) -> History:
    """The live examples of the weighted session, as the source has them."""
    rows = [(turn, row) for turn, some in enumerate(updates) for row in some.new]
    gone = {id for some in updates for id in some.gone}
    born, seq = [], 0
    for some in updates:
        born += [seq + len(some.gone) + i for i in range(len(some.new))]
        seq += len(some.gone) + len(some.new)
    live = [i for i in range(len(rows)) if i not in gone]
    y = np.array([rows[i][1][2] for i in live])
    return History(
        id=np.array([i * COPIES for i in live], np.int64),
        X=np.array([rows[i][1][:2] for i in live], np.float64).reshape(-1, 2),
        y=y / 3 if numbers else y.astype(np.int32),
        inserted=np.array([born[i] for i in live], np.int64),
        deleted=np.full(len(live), ALIVE),
        complete=False,
        weight=np.array([UNIT * rows[i][1][3] for i in live], np.uint32),
    )


# -- forest weights --------------------------------------------------------------------------------------------------
# Forests of numeric labels with weights: exact words of sums, and whole weights that equal repeated rows, bit for
# bit.
#
# The twin of ``test_forest_twin`` draws weights, too; here copies of a row come and go beside the row with its
# weight.

#: Features, label and weight of rows.
Row = tuple[float, float, float, int]
labels = st.integers(-(2**40), 2**40) | st.integers(-(2**20), 2**20).map(lambda y: y << 20)
weights = st.integers(1, 2**32 - 1) | st.sampled_from((1, UNIT, 3 * UNIT, 2**32 - 1))


@kernel
def _add(sums: Any, y: int, by: int) -> None:
    add_weighted(sums, y, by)


@kernel
def _results(left: Any, totals: Any) -> tuple[float, int]:
    return weighted_lack(left, totals), floor_mean(totals)


@kernel
def _rounded(high: int, low: int) -> float:
    return rounded_words(high, low)


@given(st.lists(st.tuples(labels, weights), min_size=1, max_size=20), st.data())
def test_sums_means_and_differences_are_exact(rows: list[tuple[int, int]], data: st.DataObject) -> None:
    """Of rows of which some are taken away again, and others are on the left."""
    gone = data.draw(st.sets(st.sampled_from(range(len(rows)))))
    kept = [row for i, row in enumerate(rows) if i not in gone]
    on_left = data.draw(st.lists(st.sampled_from(kept), unique=True)) if kept else []
    totals, left = np.zeros(SUMS, np.int64), np.zeros(SUMS, np.int64)
    for y, w in rows:
        _add(totals, y, w)
    for i in gone:
        _add(totals, rows[i][0], -rows[i][1])
    for y, w in on_left:
        _add(left, y, w)
    n, total = sum(w for _, w in kept), sum(w * y for y, w in kept)
    assert canonical_sums(totals[None])[0].tolist() == [n, *divmod(total, 2**20)]
    if not kept:
        return
    n_left, sum_left = sum(w for _, w in on_left), sum(w * y for y, w in on_left)
    lack, mean = _results(left, totals)
    assert lack == float(sum_left * n - n_left * total)
    assert mean == leaf_votes(totals[None], True)[0, 0] == total // n
    assert _results(totals - left, totals)[0] == -lack


@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40), st.integers(1, MOST_WEIGHT - 1))
def test_the_largest_differences_are_rounded_once(first: int, second: int, on_left: int) -> None:
    """Two labels, with as much weight as there may be."""
    left, totals = np.zeros(SUMS, np.int64), np.zeros(SUMS, np.int64)
    _add(left, first, on_left)
    _add(totals, first, on_left)
    _add(totals, second, MOST_WEIGHT - on_left)
    total = first * on_left + second * (MOST_WEIGHT - on_left)
    assert _results(left, totals)[0] == float(first * on_left * MOST_WEIGHT - on_left * total)


@given(
    st.integers(-(2**53), 2**53) | st.integers(0, 52).map(lambda bit: 1 << bit),
    st.integers(0, 2**60 - 1)
    | st.tuples(st.integers(0, 59), st.integers(-1, 1)).map(lambda b: max(0, (1 << b[0]) + b[1])),
)
def test_two_words_are_rounded_once(high: int, low: int) -> None:
    assert _rounded(high, low) == float(high * 2**60 + low)


@st.composite
def rounds_weights(draw: st.DrawFn) -> list[tuple[set[int], list[Row]]]:
    """A training, then updates: rows to delete, by number, and to insert."""
    cell, number = st.integers(0, 4).map(float), st.sampled_from([0.0, 0.1, 0.3, -1.5, 1e-3, 7.0, 1e5])
    row = st.tuples(cell, st.just(math.nan) | cell, number, st.integers(1, 4))
    found: list[tuple[set[int], list[Row]]] = []
    live, count = set[int](), 0
    for turn in range(draw(st.integers(1, 4))):
        gone = draw(st.sets(st.sampled_from(sorted(live)))) if live else set()
        new = draw(st.lists(row, min_size=0 if turn else 8, max_size=20))
        live = live - gone | set(range(count, count + len(new)))
        count += len(new)
        found.append((gone, new))
    return found


def rows_of(forest: ExactForestRegressor) -> list[Any]:
    """Trees, with sums of weights and of labels times weights in rows of weight 1."""
    model = forest.session_.model()
    unit = int(model["unit"][0]) if "unit" in model else 1
    words = model["totals"].astype(object)
    if unit == 1:
        words = words[:, :2]
    elif words.shape[1] == SUMS:
        words = np.column_stack([words[:, 0], words[:, 1] * 2**20 + words[:, 2]])
    sums = [[Fraction(word, unit) for word in node] for node in words.tolist()]
    names = ("tree_nodes", "feature", "threshold", "left", "right", "exponent")
    return [sums, *(model[name].tolist() for name in names)]


@examples(200)
@given(
    rounds_weights(),
    st.sampled_from([0.0, 1.7e9]),
    st.fixed_dictionaries(
        {
            "n_estimators": st.integers(1, 3),
            "min_samples_split": st.integers(2, 8),
            "max_depth": st.sampled_from([1, 3, 20]),
            "thresholds": st.integers(1, 4),
            "rebuild": st.sampled_from(["eager", "lazy"]),
            "random_state": st.integers(0, 5),
        }
    ),
)
def test_whole_weights_equal_repeated_rows(
    turns: list[tuple[set[int], list[Row]]], offset: float, options: dict[str, Any]
) -> None:
    own, repeated = (ExactForestRegressor(sample_share=1.0, n_jobs=1, **options) for _ in range(2))
    weight: list[int] = []
    copies: dict[int, list[int]] = {}
    for gone, new in turns:
        if gone:
            own.forget(sorted(gone), digests=False)
            repeated.forget([copy for i in sorted(gone) for copy in copies[i]], digests=False)
        if new:
            ids = np.arange(len(weight), len(weight) + len(new))
            cells, w = np.array([row[:3] for row in new]), [row[3] for row in new]
            X, y = cells[:, :2], cells[:, 2] + offset
            for i, times in zip(ids.tolist(), w, strict=True):
                copies[i] = [8 * i + copy for copy in range(times)]
            weight += w
            own.partial_fit(X, y, sample_weight=w, ids=ids)
            repeated.partial_fit(np.repeat(X, w, axis=0), np.repeat(y, w), ids=[c for i in ids for c in copies[int(i)]])
        assert rows_of(own) == rows_of(repeated)
        asked = np.array([[a, b] for a in range(5) for b in (math.nan, 1.0, 3.0)])
        assert own.predict(asked).tolist() == repeated.predict(asked).tolist()
    assert own.audit().failures == []


# -- gbdt sparse -----------------------------------------------------------------------------------------------------
# Sparse features of the online GBDT are to its slow twin as columns of zeros and ones: the same model, audited.


def sparse_rows(X: np.ndarray, dense: int) -> SparseRows:
    """The columns after the dense ones, as sparse rows."""
    row, index = np.nonzero(X[:, dense:])
    return SparseRows.of_lengths(np.bincount(row, minlength=len(X)), index.astype(np.int32), X.shape[1] - dense)


def with_bits(stream: Stream, count: int) -> Stream:
    """The stream with so many more columns of zeros and ones, which follow from the others."""

    def bits(row: tuple[float, ...]) -> tuple[float, ...]:
        seed = zlib.crc32(np.array(row).tobytes())
        return tuple(float(seed >> (3 * j) & 3 == 0) for j in range(count))

    rows = tuple(None if row is None else row + bits(row) for row in stream.rows)
    return replace(stream, rows=rows, categorical=stream.categorical + (False,) * count)


def split(batch: UpdateBatch, dense: int) -> UpdateBatch:
    return replace(batch, X=np.ascontiguousarray(batch.X[:, :dense]), sparse=sparse_rows(batch.X, dense))


@examples(12)
@given(gbdt_streams(), gbdt_options("auto"), st.integers(1, 4), st.sampled_from((1, 2, 5)), cuts(), st.booleans())
def test_sparse_features_are_columns_of_zeros_and_ones(
    stream: Stream, options: dict[str, Any], count: int, shards: int, sizes: list[int], restores: bool
) -> None:
    dense, chosen = len(stream.categorical), GBDTOptions(**options)
    features = Features(stream.features.names, stream.categorical, groups=3, sparse=count)
    longer = with_bits(stream, count)
    session = InProcessSession(learners()["gbdt"], chosen, features, shards)
    twin = OnlineGBDTTwin(list(longer.categorical), chosen)
    for batch in longer.batches(sizes):
        assert not session.apply(split(batch, dense)).refused
        twin.process(batch)
        if restores:
            state = session.state()
            session = InProcessSession(learners()["gbdt"], chosen, features, 1 + batch.start % 5)
            session.restore(*state)
    session.finish()
    twin.finish()
    state, _ = session.state()
    fast, slow = canonical(state), canonical(twin.state())
    for name in slow:
        if not name.startswith("bins_"):
            assert fast[name] == slow[name], name
    history = twin.history()
    history = replace(history, X=history.X[:, :dense], sparse=sparse_rows(history.X, dense))
    failures = audit(chosen, features, state, history).failures
    assert not failures, failures
    if "bins_sparse" in state:
        state["bins_sparse"] = state["bins_sparse"][1:]
        failures = GBDT.audit(chosen, features, state, history, {}).failures
        assert {failure.id for failure in failures} & {"audits.bins", "audits.malformed"}
