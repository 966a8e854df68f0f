"""Files as sources: order, seeking, chunks, several files, paths and fingerprints, over all formats."""

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from raydt.errors import InputError
from raydt.examples.updates import Reading
from raydt.sources.divided import open_source
from raydt.sources.files.content import ContentHash
from raydt.sources.files.datafile import find_files
from raydt.sources.options import ArrowFiles, CsvFiles, LibsvmFiles, ParquetFiles
from tests.refusals import refused

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
        with refused("files.nothing", InputError, suffixes=".parquet"):
            found(nothing)


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
def test_a_hash_is_that_of_the_bytes_however_they_are_fed(monkeypatch, size, whole):
    monkeypatch.setattr("raydt.sources.files.content.WHOLE_HASH_BYTES", whole << 20)
    data = bytearray(np.random.default_rng(0).bytes(size))
    begins, length = [0], size
    if size > whole << 20:
        begins, length = [b * (size - (1 << 20)) // (whole - 1) for b in range(whole)], 1 << 20
    wanted = hashlib.sha256(b"".join(data[at : at + length] for at in begins)).hexdigest()
    pieces = [(at, 700_001) for at in range(0, size, 700_001)]
    for feeds in ([], [(0, 64), (0, 1 << 20)], pieces, [(5, 9), (0, 3 << 20)]):
        content, read = ContentHash(size), []
        for at, n in feeds:
            content.feed(bytes(data[at : at + n]), at)

        def read_at(n, at, read=read):
            read.append(n)
            return bytes(data[at : at + n])

        assert content.hexdigest(read_at) == content.hexdigest(read_at) == wanted
        assert sum(read) <= (0 if feeds == pieces else len(begins) * length)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.zst", "t.libsvm", "t.libsvm.bz2"])
def test_labels_are_read_and_hashed_together(tmp_path, name):
    lines = [f"{i % 3} {1 + i % 7}:1" if "libsvm" in name else f"{i},{i % 3}" for i in range(300_000)]
    with pa.output_stream(str(tmp_path / name)) as file:
        file.write("\n".join(["1 1:1" if "libsvm" in name else "a,y", *lines, ""]).encode())
    kind, reading = (LibsvmFiles, Reading(sparse=True)) if "libsvm" in name else (CsvFiles, Reading())
    source = open_source(kind(path=name, positive="majority"), tmp_path, reading)
    (file,) = source._files
    assert file._content._fed == (tmp_path / name).stat().st_size
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
