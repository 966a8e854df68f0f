"""The log of what the steps of a batch have rebuilt."""

from __future__ import annotations

import numpy as np

from raydt.arrays.types import Ints
from raydt.examples.updates import Log
from raydt.learners.forest.nodes import DEPTH, NODES, ROWS, SUBTREES
from raydt.learners.rebuild_log import SHARDS


def log_of(seq: Ints, done: Ints) -> Log:
    """Return an entry for each step after which something was rebuilt, in any tree.

    ``seq``, shape (steps,), are the updates of the steps; ``done``, (steps, 5), is as in ``ForestSteps``.
    """
    at = done[:, SUBTREES].nonzero()[0]
    if not len(at):
        return {}
    return {
        "seq": seq[at],
        "rows": done[at, ROWS],
        "depth": done[at, DEPTH].astype(np.int32),
        "nodes": done[at, NODES],
        "subtrees": done[at, SUBTREES],
        "place": np.full(len(at), SHARDS, dtype=np.int8),
        "seconds": np.zeros(len(at)),
    }
