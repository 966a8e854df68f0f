"""Some rows of a state under an audit: what is checked row by row, and sums of what is checked of all rows together.

Nothing of the fast path is imported but the derivatives in fixed point. Not here: verdicts (``audit``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raydt.arrays.elementary import softmax
from raydt.arrays.types import AnyArray, Arrays, Bools, Floats, Ints
from raydt.audits.derived_bins import Question, SortedValues
from raydt.audits.recorded_bins import FeatureBins
from raydt.audits.tree_audit import wrong_values
from raydt.audits.weights import TargetSums, class_sums, effective, given_weights, target_sums, times
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.learners.gbdt.audited_trees import AuditedTrees
from raydt.learners.gbdt.derivatives import LARGEST_RESIDUAL, ONE, RESIDUAL_BITS, quantised
from raydt.learners.gbdt.recompute import DealtTree, RawRows, only
from raydt.messages import Message, message
from raydt.parallel.threads import ranges, run

if TYPE_CHECKING:
    from raydt.learners.gbdt.options import GBDTOptions

#: Values of ``pending``: none; an insertion; a deletion.
NOT_PENDING, TO_INSERT, TO_DELETE = 0, 1, 2
LIVE = np.iinfo(np.int64).max
#: Rows that are worth the start of another thread, and rows that are transposed.
_FEW_ROWS, _BLOCK = 1 << 12, 1 << 10


class RowCounts(NamedTuple):
    """Numbers of rows, and failures of rows that do not depend on the trees."""

    examples: int  #: Of the history.
    live: int
    held: int  #: By the model.
    complete: bool  #: Whether the history is.
    failures: list[Message]


class WrongRows(NamedTuple):
    """The number of wrong rows, and their least id."""

    rows: int
    id: int


class TreeOfRows(NamedTuple):
    """Sums of some rows at the nodes of a tree, and the rows that contradict the tree."""

    sums: DealtTree  #: Without leaves.
    wrong: dict[str, WrongRows]  #: By array.


class TreesOfRows(NamedTuple):
    """Sums and contradictions of some rows in the trees of some iterations, and the age of their derivatives."""

    trees: list[TreeOfRows]
    stale: float  #: The largest distance of the ledger from what it would be now.
    too_stale: int  #: Entries that exceed the tolerance.


class AuditedRows:
    """Rows of a state, and of the history those with the same ids.

    A verdict on all rows asks :meth:`counts` first, :meth:`begin` before :meth:`trees`, and these in ascending order.
    """

    def __init__(self, options: GBDTOptions, features: Features, state: Arrays, history: History) -> None:
        self.options, self.features, self.state, self.history = options, features, state, history
        self.source, self.failures = _rows(options, state, history)
        held = (state["pending"] != TO_INSERT) & (self.source >= 0)
        self.held = np.flatnonzero(held)
        self._weight = given_weights(history.weight, len(history.id))

    def counts(self) -> RowCounts:
        """Count the rows."""
        live = int((self.state["pending"] != TO_DELETE).sum())
        return RowCounts(len(self.history.id), live, len(self.held), self.history.complete, self.failures)

    # ---------------------------------------------------------------- the last training

    def class_sums(self) -> Ints | None:
        """Return the weights of each class when classes were weighed (``weights.class_sums``)."""
        return class_sums(self.state, self.history)

    def trained(self, counting: bool) -> Bools:
        """Return which examples the trees were last trained on, live then; ``counting``: of a weight above 0."""
        end = int(self.state["trained"][0])
        trained: Bools = (self.history.inserted < end) & (self.history.deleted >= end)
        return trained & (self._weight > 0) if counting else trained

    def sort(self, columns: range) -> None:
        """Sort the values of some dense features that bins are made of."""
        rows, kinds = np.flatnonzero(self.trained(counting=True)), self.features.categorical
        self._sorted = dict(
            zip(columns, run([partial(_sorted, self.history.X, rows, j, kinds[j]) for j in columns]), strict=True)
        )

    def answers(self, questions: dict[int, Question]) -> dict[int, Any]:
        """Answer questions about sorted values."""
        return {j: self._sorted[j].answer(question) for j, question in questions.items()}

    def ones(self) -> tuple[Ints, Ints, int]:
        """Return the sparse features that are 1 in rows of the last training, in how many, and how many these are."""
        rows, sparse = np.flatnonzero(self.trained(counting=True)), self.history.sparse
        indices, ones = np.unique([] if sparse is None else sparse[rows].indices, return_counts=True)
        return indices.astype(np.int64), ones, len(rows)

    def targets(self) -> TargetSums:
        """Sum up the numeric targets of the rows of the last training."""
        trained = self.trained(counting=False)
        return target_sums(self.history.y[trained].astype(np.float64), self._weight[trained])

    # ---------------------------------------------------------------- trees

    def begin(self, bins: list[FeatureBins], with_cut: Ints, factors: Ints | None) -> bool:
        """Begin with the trees; return whether there is a leaf and a ledger entry of each row in each of them."""
        history, rows, self._sorted = self.history, self.source[self.held], {}
        self._trees = AuditedTrees(self.options, self.state, bins, with_cut)
        self._y, self._id = history.y[rows], self.state["id"][self.held]
        self._counted = effective(self._weight[rows], self._y, factors)
        ones = None if history.sparse is None else only(history.sparse[rows], with_cut)
        self._raw = RawRows(history.X[rows], ones, bins)
        self._F = np.full((len(rows), self._trees.width), self._trees.loss.origin)
        shape = (len(self.source), len(self._trees))
        return self.state["leaf"].shape == self.state["ledger"].shape == shape

    def trees(self, iterations: range) -> TreesOfRows:
        """Deal the rows down the trees of the next iterations. O(features * depth * rows) for each tree."""
        width, state = self._trees.width, self.state
        columns = slice(iterations.start * width, iterations.stop * width)
        leaf, ledger = (_by_tree(state[name], self.held, columns) for name in ("leaf", "ledger"))
        first = columns.start
        dealt = run([partial(self._dealt, m, leaf, ledger, first) for m in iterations])
        trees, routes = (list(chain.from_iterable(each)) for each in zip(*dealt, strict=True))
        parts = ranges(len(self._F), _FEW_ROWS)
        found = run([partial(self._staleness, first, routes, ledger, part) for part in parts])
        return TreesOfRows(trees, max((one for one, _ in found), default=0.0), sum(count for _, count in found))

    def _dealt(self, m: int, leaf: AnyArray, ledger: AnyArray, first: int) -> tuple[list[TreeOfRows], list[Ints]]:
        """Deal the rows down the trees of one iteration; return also their leaves in each."""
        trees, options = self._trees, self.options
        candidates, found, routes = trees.candidates.of(m), list[TreeOfRows](), list[Ints]()
        for k in range(trees.width):
            t = m * trees.width + k
            entry = ledger[t - first].astype(np.int64)
            g = entry if options.regression else ONE * (self._y == (1 if trees.binary else k)) - entry
            h = self._counted if options.regression else times(np.abs(g) * (ONE - np.abs(g)), self._counted)
            dealt = self._raw.deal(trees.tree[t], times(g, self._counted), h, candidates)
            low, high = (-LARGEST_RESIDUAL, LARGEST_RESIDUAL) if options.regression else (1, ONE - 1)
            wrong = {"leaf": leaf[t - first] != dealt.leaf, "ledger": (entry < low) | (entry > high)}
            if m == 0:
                start = np.full((len(self._y), trees.width), trees.loss.origin)
                wrong["ledger of an empty model"] = entry != quantised(start, self._y, trees.loss)[t]
            routes.append(dealt.leaf)
            sums = dealt._replace(leaf=dealt.leaf[:0])
            found.append(TreeOfRows(sums, {name: self._named(rows) for name, rows in wrong.items()}))
        return found, routes

    def _named(self, wrong: Bools) -> WrongRows:
        ids = self._id[wrong]
        return WrongRows(len(ids), int(ids.min(initial=LIVE)))

    def _staleness(self, first: int, routes: list[Ints], ledger: AnyArray, part: slice) -> tuple[float, int]:
        """Add trees to the scores; return the largest distance of the ledger from these, and how many are too far."""
        trees, scores, y, stale, too_stale = self._trees, self._F[part], self._y[part], 0.0, 0
        scale = trees.unit if self.options.regression else 1.0 / ONE
        for t, leaf in enumerate(routes, first):
            k = t % trees.width
            if k == 0:
                fresh = quantised(scores, y, trees.loss)
                low, high = self._range_of(scores, fresh)
            entry = ledger[t - first, part].astype(np.int64)
            stale = max(stale, float(np.abs(entry - fresh[k]).max(initial=0)) * scale)
            too_stale += int(((entry < low[k]) | (entry > high[k])).sum())
            scores[:, k] += self.state["node_value"][trees.nodes(t)][leaf[part]]
        return stale, too_stale

    def _range_of(self, F: Floats, fresh: Ints) -> tuple[Ints, Ints]:
        """Least and greatest entries that scores within the tolerance of ``F`` give, both of the shape of ``fresh``."""
        tolerance, trees = self.options.tolerance, self._trees
        if not self.options.bounded or not tolerance:
            return fresh, fresh
        if self.options.regression:
            width = math.ceil(tolerance * 2 ** (RESIDUAL_BITS - 4))
            return fresh - width, fresh + width
        p = softmax(F)[:, -trees.width :].T
        odds = math.exp(tolerance * (1 if trees.binary else 2))
        low, high = (np.floor(part * ONE + 0.5) for part in (p / (p + (1 - p) * odds), p * odds / (p * odds + (1 - p))))
        low, high = (np.clip(part, 1, ONE - 1).astype(np.int64) for part in (low, high))
        return np.minimum(low, fresh), np.maximum(high, fresh)


def _rows(options: GBDTOptions, state: Mapping[str, AnyArray], history: History) -> tuple[Ints, list[Message]]:
    """Find the row of the history that each row of the state is (-1: none), by its insertion; and failures."""
    born, pending = state["born"], state["pending"]
    order = np.argsort(history.inserted, kind="stable")
    source = np.append(order, -1)[np.searchsorted(history.inserted, born, sorter=order)]
    source[source >= 0] = np.where(history.inserted[source] == born, source, -1)[source >= 0]
    known = source >= 0
    deleted = np.zeros(len(born), np.bool_)
    deleted[known] = history.deleted[source[known]] != LIVE

    # Pending updates are of after the end of the last D'.
    begun = options.begun(state) if state["classes"][0] >= 0 else 0
    leaves = pending == TO_DELETE
    late = known & leaves & history.complete
    late[late] = history.deleted[source[late]] < begun

    wrong = {
        "audits.unknown_rows": ~known,
        "audits.live_rows": known & ((deleted & ~leaves) | (~deleted & leaves & history.complete)),
        "audits.repeated_rows": ~_first(born),
        "audits.waiting_rows": late | ((pending == TO_INSERT) & (born < begun)) | _too_early(state, begun),
    }
    failures = [
        message(id, rows=int(rows.sum()), id=state["id"][np.flatnonzero(rows)[0]])
        for id, rows in wrong.items()
        if rows.any()
    ]
    recorded = {"weight": given_weights(state.get("weight"), len(born)), "id": state["id"], "y": state["y"]}
    theirs = {"weight": given_weights(history.weight, len(history.id)), "id": history.id, "y": history.y}
    for name, what in (("id", "id"), ("y", "label"), ("weight", "weight")):
        failures += wrong_values(what, state["id"][known], recorded[name][known], theirs[name][source[known]])
    live = history.inserted[history.deleted == LIVE]
    missing = live[~np.isin(live, born)]
    if len(missing):
        first = history.id[history.inserted == missing.min()][0]
        failures.append(message("audits.missing_rows", rows=len(missing), id=first))
    return source, failures


def _too_early(state: Mapping[str, AnyArray], begun: int) -> Bools:
    """Return which rows are in the model before the end of their D'; a state of format 2 does not tell."""
    early: Bools = (state["pending"] != TO_INSERT) & (state["born"] >= begun)
    return early if "begun" in state else np.zeros_like(early)


def _first(values: Ints) -> Bools:
    """Return whether each value has not occurred before."""
    first = np.zeros(len(values), np.bool_)
    first[np.unique(values, return_index=True)[1]] = True
    return first


def _sorted(X: Floats, rows: Ints, j: int, categorical: bool) -> SortedValues:
    return SortedValues(X[rows, j], categorical)


def _by_tree(array: AnyArray, rows: Ints, trees: slice) -> AnyArray:
    """Some rows and trees of an array, shape (rows, trees), transposed: rows of a tree are neighbours."""
    out = np.empty((trees.stop - trees.start, len(rows)), array.dtype)

    def turn(part: slice) -> None:
        for begin in range(part.start, part.stop, _BLOCK):
            some = slice(begin, min(begin + _BLOCK, part.stop))
            out[:, some] = array[rows[some], trees].T

    run([partial(turn, part) for part in ranges(len(rows), _FEW_ROWS)])
    return out
