"""The confidence tree on any shards and batches against its slow twin: predictions, tree, records; its audit holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.examples.updates import DELETE, INSERT, QUERY, UNIT
from raydt.learners.confidence_tree import coordinator as coordinator_module
from raydt.sessions.session import InProcessSession
from raydt.streams.base import history_of
from tests import volume
from tests.confidence_streams import (
    LEARNER,
    RULES,
    GroupedStream,
    assert_same_tree,
    drawn_options,
    grown,
    options_for,
    scattered,
    session_of,
    short_streams,
    twin_of,
    weighed,
)
from tests.oracles.confidence_tree import ConfidenceTwin
from tests.strategies import WEIGHTS, Stream, cuts
from tests.volume import examples

# Passing takes seconds; a failure is worth the minutes it takes to shrink.
pytestmark = pytest.mark.timeout(900)

shard_counts = st.sampled_from((1, 2, 3, 4))
SIZES: tuple[tuple[int, ...], ...] = ((1,), (7,), (90, 3), (1000,))


def assert_same(
    stream: GroupedStream,
    options: dict[str, Any],
    shards: Sequence[int],
    sizes: Sequence[int],
    *,
    skip: bool = False,
    handovers: Collection[int] = (),
    sound: bool = True,
    copies: bool = False,
) -> ConfidenceTwin:
    """Both take the stream; predictions are equal after every batch, and everything else after every eighth update.

    After a batch that has one of the updates ``handovers`` another session takes over, on the next of ``shards``. If
    ``sound``, as without refused updates, the audit holds, of some streams before they end a warm-up.
    """
    session, twin = session_of(stream, options, shards[0]), twin_of(stream, options, copies=copies)
    turn, changes = 0, []
    for batch, whole in zip(stream.batches(sizes), stream.columns.batches(sizes), strict=True):
        before = len(twin.routes)
        result, expected = session.apply(batch, skip_refused=skip), twin.process(whole, skip_refused=skip)
        where = f"updates {batch.start} to {batch.stop}"
        assert result.applied == expected.applied, where
        assert [(r.position, r.reason) for r in result.refused] == expected.refused, where
        assert result.predictions.tolist() == expected.predictions, where
        assert result.path.tolist()[: result.applied] == twin.routes[before:][: result.applied], where
        if batch.stop % 8 < len(batch):
            assert_same_tree(session, twin, where)
        changes += logged(result.log)
        digest = session.digest()
        if result.applied < len(batch):
            break
        if set(handovers) & set(range(batch.start, batch.stop)):
            turn += 1
            state, groups = session.state()
            LEARNER.check(session.coordinator.options, stream.features, stream.classes, state, groups)
            session = session_of(stream, options, shards[turn % len(shards)])
            session.restore(state, groups)
            assert session.digest() == digest, "what was kept of former digests is the same made anew"
            assert_same_tree(session, twin, f"restored after {where}")
    if sound and len(stream.columns) % 2:
        assert_sound(session, stream)
    changes += logged(session.finish())
    twin.finish()
    if sound:
        assert_sound(session, stream)
    assert_same_tree(session, twin, "the end")
    assert changes == twin.changes
    statistics = session.statistics()
    assert {name: statistics[name] for name in twin.done} == twin.done
    rows = [row for row in stream.columns.rows if row is not None]
    X = np.array(rows).reshape(len(rows), len(stream.columns.categorical))
    sparse = {"sparse": stream.sparse_of(X)} if stream.features.sparse else {}
    expected_of = [twin.predict(row) for row in rows]
    dense = np.ascontiguousarray(X[:, : stream.dense])
    predictor = LEARNER.predictor(session.coordinator.options, stream.features, session.model())
    LEARNER.check(session.coordinator.options, stream.features, stream.classes, session.model(), None)
    assert predictor.predict(dense, **sparse).tolist() == expected_of
    assert session.coordinator.predict(dense, **sparse).tolist() == expected_of
    shares = predictor.predict_proba(dense, stream.classes, **sparse)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert shares.argmax(axis=1).tolist() == expected_of or options["leaf_prediction"] != "naive_bayes"
    return twin


def assert_sound(session: InProcessSession, stream: GroupedStream) -> None:
    """The state passes the check, and its audit holds."""
    (state, groups), options = session.state(), session.coordinator.options
    LEARNER.check(options, stream.features, stream.classes, state, groups)
    source = SimpleNamespace(features=stream.features, target_dtype=np.dtype(np.int32))
    unread = stream.batches([70])
    history = history_of(SimpleNamespace(source=source, batches=lambda most: unread))  # type: ignore[arg-type]
    report = LEARNER.audit(options, stream.features, state, history, groups)
    assert report.failures == [], report.failures
    assert report.ok


def logged(log: dict[str, Any] | None) -> list[tuple[int, ...]]:
    """Update, depth, feature and reason of each change that a log tells of."""
    names = ("seq", "depth", "feature", "reason")
    return list(zip(*(log[name].tolist() for name in names), strict=True)) if log else []


def fixed(rule: str, *, drift: bool) -> list[tuple[GroupedStream, dict[str, Any]]]:
    """Streams that do not change from run to run; with ``drift`` labels turn around."""
    made = []
    for seed in (0, 3, 4) if drift else range(5):
        classes = 3 if seed % 3 == 1 else 2
        stream = grown(seed, 360 if drift else 240, classes, flips=drift)
        more = {"leaf_prediction": "adaptive"} if drift else {}
        options = drawn_options(np.random.default_rng(seed), classes, rule, **more)
        if rule == "practical":
            options |= {"c": 0.03, "tie_threshold": 0.0} if drift else {"c": (0.001, 0.01)[seed % 2]}
        if drift:
            options["grace_period"] = (9, 15, 25)[seed % 3]
        made.append((stream, options))
    return made


#: Splits that the fixed streams have at least, by rule, without and with drift.
LEAST = {
    "practical": (40, 12),
    "theorem": (25, 30),
    "hoeffding": (30, 35),
    "corrected": (15, 20),
    "mcdiarmid": (30, 60),
}


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("rule", "drift"),
    [
        pytest.param(rule, drift, id=f"{rule}-{way}", marks=[pytest.mark.nightly] if (i + drift) % 2 else [])
        for i, rule in enumerate(RULES)
        for drift, way in enumerate(("kept", "drift"))
    ],
)
def test_fixed_streams(rule: str, drift: int) -> None:
    done: Counter[str] = Counter()
    for i, (stream, options) in enumerate(fixed(rule, drift=bool(drift))):
        twin = assert_same(stream, options, (1 + i % 4, 2), SIZES[i % 4], handovers={100} if i % 2 else ())
        done.update(twin.done)
    assert done["splits"] >= LEAST[rule][drift]


@examples(60)
@given(short_streams(), st.data(), shard_counts, cuts())
def test_differential_random_streams(stream: GroupedStream, data: st.DataObject, shards: int, sizes: list[int]) -> None:
    assert_same(stream, data.draw(options_for(stream.classes)), (shards,), sizes)


@examples(15)
@given(short_streams(refusals=True), st.data(), shard_counts, cuts(), st.booleans())
def test_differential_with_refused_updates(
    stream: GroupedStream, data: st.DataObject, shards: int, sizes: list[int], skip: bool
) -> None:
    assert_same(stream, data.draw(options_for(stream.classes)), (shards,), sizes, skip=skip, sound=False)


long_streams = st.builds(
    grown,
    st.integers(0, 2**32 - 1),
    classes=st.integers(2, 3),
    refusals=st.just(False),
    oldest=st.booleans(),
    flips=st.booleans(),
)


@examples(12)
@given(long_streams, st.data(), st.permutations([1, 2, 3, 4]), st.sampled_from(SIZES))
def test_state_can_be_restored_anywhere_on_other_shards(
    stream: GroupedStream, data: st.DataObject, shards: list[int], sizes: tuple[int, ...]
) -> None:
    places = data.draw(st.lists(st.integers(0, len(stream.columns)), max_size=4))
    assert_same(stream, data.draw(options_for(stream.classes)), shards, sizes, handovers=places)


@examples(12)
@given(long_streams, st.data(), shard_counts, st.integers(1, 7), cuts())
def test_no_digest_depends_on_shards_groups_or_batches(
    stream: GroupedStream, data: st.DataObject, shards: int, groups: int, sizes: list[int]
) -> None:
    options = data.draw(options_for(stream.classes))
    one = session_of(stream, options, 1)
    other_stream = GroupedStream(stream.columns, stream.dense, groups)
    other = session_of(other_stream, options, shards)
    for session, batches in ((one, stream.batches([1000])), (other, other_stream.batches(sizes))):
        for batch in batches:
            session.apply(batch)
        session.finish()
    assert one.digest() == other.digest()
    same = {"rounds", "bytes_exchanged"}
    first, second = one.statistics(), other.statistics()
    assert {k: v for k, v in first.items() if k not in same} == {k: v for k, v in second.items() if k not in same}


normal = st.tuples(st.sampled_from(("adaptive_normal", "adaptive_inherited")), st.booleans())


@examples(8)
@given(st.integers(0, 2**32 - 1), st.sampled_from((0.0, 0.2)), shard_counts, st.sampled_from(SIZES), normal)
def test_normal_features(seed: int, gaps: float, shards: int, sizes: tuple[int, ...], kind: tuple[str, bool]) -> None:
    """Numbers of many bins, of which leaves know means and variances, while examples come and go."""
    options: dict[str, Any] = {"leaf_prediction": kind[0], "max_bins": 32, "c": 0.03, "grace_period": 15}
    options |= {"renew_bins": 60 * kind[1]}
    assert_same(scattered(seed, 150, gaps), options, (shards, 1 + shards % 3), sizes, handovers={90})


def test_leaves_choose_normal_features() -> None:
    """A leaf of few examples that has been right more often with them; the model has them, and goes with deletions."""
    stream = scattered(1, 200, 0.0)
    session = session_of(stream, {"leaf_prediction": "adaptive_normal", "max_bins": 32, "grace_period": 500}, 2)
    for batch in stream.batches([50]):
        session.apply(batch)
    model = session.model()
    assert model["normal_leaf"].tolist() == [0]
    assert model["normal_mean"].shape == (1, 3, 3)


@pytest.mark.share
@pytest.mark.parametrize("drift", [False, True], ids=["kept", "drift"])
def test_any_window_gives_the_same(drift: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates are walked some thousand at a time; here so few that many windows end within a batch."""
    monkeypatch.setattr(coordinator_module, "LONGEST", 5)
    for stream, options in volume.spread(fixed("practical", drift=drift)[:3], 1):
        assert_same(stream, options, (3,), [1000])


