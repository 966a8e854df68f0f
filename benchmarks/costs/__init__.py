"""Rounds, bytes and work of each learner with shards, derived from its messages."""

from costs.best_split import BestSplitCosts
from costs.confidence_tree import ConfidenceTreeCosts
from costs.forest import ForestCosts
from costs.fudyadt import FuDyADTCosts
from costs.gbdt import GBDTCosts
from costs.sparse_tree import SparseTreeCosts

#: Counts of each learner, made from its options.
COSTS = {
    "best_split": BestSplitCosts,
    "confidence_tree": ConfidenceTreeCosts,
    "forest": ForestCosts,
    "fudyadt": FuDyADTCosts,
    "gbdt": GBDTCosts,
    "sparse_tree": SparseTreeCosts,
}
