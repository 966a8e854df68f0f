"""In-place online GBDT: boosted trees that examples are inserted into and deleted from (Lin et al., ICML 2025).

Read in this order: ``options``, ``derivatives`` (fixed point), ``candidates`` (what is stored), ``coordinator`` (the
path of a batch), ``trainers`` (who does the work). In one process: ``local_driver`` and ``local_pass`` (Algorithms 1 to
3 as printed) with ``pass_sums``, ``pass_growth`` and ``tree_growth``. With separate shards: ``training`` (Algorithm 1),
``update`` (Algorithms 2 and 3) with ``window`` and ``regrowth``, ``grower`` and ``growth`` (the two halves of growing
trees), ``shard``. Then ``derivative_tolerance`` (the promise about derivatives), ``retraining`` and ``audit``.
"""

from __future__ import annotations

from raydt.learners.gbdt.learner import LEARNER

__all__ = ["LEARNER"]
