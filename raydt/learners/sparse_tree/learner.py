"""The sparse fully dynamic tree as one of the learners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from raydt.examples.reading import Reading
from raydt.learners.base import COUNTS_WORK, Case, Learner, Traits
from raydt.learners.sparse_tree import checks
from raydt.learners.sparse_tree.coordinator import SparseTreeCoordinator
from raydt.learners.sparse_tree.describe import SparseTreeDescription
from raydt.learners.sparse_tree.options import SparseTreeOptions
from raydt.learners.sparse_tree.shard import SparseTreeShard
from raydt.trees.predictor import TreePredictor


class SparseTree(Learner):
    """The parts of the learner, its traits and its cases."""

    kind = "sparse_tree"
    Options = SparseTreeOptions
    Coordinator = SparseTreeCoordinator
    Shard = SparseTreeShard
    Description = SparseTreeDescription
    Predictor = TreePredictor
    check_model = staticmethod(checks.check_model)
    check_state = staticmethod(checks.check_state)
    unproven: ClassVar[dict[str, str]] = {
        **Learner.unproven,
        "threshold": "that of a leaf is not used",
        "rebuilds": COUNTS_WORK,
        "rebuilt_rows": COUNTS_WORK,
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

    def cases(self) -> Sequence[Case]:
        """Both finders, with dense features and without, rebuilt often."""
        often = {"alpha": 0.0, "beta": 0.02, "max_depth": 3}
        return (
            Case("updent", often | {"finder": "updent"}, dense=False, sparse=True),
            Case("updgini", often | {"finder": "updgini", "epsilon": 0.5}, sparse=True, warmup=6),
        )


LEARNER = SparseTree()
