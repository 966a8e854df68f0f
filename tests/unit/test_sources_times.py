"""Event times: which columns can hold them, their values, and that they cost nothing until they are required."""

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.encoding.columns import LARGEST_TIME, times
from raydt.sources.divided import open_source
from raydt.sources.options import CsvFiles

EPOCH = datetime(1970, 1, 1)
HOUR = 3_600_000_000


def csv(tmp_path, values, **options):
    lines = [f"{value},{place},a\n" for place, value in enumerate(values)]
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "t.csv").write_text("t,x,y\n" + "".join(lines))
    return open_source(CsvFiles(path="t.csv", ts="t", **options), tmp_path)


def read(source):
    """Times over all chunks, and the error of each bad row."""
    ts, bad = [], {}
    for rows in source.rows():
        bad.update({rows.start + place: error for place, error in rows.bad.items()})
        assert rows.ts.dtype == np.int64
        ts += rows.ts.tolist()
    return ts, bad


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**62) - 1, 2**62 + 1) | st.none(), min_size=1))
def test_no_time_overflows(raw):
    for kind, factor in ((pa.int64(), 1), (pa.timestamp("s"), 10**6), (pa.timestamp("ms"), 1000)):
        found, too_large = times(pa.array(raw, pa.int64()).cast(kind))
        for place, value in enumerate(raw):
            beyond = value is not None and abs(value * factor) > LARGEST_TIME
            assert (too_large is not None and bool(too_large[place])) == beyond
            assert found[place] == (0 if value is None or beyond else value * factor)


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
    assert (bad[0].row, bad[0].column, bad[0].message.id) == (0, "t", "rows.not_kind")


@pytest.mark.parametrize("zoned", [5, 6, 9])
def test_csv_times_with_and_without_a_zone_do_not_mix(tmp_path, zoned):
    """The same instant is meant by neither reading, so the rarer ones are bad rows, whatever stands first."""
    values = [f"2024-05-31 {hour:02}:00{'Z' * (hour < zoned)}" for hour in range(10)][::-1]
    source = csv(tmp_path, values)
    source.require_ts()
    _, bad = read(source)
    wrong, kind = (range(5, 10), "without a zone") if zoned == 5 else (range(10 - zoned), "with a zone")
    assert sorted(bad) == list(wrong)
    assert all(error.message.parameters["kind"].startswith(f"times {kind}") for error in bad.values())
