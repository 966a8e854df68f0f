"""Checkpoints hold what the learner held, however rows were stored, superseded and deleted on the way."""

import dataclasses
import tempfile
from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raydt.examples.updates import DELETE, INSERT, UPDATE, Features, UpdateBatch
from raydt.exchange.messages import Barrier, Segment
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.sessions.session import InProcessSession, next_segment
from tests.volume import examples

FEATURES = Features(("a", "b", "c"), (False, False, True), groups=2)
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
    return InProcessSession(LEARNER, LEARNER.Options(kind="fudyadt", epsilon=0.2, alpha=0, beta=0), FEATURES, 2)


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
