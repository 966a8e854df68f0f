"""What the fully dynamic trees, ``fudyadt`` and ``sparse_tree``, share: nodes that count updates and are rebuilt.

``live_tree`` (nodes, their counters, when BUILD makes a leaf), ``model`` (the tree as canonical arrays, and checks of
them), ``tree_coordinator`` (state, digest and statistics), ``log`` (one entry per rebuild), ``guarantee`` (how small
epsilon must be).
"""
