"""Stored rows: streams over them give what streams over the original give, in this process and another."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.config import load_config
from raydt.errors import InputError
from raydt.sources.divided import open_source
from raydt.sources.file_source import StoredSource
from raydt.streams.options import make_stream

N = 500


@pytest.fixture(params=["text", "integer", "row"])
def files(tmp_path, request):
    """Two files with one bad row in the second, and a log that deletes known, later and unknown ids."""
    rng = np.random.default_rng(1)
    ids = {"text": [f"c{i}" for i in range(N)], "integer": [7 * i for i in range(N)], "row": None}[request.param]
    table = pa.table({"x": rng.normal(size=N), "c": rng.choice(["a", "b", "d"], N), "y": rng.choice([3, 1, 2], N)})
    if ids is not None:
        table = table.append_column("k", pa.array(ids))
    table = table.append_column("at", pa.array(np.arange(N) + rng.integers(0, 15, N)))
    x = table["x"].to_pylist()
    x[400] = float("nan")
    table = table.set_column(0, "x", pa.array(x))
    for part, (begin, stop) in enumerate([(0, 300), (300, N)]):
        pq.write_table(table.slice(begin, stop - begin), tmp_path / f"part-{part}.parquet")
    wanted = [10, 350, 10, 450, 20]
    named = [i if ids is None else ids[i] for i in wanted]
    unknown = "zz" if request.param == "text" else 10**6
    log = tmp_path / "log.parquet"
    pq.write_table(pa.table({"id": [*named, unknown], "after": [20, 360, 380, 100, None, None]}), log)
    return tmp_path, {"id": "k"} if ids is not None else {}, log


def config(files, stream, **source):
    folder, ids, _ = files
    source = {"kind": "parquet", "path": str(folder / "part-*.parquet"), "label": "y", "ts": "at", **ids, **source}
    return load_config({"source": source, "stream": stream, "learner": {"kind": "fudyadt"}})


def batches(stream, size=64):
    return list(stream.batches(size))


MODELS = ["incremental", "sliding_window", "random_updates", "deletion_log", "batches", "time_window"]


@pytest.mark.parametrize("permutation", [None, 3])
@pytest.mark.parametrize("positive", [None, 2])
@pytest.mark.parametrize("model", MODELS)
def test_streams_are_the_same(files, model, positive, permutation):
    stream = {"model": model, "on_error": "skip"}
    stream |= {"steps": [0.5, 1.0, 0.2]} if model == "batches" else {}
    stream |= {"duration": 50, "lateness": 20} if model == "time_window" else {}
    stream |= {"deletion_log": str(files[2])} if model == "deletion_log" else {}
    stream |= {"window": 50} if model == "sliding_window" else {}
    one = config(files, stream, positive=positive, permutation=permutation)
    original = open_source(one.source)
    expected = make_stream(one.stream, original)
    opened = open_source(one.source)
    make_stream(one.stream, opened)
    stored = StoredSource(opened)
    found = make_stream(one.stream, stored)
    for theirs, ours in zip(batches(expected), batches(found), strict=True):
        assert (theirs.start, theirs.n_classes, theirs.warmup) == (ours.start, ours.n_classes, ours.warmup)
        for name in ("op", "id", "X", "y", "row"):
            np.testing.assert_array_equal(getattr(theirs, name), getattr(ours, name))
        assert theirs.names == ours.names
        for row in theirs.row.tolist():
            if row != -1:
                assert expected.where(row) == found.where(row)
    assert expected.take_skipped() == found.take_skipped()
    assert (stored.classes, stored.positive, stored.n_rows) == (original.classes, original.positive, N)
    assert (stored.features, stored.identity().fingerprint) == (original.features, original.identity().fingerprint)


def test_reading_can_begin_anywhere(files):
    one = config(files, {"model": "incremental"})
    stored = StoredSource(open_source(one.source))
    for start in (0, 1, 299, 300, 399, 400, 401, N - 1, N):
        rows = list(stored.rows(start))
        assert [*range(start, N)] == [row for chunk in rows for row in range(chunk.start, chunk.start + len(chunk))]
        assert [chunk.start + place for chunk in rows for place in chunk.bad] == ([400] if start <= 400 else [])


def test_chunks_in_read_only_memory_are_handed_out_writeable(files):
    stored = StoredSource(open_source(config(files, {"model": "incremental"}).source))
    for chunk in stored.chunks:
        chunk.X.flags.writeable = chunk.y.flags.writeable = chunk.id.flags.writeable = False
    assert all(chunk.X.flags.writeable and chunk.y.flags.writeable for chunk in stored.rows())


def test_the_first_bad_row_is_known(files):
    error = StoredSource(open_source(config(files, {"model": "incremental"}).source)).first_bad()
    assert isinstance(error, InputError)
    assert (error.row, error.column) == (100, "x")
    clean = load_config({"source": {"kind": "synthetic", "generator": "sea", "n": 50}, "learner": {"kind": "fudyadt"}})
    assert StoredSource(open_source(clean.source)).first_bad() is None
