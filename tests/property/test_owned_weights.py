"""Weights of rows that shards own, and checkpoints of them."""

from __future__ import annotations

import dataclasses
import tempfile
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, INSERT, QUERY, UNIT, UPDATE, Features, UpdateBatch
from raydt.exchange.messages import Barrier, Segment
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession, next_segment
from tests.volume import examples

# -- owned weights ---------------------------------------------------------------------------------------------------
# Weights that come and go: the digest is that of one process whatever the number of shards, also once all are 1
# again.
#
# A digest has weights as long as one row, of any owner, has another than 1 and its slot is not free; and none after
# it.

#: Options of each learner whose shards own rows; some batches end within a D'.
OPTIONS: dict[str, dict[str, Any]] = {
    "fudyadt": {"epsilon": 0.3, "alpha": 0.0, "beta": 0.0, "max_depth": 3},
    "gbdt": {"max_iter": 2, "max_bins": 8, "update_every": 9, "retrain": "never", "max_leaf_nodes": 4},
}
FEATURES = Features(("a", "b"), (False, False), groups=2)
SHARDS = (1, 2, 3, 8)
DIVIDED = WorkPlan(local_work_limit=0, row_cache_bytes=0, shared_store=False)


class Rows:
    """Live rows, and the updates that change them."""

    def __init__(self) -> None:
        self.live: dict[int, tuple[int, int]] = {}  # cell and weight by id, the oldest first
        self.updates: list[tuple[int, int, int, int]] = []  # operation, id, cell, weight
        self.ever = 0

    def insert(self, cell: int, weight: int) -> None:
        self.live[self.ever] = cell, weight
        self.updates.append((INSERT, self.ever, cell, weight))
        self.ever += 1

    def update(self, number: int, weight: int) -> None:
        cell, _ = self.live.pop(number)
        self.live[number] = cell, weight
        self.updates.append((UPDATE, number, cell, weight))

    def delete(self, number: int, by_value: bool) -> None:
        cell, _ = self.live.pop(number)
        oldest = all(cell != other for before, (other, _) in self.live.items() if before < number)
        self.updates.append((DELETE_VALUE if by_value and oldest else DELETE, number, cell, 1))

    @property
    def uneven(self) -> list[int]:
        return [number for number, (_, weight) in self.live.items() if weight != 1]


def batch_of(start: int, updates: list[tuple[int, int, int, int]], always: bool) -> UpdateBatch:
    """Updates as a batch, with weights ``always`` or if one is not 1."""
    op, number, cell, weight = np.array(updates, dtype=np.int64).reshape(-1, 4).T
    carries = CARRIES_ROW[op]
    cell, weight = cell[carries], weight[carries]
    X = np.stack([cell % 5, cell % 3], axis=1).astype(np.float64)
    return UpdateBatch(
        *(start, op.astype(np.int8), number, X, (cell % 2).astype(np.int32), 2, np.full(len(op), -1)),
        0 if start else len(op),
        weight=(UNIT * weight).astype(np.uint32) if always or (weight != 1).any() else None,
    )


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[UpdateBatch], list[bool]]:
    """Batches; after each, whether rows of other weights than 1 live. In some all such rows go, or get 1."""
    rows, found, uneven, start = Rows(), list[UpdateBatch](), [False], 0
    for _ in range(8):
        rows.insert(draw(st.integers(0, 9)), draw(st.sampled_from((1, 1, 1, 2))))
    for _ in range(draw(st.integers(2, 7))):
        for _ in range(draw(st.integers(0, 5))):
            kind = draw(st.sampled_from((INSERT, INSERT, DELETE, UPDATE)))
            number = draw(st.sampled_from(sorted(rows.live))) if rows.live else None
            if kind == INSERT or number is None:
                rows.insert(draw(st.integers(0, 9)), draw(st.sampled_from((1, 1, 2))))
            elif kind == UPDATE:
                rows.update(number, draw(st.sampled_from((1, 2))))
            else:
                rows.delete(number, draw(st.booleans()))
        if draw(st.booleans()):
            for number in rows.uneven:
                if draw(st.booleans()):
                    rows.update(number, 1)
                else:
                    rows.delete(number, draw(st.booleans()))
        found.append(batch_of(start, rows.updates, draw(st.booleans())))
        start, rows.updates = found[-1].stop, []
        uneven.append(bool(rows.uneven))
    return found, uneven


