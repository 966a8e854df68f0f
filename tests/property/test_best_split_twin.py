"""The sparse best split is its slow twin: the same splits, buckets, predictions and refusals, whoever does the work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, INSERT, QUERY, UNIT, UPDATE, Features, UpdateBatch
from raydt.finders.pool import among_masses, buckets_of
from raydt.learners import learners
from raydt.learners.best_split.options import BestSplitOptions
from raydt.sessions.session import InProcessSession
from tests.oracles.best_split_stream import BestSplitTwin
from tests.strategies import WEIGHTS, cuts
from tests.volume import examples

pytestmark = pytest.mark.timeout(900)

LEARNER = learners()["best_split"]


@st.composite
def changes(draw: st.DrawFn, width: int, wide: bool) -> tuple[list[tuple[int, int, tuple[int, ...], int]], int]:
    """Updates (operation, id, row, label) with few ids and rows, so that some meet; and how many are warm-up."""
    warmup = draw(st.sampled_from((1, 3, 8) if wide else (0, 0, 1, 5)))
    draws = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    length, ids = draw(st.integers(1, 60)), draw(st.integers(2, 25))
    operations = np.array([INSERT, INSERT, INSERT, DELETE, UPDATE, QUERY, DELETE_VALUE])
    informative, balance = draws.random() < 0.7, draws.choice([0.1, 0.5, 0.9])
    updates = []
    for seq in range(length):
        op, key = (INSERT, 1000 + seq) if seq < warmup else (int(draws.choice(operations)), int(draws.integers(ids)))
        y = int(draws.random() < balance)
        ones = draws.integers(0, width, draws.integers(0, 5)).tolist()
        if informative and draws.random() < 0.9:
            ones = [*ones, y]
        if op == DELETE_VALUE and updates and draws.random() < 0.8:
            ones, y = updates[draws.integers(len(updates))][2:]
        updates.append((op, key, tuple(sorted(set(ones))), y))
    return updates, min(warmup, length + 2)


def batches(
    updates: list[tuple[int, int, tuple[int, ...], int]],
    warmup: int,
    width: int,
    sizes: list[int],
    weights: list[int] | None = None,
) -> Any:
    start = turn = 0
    while start < len(updates):
        part = updates[start : start + sizes[turn % len(sizes)]]
        op = np.array([update[0] for update in part], dtype=np.int8)
        rows = [update[2:] for update in part if CARRIES_ROW[update[0]]]
        lengths = np.array([len(row) for row, _ in rows], dtype=np.int64)
        indices = np.array([j for row, _ in rows for j in row], dtype=np.int32)
        carry = [i for i, update in enumerate(part) if CARRIES_ROW[update[0]]]
        weight = None if weights is None else np.array([weights[start + i] for i in carry], dtype=np.uint32)
        yield UpdateBatch(
            start,
            op,
            np.array([update[1] for update in part], dtype=np.int64),
            np.empty((len(rows), 0)),
            np.array([y for _, y in rows], dtype=np.int32),
            2,
            np.full(len(part), -1),
            warmup,
            sparse=SparseRows.of_lengths(lengths, indices, width),
            weight=weight,
        )
        start, turn = start + len(part), turn + 1


options = st.fixed_dictionaries(
    {
        "finder": st.sampled_from(("updgini", "updent", "scan", "auto")),
        "alpha": st.sampled_from((0.01, 0.1, 0.5, 2.0)),
        "query_every": st.sampled_from((1, 1, 2, 7)),
    }
)


@examples(60, deadline=None)
@given(options, st.sampled_from(("gini", "entropy")), st.sampled_from((4, 30, 100_000)), st.data())
def test_equal_to_the_twin(chosen: dict[str, Any], criterion: str, width: int, data: st.DataObject) -> None:
    assert_equal(chosen, criterion, width, data)


@examples(60, deadline=None)
@given(
    options,
    st.sampled_from(("gini", "entropy")),
    st.sampled_from((4, 30, 100_000)),
    st.sampled_from((None, "balanced")),
    st.sampled_from((WEIGHTS, WEIGHTS, (UNIT, 3 * UNIT), (UNIT,))),
    st.data(),
)
def test_weighted_rows(
    chosen: dict[str, Any], criterion: str, width: int, classes: Any, weights: Any, data: st.DataObject
) -> None:
    assert_equal(chosen | {"class_weight": classes}, criterion, width, data, weights)


@examples(30, deadline=None)
@given(options, st.sampled_from(("gini", "entropy")), st.sampled_from((4, 30)), st.data())
def test_whole_weights_equal_repeated_rows(
    chosen: dict[str, Any], criterion: str, width: int, data: st.DataObject
) -> None:
    """That come and go as one, bit for bit: the twin counts copies, and knows no units."""
    assert_equal(chosen, criterion, width, data, (0, UNIT, UNIT, 2 * UNIT, 3 * UNIT), unit=1)


def assert_equal(
    chosen: dict[str, Any],
    criterion: str,
    width: int,
    data: st.DataObject,
    weights: tuple[int, ...] | None = None,
    unit: int = UNIT,
) -> None:
    """Compare the learner and its twin, in whose counts a row is ``unit``, on a stream whose rows have weights."""
    if chosen["finder"] in ("scan", "auto"):
        chosen = chosen | {"criterion": criterion}
    fixed = BestSplitOptions(**chosen)
    updates, warmup = data.draw(changes(width, bool(fixed.warmup)))
    features = Features((), (), data.draw(st.sampled_from((1, 3, 16))), sparse=width)
    unit = 1 if weights is None else unit
    twin, session = BestSplitTwin(fixed, features, unit), session_of(fixed, features, data)
    drawn = None
    if weights is not None:
        draws = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
        drawn = draws.choice(weights, len(updates)).tolist()
        even = int(draws.integers(0, 1 + len(updates) // 2))
        drawn[:even] = [UNIT] * even
    predictions: list[int] = []
    refused: list[int] = []
    log: list[tuple[int, int]] = []
    for batch in batches(updates, warmup, width, data.draw(cuts()), drawn):
        result = session.apply(batch, skip_refused=True)
        twin.process(batch)
        predictions += result.predictions.tolist()
        refused += [batch.start + refusal.position for refusal in result.refused]
        log += zip(result.log["seq"].tolist(), result.log["feature"].tolist(), strict=True)
        if data.draw(st.booleans()):
            state, groups = session.state()
            LEARNER.check(fixed, features, 2, state, groups)
            session = session_of(fixed, features, data)
            session.restore(state, groups)
    twin.finish()
    last = session.finish()
    log += zip(last["seq"].tolist(), last["feature"].tolist(), strict=True) if last else ()
    assert predictions == twin.predictions
    assert refused == twin.refused
    assert log == twin.changes
    state, groups = session.state()
    LEARNER.check(fixed, features, 2, state, groups)
    own = int(state["unit"][0]) if "unit" in state else 1
    feature, *counts = state["split"].tolist()
    assert (feature, *(count * unit // own for count in counts)) == twin.split
    assert state["searched"][0] == twin.searched
    assert state["changes"][0] == len(log)
    found = {
        int(j): (int(group["n1"][i]) * unit // own, int(group["c11"][i]) * unit // own, int(group["bucket"][i]))
        for group in groups.values()
        for i, j in enumerate(group["feature"])
    }
    expected = twin.counters()
    if own != unit and twin.finder == "updent":
        former, wide = (buckets_of("updent", fixed.alpha, masses=masses) for masses in (False, True))
        renumber = lambda of: {j: (*c, int(among_masses(former, wide, np.array(b)))) for j, (*c, b) in of.items()}  # noqa: E731
        found, expected = (found, renumber(expected)) if own > unit else (renumber(found), expected)
    assert found == expected
    assert state["buckets"][0] == twin.filled()
    report = LEARNER.audit(fixed, features, state, twin.history(), groups)
    assert report.ok, report.failures
    assert report.checked["splits"] == 1
    # The same stream in one batch, undisturbed.
    other = InProcessSession(LEARNER, fixed, features, 1)
    (whole,) = batches(updates, warmup, width, [len(updates)], drawn)
    other.apply(whole, skip_refused=True)
    other.finish()
    assert other.digest() == session.digest()
    assert other.statistics()["moves"] == session.statistics()["moves"] == twin.moved()


def session_of(fixed: BestSplitOptions, features: Features, data: st.DataObject) -> InProcessSession:
    return InProcessSession(LEARNER, fixed, features, data.draw(st.sampled_from((1, 2, 3, 5))))
