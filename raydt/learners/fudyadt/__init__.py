"""FuDyADT: a fully dynamic decision tree (Bressan, Damay, Sozio, AAAI 2023).

Read in this order: ``options``, ``coordinator`` (the path of a batch), ``engine`` (UPDATE), ``build`` (BUILD in
one process), ``levels`` (BUILD over shards), ``shard``, ``audit``. ``sparse`` is the tree with a ``finder``; what both
coordinators say of their tree is ``tree_coordinator``.
"""

from __future__ import annotations

from raydt.learners.fudyadt.learner import LEARNER

__all__ = ["LEARNER"]
