"""Stream models by example: what is refused, where a bad row stops, lengths, and large windows."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from raydt.errors import InputError
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles, ParquetFiles, Sea
from raydt.streams.deletion_log import Changelog, RandomUpdates, warmup
from raydt.streams.options import StreamOptions, make_stream
from raydt.streams.windows import Batches, Incremental, SlidingWindow
from tests.oracles.streams import MemorySource, Row
from tests.refusals import refusal, refused

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


def test_options_survive_a_round_trip():
    for options in (Incremental(warmup=3), SlidingWindow(), RandomUpdates(insert_probability=1), Changelog()):
        assert OPTIONS.validate_json(options.model_dump_json()) == options


def test_source_and_model_must_fit():
    with refused("streams.no_changelog"):
        make_stream(Changelog(), MemorySource([]))
    for options in (Incremental(), SlidingWindow(), RandomUpdates()):
        with refused("streams.changelog_source"):
            make_stream(options, MemorySource([], changelog=True))


def test_a_stream_needs_labels():
    source = MemorySource([])
    source.has_labels = False
    with refused("streams.no_label_column"):
        make_stream(Incremental(), source)


def test_lengths():
    data = [Row(i, 0) for i in range(7)]
    assert make_stream(Incremental(), MemorySource(data)).length() == 7
    assert make_stream(SlidingWindow(window=9), MemorySource(data)).length() == 7
    assert make_stream(RandomUpdates(), MemorySource(data)).length() is None
    source = MemorySource(data)
    source.n_rows = None
    assert make_stream(SlidingWindow(), source).length() is None


@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_everything_before_a_file_breaks_off_is_kept(tmp_path, on_error):
    table = pa.table({"x": np.arange(100.0), "y": np.zeros(100, dtype=np.int8)})
    with pa.ipc.new_stream(str(tmp_path / "t.arrows"), table.schema) as writer:
        for batch in table.to_batches(max_chunksize=10):
            writer.write_batch(batch)
    content = (tmp_path / "t.arrows").read_bytes()
    (tmp_path / "t.arrows").write_bytes(content[: len(content) - 200])
    stream = make_stream(Incremental(on_error=on_error), open_source(ArrowFiles(path="t.arrows"), tmp_path))
    batches = stream.batches(64)
    assert [len(next(batches)), len(next(batches))] == [64, 26]
    with refused("files.unreadable_from", InputError, file=str(tmp_path / "t.arrows"), row=90, kind="arrow"):
        next(batches)
    assert stream.state()["seq"] == 90


@pytest.mark.parametrize("size", [1, 100])
def test_a_warm_up_ends_before_what_is_no_insert(size):
    stream = make_stream(Changelog(warmup=3), MemorySource(INSERTS_AND_A_DELETE, (10,), changelog=True))
    told = [(batch.start, batch.warmup, batch.ends_warmup) for batch in stream.batches(size)]
    one_by_one = [(0, 3, False), (1, 3, False), (2, 2, True), (3, 2, False)]
    assert told == (one_by_one if size == 1 else [(0, 3, False), (2, 2, True)])
    assert (stream.warmup, stream.planned_warmup, stream.state()["warmup"]) == (2, 3, 2)
    again = make_stream(Changelog(warmup=3), MemorySource(INSERTS_AND_A_DELETE, (10,), changelog=True))
    again.restore(stream.state())
    assert again.warmup == 2
    fits = make_stream(Changelog(warmup=2), MemorySource(INSERTS_AND_A_DELETE, (10,), changelog=True))
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
    stream = make_stream(Changelog(on_error="skip"), source)
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
        for batch in make_stream(options, open_source(Sea(n=50_000))).batches(4096):
            dtypes = (np.int8, np.int64, np.float64, np.int32, np.int64)
            for array, dtype in zip((batch.op, batch.id, batch.X, batch.y, batch.row), dtypes, strict=True):
                assert array.dtype == dtype
                assert array.flags.c_contiguous
                assert array.flags.writeable


def test_a_live_id_stops_the_stream_each_time_it_is_asked():
    data = [Row(1, 0), Row(2, 0), Row(1, 0), Row(3, 0)]
    stream = make_stream(SlidingWindow(window=5), MemorySource(data, (3,)))
    assert next(stream.batches(10)).id.tolist() == [1, 2]
    for _ in range(2):
        with refused("streams.live_id", row=2, column="k", id="1"):
            next(stream.batches(10))
