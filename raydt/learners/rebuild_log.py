"""The log of a batch: one entry for each rebuild of a subtree."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.types import AnyArray
from raydt.trees.counted_tree import REBUILDS, REBUILT_ROWS

#: Where a rebuild was done (the learner's log).
RESET, COORDINATOR, SHARDS = 0, 1, 2


#: One rebuild of a batch. Entry 0 of a log only counts, in ``rows``, the entries after it.
REBUILD = np.dtype(
    [
        ("stamp", np.int64),
        ("rows", np.int64),
        ("nodes", np.int64),
        ("seconds", np.float64),
        ("depth", np.int32),
        ("place", np.int32),
    ]
)


def new_log(rebuilds: int) -> npt.NDArray[np.void]:
    """An empty log with room for so many rebuilds."""
    return np.zeros(rebuilds + 1, dtype=REBUILD)


def logged(log: npt.NDArray[np.void]) -> dict[str, AnyArray]:
    """The rebuilds of a log, by column: ``seq``, ``rows``, ``depth``, ``nodes``, ``place``, ``seconds``."""
    done = log[1 : 1 + int(log["rows"][0])]
    columns = {name: done[name].copy() for name in ("rows", "depth", "nodes", "place", "seconds")}
    return {"seq": done["stamp"] >> 1, **columns, "place": columns["place"].astype(np.int8)}


@kernel
def record(tree: Any, log: Any, node: int, stamp: int, rows: int, nodes: int, place: int, seconds: float) -> None:
    """Note one rebuild."""
    at = log[0].rows + 1
    log[0].rows = at
    log[at].stamp = stamp
    log[at].rows = rows
    log[at].nodes = nodes
    log[at].seconds = seconds
    log[at].depth = tree.nodes[node].depth
    log[at].place = place
    tree.reg[REBUILDS] += 1
    tree.reg[REBUILT_ROWS] += rows
