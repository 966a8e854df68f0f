"""The sparse fully dynamic tree (``finder: updgini | updent``): every node keeps the structure of ``raydt.finders``.

Where FuDyADT rebuilds a node after epsilon * s updates, because its best split may have changed by then, this tree
knows after every update whether it has: a node is rebuilt when its split is beaten, and not before. Argued in
``docs/guarantees.md``.
"""
