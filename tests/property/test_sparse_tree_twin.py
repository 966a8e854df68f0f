"""The sparse fully dynamic tree on any shards and batches against its slow twin: same predictions, same tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydt.features import Features
from raydt.learners import learners
from raydt.learners.fudyadt.sparse import shard as shard_module
from raydt.session import InProcessSession
from raydt.sparse import SparseRows
from raydt.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, UpdateBatch
from tests.oracles.fudyadt import canonical
from tests.oracles.sparse_tree import SparseTreeTwin
from tests.strategies import Stream, cuts, script

# Passing takes seconds; a failure is worth the minutes it takes to shrink.
pytestmark = pytest.mark.timeout(900)

LEARNER = learners()["fudyadt"]
shard_counts = st.sampled_from((1, 2, 3, 7))


@dataclass(frozen=True)
class MixedStream:
    """A stream whose columns from ``dense`` on are handed over as sparse features."""

    columns: Stream
    dense: int

    @property
    def features(self) -> Features:
        kinds = self.columns.categorical[: self.dense]
        names = tuple(f"x{j}" for j in range(self.dense))
        return Features(names, kinds, 4, sparse=len(self.columns.categorical) - self.dense)

    def sparse_of(self, X: Any) -> SparseRows:
        rows, indices = np.nonzero(X[:, self.dense :])
        lengths = np.bincount(rows, minlength=len(X))
        return SparseRows.of_lengths(lengths, indices.astype(np.int32), X.shape[1] - self.dense)

    def batches(self, sizes: Sequence[int]) -> Iterator[UpdateBatch]:
        for batch in self.columns.batches(sizes):
            X = np.ascontiguousarray(batch.X[:, : self.dense])
            yield replace(batch, X=X, sparse=self.sparse_of(batch.X))


@st.composite
def short_streams(draw: st.DrawFn, refusals: bool = False) -> MixedStream:
    """Few features and rows that repeat, so that ties, equal rows and pure sides abound."""
    dense = tuple(draw(st.lists(st.booleans(), max_size=2))) if draw(st.booleans()) else ()
    cell = st.integers(0, 3).map(float)
    bit = st.sampled_from(draw(st.sampled_from(((0.0, 1.0), (0.0, 0.0, 0.0, 1.0)))))
    cells = st.tuples(*[cell] * len(dense), *[bit] * draw(st.integers(1, 8)))
    grow = draw(st.sampled_from((1, 4, 12)))
    operation = st.sampled_from((INSERT,) * grow + (INSERT, DELETE, DELETE, DELETE_VALUE, UPDATE, QUERY))
    size = draw(st.sampled_from((1, 20, 60)))
    event = st.tuples(operation, st.integers(0, 255), cells, st.integers(0, 1))
    events = draw(st.lists(event, min_size=size, max_size=2 * size))
    lead = draw(st.integers(1, 20)) if draw(st.booleans()) else 0
    categorical = (*dense, *[False] * (len(events[0][2]) - len(dense)))
    return MixedStream(replace(script(events, categorical, lead, refusals), warmup=lead), len(dense))


def long_stream(seed: int, events: int = 320, dense: int = 0) -> MixedStream:
    """The label follows two features, with noise, and two others from the middle on: trees of some depth."""
    rng = np.random.default_rng(seed)
    often = rng.choice((0.05, 0.3, 0.5, 0.9), 14)
    mix = np.array((INSERT, DELETE, DELETE_VALUE, UPDATE, QUERY))
    early, late = (0.85, 0.05, 0.02, 0.05, 0.03), (0.35, 0.35, 0.1, 0.15, 0.05)
    drawn = []
    for i in range(events):
        ones = (rng.random(14) < often).astype(float)
        a, b = (0, 1) if i < events // 2 else (2, 3)
        label = int(ones[a]) ^ int(ones[b]) if rng.random() < 0.9 else int(rng.integers(2))
        numbers = np.round(rng.random(dense) + 0.3 * label, 1)
        op = int(rng.choice(mix, p=early if i < events // 2 else late))
        drawn.append((op, int(rng.integers(256)), (*numbers.tolist(), *ones.tolist()), label))
    lead = int(rng.choice((0, 0, 1, events // 3)))
    return MixedStream(replace(script(drawn, (False,) * (14 + dense), lead, False), warmup=lead), dense)


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


def twin_of(stream: MixedStream, options: dict[str, Any]) -> SparseTreeTwin:
    decisive = {name: value for name, value in options.items() if name != "feature_groups"}
    features = stream.features
    groups = features.groups_of(np.arange(features.sparse)).tolist()
    return SparseTreeTwin(features.categorical, features.sparse, groups.__getitem__, **decisive)


def session_of(stream: MixedStream, options: dict[str, Any], shards: int) -> InProcessSession:
    return InProcessSession(LEARNER, LEARNER.Options(kind="fudyadt", **options), stream.features, shards)


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


@settings(max_examples=100)
@given(short_streams(), st.data(), shard_counts, cuts())
def test_differential_random_streams(stream: MixedStream, data: st.DataObject, shards: int, sizes: list[int]) -> None:
    assert_same(stream, data.draw(options_for(stream.dense)), shards, sizes)


@settings(max_examples=40)
@given(short_streams(refusals=True), st.data(), shard_counts, cuts(), st.booleans())
def test_differential_with_refused_updates(
    stream: MixedStream, data: st.DataObject, shards: int, sizes: list[int], skip: bool
) -> None:
    assert_same(stream, data.draw(options_for(stream.dense)), shards, sizes, skip=skip)


@settings(max_examples=12)
@given(long_streams, st.data(), shard_counts, st.sampled_from(((1,), (7,), (90, 3), (1000,))))
def test_differential_long_streams(
    stream: MixedStream, data: st.DataObject, shards: int, sizes: tuple[int, ...]
) -> None:
    assert_same(stream, data.draw(options_for(stream.dense)), shards, sizes)


@settings(max_examples=20)
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
    return LEARNER.Options(kind="fudyadt", **options)


@pytest.mark.parametrize("finder", ["updgini", "updent"])
def test_several_shards_take_back_what_one_of_them_stopped(finder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long windows of a stream that changes its mind: some shard sees a split beaten that another has gone past. A small
    # allowance makes the journal and the pool grow within a window.
    taken_back, grown = [], []
    take_back, room = shard_module.take_back, shard_module.SparseTreeShard._room_for_notes

    def counted_back(*args: Any) -> None:
        taken_back.append(args[-1] - args[-2])
        take_back(*args)

    def counted_room(self: Any, entries: int) -> int:
        before = len(self._pool.journal)
        most = room(self, entries)
        grown.append(len(self._pool.journal) > before > 0)
        return most

    monkeypatch.setattr(shard_module, "take_back", counted_back)
    monkeypatch.setattr(shard_module.SparseTreeShard, "_room_for_notes", counted_room)
    monkeypatch.setattr(shard_module, "_ROOM", 1)
    options = {"finder": finder, "finder_alpha": 0.05, "alpha": 0.0, "beta": 0.02, "feature_groups": 4}
    for seed in range(3):
        assert_same(long_stream(seed, 500), options, 4, [1000])
    assert max(taken_back) > 1
    assert any(grown)


@settings(max_examples=30)
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