WHOLE = (0, UNIT, UNIT, 2 * UNIT, 3 * UNIT)
weights = st.sampled_from((WEIGHTS, WEIGHTS, WHOLE, (0, UNIT), (UNIT,)))
balanced = st.sampled_from((None, "balanced"))


@examples(40)
@given(short_streams(), st.data(), weights, balanced, shard_counts, cuts())
def test_weighted_rows(
    stream: GroupedStream, data: st.DataObject, chosen: Any, classes: Any, shards: int, sizes: list[int]
) -> None:
    options = data.draw(options_for(stream.classes)) | {"class_weight": classes}
    assert_same(weighed(stream, data.draw(st.integers(0, 2**32 - 1)), chosen), options, (shards,), sizes)


@examples(12)
@given(long_streams, st.data(), weights, balanced, st.permutations([1, 2, 3, 4]), st.sampled_from(SIZES))
def test_weighted_rows_on_other_shards(
    stream: GroupedStream, data: st.DataObject, chosen: Any, classes: Any, shards: list[int], sizes: tuple[int, ...]
) -> None:
    options = data.draw(options_for(stream.classes)) | {"class_weight": classes}
    places = data.draw(st.lists(st.integers(0, len(stream.columns)), max_size=4))
    stream = weighed(stream, data.draw(st.integers(0, 2**32 - 1)), chosen)
    assert_same(stream, options, shards, sizes, handovers=places)


