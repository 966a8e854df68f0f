"""One batch of each of many models: taken together they give what a loop of ``session.apply`` gives."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.examples.updates import DELETE, INSERT, BatchResult, UpdateBatch
from raydt.keyed.members import apply_all
from raydt.learners import learners
from raydt.sessions.session import InProcessSession
from raydt.streams.deletion_log import Changelog
from tests.cases import Trial, every_case, one_of_each
from tests.confidence_streams import drawn_options, grown, session_of
from tests.small_tables import random_changes, table_of, written
from tests.strategies import Stream, cuts, fudyadt_options, long_streams, streams
from tests.volume import examples

FUDYADT = learners()["fudyadt"]
#: What a result and the statistics say about the work, not about the model.
WORK, TRAFFIC = ("seconds",), ("rounds", "bytes_exchanged")


def shown(value: Any) -> Any:
    """A value as something that is equal to another of the same kinds and bits."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {name: shown(one) for name, one in value.items() if name not in (*WORK, *TRAFFIC)}
    return value


def assert_same_result(together: BatchResult, alone: BatchResult) -> None:
    """Assert that all is equal but what says how the work was done."""
    for field in fields(BatchResult):
        if field.name not in WORK:
            assert shown(getattr(together, field.name)) == shown(getattr(alone, field.name)), field.name


def assert_same_models(pooled: Sequence[InProcessSession], single: Sequence[InProcessSession]) -> None:
    """Assert that models are equal, digests and states."""
    for one, other in zip(pooled, single, strict=True):
        assert one.digest() == other.digest()
        (state, groups), (expected, of_other) = one.state(), other.state()
        assert shown(state) == shown(expected)
        assert {g: shown(group) for g, group in groups.items()} == {g: shown(group) for g, group in of_other.items()}


def drive(
    new_session: Callable[[int], InProcessSession],
    batches: Sequence[Iterator[UpdateBatch]],
    skip: bool,
    handover: int = -1,
) -> int:
    """Take the batches of all keys, one of each at a time; at the end delete all. Returns how many were pooled.

    After round ``handover`` new sessions go on from the states, or from copies of the sessions, in turn.
    """
    pooled, single = ([new_session(key) for key in range(len(batches))] for _ in range(2))
    last: list[UpdateBatch | None] = [None] * len(batches)
    left, taken, rounds = list(range(len(batches))), 0, 0
    while left:
        some = [(key, batch) for key in left if (batch := next(batches[key], None)) is not None]
        left = [key for key, _ in some]
        if not some:
            break
        given_ = [batch for _, batch in some]
        groups = [pooled[key].group(batch) for key, batch in some]
        taken += sum(group is not None for group in groups)
        results = apply_all([pooled[key] for key in left], given_, skip)
        for (key, batch), result in zip(some, results, strict=True):
            assert_same_result(result, single[key].apply(batch, skip_refused=skip))
            last[key] = batch
            if result.applied < len(batch):
                left.remove(key)
        if rounds % 3 == 0:
            assert [one.digest() for one in pooled] == [other.digest() for other in single]
        if rounds == handover:
            for key, session in enumerate(pooled):
                if key % 2:
                    pooled[key] = copy.deepcopy(session)
                else:
                    pooled[key] = new_session(key)
                    pooled[key].restore(*session.state())
        rounds += 1
    assert_same_models(pooled, single)
    keys = [key for key, batch in enumerate(last) if batch is not None]
    everything = [deletions(single[key], last[key]) for key in keys]
    together = apply_all([pooled[key] for key in keys], everything, skip)
    for key, batch, result in zip(keys, everything, together, strict=True):
        assert_same_result(result, single[key].apply(batch, skip_refused=skip))
    assert_same_models(pooled, single)
    return taken


def deletions(session: InProcessSession, last: UpdateBatch | None) -> UpdateBatch:
    """Delete all examples, the smallest id first."""
    assert last is not None
    store = session.coordinator.store
    ids = np.sort(store.id[store.slots()])
    start = session.coordinator._seq if hasattr(session.coordinator, "_seq") else last.stop
    none = {"op": np.full(len(ids), DELETE, dtype=np.int8), "id": ids, "X": last.X[:0], "y": last.y[:0]}
    sparse = None if last.sparse is None else last.sparse[np.arange(0)]
    weight = None if last.weight is None else last.weight[:0]
    return replace(last, start=start, row=np.full(len(ids), -1), sparse=sparse, weight=weight, **none)