@pytest.mark.parametrize("kind", OPTIONS)
@examples(250)
@given(stream=streams(), data=st.data())
def test_the_digest_is_that_of_one_process(
    kind: str, stream: tuple[list[UpdateBatch], list[bool]], data: st.DataObject
) -> None:
    learner, (batches, uneven) = learners()[kind], stream
    options = learner.Options.model_validate({"kind": kind, "feature_groups": 2, **OPTIONS[kind]})

    def session(shards: int) -> InProcessSession:
        return InProcessSession(learner, options, FEATURES, max(1, shards), DIVIDED if shards else WorkPlan())

    event(f"weights come and all become 1 again: {(True, False) in pairwise(uneven)}")
    one, others = session(0), [session(shards) for shards in SHARDS]
    at = data.draw(st.integers(0, len(batches) - 1), "restored after")
    for number, batch in enumerate(batches):
        expected = one.apply(batch).predictions.tolist(), one.digest()
        for place, other in enumerate(others):
            assert (other.apply(batch).predictions.tolist(), other.digest()) == expected, SHARDS[place]
        if number == at:
            saved = others[data.draw(st.integers(0, 3), "whose state")].state()
            others = [session(shards) for shards in SHARDS]
            for other in others:
                other.restore(*saved)
                assert other.digest() == expected[1]
    for other in others:
        one.finish(), other.finish()
        assert other.digest() == one.digest()


@pytest.mark.parametrize("shards", SHARDS)
def test_slots_of_deleted_rows_are_used_again(shards: int) -> None:
    """Owners release them with the next batch that changes rows, also if batches without changes come between."""
    learner, used = learners()["fudyadt"], []
    options = learner.Options.model_validate({"kind": "fudyadt", "feature_groups": 2, **OPTIONS["fudyadt"]})
    session = InProcessSession(learner, options, FEATURES, shards, DIVIDED)
    session.apply(batch := batch_of(0, [(INSERT, number, number, 1) for number in range(20)], False))
    for _ in range(8):
        for op in (UPDATE, QUERY):
            session.apply(batch := batch_of(batch.stop, [(op, number, number, 1) for number in range(20)], False))
        used.append(session.coordinator.store.used)
    assert used[-1] == used[1]


# -- checkpoints -----------------------------------------------------------------------------------------------------
# Checkpoints hold what the learner held, however rows were stored, superseded and deleted on the way.

FEATURES_CHECKPOINTS = Features(("a", "b", "c"), (False, False, True), groups=2)
LEARNER = learners()["fudyadt"]
META = {"learner": {}, "features": [], "classes": [], "config_hash": None, "source_fingerprint": None}


def random_batches(seed, sizes):
    """Batches of inserts, deletes and updates; ids come back, so that slots do."""
    rng = np.random.default_rng(seed)
    live, start = set(), 0
    leaning = rng.random()
    for size in sizes:
        op, ids = [], []
        for _ in range(size):
            if live and rng.random() < 0.2:
                op.append(UPDATE)
                ids.append(int(rng.choice(sorted(live))))
            elif live and rng.random() < leaning:
                op.append(DELETE)
                ids.append(int(rng.choice(sorted(live))))
                live.discard(ids[-1])
            else:
                op.append(INSERT)
                ids.append(int(rng.choice(sorted(set(range(60)) - live))) if len(live) < 60 else start + len(ids) + 100)
                live.add(ids[-1])
        kinds = np.array(op, dtype=np.int8)
        n = int(np.count_nonzero(kinds != DELETE))
        X, y = rng.integers(0, 4, (n, 3)).astype(float), rng.integers(0, 2, n).astype(np.int32)
        yield UpdateBatch(start, kinds, np.array(ids), X, y, 2, np.full(size, -1))
        start += size


