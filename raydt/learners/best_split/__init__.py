"""The best split over sparse binary features, kept under insertions and deletions (Tatti).

Read in this order: ``options``, ``coordinator`` (the path of a batch, and when the split is searched), ``shard``,
``raydt.finders`` (the search), ``model``, ``audit``.
"""

from raydt.learners.best_split.learner import LEARNER

__all__ = ["LEARNER"]
