"""FuDyADT with numeric labels in all its ways of working against its slow twin; the theorem after every update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.learners import learners
from raydt.learners.auditing import audit
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from tests.oracles.feasibility import violations
from tests.oracles.fudyadt_numbers import NumberTwin, canonical, number_twin
from tests.strategies import Stream, cuts, long_streams, streams
from tests.volume import examples

pytestmark = pytest.mark.timeout(900)

LEARNER = learners()["fudyadt"]
#: Labels whose range, distance or unit is easy to get wrong.
PALETTES = (
    (0.0, 1.0, 2.0, 4.0),
    (-3.0, 0.1, 0.30000000000000004, 7.25),
    (1e140, -1e140, 0.0, 9.999999999999999e139),
    (5.0, 5.0, 5.0, 5.0),
    (1e-140, 0.0, 1.0000000000000001e-140, -3e-139),
    (1e16, 1e16 + 2, 1e16 + 4, 3.0),
)

plans = st.builds(
    WorkPlan,
    local_work_limit=st.sampled_from((0, 0, 12, 4_000_000)),
    row_cache_bytes=st.sampled_from((0, 200, None)),
    shared_store=st.booleans(),
)
shard_counts = st.sampled_from((1, 2, 3, 5))


def options_of(*, certificate: bool | None = None) -> st.SearchStrategy[dict[str, Any]]:
    """Options that decide the model."""
    limits = {
        "max_depth": st.sampled_from((None, None, None, 0, 1, 3)),
        "min_samples_split": st.sampled_from((2, 2, 3, 5)),
    }
    published = {
        "epsilon": st.sampled_from((0.0, 0.05, 0.5, 2.0)),
        "alpha": st.sampled_from((0.0, 0.0, 0.1)),
        "beta": st.sampled_from((0.0, 0.2)),
    }
    certified = {
        "alpha": st.sampled_from((0.001, 0.01, 0.1, 0.3)),
        "beta": st.sampled_from((0.002, 0.01, 0.05, 0.2)),
    }
    schedules = {False: st.fixed_dictionaries(published | limits), True: st.fixed_dictionaries(certified | limits)}
    return st.one_of(*schedules.values()) if certificate is None else schedules[certificate]


@st.composite
def numbers(draw: st.DrawFn, long: bool = False) -> tuple[Stream, dict[str, Any]]:
    """A stream with numbers for its classes, and the option that declares their range, if it has no warm-up."""
    stream = draw(long_streams(events=250) if long else streams())
    palette = draw(st.sampled_from(PALETTES))
    labels = tuple(float("nan") if y < 0 else palette[int(y)] for y in stream.y)
    ranges = ((0.0, 4.0), (-3.0, 7.25), (1.0, 1.5), (-1e250, 1e250))
    seen = stream.warmup and draw(st.booleans())
    declared = {} if seen else {"label_range": draw(st.sampled_from(ranges))}
    return replace(stream, y=labels, regression=True), declared


def session_of(stream: Stream, options: dict[str, Any], shards: int, plan: WorkPlan) -> InProcessSession:
    chosen = LEARNER.Options(kind="fudyadt", criterion="squared_error", **options)
    return InProcessSession(LEARNER, chosen, stream.features, shards, plan)


def assert_same(
    stream: Stream, options: dict[str, Any], shards: int, sizes: Sequence[int], plan: WorkPlan
) -> tuple[InProcessSession, NumberTwin]:
    """Both take the stream; everything they can be asked is equal after every batch."""
    session, twin = session_of(stream, options, shards, plan), number_twin(stream.categorical, options)
    X = np.array([row for row in stream.rows if row is not None]).reshape(-1, len(stream.categorical))
    for batch in stream.batches(sizes):
        result, expected = session.apply(batch), twin.process(batch)
        where = f"updates {batch.start} to {batch.stop}"
        np.testing.assert_array_equal(result.predictions, expected.predictions, where)
        assert canonical(session.state()[0]) == twin.canonical(), where
        columns = [result.log[name].tolist() for name in ("seq", "rows", "depth", "nodes")] if result.log else [()]
        assert list(zip(*columns, strict=True)) == expected.log, where
    session.finish()
    twin.finish()
    assert canonical(session.state()[0]) == twin.canonical()
    assert session.coordinator.predict(X).tolist() == [twin.predict(x) for x in X.tolist()]
    return session, twin


@examples(120)
@given(numbers(), options_of(), shard_counts, cuts(), plans)
def test_differential_random_streams(
    case: tuple[Stream, dict[str, Any]], options: dict[str, Any], shards: int, sizes: list[int], plan: WorkPlan
) -> None:
    stream, declared = case
    session, twin = assert_same(stream, options | declared, shards, sizes, plan)
    assert_sound(stream, session, twin, options | declared)


@examples(10)
@given(numbers(long=True), options_of(), shard_counts, st.sampled_from(((1,), (90, 3), (1000,))), plans)
def test_differential_long_streams(
    case: tuple[Stream, dict[str, Any]], options: dict[str, Any], shards: int, sizes: tuple[int, ...], plan: WorkPlan
) -> None:
    stream, declared = case
    session, twin = assert_same(stream, options | declared, shards, sizes, plan)
    assert_sound(stream, session, twin, options | declared)


def assert_sound(stream: Stream, session: InProcessSession, twin: NumberTwin, options: dict[str, Any]) -> None:
    """The audit proves what the options promise."""
    chosen = LEARNER.Options(kind="fudyadt", criterion="squared_error", **options)
    state, groups = session.state()
    report = audit(LEARNER, chosen, stream.features, 0, state, twin.history(), groups)
    assert (report.conformance, report.failures) == ("holds", [])
    # Of the numbers for epsilon that are drawn, only 0 is below the bound, and only where alpha and beta are not 0.
    below = options.get("epsilon", 0) == 0 and options["alpha"] > 0 and options["beta"] > 0
    assert report.feasibility == ("proven" if below else "not_promised")


@examples(40)
@given(numbers(), options_of(), st.data())
def test_state_can_be_restored_anywhere_on_other_shards(
    case: tuple[Stream, dict[str, Any]], options: dict[str, Any], data: st.DataObject
) -> None:
    stream, declared = case
    options = options | declared
    twin = number_twin(stream.categorical, options)
    sizes = data.draw(cuts())
    session = session_of(stream, options, data.draw(shard_counts), data.draw(plans))
    handover = data.draw(st.integers(0, len(stream)))
    for batch in stream.batches(sizes):
        result, expected = session.apply(batch), twin.process(batch)
        np.testing.assert_array_equal(result.predictions, expected.predictions)
        if batch.start <= handover < batch.stop:
            state = session.state()
            session = session_of(stream, options, data.draw(shard_counts), data.draw(plans))
            session.restore(*state)
            assert canonical(session.state()[0]) == twin.canonical()
    assert canonical(session.state()[0]) == twin.canonical()


@examples(60)
@given(numbers(), options_of(certificate=True), st.booleans())
def test_every_tree_of_a_stream_is_feasible(
    case: tuple[Stream, dict[str, Any]], options: dict[str, Any], published: bool
) -> None:
    """By brute force in fractions, after every update."""
    stream, declared = case
    schedule = {"schedule": "published"} if published else {}
    twin = number_twin(stream.categorical, options | declared | schedule)
    for batch in stream.batches([1]):
        twin.process(batch)
        if not twin.warmup_left:
            square = twin.top**2
            assert violations(twin, options["alpha"] * square, options["beta"] * square) == []
