"""Event times: which columns can hold them, their values, and that they cost nothing until they are required."""

from datetime import date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.encoding.times import LARGEST_TIME, times
from raydt.errors import ConfigError, InputError
from raydt.sources import CsvFiles, ParquetFiles, Sea, open_source

EPOCH = datetime(1970, 1, 1)
HOUR = 3_600_000_000


def parquet(tmp_path, *columns, **options):
    for number, column in enumerate(columns):
        table = pa.table({"x": np.arange(float(len(column))), "y": ["a"] * len(column)})
        if column.type != pa.null():
            table = table.append_column("t", column)
        pq.write_table(table, tmp_path / f"{number}.parquet")
    return open_source(ParquetFiles(path=str(tmp_path), features=["x"], ts="t", **options))


def csv(tmp_path, values, **options):
    lines = [f"{value},{place},a\n" for place, value in enumerate(values)]
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "t.csv").write_text("t,x,y\n" + "".join(lines))
    return open_source(CsvFiles(path="t.csv", ts="t", **options), tmp_path)


def read(source):
    """Times over all chunks, and the message of each bad row."""
    ts, bad = [], {}
    for rows in source.rows():
        bad.update({rows.start + place: str(error) for place, error in rows.bad.items()})
        assert rows.ts.dtype == np.int64
        ts += rows.ts.tolist()
    return ts, bad


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, -1], pa.timestamp("s")), [10**6, -(10**6)]),
        (pa.array([1, -1], pa.timestamp("ms", "UTC")), [1000, -1000]),
        (pa.array([1, -1], pa.timestamp("us", "Europe/Paris")), [1, -1]),
        (pa.array([1999, -1], pa.timestamp("ns")), [1, -1]),  # rounded down, also before 1970
        (pa.array([1, -1], pa.date32()), [24 * HOUR, -24 * HOUR]),
        (pa.array([date(1970, 1, 2)], pa.date64()), [24 * HOUR]),
        (pa.array([5, -5], pa.int8()), [5, -5]),
        (pa.array([5, LARGEST_TIME], pa.uint64()), [5, LARGEST_TIME]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values(tmp_path, column, expected):
    source = parquet(tmp_path, column)
    assert source.require_ts().kind == ("integer" if pa.types.is_integer(column.type) else "timestamp")
    assert read(source) == (expected, {})


@given(st.lists(st.datetimes(), min_size=1), st.sampled_from(["us", "ms", "s", "ns"]))
def test_timestamps_are_those_of_python(values, unit):
    if unit == "ns":
        values = [v.replace(year=1900 + v.year % 300, day=min(v.day, 28)) for v in values]
    step = {"us": 1, "ms": 1000, "s": 10**6, "ns": 1}[unit]
    column = pa.array(values, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
    found, too_large = times(column)
    exact = [(value - EPOCH) // timedelta(microseconds=1) for value in values]
    assert too_large is None
    assert all(abs(a - b) < step for a, b in zip(found.tolist(), exact, strict=True))
    assert found.tolist() == exact or step > 1


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**62) - 1, 2**62 + 1) | st.none(), min_size=1))
def test_no_time_overflows(raw):
    for kind, factor in ((pa.int64(), 1), (pa.timestamp("s"), 10**6), (pa.timestamp("ms"), 1000)):
        found, too_large = times(pa.array(raw, pa.int64()).cast(kind))
        for place, value in enumerate(raw):
            beyond = value is not None and abs(value * factor) > LARGEST_TIME
            assert (too_large is not None and bool(too_large[place])) == beyond
            assert found[place] == (0 if value is None or beyond else value * factor)


def test_nothing_happens_until_they_are_required(tmp_path):
    column = pa.array([1, None, 2**62 + 1], pa.int64())
    source = parquet(tmp_path, column)
    (rows,) = source.rows()
    assert rows.ts is None
    assert not rows.bad
    assert source.require_ts() == source.require_ts() == ("t", "integer")
    (rows,) = source.rows()
    assert sorted(rows.bad) == [1, 2]
    assert rows.ts[0] == 1
    message = str(rows.bad[1])
    assert message.startswith(f"{tmp_path}/0.parquet, row 1, column 't': no event time. ")
    assert "on_error: skip" in message
    assert f"an event time beyond {2**62} in size" in str(rows.bad[2])
    assert source.state()["labels"] == {"classes": ["a"]}


