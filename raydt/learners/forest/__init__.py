"""The exact forest: after any updates, bit for bit the forest trained from nothing on the live examples.

Read in this order: ``options``, ``candidates`` (the best split of some rows), ``build`` (a tree, and the insertion or
deletion of one row), ``trees`` (which trees an example lives in, and a batch), ``shard``, ``coordinator`` (the path of
a batch), ``model``, ``audit``.
"""

from __future__ import annotations

from raydt.learners.forest.learner import LEARNER

__all__ = ["LEARNER"]
