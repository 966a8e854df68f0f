"""The sparse fully dynamic tree as one of the learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.reading import Reading
from raydt.examples.store import ExampleStore
from raydt.learners.audit_report import AuditReport
from raydt.learners.base import Case, Learner, Renamed, Traits, WorkPlan
from raydt.learners.sparse_tree.audit import audit
from raydt.learners.sparse_tree.checks import check_sparse_state, check_sparse_tree
from raydt.learners.sparse_tree.coordinator import SparseTreeCoordinator
from raydt.learners.sparse_tree.describe import SparseTreeDescription
from raydt.learners.sparse_tree.options import SparseTreeOptions
from raydt.learners.sparse_tree.shard import SparseTreeShard
from raydt.learners.tree_arrays import Arrays
from raydt.learners.tree_predictor import TreePredictor


class SparseTree(Learner):
    """Makes the two halves of the learner, its predictor and its audit."""

    kind = "sparse_tree"
    Options = SparseTreeOptions
    unproven: ClassVar[dict[str, str]] = {
        "seq": "queries and refused updates are counted, which leave nothing behind",
        "threshold": "that of a leaf is not used",
        "rebuilds": "counts work that was done, which the result does not depend on",
        "rebuilt_rows": "counts work that was done, which the result does not depend on",
        "bucket": "intervals overlap: a feature may be in either of two",
    }

    def traits(self, options: SparseTreeOptions) -> Traits:
        """Sparse features and two classes; dense ones need a schedule, whose theorem is about the Gini index."""
        dense = options.finder != "updent"
        return Traits(
            Reading(
                sparse=True,
                needs_sparse=True,
                dense=dense,
                classes=2,
                sparse_classes=2,
                with_dense="" if dense else "finder: updgini",
            )
        )

    def describe(self, options: Mapping[str, Any]) -> SparseTreeDescription:
        """The tree, and its rebuilds."""
        return SparseTreeDescription()

    def renamed(self, options: Mapping[str, Any]) -> Renamed | None:
        """In an earlier version this was ``kind: fudyadt`` with a finder other than ``exact``."""
        if options.get("kind") != "fudyadt" or options.get("finder") not in ("updgini", "updent"):
            return None
        finder = options["finder"]
        return Renamed(
            {**options, "kind": self.kind},
            f"kind: fudyadt with finder: {finder} is now a learner of its own. Write kind: sparse_tree, and keep the "
            "other keys; a later version will refuse the old spelling",
        )

    def coordinator(
        self, options: SparseTreeOptions, features: Features, shards: int, plan: WorkPlan
    ) -> SparseTreeCoordinator:
        """The coordinator for ``shards`` shards."""
        return SparseTreeCoordinator(options, features, shards, plan)

    def shard(
        self,
        options: SparseTreeOptions,
        features: Features,
        groups: npt.NDArray[np.int64],
        store: ExampleStore | None = None,
    ) -> SparseTreeShard:
        """The worker that owns ``groups``; it keeps its rows itself."""
        return SparseTreeShard(options, features, groups)

    def check(
        self,
        options: SparseTreeOptions,
        features: Features,
        classes: int,
        model: Arrays,
        groups: Mapping[int, Arrays] | None,
    ) -> None:
        """Require of saved arrays what the kernels rely on."""
        check_sparse_tree(options, features, model)
        if groups is not None:
            check_sparse_state(options, features, model, groups)

    def predictor(self, options: SparseTreeOptions, features: Features, model: Arrays) -> TreePredictor:
        """Predictions of a saved model."""
        return TreePredictor(features, model)

    def audit(
        self,
        options: SparseTreeOptions,
        features: Features,
        state: Arrays,
        history: History,
        groups: Mapping[int, Arrays],
    ) -> AuditReport:
        """Prove or refute what the method promises of a state."""
        return audit(options, features, state, history, groups)

    def cases(self) -> Sequence[Case]:
        """Both finders, with dense features and without, rebuilt often."""
        often = {"alpha": 0.0, "beta": 0.02, "max_depth": 3}
        return (
            Case("updent", often | {"finder": "updent"}, dense=False, sparse=True),
            Case("updgini", often | {"finder": "updgini", "epsilon": 0.5}, sparse=True, warmup=6),
        )


LEARNER = SparseTree()
