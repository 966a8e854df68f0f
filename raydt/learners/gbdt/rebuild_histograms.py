"""The shards' histograms from the rows of a model: they follow from leaves and ledger, and are never saved.

:meth:`raydt.learners.gbdt.local_driver.LocalTrees.sum_up` does the same in the process that holds all features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.exchange.messages import Exchange, Tell
from raydt.learners.gbdt.ensemble import Ensemble
from raydt.learners.gbdt.histograms import SumChange
from raydt.learners.gbdt.split_search import RANKED

#: Rows times trees that are summed up in one round.
_SUMMED = 1 << 22


def sum_up(ensemble: Ensemble, slots: npt.NDArray[np.int32], y: npt.NDArray[Any]) -> Exchange[None]:
    """Have the shards encode the rows in some slots, and sum up their histograms. O(rows x trees x features).

    Parameters
    ----------
    ensemble : Ensemble
    slots : ndarray of int32
        All rows of the model.
    y : ndarray, by slot
    """
    e, total = ensemble, len(ensemble.leaf)
    yield Tell("begin", e.begin())
    yield Tell("encode", {"slots": slots})
    yield Tell("resume", {"parent": e.trees.parent, "histogram": e.trees.histogram})
    none = np.empty(0, dtype=RANKED)
    step = max(1, _SUMMED // max(1, len(slots)))
    for begin in range(0, total, step):
        stop = min(begin + step, total)
        g = np.stack([e.gradients(t, slots, y) for t in range(begin, stop)])
        leaf = e.leaf[begin:stop, slots].astype(np.int16, order="C")
        change = SumChange(begin, stop, slots, leaf, g, e.hessians(g))
        yield Tell("change", {"change": change, "keep": total, "splits": none})
