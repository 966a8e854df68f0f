"""UPDATE (Algorithm 1) over a batch: one compiled loop that stops only for rebuilds it should not do itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import kernel
from raydt.learners.fudyadt.build import build
from raydt.learners.live_tree import (
    WARMUP_LEFT,
    climb,
    count_rows,
    most_nodes,
    route,
    set_counts,
    start_node,
    stays_leaf,
)
from raydt.learners.nodes import NODES, link, majority, take_rows, unlink
from raydt.learners.rebuild_log import COORDINATOR, RESET, record
from raydt.learners.sequential import ADD, LOOK, REMOVE


@kernel
def advance(
    tree: Any,
    members: Any,
    X: Any,
    y: Any,
    steps: Any,
    batch_X: Any,
    begin: int,
    categorical: Any,
    rules: Any,
    scratch: Any,
    log: Any,
    most_rows: int,
) -> tuple[int, int]:
    """Take the steps from ``begin`` on.

    Rebuilds of up to ``most_rows`` rows whose features are all in ``X`` are done here. At any other the loop
    stops after the step's counting: the caller rebuilds and goes on with the next step. The depth of the leaf of an
    ADD or REMOVE goes into ``row`` of its step.

    Returns
    -------
    step, node : int
        The step whose rebuild of ``node`` is due; ``(len(steps), -1)`` at the end.
    """
    reg = tree.reg
    counts = scratch.counts
    for i in range(begin, len(steps)):
        kind = steps[i].kind
        slot = steps[i].slot
        if kind == REMOVE:
            leaf = unlink(tree, members, slot)
            steps[i].row = tree.nodes[leaf].depth
            tree.counts[leaf, y[slot]] -= 1
            tree.nodes[leaf].label = majority(tree.counts, leaf)
        else:
            leaf = route(tree, categorical, batch_X, steps[i].row)
            if kind == LOOK:
                steps[i].prediction = tree.nodes[leaf].label
                continue
            if reg[WARMUP_LEFT] == 0:
                steps[i].prediction = tree.nodes[leaf].label
            steps[i].row = tree.nodes[leaf].depth
            link(tree, members, leaf, slot)
            tree.counts[leaf, y[slot]] += 1
            if tree.counts[leaf, y[slot]] >= tree.counts[leaf, tree.nodes[leaf].label]:
                tree.nodes[leaf].label = majority(tree.counts, leaf)
        if reg[WARMUP_LEFT] > 0:
            if kind == ADD:
                reg[WARMUP_LEFT] -= 1
            if reg[WARMUP_LEFT] > 0:
                continue
            return i, np.int64(0)
        node = climb(tree, leaf)
        if node < 0:
            continue
        n = count_rows(tree, node, counts)
        stamp = steps[i].stamp
        if stays_leaf(counts, np.int64(0), tree.nodes[node].depth, rules) and tree.nodes[node].feature < 0:
            head = tree.nodes[node].head
            start_node(tree, node, stamp, rules)
            tree.nodes[node].head = head
            record(tree, log, node, stamp, n, np.int64(1), np.int64(RESET), 0.0)
            continue
        if n > most_rows or len(tree.nodes) - reg[NODES] < most_nodes(n, tree.nodes[node].depth, rules):
            return i, node
        slots = scratch.slots
        take_rows(tree, members, node, slots)
        for r in range(n):
            if slots[r] >= len(X):
                for q in range(n):  # features not at hand: hand the rows back as one leaf
                    link(tree, members, node, slots[q])
                set_counts(tree, node, counts)
                return i, node
            scratch.labels[r] = y[slots[r]]
        set_counts(tree, node, counts)
        before = reg[NODES]
        build(tree, members, node, X, slots, slots, scratch.labels, n, categorical, rules, stamp, scratch)
        record(tree, log, node, stamp, n, reg[NODES] - before + 1, np.int64(COORDINATOR), 0.0)
    return len(steps), -1