def session():
    return InProcessSession(
        LEARNER, LEARNER.Options(kind="fudyadt", epsilon=0.2, alpha=0, beta=0), FEATURES_CHECKPOINTS, 2
    )


@examples(40)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=25),
    st.integers(1, 3),
    st.integers(0, 24),
)
def test_every_checkpoint_is_the_state_of_its_time(seed, steps, keep, restart):
    with tempfile.TemporaryDirectory() as place:
        store, learner, saved = CheckpointStore(Folder(place), keep), session(), {}
        for index, batch in enumerate(random_batches(seed, [size for size, _ in steps])):
            wanted = steps[index][1]
            barrier = Barrier({"seq": batch.stop}, partial(getattr, store, "segments")) if wanted else None
            result = learner.apply(dataclasses.replace(batch, barrier=barrier))
            assert (result.snapshot is not None) == wanted
            if wanted:
                stream = {"stream": {"seq": batch.stop}}
                store.write(CheckpointContent(batch.stop, {**META, "offset": batch.stop}, result.snapshot, stream))
                saved[batch.stop] = learner.state()
            if index == restart and saved:
                # A new process goes on from the last checkpoint on the disk.
                store = CheckpointStore(Folder(place), keep)
                store.continue_from(read_checkpoint(store.folder.inside(str(store.numbers()[-1]))))
        assert store.numbers() == sorted(saved)[-keep:]
        for number in store.numbers():
            checkpoint = read_checkpoint(store.folder.inside(str(number)))
            state, groups = saved[number]
            found = checkpoint.components
            assert found["stream"] == {"seq": number}
            assert found["coordinator"].keys() == state.keys()
            for name, array in state.items():
                assert np.array_equal(found["coordinator"][name], array)
                assert found["coordinator"][name].dtype == array.dtype
            for group, arrays in groups.items():
                assert np.array_equal(found[f"group-{group:03d}"]["X"], arrays["X"])
        referred = {name.partition("/rows/")[2] for name in all_files(store)}
        assert set(store.folder.names("rows")) == {name for name in referred if name}


def all_files(store):
    for number in store.numbers():
        for entry in store.folder.read(f"{number}/manifest.json").decode().split('"name": "')[1:]:
            yield entry.partition('"')[0]


@given(st.integers(0, 2**32), st.integers(1, 200))
def test_there_are_few_segments_and_rows_are_seldom_written_again(seed, steps):
    rng = np.random.default_rng(seed)
    born, segments, written, now = np.empty(0, np.int64), [], 0, 0
    for _ in range(steps):
        new = int(rng.integers(0, 20))
        born = np.concatenate([born, np.arange(now, now + new)])
        now += new + 1
        since = next_segment(born, segments)
        assert since in {0, *(s.first for s in segments), *(s.stop for s in segments[-1:])}
        rows = int(np.count_nonzero(born >= since))
        written += rows
        segments = [segment for segment in segments if segment.first < since]
        segments += [Segment(since, now, rows)] if rows else []
    # Without deletions: sizes at least double from the newest to the oldest, two steps at a time.
    assert len(segments) <= 2 * np.log2(len(born) + 2) + 1
    assert written <= len(born) * (2 * np.log2(steps + 1) + 1)


def test_what_is_mostly_deleted_is_written_anew():
    segments = [Segment(0, 100, 100), Segment(100, 150, 50)]
    assert next_segment(np.arange(160), segments) == 150
    assert next_segment(np.arange(80, 150), segments) == 0
    assert next_segment(np.arange(145, 155), segments) == 0
    assert next_segment(np.empty(0, np.int64), []) == 0
