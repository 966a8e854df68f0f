"""FuDyADT in all its ways of working against its slow twin: same predictions, same tree, same counters, always.

With classes and with numeric labels; of these the theorem, too, after every update.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.examples.updates import UNIT
from raydt.learners import learners
from raydt.learners.base import WorkPlan, audit
from raydt.sessions.session import InProcessSession
from tests.crews import assert_same
from tests.oracles import fudyadt, fudyadt_numbers
from tests.oracles.digests import violations
from tests.strategies import Stream, cuts, fudyadt_options, long_streams, streams, weighted
from tests.volume import examples

# Passing takes seconds; a failure is worth the minutes it takes to shrink.
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
long_cuts = st.sampled_from(((1,), (7,), (90, 3), (1000,)))


@st.composite
def numbers(draw: st.DrawFn, long: bool = False, missing: bool = False) -> tuple[Stream, dict[str, Any]]:
    """A stream with numbers for its classes, and maybe the option that declares their range."""
    stream = draw(long_streams(events=250, missing=missing) if long else streams(missing=missing))
    palette = draw(st.sampled_from(PALETTES))
    labels = tuple(float("nan") if y < 0 else palette[int(y)] for y in stream.y)
    ranges = ((0.0, 4.0), (-3.0, 7.25), (1.0, 1.5), (-1e250, 1e250))
    declared = {} if draw(st.booleans()) else {"label_range": draw(st.sampled_from(ranges))}
    return replace(stream, y=labels, regression=True), declared


def session_of(stream: Stream, options: dict[str, Any], data: st.DataObject) -> InProcessSession:
    """A session on so many shards, with such a plan, as are drawn."""
    criterion = {"criterion": "squared_error"} if stream.regression else {}
    settings = LEARNER.Options(kind="fudyadt", **criterion, **options)
    return InProcessSession(LEARNER, settings, stream.features, data.draw(shard_counts), data.draw(plans))


def rows_of(stream: Stream) -> np.ndarray:
    return np.array([row for row in stream.rows if row is not None]).reshape(-1, len(stream.categorical))


def compare(
    stream: Stream, options: dict[str, Any], sizes: Sequence[int], data: st.DataObject, *, skip: bool = False
) -> None:
    """Compare on any shards and plans, restored anywhere; of numbers the audit proves what the options promise."""
    oracle, make = (fudyadt, fudyadt.twin_with)
    if stream.regression:
        oracle, make = fudyadt_numbers, fudyadt_numbers.number_twin
    twin = make(stream.categorical, options)
    session = assert_same(
        ((batch, batch) for batch in stream.batches(sizes)),
        lambda: session_of(stream, options, data),
        twin,
        lambda state, groups: oracle.canonical(state),
        twin.canonical,
        handovers=data.draw(st.lists(st.integers(0, len(stream)), max_size=3)),
        skip=skip,
    )
    X = rows_of(stream)
    assert session.coordinator.predict(X).tolist() == [twin.predict(x) for x in X.tolist()]
    criterion = {"criterion": "squared_error"} if stream.regression else {}
    settings = LEARNER.Options(kind="fudyadt", **criterion, **options)
    state, groups = session.state()
    predictor = LEARNER.predictor(settings, stream.features, session.model())
    assert predictor.predict(X).tolist() == [twin.predict(x) for x in X.tolist()]
    classes = 0 if stream.regression else twin.n_classes
    report = audit(LEARNER, settings, stream.features, classes, state, twin.history(), groups)
    assert (report.conformance, report.failures) == ("holds", [])
    if not stream.regression:
        return
    # Of the numbers for epsilon that are drawn, only 0 is below the bound, and only where alpha and beta are not 0.
    below = options.get("epsilon", 0) == 0 and options["alpha"] > 0 and options["beta"] > 0
    assert report.feasibility == ("proven" if below else "not_promised")


def without_range(cases: st.SearchStrategy[Stream]) -> st.SearchStrategy[Any]:
    """Streams of classes, as :func:`numbers` gives those of numbers."""
    return cases.map(lambda stream: (stream, {}))


def weighed(cases: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The same with weights."""
    return cases.flatmap(lambda case: weighted(case[0]).map(lambda stream: (stream, case[1])))


OF_CLASSES, OF_NUMBERS = fudyadt_options(), fudyadt_options(numbers=True)
CERTIFIED, NUMBERS_CERTIFIED = fudyadt_options(certificate=True), fudyadt_options(certificate=True, numbers=True)
#: Streams, each with what its options declare, and the other options.
SHORT = {
    "classes": (without_range(streams()), OF_CLASSES),
    "missing values": (without_range(streams(missing=True)), OF_CLASSES),
    "weights": (weighed(without_range(streams(missing=True))), OF_CLASSES | CERTIFIED),
    "numbers": (numbers(), OF_NUMBERS),
    "numbers, missing values": (numbers(missing=True), OF_NUMBERS),
    "numbers, weights": (weighed(numbers(missing=True)), OF_NUMBERS | NUMBERS_CERTIFIED),
}
LONG = {
    "classes": (without_range(long_streams(events=300)), OF_CLASSES),
    "missing values": (without_range(long_streams(events=300, missing=True)), OF_CLASSES),
    "weights": (weighed(without_range(long_streams(events=300, missing=True))), OF_CLASSES),
    "numbers": (numbers(long=True), OF_NUMBERS),
    "numbers, weights": (weighed(numbers(long=True, missing=True)), OF_NUMBERS),
}


@pytest.mark.parametrize(("cases", "options"), SHORT.values(), ids=SHORT)
@examples(110)
@given(sizes=cuts(), data=st.data())
def test_differential_random_streams(cases: Any, options: Any, sizes: list[int], data: st.DataObject) -> None:
    stream, declared = data.draw(cases)
    compare(stream, data.draw(options) | declared, sizes, data)


