"""Naive Bayes of a live tree: the counts of all its leaves, or shares of the classes for a few rows without these.

For the latter the shards score the rows. The scores, and so the class with the largest share, are those of
``NaivePredictor``; with many classes a share may differ in its last bits, because shares are divided by a sum over all
classes known. Nothing is counted: the rows lie in slots beyond those of all examples, as those of queries do.
"""

from __future__ import annotations

import numpy as np

from raydt.arrays.types import Arrays, Floats
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.exchange.messages import Ask, Exchange
from raydt.learners.confidence_tree.dynamic_tree import LiveConfidenceTree
from raydt.learners.confidence_tree.leaf_predictions import chosen, naive_leaves, priors_of
from raydt.learners.confidence_tree.naive_bayes import SharedLogs
from raydt.learners.confidence_tree.naive_predictor import naive_arrays, odds_of
from raydt.learners.confidence_tree.normal_bayes import normal_arrays, normal_scores
from raydt.learners.confidence_tree.prediction import INHERITED, MAJORITY, NORMAL
from raydt.learners.confidence_tree.statistics import SITE, SLOT
from raydt.trees.records import preorder, route, shares_of


def shares_now(
    live: LiveConfidenceTree, on_shards: RowsOnShards, logs: SharedLogs, rows: RowBlock, n_classes: int
) -> Exchange[Floats]:
    """Shares of the classes, shape (rows, n_classes). O(rows x (depth + features x classes)), two messages at most."""
    leaves = np.array([route(live.tree, live.categorical, rows, i) for i in range(len(rows.X))], dtype=np.int64)
    shares = shares_of(live.tree.counts[[_filled(live, leaf) for leaf in leaves.tolist()]], n_classes)
    by = chosen(live, leaves)
    which = np.flatnonzero(by != MAJORITY)
    if not len(which):
        return shares
    deltas = np.zeros((4, len(which)), dtype=live.delta)  # of no sign: the rows are only scored
    deltas[SLOT] = live.store.capacity + np.arange(len(which))
    deltas[SITE] = live.tree.nodes["site"][leaves[which]]
    yield from on_shards.put(deltas[SLOT], rows.take(which))
    priors, by = priors_of(live, leaves[which]), by[which]
    payload = live.to_count(deltas, np.arange(len(which)), logs.unsent(live.tree.counts[leaves[which]]))
    replies = yield Ask("count", payload)
    scores = sum((reply[1] for reply in replies), np.zeros_like(priors))
    if live.normal:
        normals = sum((reply[2] for reply in replies), 0)
        scores = np.where((by == NORMAL)[:, None], normals[: len(which)], scores)
        if live.inherits:
            scores = np.where((by == INHERITED)[:, None], normals[len(which) :], scores)
    scores = scores + logs.of(priors)
    odds = odds_of(scores, priors > 0)[:, :n_classes]
    shares[which] = 0.0
    shares[which, : odds.shape[1]] = odds / odds.sum(axis=1, keepdims=True)
    return shares


def _filled(live: LiveConfidenceTree, leaf: int) -> int:
    """The leaf or, where it has no examples, the nearest node above that has some; else the root."""
    while not live.tree.counts[leaf].any() and live.tree.nodes["parent"][leaf] >= 0:
        leaf = int(live.tree.nodes["parent"][leaf])
    return leaf


def gathered(live: LiveConfidenceTree, on_shards: RowsOnShards, logs: SharedLogs) -> Exchange[Arrays]:
    """Return what a model has of its leaves that predict by naive Bayes. O(leaves x bins x classes), two messages."""
    leaves = naive_leaves(live)
    by, sites = chosen(live, leaves), live.tree.nodes["site"][leaves].astype(np.int64)
    past = by == INHERITED
    replies = (yield Ask("naive", {"sites": sites, "past": past})) if len(leaves) else []
    assert live.bins is not None
    arrays = naive_arrays(preorder(live.tree)[1][leaves], priors_of(live, leaves), replies, live.bins, logs)
    normal = np.flatnonzero(by >= NORMAL)
    if len(normal):
        of_shards = yield Ask("normal", {"sites": sites[normal], "past": past[normal]})
        known = arrays["naive_prior"].shape[1]
        columns = np.concatenate(on_shards.columns)
        columns = columns[normal_scores(live.bins)[1][columns] > 0]
        if len(columns):
            parts = np.concatenate([part[..., :known] for part in of_shards if part.shape[2]], axis=2)
            arrays |= normal_arrays(normal, parts[:, :, np.argsort(columns)], logs)
    return arrays
