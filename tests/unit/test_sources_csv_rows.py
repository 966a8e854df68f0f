"""CSV rows of another length, with bytes that are not UTF-8, or longer than a block: what becomes of them."""

import pytest

from raydt.errors import InputError
from raydt.sources.divided import open_source
from raydt.sources.options import CsvFiles
from tests.refusals import refused


def csv(tmp_path, text, **options):
    (tmp_path / "t.csv").write_text(text)
    return open_source(CsvFiles(path="t.csv", **options), tmp_path)


def one(source):
    (rows,) = source.rows()
    return rows


def test_rows_around_ragged_ones_keep_their_places(tmp_path):
    n, ragged = 120_000, {0, 1, 77_777, 119_998, 119_999}  # blocks of Arrow's reader end in between
    lines = ["7" if i in ragged else f"{i},{i % 2}" for i in range(n)]
    text = "a,y\n" + "\n\n".join(lines) + "\n"  # empty lines are no rows
    for start in (0, 1, 2, 77_777, 119_999):
        read = [
            (rows.start + i, rows.X[i, 0], i in rows.bad)
            for rows in csv(tmp_path, text).rows(start)
            for i in range(len(rows))
        ]
        assert [row for row, _, _ in read] == list(range(start, n))
        assert {row for row, _, bad in read if bad} == {row for row in ragged if row >= start}
        assert all(x == row for row, x, bad in read if not bad)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Arrow's, of the same row
@pytest.mark.parametrize("before", [1, 300_000])
def test_a_row_of_another_length_that_is_not_utf8_is_named(tmp_path, before):
    (tmp_path / "t.csv").write_bytes(b"a,s,y\n\n" + b"2,v,1\n" * before + b"3,gr\xfcn\n4,w,0\n")
    read: list[int] = []
    with refused("rows.undecoded_length", InputError, values=2, columns=3, row=before, file=str(tmp_path / "t.csv")):
        read.extend(len(rows) for rows in open_source(CsvFiles(path="t.csv"), tmp_path).rows())
    assert bool(read) == (before > 1), "rows of the blocks before are kept"


def test_rows_and_headers_longer_than_a_block(tmp_path):
    long = "x" * 700_000
    source = csv(tmp_path, f"a,s,t,y\n1,{long},{long},0\n2,u,v,1\n")
    assert [len(rows) for rows in source.rows()] == [2]
    names = [f"column{i:0150}" for i in range(10_000)]
    source = csv(tmp_path, ",".join([*names, "y"]) + "\n" + ",".join(["1"] * 10_001) + "\n")
    assert len(source.features) == 10_000


@pytest.mark.parametrize(
    ("values", "bad"), [(["1", "2", "x"], [2]), (["1", "x", "z"], []), (["1", "", "x", "2"], [1, 2])]
)
def test_a_column_with_more_numbers_than_texts_is_one_of_numbers(tmp_path, values, bad):
    source = csv(tmp_path, "a,s,y\n" + "".join(f"{value},u,0\n" for value in values))
    assert source.features.categorical == (not bad, True)
    assert sorted(one(source).bad) == bad
    same = csv(tmp_path, "a,s,y\n" + "".join(f"{value},u,0\n" for value in values if value), categorical=["a"])
    assert not one(same).bad
