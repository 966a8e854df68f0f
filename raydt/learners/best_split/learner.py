"""The sparse best split as one of the learners."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, UpdateBatch
from raydt.learners.audit_report import AuditReport
from raydt.learners.base import Promise, WorkPlan
from raydt.learners.best_split.checks import check_split, check_state
from raydt.learners.best_split.coordinator import BestSplitCoordinator
from raydt.learners.best_split.model import BestSplitPredictor
from raydt.learners.best_split.options import BestSplitOptions
from raydt.learners.best_split.shard import BestSplitShard

Arrays = dict[str, "npt.NDArray[Any]"]


class BestSplit:
    """Makes the two halves of the learner, its predictor and its audit."""

    kind = "best_split"
    Options = BestSplitOptions

    def coordinator(
        self, options: BestSplitOptions, features: Features, shards: int, plan: WorkPlan
    ) -> BestSplitCoordinator:
        """The coordinator for ``shards`` shards."""
        return BestSplitCoordinator(options, features, shards, plan)

    def shard(
        self, options: BestSplitOptions, features: Features, groups: npt.NDArray[np.int64], store: Any = None
    ) -> BestSplitShard:
        """The worker that owns ``groups``; it keeps their features itself."""
        return BestSplitShard(options, features, groups)

    def check(
        self,
        options: BestSplitOptions,
        features: Features,
        classes: int,
        model: Arrays,
        groups: Mapping[int, Arrays] | None,
    ) -> None:
        """Require of saved arrays what the kernels rely on."""
        if features.names:
            raise ValueError("its features are not sparse ones only")
        if groups is None:
            check_split(model, features)
        else:
            check_state(model, groups, options, features, classes)

    def predictor(self, options: BestSplitOptions, features: Features, model: Arrays) -> BestSplitPredictor:
        """Predictions of a saved model."""
        return BestSplitPredictor(model)

    def promise(self, options: BestSplitOptions) -> Promise:
        """Within (1 + alpha) of the optimum."""
        return options.promise()

    def audit(
        self,
        options: BestSplitOptions,
        features: Features,
        state: Arrays,
        history: History,
        groups: Mapping[int, Arrays],
    ) -> AuditReport:
        """Prove or refute what the method promises of a state."""
        from raydt.learners.best_split.audit import audit

        return audit(options, features, state, history, groups)

    def warmup(self, options: Any = None) -> None:
        """Compile every kernel, whatever the options; later calls in the same process do nothing."""
        _warm_up()


@functools.cache
def _warm_up() -> None:
    """A short stream with every finder."""
    from raydt.sessions.session import InProcessSession

    n = 12
    op = np.array([INSERT] * n + [DELETE] * (n // 2) + [DELETE_VALUE], dtype=np.int8)
    key = np.concatenate([np.arange(n), np.arange(n // 2), [0]])
    indices = np.append(np.arange(n), n - 1).astype(np.int32) % 5
    rows = SparseRows.of_lengths(np.ones(n + 1, dtype=np.int64), indices, 5)
    y = (np.append(np.arange(n), n - 1) % 2).astype(np.int32)
    batch = UpdateBatch(0, op, key, np.empty((n + 1, 0)), y, 2, np.full(len(op), -1), sparse=rows)
    features = Features((), (), 3, sparse=5)
    for finder in ("updgini", "updent", "scan"):
        session = InProcessSession(LEARNER, BestSplitOptions(finder=finder), features, 2)
        session.apply(batch)
        session.digest()
        session.restore(*session.state())
        session.coordinator.predict_proba(np.empty((n + 1, 0)), 2, sparse=rows)  # type: ignore[call-arg]


LEARNER = BestSplit()
