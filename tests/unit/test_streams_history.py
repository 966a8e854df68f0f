from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydt.errors import InputError
from raydt.examples.row_owners import RowOwners, are_in
from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.learners import learners
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.options import ParquetFiles
from raydt.streams.base import history_of
from raydt.streams.deletion_log import Changelog
from raydt.streams.options import make_stream
from raydt.streams.windows import Incremental, SlidingWindow
from tests.oracles.streams import MemorySource, Row
from tests.refusals import refused

ALIVE = np.iinfo(np.int64).max


def spans(history):
    """(id, x, y, inserted, deleted) of each example; ``None`` while live."""
    columns = (history.id, history.X[:, 0], history.y, history.inserted, history.deleted)
    return [(i, x, y, a, None if b == ALIVE else b) for i, x, y, a, b in np.array(columns, dtype=object).T]


def test_what_cannot_be_applied_is_passed_over():
    data = [
        Row(1, 0, x=1.0),
        Row(1, 0, x=2.0),  # live already
        Row(2, 0, op=DELETE),  # unknown
        Row(2, 0, op=UPDATE, x=3.0),  # unknown
        Row(9, 0, op=QUERY, x=4.0),
        Row(1, 1, op=UPDATE, x=5.0),
        Row(1, 0, op=DELETE),
        Row(1, 0, op=DELETE),  # no longer live
        Row(1, 0, x=6.0),
    ]
    history = history_of(make_stream(Changelog(), MemorySource(data, changelog=True)))
    assert spans(history) == [(1, 1.0, 0, 0, 5), (1, 5.0, 1, 5, 6), (1, 6.0, 0, 8, None)]


@pytest.mark.parametrize("stop", [0, 1, 4, 10_000, 20_000, 39_997, 10**6])
def test_stop(stop):
    data = [Row(i, i % 3) for i in range(20_000)]
    stream = make_stream(SlidingWindow(window=3), MemorySource(data, (1000,)))
    history = history_of(stream, stop)
    whole = history_of(make_stream(SlidingWindow(window=3), MemorySource(data, (1000,))))
    kept = whole.inserted < stop
    np.testing.assert_array_equal(history.id, whole.id[kept])
    np.testing.assert_array_equal(history.X, whole.X[kept])
    deleted = whole.deleted[kept]
    np.testing.assert_array_equal(history.deleted, np.where(deleted < stop, deleted, ALIVE))
    assert stream.state()["seq"] == min(stop, 39_997)


def test_a_bad_row_behind_the_stop_is_not_met():
    data = [Row(0, 0), Row(1, 0), Row(2, 0, bad=True)]
    assert len(history_of(make_stream(Incremental(), MemorySource(data)), 2).id) == 2


class ValueStream:
    """Batches as given, for operations that no file can hold."""

    def __init__(self, updates, size):
        self.source = MemorySource([])
        self._updates, self._at, self._size = updates, 0, size

    def batches(self, size):
        while self._at < len(self._updates):
            part = self._updates[self._at : self._at + min(size, self._size)]
            op = np.array([u[0] for u in part], dtype=np.int8)
            rows = [u for u in part if CARRIES_ROW[u[0]]]
            batch = UpdateBatch(
                self._at,
                op,
                np.array([u[1] for u in part], dtype=np.int64),
                np.array([[u[2]] for u in rows]).reshape(-1, 1),
                np.array([u[3] for u in rows], dtype=np.int32),
                2,
                np.full(len(part), -1),
            )
            self._at += len(part)
            yield batch


@pytest.mark.parametrize("size", [1, 3, 100])
def test_deletes_by_value_take_the_oldest_equal_example(size):
    updates = [
        (INSERT, 1, 5.0, 0),
        (INSERT, 2, 5.0, 0),
        (INSERT, 3, 5.0, 1),
        (UPDATE, 1, 5.0, 0),  # example 1 is younger than 2 from here on
        (DELETE_VALUE, 0, 5.0, 0),
        (DELETE_VALUE, 0, 7.0, 0),  # nobody
        (DELETE_VALUE, 0, 5.0, 0),
        (DELETE_VALUE, 0, 5.0, 0),  # nobody any more
    ]
    history = history_of(ValueStream(updates, size))
    assert spans(history) == [(1, 5.0, 0, 0, 3), (2, 5.0, 0, 1, 4), (3, 5.0, 1, 2, None), (1, 5.0, 0, 3, 6)]
    with refused("audits.by_value", InputError):  # the oldest may be of another part
        history_of(ValueStream(updates, size), own=RowOwners(2).buckets(0))


@pytest.mark.parametrize("size", [1, 7, 400])
def test_a_changelog_with_deletes_by_value_is_one_history_for_the_model_and_the_audit(tmp_path, size):
    rng = np.random.default_rng(2)
    n = 400
    op = rng.choice(["i", "d", "u", "delete_value"], n, p=[0.5, 0.1, 0.1, 0.3])
    ids = [None if o == "delete_value" else f"e{i}" for o, i in zip(op, rng.integers(0, 60, n), strict=True)]
    columns = {"op": op, "id": ids, "a": rng.integers(0, 3, n) * 1.0, "s": rng.choice(["k", "l"], n)}
    pq.write_table(pa.table(columns | {"y": rng.choice(["p", "q"], n)}), tmp_path / "t.parquet")

    def stream():
        return make_stream(Changelog(), open_source(ParquetFiles(path="t.parquet", op="op", id="id"), tmp_path))

    learner = learners()["fudyadt"]
    replayed, options = stream(), learner.Options()
    session = InProcessSession(learner, options, replayed.source.features)
    refused, by_value = Counter(), 0
    for batch, result in session.process(replayed.batches(size), skip_refused=True):
        refused += Counter(int(batch.op[r.position]) for r in result.refused)
        by_value += int((batch.op == DELETE_VALUE).sum())
    assert 20 < refused[DELETE_VALUE] < by_value - 20
    history = history_of(stream())
    state, groups = session.state()
    alive = history.deleted == ALIVE
    assert dict(zip(state["id"].tolist(), state["born"].tolist(), strict=True)) == dict(
        zip(history.id[alive].tolist(), history.inserted[alive].tolist(), strict=True)
    )
    report = learner.audit(options, replayed.source.features, state, history, groups)
    assert report.conformance == "holds"


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_the_histories_of_all_buckets_are_the_whole_one(parts):
    """What becomes of an id depends on no other: operations that find no example, or one, are of one part."""
    draw = np.random.default_rng(4)
    ids, ops = draw.integers(0, 60, 900).tolist(), draw.choice([INSERT, DELETE, UPDATE, QUERY], 900).tolist()
    data = [Row(i, i % 3, op=op, x=float(n)) for n, (i, op) in enumerate(zip(ids, ops, strict=True))]
    whole = history_of(make_stream(Changelog(), MemorySource(data, (50,), changelog=True)))
    found = []
    for own in RowOwners(parts).of_all():
        part = history_of(make_stream(Changelog(), MemorySource(data, (50,), changelog=True)), own=own)
        assert are_in(part.id, own).all()
        found += spans(part)
    assert sorted(found, key=lambda one: one[3]) == spans(whole)
