"""Sparse rows, finders and their spine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pydantic import TypeAdapter

from pipelines.config import StreamOptions
from pipelines.running.intake import split_at_multiples
from raydt.arrays.blocks import RaggedStore, SparseRows, concatenated, hashed_groups, merged
from raydt.arrays.kernel import kernel
from raydt.examples.updates import Features
from raydt.finders import finder as finder_module
from raydt.finders import pool as pool_module
from raydt.finders.finder import Finder, FinderSteps, score_of, scores_of, xlogx_table
from raydt.sources.divided import open_source
from raydt.sources.options import ParquetFiles
from raydt.streams.base import history_of
from tests.oracles.sparse_splits import BucketTwin, differences, tallies
from tests.refusals import refused
from tests.simulation.chain import Chain, ChainOptions
from tests.sparse_streams import Event, sparse_stream, sparse_streams
from tests.strategies import ones, sparse_rows
from tests.volume import examples

# -- sparse ----------------------------------------------------------------------------------------------------------
# Sparse rows and their store, against lists of lists.

WIDTH = 50


def lists_of(rows):
    return [rows.row(i).tolist() for i in range(len(rows))]


def sparse(lists, width=WIDTH):
    return sparse_rows(lists, width)


some_rows = st.lists(ones(WIDTH), max_size=8)


class TestRows:
    @given(some_rows, st.data())
    def test_selection(self, lists, data):
        rows = sparse(lists)
        part = slice(
            *data.draw(st.tuples(*[st.none() | st.integers(-9, 9)] * 2)), data.draw(st.sampled_from([1, 2, -1]))
        )
        assert lists_of(rows[part]) == lists[part]
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(lists), max_size=len(lists))), np.bool_)
        assert lists_of(rows[mask]) == [row for row, wanted in zip(lists, mask, strict=True) if wanted]
        chosen = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=9)) if lists else []
        assert lists_of(rows[np.array(chosen, np.int64)]) == [lists[i] for i in chosen]

    @given(some_rows, some_rows)
    def test_concatenation(self, first, second):
        joined = concatenated([sparse(first)[:], sparse(second)[:]])
        assert lists_of(joined) == first + second
        assert joined.nbytes == 8 * (len(joined) + 1) + 4 * sum(map(len, first + second))

    @given(some_rows, st.integers(1, 6), st.data())
    def test_groups(self, lists, groups, data):
        features = Features(("a",), (False,), groups, WIDTH)
        rows, order = sparse(lists), data.draw(st.permutations(range(groups)))
        parts = [rows.of_groups(np.array([group]), groups) for group in order]
        for group, part in zip(order, parts, strict=True):
            assert (features.groups_of(part.indices) == group).all()
        assert lists_of(merged(parts)) == lists
        several = np.array(order[: 1 + groups // 2])
        assert lists_of(rows.of_groups(several, groups)) == lists_of(merged(parts[: len(several)]))

    @given(some_rows)
    def test_arrays(self, lists):
        rows = sparse(lists)
        again = SparseRows.of_arrays(rows.arrays(), WIDTH)
        assert lists_of(again) == lists
        assert again.dense().sum() == len(rows.indices)

    @pytest.mark.parametrize(
        ("lengths", "values", "problem"),
        [
            ([1], [WIDTH], "sparse_order"),
            ([1], [-1], "sparse_order"),
            ([2], [3, 3], "sparse_order"),
            ([2], [4, 3], "sparse_order"),
            ([3], [1, 2], "addition"),
            ([-1, 3], [1, 2], "addition"),
            ([2**31 - 1, 1], [1], "addition"),
        ],
    )
    def test_arrays_that_are_none(self, lengths, values, problem):
        arrays = {"sparse_lengths": np.array(lengths, np.int32), "sparse_values": np.array(values, np.int32)}
        with refused(f"states.{problem}"):
            SparseRows.of_arrays(arrays, WIDTH)
        with refused("states.form", array="sparse_lengths", types="int32"):
            SparseRows.of_arrays({name: array.astype(np.int64) for name, array in arrays.items()}, WIDTH)


class StoreAgainstDictionary(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.store, self.held = RaggedStore(np.int32), {}

    def taken(self, slots):
        return lists_of(SparseRows.of_lengths(*self.store.take(np.array(slots, np.int32)), WIDTH))

    @rule(slots=st.lists(st.integers(0, 200), unique=True, max_size=30), data=st.data())
    def put(self, slots, data):
        lists = data.draw(st.lists(ones(WIDTH), min_size=len(slots), max_size=len(slots)))
        rows = sparse(lists)
        self.store.put(np.array(slots, np.int32), rows.lengths, rows.indices)
        self.held |= zip(slots, lists, strict=True)

    @rule(data=st.data())
    def take(self, data):
        slots = data.draw(st.lists(st.sampled_from(sorted(self.held)), max_size=9)) if self.held else []
        assert self.taken(slots) == [self.held[slot] for slot in slots]

    @invariant()
    def holds_everything(self):
        assert self.taken(sorted(self.held)) == [self.held[slot] for slot in sorted(self.held)]


TestStore = StoreAgainstDictionary.TestCase
TestStore.settings = examples(60, stateful_step_count=20, deadline=None)


def test_space_of_replaced_rows_is_used_again():
    """200 rows of 40 numbers, replaced a hundred at a time by other lengths, never take more than a few times that."""
    store, rng = RaggedStore(np.int32), np.random.default_rng(3)
    most = 0
    for start in range(0, 100_000, 100):
        lengths = rng.integers(30, 50, 100)
        store.put(np.arange(100) + start % 200, lengths, np.zeros(int(lengths.sum()), np.int32))
        most = max(most, store.nbytes)
    assert most < 3 * 200 * 40 * 4 + 16 * 300


class TestFeatures:
    @pytest.mark.parametrize(("dense", "width", "groups"), [(0, 5, 16), (3, 1000, 16), (20, 7, 4), (2, 0, 16)])
    def test_every_feature_is_in_one_group(self, dense, width, groups):
        features = Features(tuple(f"x{j}" for j in range(dense)), (False,) * dense, groups, width)
        assert features.groups == min(groups, dense + width)
        every = np.arange(features.groups)
        assert features.columns_of(every).tolist() == list(range(dense))
        assert set(features.groups_of(np.arange(width)).tolist()) <= set(every.tolist())
        for shards in (1, 2, 5):
            assert np.concatenate(features.assign(shards)).tolist() == every.tolist()

    def test_groups_are_even_and_fixed(self):
        features = Features((), (), 16, 100_000)
        sizes = np.bincount(features.groups_of(np.arange(100_000)), minlength=16)
        assert sizes.min() > 6_200
        assert sizes.max() < 6_300
        assert features.groups_of(np.array([0, 1, 2, 3, 17, 2**31 - 2])).tolist() == FIXED

    def test_names_are_made_on_demand(self):
        features = Features(("size",), (False,), 16, 10**9, "words")
        assert len(features) == 10**9 + 1
        assert features.name(0) == "size"
        assert features.name(18) == "words[17]"
        assert features.describe()[1] == {"name": "words", "kind": "sparse", "features": 10**9}


#: Checkpoints lie in groups by this hash, so that it never changes.
FIXED = [0, 9, 3, 13, 8, 8]


# -- sparse spine ----------------------------------------------------------------------------------------------------
# Sparse rows on their way from a source through streams, sessions and checkpoints, against the same rows as columns.
#
# The learner is the one of the simulation, in which a row that is not as it was shows in the digest.

WIDTH_SPINE = 12
OPTIONS = ChainOptions(kind="chain", feature_groups=5)

MODELS = (
    {"model": "incremental"},
    {"model": "incremental", "warmup": 4},
    {"model": "sliding_window", "window": 3},
    {"model": "random_updates", "seed": 5},
    {"model": "batches", "steps": [6, 2, 9, 0], "removal_order": "random"},
    {"model": "batches", "steps": [6, 2, 9, 0], "removal_order": "lifo"},
    {"model": "changelog"},
)


@st.composite
def tables(draw, changelog):
    """Rows with a dense column, bad ones among them; as a change log with every operation."""
    n = draw(st.integers(1, 20))
    lists = draw(st.lists(ones(WIDTH_SPINE, 4) | st.just([3, 3]), min_size=n, max_size=n))
    columns = {
        "y": draw(st.lists(st.sampled_from("ab"), min_size=n, max_size=n)),
        "size": [float(i % 3) for i in range(n)],
    }
    if changelog:
        columns |= {"id": draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))}
        columns |= {"op": draw(st.lists(st.sampled_from(["c", "d", "u", "q", "delete_value"]), min_size=n, max_size=n))}
    return columns, lists


def stream_of(folder, columns, lists, model, dense=False):
    if dense:
        good = [row if row != [3, 3] else None for row in lists]
        cells = ([None if row is None else float(j in row) for row in good] for j in range(WIDTH_SPINE))
        added = {f"i{j}": pa.array(column, pa.float64()) for j, column in enumerate(cells)}
    else:
        added = {"indices": pa.array(lists, pa.list_(pa.int32()))}
    table = pa.table({**columns, **added}).replace_schema_metadata({"n_features": str(WIDTH_SPINE)})
    pq.write_table(table, folder / f"{dense}.parquet", row_group_size=7)
    is_log = model["model"] == "changelog"
    options = {"id": "id", "op": "op"} if is_log else {}
    source = open_source(ParquetFiles(path=f"{dense}.parquet", **options), folder, Chain().traits(OPTIONS).reading)
    return TypeAdapter(StreamOptions).validate_python({**model, "on_error": "skip"}).make(source)


def dense_of(rows, sparse):
    return np.concatenate([rows, sparse.dense()], axis=1)


@pytest.mark.parametrize("model", MODELS, ids=str)
@examples(25, deadline=None)
@given(data=st.data())
def test_streams_carry_the_rows(tmp_path_factory, model, data):
    """Batches and history hold what those of the same rows as columns hold, however they are cut."""
    columns, lists = data.draw(tables(model["model"] == "changelog"))
    folder = tmp_path_factory.mktemp("streams")
    size, every = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))
    stream, twin = (stream_of(folder, columns, lists, model, dense) for dense in (False, True))
    pieces = list(chain.from_iterable(split_at_multiples(batch, every) for batch in stream.batches(size)))
    whole = list(twin.batches(1000))
    assert [i for piece in pieces for i in piece.id] == [i for batch in whole for i in batch.id]
    assert all(len(piece.sparse) == len(piece.X) for piece in pieces)
    if pieces:
        X = np.concatenate([piece.X for piece in pieces])
        got = dense_of(X, concatenated([piece.sparse for piece in pieces]))
        np.testing.assert_array_equal(got, np.concatenate([batch.X for batch in whole]))
    history, other = (history_of(stream_of(folder, columns, lists, model, dense)) for dense in (False, True))
    np.testing.assert_array_equal(dense_of(history.X, history.sparse), other.X)
    assert history.id.tolist() == other.id.tolist()
    assert history.deleted.tolist() == other.deleted.tolist()


# -- sparse finders --------------------------------------------------------------------------------------------------
# The compiled finders: bit for bit the twin's answers and buckets; within 1 + alpha, however features are grouped.

ALPHAS = (0.05, 0.1, 0.5, 2.0)


@kernel
def _score(entropy: bool, table: Any, n: int, c1: int, n1: int, c11: int) -> float:
    return score_of(entropy, table, n, c1, n1, c11)


class Compiled:
    """A compiled finder, a row at a time; now and then it is saved and restored."""

    def __init__(self, name: str, alpha: float, entropy: bool, groups: int = 1, restored_every: int = 0) -> None:
        self.finder, self.groups, self.entropy = Finder(name, entropy, alpha, groups), groups, entropy
        self.new = lambda: Finder(name, entropy, alpha, groups)
        self.every, self.steps = restored_every, 0
        self.answer: tuple[int, float] = (-1, 0.0)

    def add(self, row: Sequence[int], y: int) -> None:
        self._take(row, y, 1)

    def remove(self, row: Sequence[int], y: int) -> None:
        self._take(row, y, -1)

    def _take(self, row: Sequence[int], y: int, sign: int) -> None:
        self.steps += 1
        if self.every and self.steps % self.every == 0:
            states, old = [self.finder.state(g) for g in range(self.groups)], self.finder
            self.finder = self.new()
            self.finder.restore(old.n, old.c1, states)
        feature = np.array(sorted(row), dtype=np.int32)
        unit = hashed_groups(feature, self.groups).astype(np.int32)
        where = np.array([0, len(feature)]), feature, unit
        steps = FinderSteps(np.array([sign], np.int8), np.array([y], np.int8), *where, np.array([True]))
        found = self.finder.apply(steps)[0]
        n, c1 = self.finder.n, self.finder.c1
        table = xlogx_table(n)
        whole = float(_score(self.entropy, table, n, c1, 0, 0)) if n else 0.0
        candidates = [
            (float(_score(self.entropy, table, n, c1, n1, c11)), j) for j, n1, c11 in found.tolist() if j >= 0
        ]
        score, best = min(candidates, default=(whole, -1))
        self.answer = best, score

    def best(self) -> tuple[int, float]:
        return self.answer


class Reporting(Compiled):
    """With its buckets."""

    @property
    def bucket(self) -> dict[int, int]:
        states = [self.finder.state(g) for g in range(self.groups)]
        return {
            j: k for state in states for j, k in zip(state["feature"].tolist(), state["bucket"].tolist(), strict=True)
        }


STREAMS = [sparse_stream(seed) for seed in range(12)]
#: So many answers on 48 streams have to be suboptimal, by alpha. A small alpha leaves entropy hardly any.
SUBOPTIMAL = {"updgini": (10, 30, 300, 600), "updent": (0, 0, 100, 1000)}


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "alpha"), [*product(("updgini", "updent"), ALPHAS)])
def test_answers_and_buckets_are_the_twins(name: str, alpha: float) -> None:
    assert differences(name, alpha, lambda: Reporting(name, alpha, name == "updent"), STREAMS[:6]) == []
    assert differences(name, alpha, lambda: Reporting(name, alpha, name == "updent", 1, 7), STREAMS[6:]) == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["updgini", "updent"])
def test_answers_are_the_twins_when_dead_entries_are_freed_all_the_time(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed = []

    def sweep(pool: pool_module.Pool) -> None:
        before = int(pool.reg[pool_module.LIVE])
        pool_module._sweep(pool)
        freed.append(before - int(pool.reg[pool_module.LIVE]))

    monkeypatch.setattr(finder_module, "free_dead", sweep)
    assert differences(name, 0.1, lambda: Reporting(name, 0.1, name == "updent"), STREAMS[:6]) == []
    assert sum(freed) > 100


@pytest.mark.nightly
@given(st.sampled_from(["updgini", "updent"]), st.sampled_from([0.01, 0.3, 10.0]), sparse_streams())
def test_short_streams(name: str, alpha: float, stream: list[Event]) -> None:
    assert differences(name, alpha, lambda: Reporting(name, alpha, name == "updent"), [stream]) == []
    (tally,) = tallies(name, alpha, {"twin": lambda: BucketTwin(name, alpha)}, [stream]).values()
    assert (tally.violations, tally.misreported) == (0, 0)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "alpha"), [*product(("updgini", "updent"), ALPHAS)])
def test_answers_are_within_alpha_and_the_streams_could_tell(name: str, alpha: float) -> None:
    entropy = name == "updent"
    makes = {
        "one": lambda: Compiled(name, alpha, entropy),
        "groups": lambda: Compiled(name, alpha, entropy, groups=5),
        "scan": lambda: Compiled("scan", alpha, entropy, groups=3),
    }
    found = tallies(name, alpha, makes, [*STREAMS, *(sparse_stream(seed) for seed in range(12, 48))])
    for tally in found.values():
        assert (tally.violations, tally.misreported) == (0, 0)
        assert tally.states > 15_000
        assert tally.nonzero > tally.states / 2
        assert 1 <= tally.worst <= 1 + alpha
    assert found["one"].suboptimal >= SUBOPTIMAL[name][ALPHAS.index(alpha)]
    assert found["scan"].suboptimal == 0


@pytest.mark.nightly
@pytest.mark.parametrize("entropy", [False, True])
def test_scores_without_a_table_are_the_same_bits(entropy: bool) -> None:
    draws = np.random.default_rng(1)
    n = draws.integers(0, 5000, 2000)
    n1 = draws.integers(0, n + 1)
    c11 = draws.integers(0, n1 + 1)
    c1 = c11 + draws.integers(0, n - n1 + 1)
    table, found = xlogx_table(5000), np.empty(len(n))
    scores_of(entropy, 1, n, c1, n1, c11, found)
    counts = zip(n.tolist(), c1.tolist(), n1.tolist(), c11.tolist(), strict=True)
    assert found.tolist() == [_score(entropy, table, *of) if of[0] else 0.0 for of in counts]
    assert Finder("updgini", False, 0.5, 1)._table.nbytes == 8 * 1024
