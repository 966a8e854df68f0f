"""FuDyADT as one of the learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.store import ExampleStore
from raydt.learners.audit_report import AuditReport
from raydt.learners.base import Case, Learner, WorkPlan
from raydt.learners.fudyadt.audit import audit
from raydt.learners.fudyadt.coordinator import FuDyADTCoordinator
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.fudyadt.shard import FuDyADTShard
from raydt.learners.fully_dynamic.model import Arrays, check_rows, check_tree
from raydt.learners.sparse_tree.audit import audit as audit_sparse_tree
from raydt.learners.sparse_tree.checks import check_sparse_state, check_sparse_tree
from raydt.learners.sparse_tree.coordinator import SparseTreeCoordinator
from raydt.learners.sparse_tree.shard import SparseTreeShard
from raydt.learners.tree_predictor import TreePredictor


class FuDyADT(Learner):
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

    def audit(
        self,
        options: FuDyADTOptions,
        features: Features,
        state: Arrays,
        history: History,
        groups: Mapping[int, Arrays],
    ) -> AuditReport:
        """Prove or refute what the method promises of a state."""
        if options.finder != "exact":
            return audit_sparse_tree(options, features, state, history, groups)
        return audit(options, features, state, history)

    def cases(self) -> Sequence[Case]:
        """Rebuilds by the shards, by the coordinator, and with a finder; two classes and three."""
        often = {"epsilon": 0.3, "alpha": 0.0, "beta": 0.0, "max_depth": 3}
        sparse = {"alpha": 0.0, "beta": 0.02, "max_depth": 3}
        return (
            # Shards do every rebuild, and the coordinator keeps no features: the most messages there can be.
            Case("spread", often, plan=WorkPlan(0, 0, shared_store=False)),
            # The coordinator does small rebuilds, keeps the features of four rows and gathers the others.
            Case("cached", often, classes=3, warmup=6, plan=WorkPlan(36, 4 * 4 * 8, shared_store=False)),
            Case("updent", sparse | {"finder": "updent"}, dense=False, sparse=True),
            Case("updgini", sparse | {"finder": "updgini", "epsilon": 0.5}, sparse=True, warmup=6),
        )

    def concerns(self, case: Case, options: FuDyADTOptions) -> bool:
        """Exact trees and trees with a finder share no kernels."""
        return ("finder" in case.options) == (options.finder != "exact")


LEARNER = FuDyADT()
