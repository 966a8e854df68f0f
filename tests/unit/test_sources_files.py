"""Files of sources, their rows, and rows that are read ahead."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import RLock

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from raydt.errors import InputError
from raydt.examples.updates import DELETE, INSERT, QUERY, UPDATE, Reading
from raydt.keyed import source as sent
from raydt.keyed.source import Sending, SentSource
from raydt.sources.divided import open_source
from raydt.sources.files.content import content_hash
from raydt.sources.files.datafile import DataFile, find_files
from raydt.sources.options import ArrowFiles, CsvFiles, LibsvmFiles, ParquetFiles, SourceOptions
from tests.refusals import refusal, refused

# -- sources files ---------------------------------------------------------------------------------------------------
# Files as sources: order, seeking, chunks, several files, paths and fingerprints, over all formats.

N = 257
COLORS = ["red", "green", "blue", "grey"]


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "a": rng.normal(size=n),
            "color": [COLORS[i] for i in rng.integers(0, 4, n)],
            "k": rng.integers(0, 5, n).astype(np.int16),
            "y": [("no", "yes", "maybe")[i] for i in rng.integers(0, 3, n)],
        }
    )


def write_arrow(t, path, kind=pa.ipc.new_file):
    with kind(path, t.schema) as writer:
        for batch in t.to_batches(max_chunksize=50):
            writer.write_batch(batch)


WRITERS = {
    "parquet": (ParquetFiles, "t.parquet", lambda t, p: pq.write_table(t, p, row_group_size=60)),
    "arrow file": (ArrowFiles, "t.arrow", write_arrow),
    "arrow stream": (ArrowFiles, "t.arrows", lambda t, p: write_arrow(t, p, pa.ipc.new_stream)),
    "csv": (CsvFiles, "t.csv", pacsv.write_csv),
}


@pytest.fixture(params=WRITERS)
def form(request):
    return WRITERS[request.param]


def read(source, start=0):
    chunks = list(source.rows(start))
    assert not any(chunk.bad for chunk in chunks)
    ends = [chunk.start + len(chunk) for chunk in chunks]
    assert [chunk.start for chunk in chunks[1:]] == ends[:-1]
    return {name: np.concatenate([getattr(c, name) for c in chunks]) for name in ("X", "y", "id")}


def expected(t):
    def codes(values):
        order = list(dict.fromkeys(values))
        return [order.index(v) for v in values]

    X = np.column_stack([t["a"].to_numpy(), codes(t["color"].to_pylist()), t["k"].to_numpy()]).astype(np.float64)
    return {"X": X, "y": np.array(codes(t["y"].to_pylist())), "id": np.arange(len(t))}


def assert_rows(found, wanted):
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)


def test_every_format_gives_the_same_rows(form, tmp_path):
    options, name, write = form
    write(table(), str(tmp_path / name))
    source = open_source(options(path=name), tmp_path)
    rows = read(source)
    assert_rows(rows, expected(table()))
    assert source.features.names == ("a", "color", "k")
    assert source.features.categorical == (False, True, False)
    assert source.classes == list(dict.fromkeys(table()["y"].to_pylist()))
    assert source.n_rows == N
    for array in rows.values():
        assert array.flags.c_contiguous


def test_reading_can_start_anywhere_over_several_files(form, tmp_path):
    options, name, write = form
    t = table()
    cuts = [0, 100, 100, 101, 200, N]
    for part, (a, b) in enumerate(itertools.pairwise(cuts)):
        folder = tmp_path / f"part-{part}"
        folder.mkdir()
        write(t.slice(a, b - a), str(folder / name))
    opts = options(path=[f"part-{p}/{name}" for p in range(5)])
    whole = expected(t)
    for start in (0, 1, 59, 60, 99, 100, 101, 102, 199, 200, N - 1):
        source = open_source(opts, tmp_path)
        before = open_source(opts, tmp_path)
        read(before)
        source.restore(before.state(start))
        assert_rows(read(source, start), {k: v[start:] for k, v in whole.items()})
        assert source.where(start)[1] == start - max(c for c in cuts if c <= start)
    assert not list(open_source(opts, tmp_path).rows(N))
    assert not list(open_source(opts, tmp_path).rows(N + 5))


@pytest.mark.parametrize("limit", [1, 60, 61, N - 1, N, N + 1])
def test_limit(form, tmp_path, limit):
    options, name, write = form
    write(table(), str(tmp_path / name))
    source = open_source(options(path=name, limit=limit), tmp_path)
    n = min(limit, N)
    assert_rows(read(source), {k: v[:n] for k, v in expected(table()).items()})
    assert sum(len(c) for c in open_source(options(path=name, limit=limit), tmp_path).rows(n - 1)) == 1
    if options is not CsvFiles and name != "t.arrows":
        assert source.n_rows == n


def test_paths(tmp_path):
    for name in ("b/2.parquet", "b/1.parquet", "a/3.parquet", "a/.hidden.parquet", "_temporary/x.parquet", "a/n.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")

    def found(path):
        return [str(Path(p.path).relative_to(tmp_path)) for p in find_files(path, tmp_path, (".parquet",))]

    everything = ["a/3.parquet", "b/1.parquet", "b/2.parquet"]
    assert found(".") == found(str(tmp_path)) == found("**/*.parquet") == everything
    assert found("b") == found("b/*") == found("b/?.parquet") == everything[1:]
    assert found("*/[13].parquet") == everything[:2]
    assert found("**") == everything
    assert found("a/**") == ["a/3.parquet"]
    assert found("**/n.*") == ["a/n.txt"]
    assert found(["b/2.parquet", "a"]) == ["b/2.parquet", "a/3.parquet"]
    assert found("a/n.txt") == ["a/n.txt"]
    assert found(f"file://{tmp_path}/b/*.parquet") == everything[1:]
    (tmp_path / "odd[1].parquet").write_bytes(b"x")
    assert found("odd[1].parquet") == ["odd[1].parquet"]
    with refused("files.no_home", InputError, file="~nosuchuser/x"):
        found("~nosuchuser/x")
    for nothing in ("nowhere.parquet", "b/*.csv", "*/x.parquet"):
        with refused("files.nothing", InputError):
            found(nothing)
    (tmp_path / "none").mkdir()
    for folder in ("none", "none/", f"file://{tmp_path}/none"):
        with refused("files.empty_folder", InputError, suffixes=".parquet"):
            found(folder)


def test_a_file_counts_once_whatever_links_lead_to_it(tmp_path):
    (tmp_path / "data" / "year" / "may").mkdir(parents=True)
    (tmp_path / "data" / "other").mkdir()
    for name in ("1.parquet", "year/2.parquet", "year/may/3.parquet"):
        (tmp_path / "data" / name).write_bytes(b"x")

    def found(path):
        return [str(Path(p.path).relative_to(tmp_path)) for p in find_files(path, tmp_path, (".parquet",))]

    everything = ["data/1.parquet", "data/year/2.parquet", "data/year/may/3.parquet"]
    patterns = ("data", "data/**", "data/**/*.parquet", f"file://{tmp_path}/data", "**/[123].parquet")
    assert all(found(path) == everything for path in patterns)
    # Links back make a search through paths endless: two of them in each of two folders make 2 ** 40 paths.
    for number, place in enumerate(("data", "data", "data/year/may", "data/other")):
        (tmp_path / place / f"{number}-loop").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "other" / "a.parquet").symlink_to(tmp_path / "data" / "1.parquet")
    (tmp_path / "data" / "other" / "self").symlink_to("self")
    assert all(found(path) == everything for path in patterns)
    assert found("data/*/*.parquet") == ["data/0-loop/1.parquet", "data/year/2.parquet"]
    assert found("data/other/a.parquet") == ["data/other/a.parquet"]

    for second in ("data/year/2.parquet", "data/year", "data/0-loop/year/2.parquet", f"file://{tmp_path}/data/year"):
        with refused("files.twice", InputError, first="data/**", second=second):
            find_files(["data/**", second], tmp_path, (".parquet",))


def test_a_link_leads_to_files_elsewhere(tmp_path):
    for name in ("archive/1.parquet", "data/2.parquet"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "data" / "before").symlink_to(tmp_path / "archive")
    places = find_files("data", tmp_path, (".parquet",))
    assert [str(Path(p.path).relative_to(tmp_path)) for p in places] == ["data/2.parquet", "data/before/1.parquet"]


def test_fingerprint_follows_content_not_path(form, tmp_path):
    options, name, write = form
    (tmp_path / "x").mkdir()
    write(table(), str(tmp_path / name))
    write(table(), str(tmp_path / "x" / name))
    first = open_source(options(path=name), tmp_path)
    moved = open_source(options(path=f"x/{name}"), tmp_path)
    assert first.identity().fingerprint == moved.identity().fingerprint
    assert first.identity().fingerprint.startswith("sha256:")
    before = first.identity().fingerprint
    read(first)
    assert first.identity().fingerprint == before
    write(table(seed=1), str(tmp_path / "x" / name))
    assert open_source(options(path=f"x/{name}"), tmp_path).identity().fingerprint != before
    assert open_source(options(path=name, limit=3), tmp_path).identity().fingerprint != before


@pytest.mark.parametrize(("size", "whole"), [(0, 4), (3 << 20, 4), (9 << 20, 4), (4 << 20, 4)])
def test_a_hash_is_that_of_the_bytes_however_they_are_read(monkeypatch, size, whole):
    monkeypatch.setattr("raydt.sources.files.content.WHOLE_HASH_BYTES", whole << 20)
    data = bytearray(np.random.default_rng(0).bytes(size))
    begins, length = [0], size
    if size > whole << 20:
        begins, length = [b * (size - (1 << 20)) // (whole - 1) for b in range(whole)], 1 << 20
    wanted = hashlib.sha256(b"".join(data[at : at + length] for at in begins)).hexdigest()
    for most in (1 << 30, 700_001):
        read = []

        def read_at(n, at, read=read, most=most):
            read.append(min(n, most))
            return bytes(data[at : at + read[-1]])

        assert content_hash(size, read_at) == wanted
        assert sum(read) == len(begins) * length


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.zst", "t.libsvm", "t.libsvm.bz2"])
def test_a_file_whose_labels_were_read_is_the_same_source(tmp_path, name):
    lines = [f"{i % 3} {1 + i % 7}:1" if "libsvm" in name else f"{i},{i % 3}" for i in range(300_000)]
    with pa.output_stream(str(tmp_path / name)) as file:
        file.write("\n".join(["1 1:1" if "libsvm" in name else "a,y", *lines, ""]).encode())
    kind, reading = (LibsvmFiles, Reading(sparse=True)) if "libsvm" in name else (CsvFiles, Reading())
    source = open_source(kind(path=name, positive="majority"), tmp_path, reading)
    (file,) = source._files
    assert file.content_hash() == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert source.identity() == open_source(kind(path=name), tmp_path, reading).identity()


@pytest.mark.parametrize(("form", "rows"), [("parquet", 60), ("arrow file", 50)], indirect=["form"])
def test_a_seek_does_not_read_what_lies_before(form, rows, tmp_path):
    options, name, write = form
    write(table().select(["a", "k", "y"]), str(tmp_path / name))
    content = bytearray((tmp_path / name).read_bytes())
    if name.endswith("parquet"):
        begin = pq.ParquetFile(tmp_path / name).metadata.row_group(0).column(0).data_page_offset
        content[begin : begin + 100] = bytes(100)
    else:
        first = table()["y"].to_pylist()[0].encode()
        at = content.index(first)
        content[at : at + 2] = b"\xff\xff"  # no longer UTF-8
    (tmp_path / name).write_bytes(content)
    if name.endswith("parquet"):
        with refused("files.unreadable_from", InputError, row=0):
            next(open_source(options(path=name), tmp_path).rows())
    else:
        assert next(open_source(options(path=name), tmp_path).rows()).bad
    assert sum(len(chunk) for chunk in open_source(options(path=name), tmp_path).rows(rows)) == N - rows


def test_excluded_columns_are_no_features(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(table(9), path)
    every = open_source(ParquetFiles(path=str(path), label="k")).features.names
    source = open_source(ParquetFiles(path=str(path), label="k", exclude=["color"]))
    assert source.features.names == tuple(name for name in every if name != "color")
    assert "color" in every
    with pytest.raises(InputError, match=r"source\.exclude") as caught:
        open_source(ParquetFiles(path=str(path), label="k", exclude=["colour"]))
    assert "color" in str(caught.value)
    with refused("columns.two_parts", InputError, first="source.label", second="source.exclude"):
        open_source(ParquetFiles(path=str(path), label="k", exclude=["k"]))
    with pytest.raises(ValueError, match=r"source\.exclude has no effect"):
        ParquetFiles(path=str(path), label="k", exclude=["color"], features=["a"])


# -- sources rows ----------------------------------------------------------------------------------------------------
# What becomes of columns and rows: parts, bad rows, ids, operations, labels; and which options are refused.

OPTIONS = TypeAdapter(SourceOptions)


def parquet(tmp_path, columns, **options):
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    return open_source(ParquetFiles(path="t.parquet", **options), tmp_path)


def csv(tmp_path, text, **options):
    (tmp_path / "t.csv").write_text(text)
    return open_source(CsvFiles(path="t.csv", **options), tmp_path)


def one(source):
    (rows,) = source.rows()
    return rows


def test_parts_of_columns(tmp_path):
    columns = {"y": [0, 1], "when": [5, 6], "key": [70, 60], "b": [True, False], "n": [1, 2], "s": ["u", "v"]}
    source = parquet(tmp_path, columns, id="key", ts="when", categorical=["n"])
    rows = one(source)
    assert source.features.names == ("b", "n", "s")
    assert source.features.categorical == (False, True, True)
    assert rows.X.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    assert rows.id.tolist() == [70, 60]
    assert rows.y.tolist() == [0, 1]
    assert source.id_kind == "integer"


def test_an_index_that_pandas_wrote_is_no_feature(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": [0, 1, 0]})
    frame.set_index(pd.Index([0, 7, 8])).to_parquet(tmp_path / "t.parquet", index=True)
    assert open_source(ParquetFiles(path="t.parquet"), tmp_path).features.names == ("a",)
    listed = open_source(ParquetFiles(path="t.parquet", features=["a", "__index_level_0__"]), tmp_path)
    assert one(listed).X.tolist() == [[1.0, 0.0], [2.0, 7.0], [3.0, 8.0]]


def test_features_are_taken_in_the_order_listed(tmp_path):
    source = parquet(tmp_path, {"a": [1], "b": [2], "c": [3], "y": [0]}, features=["c", "a"])
    assert one(source).X.tolist() == [[3.0, 1.0]]


def test_changelog(tmp_path):
    columns = {
        "op": ["c", "+I", "D", "u", "Query", "what", None, "insert"],
        "id": [1, 2, 1, 2, None, 3, 4, None],
        "a": [0.5, 1.5, None, 2.5, 3.5, 0.0, 0.0, 0.0],
        "s": ["k", "l", None, "m", "k", "z", "z", "z"],
        "y": ["p", "q", None, "p", None, "z", "z", "z"],
    }
    source = parquet(tmp_path, columns, op="op", id="id")
    rows = one(source)
    assert source.is_changelog
    assert rows.op[:5].tolist() == [INSERT, INSERT, DELETE, UPDATE, QUERY]
    assert rows.id[:4].tolist() == [1, 2, 1, 2]
    assert rows.y[:5].tolist() == [0, 1, -1, 0, -1]
    assert rows.X[[0, 1, 3, 4]].tolist() == [[0.5, 0], [1.5, 1], [2.5, 2], [3.5, 0]]
    assert {place: error.message.id for place, error in rows.bad.items()} == {
        5: "rows.unknown_operation",
        6: "rows.no_operation",
        7: "rows.no_id",
    }
    known = (
        "insert: insert, i, c, r, +I; delete: delete, d, -D; update: update, u, +U, update_after, update_postimage; "
        "query: query, q; delete_value: delete_value; ignore: -U, update_before, update_preimage, m"
    )
    assert rows.bad[5].message.parameters["operations"] == known
    assert source.classes == ["p", "q"]


def test_op_values_replace_the_defaults_of_that_operation(tmp_path):
    columns = {"op": [1, -1, 9], "id": [1, 1, 1], "a": [0, 0, 0], "y": [0, 0, 0]}
    options = OPTIONS.validate_python(
        {"kind": "parquet", "path": "t.parquet", "op": "op", "id": "id"}
        | {"op_values": {"insert": [1], "delete": ["-1"]}}
    )
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    rows = one(open_source(options, tmp_path))
    assert rows.op[:2].tolist() == [INSERT, DELETE]
    assert set(rows.bad) == {2}


@pytest.mark.parametrize("empty", ["", None])
@pytest.mark.parametrize(
    "op",
    [
        pa.array(["", None, "I", "D"]),
        pa.array([None, float("nan"), 2.0, 1.0]),
        pa.array([None, None, 2, 1]),
        pa.array([None, "", "2.0", " 1"]),
    ],
)
def test_op_values_say_what_an_empty_operation_and_numbers_mean(tmp_path, empty, op):
    """AWS DMS: rows of the first load have no operation, and pandas writes integers next to nothing as 1.0."""
    pq.write_table(pa.table({"op": op, "id": [1, 2, 3, 1], "a": [0] * 4, "y": [0] * 4}), tmp_path / "t.parquet")
    given = {"kind": "parquet", "path": "t.parquet", "op": "op", "id": "id"}
    options = OPTIONS.validate_python(given | {"op_values": {"insert": [empty, "I", 2], "delete": ["D", 1.0]}})
    assert one(open_source(options, tmp_path)).op.tolist() == [INSERT, INSERT, INSERT, DELETE]
    plain = OPTIONS.validate_python(given | {"op_values": {"insert": ["I", 2], "delete": ["D", 1]}})
    bad = one(open_source(plain, tmp_path)).bad
    assert {row: error.message.id for row, error in bad.items()} == dict.fromkeys([0, 1], "rows.no_operation")


def test_a_delete_needs_nothing_but_its_id(tmp_path):
    text = "op,id,a,y\ni,1,1.5,0\nd,1,,\nd,2,junk,\n"
    rows = one(csv(tmp_path, text, op="op", id="id"))
    assert not rows.bad


@pytest.mark.parametrize(
    ("positive", "classes", "y", "resolved"),
    [
        (None, ["b", "a", "c"], [0, 1, 2, 1], None),
        ("a", ["not a", "a"], [0, 1, 0, 1], ["a"]),
        ("majority", ["not a", "a"], [0, 1, 0, 1], ["a"]),
        ("minority", ["not b", "b"], [1, 0, 0, 0], ["b"]),
        (["b", "c"], ["a", "b|c"], [1, 0, 1, 0], ["b", "c"]),
    ],
)
def test_positive(tmp_path, positive, classes, y, resolved):
    source = parquet(tmp_path, {"x": [1, 2, 3, 4], "y": ["b", "a", "c", "a"]}, positive=positive)
    assert source.known_classes == (0 if positive is None else 2)
    rows = one(source)
    assert (source.classes, rows.y.tolist(), source.positive) == (classes, y, resolved)


def test_positive_is_resolved_within_the_limit_and_kept_by_the_state(tmp_path):
    columns = {"x": [1, 2, 3, 4, 5], "y": ["b", "a", "a", "b", "b"]}
    source = parquet(tmp_path, columns, positive="majority", limit=3)
    assert source.positive == ["a"]
    other = parquet(tmp_path, columns, positive="majority", limit=5)
    assert other.positive == ["b"]
    other.restore(source.state(0))
    assert other.positive == ["a"]
    assert one(other).y.tolist() == [0, 1, 1, 0, 0]


def test_rows_without_labels_can_be_read_for_prediction(tmp_path):
    source = parquet(tmp_path, {"a": [1, 2], "s": ["u", "v"]}, label=None)
    rows = one(source)
    assert not source.has_labels
    assert rows.y.tolist() == [-1, -1]
    assert not rows.bad


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kind": "excel", "path": "x"}, ": union_tag_invalid"),
        ({"kind": "parquet", "path": "x", "permutation": 0.5}, "parquet.permutation: int_type"),
        (
            {"kind": "parquet", "path": "x", "op": "o", "id": "i", "permutation": 3},
            "parquet: sources.permuted_changes",
        ),
        ({"kind": "parquet", "path": "x", "delimiter": ";"}, "parquet.delimiter: extra_forbidden"),
        ({"kind": "parquet", "path": []}, "parquet: sources.no_path"),
        ({"kind": "parquet", "path": ["x", "x"]}, "parquet: sources.twice"),
        ({"kind": "parquet", "path": "x", "limit": "7"}, "parquet.limit: int_type"),
        ({"kind": "parquet", "path": "x", "op": "op"}, "parquet: sources.no_ids"),
        (
            {"kind": "parquet", "path": "x", "op_values": {"insert": ["z"]}},
            "parquet: sources.op_values",
        ),
        ({"kind": "parquet", "path": "x", "label": None, "positive": 1}, "parquet: sources.positive"),
        (
            {"kind": "parquet", "path": "x", "op": "o", "id": "i", "op_values": {"insert": ["D"]}},
            "parquet.op_values: sources.two_meanings",
        ),
        ({"kind": "synthetic", "generator": "randtree"}, "synthetic: union_tag_invalid"),
        ({"kind": "synthetic", "generator": "sea", "path": "x"}, "synthetic.sea.path: extra_forbidden"),
        ({"kind": "synthetic"}, "synthetic: union_tag_not_found"),
        ({"path": "x"}, ": union_tag_not_found"),
    ],
    ids=str,
)
def test_options_that_are_refused(options, problem):
    assert refusal(OPTIONS, options).startswith(problem)


def test_options_survive_a_round_trip():
    for options in (
        {"kind": "csv", "path": ["a", "b"], "positive": [1, "x", True], "delimiter": ";"},
        {"kind": "parquet", "path": "x", "op": "o", "id": "i", "op_values": {"insert": [1]}},
        {"kind": "synthetic", "generator": "hyperplane", "n": 10, "noise": 0},
    ):
        first = OPTIONS.validate_python(options)
        assert OPTIONS.validate_json(first.model_dump_json()) == first
    assert OPTIONS.json_schema()["discriminator"]["propertyName"] == "kind"


def test_csv_types_come_from_the_values(tmp_path):
    source = csv(tmp_path, "n,b,s,k,y\n1,true,p q,7,0\n2.5,false,r,8,1\n")
    assert source.features.categorical == (False, False, True, False)
    assert one(source).X.tolist() == [[1.0, 1.0, 0.0, 7.0], [2.5, 0.0, 1.0, 8.0]]
    assert source.classes == [0, 1]


def test_csv_categories_are_text(tmp_path):
    source = csv(tmp_path, "n,k,y\n1,7,0\n1,08,1\n1,A,0\n", categorical=["k"])
    assert one(source).X[:, 1].tolist() == [0.0, 1.0, 2.0]
    assert source.state()["categories"] == {"k": ["7", "08", "A"]}


def test_csv_that_starts_with_a_header_only_file(tmp_path):
    (tmp_path / "0.csv").write_text("s,a,y\n")
    (tmp_path / "1.csv").write_text("s,a,y\nu,1.5,0\n")
    source = open_source(CsvFiles(path="*.csv"), tmp_path)
    assert source.features.categorical == (True, False)
    assert sum(len(rows) for rows in source.rows()) == 1


def test_csv_dialect(tmp_path):
    text = '\ufeffa;s;y\n1;"x;\n2";0\n2;"say ""hi""";1\n'
    source = csv(tmp_path, text, delimiter=";")
    rows = one(source)
    assert rows.X.tolist() == [[1.0, 0.0], [2.0, 1.0]]
    assert source.state()["categories"] == {"s": ["x;\n2", 'say "hi"']}


