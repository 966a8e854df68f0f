"""Confidence trees: C-Tree, VFDT's Hoeffding tree, CorrH-Tree and McDiarmid's bound, under deletions.

A leaf is split once a confidence interval says that the best split is better than its rival (De Rosa, Cesa-Bianchi).
The path of one update: ``coordinator`` -> ``tree`` (who counts it) -> ``shard`` / ``statistics`` (counts, candidates,
naive Bayes) -> ``dynamic_tree`` / ``bounds`` (the rule) -> ``naive_bayes`` and ``leaf_predictions`` -> ``tree`` again
(the split). ``audit`` recomputes it all (``recompute``).
"""

from raydt.learners.confidence_tree.learner import LEARNER

__all__ = ["LEARNER"]
