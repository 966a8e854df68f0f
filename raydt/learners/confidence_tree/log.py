"""The log of what changed the tree: one entry for each split, and for each node that became a leaf again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.examples.updates import Log
from raydt.learners.confidence_tree.bounds import PRUNED
from raydt.learners.confidence_tree.deciding import Change
from raydt.learners.confidence_tree.model import Split


class Logged(NamedTuple):
    """One entry of the log: a change, the depth of its node, and what its split and the rival compare with."""

    change: Change
    depth: int
    threshold: float
    rival_threshold: float


def logged(entries: list[Logged], steps: npt.NDArray[np.void]) -> Log:
    """The columns of the log, in the order of the entries: ``seq``, ``depth``, ``feature``, what ``Split`` has.

    Of a node that became a leaf again features are -1, whole numbers 0 and all else NaN.
    """
    if not entries:
        return {}
    none = Split(0, 0, 0, 0, -1, -1, PRUNED, *(float("nan"),) * 4, (), ())
    records = [entry.change.split or none for entry in entries]
    seq = steps["stamp"][[entry.change.step for entry in entries]] >> 1
    log: Log = {"seq": seq.astype(np.int64), "depth": np.array([entry.depth for entry in entries], dtype=np.int64)}
    log["feature"] = np.array([entry.change.feature for entry in entries], dtype=np.int64)
    for name in ("m", "t", "rival_feature", "reason"):
        log[name] = np.array([getattr(record, name) for record in records], dtype=np.int64)
    for name in ("threshold", "rival_threshold"):
        log[name] = np.array([getattr(entry, name) for entry in entries], dtype=np.float64)
    for name in ("phi", "rival_phi", "impurity", "epsilon"):
        log[name] = np.array([getattr(record, name) for record in records], dtype=np.float64)
    return log
