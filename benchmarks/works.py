"""Pieces of work that shards may divide: first models of all learners, and updates of large ones.

Each has generated rows that are sent to the session, and one or more last batches, which are timed. Peers of a first
model train on the same rows with all cores.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import DELETE, INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan

#: Rows in a message, and in the last one of a warm-up, whose result has the first model.
PART, LAST = 50_000, 1_000
#: Sparse features, and those that a row has; groups, so that 32 shards have work.
WIDTH, ONES, GROUPS = 4096, 20, 32
GBDT = {"max_iter": 20, "max_bins": 255}
#: The options of LightGBM that are :data:`GBDT` and the defaults of ours.
LIGHTGBM = {
    "objective": "binary", "num_leaves": 20, "max_bin": GBDT["max_bins"], "lambda_l2": 1.0, "min_data_in_leaf": 1,
    "verbosity": -1,
}  # fmt: skip
#: The shards do all work and keep all rows.
ALL_TO_SHARDS = WorkPlan(local_work_limit=0, row_cache_bytes=0)

Array = npt.NDArray[Any]


class Work(NamedTuple):
    """A first model of ``rows`` rows or, with ``every``, ``batches`` batches of so many updates of such a model."""

    kind: str
    rows: int
    columns: int  #: 0: rows are sparse
    options: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    every: int = 0
    batches: int = 1
    inserts: bool = True  #: Else all updates are deletions.
    peer: Callable[[Any, Array], Any] | None = None  #: trains with all cores on rows and labels

    def of(self, rows: int) -> Work:
        return self._replace(rows=rows)

    @property
    def title(self) -> str:
        name = "updates" if self.inserts else "deletions"
        updates = f"{self.batches} x {self.every:,} {name} of " if self.every else ""
        row = self.columns or f"{ONES} of {WIDTH:,}"
        return f"{self.kind}, {updates}{self.rows:,} x {row}"

    @property
    def features(self) -> Features:
        if not self.columns:
            return Features((), (), groups=GROUPS, sparse=WIDTH)
        return Features(tuple(f"x{j}" for j in range(self.columns)), (False,) * self.columns, groups=GROUPS)

    @property
    def settings(self) -> Any:
        each = {"update_every": self.every, "retrain": "never"} if self.every and self.kind == "gbdt" else {}
        given = {"kind": self.kind, "feature_groups": GROUPS, **self.options, **each}
        return learners()[self.kind].Options.model_validate(given)

    def first(self) -> Iterator[UpdateBatch]:
        for begin, X, sparse, y in self.parts():
            m = len(y)
            ids, none = np.arange(begin, begin + m), np.full(m, -1, dtype=np.int64)
            yield UpdateBatch(begin, np.full(m, INSERT, dtype=np.int8), ids, X, y, 2, none, self.rows, sparse=sparse)

    def updates(self) -> Iterator[UpdateBatch]:
        """Batches that each delete the oldest rows and insert as many, or delete only."""
        draw, m = np.random.default_rng(3), self.every
        gone = m // 2 if self.inserts else m
        op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), [gone, m - gone])
        for k in range(self.batches):
            ids = np.append(k * gone + np.arange(gone), self.rows + k * (m - gone) + np.arange(m - gone))
            X = draw.random((m - gone, self.columns))
            y = (X.sum(axis=1) > self.columns / 2).astype(np.int32)
            none, start = np.full(m, -1, dtype=np.int64), self.rows + k * m
            yield UpdateBatch(start, op, ids, X, y, 2, none, self.rows)

    def data(self) -> tuple[Any, Array]:
        parts = list(self.parts())
        y = np.concatenate([part[3] for part in parts])
        if self.columns:
            return np.concatenate([part[1] for part in parts]), y
        from scipy.sparse import csr_matrix

        indices = np.concatenate([part[2].indices for part in parts])
        shape = self.rows, WIDTH
        return csr_matrix((np.ones(len(indices), np.float32), indices, np.arange(0, len(indices) + 1, ONES)), shape), y

    def parts(self, most: int = PART) -> Iterator[tuple[int, Array, Any, Array]]:
        """First row, numbers, ones and labels of each message, of ``most`` rows."""
        draw = np.random.default_rng(1)
        weights = draw.normal(size=self.columns)
        edges = [*range(0, self.rows - LAST, most), self.rows - LAST, self.rows]
        for begin, end in itertools.pairwise(edges):
            m = end - begin
            X, sparse = draw.random((m, self.columns)), None
            score = X @ weights - weights.sum() / 2
            if not self.columns:
                ones = draw.integers(0, WIDTH // ONES, (m, ONES), dtype=np.int32) + WIDTH // ONES * np.arange(ONES)
                sparse = SparseRows.of_lengths(np.full(m, ONES), ones.astype(np.int32).ravel(), WIDTH)
                score = ((ones % (WIDTH // ONES) < 20) * np.linspace(1, 3, ONES)).sum(axis=1) - 3.9
            yield begin, X, sparse, (score + draw.normal(size=m) > 0).astype(np.int32)


def lightgbm(X: Any, y: Array) -> None:
    import lightgbm as lgb

    lgb.train({**LIGHTGBM, "num_threads": os.cpu_count()}, lgb.Dataset(X, y), GBDT["max_iter"])


def one_tree(X: Any, y: Array) -> None:
    from sklearn.tree import DecisionTreeClassifier

    DecisionTreeClassifier(max_depth=10).fit(X, y)


def trees(X: Any, y: Array) -> None:
    from sklearn.ensemble import RandomForestClassifier

    RandomForestClassifier(n_estimators=100, n_jobs=-1).fit(X, y)


WORKS = {
    "gbdt": Work("gbdt", 1_000_000, 50, GBDT, peer=lightgbm),
    "gbdt_rows": Work("gbdt", 4_000_000, 28, GBDT, peer=lightgbm),
    "gbdt_20000": Work("gbdt", 200_000, 50, GBDT, every=20_000, batches=5),
    "gbdt_1000": Work("gbdt", 200_000, 50, GBDT, every=1_000, batches=10),
    "gbdt_deletes": Work("gbdt", 1_000_000, 50, GBDT, every=1_000, inserts=False, peer=lightgbm),
    "fudyadt": Work("fudyadt", 1_000_000, 50, {"epsilon": 0.5, "max_depth": 10}, peer=one_tree),
    "forest": Work("forest", 100_000, 20, {"n_estimators": 100, "sample_share": 0.1}, peer=trees),
    "forest_updates": Work("forest", 4_000, 16, {"n_estimators": 64, "sample_share": 0.1}, every=4_000, batches=25),
    "sparse_tree": Work("sparse_tree", 2_000_000, 0, {"max_depth": 10}, peer=one_tree),
    "confidence_tree": Work("confidence_tree", 500_000, 20),
    "best_split": Work("best_split", 1_000_000, 0),
}
#: One piece of each learner.
LEARNERS = ("gbdt", "fudyadt", "forest", "sparse_tree", "confidence_tree", "best_split")


def run(session: Any, work: Work, look: Callable[[], object] = lambda: None) -> tuple[float, str]:
    """Wall seconds of the timed batches of a session, and the digest; ``look`` is called before and after."""
    timed: list[UpdateBatch] = []
    for _ in session.process(work.first() if work.every else _but_last(work.first(), timed)):
        pass
    timed += work.updates() if work.every else []
    look()
    began = time.perf_counter()
    for batch in timed:
        for _ in session.process([batch]):
            pass
    taken = time.perf_counter() - began
    look()
    return taken, session.digest()


def _but_last(batches: Iterator[UpdateBatch], last: list[UpdateBatch]) -> Iterator[UpdateBatch]:
    for batch in batches:
        if last:
            yield last.pop()
        last.append(batch)
