"""Sparse rows on their way from a source through streams, sessions and checkpoints, against the same rows as columns.

The learner is the one of the simulation, in which a row that is not as it was shows in the digest.
"""

from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from pipelines.running.intake import split_at_multiples
from raydt.arrays.blocks import concatenated
from raydt.sources.divided import open_source
from raydt.sources.options import ParquetFiles
from raydt.streams.base import history_of
from raydt.streams.options import StreamOptions
from tests.simulation.chain import Chain, ChainOptions
from tests.strategies import ones
from tests.volume import examples

WIDTH = 12
OPTIONS = ChainOptions(kind="chain", feature_groups=5)

MODELS = (
    {"model": "incremental"},
    {"model": "incremental", "warmup": 4},
    {"model": "sliding_window", "window": 3},
    {"model": "random_updates", "seed": 5},
    {"model": "batches", "steps": [6, 2, 9, 0], "removal_order": "random"},
    {"model": "batches", "steps": [6, 2, 9, 0], "removal_order": "lifo"},
    {"model": "changelog"},
)


@st.composite
def tables(draw, changelog):
    """Rows with a dense column, bad ones among them; as a change log with every operation."""
    n = draw(st.integers(1, 20))
    lists = draw(st.lists(ones(WIDTH, 4) | st.just([3, 3]), min_size=n, max_size=n))
    columns = {
        "y": draw(st.lists(st.sampled_from("ab"), min_size=n, max_size=n)),
        "size": [float(i % 3) for i in range(n)],
    }
    if changelog:
        columns |= {"id": draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))}
        columns |= {"op": draw(st.lists(st.sampled_from(["c", "d", "u", "q", "delete_value"]), min_size=n, max_size=n))}
    return columns, lists


def stream_of(folder, columns, lists, model, dense=False):
    if dense:
        good = [row if row != [3, 3] else None for row in lists]
        cells = ([None if row is None else float(j in row) for row in good] for j in range(WIDTH))
        added = {f"i{j}": pa.array(column, pa.float64()) for j, column in enumerate(cells)}
    else:
        added = {"indices": pa.array(lists, pa.list_(pa.int32()))}
    table = pa.table({**columns, **added}).replace_schema_metadata({"n_features": str(WIDTH)})
    pq.write_table(table, folder / f"{dense}.parquet", row_group_size=7)
    is_log = model["model"] == "changelog"
    options = {"id": "id", "op": "op"} if is_log else {}
    source = open_source(ParquetFiles(path=f"{dense}.parquet", **options), folder, Chain().traits(OPTIONS).reading)
    return TypeAdapter(StreamOptions).validate_python({**model, "on_error": "skip"}).make(source)


def dense_of(rows, sparse):
    return np.concatenate([rows, sparse.dense()], axis=1)


@pytest.mark.parametrize("model", MODELS, ids=str)
@examples(25, deadline=None)
@given(data=st.data())
def test_streams_carry_the_rows(tmp_path_factory, model, data):
    """Batches and history hold what those of the same rows as columns hold, however they are cut."""
    columns, lists = data.draw(tables(model["model"] == "changelog"))
    folder = tmp_path_factory.mktemp("streams")
    size, every = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))
    stream, twin = (stream_of(folder, columns, lists, model, dense) for dense in (False, True))
    pieces = list(chain.from_iterable(split_at_multiples(batch, every) for batch in stream.batches(size)))
    whole = list(twin.batches(1000))
    assert [i for piece in pieces for i in piece.id] == [i for batch in whole for i in batch.id]
    assert all(len(piece.sparse) == len(piece.X) for piece in pieces)
    if pieces:
        X = np.concatenate([piece.X for piece in pieces])
        got = dense_of(X, concatenated([piece.sparse for piece in pieces]))
        np.testing.assert_array_equal(got, np.concatenate([batch.X for batch in whole]))
    history, other = (history_of(stream_of(folder, columns, lists, model, dense)) for dense in (False, True))
    np.testing.assert_array_equal(dense_of(history.X, history.sparse), other.X)
    assert history.id.tolist() == other.id.tolist()
    assert history.deleted.tolist() == other.deleted.tolist()