def test_a_row_without_a_time_leaves_no_trace(tmp_path):
    table = pa.table({"s": ["p", "q"], "y": ["u", "v"], "t": pa.array([1, None])})
    pq.write_table(table, tmp_path / "t.parquet")
    source = open_source(ParquetFiles(path="t.parquet", ts="t"), tmp_path)
    source.require_ts()
    list(source.rows())
    assert (source.classes, source.state()["categories"]) == (["u"], {"s": ["p"]})


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1.0]), "floating-point numbers"),
        (pa.array(["2024-01-01"]), "text"),
        (pa.array(["2024-01-01"]).dictionary_encode(), "text"),
        (pa.array([True]), "truth values"),
        (pa.array([1], pa.duration("s")), r"dates or times \(duration\[s\]\)"),
        (pa.array([1], pa.time32("s")), r"dates or times \(time32\[ms\]\)"),
        (pa.array([[1]]), r"lists or records \(list"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_other_types_are_refused(tmp_path, column, words):
    source = parquet(tmp_path, column)
    assert len(next(source.rows())) == 1
    with pytest.raises(InputError, match=rf"column 't': it holds {words}.*but event times are .*Convert it"):
        source.require_ts()


def test_a_source_without_times(tmp_path):
    with pytest.raises(ConfigError, match=r"source\.ts is not set"):
        open_source(ParquetFiles(path=str(parquet(tmp_path, pa.array([1]))._files[0].name))).require_ts()
    with pytest.raises(ConfigError, match="generated rows have none"):
        open_source(Sea()).require_ts()


def test_files_must_agree(tmp_path):
    source = parquet(tmp_path, pa.array([1], pa.timestamp("s")), pa.array([EPOCH], pa.timestamp("ns", "UTC")))
    source.require_ts()
    assert read(source) == ([10**6, 0], {})
    source = parquet(tmp_path, pa.array([1]), pa.array([EPOCH]))
    with pytest.raises(
        InputError, match=r"1\.parquet, column 't': it holds times without a zone .*, but integers .*0\.parquet"
    ):
        source.require_ts()
    source = parquet(tmp_path, pa.array([1]), pa.nulls(1))
    with pytest.raises(InputError, match=r"1\.parquet, column 't': this column is missing here"):
        source.require_ts()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1970-01-02", "1970-01-03 01:00"], [24 * HOUR, 49 * HOUR]),
        (["1970-01-01 01:00:00", "1970-01-01T00:00:00.5"], [HOUR, 500_000]),
        (["1970-01-01T01:00:00Z", "1970-01-01 01:00:00+02:00"], [HOUR, -HOUR]),
        (["1970-01-01 00:00:00.000001999", "1970-01-01"], [1, 0]),
        (["1970-01-01 00:00:00.0000019999999", "9999-12-31"], [1, 253_402_214_400_000_000]),
        ([7, -3], [7, -3]),
    ],
)
def test_csv(tmp_path, values, expected):
    source = csv(tmp_path, values)
    source.require_ts()
    assert read(source) == (expected, {})


def test_csv_values_of_another_kind_make_bad_rows(tmp_path):
    source = csv(
        tmp_path, ["2024-05-31 12:00:00", *["2024-05-31 13:00:00"] * 80_000, "soon", "", " 2024-05-31 13:00:00.5"]
    )
    source.require_ts()
    ts, bad = read(source)
    noon = (datetime(2024, 5, 31, 12, tzinfo=timezone.utc).timestamp()) * 10**6
    assert ts[:2] == [noon, noon + HOUR]
    assert sorted(bad) == [80_001, 80_002]
    assert ts[-1] == noon + HOUR + 500_000  # finer than the type of the first rows
    assert "'soon' is not of the kind of the first rows (times without a zone" in bad[80_001]
    assert "no event time" in bad[80_002]


@pytest.mark.parametrize(
    "good", ["2024-05-31 12:00:00", "2024-05-31", "2024-05-31T12:00:00Z", "2024-05-31 12:00:00.123456789", "17"]
)
def test_a_bad_value_among_the_first_csv_rows_is_a_bad_row(tmp_path, good):
    source = csv(tmp_path, ["soon", good, good, ""])
    clean = csv(tmp_path / "clean", [good, good])
    assert source.require_ts() == clean.require_ts()
    ts, bad = read(source)
    assert ts[1:3] == read(clean)[0]
    assert sorted(bad) == [0, 3]
    assert "row 0, column 't': 'soon' is not of the kind of the first rows" in bad[0]


def test_csv_text_is_refused_with_a_remedy(tmp_path):
    source = csv(tmp_path, ["31.5.2024", "soon"])
    with pytest.raises(InputError, match=r"it holds text, .*text as 2024-05-31 12:00:00 is read as a timestamp"):
        source.require_ts()


@pytest.mark.parametrize("zoned", [5, 6, 9])
def test_csv_times_with_and_without_a_zone_do_not_mix(tmp_path, zoned):
    """The same instant is meant by neither reading, so the rarer ones are bad rows, whatever stands first."""
    values = [f"2024-05-31 {hour:02}:00{'Z' * (hour < zoned)}" for hour in range(10)][::-1]
    source = csv(tmp_path, values)
    source.require_ts()
    _, bad = read(source)
    wrong, kind = (range(5, 10), "without a zone") if zoned == 5 else (range(10 - zoned), "with a zone")
    assert sorted(bad) == list(wrong)
    assert all(f"is not of the kind of the first rows (times {kind}" in text for text in bad.values())
