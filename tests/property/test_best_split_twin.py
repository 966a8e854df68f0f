"""The sparse learners equal their slow twins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    INSERT,
    QUERY,
    UNIT,
    UPDATE,
    Features,
    UpdateBatch,
    history_of_live,
)
from raydt.finders import pool as pool_module
from raydt.finders.pool import among_masses, buckets_of
from raydt.learners import learners
from raydt.learners.best_split.options import BestSplitOptions
from raydt.learners.sparse_tree import shard as shard_module
from raydt.sessions.session import InProcessSession
from tests import volume
from tests.crews import assert_same
from tests.oracles.fudyadt import canonical
from tests.oracles.sparse_splits import SparseTreeTwin
from tests.oracles.streams import BestSplitTwin
from tests.refusals import findings
from tests.sparse_tree_streams import LEARNER, MixedStream, long_stream, session_of, short_streams, twin_of
from tests.strategies import WEIGHTS, cuts
from tests.volume import examples

# -- best split twin -------------------------------------------------------------------------------------------------
# The sparse best split is its slow twin: the same splits, buckets, predictions and refusals, whoever does the work.

pytestmark = pytest.mark.timeout(900)

LEARNER_TWIN = learners()["best_split"]


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
    twin, session = BestSplitTwin(fixed, features, unit), session_of_twin(fixed, features, data)
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
            LEARNER_TWIN.check(fixed, features, 2, state, groups)
            session = session_of_twin(fixed, features, data)
            session.restore(state, groups)
    twin.finish()
    last = session.finish()
    log += zip(last["seq"].tolist(), last["feature"].tolist(), strict=True) if last else ()
    assert predictions == twin.predictions
    assert refused == twin.refused
    assert log == twin.changes
    state, groups = session.state()
    LEARNER_TWIN.check(fixed, features, 2, state, groups)
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
    report = LEARNER_TWIN.audit(fixed, features, state, twin.history(), groups)
    assert report.ok, report.failures
    assert report.checked["splits"] == 1
    # The same stream in one batch, undisturbed.
    other = InProcessSession(LEARNER_TWIN, fixed, features, 1)
    (whole,) = batches(updates, warmup, width, [len(updates)], drawn)
    other.apply(whole, skip_refused=True)
    other.finish()
    assert other.digest() == session.digest()
    assert other.statistics()["moves"] == session.statistics()["moves"] == twin.moved()


def session_of_twin(fixed: BestSplitOptions, features: Features, data: st.DataObject) -> InProcessSession:
    return InProcessSession(LEARNER_TWIN, fixed, features, data.draw(st.sampled_from((1, 2, 3, 5))))


# -- sparse tree twin ------------------------------------------------------------------------------------------------
# The sparse fully dynamic tree on any shards and batches against its slow twin: same predictions, same tree.
#
# At the end the audit proves the promise by brute force.

shard_counts = st.sampled_from((1, 2, 3, 7))


long_streams = st.builds(
    long_stream, st.integers(0, 2**32 - 1), dense=st.sampled_from((0, 0, 2)), missing=st.booleans()
)


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


def compare(
    stream: MixedStream, options: dict[str, Any], sizes: Sequence[int], data: st.DataObject, *, skip: bool = False
) -> None:
    """Compare on any shards, restored anywhere; the audit proves what the options promise."""
    handovers = data.draw(st.lists(st.integers(0, len(stream.columns)), max_size=3))
    session, twin = same(stream, options, lambda: data.draw(shard_counts), sizes, handovers=handovers, skip=skip)
    rows = [row for row in stream.columns.rows if row is not None]
    X = np.array(rows).reshape(len(rows), len(stream.columns.categorical))
    dense = np.ascontiguousarray(X[:, : stream.dense])
    assert session.coordinator.predict(dense, stream.sparse_of(X)).tolist() == [twin.predict(x) for x in X.tolist()]
    report = audited(stream, options, session, twin)
    assert (report.conformance, report.failures) == ("holds", [])
    assert report.feasibility == "proven" or (stream.dense and report.feasibility == "not_promised")
    assert report.checked["nodes"] == report.checked["counters"]


def same(
    stream: MixedStream, options: dict[str, Any], shards: Callable[[], int], sizes: Sequence[int], **given: Any
) -> tuple[InProcessSession, SparseTreeTwin]:
    settings, twin = LEARNER.Options(kind="sparse_tree", **options), twin_of(stream, options)

    weighted = stream.columns.weight is not None

    def shown(state: Any, groups: Any) -> Any:
        LEARNER.check(settings, stream.features, 2, state, groups)
        if not weighted or "unit" in state:
            return canonical(state), structures(groups)
        former, wide = (buckets_of(settings.finder, settings.finder_alpha, masses=masses) for masses in (False, True))
        in_units = {g: group | {name: group[name] * UNIT for name in ("n1", "c11")} for g, group in groups.items()}
        for group in in_units.values():
            group["bucket"] = among_masses(former, wide, group["bucket"])
        return canonical(state), structures(in_units)

    session = assert_same(
        zip(stream.batches(sizes), stream.columns.batches(sizes), strict=True),
        lambda: session_of(stream, options, shards()),
        twin,
        shown,
        lambda: (twin.canonical(), structures_of(twin)),
        **given,
    )
    return session, twin


def audited(stream: MixedStream, options: dict[str, Any], session: InProcessSession, twin: SparseTreeTwin) -> Any:
    """The report on a session's state, by the twin's history."""
    (state, groups), history = session.state(), twin.history()
    X = np.ascontiguousarray(history.X[:, : stream.dense])
    history = replace(history, X=X, sparse=stream.sparse_of(history.X))
    settings = LEARNER.Options(kind="sparse_tree", **options)
    return LEARNER.audit(settings, stream.features, state, history, groups)


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


@examples(120)
@given(short_streams(), st.data(), cuts())
def test_differential_random_streams(stream: MixedStream, data: st.DataObject, sizes: list[int]) -> None:
    compare(stream, data.draw(options_for(stream.dense)), sizes, data)


@examples(60)
@given(short_streams(), st.data(), cuts(), st.sampled_from((WEIGHTS, (0, 65536, 131072), (65536,))))
def test_differential_with_weights(stream: MixedStream, data: st.DataObject, sizes: list[int], weights: Any) -> None:
    options, size = data.draw(options_for(stream.dense)), len(stream.columns)
    drawn = data.draw(st.lists(st.sampled_from(weights), min_size=size, max_size=size))
    compare(replace(stream, columns=replace(stream.columns, weight=tuple(drawn))), options, sizes, data)


@examples(40)
@given(short_streams(refusals=True), st.data(), cuts(), st.booleans())
def test_differential_with_refused_updates(
    stream: MixedStream, data: st.DataObject, sizes: list[int], skip: bool
) -> None:
    compare(stream, data.draw(options_for(stream.dense)), sizes, data, skip=skip)


@examples(20, least=1)
@given(long_streams, st.data(), st.sampled_from(((1,), (7,), (90, 3), (1000,))))
def test_differential_long_streams(stream: MixedStream, data: st.DataObject, sizes: tuple[int, ...]) -> None:
    compare(stream, data.draw(options_for(stream.dense)), sizes, data)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("finder", "dense", "missing"),
    [
        ("updgini", 0, False),
        pytest.param("updent", 0, False, marks=pytest.mark.nightly),
        pytest.param("updgini", 2, False, marks=pytest.mark.nightly),
        ("updgini", 2, True),
    ],
)
def test_the_audit_can_fail(finder: str, dense: int, missing: bool) -> None:
    """On a large tree: what these options promise is proven, and what others promise is refuted."""
    stream = long_stream(5, 300, dense, missing)
    options: dict[str, Any] = {"finder_alpha": 0.1, "alpha": 0.0, "beta": 0.03, "feature_groups": 4, "finder": finder}
    options |= {"epsilon": 0.004, "alpha": 0.1} if dense else {}
    session, twin = same(stream, options, lambda: 2, [40])
    report = audited(stream, options, session, twin)
    state, groups = session.state()
    assert (report.conformance, report.feasibility, report.failures) == ("holds", "proven", [])
    assert report.checked["entries"] == sum(len(group["node"]) for group in groups.values()) > 100
    assert report.checked["nodes"] > 5
    assert report.worst["gap"] <= 0.03
    settings = LEARNER.Options(kind="sparse_tree", **options)
    of_live = LEARNER.audit(settings, stream.features, state, history_of_live(state, groups, stream.features), groups)
    assert of_live.ok
    assert of_live.checked["counters"] == 0
    assert of_live.worst == report.worst
    report = audited(stream, {**options, "beta": 1e-9, "finder_alpha": 0.01}, session, twin)
    if finder == "updgini" and not dense:
        assert report.feasibility == "violated"
        assert "audits.score_gap" in findings(report)


@pytest.mark.share
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
    for seed in volume.spread(range(3), 1):
        same(long_stream(seed, 500), options, lambda: 4, [1000])
    assert max(rolled_back) > 1
    assert any(grown)


@pytest.mark.parametrize(
    ("shards", "finder"),
    [
        (1, "updgini"),
        (4, "updent"),
        pytest.param(1, "updent", marks=pytest.mark.nightly),
        pytest.param(4, "updgini", marks=pytest.mark.nightly),
    ],
)
def test_same_when_dead_entries_are_freed_all_the_time(
    shards: int, finder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed = []

    def sweep(pool: pool_module.Pool) -> None:
        before = int(pool.reg[pool_module.LIVE])
        pool_module._sweep(pool)
        freed.append(before - int(pool.reg[pool_module.LIVE]))

    monkeypatch.setattr(shard_module, "free_dead", sweep)
    options = {"finder": finder, "finder_alpha": 0.05, "alpha": 0.0, "beta": 0.02, "feature_groups": 4}
    same(long_stream(int(finder == "updent"), 500), options, lambda: shards, [7])
    assert sum(freed) > 20
