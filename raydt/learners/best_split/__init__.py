"""The best split over sparse binary features, kept under insertions and deletions (Tatti).

Read in this order: ``options``, ``coordinator`` (the path of a batch, when the split is searched, and the shard),
``raydt.finders`` (the search), ``audit``.
"""

from raydt.learners.best_split.learner import LEARNER

__all__ = ["LEARNER"]
