"""Event times of every file kind, unit, zone and year: Python's datetime says what each is in microseconds.

Drawn over the whole range of the calendar (years 1 to 9999), before and after what nanoseconds in 64 bits can hold.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from raydt.encoding.columns import LARGEST_TIME
from raydt.examples.updates import DELETE, INSERT
from raydt.redaction import text
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles, CsvFiles, ParquetFiles
from raydt.streams.windows import TimeWindow
from tests.volume import examples

EPOCH = datetime(1970, 1, 1)
#: Steps of each unit in a microsecond's thousandths, so that nothing is rounded here.
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
#: What 64 bits of nanoseconds hold.
NS_RANGE = datetime(1677, 9, 22), datetime(2262, 4, 11)
ZONES = [None, "UTC", "Europe/Paris", "Asia/Kathmandu", "-05:30"]
WHEN = st.datetimes() | st.sampled_from(
    [datetime.min, datetime.max, *NS_RANGE, datetime(9999, 12, 31), datetime(1600, 2, 29), EPOCH]
)
ROWS = st.lists(st.tuples(WHEN, st.integers(0, 999)), min_size=1, max_size=8)


def micros(when: datetime) -> int:
    return (when - EPOCH) // timedelta(microseconds=1)


def table_of(times: pa.Array) -> pa.Table:
    return pa.table({"x": pa.array([float(i) for i in range(len(times))]), "y": ["a"] * len(times), "t": times})


def read(source: Any) -> list[int]:
    assert source.require_ts().kind == "timestamp"
    found = []
    for rows in source.rows():
        assert not rows.bad, [str(error) for error in rows.bad.values()]
        found += rows.ts.tolist()
    return found


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS, st.sampled_from(list(NANOSECONDS)), st.sampled_from(ZONES), st.data())
def test_typed_times(
    tmp_path: Path, rows: list[tuple[datetime, int]], unit: str, zone: str | None, data: st.DataObject
) -> None:
    if unit == "ns":
        rows = [(min(max(when, NS_RANGE[0]), NS_RANGE[1]), more) for when, more in rows]
    kind = data.draw(st.sampled_from(["parquet", "int96", "1.0", "arrow", "stream", "date32", "date64"]))
    if kind == "1.0":  # has no nanoseconds: Arrow cuts them off when it writes, towards zero
        rows = [(when, 0) for when, _ in rows]
    exact = [micros(when) * 1000 + more for when, more in rows]
    column = pa.array([value // NANOSECONDS[unit] for value in exact], pa.int64()).cast(pa.timestamp(unit, zone))
    wanted = [value // NANOSECONDS[unit] * NANOSECONDS[unit] // 1000 for value in exact]
    if kind.startswith("date"):
        column = pa.array([when.date() for when, _ in rows], pa.date32()).cast(getattr(pa, kind)())
        wanted = [micros(datetime(when.year, when.month, when.day)) for when, _ in rows]
    table = table_of(column)
    if kind in ("arrow", "stream"):
        path = tmp_path / "t.arrow"
        with (pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream)(path, table.schema) as writer:
            writer.write_table(table)
        assert read(open_source(ArrowFiles(path=str(path), features=["x"], ts="t"))) == wanted
        return
    more: dict[str, Any] = {"version": "1.0"} if kind == "1.0" else {"store_schema": data.draw(st.booleans())}
    if kind == "1.0" and unit == "ns":
        more |= {"coerce_timestamps": "us", "allow_truncated_timestamps": True}
    if kind == "int96":
        more["use_deprecated_int96_timestamps"] = True
    pq.write_table(table, tmp_path / "t.parquet", **more)
    assert read(open_source(ParquetFiles(path=str(tmp_path / "t.parquet"), features=["x"], ts="t"))) == wanted


#: How a text writes a point in time: offset from UTC in minutes, or none, and how.
OFFSETS = st.sampled_from([None, "Z", "+00:00", "+02:00", "-0530", "+14"])


def offset_minutes(text: str | None) -> int:
    if text in (None, "Z"):
        return 0
    assert text is not None
    digits = text[1:].replace(":", "").ljust(4, "0")
    return (1 if text[0] == "+" else -1) * (60 * int(digits[:2]) + int(digits[2:]))


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS, st.booleans(), st.data())
def test_times_as_text(tmp_path: Path, rows: list[tuple[datetime, int]], zoned: bool, data: st.DataObject) -> None:
    """Of any fineness, whatever that of the first rows: a CSV file has no unit."""
    texts, wanted = [], []
    for when, more in rows:
        digits = data.draw(st.integers(0, 9))
        offset = data.draw(OFFSETS.filter(bool)) if zoned else None
        fraction = f"{when.microsecond:06}{more:03}"[:digits]
        text = f"{when:%m-%d}{data.draw(st.sampled_from(' T'))}{when:%H:%M:%S}"
        texts.append(f"{when.year:04}-{text}{'.' * bool(digits)}{fraction}{offset or ''}")
        seen = when.replace(microsecond=int(fraction.ljust(9, "0")[:6]))
        wanted.append(micros(seen) - offset_minutes(offset) * 60_000_000)
    lines = [f"{i},{text},a\n" for i, text in enumerate(texts)]
    (tmp_path / "t.csv").write_text("x,t,y\n" + "".join(lines), encoding="utf-8")
    assert read(open_source(CsvFiles(path=str(tmp_path / "t.csv"), ts="t"))) == wanted


@pytest.mark.parametrize("kind", ["int96", "us", "csv"])
def test_a_time_window_keeps_what_never_ends(kind: str, tmp_path: Path) -> None:
    """The year 9999, which stands for "no end" in many tables, is the latest time and not one of 1816."""
    times = [datetime(2024, 5, 1), datetime(2024, 5, 2), datetime(9999, 12, 31)]
    table = table_of(pa.array(times, pa.timestamp("us")))
    if kind == "csv":
        (tmp_path / "t.csv").write_text("x,t,y\n" + "".join(f"{i},{t},a\n" for i, t in enumerate(times)))
        source = open_source(CsvFiles(path=str(tmp_path / "t.csv"), ts="t"))
    else:
        pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=kind == "int96")
        source = open_source(ParquetFiles(path=str(tmp_path / "t.parquet"), features=["x"], ts="t"))
    (batch,) = TimeWindow(duration="2d").make(source).batches(10)
    assert batch.op.tolist() == [INSERT, INSERT, DELETE, DELETE, INSERT]


def test_the_largest_times_are_compared_exactly(tmp_path: Path) -> None:
    times = pa.array([LARGEST_TIME, -LARGEST_TIME], pa.int64())
    pq.write_table(table_of(times), tmp_path / "t.parquet")
    source = open_source(ParquetFiles(path=str(tmp_path / "t.parquet"), features=["x"], ts="t"))
    stream = TimeWindow(duration=5, lateness=4, on_error="skip").make(source)
    assert sum(len(batch) for batch in stream.batches(10)) == 1
    (late,) = stream.take_skipped()
    assert f"its time is {2 * LARGEST_TIME} before the latest" in text(late.reason)