@examples(40)
@given(short_streams(), st.data(), shard_counts, cuts())
def test_whole_weights_equal_repeated_rows_that_come_as_one(
    stream: GroupedStream, data: st.DataObject, shards: int, sizes: list[int]
) -> None:
    """Bit for bit: the twin counts copies, and knows no units."""
    stream = weighed(stream, data.draw(st.integers(0, 2**32 - 1)), WHOLE)
    assert_same(stream, data.draw(options_for(stream.classes)), (shards,), sizes, copies=True)


@pytest.mark.parametrize("seed", range(4))
def test_equal_weights_equal_repeated_rows(seed: int) -> None:
    """Copies come one after the other: equal where no check or renewal is due between them, nor a prediction counts."""
    rng, times = np.random.default_rng(seed), (2, 3)[seed % 2]
    options = drawn_options(rng, 2, list(RULES)[seed % 4])
    options |= {"leaf_prediction": ("majority", "naive_bayes")[seed % 2], "max_bins": 64}
    repeated = options | {"grace_period": 6 * times, "renew_bins": 20 * times}
    few, many, warmup, id = [], [], 12, 0
    for i in range(240):
        if i < 40 or rng.random() < 0.7:
            x = tuple(rng.integers(0, 5, 2).astype(float).tolist())
            few.append((INSERT, id * 8, x, int((x[0] + x[1] > 4) ^ (rng.random() < 0.1))))
            many += [(INSERT, id * 8 + copy, *few[-1][2:]) for copy in range(times)]
            id += 1
        else:
            live = sorted({key for op, key, *_ in few if op == INSERT} - {key for op, key, *_ in few if op == DELETE})
            gone = int(rng.choice(live))
            few.append((DELETE, gone, None, -1))
            many += [(DELETE, gone + copy, None, -1) for copy in range(times)]
    of_few, of_many = script_of(few, warmup), script_of(many, warmup * times)
    of_few = replace(of_few, columns=replace(of_few.columns, weight=(times * UNIT,) * len(few)))
    states = []
    for stream in (of_few, of_many):
        session = session_of(stream, repeated, 2)
        for batch in stream.batches([50]):
            session.apply(batch)
        states.append(session.state())
    (state, groups), (of_copies, groups_of_copies) = states
    assert len(of_copies["feature"]) > 1
    for name in ("feature", "threshold", "left", "right", "cut", "bins_values"):
        assert state[name].tolist() == of_copies[name].tolist(), name
    for name in ("phi", "rival_phi", "impurity", "epsilon", "rival_feature", "rival_cut", "reason", "classes"):
        assert state[f"split_{name}"].tolist() == of_copies[f"split_{name}"].tolist(), name
    for name in ("counts", "own", "since", "split_m", "split_t", "split_own", "split_left", "t", "renewed", "lived"):
        assert (state[name] == of_copies[name] * UNIT).all(), name
    leaves = state["feature"] < 0
    for number, group in groups.items():
        for name in ("totals", "bins"):
            of_one, of_other = (
                np.concatenate([counts, np.zeros((len(leaves), *counts.shape[1:]), np.int64)])[places["place"][leaves]]
                for counts, places in ((group[name], state), (groups_of_copies[number][name], of_copies))
            )
            assert (of_one == of_other * UNIT).all(), name