def test_csv_line_breaks_inside_quotes(tmp_path):
    n = 30_000
    text = "s,a,y\n" + "".join(f'"{"line,break" * 14}\n{i}",{i},0\n' for i in range(n))  # longer than a block
    source = csv(tmp_path, text)
    assert not any(rows.bad for rows in source.rows())
    assert len(source.state()["categories"]["s"]) == n


@pytest.mark.parametrize("positive", [1, "majority"])
def test_positive_in_a_file_without_rows(tmp_path, positive):
    with refused("files.no_rows", InputError, file=str(tmp_path / "t.csv")):
        csv(tmp_path, "a,y\n", positive=positive)


@pytest.mark.data
def test_electricity(data_dir):
    options = {"kind": "parquet", "path": str(data_dir / "electricity.parquet"), "positive": "DOWN"}
    source = open_source(OPTIONS.validate_python(options))
    y = np.concatenate([rows.y for rows in source.rows()])
    assert (len(y), int(y.sum()), source.n_rows) == (45_312, 26_075, 45_312)
    assert source.classes == ["UP", "DOWN"]


# -- sources read ahead ----------------------------------------------------------------------------------------------
# Threads of Arrow that read ahead in a Python file: none reads on behind a scan that is broken off.

ROWS = 700_000  #: In blocks of 1 MiB.


