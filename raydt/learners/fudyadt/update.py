"""UPDATE (Algorithm 1) over a batch: one compiled loop that stops only for rebuilds it should not do itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.types import Bools, Floats, Ints
from raydt.learners.fudyadt.build import Listing, build
from raydt.learners.rebuild_log import COORDINATOR, RESET, record
from raydt.learners.sequential import ADD, LOOK, REMOVE
from raydt.trees.counted_tree import (
    UNBORN,
    WARMUP_LEFT,
    climb,
    count_example,
    mean_at,
    most_nodes,
    start_node,
    stays_leaf,
)
from raydt.trees.masses import mass_of
from raydt.trees.records import NODES, level_at, link, majority, take_rows, unlink
from raydt.trees.routes import route
from raydt.trees.weighted_counts import rows_at


class Cached(NamedTuple):
    """Features at hand: ``X``, shape (cached slots, d), by slot; which columns are categorical; and weights."""

    X: Floats
    categorical: Bools
    weight: npt.NDArray[np.uint32]  #: By slot, in units; not looked at where the rules know no weights.


class BatchSteps(NamedTuple):
    """Steps of a batch (``STEP``), the matrix that ``row`` of a step refers to, and room for predictions.

    ``means``, shape (steps,), gets those of numeric labels, as means in units: NaN where none is made, -1 in a tree
    without examples. With classes it is empty. ``births``, shape (steps,), are those of the examples that are deleted;
    it is empty where ``examples`` have them by slot.
    """

    steps: npt.NDArray[np.void]
    X: Floats
    means: Floats
    births: Ints


@kernel
def advance(
    tree: Any, examples: Any, cached: Any, batch: Any, begin: int, rules: Any, scratch: Any, log: Any, most_rows: int
) -> tuple[int, int]:
    """Take the steps of ``batch`` from ``begin`` on.

    Rebuilds of up to ``most_rows`` rows whose features are all cached are done here. At any other the loop stops after
    the step's counting: the caller rebuilds and continues with the next step. Returns the step, and the node of which a
    rebuild is due; ``(len(steps), -1)`` at the end.
    """
    reg = tree.reg
    numeric = tree.counts.shape[1] == 1
    steps, members, y = batch.steps, examples.members, examples.y
    for i in range(begin, len(steps)):
        kind = steps[i].kind
        slot = steps[i].slot
        weight = np.int64(1) if kind == LOOK else mass_of(cached.weight, slot)
        if kind == REMOVE:
            if weight == 0:
                continue
            leaf = unlink(tree, members, slot)
            born = batch.births[i] if len(batch.births) > 0 else examples.born[slot]
            by, birth = -weight, 2 * born + 1
        else:
            leaf = route(tree, cached.categorical, batch.X, steps[i].row, kind == ADD and weight > 0)
            if numeric and reg[WARMUP_LEFT] == 0:
                batch.means[i] = mean_at(tree, leaf)
            if kind == LOOK or reg[WARMUP_LEFT] == 0:
                steps[i].prediction = tree.nodes[leaf].label
                if not numeric:
                    steps[i].level = level_at(tree.counts, leaf)
            if kind == LOOK:
                continue
            if weight > 0:
                link(tree, members, leaf, slot)
            else:
                members[slot].leaf = -1  # a row that counts nothing is in no leaf
                if reg[WARMUP_LEFT] == 0:
                    continue
            by, birth = weight, UNBORN
        k = np.int64(y[slot])
        if weight > 0:
            steps[i].path = tree.nodes[leaf].depth + 1
        if reg[WARMUP_LEFT] > 0:
            if weight > 0:
                count_example(tree, leaf, k, by, rules)
                tree.nodes[leaf].label = majority(tree.counts, leaf)
            if kind == ADD:
                reg[WARMUP_LEFT] -= 1
            if reg[WARMUP_LEFT] > 0:
                continue
            return i, np.int64(0)
        node = climb(tree, leaf, k, by, birth, rules)
        if numeric:
            pass  # no class is in the majority
        elif kind == REMOVE or tree.counts[leaf, k] >= tree.counts[leaf, tree.nodes[leaf].label]:
            tree.nodes[leaf].label = majority(tree.counts, leaf)
        if node < 0:
            continue
        n = rows_at(tree, node, rules)
        stamp = steps[i].stamp
        # A leaf that BUILD would leave a leaf is only started again: its list and its counts are right already.
        if tree.nodes[node].feature < 0 and stays_leaf(tree, node, rules):
            head = tree.nodes[node].head
            start_node(tree, node, stamp, rules)
            tree.nodes[node].head = head
            record(tree, log, node, stamp, n, np.int64(1), np.int64(RESET), 0.0)
            continue
        # The caller has the shards build what is large, and makes room for nodes, which may move the arrays.
        if n > most_rows or len(tree.nodes) - reg[NODES] < most_nodes(n, tree.nodes[node].depth, rules):
            return i, node
        slots, labels = scratch.slots[:n], scratch.labels[:n]
        take_rows(tree, members, node, slots)
        for r in range(n):
            if slots[r] >= len(cached.X):
                for q in range(n):  # features not at hand: hand the rows back as one leaf
                    link(tree, members, node, slots[q])
                return i, node
            labels[r] = y[slots[r]]
            if numeric:
                scratch.numbers[r], labels[r] = labels[r], 0
            if rules.unit > 1:
                scratch.weights[r] = cached.weight[slots[r]]
        listing = Listing(cached.X, cached.categorical, slots, slots, labels, scratch.numbers, scratch.weights)
        before = reg[NODES]
        build(tree, members, node, listing, rules, stamp, scratch)
        record(tree, log, node, stamp, n, reg[NODES] - before + 1, np.int64(COORDINATOR), 0.0)
    return len(steps), -1
