"""Confidence trees: C-Tree, VFDT's Hoeffding tree, CorrH-Tree and McDiarmid's bound, under deletions.

A leaf is split once a confidence interval says that the best split is better than its rival (De Rosa, Cesa-Bianchi).
The path of one update: ``coordinator`` -> ``tree`` (who counts it) -> ``shard`` / ``statistics`` (counts, candidates,
naive Bayes) -> ``split_decisions`` / ``bounds`` (the rule) -> ``prediction`` (naive Bayes or majority) -> ``tree``
again (the split). With ``drift_period`` then ``drift_coordinator`` / ``drift_kernels``. ``audit`` recomputes it all
(``recompute``, ``audit_splits``).
"""

from raydt.learners.confidence_tree.learner import LEARNER

__all__ = ["LEARNER"]
