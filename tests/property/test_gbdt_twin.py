"""The in-place online GBDT in all its ways of working against its slow twin: same predictions, same model, always."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raydt.arrays.blocks import SparseRows
from raydt.audits.bins import FeatureBins
from raydt.examples.updates import DELETE, INSERT
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.gbdt import ensemble, row_shard
from raydt.learners.gbdt.audit import audit
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.recompute import RawRows, RecordedGBDTTree
from raydt.learners.gbdt.row_shard import RowShard
from raydt.sessions.session import InProcessSession
from tests.crews import NUMBERS, crew
from tests.oracles import online_gbdt
from tests.oracles.audited_gbdt import SlowRawRows
from tests.oracles.digests import gbdt_digest
from tests.oracles.online_gbdt_stream import OnlineGBDTTwin, canonical
from tests.strategies import Stream, cuts, gbdt_options, gbdt_streams
from tests.volume import examples

# Passing takes seconds; a failure is worth the minutes it takes to shrink.
pytestmark = pytest.mark.timeout(900)

LEARNER = learners()["gbdt"]

plans = st.builds(
    WorkPlan,
    local_work_limit=st.sampled_from((0, 0, 60, 4_000_000)),
    row_cache_bytes=st.sampled_from((0, 200, None)),
    shared_store=st.booleans(),
)
shard_counts = st.sampled_from((1, 2, 3, 5))
#: Threads, and a seed with which they are simulated (``tests.crews``).
crews = st.tuples(st.sampled_from(NUMBERS), st.none() | st.integers(0, 9))
Crew = tuple[int, int | None]


@contextmanager
def threads_of(threads: Crew) -> Iterator[None]:
    """So many threads, however small the model."""
    with crew(*threads):
        yield


@pytest.fixture(autouse=True, scope="module")
def _some_batches_are_small_and_some_ledgers_large() -> Iterator[None]:
    """Batches of a third of the rows or more are large ones: with a two-hundredth, as else, all would be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensemble, "LARGE_LEDGER", 150)
        for module in (row_shard, online_gbdt):
            patch.setattr(module, "LARGE", 3)
        yield


def session_of(stream: Stream, options: dict[str, Any], shards: int, plan: WorkPlan) -> InProcessSession:
    return InProcessSession(LEARNER, GBDTOptions(**options), stream.features, shards, plan)


def twin_of(stream: Stream, options: dict[str, Any]) -> OnlineGBDTTwin:
    return OnlineGBDTTwin(list(stream.categorical), GBDTOptions(**options))


def plain(predictions: Any, regression: bool) -> list[float]:
    """Predictions with -1 for none."""
    values = np.asarray(predictions, np.float64)
    none = np.isnan(values)
    assert regression or values.dtype.kind == "f"
    return np.where(none, -1.0, values).tolist()


def assert_same_state(session: InProcessSession, twin: OnlineGBDTTwin, where: str) -> None:
    fast, slow = canonical(session.state()[0]), canonical(twin.state())
    for name, expected in slow.items():
        assert fast[name] == expected, f"{where}: {name}"
    state = session.state()[0]
    if "weight" not in state and state.get("classes", [0])[0] > 0:
        assert session.digest() == gbdt_digest(state), where


def assert_same(stream: Stream, options: dict[str, Any], shards: int, sizes: Sequence[int], plan: WorkPlan) -> None:
    """Both take the stream; everything they can be asked is equal after every batch."""
    session, twin = session_of(stream, options, shards, plan), twin_of(stream, options)
    for batch in stream.batches(sizes):
        done = len(twin.log)
        result, (applied, predictions, refused) = session.apply(batch), twin.process(batch)
        where = f"updates {batch.start} to {batch.stop}"
        assert result.applied == applied, where
        assert [(r.position, r.reason) for r in result.refused] == refused, where
        assert plain(result.predictions, stream.regression) == plain(predictions, stream.regression), where
        assert_same_state(session, twin, where)
        assert_same_work(result.log, twin.log[done:], where)
    session.finish()
    twin.finish()
    assert_same_state(session, twin, "the end")
    assert_same_scores(session, twin, stream)
    state = session.state()[0]
    report = audit(GBDTOptions(**options), stream.features, state, twin.history())
    assert report.failures == []


