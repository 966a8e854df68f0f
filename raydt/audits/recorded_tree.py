"""A tree as a state records it, a history routed through it, and the report on both, for audits.

Nothing of the fast path is imported. Time runs in half updates, as in the state's ``built``: what update ``seq``
inserts or deletes happens at 2 seq + 1, the deletion half of an UPDATE at 2 seq. S(v) is what is live and routes
to v; S0(v) what was live just after the BUILD that made v, and routes to v.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import AnyArray, Bools, Floats, Ints
from raydt.audits.bins import MalformedModelError, given_weights
from raydt.examples.updates import Features, History
from raydt.messages import Message, message
from raydt.parallel import ranges, run
from raydt.presentation.charts import counted

T = TypeVar("T")
FOREVER = np.iinfo(np.int64).max
#: Sides of missing numbers.
LEFT, RIGHT = 1, 2


@dataclass(frozen=True)
class RecordedTree:
    """The node arrays of a state, shape (n,); ``missing`` is the side of missing numbers, 0 where undecided."""

    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    s: Ints
    c: Ints
    built: Ints
    parent: Ints
    depth: Ints
    missing: Ints

    def __len__(self) -> int:
        return len(self.feature)

    @classmethod
    def read(cls, state: Mapping[str, AnyArray], d: int) -> RecordedTree:
        """Read the tree of a coordinator's state over d features; MalformedModelError unless it lies in preorder."""
        ints = {name: np.asarray(state[name], np.int64) for name in ("feature", "left", "right", "s", "c", "built")}
        feature = ints["feature"]
        parent, depth = preorder(feature, ints["left"], ints["right"], feature < d)
        missing = np.asarray(state.get("missing", np.zeros(len(feature))), np.int64)
        threshold = np.asarray(state["threshold"], np.float64)
        return cls(**ints, threshold=threshold, parent=parent, depth=depth, missing=missing)


def preorder(feature: Ints, left: Ints, right: Ints, sound: Bools) -> tuple[Ints, Ints]:
    """Return the parent (-1: none) and the depth of each node of a tree.

    MalformedModelError unless nodes lie in preorder and all that split, which have a feature from 0 on, are ``sound``.
    """
    nodes = list(zip(feature.tolist(), left.tolist(), right.tolist(), strict=True))
    n = len(nodes)
    end, parent, depth = [0] * n, [-1] * n, [0] * n
    for v, (j, on_left, on_right) in reversed([*enumerate(nodes)]):
        if j < 0:
            fits, end[v] = on_left == on_right == -1, v + 1
        else:
            fits = bool(sound[v]) and on_left == v + 1 < n and on_right == end[v + 1] < n
            end[v] = end[on_right] if fits else 0
        if not fits:
            raise MalformedModelError(message("states.node", node=v, feature=j, left=on_left, right=on_right))
    if end[:1] != [n]:
        raise MalformedModelError(message("states.reach", reached=sum(end[:1]), nodes=n))
    for v, (j, *children) in enumerate(nodes):
        for child in children if j >= 0 else ():
            parent[child], depth[child] = v, depth[v] + 1
    return np.array(parent, np.int64), np.array(depth, np.int64)


#: Rows of a column that are worth the start of other threads.
FEW_ROWS = 1 << 12


def each(tasks: Sequence[Callable[[], T]], rows: int) -> list[T]:
    """Do a task for each column of some rows: in the calling thread if they are few."""
    return run(tasks) if rows >= FEW_ROWS else [task() for task in tasks]


# The examples of a history on their routes through a recorded tree: NumPy, and nothing of the fast path.
#
# Time runs in half updates, as in :mod:`raydt.audits.recorded_tree`, which also defines the sets S(v) and S0(v).


