"""FuDyADT: a fully dynamic decision tree (Bressan, Damay, Sozio, AAAI 2023).

Read in this order: ``options``, ``coordinator`` (the path of a batch), ``update`` (UPDATE), ``build`` (BUILD in
one process), ``build_sharded`` (BUILD over shards), ``shard``, ``audit``. What all fully dynamic trees share
is outside of this folder: ``counted_tree``, ``canonical_arrays``, ``tree_coordinator``, ``rebuild_log``,
``fully_dynamic``.
"""

from raydt.learners.fudyadt.learner import LEARNER

__all__ = ["LEARNER"]
