"""The coordinator's store, by which shards in the same process let it look at their trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.examples.store import ExampleStore
from raydt.learners.forest.trees import ExactTrees


class ForestStore(ExampleStore):
    """Ids, labels and births; no features.

    Attributes
    ----------
    shares : list of ndarray of int64
        Numbers of the trees of each shard.
    parts : list of ExactTrees
        Those of the shards in this process, in the order of their trees.
    """

    def __init__(self, target_dtype: np.dtype[Any], shares: list[npt.NDArray[np.int64]]) -> None:
        super().__init__(0, 0, target_dtype)
        self.shares = shares
        self.parts: list[ExactTrees] = []
