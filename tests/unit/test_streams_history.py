"""Stream models: what each makes of its rows, and the history of a stream."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from pipelines import load_config
from pipelines.config import StreamOptions
from raydt.errors import ConfigError, InputError
from raydt.examples.row_owners import RowOwners, are_in
from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    INSERT,
    NUMBERS,
    QUERY,
    UPDATE,
    Features,
    UpdateBatch,
)
from raydt.learners import learners
from raydt.messages import text
from raydt.sessions.adaptive_window import AdaptiveWindow
from raydt.sessions.session import InProcessSession
from raydt.sources.base import Rows
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles, CsvFiles, Hyperplane, ParquetFiles, Sea
from raydt.streams.base import Replay, history_of, microseconds, spelled
from raydt.streams.deletion_log import Changelog, DeletionLog, RandomUpdates, warmup
from raydt.streams.windows import Batches, Incremental, SlidingWindow, TimeWindow
from tests.oracles.streams import MemorySource, Row
from tests.refusals import refusal, refused

# -- streams history -------------------------------------------------------------------------------------------------
#


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
    history = history_of(Changelog().make(MemorySource(data, changelog=True)))
    assert spans(history) == [(1, 1.0, 0, 0, 5), (1, 5.0, 1, 5, 6), (1, 6.0, 0, 8, None)]


@pytest.mark.parametrize("stop", [0, 1, 4, 10_000, 20_000, 39_997, 10**6])
def test_stop(stop):
    data = [Row(i, i % 3) for i in range(20_000)]
    stream = SlidingWindow(window=3).make(MemorySource(data, (1000,)))
    history = history_of(stream, stop)
    whole = history_of(SlidingWindow(window=3).make(MemorySource(data, (1000,))))
    kept = whole.inserted < stop
    np.testing.assert_array_equal(history.id, whole.id[kept])
    np.testing.assert_array_equal(history.X, whole.X[kept])
    deleted = whole.deleted[kept]
    np.testing.assert_array_equal(history.deleted, np.where(deleted < stop, deleted, ALIVE))
    assert stream.state()["seq"] == min(stop, 39_997)


def test_a_bad_row_behind_the_stop_is_not_met():
    data = [Row(0, 0), Row(1, 0), Row(2, 0, bad=True)]
    assert len(history_of(Incremental().make(MemorySource(data)), 2).id) == 2


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
        return Changelog().make(open_source(ParquetFiles(path="t.parquet", op="op", id="id"), tmp_path))

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


@given(
    st.lists(st.tuples(st.sampled_from([INSERT, DELETE, UPDATE, QUERY]), st.integers(0, 7)), max_size=60),
    st.integers(1, 60),
    st.sampled_from([1, 5, 10**6]),
)
def test_updates_by_id_all_at_once_are_those_one_after_the_other(updates, size, recent):
    """And examples are found among many and few."""
    given, found = [(op, i, float(at), at % 2) for at, (op, i) in enumerate(updates)], []
    for singly in (False, True):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("raydt.streams.base._RECENT", recent)
            stream = ValueStream(given, size)
            replay = Replay(stream.source)
            if singly:
                replay._index()
            while (batch := next(stream.batches(size), None)) is not None:
                replay.add(batch)
                ids, born = replay.living
                assert replay.live == len(set(ids.tolist())) == len(ids)
                places = replay.find(np.arange(9))
                assert {i: replay.result().inserted[place] for i, place in enumerate(places) if place >= 0} == dict(
                    zip(ids.tolist(), born.tolist(), strict=True)
                )
            found.append((spans(replay.result()), replay.next_id))
    assert found[0] == found[1]


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_the_histories_of_all_buckets_are_the_whole_one(parts):
    """What becomes of an id depends on no other: operations that find no example, or one, are of one part."""
    draw = np.random.default_rng(4)
    ids, ops = draw.integers(0, 60, 900).tolist(), draw.choice([INSERT, DELETE, UPDATE, QUERY], 900).tolist()
    data = [Row(i, i % 3, op=op, x=float(n)) for n, (i, op) in enumerate(zip(ids, ops, strict=True))]
    whole = history_of(Changelog().make(MemorySource(data, (50,), changelog=True)))
    found = []
    for own in RowOwners(parts).of_all():
        part = history_of(Changelog().make(MemorySource(data, (50,), changelog=True)), own=own)
        assert are_in(part.id, own).all()
        found += spans(part)
    assert sorted(found, key=lambda one: one[3]) == spans(whole)


# -- streams ---------------------------------------------------------------------------------------------------------
# Stream models by example: what is refused, where a bad row stops, lengths, and large windows.

OPTIONS = TypeAdapter(StreamOptions)
INSERTS_AND_A_DELETE = [Row(1, 0), Row(2, 0), Row(1, 0, op=DELETE), Row(3, 1)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, ": union_tag_not_found"),
        ({"model": "incremental", "window": 5}, "incremental.window: extra_forbidden"),
        ({"model": "incremental", "warmup": "3"}, "incremental.warmup: int_type"),
        ({"model": "sliding_window", "window": 0}, "sliding_window.window: greater_than_equal"),
        ({"model": "sliding_window", "window": 5, "warmup": 6}, "sliding_window: streams.warmup_beyond_window"),
        ({"model": "random_updates", "insert_probability": 1.5}, "random_updates.insert_probability: less_than_equal"),
    ],
    ids=str,
)
def test_options_that_are_refused(options, problem):
    assert refusal(OPTIONS, options) == problem


def test_source_and_model_must_fit():
    with refused("streams.no_changelog"):
        Changelog().make(MemorySource([]))
    for options in (Incremental(), SlidingWindow(), RandomUpdates()):
        with refused("streams.changelog_source"):
            options.make(MemorySource([], changelog=True))


def test_a_stream_needs_labels():
    source = MemorySource([])
    source.has_labels = False
    with refused("streams.no_label_column"):
        Incremental().make(source)


def test_lengths():
    data = [Row(i, 0) for i in range(7)]
    assert Incremental().make(MemorySource(data)).length() == 7
    assert SlidingWindow(window=9).make(MemorySource(data)).length() == 7
    assert RandomUpdates().make(MemorySource(data)).length() is None
    source = MemorySource(data)
    source.n_rows = None
    assert SlidingWindow().make(source).length() is None


@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_everything_before_a_file_breaks_off_is_kept(tmp_path, on_error):
    table = pa.table({"x": np.arange(100.0), "y": np.zeros(100, dtype=np.int8)})
    with pa.ipc.new_stream(str(tmp_path / "t.arrows"), table.schema) as writer:
        for batch in table.to_batches(max_chunksize=10):
            writer.write_batch(batch)
    content = (tmp_path / "t.arrows").read_bytes()
    (tmp_path / "t.arrows").write_bytes(content[: len(content) - 200])
    stream = Incremental(on_error=on_error).make(open_source(ArrowFiles(path="t.arrows"), tmp_path))
    batches = stream.batches(64)
    assert [len(next(batches)), len(next(batches))] == [64, 26]
    with refused("files.unreadable_from", InputError, file=str(tmp_path / "t.arrows"), row=90, kind="arrow"):
        next(batches)
    assert stream.state()["seq"] == 90


@pytest.mark.parametrize("size", [1, 100])
def test_a_warm_up_ends_before_what_is_no_insert(size):
    stream = Changelog(warmup=3).make(MemorySource(INSERTS_AND_A_DELETE, (10,), changelog=True))
    told = [(batch.start, batch.warmup, batch.ends_warmup) for batch in stream.batches(size)]
    one_by_one = [(0, 3, False), (1, 3, False), (2, 2, True), (3, 2, False)]
    assert told == (one_by_one if size == 1 else [(0, 3, False), (2, 2, True)])
    assert (stream.warmup, stream.planned_warmup, stream.state()["warmup"]) == (2, 3, 2)
    again = Changelog(warmup=3).make(MemorySource(INSERTS_AND_A_DELETE, (10,), changelog=True))
    again.restore(stream.state())
    assert again.warmup == 2
    fits = Changelog(warmup=2).make(MemorySource(INSERTS_AND_A_DELETE, (10,), changelog=True))
    assert sum(len(batch) for batch in fits.batches(size)) == 4
    assert "warmup" not in fits.state()


@pytest.mark.parametrize("ids", [[1, None, None, None, 2], ["one", None, "no", None, "two"]])
def test_a_delete_by_value_needs_features_and_label_but_no_id(tmp_path, ids):
    columns = {
        "op": ["i", "delete_value", "DELETE_VALUE", "delete_value", "i"],
        "id": ids,
        "a": [0.5, 0.5, None, 0.5, 1.5],
        "s": ["k", "k", "l", "k", "m"],
        "y": ["p", "p", "q", None, "q"],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    source = open_source(ParquetFiles(path="t.parquet", op="op", id="id"), tmp_path)
    stream = Changelog(on_error="skip").make(source)
    (batch,) = stream.batches(9)
    assert batch.op.tolist() == [INSERT, DELETE_VALUE, INSERT]
    assert batch.X.tolist() == [[0.5, 0], [0.5, 0], [1.5, 1]]
    assert batch.y.tolist() == [0, 0, 1]
    assert [batch.name(place) for place in (0, 2)] == [ids[0], ids[4]]
    skipped = stream.take_skipped()
    assert [entry.row for entry in skipped] == [2, 3]
    assert ["no value" in skipped[0].reason, "no label" in skipped[1].reason] == [True, True]


def test_arrays_are_writable_and_contiguous():
    warmup()
    turns = Batches(steps=[1.0, 0.5, 0.9], removal_order="random")
    for options in (Incremental(), SlidingWindow(window=10), RandomUpdates(), turns):
        for batch in options.make(open_source(Sea(n=50_000))).batches(4096):
            dtypes = (np.int8, np.int64, np.float64, np.int32, np.int64)
            for array, dtype in zip((batch.op, batch.id, batch.X, batch.y, batch.row), dtypes, strict=True):
                assert array.dtype == dtype
                assert array.flags.c_contiguous
                assert array.flags.writeable


def test_a_live_id_stops_the_stream_each_time_it_is_asked():
    data = [Row(1, 0), Row(2, 0), Row(1, 0), Row(3, 0)]
    stream = SlidingWindow(window=5).make(MemorySource(data, (3,)))
    assert next(stream.batches(10)).id.tolist() == [1, 2]
    for _ in range(2):
        with refused("streams.live_id", row=2, column="k", id="1"):
            next(stream.batches(10))


# -- streams batches -------------------------------------------------------------------------------------------------
# Stream model ``batches`` by example: the ways of the published experiments, removal orders, what is refused.


def run(steps, n=100, **options):
    """Operations and ids of a whole stream, one array each."""
    stream = Batches(steps=steps, **options).make(MemorySource([Row(i, 0) for i in range(n)], (30,)))
    batches = list(stream.batches(7))
    assert stream.length() == sum(map(len, batches))
    return np.concatenate([b.op for b in batches]), np.concatenate([b.id for b in batches])


def sizes(op):
    """Active examples at each turn from inserts to deletes or back, and at the end."""
    active = np.cumsum(np.where(op == INSERT, 1, -1))
    return [*active[:-1][np.diff(op) != 0].tolist(), int(active[-1])]


def test_down_and_up_inserts_the_removed_rows_again_in_source_order():
    op, ids = run([1.0, 0.05, 1.0], removal_order="lifo")
    assert sizes(op) == [100, 5, 100]
    assert ids.tolist() == [*range(100), *range(99, 4, -1), *range(5, 100)]
    _, ids = run([50, 20, 90])
    assert ids.tolist() == [*range(50), *range(30), *range(30), *range(50, 90)]


@pytest.mark.parametrize(("n", "share", "size"), [(45, 0.1, 4), (55, 0.1, 6), (50, 0.57, 28), (10, 0.01, 0)])
def test_shares_are_rounded_half_to_even(n, share, size):
    assert sizes(run([1.0, share], n=n)[0]) == [n, size]


def test_rows_that_are_active_are_not_read_again():
    source = open_source(Sea(n=30_000))
    starts = []
    rows = source.rows
    source.rows = lambda start=0: starts.append(start) or rows(start)
    stream = Batches(steps=[0.5, 0.8, 1.0, 0.9, 0.95], removal_order="lifo").make(source)
    history = history_of(stream)
    assert starts == [0, 27_000]
    assert len(history.id) == 31_500


def test_csv_rows_are_counted_where_shares_need_it(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n" + "1,a\n2,b\n" * 10)
    for steps, n, length in (([0.5, 0.25], 20, 15), ([10, 5], None, None)):
        source = open_source(CsvFiles(path="t.csv"), tmp_path)
        stream = Batches(steps=steps).make(source)
        assert (source.n_rows, stream.length()) == (n, length)
        assert sum(map(len, stream.batches(100))) == 15


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"steps": []}, "batches.steps: too_short"),
        ({"steps": [1.5]}, "batches.steps.0: streams.step"),
        ({"steps": [0.0]}, "batches.steps.0: streams.step"),
        ({"steps": [-1]}, "batches.steps.0: streams.step"),
        ({"steps": ["10%"]}, "batches.steps.0: streams.step"),
        ({"steps": [True]}, "batches.steps.0: streams.step"),
        ({"steps": 10}, "batches.steps: list_type"),
        ({"steps": [10], "removal_order": "oldest"}, "batches.removal_order: literal_error"),
        ({"steps": [10], "warmup": 11}, "batches: streams.warmup_beyond_step"),
        ({"steps": [0.1, 1, 0.1]}, "batches: streams.mixed_steps"),
    ],
    ids=str,
)
def test_options_of_batches_that_are_refused(options, problem):
    assert refusal(OPTIONS, {"model": "batches", **options}) == problem


def test_shares_survive_a_round_trip():
    options = Batches(steps=[0.5, 1.0, 2, 0])
    again = OPTIONS.validate_json(options.model_dump_json())
    assert again == options
    assert [type(step) for step in again.steps] == [float, float, int, int]


def test_a_warm_up_ends_where_the_rows_run_out():
    with refused("streams.warmup_beyond_rows", warmup=11, first=10, rows=100):
        Batches(steps=[0.1, 1.0], warmup=11).make(open_source(Hyperplane(n=100)))
    stream = Batches(steps=[20, 5], warmup=15).make(MemorySource([Row(i, 0) for i in range(10)]))
    assert [(len(batch), batch.warmup) for batch in stream.batches(100)] == [(10, 15), (5, 10)]


# -- streams deletion log --------------------------------------------------------------------------------------------
#


def stream_of(tmp_path, log, rows=4, bad=(), source=None, **options):
    if isinstance(log, str):
        name = "log.csv"
        (tmp_path / name).write_text(log)
    else:
        name = "log.parquet"
        pq.write_table(pa.table(log), tmp_path / name)
    source = source or MemorySource([Row(10 + i, 0, bad=i in bad) for i in range(rows)], (100,))
    return DeletionLog(deletion_log=name, **options).make(source, tmp_path)


def sequence(stream):
    """Inserted ids as they are, deleted ones negative."""
    return [int(i) for b in stream.batches(3) for i in np.where(b.op == DELETE, -b.id, b.id)]


def test_deletions_take_effect_after_so_many_rows(tmp_path):
    log = "why,after,id\nx,2,11\nx,,10\nx,0,13\nx,2,12\nx,4,13\nx,99,11\n"
    stream = stream_of(tmp_path, log)
    assert stream.length() == 10
    assert sequence(stream) == [-13, 10, 11, -11, -12, 12, 13, -13, -11, -10]


@pytest.mark.parametrize(
    "after", [pa.array([1, None, 1], pa.uint8()), [1.0, None, 1.0], [1.0, float("nan"), 1.0]], ids=str
)
def test_positions_may_be_any_numbers(tmp_path, after):
    assert sequence(stream_of(tmp_path, {"id": [10, 10, 11], "after": after}, rows=2)) == [10, -10, -11, 11, -10]


@pytest.mark.parametrize(
    "log",
    ["id\n11\n10\n", {"id": [11, 10]}, {"id": [11, 10], "after": pa.nulls(2)}],
    ids=["no column, as text", "no column", "nulls"],
)
def test_without_positions_deletions_come_last(tmp_path, log):
    assert sequence(stream_of(tmp_path, log, rows=2)) == [10, 11, -11, -10]


def test_string_ids(tmp_path):
    pq.write_table(pa.table({"x": [1, 2, 3], "y": [0, 0, 0], "key": ["b", "a", "007"]}), tmp_path / "t.parquet")

    def source():
        return open_source(ParquetFiles(path="t.parquet", id="key"), tmp_path)

    log = "id,after\nb,1\n007,2\na,2\n007,\nnobody,\n"  # 007 is deleted before it comes: not known then
    assert sequence(stream_of(tmp_path, log, source=source())) == [0, 0, 1, 1, -1, 2, -2, 1]
    with refused("streams.other_ids", column="id", found="integers", wanted="text"):
        stream_of(tmp_path, {"id": [1]}, source=source())


@pytest.mark.parametrize("size", [1, 100])
def test_a_deletion_is_traced_to_its_row_of_the_log(tmp_path, size):
    table = pa.table({"x": [1, 2, 3], "y": [0, 0, 0], "key": ["b", "a", "007"]})
    pq.write_table(table, tmp_path / "t.parquet")
    source = open_source(ParquetFiles(path="t.parquet", id="key"), tmp_path)
    stream = stream_of(tmp_path, "id,after\nnobody,3\n007,1\nb,1\n", source=source)
    found = []
    for batch in stream.batches(size):
        for place, (op, row) in enumerate(zip(batch.op.tolist(), batch.row.tolist(), strict=True)):
            file, at = stream.where(row)
            found.append((op, file.rsplit("/", 1)[-1], at, batch.name(place)))
    assert found == [
        (INSERT, "t.parquet", 0, "b"),
        (DELETE, "log.csv", 1, "007"),  # which comes later
        (DELETE, "log.csv", 2, "b"),
        (INSERT, "t.parquet", 1, "a"),
        (INSERT, "t.parquet", 2, "007"),
        (DELETE, "log.csv", 0, "nobody"),
    ]


def test_text_ids_need_the_column_of_ids(tmp_path):
    with refused("streams.other_ids", found="text"):
        stream_of(tmp_path, "id,after\nalice,3\n", source=open_source(Sea(n=4)))


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        ("key,after\n1,2\n", ("no_id_column", "id", None)),
        ("id,after\n1,2\n,3\n", ("no_id", "id", 1)),
        ("id,after\nx,2\n", ("not_integer", "id", 0)),
        ("id,after\n1,2\n1,-1\n", ("not_position", "after", 1)),
        ("id,after\n1,2.5\n", ("not_position", "after", 0)),
        ("id,after\n1,soon\n", ("no_positions", "after", None)),
        ({"id": [1.0, 1.5]}, ("not_integer", "id", 1)),
        ({"id": [1], "after": ["1"]}, ("no_positions", "after", None)),
    ],
    ids=str,
)
@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_a_log_that_cannot_be_read_is_an_error(tmp_path, log, problem, on_error):
    name, column, row = problem
    with refused(f"streams.{name}", column=column, row=row):
        stream_of(tmp_path, log, on_error=on_error)


def test_two_columns_of_one_name_are_an_error(tmp_path):
    pq.write_table(pa.table([[10], [1], [2]], names=["id", "after", "after"]), tmp_path / "log.parquet")
    with refused("streams.repeated_column", column="after", what="deletion log"):
        DeletionLog(deletion_log="log.parquet").make(MemorySource([Row(10, 0)], (100,)), tmp_path)


def test_a_late_value_of_another_kind_is_an_error_too(tmp_path):
    filler = "".join(f"{i},{i}\n" for i in range(150_000))  # longer than the block that types come from
    for last, column, what in (("x,1", "id", "not_integer"), ("1,x", "after", "other_kind")):
        with refused(f"streams.{what}", row=150000, column=column, value="'x'", kind="integers"):
            stream_of(tmp_path, f"id,after\n{filler}{last}\n")


def test_the_format_is_told_by_the_name(tmp_path):
    (tmp_path / "log.txt").write_text("id\n1\n")
    with refused("files.unclear", InputError):
        DeletionLog(deletion_log="log.txt").make(MemorySource([]), tmp_path)
    with refused("files.nothing", InputError):
        DeletionLog(deletion_log="nowhere.csv").make(MemorySource([]), tmp_path)


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("bad", [(), (1,)])
def test_a_deletion_ends_the_warm_up(tmp_path, size, bad):
    """After as many rows as there are good ones before it."""
    log = "id,after\n11,4\n10,2\n"
    short, long = (stream_of(tmp_path, log, bad=bad, warmup=warmup, on_error="skip") for warmup in (2 - len(bad), 3))
    short_ops, long_ops = ([op for batch in one.batches(size) for op in batch.op.tolist()] for one in (short, long))
    assert short_ops == long_ops
    assert (long.warmup, long.state()["warmup"]) == (2 - len(bad), 2 - len(bad))


def test_a_deletion_before_the_warm_up_is_a_bad_row_of_the_log(tmp_path):
    log = "id,after\n11,0\n10,0\n10,2\n"
    with refused("streams.nothing_live", row=0, op="delete"):
        list(stream_of(tmp_path, log, warmup=3).batches(9))
    stream = stream_of(tmp_path, log, warmup=3, on_error="skip")
    assert sequence(stream) == [10, 11, -10, 12, 13]
    assert [(one.row, one.file.rpartition("/")[2]) for one in stream.take_skipped()] == [(0, "log.csv")] * 2


def test_a_log_that_changed_cannot_be_resumed(tmp_path):
    log = "id,after\n10,1\n11,2\n"
    stream = stream_of(tmp_path, log)
    next(stream.batches(2))
    state = stream.state()
    stream_of(tmp_path, log).restore(state)
    with refused("streams.changed_log"):
        stream_of(tmp_path, "id,after\n10,1\n12,2\n").restore(state)


# -- streams time window ---------------------------------------------------------------------------------------------
# Stream model ``time_window`` by example, its durations, and what is refused.

NOON = datetime(2024, 5, 31, 12)


def events(stream):
    """``+id`` for an insert, ``-id`` for a delete."""
    batches = list(stream.batches(3))
    return [f"{'-' if op == DELETE else '+'}{i}" for b in batches for op, i in zip(b.op, b.id, strict=True)]


def timed(times, **options):
    return TimeWindow(**options).make(MemorySource([Row(i, 0, ts=t) for i, t in enumerate(times)], (4,)))


def minutes(tmp_path, values, **options):
    """A stream over a file of rows so many minutes after noon."""
    when = [None if m is None else NOON + timedelta(minutes=m) for m in values]
    pq.write_table(
        pa.table({"x": np.zeros(len(values)), "y": ["a"] * len(values), "when": when}), tmp_path / "t.parquet"
    )
    return TimeWindow(**options).make(open_source(ParquetFiles(path="t.parquet", ts="when"), tmp_path))


def test_late_rows_and_rows_without_a_time_are_skipped(tmp_path):
    stream = minutes(tmp_path, [0, None, -1, 1, 0.5], duration="1h", on_error="skip")
    assert events(stream) == ["+0", "+3"]
    skipped = stream.take_skipped()
    assert [entry.row for entry in skipped] == [1, 2, 4]
    assert "no event time" in skipped[0].reason
    assert "its time is 30s before the latest so far, stream.lateness allows 0s" in text(skipped[2].reason)
    assert skipped[2].reason.endswith(". Sort the rows by time or raise stream.lateness")  # rows are skipped already
    assert skipped[0].reason.endswith(". Correct the file")


def test_integer_times_are_named_in_their_own_unit():
    stream = timed([100, 40], duration=70, lateness=50)
    with refused("streams.late_row", by="60", lateness="50"):
        list(stream.batches(10))


def test_a_warm_up_ends_before_the_first_deletion():
    stream = timed([0, 1, 20], duration=5, warmup=3)
    assert [(batch.op.tolist(), batch.warmup) for batch in stream.batches(10)] == [([0, 0], 3), ([1, 1, 0], 2)]


def test_units_and_column_must_fit(tmp_path):
    with refused("streams.duration_of_other_kind", column="when", what="points in time"):
        minutes(tmp_path, [0], duration=3600)
    with refused("streams.duration_of_other_kind", column="t", what="integers"):
        timed([0], duration="1h")
    with refused("sources.no_times", ConfigError):
        TimeWindow(duration=1).make(open_source(ParquetFiles(path="t.parquet", features=["x"]), tmp_path))
    with refused("sources.generated_times", ConfigError):
        TimeWindow(duration=1).make(open_source(Sea()))


def test_a_config_without_a_column_of_times_is_named(tmp_path):
    (tmp_path / "c.yaml").write_text(
        "source: {kind: csv, path: t.csv}\nstream: {model: time_window, duration: 1h}\nlearner: {kind: fudyadt}\n"
    )
    with refused("configs.no_times", ConfigError) as caught:
        load_config(tmp_path / "c.yaml")
    assert "c.yaml: " in str(caught.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "time_window.duration: missing"),
        ({"duration": 0}, "time_window: streams.no_duration"),
        ({"duration": "0s"}, "time_window: streams.no_duration"),
        (
            {"duration": -1},
            "time_window.duration.constrained-int: greater_than_equal; time_window.duration.str: string_type",
        ),
        ({"duration": 1.5}, "time_window.duration: streams.time_or_number"),
        ({"duration": True}, "time_window.duration: streams.time_or_number"),
        ({"duration": "3600"}, "time_window.duration: streams.time_or_number"),
        ({"duration": "1y"}, "time_window.duration: streams.time_or_number"),
        ({"duration": "1h30"}, "time_window.duration: streams.time_or_number"),
        ({"duration": "-1h"}, "time_window.duration: streams.time_or_number"),
        ({"duration": "1 H"}, "time_window.duration: streams.time_or_number"),
        ({"duration": ""}, "time_window.duration: streams.time_or_number"),
        ({"duration": "0.5us"}, "time_window.duration: streams.whole_microseconds"),
        ({"duration": "9" * 30 + "d"}, "time_window.duration: streams.longest_time"),
        ({"duration": "1h", "lateness": 5}, "time_window: streams.mixed_units"),
        ({"duration": 100, "lateness": "5m"}, "time_window: streams.mixed_units"),
        ({"duration": "1h", "lateness": "60m"}, "time_window: streams.lateness_beyond_duration"),
        ({"duration": 10, "lateness": 10}, "time_window: streams.lateness_beyond_duration"),
    ],
    ids=str,
)
def test_options_of_windows_that_are_refused(options, problem):
    assert refusal(OPTIONS, {"model": "time_window", **options}) == problem


@pytest.mark.parametrize(
    ("text", "length", "spelling"),
    [
        ("90m", 5_400_000_000, "1h30m"),
        ("1h30min", 5_400_000_000, "1h30m"),
        (" 1.5 h ", 5_400_000_000, "1h30m"),
        ("1d 1us", 86_400_000_001, "1d1us"),
        ("1500ms", 1_500_000, "1s500ms"),
        ("30m1h", 5_400_000_000, "1h30m"),
    ],
)
def test_durations(text, length, spelling):
    assert microseconds(text) == length
    assert spelled(length) == spelling
    assert TimeWindow(duration=text) == TimeWindow(duration=spelling)
    assert OPTIONS.validate_json(TimeWindow(duration=text).model_dump_json()).duration == spelling


@given(st.integers(0, 2**62))
def test_a_spelling_reads_back(length):
    assert microseconds(spelled(length)) == length


def test_the_config_hash_does_not_depend_on_the_spelling():
    config = {"source": {"kind": "parquet", "path": "t", "ts": "t"}, "learner": {"kind": "fudyadt"}}
    window = {"model": "time_window", "duration": "1h", "lateness": "0s"}
    one = load_config({**config, "stream": window})
    assert (
        load_config({**config, "stream": {**window, "duration": "60min", "lateness": 0}}).model_hash()
        == one.model_hash()
    )
    assert load_config({**config, "stream": {**window, "duration": "61m"}}).model_hash() != one.model_hash()
    assert load_config(one.resolved()) == one


# A window that follows the stream. What the scouts choose is compared with a twin in test_streams_sequence.


def _of_concepts(n: int, length: int, seed: int = 0) -> list[Row]:
    """Rows whose label says on which side of a threshold x is, or the contrary in every second stretch."""
    rng = np.random.default_rng(seed)
    return [
        Row(id=i, label=int((x > 0) == (i // length % 2 == 0)), x=float(x)) for i, x in enumerate(rng.normal(size=n))
    ]


def _windows(data: list[Row], warmup: int = 0) -> tuple[list[int], Any]:
    """Return the number of live rows after each 128 rows, and the stream at its end."""
    stream = AdaptiveWindow(warmup=warmup).make(MemorySource(data, (1000,)))
    live, rows, sizes = 0, 0, []
    for batch in stream.batches(50):
        for op in batch.op.tolist():
            live += 1 if op == INSERT else -1
            rows += op == INSERT
            if op == INSERT and rows % 128 == 0:
                sizes.append(live)
    return sizes, stream


def test_nothing_is_deleted_while_the_stream_stays_the_same() -> None:
    sizes, stream = _windows(_of_concepts(4000, 10_000))
    assert sizes == [128 * (k + 1) for k in range(len(sizes))]
    figures = stream.figures()["adaptive_window"]
    assert (figures["window"], figures["changes"], figures["rows"]) == (None, 0, 4000)
    assert figures["chosen_right"] == figures["right"]["16384"] > 3900


def test_the_window_is_cut_where_the_stream_changes_and_no_row_is_deleted_within_the_warmup() -> None:
    sizes, stream = _windows(_of_concepts(4000, 1000))
    assert min(sizes[8:]) <= 256 < max(sizes)
    figures = stream.figures()["adaptive_window"]
    assert figures["chosen_right"] > figures["right"]["16384"] + 300
    assert figures["regret"] == max(figures["right"].values()) - figures["chosen_right"]
    late, _ = _windows(_of_concepts(4000, 1000), warmup=3000)
    assert late[: 3000 // 128] == [128 * (k + 1) for k in range(3000 // 128)]
    assert late[-1] < 1024


def test_scouts_forget_what_a_request_deletes_although_it_has_left_the_window() -> None:
    """The state has no trace of the example, and the scouts go on as if the row had been deleted from each."""
    data = _of_concepts(3000, 1000)
    data[1500] = dataclasses.replace(data[1500], x=123.456)
    _, stream = _windows(data)
    with_row, names = stream.state(), {"source": {}}
    assert any((array == 123.456).any() for array in with_row.values() if isinstance(array, np.ndarray))
    stream.follow_update(np.array([1500]), np.empty(0, dtype=np.int64), 1, names, 2)
    state = stream.state()
    assert not any((array == 123.456).any() for array in state.values() if isinstance(array, np.ndarray))
    assert 1500 not in state["scouts:known"][:, 1]
    assert len(state["scouts:known"]) == 2999


def test_numbers_are_told_apart_by_quartiles_and_with_indices_all_rows_stay() -> None:
    class Numbers(MemorySource):
        target_dtype = NUMBERS

        def rows(self, start: int = 0) -> Iterator[Rows]:
            for rows in super().rows(start):
                yield dataclasses.replace(rows, y=rows.X[:, 0] * (1.0 if rows.row[0] < 2000 else -1.0))

    stream = AdaptiveWindow().make(Numbers(_of_concepts(4000, 10_000), (1000,)))
    deletes = sum(int((batch.op == DELETE).sum()) for batch in stream.batches(100))
    assert deletes > 1000
    source = MemorySource([Row(id=i, label=0) for i in range(300)])
    source.features = Features(("x",), (False,), sparse=5)
    stream = AdaptiveWindow().make(source)
    batches = list(stream.batches(100))
    assert stream.figures()["adaptive_window"]["right"] == {}
    assert [len(batch) for batch in batches] == [100, 100, 100]
    assert not any((batch.op == DELETE).any() for batch in batches)
    assert stream.length() == 300  # without scouts nothing is deleted


def test_a_stream_that_has_ended_lets_go_of_rows_that_are_not_live() -> None:
    data = _of_concepts(3000, 1000)
    data[700] = dataclasses.replace(data[700], x=123.456)
    _, stream = _windows(data)
    figures = stream.figures()
    assert stream.length() == 6000
    assert 700 not in stream.state()["active"]
    stream.let_go()
    state = stream.state()
    assert not any((array == 123.456).any() for array in state.values() if isinstance(array, np.ndarray))
    assert figures["adaptive_window"]["rows"] == 3000
    again = AdaptiveWindow().make(MemorySource(data, (1000,)))
    again.restore(state)
    assert next(again.batches(10), None) is None