class RoutedHistory:
    """A history with the updates at which each example came and went, and the node to which the tree routes it."""

    live_counts: Ints  #: Shape (nodes, K): class counts of S(v); a learner's audit counts them.

    def __init__(self, tree: RecordedTree, features: Features, history: History, weight: Ints | None = None) -> None:
        self.tree, self.features = tree, features
        self.weight = weight  #: What each example counts, in units; None: 1. One that counts 0 is in no node.
        self.complete = history.complete  #: Whether deleted examples are known, too.
        self.X = history.X
        self.y: AnyArray = history.y
        self.sparse = history.sparse or SparseRows.empty(features.sparse, len(history.y))
        self.categorical = np.array(features.categorical, np.bool_)
        self.alive = history.deleted == FOREVER
        self.born = 2 * history.inserted + 1
        self.died = np.full(len(self.born), FOREVER)
        if not self.alive.all():
            gone = history.deleted[~self.alive]
            replaced = np.isin(gone, history.inserted)  # by the insertion half of the same update
            self.died[~self.alive] = 2 * gone + ~replaced
        self.leaf = np.full(len(self.y), -1, np.int64)  #: Leaf of each example, once :meth:`levels` has ended.

    def levels(self) -> Iterator[tuple[Ints, Ints, Bools]]:
        """Level by level: the examples that get so far, the node of each, and whether it goes right there."""
        rows = np.arange(len(self.y)) if self.weight is None else np.flatnonzero(self.weight)
        node = np.zeros(len(rows), np.int64)
        while len(rows):
            parts = ranges(len(rows), FEW_ROWS)
            steps = run([partial(self._step, rows[part], node[part]) for part in parts])
            yield rows, node, np.concatenate([right for right, _, _ in steps])
            rows, node = (np.concatenate([step[i] for step in steps]) for i in (1, 2))

    def _step(self, rows: Ints, node: Ints) -> tuple[Bools, Ints, Ints]:
        """Return which rows go right at their node and, of those that a leaf does not keep, rows and nodes below."""
        self.leaf[rows] = node
        right = self._goes_right(rows, node)
        inner = self.tree.feature[node] >= 0
        rows, node, below = rows[inner], node[inner], right[inner]
        return right, rows, np.where(below, self.tree.right[node], self.tree.left[node])

    def _goes_right(self, rows: Ints, node: Ints) -> Bools:
        """Return which rows go right at their node: NaN does, unless its side is the left; nothing does at a leaf."""
        feature, dense = self.tree.feature[node], len(self.categorical)
        right = np.zeros(len(rows), np.bool_)
        at = np.flatnonzero((feature >= 0) & (feature < dense))
        if len(at):
            x, threshold = self.X[rows[at], feature[at]], self.tree.threshold[node[at]]
            missing_left = np.isnan(x) & (self.tree.missing[node[at]] == LEFT)
            right[at] = ~np.where(self.categorical[feature[at]], x == threshold, (x <= threshold) | missing_left)
        if not self.features.sparse:
            return right
        at = np.flatnonzero(feature >= dense)
        ones = self.sparse[rows[at]]
        hit = ones.indices == np.repeat(feature[at] - dense, ones.lengths)
        right[at] = np.bincount(np.repeat(np.arange(len(at)), ones.lengths)[hit], minlength=len(at)) > 0
        return right


class BuildHistory(RoutedHistory):
    """And what it says of BUILD, of a tree whose nodes know when they were built."""

    built_counts: Ints  #: Shape (nodes, K): class counts of S0(v); a learner's audit counts them.

    def __init__(self, tree: RecordedTree, features: Features, history: History, weight: Ints | None = None) -> None:
        super().__init__(tree, features, history, weight)
        self.c = np.zeros(len(tree), np.int64)  #: Insertions and deletions that route to v after its BUILD.
        self.passed = np.zeros(len(tree), np.bool_)  #: Whether the update that is recorded to have built v routes to v.
        self.lacking = np.zeros(len(tree), np.bool_)  #: Whether S0(v) has a missing number of the feature of v.
        #: Side of missing numbers at v by the examples there when the first came, if S0(v) has none; 0 if none came.
        self.side = np.zeros(len(tree), np.int64)

    def look_back(self, rows: Ints, node: Ints, right: Bools) -> Bools:
        """Count the updates since BUILD of the nodes of one level; return which rows are in S0 of their node."""
        built, born, died = self.tree.built[node], self.born[rows], self.died[rows]
        gone = (died > built) & ~self.alive[rows]
        for passing in (born > built, gone):
            self.c += self.added(node[passing], rows[passing], len(self.c))
        self.passed[node[(born == built) | (died == built)]] = True
        then = np.asarray((born <= built) & (built < died), np.bool_)
        self._look_at_missing(rows, node, right, then)
        return then

    def added(self, place: Ints, rows: Ints, places: int) -> Ints:
        """Add up what some rows count, by the place of each: exact up to 2**53, as float64 adds weights."""
        return np.bincount(place, None if self.weight is None else self.weight[rows], places).astype(np.int64)

    def sides(self) -> Ints:
        """Return the side of missing numbers at each node; where BUILD chose it, that of the tree, if it is one."""
        return np.where(self.lacking, np.maximum(self.tree.missing, LEFT), self.side)

    def _look_at_missing(self, rows: Ints, node: Ints, right: Bools, then: Bools) -> None:
        """Find the sides of missing numbers at the nodes of one level; ``then`` are the rows of S0."""
        feature = self.tree.feature[node]
        number = np.append(~self.categorical, False)[np.minimum(feature, len(self.categorical))] & (feature >= 0)
        missing = np.zeros(len(rows), np.bool_)
        missing[number] = np.isnan(self.X[rows[number], feature[number]])
        if not missing.any():
            return
        self.lacking[node[missing & then]] = True
        came = missing & (self.born[rows] > self.tree.built[node])
        first = np.full(len(self.side), FOREVER)
        np.minimum.at(first, node[came], self.born[rows[came]])
        there = (self.born[rows] < first[node]) & (first[node] < self.died[rows]) & (first[node] < FOREVER)
        left, other = (self.added(node[some], rows[some], len(self.side)) for some in (there & ~right, there & right))
        more = left - other
        at = np.flatnonzero((first < FOREVER) & ~self.lacking)
        self.side[at] = np.where(more[at] > 0, LEFT, RIGHT)


