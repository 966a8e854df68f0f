"""The exact forest: after any updates, bit for bit the forest trained from nothing on the live examples.

Read in this order: ``options``, ``membership`` (which trees an example lives in), ``candidates``, ``count_candidates``
and ``scoring`` (the best split of some rows), ``build``, ``update_tree`` (insert or delete one row), ``apply_steps`` (a
batch), ``trees`` and ``shard``, ``coordinator`` (the path of a batch), ``model``, ``audit``.
"""

from __future__ import annotations

from raydt.learners.forest.learner import LEARNER

__all__ = ["LEARNER"]
