"""The log of what changed the tree: one entry for each split, and for each node that was restarted as a leaf."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from raydt.examples.updates import Log
from raydt.learners.confidence_tree.bounds import RESTARTED
from raydt.learners.confidence_tree.model import SplitRecord


class Logged(NamedTuple):
    """One entry of the log."""

    stamp: int  #: ``stamp``, ``depth``, ``feature``: When, where, and what the split compares; -1 of a restart.
    depth: int
    feature: int
    split: SplitRecord | None  #: None of a restart.
    threshold: float
    rival_threshold: float


def restarted(stamp: int, depth: int) -> Logged:
    """The entry of a node that was restarted as a leaf."""
    return Logged(stamp, depth, -1, None, float("nan"), float("nan"))


def logged(entries: list[Logged]) -> Log:
    """The columns of the log, in the order of the entries: ``seq``, ``depth``, ``feature``, what ``SplitRecord`` has.

    Of a node that was restarted features are -1, whole numbers 0 and all else NaN.
    """
    if not entries:
        return {}
    none = SplitRecord(0, 0, 0, 0, -1, -1, RESTARTED, *(float("nan"),) * 4, (), ())
    records = [entry.split or none for entry in entries]
    log: Log = {"seq": np.array([entry.stamp >> 1 for entry in entries], dtype=np.int64)}
    whole = "depth", "feature", "m", "t", "rival_feature", "reason"
    for name in (*whole, "threshold", "rival_threshold", "phi", "rival_phi", "impurity", "epsilon"):
        rows = entries if name in Logged._fields else records
        log[name] = np.array([getattr(row, name) for row in rows], dtype=np.int64 if name in whole else np.float64)
    return log
