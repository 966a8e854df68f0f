"""Shares of the classes for a few rows, without the counts of all leaves: the shards score the rows.

The scores, and so the class with the largest share, are those of ``NaivePredictor``; with many classes a share may
differ in its last bits, because shares are divided by a sum over all classes known. Nothing is counted: the rows lie in
slots beyond those of all examples, as those of queries do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.exchange.messages import Ask, Exchange
from raydt.learners.confidence_tree.dynamic_tree import LiveConfidenceTree
from raydt.learners.confidence_tree.naive_bayes import SharedLogs
from raydt.learners.confidence_tree.naive_predictor import odds_of
from raydt.learners.confidence_tree.statistics import SITE, SLOT
from raydt.trees.records import route, shares_of


def shares_now(
    live: LiveConfidenceTree, on_shards: RowsOnShards, logs: SharedLogs, rows: RowBlock, n_classes: int
) -> Exchange[npt.NDArray[np.float64]]:
    """Shares of the classes, shape (rows, n_classes). O(rows x (depth + features x classes)), two messages at most."""
    leaves = np.array([route(live.tree, live.categorical, rows, i) for i in range(len(rows.X))], dtype=np.int64)
    shares = shares_of(live.tree.counts[[_filled(live, leaf) for leaf in leaves.tolist()]], n_classes)
    which = np.flatnonzero(live.by_naive(leaves))
    if not len(which):
        return shares
    deltas = np.zeros((4, len(which)), dtype=np.int32)  # of no sign: the rows are only scored
    deltas[SLOT] = live.store.capacity + np.arange(len(which))
    deltas[SITE] = live.tree.nodes["site"][leaves[which]]
    yield from on_shards.put(deltas[SLOT], rows.take(which))
    priors = live.tree.own[leaves[which]]
    payload = live.to_count(deltas, np.arange(len(which)), logs.unsent(priors))
    replies = yield Ask("count", payload)
    scores = sum((reply[1] for reply in replies), logs.table[priors])
    if live.normal:
        normals = sum((reply[2] for reply in replies), logs.table[priors])
        scores = np.where(live.by_normal(leaves[which])[:, None], normals, scores)
    odds = odds_of(scores, priors > 0)[:, :n_classes]
    shares[which] = 0.0
    shares[which, : odds.shape[1]] = odds / odds.sum(axis=1, keepdims=True)
    return shares


def _filled(live: LiveConfidenceTree, leaf: int) -> int:
    """The leaf or, where it has no examples, the nearest node above that has some; else the root."""
    while not live.tree.counts[leaf].any() and live.tree.nodes["parent"][leaf] >= 0:
        leaf = int(live.tree.nodes["parent"][leaf])
    return leaf
