"""The sparse fully dynamic tree on any shards and batches against its slow twin: same predictions, same tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.finders import pool as pool_module
from raydt.learners.sparse_tree import shard as shard_module
from tests.oracles.fudyadt import canonical
from tests.oracles.sparse_tree import SparseTreeTwin
from tests.sparse_tree_streams import LEARNER, MixedStream, long_stream, session_of, short_streams, twin_of
from tests.strategies import cuts
from tests.volume import examples

# Passing takes seconds; a failure is worth the minutes it takes to shrink.
pytestmark = pytest.mark.timeout(900)

shard_counts = st.sampled_from((1, 2, 3, 7))


long_streams = st.builds(long_stream, st.integers(0, 2**32 - 1), dense=st.sampled_from((0, 0, 2)))


def options_for(dense: int) -> st.SearchStrategy[dict[str, Any]]:
    """Options that decide the model."""
    common = {
        "finder": st.sampled_from(("updgini",) if dense else ("updgini", "updent")),
        "finder_alpha": st.sampled_from((0.02, 0.1, 1.0)),
        "alpha": st.sampled_from((0.0, 0.0, 0.1, 0.4)),
        "beta": st.sampled_from((0.001, 0.02, 0.1, 0.3)),
        "max_depth": st.sampled_from((None, None, None, 0, 1, 3)),
        "min_samples_split": st.sampled_from((2, 2, 3, 6)),
        "feature_groups": st.just(4),
    }
    return st.fixed_dictionaries({**common, "epsilon": st.sampled_from((0.05, 0.3, 1.0))} if dense else common)


def assert_same(
    stream: MixedStream, options: dict[str, Any], shards: int, sizes: Sequence[int], *, skip: bool = False
) -> None:
    """Both take the stream; everything they can be asked is equal after every batch."""
    session, twin = session_of(stream, options, shards), twin_of(stream, options)
    whole = list(stream.columns.batches(sizes))
    for given_batch, batch in zip(stream.batches(sizes), whole, strict=True):
        result, expected = session.apply(given_batch, skip_refused=skip), twin.process(batch, skip_refused=skip)
        where = f"updates {batch.start} to {batch.stop}"
        assert result.applied == expected.applied, where
        assert [(r.position, r.reason) for r in result.refused] == expected.refused, where
        assert result.predictions.tolist() == expected.predictions, where
        state, groups = session.state()
        assert canonical(state) == twin.canonical(), where
        assert structures(groups) == structures_of(twin), where
        columns = [result.log[name].tolist() for name in ("seq", "rows", "depth", "nodes")] if result.log else [()]
        assert list(zip(*columns, strict=True)) == expected.log, where
        if result.applied < len(batch):
            break
    session.finish()
    twin.finish()
    assert canonical(session.state()[0]) == twin.canonical()
    statistics = session.statistics()
    assert (statistics["rebuilds"], statistics["rebuilt_rows"]) == (twin.rebuilds, twin.rebuilt_rows)


def structures(groups: dict[int, Any]) -> list[tuple[int, ...]]:
    """Node, feature, n1, c11 and bucket of all groups."""
    names = ("node", "feature", "n1", "c11", "bucket")
    return sorted(row for g in groups.values() for row in zip(*(g[name].tolist() for name in names), strict=True))


def structures_of(twin: SparseTreeTwin) -> list[tuple[int, ...]]:
    if twin.warmup_left > 0:
        return []
    return sorted(
        (place, j, *finder.ones[j], bucket)
        for place, v in enumerate(twin.preorder(twin.root))
        for finder in v.finders  # type: ignore[attr-defined]
        for j, bucket in finder.bucket.items()
    )


@examples(100)
@given(short_streams(), st.data(), shard_counts, cuts())
def test_differential_random_streams(stream: MixedStream, data: st.DataObject, shards: int, sizes: list[int]) -> None:
    assert_same(stream, data.draw(options_for(stream.dense)), shards, sizes)


@examples(40)
@given(short_streams(refusals=True), st.data(), shard_counts, cuts(), st.booleans())
def test_differential_with_refused_updates(
    stream: MixedStream, data: st.DataObject, shards: int, sizes: list[int], skip: bool
) -> None:
    assert_same(stream, data.draw(options_for(stream.dense)), shards, sizes, skip=skip)


@examples(12)
@given(long_streams, st.data(), shard_counts, st.sampled_from(((1,), (7,), (90, 3), (1000,))))
def test_differential_long_streams(
    stream: MixedStream, data: st.DataObject, shards: int, sizes: tuple[int, ...]
) -> None:
    assert_same(stream, data.draw(options_for(stream.dense)), shards, sizes)


@examples(20)
@given(st.one_of(short_streams(), long_streams), st.data())
def test_state_can_be_restored_anywhere_on_other_shards(stream: MixedStream, data: st.DataObject) -> None:
    options, sizes = data.draw(options_for(stream.dense)), data.draw(cuts())
    steady, session = (session_of(stream, options, data.draw(shard_counts)) for _ in range(2))
    handovers = set(data.draw(st.lists(st.integers(0, len(stream.columns)), max_size=4)))
    for batch in stream.batches(sizes):
        assert session.apply(batch).predictions.tolist() == steady.apply(batch).predictions.tolist()
        if handovers & set(range(batch.start, batch.stop)):
            state, groups = session.state()
            LEARNER.check(session_options(options), stream.features, 2, state, groups)
            session = session_of(stream, options, data.draw(shard_counts))
            session.restore(state, groups)
        assert session.digest() == steady.digest()
    mine, other = session.state(), steady.state()
    assert canonical(mine[0]) == canonical(other[0])
    assert structures(mine[1]) == structures(other[1])


def session_options(options: dict[str, Any]) -> Any:
    return LEARNER.Options(kind="sparse_tree", **options)


@pytest.mark.parametrize("finder", ["updgini", "updent"])
def test_several_shards_roll_back_what_one_of_them_stopped(finder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long windows of a stream that changes its mind: some shard sees a split beaten that another has gone past. A small
    # allowance makes the journal and the pool grow within a window.
    rolled_back, grown = [], []
    roll_back, room = shard_module.roll_back, shard_module.SparseTreeShard._room_for_notes

    def counted_back(*args: Any) -> None:
        rolled_back.append(args[-1] - args[-2])
        roll_back(*args)

    def counted_room(self: Any, entries: int) -> int:
        before = len(self._pool.journal)
        most = room(self, entries)
        grown.append(len(self._pool.journal) > before > 0)
        return most

    monkeypatch.setattr(shard_module, "roll_back", counted_back)
    monkeypatch.setattr(shard_module.SparseTreeShard, "_room_for_notes", counted_room)
    monkeypatch.setattr(shard_module, "_ROOM", 1)
    options = {"finder": finder, "finder_alpha": 0.05, "alpha": 0.0, "beta": 0.02, "feature_groups": 4}
    for seed in range(3):
        assert_same(long_stream(seed, 500), options, 4, [1000])
    assert max(rolled_back) > 1
    assert any(grown)


@pytest.mark.parametrize("shards", [1, 4])
def test_same_when_dead_entries_are_freed_all_the_time(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    freed = []

    def sweep(pool: pool_module.Pool) -> None:
        before = int(pool.reg[pool_module.LIVE])
        pool_module._sweep(pool)
        freed.append(before - int(pool.reg[pool_module.LIVE]))

    monkeypatch.setattr(shard_module, "free_dead", sweep)
    for seed, finder in enumerate(("updgini", "updent")):
        options = {"finder": finder, "finder_alpha": 0.05, "alpha": 0.0, "beta": 0.02, "feature_groups": 4}
        assert_same(long_stream(seed, 500), options, shards, [7])
    assert sum(freed) > 100


@examples(30)
@given(short_streams(), st.data(), shard_counts)
def test_predict_equals_the_twin(stream: MixedStream, data: st.DataObject, shards: int) -> None:
    options = data.draw(options_for(stream.dense))
    session, twin = session_of(stream, options, shards), twin_of(stream, options)
    for given_batch, batch in zip(stream.batches([50]), stream.columns.batches([50]), strict=True):
        session.apply(given_batch)
        twin.process(batch)
    rows = [row for row in stream.columns.rows if row is not None]
    X = np.array(rows).reshape(len(rows), len(stream.columns.categorical))
    dense = np.ascontiguousarray(X[:, : stream.dense])
    coordinator: Any = session.coordinator
    assert coordinator.predict(dense, stream.sparse_of(X)).tolist() == [twin.predict(x) for x in X.tolist()]
