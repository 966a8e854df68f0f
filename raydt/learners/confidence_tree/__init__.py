"""Confidence trees: C-Tree, VFDT's Hoeffding tree, CorrH-Tree and McDiarmid's bound, under deletions.

A leaf is split once a confidence interval says that the best split is better than its rival (De Rosa, Cesa-Bianchi).
The path of one update: ``coordinator`` -> ``tree`` (who counts it) -> ``shard`` / ``statistics`` (counts, candidates)
-> ``deciding`` / ``bounds`` (the rule) -> ``tree`` again (the split).
"""

from raydt.learners.confidence_tree.learner import LEARNER

__all__ = ["LEARNER"]
