"""Sparse features of the online GBDT are to its slow twin as columns of zeros and ones: the same model, audited."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.gbdt.audit import audit
from raydt.learners.gbdt.options import GBDTOptions
from raydt.sessions.session import InProcessSession
from tests.oracles.online_gbdt_stream import OnlineGBDTTwin, canonical
from tests.strategies import Stream, cuts, gbdt_options, gbdt_streams
from tests.volume import examples

pytestmark = pytest.mark.timeout(900)


def sparse_rows(X: np.ndarray, dense: int) -> SparseRows:
    """The columns after the dense ones, as sparse rows."""
    row, index = np.nonzero(X[:, dense:])
    return SparseRows.of_lengths(np.bincount(row, minlength=len(X)), index.astype(np.int32), X.shape[1] - dense)


def with_bits(stream: Stream, count: int) -> Stream:
    """The stream with so many more columns of zeros and ones, which follow from the others."""

    def bits(row: tuple[float, ...]) -> tuple[float, ...]:
        seed = zlib.crc32(np.array(row).tobytes())
        return tuple(float(seed >> (3 * j) & 3 == 0) for j in range(count))

    rows = tuple(None if row is None else row + bits(row) for row in stream.rows)
    return replace(stream, rows=rows, categorical=stream.categorical + (False,) * count)


def split(batch: UpdateBatch, dense: int) -> UpdateBatch:
    return replace(batch, X=np.ascontiguousarray(batch.X[:, :dense]), sparse=sparse_rows(batch.X, dense))


@examples(12)
@given(gbdt_streams(), gbdt_options("auto"), st.integers(1, 4), st.sampled_from((1, 2, 5)), cuts(), st.booleans())
def test_sparse_features_are_columns_of_zeros_and_ones(
    stream: Stream, options: dict[str, Any], count: int, shards: int, sizes: list[int], restores: bool
) -> None:
    dense, chosen = len(stream.categorical), GBDTOptions(**options)
    features = Features(stream.features.names, stream.categorical, groups=3, sparse=count)
    longer = with_bits(stream, count)
    session = InProcessSession(learners()["gbdt"], chosen, features, shards)
    twin = OnlineGBDTTwin(list(longer.categorical), chosen)
    for batch in longer.batches(sizes):
        assert not session.apply(split(batch, dense)).refused
        twin.process(batch)
        if restores:
            state = session.state()
            session = InProcessSession(learners()["gbdt"], chosen, features, 1 + batch.start % 5)
            session.restore(*state)
    session.finish()
    twin.finish()
    state, _ = session.state()
    fast, slow = canonical(state), canonical(twin.state())
    for name in slow:
        if not name.startswith("bins_"):
            assert fast[name] == slow[name], name
    history = twin.history()
    history = replace(history, X=history.X[:, :dense], sparse=sparse_rows(history.X, dense))
    failures = audit(chosen, features, state, history).failures
    assert not failures, failures
    if "bins_sparse" in state:
        state["bins_sparse"] = state["bins_sparse"][1:]
        failures = audit(chosen, features, state, history).failures
        assert {failure.id for failure in failures} & {"audits.bins", "audits.malformed"}
