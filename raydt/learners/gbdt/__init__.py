"""In-place online GBDT: boosted trees that examples are inserted into and deleted from (Lin et al., ICML 2025).

Read in this order: ``options``, ``derivatives`` (fixed point), ``candidates`` (what is stored), ``coordinator`` (the
path of a batch), ``training`` (Algorithm 1), ``updating`` (Algorithms 2 and 3) with ``passes`` and ``roots``,
``growing`` and ``growth`` (the two halves of growing trees), ``shard``, ``audit``.
"""

from __future__ import annotations

from raydt.learners.gbdt.learner import LEARNER

__all__ = ["LEARNER"]