@every_case("many models at once", often=one_of_each)
def test_every_learner(trial: Trial, tmp_path: Path) -> None:
    """Three keys with change logs of their own; warm-ups end inside a batch."""
    draw = random.Random(trial.name)
    logs = []
    for key in range(3):
        changes = random_changes(random.Random(f"key {key}"), 130, trial.case.warmup)
        path = written(tmp_path / f"{key}.arrow", table_of(changes))
        config = trial.config(tmp_path, source={"path": str(path)})
        logs.append(Changelog.model_validate(config["stream"]).make(trial.source(config)))

    def new_session(key: int) -> InProcessSession:
        return InProcessSession(trial.learner, trial.options, trial.features(logs[key].source))

    def batches(key: int) -> Iterator[UpdateBatch]:
        while True:
            batch = next(logs[key].batches(draw.choice((1, 3, 4, 7, 40))), None)
            if batch is None:
                return
            yield batch

    drive(new_session, [batches(key) for key in range(3)], skip=True, handover=5)


@pytest.mark.timeout(900)
@examples(40)
@given(
    st.lists(st.one_of(streams(refusals=True), long_streams(events=160)), min_size=1, max_size=4),
    fudyadt_options(),
    cuts(),
    st.booleans(),
    st.integers(0, 30),
)
def test_fudyadt(drawn: list[Stream], options: dict[str, Any], sizes: list[int], skip: bool, handover: int) -> None:
    drawn = [one for one in drawn if one.categorical == drawn[0].categorical]
    settings = FUDYADT.Options.model_validate({"kind": "fudyadt", **options})

    def new_session(key: int) -> InProcessSession:
        return InProcessSession(FUDYADT, settings, drawn[key].features)

    drive(new_session, [one.batches(sizes) for one in drawn], skip, handover)


@pytest.mark.timeout(900)
@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), cuts(), st.booleans(), st.integers(0, 30))
def test_confidence_tree(seed: int, classes: int, sizes: list[int], skip: bool, handover: int) -> None:
    rng = np.random.default_rng(seed)
    fixed: dict[str, Any] = {"drift_period": 0} if rng.random() < 0.7 else {}
    if rng.random() < 0.5:
        fixed["leaf_prediction"] = "adaptive_inherited"  # the default
    options = drawn_options(rng, classes, "hoeffding", grace_period=int(rng.choice((4, 15, 40))), **fixed)
    drawn = [grown(seed + key, 200, classes, refusals=True) for key in (0, 0, 1)]
    drive(lambda key: session_of(drawn[key], options, 1), [one.batches(sizes) for one in drawn], skip, handover)


