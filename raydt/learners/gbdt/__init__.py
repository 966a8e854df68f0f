"""In-place online GBDT: boosted trees that examples are inserted into and deleted from (Lin et al., ICML 2025).

Read in this order: ``options``, ``derivatives`` (fixed point), ``candidates`` (what is stored, and rows as
bins), ``coordinator`` (the path of a batch), ``shard`` (columns, bins and rows of its own), ``row_shard`` (a
pass, alone or with other shards: Algorithms 1 to 3 as printed). Then the stages of a pass: ``histograms`` (what a batch
changes, and how a tree grows), ``split_search``, ``update`` (D', which splits fail, which rows join), ``staleness``
(the promise about derivatives). Last ``model`` and ``audit``.
"""

from raydt.learners.gbdt.learner import LEARNER

__all__ = ["LEARNER"]