@pytest.mark.parametrize(("cases", "options"), LONG.values(), ids=LONG)
@examples(9, least=1)
@given(sizes=long_cuts, data=st.data())
def test_differential_long_streams(cases: Any, options: Any, sizes: tuple[int, ...], data: st.DataObject) -> None:
    stream, declared = data.draw(cases)
    compare(stream, data.draw(options) | declared, sizes, data)


@examples(60)
@given(streams(refusals=True), fudyadt_options(), cuts(), st.data(), st.booleans())
def test_differential_with_refused_updates(
    stream: Stream, options: dict[str, Any], sizes: list[int], data: st.DataObject, skip: bool
) -> None:
    compare(stream, options, sizes, data, skip=skip)


#: Whole weights, and none.
WHOLE = [UNIT * w for w in (0, 1, 1, 2, 3, 7)]


def compare_with_copies(
    stream: Stream, options: dict[str, Any], sizes: Sequence[int], data: st.DataObject, twin: fudyadt.FudyadtTwin
) -> None:
    """Compare with rows whose copies come and go in one step: tree, counters, certificates, predictions, all bits."""
    session, canonical = session_of(stream, options, data), fudyadt.canonical
    if stream.regression:
        canonical = fudyadt_numbers.canonical
    for batch in stream.batches(sizes):
        result, known = session.apply(batch), twin.process(batch)
        np.testing.assert_array_equal(result.predictions, known.predictions)
        expected = canonical({**twin.state(), "leaf": np.zeros(len(twin.live))})
        state = session.state()[0]
        unit = int(state["unit"][0]) if "unit" in state else 1
        in_rows = {name: state[name] // unit for name in ("s", "c", "gone", "counts") if name in state}
        if stream.regression and unit > 1:
            sums, whole, rest = state["sums"].T
            in_rows["sums"] = np.stack([sums // unit, whole], axis=1)
            assert not rest.any()
        assert canonical({**state, **in_rows, "leaf": np.zeros(len(twin.live))}) == expected


@examples(60)
@given(
    streams(missing=True).flatmap(lambda stream: weighted(stream, WHOLE)),
    OF_CLASSES | CERTIFIED,
    cuts(),
    st.data(),
)
def test_whole_weights_equal_repeated_rows(
    stream: Stream, options: dict[str, Any], sizes: list[int], data: st.DataObject
) -> None:
    twin = fudyadt.CopiesTwin(stream.categorical, **fudyadt.arguments(options, fudyadt.DEFAULTS))
    compare_with_copies(stream, options, sizes, data, twin)


@examples(60)
@given(
    numbers(missing=True),
    OF_NUMBERS | NUMBERS_CERTIFIED,
    cuts(),
    st.data(),
)
def test_whole_weights_of_numbers_equal_repeated_rows(
    case: tuple[Stream, dict[str, Any]], options: dict[str, Any], sizes: list[int], data: st.DataObject
) -> None:
    stream, options = data.draw(weighted(case[0], WHOLE)), options | case[1]
    twin = fudyadt_numbers.number_twin(stream.categorical, options, fudyadt_numbers.CopiesOfNumbersTwin)
    compare_with_copies(stream, options, sizes, data, twin)


@examples(60)
@given(
    st.booleans().flatmap(lambda lacks: numbers(missing=lacks)),
    fudyadt_options(certificate=True, numbers=True),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_every_tree_of_a_stream_of_numbers_is_feasible(
    case: tuple[Stream, dict[str, Any]], options: dict[str, Any], published: bool, weighs: bool, data: st.DataObject
) -> None:
    """By brute force in fractions, after every update."""
    stream, declared = case
    stream = data.draw(weighted(stream)) if weighs else stream
    schedule = {"schedule": "published"} if published else {}
    twin = fudyadt_numbers.number_twin(stream.categorical, options | declared | schedule)
    for batch in stream.batches([1]):
        twin.process(batch)
        if not twin.warmup_left:
            square = twin.top**2
            assert violations(twin, options["alpha"] * square, options["beta"] * square) == []


@examples(60)
@given(
    long_streams(events=60, missing=True),
    fudyadt_options(),
    st.data(),
    st.sampled_from((0.5, 3.0, 15.0, 1e6)),
    st.integers(0, 2),
)
def test_smoothed_shares_equal_the_twin(
    stream: Stream, options: dict[str, Any], data: st.DataObject, smoothing: float, unseen: int
) -> None:
    """Of the live tree and of its model: to the last bit in floats, and close to the fractions that they stand for."""
    options = options | {"smoothing": smoothing}
    session, twin = session_of(stream, options, data), fudyadt.twin_with(stream.categorical, options)
    for batch in stream.batches([50]):
        session.apply(batch)
        twin.process(batch)
    X = rows_of(stream)
    classes = max(2, twin.n_classes) + unseen
    live = session.coordinator.predict_proba(X, classes)
    settings = LEARNER.Options(kind="fudyadt", **options)
    predictor = LEARNER.predictor(settings, stream.features, session.model())
    smoothing *= twin.chosen()
    assert live.tolist() == [twin.shares(x, classes, smoothing) for x in X.tolist()]
    assert live.tolist() == predictor.predict_proba(X, classes).tolist()
    assert live.argmax(axis=1).tolist() == predictor.predict(X).tolist() == session.coordinator.predict(X).tolist()
    for shares, x in zip(live, X.tolist(), strict=True):
        exact = twin.shares(x, classes, smoothing if math.isinf(smoothing) else Fraction(smoothing))
        assert sum(exact) == pytest.approx(1) if math.isinf(smoothing) else sum(exact) == 1
        assert shares == pytest.approx([float(share) for share in exact], rel=1e-12, abs=1e-300)