@pytest.mark.parametrize(("kind", "more"), [("fudyadt", {}), ("confidence_tree", {"grace_period": 40})])
def test_batches_of_built_trees_are_taken_together(kind: str, more: dict[str, Any]) -> None:
    """The twin tests would hold for a loop, too."""
    learner, rng = learners()[kind], np.random.default_rng(0)
    options = learner.Options.model_validate({"kind": kind, **more})
    drawn = [window(rng, 120, 30) for _ in range(3)]

    def new_session(key: int) -> InProcessSession:
        return InProcessSession(learner, options, drawn[key].features)

    rounds = -(-len(drawn[0]) // 4)
    assert drive(new_session, [one.batches([4]) for one in drawn], skip=False) > 3 * rounds * 0.75


@pytest.mark.turns(2)
@pytest.mark.parametrize("size", [4, 40])
@pytest.mark.parametrize(
    ("noise", "more"),
    [
        (1.0, {"delta": 1e-9, "tie_threshold": 0.0}),
        (0.5, {"delta": 1e-3, "tie_threshold": 0.36}),
        (0.2, {"delta": 0.6, "tie_threshold": 0.0}),
    ],
    ids=["no split", "ties", "splits"],
)
def test_leaves_are_checked_within_the_call(noise: float, more: dict[str, Any], size: int) -> None:
    """Also several times in a batch, after a split of it, and where one key splits and another does not."""
    learner, rng = learners()["confidence_tree"], np.random.default_rng(3)
    options = learner.Options.model_validate(
        {"kind": "confidence_tree", "rule": "hoeffding", "grace_period": 7, "renew_bins": 0, **more}
    )
    drawn = [window(rng, 700, 120, noise) for _ in range(3)]
    alone = 0

    class Counted(InProcessSession):
        def apply(self, batch: UpdateBatch, *, skip_refused: bool = False) -> BatchResult:
            nonlocal alone
            alone += 1
            return super().apply(batch, skip_refused=skip_refused)

    pooled, single = (
        [kind(learner, options, drawn[0].features) for _ in drawn] for kind in (Counted, InProcessSession)
    )
    for batches in zip(*(one.batches([size]) for one in drawn), strict=True):
        results = apply_all(pooled, batches)
        for result, other, batch in zip(results, single, batches, strict=True):
            assert_same_result(result, other.apply(batch))
    assert_same_models(pooled, single)
    totals = [session.statistics() for session in single]
    checks, splits, ties = (sum(one[name] for one in totals) for name in ("checks", "splits", "ties"))
    assert alone == 3 * -(-115 // size)  # the warm-ups alone go the usual way
    assert checks > splits + 100
    assert (splits > 5) == (more["delta"] > 1e-9)
    assert (ties > 5) == (more["tie_threshold"] > 0)


@pytest.mark.parametrize("kind", ["fudyadt", "confidence_tree"])
def test_a_tolerated_refusal_does_not_end_a_batch(kind: str) -> None:
    learner, drawn = learners()[kind], window(np.random.default_rng(3), 60, 30)
    pooled, single = (InProcessSession(learner, learner.Options(kind=kind), drawn.features) for _ in range(2))
    refused = 0
    for batch in drawn.batches([8]):
        deletes = batch.op == DELETE
        batch = replace(batch, id=np.where(deletes, 10**9, batch.id), tolerated=deletes if deletes.any() else None)
        (result,), other = apply_all([pooled], [batch]), single.apply(batch)
        assert_same_result(result, other)
        assert result.applied == len(batch)
        refused += len(result.refused)
    assert refused > 20
    assert_same_models([pooled], [single])


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_bins_of_rows_whose_making_is_broken_off_are_made_again(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree that was trimmed finds the bins of its rows again before its batch is taken, which is no change yet."""
    learner, drawn = learners()["confidence_tree"], window(np.random.default_rng(3), 60, 30)
    options = learner.Options(kind="confidence_tree", grace_period=5)
    pooled, single = (InProcessSession(learner, options, drawn.features) for _ in range(2))

    def broken_off(*given: Any) -> None:
        raise error

    for batch in drawn.batches([8]):
        if batch.start > drawn.warmup:
            pooled.trim()
            with monkeypatch.context() as patch:
                patch.setattr("raydt.learners.confidence_tree.shard.encode", broken_off)
                with pytest.raises(error):
                    apply_all([pooled], [batch])
            assert pooled.whole
        (result,) = apply_all([pooled], [batch])
        assert_same_result(result, single.apply(batch))
    assert_same_models([pooled], [single])


def window(rng: np.random.Generator, n: int, rows: int, noise: float = 0.0) -> Stream:
    """A window of the last ``rows`` of ``n`` rows, a share of them with any label."""
    events = [(op, i - rows * (op == DELETE)) for i in range(n) for op in (INSERT, DELETE) if op == INSERT or i >= rows]
    X = rng.normal(size=(n, 3)).round(1)
    label = np.where(rng.random(n) < noise, rng.random(n) < 0.5, X[:, 0] > 0)
    of_rows = tuple(tuple(X[i]) if op == INSERT else None for op, i in events)
    y = tuple(float(label[i]) if op == INSERT else 0.0 for op, i in events)
    op, ids = zip(*events, strict=True)
    return Stream(op, ids, of_rows, y, (False,) * 3, True, warmup=rows - 5)
