"""Generated sources, with and without drift."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from raydt.arrays.blocks import concatenated
from raydt.arrays.elementary import stream_key, uniform
from raydt.arrays.kernel import Repeated, kernel
from raydt.errors import ConfigError, InputError
from raydt.examples.updates import CLASSES, Reading
from raydt.parallel import limited
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles, CsvFiles, Hyperplane, ParquetFiles, RandCbt, Sea, SparseSynthetic
from raydt.sources.synthetic import SEA_THRESHOLDS, random_tree
from tests.refusals import refused

# -- synthetic -------------------------------------------------------------------------------------------------------


#: Options of generated numbers, and the first digits of the SHA-256 of their rows and labels, the same everywhere.
DIGESTS = {
    Sea(n=40_000, noise=0.1): "ce4950086cf338a8",
    Sea(n=999, drift=0, noise=0.0): "3c079292946bca63",
    Hyperplane(n=30_000, n_features=10): "4c17af6f5a6ed582",
    Hyperplane(n=500, n_features=1, drift=0): "bb45f2a77eb3cd30",
    Hyperplane(n=777, n_features=70, drift=5, seed=-3): "73548ff93c40f34d",
}
CASES = list(DIGESTS)


def read(options, start=0):
    source = open_source(options)
    chunks = list(source.rows(start))
    X, y, ids = (np.concatenate([getattr(c, name) for c in chunks]) for name in ("X", "y", "id"))
    return X, y, ids


@pytest.mark.parametrize("options", CASES, ids=str)
def test_a_row_does_not_depend_on_where_reading_starts(options):
    X, y, ids = read(options)
    assert ids.tolist() == list(range(options.n))
    for start in (1, 63, 64, options.n // 2, options.n - 1):
        X2, y2, ids2 = read(options, start)
        np.testing.assert_array_equal(X2, X[start:])
        np.testing.assert_array_equal(y2, y[start:])
        np.testing.assert_array_equal(ids2, ids[start:])
    assert not list(open_source(options).rows(options.n))


@pytest.mark.parametrize("options", CASES, ids=str)
def test_limit_cuts_and_changes_nothing_else(options):
    short = options.model_copy(update={"limit": 101})
    for cut, whole in zip(read(short), read(options), strict=True):
        np.testing.assert_array_equal(cut, whole[:101])
    assert open_source(short).n_rows == 101


@pytest.mark.parametrize("options", CASES, ids=str)
def test_bits_are_the_same_everywhere(options):
    X, y, _ = read(options)
    digest = hashlib.sha256(X.astype("<f8").tobytes() + y.astype("<i4").tobytes())
    assert digest.hexdigest()[:16] == DIGESTS[options]


def test_sea_follows_its_concepts():
    X, y, _ = read(Sea(n=8_000, noise=0.0, drift=7))
    assert X.min() >= 0.0
    assert X.max() < 10.0
    for part in range(8):
        rows = slice(part * 1000, (part + 1) * 1000)
        above = X[rows, 0] + X[rows, 1] > SEA_THRESHOLDS[part % 4]
        np.testing.assert_array_equal(y[rows], above)


def test_seeds_and_settings_show_in_the_fingerprint():
    prints = [open_source(o).identity().fingerprint for o in [*CASES, Sea(n=40_000, seed=8), Sea(n=40_001)]]
    assert len(set(prints)) == len(prints)
    assert open_source(Sea(n=40_000, noise=0.1)).identity().fingerprint == prints[0]


def test_the_source_says_what_it_is():
    source = open_source(Hyperplane(n=10, n_features=3))
    assert source.features.names == ("x0", "x1", "x2")
    assert source.features.categorical == (False, False, False)
    assert (source.classes, source.known_classes, source.n_rows, source.positive) == ([0, 1], 2, 10, None)
    assert source.where(4) == ("synthetic hyperplane", 4)
    assert source.state() == {}


# -- randcbt ---------------------------------------------------------------------------------------------------------
# RandCBT: the tree is that of Algorithm 2 as printed, and rows fill its leaves evenly.

CASES_RANDCBT = [
    RandCbt(n=20_000),
    RandCbt(n=3_001, leaves=7, n_features=2, drift=2, seed=-3, noise=0.0),
    RandCbt(n=999, leaves=1_000, n_features=1, noise=0.5),
    RandCbt(n=5, leaves=2, drift=4),
]
SEEDS = range(40)


def read_randcbt(options, start=0):
    chunks = list(open_source(options).rows(start))
    return tuple(np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in ("X", "y", "id"))


def printed(leaves, d, draw):
    """Algorithm 2 line by line: leaves from left to right as (low, high, is left), and thresholds."""
    found, thresholds = [], []

    def rand_cbt(num_leaves, low, high, is_left):
        if num_leaves == 1:
            found.append((low, high, is_left))
            return
        x = next(draw)
        left_leaves = max(1, int(np.floor(num_leaves * x)))
        right_leaves = num_leaves - left_leaves
        i = int(next(draw) * d)
        v = low[i] + (high[i] - low[i]) * next(draw)
        thresholds.append(v)
        rand_cbt(left_leaves, low, [*high[:i], v, *high[i + 1 :]], True)
        rand_cbt(right_leaves, [*low[:i], v, *low[i + 1 :]], high, False)

    rand_cbt(leaves, [0.0] * d, [1.0] * d, None)
    return found, thresholds


def tree_of(seed, leaves=50, d=5):
    return random_tree(stream_key(seed, "randcbt trees"), 0, leaves, d)


def membership(X, tree):
    """Which leaf's region each row lies in; shape (rows, leaves)."""
    return ((tree.low <= X[:, None, :]) & (X[:, None, :] < tree.high)).all(axis=2)