def script_of(events: list[tuple[int, int, tuple[float, ...] | None, int]], warmup: int) -> GroupedStream:
    """A stream of two numeric columns, written out."""
    op, key, rows, y = zip(*events, strict=True)
    return GroupedStream(Stream(op, key, rows, y, (False, False), True, warmup), 2, 2)


@pytest.mark.parametrize("sizes", [[1], [7], [8, 1000], [1000]], ids=str)
def test_an_emptied_leaf_predicts_as_the_node_above_does_just_then(sizes: list[int]) -> None:
    """In one batch a leaf is split, loses all its examples and is asked; what comes later turns the majority above."""
    warmup = [(INSERT, i, (float(i % 2), float(i // 2 % 2)), i % 2) for i in range(8)]
    split = [(INSERT, 8 + i, (1.0, float(i % 2)), 1 - i % 2) for i in range(8)]
    emptied = [(DELETE, key, None, -1) for key, x in ((e[1], e[2]) for e in warmup + split) if x[0] == 1.0]
    asked = [(QUERY, 0, (1.0, 0.0), -1)]
    later = [(INSERT, 100 + i, (0.0, float(i % 2)), 1) for i in range(10)]
    stream = script_of([*warmup, *split, *emptied, *asked, *later], 8)
    twin = assert_same(stream, {"c": 0.001, "grace_period": 8}, (2,), sizes)
    assert twin.done["splits"] == 2
