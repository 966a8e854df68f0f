"""FuDyADT: a fully dynamic decision tree (Bressan, Damay, Sozio, AAAI 2023).

Read in this order: ``options``, ``coordinator`` (the path of a batch), ``dynamic_tree`` (UPDATE), ``build`` (BUILD in
one process and over shards), ``build_divided`` (BUILD over threads), ``shard``, ``audit``. What all fully dynamic
trees share is outside of this folder: ``counted_tree``, ``canonical_arrays``, ``tree_coordinator``.
"""

from raydt.learners.fudyadt.learner import LEARNER

__all__ = ["LEARNER"]