def assert_same_work(log: dict[str, Any], expected: Sequence[Any], where: str) -> None:
    """The log has an entry for each D', and says what it touched."""
    assert len(next(iter(log.values()), ())) == len(expected), where
    for i, work in enumerate(expected):
        said = {
            name: int(log[name][i])
            for name in ("deletes", "inserts", "trees_retrained", "rows", "refreshed", "trained")
        }
        known = {"deletes": work.deletes, "inserts": work.inserts, "trees_retrained": len(work.retrained)}
        assert said == {**known, "rows": work.rows, "refreshed": work.refreshed, "trained": work.trained}, where


def assert_same_scores(session: InProcessSession, twin: OnlineGBDTTwin, stream: Stream) -> None:
    """Predictions of the model for every row of the stream."""
    X = np.array([row for row in stream.rows if row is not None], np.float64).reshape(-1, len(stream.categorical))
    session.model()  # fetches what predictions need
    assert session.coordinator.predict(X).tolist() == [twin.model.predict(x) for x in X.tolist()]


@examples(40)
@given(gbdt_streams(), gbdt_options("auto", "multiclass"), shard_counts, cuts(), plans, crews)
def test_classes(
    stream: Stream, options: dict[str, Any], shards: int, sizes: list[int], plan: WorkPlan, threads: Crew
) -> None:
    with threads_of(threads):
        assert_same(stream, options, shards, sizes, plan)


@examples(25)
@given(gbdt_streams(classes=2), gbdt_options("auto", "binary"), shard_counts, cuts(), plans, crews)
def test_two_classes(
    stream: Stream, options: dict[str, Any], shards: int, sizes: list[int], plan: WorkPlan, threads: Crew
) -> None:
    with threads_of(threads):
        assert_same(stream, options, shards, sizes, plan)


@examples(25)
@given(gbdt_streams(regression=True), gbdt_options("squared_error"), shard_counts, cuts(), plans, crews)
def test_targets(
    stream: Stream, options: dict[str, Any], shards: int, sizes: list[int], plan: WorkPlan, threads: Crew
) -> None:
    spread = [y for y in stream.y[: stream.warmup] if not math.isnan(y)]
    widest = max(abs(y - math.fsum(spread) / len(spread)) for y in spread)
    late = [abs(y - math.fsum(spread) / len(spread)) for y in stream.y if not math.isnan(y)]
    assume(max(late) <= 16 * widest)  # any other target is refused
    with threads_of(threads):
        assert_same(stream, options, shards, sizes, plan)


@examples(25)
@given(gbdt_streams(), gbdt_options("auto"), shard_counts, cuts(), plans, crews)
def test_no_digest_depends_on_shards_batches_or_where_work_is_done(
    stream: Stream, options: dict[str, Any], shards: int, sizes: list[int], plan: WorkPlan, threads: Crew
) -> None:
    one, other = session_of(stream, options, 1, WorkPlan()), session_of(stream, options, shards, plan)
    for session, cut in ((one, [len(stream)]), (other, sizes)):
        with threads_of(threads):
            for batch in stream.batches(cut):
                session.apply(batch)
            session.finish()
    assert one.digest() == other.digest()


@examples(25)
@given(gbdt_streams(), gbdt_options("auto"), st.data())
def test_a_state_can_be_restored_anywhere_on_other_shards(
    stream: Stream, options: dict[str, Any], data: st.DataObject
) -> None:
    """Also in the warm-up, and with updates that wait."""
    session, twin = session_of(stream, options, data.draw(shard_counts), data.draw(plans)), twin_of(stream, options)
    handover = data.draw(st.integers(0, len(stream) - 1))
    for batch in stream.batches(data.draw(cuts())):
        predictions = session.apply(batch).predictions
        assert plain(predictions, False) == plain(twin.process(batch)[1], False)
        if batch.start <= handover < batch.stop:
            state, digest = session.state(), session.digest()
            session = session_of(stream, options, data.draw(shard_counts), data.draw(plans))
            session.restore(*state)
            assert session.digest() == digest
            assert_same_state(session, twin, f"restored at {batch.stop}")
    session.finish()
    twin.finish()
    assert_same_state(session, twin, "the end")


