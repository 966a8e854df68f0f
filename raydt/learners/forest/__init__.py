"""The exact forest: after any updates, bit for bit the forest trained from nothing on the live examples.

Read in this order: ``options``, ``membership`` (which trees an example lives in), ``candidates`` (the best split of
some rows), ``build`` (a tree, and the insertion or deletion of one row), ``trees`` (a batch), ``shard``,
``coordinator`` (the path of a batch), ``model``, ``audit``.
"""

from __future__ import annotations

from raydt.learners.forest.learner import LEARNER

__all__ = ["LEARNER"]
