"""What the audits of several methods share. It recomputes from raw examples and imports nothing of the fast path.

``recorded_tree`` (a tree as its state records it), ``comparisons`` (of a state with the examples, and the report),
``recorded_bins`` (bins as recorded, and derived from a warm-up), ``recount`` (counters and limits of finders).
"""