@pytest.mark.parametrize(("leaves", "d"), [(50, 5), (2, 1), (3, 2), (700, 3)])
def test_the_tree_is_that_of_the_printed_recursion(leaves, d):
    for seed in SEEDS:
        tree = tree_of(seed, leaves, d)
        draws = uniform(stream_key(seed, "randcbt trees"), np.arange(3 * (leaves - 1)))
        found, thresholds = printed(leaves, d, iter(draws))
        assert len(thresholds) == leaves - 1
        for column, values in zip(tree, zip(*found, strict=True), strict=True):
            np.testing.assert_array_equal(column, np.array(values))


def test_every_leaf_has_as_many_rows_and_its_share_of_labels():
    options = RandCbt(n=50_000, leaves=20, noise=0.3, seed=11)
    X, y, _ = read_randcbt(options)
    (tree,) = open_source(options).trees
    inside = membership(X, tree)
    assert (inside.sum(axis=1) == 1).all()
    assert (inside.sum(axis=0) == 2_500).all()
    shares = (inside * y[:, None]).sum(axis=0) / 2_500
    assert np.abs(shares - np.where(tree.left, 0.7, 0.3)).max() < 0.04
    for leaf in range(20):
        own = (X[inside[:, leaf]] - tree.low[leaf]) / (tree.high - tree.low)[leaf]
        assert np.abs(own.mean(axis=0) - 0.5).max() < 0.03
        assert np.abs(own.std(axis=0) - 12**-0.5).max() < 0.02
    places = np.where(inside)[0][np.argsort(np.where(inside)[1], kind="stable")].reshape(20, -1)
    assert np.abs(places.mean(axis=1) / 50_000 - 0.5).max() < 0.03  # shuffled


