"""Stream model ``time_window`` by example, its durations, and what is refused."""

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from pipelines import load_config
from raydt.errors import ConfigError
from raydt.examples.updates import DELETE
from raydt.redaction import text
from raydt.sources.divided import open_source
from raydt.sources.options import ParquetFiles, Sea
from raydt.streams.base import microseconds, spelled
from raydt.streams.options import StreamOptions, make_stream
from raydt.streams.windows import TimeWindow
from tests.oracles.streams import MemorySource, Row
from tests.refusals import refusal, refused

OPTIONS = TypeAdapter(StreamOptions)
NOON = datetime(2024, 5, 31, 12)


def events(stream):
    """``+id`` for an insert, ``-id`` for a delete."""
    batches = list(stream.batches(3))
    return [f"{'-' if op == DELETE else '+'}{i}" for b in batches for op, i in zip(b.op, b.id, strict=True)]


def timed(times, **options):
    return make_stream(TimeWindow(**options), MemorySource([Row(i, 0, ts=t) for i, t in enumerate(times)], (4,)))


def minutes(tmp_path, values, **options):
    """A stream over a file of rows so many minutes after noon."""
    when = [None if m is None else NOON + timedelta(minutes=m) for m in values]
    pq.write_table(
        pa.table({"x": np.zeros(len(values)), "y": ["a"] * len(values), "when": when}), tmp_path / "t.parquet"
    )
    return make_stream(TimeWindow(**options), open_source(ParquetFiles(path="t.parquet", ts="when"), tmp_path))


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
        make_stream(TimeWindow(duration=1), open_source(ParquetFiles(path="t.parquet", features=["x"]), tmp_path))
    with refused("sources.generated_times", ConfigError):
        make_stream(TimeWindow(duration=1), open_source(Sea()))


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
def test_options_that_are_refused(options, problem):
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
