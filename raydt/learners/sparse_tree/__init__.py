"""The sparse fully dynamic tree: every node keeps the structure of ``raydt.finders`` for its sparse features.

Where an exact tree rebuilds a node after epsilon * s updates, because its best split may have changed by then, this
tree knows after every update whether it has: a node is rebuilt when its split is beaten, and not before. Argued in
``docs/explanation/guarantees.md``.

The coordinator's half, in the order to read it: ``coordinator`` (the path of a batch, window by window;
routing and counting; BUILD, level by level). The shard's half: ``shard`` (rows, structures, requests; an update of the
structures along a path, and its return; the exact search beside them). Both use ``build`` (structures of new nodes, the
best sparse split of each, and the rules). On saved models and states: ``audit``.
"""

from raydt.learners.sparse_tree.learner import LEARNER

__all__ = ["LEARNER"]
