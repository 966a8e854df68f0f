"""The two verdicts on a forest, from a state and the raw examples.

*Conformance*: the live examples are those of the history, every tree counts those that it has to hold, and trees that
are built again from them (all, or some of a large forest) are the same, bit for bit. *Feasibility* says the same thing:
the guarantee of this learner is equality, not a bound. Nothing of the fast path is imported (``recompute``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.audits.bins import counted_weights
from raydt.audits.recorded_tree import AuditReport, compare_rows, live_by_id
from raydt.examples.updates import Features, History
from raydt.learners.forest.recompute import members, scale_of, totals_of, trees_of, units_of
from raydt.messages import Message, message
from raydt.parallel import run

if TYPE_CHECKING:
    from raydt.learners.forest.options import ForestOptions

Arrays = Mapping[str, AnyArray]

#: Cells (members x features) of trees that are built again; of a larger forest some trees are.
REBUILT_CELLS = 20_000_000
#: Members of trees that are built again together.
TOGETHER = 1 << 15
_ARRAYS = ("feature", "threshold", "left", "right", "totals")


def audit(
    options: ForestOptions, features: Features, state: Arrays, history: History, groups: Any = None
) -> AuditReport:
    """Prove or refute that a state is the forest of its live examples.

    Of the history only the live examples matter. ``worst`` is how often the votes are wrong out of sample, which no
    verdict depends on. O(depth n P S) for each tree that is built again, O(n T) for memberships.
    """
    live = live_by_id(history)
    broken = compare_rows(state, history)
    X, y, warming = history.X[live], history.y[live], int(state["seq"][0]) < int(state["warmup"][0])
    kinds = features.kinds.astype(np.bool_)
    units, failures = counted_weights(options, state, history, resolved=not warming)
    weight = None if units is None else units[live]
    broken += failures
    classes = state["totals"].shape[1]
    counting = np.ones(len(y), dtype=np.bool_) if weight is None else weight > 0
    if options.numeric:
        scale = scale_of(y[counting], None if weight is None else weight[counting])
        found = int(state["exponent"][0]), 40 if classes == (4 if weight is None else 3) else 20
        if found != scale:
            broken.append(message("audits.value", name="exponent and bits of the labels", found=found, expected=scale))
        y = units_of(np.where(counting, y, 0.0), *scale)
    expected = max(2, int(y.max(initial=-1)) + 1)
    if not options.numeric and classes != expected:
        broken.append(message("audits.value", name="number of classes", found=classes, expected=expected))
    chosen: list[int] = []
    worst: dict[str, float] = {}
    if not broken and not options.numeric:  # from here on, classes are counted in the order of their labels
        order = state["order"]
        y, state = np.argsort(order)[y], {**state, "totals": state["totals"][:, order]}
    if not broken:
        held = members(options, history.id[live])
        held[~counting] = False
        chosen = sampled(held, len(features))
        starts = np.cumsum(state["tree_nodes"]) - state["tree_nodes"]

        def counted(tree: int) -> list[int]:
            mine = held[:, tree]
            labels, weights = y[mine], None if weight is None else weight[mine]
            totals: list[int] = totals_of(options, labels, weights, np.zeros_like(labels), 1, classes)[0].tolist()
            return totals

        for tree, totals in enumerate(run([partial(counted, tree) for tree in range(options.n_estimators)])):
            counts = state["totals"][starts[tree]].tolist()
            if counts != totals:
                broken.append(message("audits.value", name=f"totals of tree {tree}", found=counts, expected=totals))
        built = options.model_copy(update={"max_depth": 0}) if warming else options

        def rebuilt(some: list[int]) -> list[Message]:
            found = zip(some, trees_of(built, kinds, some, (X, y, weight), held, classes), strict=True)
            return [said for tree, expected in found for said in _tree(state, tree, expected)]

        if not broken:
            each = max(1, TOGETHER // max(1, int(held[:, chosen].sum()) // len(chosen)))
            groups = [chosen[i : i + each] for i in range(0, len(chosen), each)]
            broken += chain.from_iterable(run([partial(rebuilt, some) for some in groups]))
        if not broken:
            worst = out_of_sample(state, X[counting], y[counting], held[counting], kinds, options.numeric)
    checked = {
        "examples": len(history.y),
        "live": len(live),
        "trees": options.n_estimators,
        "nodes": len(state["feature"]),
        "trees_rebuilt": len(chosen),
    }
    if broken:
        return AuditReport("violated", "violated", broken[0], checked, failures=broken)
    which = "audits.retrained" if len(chosen) == options.n_estimators else "audits.some_retrained"
    reason = message(which, rebuilt=len(chosen), trees=options.n_estimators)
    return AuditReport("holds", "proven", reason, checked, worst)


def sampled(held: Bools, features: int) -> list[int]:
    """The trees to build again: all, or as many evenly spaced ones as the limit allows, at least one."""
    trees = held.shape[1]
    cells = int(held.sum()) * max(1, features)
    few = trees if cells <= REBUILT_CELLS else max(1, trees * REBUILT_CELLS // cells)
    chosen: list[int] = np.unique(np.linspace(0, trees - 1, few).astype(np.int64)).tolist()
    return chosen


def _tree(state: Arrays, tree: int, expected: Mapping[str, AnyArray]) -> list[Message]:
    """A tree of the state against the one built from nothing."""
    stop = int(np.cumsum(state["tree_nodes"])[tree])
    start = stop - int(state["tree_nodes"][tree])
    n = len(expected["feature"])
    if stop - start != n:
        return [message("audits.value", name=f"number of nodes of tree {tree}", found=stop - start, expected=n)]
    for name in _ARRAYS:
        ours, theirs = state[name][start:stop].reshape(n, -1), expected[name].reshape(n, -1)
        wrong = np.flatnonzero((ours != theirs).any(axis=1))
        if len(wrong):
            node = int(wrong[0])
            values = {"found": ours[node].tolist(), "expected": theirs[node].tolist()}
            where = {"tree": tree, "node": node, "nodes": len(wrong)}
            return [message("audits.tree_value", name=name, **where, **values)]
    return []


# The score of the votes on examples that the voting trees have never seen.
#
# An example is predicted by the votes of the trees that do not hold it: the out-of-sample accuracy of a forest, by
# which its settings can be compared without held-out rows. It differs from prequential accuracy, which is about the
# past model. Evenly chosen examples stand for many. NumPy, and nothing of the fast path.

#: Examples that are predicted, evenly chosen by id.
MOST = 5000


def leaves_of(nodes: Arrays, X: Floats, categorical: Bools) -> Ints:
    """The leaf of each row in a tree, by place; -1 where the arrays lead out of the tree."""
    feature, at = nodes["feature"], np.zeros(len(X), dtype=np.int64)
    for _ in range(len(feature)):
        inner = np.flatnonzero((at >= 0) & (feature[at] >= 0))
        if not len(inner):
            break
        node = at[inner]
        j, x = feature[node], X[inner, feature[node]]
        left = np.where(categorical[j], x == nodes["threshold"][node], x <= nodes["threshold"][node])
        below = np.where(left, nodes["left"][node], nodes["right"][node])
        at[inner] = np.where((below > 0) & (below < len(feature)), below, -1)
    return at


def out_of_sample(
    state: Arrays,
    X: Floats,
    y: Ints,
    held: Bools,
    categorical: Bools,
    numeric: bool,
) -> dict[str, float]:
    """Return the share of wrong classes or, with ``numeric``, R2, by name; nothing if every tree holds every example.

    ``totals`` of the state count classes as ``y`` does; numeric labels are in units. ``held``, shape (n, trees), says
    which trees hold which examples. O(trees depth) for each of up to ``MOST`` examples.
    """
    chosen = np.unique(np.linspace(0, len(y) - 1, min(MOST, len(y))).astype(np.int64)) if len(y) else np.empty(0, int)
    chosen = chosen[~held[chosen].all(axis=1)]
    stops = np.cumsum(state["tree_nodes"]).tolist()
    width = 1 if numeric else state["totals"].shape[1]
    votes, voters = np.zeros((len(chosen), width)), np.zeros(len(chosen))
    sample = X[chosen]

    def vote(tree: int) -> tuple[Ints, Floats, Bools]:
        rows, nodes = np.flatnonzero(~held[chosen, tree]), slice(stops[tree - 1] if tree else 0, stops[tree])
        of_tree = {name: state[name][nodes] for name in ("feature", "threshold", "left", "right")}
        totals = state["totals"][nodes][leaves_of(of_tree, sample[rows], categorical)]
        n = totals[:, 0] if numeric else totals.sum(axis=1)
        counted = totals[:, 1:2] if numeric else totals
        if numeric and "unit" in state and totals.shape[1] == 3:  # sums in two words
            counted = totals[:, 1:2] * 2.0**20 + totals[:, 2:]
        return rows, np.divide(counted, n[:, None], out=np.zeros(counted.shape), where=n[:, None] > 0), n > 0

    for rows, shares, some in run([partial(vote, tree) for tree in range(len(stops))]):  # floats, in order
        votes[rows] += shares
        voters[rows] += some
    truth, votes, voters = y[chosen][voters > 0], votes[voters > 0], voters[voters > 0]
    if not len(truth):
        return {}
    if not numeric:
        return {"out_of_sample_error": float((votes.argmax(axis=1) != truth).mean())}
    spread = float(((truth - truth.mean()) ** 2).sum())
    return {"out_of_sample_r2": 1 - float(((truth - votes[:, 0] / voters) ** 2).sum()) / spread} if spread else {}
