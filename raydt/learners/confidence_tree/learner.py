"""The confidence tree as one of the learners."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.learners.audit_report import AuditReport
from raydt.learners.base import Promise, WorkPlan
from raydt.learners.confidence_tree.checks import check_model, check_state
from raydt.learners.confidence_tree.coordinator import ConfidenceTreeCoordinator
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.confidence_tree.shard import ConfidenceTreeShard
from raydt.learners.tree_predictor import TreePredictor

Arrays = dict[str, "npt.NDArray[Any]"]


class ConfidenceTree:
    """Makes the two halves of the learner, its predictor and its audit."""

    kind = "confidence_tree"
    Options = ConfidenceTreeOptions

    def coordinator(
        self, options: ConfidenceTreeOptions, features: Features, shards: int, plan: WorkPlan
    ) -> ConfidenceTreeCoordinator:
        """The coordinator for ``shards`` shards."""
        return ConfidenceTreeCoordinator(options, features, shards, plan)

    def shard(
        self, options: ConfidenceTreeOptions, features: Features, groups: npt.NDArray[np.int64], store: Any = None
    ) -> ConfidenceTreeShard:
        """The worker that owns ``groups``; it keeps their columns itself."""
        return ConfidenceTreeShard(options, features, groups)

    def check(
        self,
        options: ConfidenceTreeOptions,
        features: Features,
        classes: int,
        model: Arrays,
        groups: Mapping[int, Arrays] | None,
    ) -> None:
        """Require of saved arrays what the kernels rely on."""
        if groups is None:
            check_model(model, features, classes)
        else:
            check_state(model, groups, options, features, classes)

    def predictor(self, options: ConfidenceTreeOptions, features: Features, model: Arrays) -> TreePredictor:
        """Predictions of a saved model."""
        return TreePredictor(features, model)

    def promise(self, options: ConfidenceTreeOptions) -> Promise:
        """Theorem 4, where its premises hold."""
        return options.promise()

    def audit(
        self,
        options: ConfidenceTreeOptions,
        features: Features,
        state: Arrays,
        history: History,
        groups: Mapping[int, Arrays],
    ) -> AuditReport:
        """Prove or refute what the method promises of a state."""
        from raydt.learners.confidence_tree.audit import audit

        return audit(options, features, state, history, groups)

    def warmup(self, options: ConfidenceTreeOptions | None = None) -> None:
        """Compile every kernel that these options need, or all; later calls in the same process do nothing."""
        for finder in ("exact", "updgini") if options is None else (options.finder,):
            _warm_up(finder)


@functools.cache
def _warm_up(finder: str) -> None:
    """A short stream with a split and, of the exact finder, a prune."""
    from raydt.sessions.session import InProcessSession

    n = 64
    op = np.array([INSERT] * n + [DELETE] * n, dtype=np.int8)
    key = np.concatenate([np.arange(n), np.arange(n)])
    y = (np.arange(n) % 2).astype(np.int32)
    X = np.stack([y, np.arange(n) % 3], axis=1).astype(np.float64)
    settings = {"grace_period": 4, "c": 0.01, "finder": finder, "revisit": finder == "exact"}
    options = ConfidenceTreeOptions.model_validate(settings)
    for sparse in (0, 5) if finder == "exact" else (5,):
        rows = SparseRows.of_lengths(np.ones(n, dtype=np.int64), y, sparse) if sparse else None
        features = Features(("a", "b"), (False, True), 3, sparse=sparse)
        batch = UpdateBatch(0, op, key, X, y, 2, np.full(len(op), -1), n // 2, sparse=rows)
        session = InProcessSession(LEARNER, options, features, 2)
        session.apply(batch)
        session.restore(*session.state())
        session.digest()


LEARNER = ConfidenceTree()