@pytest.mark.parametrize("options", CASES_RANDCBT, ids=str)
def test_a_row_does_not_depend_on_where_reading_starts_or_how_much_is_read_at_once(options, monkeypatch):
    X, y, ids = read_randcbt(options)
    assert ids.tolist() == list(range(options.n))
    for start in (1, 4, options.n // 2, options.n - 1):
        for part, whole in zip(read_randcbt(options, start), (X, y, ids), strict=True):
            np.testing.assert_array_equal(part, whole[start:])
    short = options.model_copy(update={"limit": 4})
    np.testing.assert_array_equal(read_randcbt(short)[0], X[:4])
    monkeypatch.setattr("raydt.sources.synthetic.CHUNK_DRAWS", 1)
    np.testing.assert_array_equal(read_randcbt(options)[0], X)


def test_bits_of_randcbt_are_the_same_everywhere():
    digest = hashlib.sha256()
    for options in CASES_RANDCBT:
        X, y, _ = read_randcbt(options)
        digest.update(X.astype("<f8").tobytes() + y.astype("<i4").tobytes())
    assert digest.hexdigest() == "911b9bbed18cf7cfae4549a1551548dd1e7da71027dfb69ef54d9733fa6f500a"


# -- repeated --------------------------------------------------------------------------------------------------------
# Calls of a kernel whose types are known: the same results, before and after they are, and in copies.


class Pair(NamedTuple):
    """Arrays as kernels take them."""

    a: Any
    b: Any


@kernel
def weighted_sum(pair: Any, times: int, doubled: bool) -> int:
    """Sum of products."""
    found = np.int64(0)
    for i in range(len(pair.a)):
        found += pair.a[i] * pair.b[i]
    result: int = found * times * (2 if doubled else 1)
    return result


def test_calls_give_the_same_whether_types_are_looked_at_or_not() -> None:
    """Also with arrays of other lengths, and NumPy's numbers."""
    repeated = Repeated(weighted_sum)
    for n in range(40):
        pair = Pair(np.arange(n, dtype=np.int64), np.full(n, 3, dtype=np.int32))
        assert repeated(pair, np.int64(n), n % 2 == 0) == weighted_sum(pair, n, n % 2 == 0)
    assert repeated._called is not weighted_sum


def test_copies_look_again() -> None:
    """What is called cannot be copied; the kernel can, by its name."""
    repeated = Repeated(weighted_sum)
    pair = Pair(np.arange(3, dtype=np.int64), np.full(3, 3, dtype=np.int32))
    for _ in range(20):
        repeated(pair, 1, False)
    for other in (copy.deepcopy(repeated), pickle.loads(pickle.dumps(repeated))):
        assert other._called is weighted_sum
        assert other(pair, 1, True) == 18


# -- sources drift ---------------------------------------------------------------------------------------------------
# Sources of several files that differ: what is harmless, what is one error; and files that change under the reader.

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
    with refused("columns.several_unusable_of_file", InputError):
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


# -- sparse synthetic ------------------------------------------------------------------------------------------------


SPARSE = Reading(sparse=True)
CASES_SPARSE = [
    SparseSynthetic(n=3_000, irrelevant=1_000, noise=0.1, drift=2),
    SparseSynthetic(n=20_000, informative=3, irrelevant=100_000, density=2e-5, seed=-3),
    SparseSynthetic(n=500, informative=1, irrelevant=1, density=0.5),
    SparseSynthetic(n=300, informative=2, irrelevant=77, density=1.0),
    SparseSynthetic(n=300, irrelevant=100, density=0.0, permutation=5),
    SparseSynthetic(n=200, irrelevant=5_000, density=0.3),
]


def read_sparse(options, start=0):
    chunks = list(open_source(options, reading=SPARSE).rows(start))
    for chunk in chunks:
        assert chunk.X.shape == (len(chunk), 0)
        assert len(chunk.sparse) == len(chunk)
        assert (chunk.op, chunk.bad) == (None, {})
    y, ids = (np.concatenate([getattr(c, name) for c in chunks]) for name in ("y", "id"))
    return concatenated([c.sparse for c in chunks]), y, ids


def same(a, b):
    np.testing.assert_array_equal(a.indices, b.indices)
    np.testing.assert_array_equal(a.indptr, b.indptr)
    assert a.n_features == b.n_features


@pytest.mark.parametrize("options", CASES_SPARSE, ids=str)
def test_a_sparse_row_does_not_depend_on_where_reading_starts(options, monkeypatch):
    rows, y, ids = read_sparse(options)
    assert sorted(ids.tolist()) == list(range(options.n))
    for start in (1, 63, 64, options.n // 2, options.n - 1):
        rows2, y2, ids2 = read_sparse(options, start)
        same(rows2, rows[start:])
        np.testing.assert_array_equal(y2, y[start:])
        np.testing.assert_array_equal(ids2, ids[start:])
    assert not list(open_source(options, reading=SPARSE).rows(options.n))
    monkeypatch.setattr("raydt.sources.synthetic.CHUNK_DRAWS", 1)  # other chunks, of the fewest rows
    rows3, y3, _ = read_sparse(options)
    same(rows3, rows)
    np.testing.assert_array_equal(y3, y)


@pytest.mark.parametrize("options", [CASES_SPARSE[0], CASES_SPARSE[1], CASES_SPARSE[-1]], ids=str)
def test_rows_are_those_of_plain_python(options):
    rows, y, _ = read_sparse(options)
    d1, width = options.informative, options.informative + options.irrelevant
    q = 10 / options.irrelevant if options.density is None else options.density
    key, parts = stream_key(options.seed, "sparse"), options.drift + 1
    theta = uniform(stream_key(options.seed, "sparse flips"), np.arange(parts * d1)).reshape(parts, d1).tolist()
    powers = [1.0 - q]
    for _ in range(options.irrelevant.bit_length() - 1):
        powers.append(powers[-1] * powers[-1])
    for r in (0, 1, 99, options.n // 2, options.n - 1):
        u = iter(uniform(key, np.arange(r * (width + 3), (r + 1) * (width + 3))).tolist())
        label, flipped = next(u) < 0.5, next(u) < options.noise
        ones = [j for j in range(d1) if label != (next(u) < theta[r * parts // options.n][j])]
        index = d1 - 1
        while index < width:
            draw, probability = next(u), 1.0
            for p in reversed(range(len(powers))):
                if probability * powers[p] > draw:
                    probability, index = probability * powers[p], index + 2**p
            index += 1
            ones.append(index)
        assert rows.row(r).tolist() == ones[:-1]
        assert y[r] == (label != flipped)


def test_bits_of_sparse_rows_are_the_same_everywhere():
    digest = hashlib.sha256()
    for options in CASES_SPARSE:
        rows, y, _ = read_sparse(options)
        for array in (rows.indptr.astype("<i8"), rows.indices.astype("<i4"), y.astype("<i4")):
            digest.update(array.tobytes())
    assert digest.hexdigest() == "945be62da8eb29c3dbe086311ce8878190b956f63b4b41e6b94c424fbdf4ba89"


def test_what_cannot_be_drawn_or_taken_is_refused():
    with refused("sources.generated_indices", ConfigError):
        open_source(SparseSynthetic(), reading=CLASSES)
    with refused("sources.generated_classes", ConfigError):
        open_source(SparseSynthetic(), reading=Reading(regression=True, sparse=True))
    with refused("sources.many_features", ValueError, largest=2**31 - 1):
        SparseSynthetic(irrelevant=2**31 - 1)
