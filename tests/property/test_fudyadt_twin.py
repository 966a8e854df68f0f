"""FuDyADT in all its ways of working against its slow twin: same predictions, same tree, same counters, always."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from tests.oracles.fudyadt import FudyadtTwin, canonical, twin_with
from tests.strategies import Stream, cuts, fudyadt_options, long_streams, streams
from tests.volume import examples

# Passing takes seconds; a failure is worth the minutes it takes to shrink.
pytestmark = pytest.mark.timeout(900)

LEARNER = learners()["fudyadt"]

plans = st.builds(
    WorkPlan,
    local_work_limit=st.sampled_from((0, 0, 12, 4_000_000)),
    row_cache_bytes=st.sampled_from((0, 200, None)),
    shared_store=st.booleans(),
)
shard_counts = st.sampled_from((1, 2, 3, 5))


def twin_of(stream: Stream, options: dict[str, Any]) -> FudyadtTwin:
    return twin_with(stream.categorical, options)


def session_of(stream: Stream, options: dict[str, Any], shards: int, plan: WorkPlan) -> InProcessSession:
    return InProcessSession(LEARNER, LEARNER.Options(kind="fudyadt", **options), stream.features, shards, plan)


def assert_same(
    stream: Stream, options: dict[str, Any], shards: int, sizes: Sequence[int], plan: WorkPlan, *, skip: bool = False
) -> None:
    """Both take the stream; everything they can be asked is equal after every batch."""
    session, twin = session_of(stream, options, shards, plan), twin_of(stream, options)
    for batch in stream.batches(sizes):
        live, ever = len(twin.live), len(twin.ever)
        result, expected = session.apply(batch, skip_refused=skip), twin.process(batch, skip_refused=skip)
        where = f"updates {batch.start} to {batch.stop}"
        assert result.applied == expected.applied, where
        assert [(r.position, r.reason) for r in result.refused] == expected.refused, where
        assert result.predictions.tolist() == expected.predictions, where
        assert canonical(session.state()[0]) == twin.canonical(), where
        columns = [result.log[name].tolist() for name in ("seq", "rows", "depth", "nodes")] if result.log else [()]
        assert list(zip(*columns, strict=True)) == expected.log, where
        inserts = len(twin.ever) - ever
        assert (result.inserts, result.deletes) == (inserts, live + inserts - len(twin.live)), where
        if result.applied < len(batch):
            break
    session.finish()
    twin.finish()
    assert canonical(session.state()[0]) == twin.canonical()
    assert (session.statistics()["rebuilds"], session.statistics()["rebuilt_rows"]) == (
        twin.rebuilds,
        twin.rebuilt_rows,
    )


@examples(100)
@given(streams(), fudyadt_options(), shard_counts, cuts(), plans)
def test_differential_random_streams(
    stream: Stream, options: dict[str, Any], shards: int, sizes: list[int], plan: WorkPlan
) -> None:
    assert_same(stream, options, shards, sizes, plan)


@examples(60)
@given(streams(refusals=True), fudyadt_options(), shard_counts, cuts(), plans, st.booleans())
def test_differential_with_refused_updates(
    stream: Stream, options: dict[str, Any], shards: int, sizes: list[int], plan: WorkPlan, skip: bool
) -> None:
    assert_same(stream, options, shards, sizes, plan, skip=skip)


@examples(8)
@given(
    long_streams(events=300), fudyadt_options(), shard_counts, st.sampled_from(((1,), (7,), (90, 3), (1000,))), plans
)
def test_differential_long_streams(
    stream: Stream, options: dict[str, Any], shards: int, sizes: tuple[int, ...], plan: WorkPlan
) -> None:
    assert_same(stream, options, shards, sizes, plan)


@examples(30)
@given(streams(), fudyadt_options(), st.data())
def test_state_can_be_restored_anywhere_on_other_shards(
    stream: Stream, options: dict[str, Any], data: st.DataObject
) -> None:
    twin = twin_of(stream, options)
    sizes = data.draw(cuts())
    session = session_of(stream, options, data.draw(shard_counts), data.draw(plans))
    handover = data.draw(st.integers(0, len(stream)))
    for batch in stream.batches(sizes):
        result, expected = session.apply(batch), twin.process(batch)
        assert result.predictions.tolist() == expected.predictions
        if batch.start <= handover < batch.stop:
            state = session.state()
            session = session_of(stream, options, data.draw(shard_counts), data.draw(plans))
            session.restore(*state)
            assert canonical(session.state()[0]) == twin.canonical()
    assert canonical(session.state()[0]) == twin.canonical()


@examples(40)
@given(streams(), fudyadt_options(), shard_counts, plans)
def test_predict_equals_the_twin(stream: Stream, options: dict[str, Any], shards: int, plan: WorkPlan) -> None:
    session, twin = session_of(stream, options | {"smoothing": 0.0}, shards, plan), twin_of(stream, options)
    for batch in stream.batches([50]):
        session.apply(batch)
        twin.process(batch)
    X = np.array([row for row in stream.rows if row is not None]).reshape(-1, len(stream.categorical))
    assert session.coordinator.predict(X).tolist() == [twin.predict(x) for x in X.tolist()]


@examples(60)
@given(streams(), fudyadt_options(), shard_counts, plans, st.sampled_from((0.5, 3.0, 15.0, 1e6)), st.integers(0, 2))
def test_smoothed_shares_equal_the_twin(
    stream: Stream, options: dict[str, Any], shards: int, plan: WorkPlan, smoothing: float, unseen: int
) -> None:
    """Of the live tree and of its model: to the last bit in floats, and close to the fractions that they stand for."""
    settings = LEARNER.Options(kind="fudyadt", smoothing=smoothing, **options)
    session = InProcessSession(LEARNER, settings, stream.features, shards, plan)
    twin = twin_of(stream, options)
    for batch in stream.batches([50]):
        session.apply(batch)
        twin.process(batch)
    X = np.array([row for row in stream.rows if row is not None]).reshape(-1, len(stream.categorical))
    classes = max(2, twin.n_classes) + unseen
    live = session.coordinator.predict_proba(X, classes)
    predictor = LEARNER.predictor(settings, stream.features, session.model())
    assert live.tolist() == [twin.shares(x, classes, smoothing) for x in X.tolist()]
    assert live.tolist() == predictor.predict_proba(X, classes).tolist()
    assert live.argmax(axis=1).tolist() == predictor.predict(X).tolist() == session.coordinator.predict(X).tolist()
    for shares, x in zip(live, X.tolist(), strict=True):
        exact = twin.shares(x, classes, Fraction(smoothing))
        assert sum(exact) == 1
        assert shares == pytest.approx([float(share) for share in exact], rel=1e-12, abs=1e-300)
