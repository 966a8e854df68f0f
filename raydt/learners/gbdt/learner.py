"""The in-place online GBDT as one of the learners."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.updates import DELETE, INSERT, QUERY, UpdateBatch
from raydt.learners.audit_report import AuditReport
from raydt.learners.base import Promise, WorkPlan
from raydt.learners.gbdt.checks import check_model, check_state
from raydt.learners.gbdt.coordinator import GBDTCoordinator
from raydt.learners.gbdt.model import saved_predictor
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.shard import GBDTShard

Arrays = dict[str, "npt.NDArray[Any]"]


class GBDT:
    """Makes the two halves of the learner, its predictor and its audit."""

    kind = "gbdt"
    Options = GBDTOptions

    def coordinator(self, options: GBDTOptions, features: Features, shards: int, plan: WorkPlan) -> GBDTCoordinator:
        """The coordinator for ``shards`` shards."""
        return GBDTCoordinator(options, features, shards, plan)

    def shard(
        self, options: GBDTOptions, features: Features, groups: npt.NDArray[np.int64], store: Any = None
    ) -> GBDTShard:
        """The worker that owns ``groups``; it keeps their columns itself."""
        return GBDTShard(options, features, groups)

    def check(
        self,
        options: GBDTOptions,
        features: Features,
        classes: int,
        model: Arrays,
        groups: Mapping[int, Arrays] | None,
    ) -> None:
        """Require of saved arrays what the kernels rely on."""
        if groups is None:
            check_model(model, options, features, classes)
        else:
            check_state(model, groups, options, features, classes)

    def predictor(self, options: GBDTOptions, features: Features, model: Arrays) -> Any:
        """Predictions of a saved model."""
        return saved_predictor(model, options)

    def promise(self, options: GBDTOptions) -> Promise:
        """The paper bounds nothing after an update."""
        return options.promise()

    def audit(
        self,
        options: GBDTOptions,
        features: Features,
        state: Arrays,
        history: History,
        groups: Mapping[int, Arrays] | None = None,
    ) -> AuditReport:
        """Prove or refute what the method promises of a state."""
        from raydt.learners.gbdt.audit import audit

        return audit(options, features, state, history)

    def warmup(self, options: Any = None) -> None:
        """Compile every kernel, whatever the options; later calls in the same process do nothing."""
        _warm_up()


@functools.cache
def _warm_up() -> None:
    """A short stream with one shard and with two, of classes and of numbers."""
    from raydt.sessions.session import InProcessSession

    n = 60
    X = np.random.default_rng(0).random((n, 3))
    op = np.array([INSERT] * n + [DELETE] * (n // 2) + [QUERY], dtype=np.int8)
    key = np.concatenate([np.arange(n), np.arange(n // 2), [0]])
    rows = np.concatenate([X, X[-1:]])
    features = Features(("a", "b", "c"), (False, False, True))
    for objective in ("auto", "squared_error"):
        y = np.append(np.arange(n), n - 1) % 3
        options = GBDTOptions(max_iter=3, max_leaf_nodes=4, update_every=7, objective=objective, early_stopping=True)
        numbers = options.regression
        labels = y.astype(np.float64 if numbers else np.int32)
        batch = UpdateBatch(0, op, key, rows, labels, 0 if numbers else 3, np.full(len(op), -1), n // 2)
        for shards in (1, 2):
            session = InProcessSession(LEARNER, options, features, shards)
            session.apply(batch)
            session.digest()
            session.restore(*session.state())
            session.finish()
            session.coordinator.predict(X)


LEARNER = GBDT()