def slow_stream(classes: int) -> Stream:
    """Examples of two features that come and go one by one, so that leaf values change a little at a time."""
    rng = np.random.default_rng(classes)
    warmup, n = 80, 140
    X = rng.integers(0, 6, (n, 2)).astype(float)
    y = X.sum(axis=1) + 3 * rng.random(n)
    y = y * classes // 14 if classes else y
    every = [(INSERT, i) for i in range(warmup)]
    for i in range(n - warmup):
        every += [(INSERT, warmup + i), (DELETE, i)]
    rows = tuple(tuple(X[i].tolist()) if op == INSERT else None for op, i in every)
    targets = tuple(float(y[i]) if op == INSERT else (math.nan if not classes else -1.0) for op, i in every)
    ops, ids = tuple(op for op, _ in every), tuple(i for _, i in every)
    return Stream(ops, ids, rows, targets, (False, False), True, warmup, not classes)


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("classes", "plan"),
    [
        pytest.param(classes, plan, id=f"{classes}-{way}", marks=[] if way == by_day else pytest.mark.nightly)
        for classes, by_day in ((0, "local"), (2, "shards"), (3, "shards"))
        for way, plan in (("local", WorkPlan(shared_store=True)), ("shards", WorkPlan(0, 0, False)))
    ],
)
def test_rows_that_drift_are_compared_again(classes: int, plan: WorkPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    due = []
    others = RowShard._others

    def counted(self: RowShard, *given: Any) -> Any:
        found = yield from others(self, *given)
        due.append(len(found[0]))
        return found

    monkeypatch.setattr(RowShard, "_others", counted)
    options = {"max_iter": 4, "max_leaf_nodes": 4, "derivative_tolerance": 2.0, "update_every": 2, "retrain": "never"}
    objective = {"objective": "auto" if classes else "squared_error"}
    assert_same(slow_stream(classes), options | objective, 1, [7], plan)
    assert sum(due) > 20
    assert due.count(0) > 20  # of most batches none


# -- rows dealt by an audit ------------------------------------------------------------------------------------------
# Rows that an audit deals down a tree with its kernels, against rows that are looked at one node after the other.


def grown(draw: Any, cuts: list[int], most: int) -> RecordedGBDTTree:
    """A random tree in preorder over features with so many cuts."""
    nodes = list[list[int]]()

    def grow(inner: int) -> None:
        v, some = len(nodes), [j for j, count in enumerate(cuts) if count]
        nodes.append([-1, -1, -1, -1])
        if inner and some:
            j = int(draw.choice(some))
            nodes[v][:3] = j, int(draw.integers(cuts[j])), v + 1
            of_left = int(draw.integers(inner))
            grow(of_left)
            nodes[v][3] = len(nodes)
            grow(inner - 1 - of_left)

    grow(most)
    return RecordedGBDTTree(*np.array(nodes, np.int64).T)


@examples(150)
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(0, 8), st.sampled_from((1, 300)), st.booleans())
def test_rows_are_dealt_as_the_slow_twin_deals_them(seed: int, n: int, inner: int, values: int, weighted: bool) -> None:
    draw = np.random.default_rng(seed)
    kinds = draw.random(3) < 0.3
    X = draw.integers(0, values + 1, (n, 3)).astype(np.float64)
    X[:, ~kinds] = np.where(draw.random((n, (~kinds).sum())) < 0.1, math.nan, X[:, ~kinds])
    bins = [FeatureBins(bool(kind), np.unique(draw.integers(0, values + 1, 9)) + 0.0, True) for kind in kinds]
    ones = [np.flatnonzero(draw.random(2) < 0.5).astype(np.int32) for _ in range(n)]
    sparse = SparseRows.of_lengths(
        np.array([*map(len, ones)], np.int64), np.concatenate([*ones, np.empty(0, np.int32)]), 2
    )
    cuts = [*(b.cuts for b in bins), 1, 1]
    candidates = np.array([(j, cut) for j, count in enumerate(cuts) for cut in range(count)], np.int64).reshape(-1, 2).T
    largest = 2**46 if weighted else 2**30
    g, h = draw.integers(-largest, largest, (2, n)).astype(np.int64 if weighted else np.int32)
    tree = grown(draw, cuts, inner)
    for some, of in ((sparse, candidates), (None, candidates[:, candidates[0] < 3])):
        if some is None and (tree.feature >= 3).any():
            continue
        rows = RawRows(X, some, bins)
        found = rows.deal(tree, g, h, rows.divided((of[0], of[1])))
        twin = SlowRawRows(X, some, bins).deal(tree, g.astype(np.int64), h.astype(np.int64), (of[0], of[1]))
        for name in ("leaf", "G", "H", "left"):
            np.testing.assert_array_equal(getattr(found, name), getattr(twin, name), name)