# The report of an audit, which recomputes from the raw examples with code that shares nothing with the fast path.


@dataclass(slots=True)
class AuditReport:
    """Two verdicts and the measurements behind them."""

    conformance: Literal["holds", "violated"]
    feasibility: Literal["proven", "violated", "not_promised"]
    reason: str
    checked: dict[str, int] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    failures: Sequence[str] = field(default_factory=list)

    @classmethod
    def malformed(cls, what: str, problem: str) -> AuditReport:
        """Return the report on a state that cannot be compared with anything."""
        reason = message("audits.malformed", what=what, problem=problem)
        return cls("violated", "violated", reason, failures=[reason])

    @property
    def ok(self) -> bool:
        """True if conformance holds and feasibility is not violated."""
        return self.conformance == "holds" and self.feasibility != "violated"

    def as_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return {"ok": self.ok, **asdict(self)}


def noted(reason: str, *remarks: str) -> Message:
    """Return a reason with remarks after it; the id is that of the reason."""
    said = reason if isinstance(reason, Message) else Message(reason)
    return Message("; ".join((reason, *remarks)), "", said.id, said.parameters)


# Comparisons of a tree's state with the raw examples, and the report on them: what the audits of trees share.
#
# Nothing of the fast path is imported.


def report_of(
    truth: BuildHistory,
    history: History,
    verdict: tuple[Literal["proven", "violated", "not_promised"], str],
    replayed: int,
    worst: dict[str, float],
    broken: list[Message],
    infeasible: list[Message],
    **checked: int,
) -> AuditReport:
    """Return the report on a tree: ``verdict`` is that of feasibility, ``replayed`` the splits searched again."""
    nodes, (feasibility, reason) = len(truth.tree), verdict
    if not history.complete:
        reason = noted(reason, message("audits.live_only", what="counters and build-time splits"))
    return AuditReport(
        conformance="violated" if broken else "holds",
        feasibility=feasibility,
        reason=reason,
        checked={
            "examples": len(history.y),
            "live": int(truth.alive.sum()),
            "nodes": nodes,
            "counters": nodes if history.complete else 0,
            "splits": int((truth.tree.feature >= 0).sum()),
            "splits_replayed": replayed,
            **checked,
        },
        worst=worst,
        failures=broken + infeasible,
    )


def found(wrong: Bools, id: str, **values: str | AnyArray) -> list[Message]:
    """Return a message that counts the nodes that are ``wrong`` and has the ``values`` of the first, or none."""
    if not wrong.any():
        return []
    v = int(np.flatnonzero(wrong)[0])
    first = {name: value if isinstance(value, str) else value[v] for name, value in values.items()}
    return [message(id, where=f"{counted(int(wrong.sum()), 'node')}, first at node {v}", **first)]


def compare_nodes(array: str, meaning: str, recorded: AnyArray, expected: AnyArray) -> list[Message]:
    """Compare a number of each node, or its counts by class, with what it should be."""
    wrong = ~(recorded == expected).reshape(len(recorded), -1).all(axis=1)
    return found(wrong, "audits.node_value", array=array, meaning=meaning, found=recorded, expected=expected)


def rows_inserted(history: History, born: Ints) -> Ints:
    """Return the row of a history that each of some updates has inserted; -1 where there is none."""
    order = np.argsort(history.inserted, kind="stable")  # which is fast: they ascend
    at = np.searchsorted(history.inserted, born, sorter=order)
    row = np.append(order, -1)[at]
    row[np.append(history.inserted, -1)[row] != born] = -1
    return row


def live_by_id(history: History) -> Ints:
    """Return the places of the live examples in a history, by ascending id."""
    live = np.flatnonzero(history.deleted == FOREVER)
    ordered: Ints = live[np.argsort(history.id[live], kind="stable")]
    return ordered


