"""FuDyADT as one of the learners."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.store import ExampleStore
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, UpdateBatch
from raydt.learners.audit_report import AuditReport
from raydt.learners.base import Promise, WorkPlan
from raydt.learners.fudyadt.audit import audit
from raydt.learners.fudyadt.coordinator import FuDyADTCoordinator
from raydt.learners.fudyadt.model import Arrays, check_rows, check_tree
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.fudyadt.shard import FuDyADTShard
from raydt.learners.fudyadt.sparse.audit import audit as audit_sparse_tree
from raydt.learners.fudyadt.sparse.checks import check_sparse_state, check_sparse_tree
from raydt.learners.fudyadt.sparse.coordinator import SparseTreeCoordinator
from raydt.learners.fudyadt.sparse.shard import SparseTreeShard
from raydt.learners.tree_predictor import TreePredictor


class FuDyADT:
    """Makes the two halves of the learner, its predictor and its audit."""

    kind = "fudyadt"
    Options = FuDyADTOptions

    def coordinator(
        self, options: FuDyADTOptions, features: Features, shards: int, plan: WorkPlan
    ) -> FuDyADTCoordinator | SparseTreeCoordinator:
        """The coordinator for ``shards`` shards."""
        if options.finder != "exact":
            return SparseTreeCoordinator(options, features, shards, plan)
        return FuDyADTCoordinator(options, features, shards, plan)

    def shard(
        self,
        options: FuDyADTOptions,
        features: Features,
        groups: npt.NDArray[np.int64],
        store: ExampleStore | None = None,
    ) -> FuDyADTShard | SparseTreeShard:
        """The worker that owns ``groups``."""
        if options.finder != "exact":
            return SparseTreeShard(options, features, groups)
        return FuDyADTShard(features, groups, store)

    def check(
        self,
        options: FuDyADTOptions,
        features: Features,
        classes: int,
        model: Arrays,
        groups: Mapping[int, Arrays] | None,
    ) -> None:
        """Require of saved arrays what the kernels rely on."""
        if options.finder != "exact":
            check_sparse_tree(options, features, model)
            if groups is not None:
                check_sparse_state(options, features, model, groups)
            return
        check_tree(model, len(features), classes)
        if groups is not None:
            check_rows(model, groups, features)

    def predictor(self, options: FuDyADTOptions, features: Features, model: Arrays) -> TreePredictor:
        """Predictions of a saved model."""
        return TreePredictor(features, model)

    def promise(self, options: FuDyADTOptions) -> Promise:
        """Whether the theorem holds for these options."""
        return options.promise()

    def audit(
        self,
        options: FuDyADTOptions,
        features: Features,
        state: Arrays,
        history: History,
        groups: Mapping[int, Arrays] | None = None,
    ) -> AuditReport:
        """Prove or refute what the method promises of a state."""
        if options.finder != "exact":
            return audit_sparse_tree(options, features, state, history, groups or {})
        return audit(options, features, state, history)

    def warmup(self, options: FuDyADTOptions | None = None) -> None:
        """Compile the kernels of the exact tree, of the sparse one, or both; later calls in the process do nothing."""
        if options is None or options.finder == "exact":
            _warm_up_exact()
        if options is None or options.finder != "exact":
            _warm_up_sparse()


@functools.cache
def _warm_up_exact() -> None:
    """A short stream with and without shards' help; once in a process is enough for all its jobs."""
    from raydt.sessions.session import InProcessSession

    n = 60
    X = np.random.default_rng(0).random((n, 3))
    op = np.array([INSERT] * n + [DELETE] * (n // 2) + [DELETE_VALUE], dtype=np.int8)
    key = np.concatenate([np.arange(n), np.arange(n // 2), [0]])
    rows = np.concatenate([X, X[-1:]])
    for classes in (2, 3):
        y = (np.append(np.arange(n), n - 1) % classes).astype(np.int32)
        batch = UpdateBatch(0, op, key, rows, y, classes, np.full(len(op), -1))
        for plan in (WorkPlan(), WorkPlan(local_work_limit=0)):
            features = Features(("a", "b", "c"), (False, False, True))
            session = InProcessSession(LEARNER, FuDyADTOptions(), features, 2, plan)
            session.apply(batch)
            session.digest()
            state, groups = session.state()
            session.restore(state, groups)
            session.coordinator.predict(X)
            session.coordinator.store.find(key)  # type: ignore[attr-defined]


@functools.cache
def _warm_up_sparse() -> None:
    """The same for trees of sparse features."""
    from raydt.sessions.session import InProcessSession

    op = np.array([INSERT] * 60 + [DELETE] * 30 + [DELETE_VALUE], dtype=np.int8)
    key = np.concatenate([np.arange(60), np.arange(30), [0]])
    n = int((op != DELETE).sum())
    indices = np.append(np.arange(n - 1), n - 2).astype(np.int32) % 5
    rows = SparseRows.of_lengths(np.ones(n, dtype=np.int64), indices, 5)
    y = (indices % 2).astype(np.int32)
    X = indices[:, None] % 3.0
    for finder, dense in (("updgini", 1), ("updent", 0)):
        features = Features(("a",)[:dense], (False,)[:dense], 3, sparse=5)
        session = InProcessSession(LEARNER, FuDyADTOptions(finder=finder, beta=0.01), features, 2)
        columns = np.ascontiguousarray(X[:, :dense])
        session.apply(UpdateBatch(0, op, key, columns, y, 2, np.full(len(op), -1), sparse=rows))
        session.digest()
        session.restore(*session.state())
        session.coordinator.predict_proba(columns, 2, sparse=rows)  # type: ignore[call-arg]
        session.apply(
            UpdateBatch(len(op), op[:1], key[-2:-1] + n, columns[:1], y[:1], 2, np.full(1, -1), sparse=rows[:1])
        )


LEARNER = FuDyADT()
