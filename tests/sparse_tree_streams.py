"""Streams of rows that are sparse in part, for the tests of the sparse fully dynamic tree; its twin and a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, Features, UpdateBatch
from raydt.learners import learners
from raydt.sessions.session import InProcessSession
from tests.oracles.sparse_splits import SparseTreeTwin
from tests.strategies import Stream, missing_value, script

LEARNER = learners()["sparse_tree"]


@dataclass(frozen=True)
class MixedStream:
    """A stream whose columns from ``dense`` on are handed over as sparse features."""

    columns: Stream
    dense: int

    @property
    def features(self) -> Features:
        kinds = self.columns.categorical[: self.dense]
        names = tuple(f"x{j}" for j in range(self.dense))
        return Features(names, kinds, 4, sparse=len(self.columns.categorical) - self.dense)

    def sparse_of(self, X: Any) -> SparseRows:
        rows, indices = np.nonzero(X[:, self.dense :])
        lengths = np.bincount(rows, minlength=len(X))
        return SparseRows.of_lengths(lengths, indices.astype(np.int32), X.shape[1] - self.dense)

    def batches(self, sizes: Sequence[int]) -> Iterator[UpdateBatch]:
        for batch in self.columns.batches(sizes):
            X = np.ascontiguousarray(batch.X[:, : self.dense])
            yield replace(batch, X=X, sparse=self.sparse_of(batch.X))


@st.composite
def short_streams(draw: st.DrawFn, refusals: bool = False) -> MixedStream:
    """Few features and rows that repeat, so that ties, equal rows and pure sides abound."""
    dense = tuple(draw(st.lists(st.booleans(), max_size=2))) if draw(st.booleans()) else ()
    lacks = draw(st.booleans())
    number, category = (
        st.sampled_from((0.0, 1.0, 2.0, 3.0, *(missing_value(kind),) * (2 * lacks))) for kind in (False, True)
    )
    bit = st.sampled_from(draw(st.sampled_from(((0.0, 1.0), (0.0, 0.0, 0.0, 1.0)))))
    cells = st.tuples(*[category if kind else number for kind in dense], *[bit] * draw(st.integers(1, 8)))
    grow = draw(st.sampled_from((1, 4, 12)))
    operation = st.sampled_from((INSERT,) * grow + (INSERT, DELETE, DELETE, DELETE_VALUE, UPDATE, QUERY))
    size = draw(st.sampled_from((1, 20, 60)))
    event = st.tuples(operation, st.integers(0, 255), cells, st.integers(0, 1))
    events = draw(st.lists(event, min_size=size, max_size=2 * size))
    lead = draw(st.integers(1, 20)) if draw(st.booleans()) else 0
    categorical = (*dense, *[False] * (len(events[0][2]) - len(dense)))
    return MixedStream(replace(script(events, categorical, lead, refusals), warmup=lead), len(dense))


def long_stream(seed: int, events: int = 320, dense: int = 0, missing: bool = False) -> MixedStream:
    """The label follows two features, with noise, and two others from the middle on: trees of some depth.

    Numbers follow the label, and so does whether they are ``missing``, if they may be.
    """
    rng = np.random.default_rng(seed)
    often = rng.choice((0.05, 0.3, 0.5, 0.9), 14)
    mix = np.array((INSERT, DELETE, DELETE_VALUE, UPDATE, QUERY))
    early, late = (0.85, 0.05, 0.02, 0.05, 0.03), (0.35, 0.35, 0.1, 0.15, 0.05)
    drawn = []
    for i in range(events):
        ones = (rng.random(14) < often).astype(float)
        a, b = (0, 1) if i < events // 2 else (2, 3)
        label = int(ones[a]) ^ int(ones[b]) if rng.random() < 0.9 else int(rng.integers(2))
        numbers = np.round(rng.random(dense) + 0.3 * label, 1)
        if missing:
            numbers[rng.random(dense) < (0.1, 0.4)[label]] = np.nan
        op = int(rng.choice(mix, p=early if i < events // 2 else late))
        drawn.append((op, int(rng.integers(256)), (*numbers.tolist(), *ones.tolist()), label))
    lead = int(rng.choice((0, 0, 1, events // 3)))
    return MixedStream(replace(script(drawn, (False,) * (14 + dense), lead, False), warmup=lead), dense)


def twin_of(stream: MixedStream, options: dict[str, Any]) -> SparseTreeTwin:
    decisive = {name: value for name, value in options.items() if name not in ("feature_groups", "class_weight")}
    features = stream.features
    groups = features.groups_of(np.arange(features.sparse)).tolist()
    twin = SparseTreeTwin(features.categorical, features.sparse, groups.__getitem__, **decisive)
    if stream.columns.weight is not None:
        twin.fixed_unit = 2**16
        twin.root = twin.build([], 0, -1)
    return twin


def session_of(stream: MixedStream, options: dict[str, Any], shards: int) -> InProcessSession:
    return InProcessSession(LEARNER, LEARNER.Options(kind="sparse_tree", **options), stream.features, shards)
