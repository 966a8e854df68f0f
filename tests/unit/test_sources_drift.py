"""Sources of several files that differ: what is harmless, what is one error; and files that change under the reader."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from raydt.errors import InputError
from raydt.parallel import limited
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles, CsvFiles, ParquetFiles
from tests.refusals import refused

FIRST = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "n": pa.array([3, 4], pa.int32()),
        "s": pa.array(["p", "q"]),
        "y": pa.array(["no", "yes"]),
    }
)
SECOND = pa.table(
    {
        "id": pa.array([3, 4], pa.int64()),
        "n": pa.array([5, 6], pa.int32()),
        "s": pa.array(["q", "r"]),
        "y": pa.array(["yes", "no"]),
    }
)


def changed(name, column, table=SECOND):
    return table.set_column(table.schema.get_field_index(name), name, column)


def write_arrow(table, path):
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


def source_of(tmp_path, *tables, kind=ParquetFiles, **options):
    suffix, write = ("parquet", pq.write_table) if kind is ParquetFiles else ("arrow", write_arrow)
    for number, table in enumerate(tables, 1):
        write(table, tmp_path / f"{number}.{suffix}")
    return open_source(kind(path=f"*.{suffix}", **({"id": "id"} | options)), tmp_path)


def values(source):
    """Everything a model sees, and the names behind the codes."""
    chunks = list(source.rows())
    bad = [str(error) for chunk in chunks for error in chunk.bad.values()]
    assert not bad
    X, y, ids = (np.concatenate([getattr(c, name) for c in chunks]).tolist() for name in ("X", "y", "id"))
    return X, y, ids, source.state()


HARMLESS = {
    "order": SECOND.select(["y", "s", "id", "n"]),
    "not nullable": SECOND.cast(pa.schema([field.with_nullable(False) for field in SECOND.schema])),
    "metadata": SECOND.replace_schema_metadata({"pandas": "{}"}),
    "wider integers": changed("n", SECOND["n"].cast(pa.int64())),
    "narrower integers": changed("n", SECOND["n"].cast(pa.uint8())),
    "integers as fractions": changed("n", SECOND["n"].cast(pa.float64())),
    "half precision": changed("n", pa.array(np.array([5, 6], np.float16))),
    "integers in a dictionary": changed("n", SECOND["n"].dictionary_encode()),
    "large text": changed("s", SECOND["s"].cast(pa.large_string())),
    "text in a dictionary": changed("s", SECOND["s"].dictionary_encode()),
    "labels in a dictionary": changed("y", SECOND["y"].dictionary_encode()),
    "narrower ids": changed("id", SECOND["id"].cast(pa.uint16())),
    "ids in floating point": changed("id", SECOND["id"].cast(pa.float64())),
    "ids in a dictionary": changed("id", SECOND["id"].dictionary_encode()),
}


@pytest.mark.parametrize("second", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("options", [{}, {"categorical": ["n"]}], ids=["numeric", "categorical"])
@pytest.mark.parametrize("kind", [ParquetFiles, ArrowFiles])
def test_harmless_differences_change_nothing(tmp_path, second, options, kind):
    options = options | {"kind": kind}
    for name in ("plain", "drift", "turned"):
        (tmp_path / name).mkdir()
    wanted = values(source_of(tmp_path / "plain", FIRST, SECOND, **options))
    assert values(source_of(tmp_path / "drift", FIRST, second, **options)) == wanted
    if "n" not in second.schema.names or not pa.types.is_dictionary(second["n"].type):  # else the first file decides
        columns = ["n", "s"]  # the order of the first file counts, unless the columns are listed
        turned = source_of(tmp_path / "turned", second, FIRST, features=columns, **options)
        (tmp_path / "turned plain").mkdir()
        plain = source_of(tmp_path / "turned plain", SECOND, FIRST, features=columns, **options)
        assert values(turned) == values(plain)


NUMBERS = changed("s", pa.array([1, 2]))
HARMFUL = [
    (changed("n", pa.array(["5", "6"])), "n", "text", "integers", True),
    (changed("n", pa.array(["5", "6"]).dictionary_encode()), "n", "text", "integers", True),
    (NUMBERS, "s", "integers", "text", True),
    (changed("s", pa.array([1, 2]).dictionary_encode()), "s", "integers", "text", True),
    (changed("y", pa.array([0, 1])), "y", "integers", "text", False),
    (changed("y", pa.array([True, False])), "y", "truth values", "text", False),
    (changed("id", pa.array(["3", "4"])), "id", "text", "integers", False),
    (changed("id", pa.array([True, False])), "id", "truth values", "integers", False),
]


@pytest.mark.parametrize(("second", "column", "here", "there", "feature"), HARMFUL)
def test_harmful_differences_are_one_error(tmp_path, second, column, here, there, feature):
    kind, other_kind = (
        f"{words} ({table.schema.field(column).type})" for words, table in ((here, second), (there, FIRST))
    )
    first, file = str(tmp_path / "1.arrow"), str(tmp_path / "2.arrow")
    said, given = "columns.drift_of_feature" if feature else "columns.drift", {"column": column, "file": file}
    with refused(said, InputError, kind=kind, other_kind=other_kind, other=first, **given):
        source_of(tmp_path, FIRST, second, kind=ArrowFiles)


def test_columns_more_or_less(tmp_path):
    more, less = SECOND.append_column("new", SECOND["n"]), SECOND.drop_columns("n")
    first, second = (str(tmp_path / f"{number}.parquet") for number in (1, 2))
    with refused("columns.extra", InputError, column="new", file=second, other=first):
        source_of(tmp_path, FIRST, more)
    with refused("columns.lacking_feature", InputError, column="n", file=second, other=first):
        source_of(tmp_path, FIRST, less)
    assert len(values(source_of(tmp_path, FIRST, more, features=["n"]))[0]) == 4
    assert len(values(source_of(tmp_path, FIRST, less, features=["s"]))[0]) == 4
    for gone in ("y", "id"):
        with refused("columns.lacking", InputError, column=gone):
            source_of(tmp_path, FIRST, SECOND.drop_columns(gone), features=["n"])


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (pa.timestamp("us"), pa.timestamp("ns"), None),
        (pa.timestamp("us"), pa.date32(), None),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),  # a time without a zone is UTC
        (pa.int64(), pa.int32(), None),
        (pa.timestamp("us"), pa.int64(), "integers (int64)"),
    ],
    ids=str,
)
def test_times(tmp_path, one, other, kind):
    first, second = (t.append_column("t", pa.array([0, 1], kind)) for t, kind in ((FIRST, one), (SECOND, other)))
    assert len(values(source_of(tmp_path, first, second, ts="t"))[0]) == 4  # nobody needs the times
    source = source_of(tmp_path, first, second, ts="t")
    if kind is None:
        source.require_ts()
        assert len(values(source)[0]) == 4
    else:
        with refused("columns.drift", InputError, column="t", kind=kind, file=str(tmp_path / "2.parquet")):
            source.require_ts()


@pytest.mark.parametrize(
    "empty",
    [
        FIRST.slice(0, 0),
        pa.table({}),
        pa.table({"other": pa.array([], pa.date32())}),
        changed("n", pa.array(["x", "y"])).slice(0, 0),
    ],
    ids=["same columns", "no columns", "other columns", "other types"],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_file_without_rows_agrees_with_everything(tmp_path, empty, place):
    tables = [FIRST, SECOND]
    tables.insert(place, empty)
    (tmp_path / "a").mkdir()
    source = source_of(tmp_path, *tables)
    assert values(source) == values(source_of(tmp_path / "a", FIRST, SECOND))
    assert source.n_rows == 4
    resumed = source_of(tmp_path / "a", FIRST, SECOND)
    assert [source.where(row)[1] for row in range(4)] == [resumed.where(row)[1] for row in range(4)]


def test_columns_of_nulls_agree_with_everything(tmp_path):
    op = pa.array(["d", "d"])
    deletes = pa.table({"id": [1, 2], "n": pa.nulls(2), "s": pa.nulls(2), "y": pa.nulls(2), "op": op})
    inserts = [t.append_column("op", pa.array(["c", "c"])) for t in (FIRST, SECOND)]
    (tmp_path / "a").mkdir()
    wanted = values(source_of(tmp_path / "a", *inserts, op="op"))
    for place in (0, 1, 2):
        tables = list(inserts)
        tables.insert(place, deletes)
        for old in tmp_path.glob("*.parquet"):
            old.unlink()
        source = source_of(tmp_path, *tables, op="op")
        assert source.features.categorical == (False, True)
        _, y, ids, state = values(source)
        del y[2 * place : 2 * place + 2], ids[2 * place : 2 * place + 2]
        assert (y, ids, state) == wanted[1:]
    with refused("columns.unusable", InputError, column="n"):
        source_of(tmp_path, deletes, deletes, deletes, op="op")
    rows = next(source_of(tmp_path, FIRST, changed("n", pa.nulls(2)), FIRST).rows(2))
    assert [error.message.id for error in rows.bad.values()] == ["rows.no_value"] * 2


def test_types_of_csv_files_are_put_together_by_column(tmp_path):
    (tmp_path / "1.csv").write_text("a,b,y\n,u,0\n")
    (tmp_path / "2.csv").write_text("b,y,a\n,1,1.5\n")
    source = open_source(CsvFiles(path="*.csv"), tmp_path)
    assert (source.features.names, source.features.categorical) == (("a", "b"), (False, True))
    assert [error.column for rows in source.rows() for error in rows.bad.values()] == ["a", "b"]
    (tmp_path / "3.csv").write_text("a,b,y\nx,u,0\n")
    found = {"column": "a", "file": str(tmp_path / "3.csv"), "kind": "text (string)"}
    with refused("columns.drift_of_feature", InputError, other=str(tmp_path / "2.csv"), **found):
        open_source(CsvFiles(path="*.csv"), tmp_path)


def test_folders_called_after_a_value_are_folders(tmp_path):
    for region, table in (("eu", FIRST), ("us", SECOND)):
        (tmp_path / f"region={region}").mkdir()
        pq.write_table(table, tmp_path / f"region={region}" / "part.parquet")
    source = open_source(ParquetFiles(path=".", id="id"), tmp_path)
    assert source.features.names == ("n", "s")
    assert values(source)[2] == [1, 2, 3, 4]
    with refused("columns.of_folders", InputError, column="region"):
        open_source(ParquetFiles(path=".", features=["region"]), tmp_path)


def test_a_csv_whose_first_column_looks_like_a_format(tmp_path):
    (tmp_path / "t.csv").write_text("PAR1,y\n1,0\n")
    assert open_source(CsvFiles(path="t.csv"), tmp_path).features.names == ("PAR1",)
    (tmp_path / "t.csv").write_text("ARROW1,y\n1,0\n")
    assert open_source(CsvFiles(path="t.csv"), tmp_path).features.names == ("ARROW1",)


def write_csv(table, path):
    pacsv.write_csv(table, str(path))


@pytest.mark.parametrize(
    ("options", "suffix", "write"),
    [(ParquetFiles, "parquet", pq.write_table), (ArrowFiles, "arrow", write_arrow), (CsvFiles, "csv", write_csv)],
    ids=["parquet", "arrow", "csv"],
)
@pytest.mark.parametrize("when", ["before reading", "while reading", "before the fingerprint"])
@pytest.mark.parametrize("what", ["replaced", "touched", "removed"])
@pytest.mark.parametrize("n", [1, 3])
def test_a_file_that_changes_under_the_reader(tmp_path, options, suffix, write, when, what, n):
    with limited(n):
        change_under_the_reader(tmp_path, options, suffix, write, when, what)


def change_under_the_reader(tmp_path, options, suffix, write, when, what):
    """The change is refused, also after all rows were read ahead."""
    target = tmp_path / f"2.{suffix}"
    write(FIRST, tmp_path / f"1.{suffix}")
    write(SECOND, target)
    source = open_source(options(path=f"*.{suffix}", id="id"), tmp_path)
    reading = source.rows()
    if when == "while reading":
        next(reading), next(reading)  # all rows, but not yet the end
    if what == "replaced":
        write(FIRST.slice(0, 1), tmp_path / "new")
        os.replace(tmp_path / "new", target)
    elif what == "touched":
        os.utime(target, ns=(1, 1))
    else:
        target.unlink()
    with refused(f"files.{'removed' if what == 'removed' else 'changed'}", InputError, file=str(target)):
        source.identity().fingerprint if when == "before the fingerprint" else list(reading)


def test_a_file_that_appears_is_another_source(tmp_path):
    first = source_of(tmp_path, FIRST)
    before = first.identity().fingerprint
    assert len(values(source_of(tmp_path, FIRST, SECOND))[0]) == 4
    assert source_of(tmp_path, FIRST, SECOND).identity().fingerprint != before
    (tmp_path / "2.parquet").unlink()
    assert source_of(tmp_path, FIRST).identity().fingerprint == before