def compare_rows(state: Mapping[str, AnyArray], history: History, leaf: Ints | None = None) -> list[Message]:
    """Compare the live examples of a state with a history and, of a tree, the leaf of each with its route."""
    live, order = live_by_id(history), np.argsort(state["id"], kind="stable")
    if not np.array_equal(state["id"][order], history.id[live]):
        lost = np.setdiff1d(history.id[live], state["id"])
        extra = np.setdiff1d(state["id"], history.id[live])
        ids = {"missing_ids": lost[:3].tolist(), "extra_ids": extra[:3].tolist()}
        sizes = {"held": len(order), "live": len(live), "missing": len(lost), "extra": len(extra)}
        return [message("audits.examples", **sizes, **ids)]
    values = {"label": (state["y"], history.y), "time of insertion": (state["born"], history.inserted)}
    if "weight" in state or history.weight is not None:
        weights = given_weights(state.get("weight"), len(order)), given_weights(history.weight, len(history.id))
        values["weight"] = weights
    if leaf is not None:
        values["leaf"] = state["leaf"], leaf
    failures = []
    for what, (recorded, expected) in values.items():
        failures += wrong_values(what, history.id[live], recorded[order], expected[live])
    return failures


def wrong_values(what: str, ids: Ints, values: AnyArray, expected: AnyArray) -> list[Message]:
    """Return a message that counts the examples whose value is wrong and names the first, or none."""
    wrong = np.flatnonzero(values != expected)
    if not len(wrong):
        return []
    i = wrong[0]
    shown = {"id": ids[i], "found": values[i], "expected": expected[i]}
    return [message("audits.example_value", what=what, examples=len(wrong), **shown)]


def compare_counts(state: Mapping[str, AnyArray], truth: RoutedHistory) -> list[Message]:
    """Class counts of all nodes, from which labels follow, against the live examples."""
    recorded = np.zeros_like(truth.live_counts)
    recorded[:, : state["counts"].shape[1]] = state["counts"]
    return compare_nodes("counts", "live examples by class", recorded, truth.live_counts)


def exceeds(values: Ints, rate: Fraction, sizes: Ints) -> Bools:
    """Return whether a statistic exceeds its rate times the size of the node, exactly."""
    p, q = rate.numerator, rate.denominator
    return np.array([a * q > p * b for a, b in zip(values.tolist(), sizes.tolist(), strict=True)], np.bool_)


def compare_history(
    truth: BuildHistory, state: Mapping[str, AnyArray], history: History, epsilon: Fraction | None, warming: bool
) -> list[Message]:
    """Compare what all fully dynamic trees keep with a history; of an incomplete one, only examples and class counts.

    ``epsilon`` is as in :func:`compare_counters`, ``warming`` says whether the warm-up has not ended.
    """
    failures = compare_rows(state, history, truth.leaf) + compare_counts(state, truth)
    if not history.complete:
        return failures
    failures += compare_counters(truth, epsilon, history.warmup, warming)
    # The insertions that a warm-up still waits for: 0 once it or the stream has ended.
    left, expected = int(state["warmup_left"][0]), max(0, history.warmup - len(history.id))
    if left not in (0, expected):
        failures.append(message("audits.value", name="warmup_left", found=left, expected=expected))
    return failures + compare_nodes("missing", "side of missing numbers", truth.tree.missing, truth.sides())


def compare_counters(truth: BuildHistory, epsilon: Fraction | None, warmup: int, warming: bool) -> list[Message]:
    """s, c and built of every node against the history; with ``epsilon`` Lemma 3.4, and that no rebuild is due."""
    tree = truth.tree
    s, c = truth.built_counts.sum(axis=1), np.zeros_like(truth.c) if warming else truth.c
    now = truth.live_counts.sum(axis=1)
    top = (tree.parent < 0) | (tree.built[tree.parent] != tree.built)
    by_update = top & (tree.built >= 0)
    if tree.built[0] < 2 * warmup:
        by_update[0] = False  # the warm-up built the root, whichever update ended it
    failures = compare_nodes("s", "examples at BUILD", tree.s, s)
    failures += compare_nodes("c", "updates since BUILD", tree.c, c)
    failures += found(
        (tree.parent >= 0) & (tree.built < tree.built[tree.parent]), "audits.node_time", array="built", time=tree.built
    )
    failures += found(by_update & ~truth.passed, "audits.node_time", array="built", time=tree.built)
    if not warming and epsilon is not None:
        failures += found(exceeds(tree.c, epsilon, tree.s), "audits.overdue", c=tree.c, s=tree.s)
        failures += found(exceeds(np.abs(now - tree.s), epsilon, tree.s), "audits.lemma")
    return failures