def limited(folder: Path) -> object:
    """Count labels up to a limit."""
    (folder / "t.csv").write_text("x,y\n" + "1.25,a\n2.5,b\n" * (ROWS // 2))
    return open_source(CsvFiles(path="t.csv", positive="a", limit=10), folder)


def refused_ahead(folder: Path) -> InputError:
    """Count labels up to a row of another length that is not UTF-8; return the error, which holds its frames."""
    rows = b"1.25,a\n2.5,b\n"
    (folder / "t.csv").write_bytes(b"x,y\n" + rows * (ROWS // 8) + b"1.25,gr\xfcn,b\n" + rows * (ROWS // 2))
    with pytest.raises(InputError) as found:
        open_source(CsvFiles(path="t.csv", positive="a"), folder)
    return found.value


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Arrow's, of the bad row
@pytest.mark.parametrize("scan", [limited, refused_ahead])
def test_a_scan_that_is_broken_off_reads_no_further(
    scan: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, reads, lock = list[int](), list[int](), RLock()
    open_stream = DataFile.open_stream

    class Slow:
        """A file of Python, which a thread of Arrow reads ahead."""

        def __init__(self, file: DataFile) -> None:
            self._stream = open_stream(file)

        @property
        def closed(self) -> bool:
            return bool(self._stream.closed)

        def read(self, size: int) -> bytes:
            with lock:
                if self.closed:
                    return b""
                inside.append(size)
                time.sleep(0.05)
                reads.append(size)
                inside.pop()
                return bytes(self._stream.read(size))

        def close(self) -> None:
            with lock:
                self._stream.close()

    monkeypatch.setattr(DataFile, "open_stream", lambda file: pa.PythonFile(Slow(file), mode="r"))
    kept = scan(tmp_path)  # noqa: F841 - an error keeps the frames in which a reader may live
    assert not inside
    assert reads
    there = len(reads)
    time.sleep(0.2)
    assert len(reads) == there


PROGRAM = """
import sys
from pathlib import Path
from threading import RLock
from raydt.errors import InputError
from tests.unit.test_sources_files import CsvFiles, open_source
try:
    kept = open_source(CsvFiles(path="t.csv", positive="a", **eval(sys.argv[2])), Path(sys.argv[1]))
except InputError as error:
    kept = error
"""


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("scan", [limited, refused_ahead])
def test_a_process_that_ends_behind_a_scan_does_not_abort(scan: Callable[[Path], object], tmp_path: Path) -> None:
    scan(tmp_path)
    options = repr({"limit": 10} if scan is limited else {})
    for _ in range(8):
        ended = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path, options], capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr.decode()


# -- sent sources ----------------------------------------------------------------------------------------------------
# What other processes know of a source with rows of many keys, from messages: where every row lies.


@pytest.mark.parametrize("kept", [2, 100])
def test_every_row_of_many_files_is_found(kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of a source that goes on are forgotten in the end, and files are not: their number is known."""
    monkeypatch.setattr(sent, "KEPT", kept)
    lengths = [3, 1, 0, 4, 2, 5]
    for number, length in enumerate(lengths):
        columns = {"store": [number] * length, "x": [0.5] * length, "y": ["a"] * length}
        types = {"store": pa.int64(), "x": pa.float64(), "y": pa.string()}
        table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    source = open_source(ParquetFiles(path=str(tmp_path / "*.parquet"), label="y", key="store"))
    source._chunk_rows = 2
    there, sending = SentSource.of(source), Sending(source)
    for number, chunk in enumerate(source.rows()):
        news = sending.news()
        there.take(news)
        assert number == 0 or len(news.files) == 1, "files that are known already are sent again"
        for row in range(chunk.start + len(chunk)):
            assert there.where(row) == source.where(row)
