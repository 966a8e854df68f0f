"""The two verdicts on an in-place online GBDT, from a state and the raw examples.

*Conformance*: bins are those of the rows of the last training; every example the model holds lies in the leaf it routes
to, in every tree; all sums equal those recomputed from the ledger, bit for bit; leaf values are their formula; every
split leaves something on both sides and ranks within the tolerance; no tree has too many leaves. *Feasibility*, where
the kind of ``derivatives`` promises it: every stored derivative is one that a score within the tolerance of the present
one gives. How far the splits are from the best ones is measured.

The rows may be divided among parts (``audited_rows``): what is true of all is the sum of what each part finds.

Nothing of the fast path is imported but the derivatives in fixed point (``recompute``). Not here: a replay of the
updates; what was added for a row at its time, which the ledger alone knows, is checked in the first iteration, where
it is the same at any time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from raydt.arrays.blocks import as_slice
from raydt.arrays.elementary import AnyArray, Arrays, Bools, Floats, Ints, softmax
from raydt.audits.bins import (
    AuditParts,
    FeatureBins,
    PartsHere,
    Question,
    SortedValues,
    TargetSums,
    class_sums,
    compare_factors,
    derived_together,
    effective,
    given_weights,
    of_all,
    recorded_bins,
    target_sums,
    times,
)
from raydt.audits.recorded_tree import AuditReport, noted, rows_inserted, wrong_values
from raydt.examples.updates import UNIT, Features, History
from raydt.learners.gbdt.derivatives import LARGEST_RESIDUAL, ONE, RESIDUAL_BITS, Loss, quantised
from raydt.learners.gbdt.recompute import (
    DealtTree,
    Gains,
    RawRows,
    RecomputedCandidates,
    RecomputedTree,
    added,
    only,
    recorded_trees,
)
from raydt.messages import Message, message
from raydt.parallel import ranges, run
from raydt.presentation.charts import counted

if TYPE_CHECKING:
    from raydt.learners.gbdt.options import GBDTOptions

# The trees of a state under an audit, and what their sums should be: the same for all rows and for parts of them.

#: A leaf of a classifier is clipped to it.
LARGEST_LEAF = 128.0


class AuditedTrees:
    """All trees of a state.

    Sparse features are numbered as the ones ``with_cut`` are, of which there are few.
    """

    def __init__(
        self, options: GBDTOptions, state: Mapping[str, AnyArray], bins: list[FeatureBins], with_cut: Ints
    ) -> None:
        feature = state["node_feature"].astype(np.int64)
        above, place = feature >= len(bins), np.searchsorted(with_cut, feature - len(bins))
        there = np.append(with_cut, -1)[place] == feature - len(bins)
        feature = np.where(above, np.where(there, len(bins) + place, len(bins) + len(with_cut)), feature)
        classes = int(state["classes"][0])
        self.options, self.state, self.bins, self.with_cut, self.classes = options, state, bins, with_cut, classes
        self.binary = classes == 2 and options.objective in ("auto", "binary")
        self.width = 1 if options.regression or self.binary else classes
        self.unit = math.ldexp(1.0, int(state["exponent"][0]) - RESIDUAL_BITS)
        self.loss = Loss(self.width, options.regression, float(state["origin"][0]), self.unit)
        units = (2.0**-RESIDUAL_BITS, 1.0 / UNIT) if options.regression else (1.0 / ONE, 1.0 / ONE**2)
        self.gains = Gains(units, options.l2_regularization)
        self.candidates = RecomputedCandidates(bins, len(with_cut), options)
        self.tree = recorded_trees({**state, "node_feature": feature}, self.candidates.cuts)
        self.end = np.cumsum(state["tree_nodes"])
        self.tolerance = max(
            1, math.ceil(options.robustness_tolerance * min(self.candidates.per_feature, self.candidates.total))
        )

    def __len__(self) -> int:
        return len(self.tree)

    def nodes(self, t: int) -> slice:
        """Return where the nodes of a tree are among those of all."""
        return slice(int(self.end[t]) - len(self.tree[t]), int(self.end[t]))

    def leaf_values(self, G: Ints, H: Ints) -> Floats:
        """Algorithm 1, line 7, of sums, with l2_regularization; 0 where there is nothing."""
        empty, (of_G, of_H) = H == 0, self.gains.units
        beta = np.where(empty, 0.0, G * of_G / np.where(empty, 1.0, H * of_H + self.options.l2_regularization))
        if self.options.regression:
            return self.options.learning_rate * beta * math.ldexp(1.0, int(self.state["exponent"][0]))
        if not self.binary:
            beta = beta * ((self.classes - 1) / self.classes)
        values: Floats = self.options.learning_rate * np.clip(beta, -LARGEST_LEAF, LARGEST_LEAF)
        return values


# Some rows of a state under an audit: what is checked row by row, and sums of what is checked of all rows together.
#
# Nothing of the fast path is imported but the derivatives in fixed point. Not here: verdicts (``audit``).

#: Values of ``pending``: none; an insertion; a deletion.
NOT_PENDING, TO_INSERT, TO_DELETE = 0, 1, 2
LIVE = np.iinfo(np.int64).max
#: Rows that are worth the start of another thread, rows that are transposed, and rows whose scores are compared.
_FEW_ROWS, _BLOCK, _COMPARED = 1 << 12, 1 << 10, 1 << 14


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
        #: Rows of the state that the model holds.
        self.held = as_slice(np.flatnonzero((state["pending"] != TO_INSERT) & (self.source >= 0)))
        self._weight = given_weights(history.weight, len(history.id))

    def counts(self) -> RowCounts:
        """Count the rows."""
        live = int((self.state["pending"] != TO_DELETE).sum())
        return RowCounts(len(self.history.id), live, len(self.source[self.held]), self.history.complete, self.failures)

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

        def sorted_values(j: int) -> SortedValues:
            return SortedValues(self.history.X[rows, j], kinds[j])

        self._sorted = dict(zip(columns, run([partial(sorted_values, j) for j in columns]), strict=True))

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

    def begin(self, bins: list[FeatureBins], with_cut: Ints, factors: Ints | None) -> None:
        """Begin with the trees."""
        history, self._sorted = self.history, {}
        rows = as_slice(self.source[self.held])
        self._trees = AuditedTrees(self.options, self.state, bins, with_cut)
        self._y, self._id = history.y[rows], self.state["id"][self.held]
        #: What rows count, in units; None: 1 each.
        self._counted: Ints | None = None
        if factors is not None or history.weight is not None:
            self._counted = effective(self._weight[rows], self._y, factors)
        ones = None if history.sparse is None else only(history.sparse[rows], with_cut)
        self._raw = RawRows(history.X[rows], ones, bins)
        self._F = np.full((len(self._y), self._trees.width), self._trees.loss.origin)

    def trees(self, iterations: range) -> TreesOfRows:
        """Deal the rows down the trees of the next iterations. O(features * depth * rows) for each tree."""
        width, state, n = self._trees.width, self.state, len(self._y)
        columns = slice(iterations.start * width, iterations.stop * width)
        leaf, ledger = (_by_tree(state[name], self.held, columns, n) for name in ("leaf", "ledger"))
        first = columns.start
        dealt = run([partial(self._dealt, m, leaf, ledger, first) for m in iterations])
        trees, routes = (list(chain.from_iterable(each)) for each in zip(*dealt, strict=True))
        parts = [slice(begin, min(begin + _COMPARED, n)) for begin in range(0, n, _COMPARED)]
        found = run([partial(self._staleness, first, routes, ledger, part) for part in parts])
        return TreesOfRows(trees, max((one for one, _ in found), default=0.0), sum(count for _, count in found))

    def _dealt(self, m: int, leaf: AnyArray, ledger: AnyArray, first: int) -> tuple[list[TreeOfRows], list[AnyArray]]:
        """Deal the rows down the trees of one iteration; return also their leaves in each."""
        trees, options = self._trees, self.options
        found, routes = list[TreeOfRows](), list[AnyArray]()
        divided = self._raw.divided(trees.candidates.of(m))
        for k in range(trees.width):
            t = m * trees.width + k
            entry = ledger[t - first]
            # A derivative has 31 bits, and its product with a weight more.
            if options.regression:
                g = entry.astype(np.int32)
                h = np.full_like(g, UNIT)
            else:
                g = np.multiply(self._y == (1 if trees.binary else k), ONE, dtype=np.int32)
                g -= entry
                h = np.abs(g)
                h *= ONE - h
            if self._counted is not None:
                g, h = times(g.astype(np.int64), self._counted), times(h.astype(np.int64), self._counted)
            dealt = self._raw.deal(trees.tree[t], g, h, divided)
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

    def _staleness(self, first: int, routes: list[AnyArray], ledger: AnyArray, part: slice) -> tuple[float, int]:
        """Add trees to the scores; return the largest distance of the ledger from these, and how many are too far."""
        trees, scores, y, stale, too_stale = self._trees, self._F[part], self._y[part], 0, 0
        for begin in range(0, len(routes), trees.width):
            entries = ledger[begin : begin + trees.width, part].astype(np.int64)
            fresh = quantised(scores, y, trees.loss)
            other = np.flatnonzero((entries != fresh).any(axis=0))  # the others are as far as nothing
            if len(other):
                entries, fresh = entries[:, other], fresh[:, other]
                low, high = self._range_of(scores[other], fresh)
                stale = max(stale, int(np.abs(entries - fresh).max()))
                too_stale += int(((entries < low) | (entries > high)).sum())
            for k in range(trees.width):
                scores[:, k] += self.state["node_value"][trees.nodes(first + begin + k)][routes[begin + k][part]]
        return stale * (trees.unit if self.options.regression else 1.0 / ONE), too_stale

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
    source = rows_inserted(history, born)
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
        "audits.waiting_rows": late | ((pending == TO_INSERT) == (born < begun)),
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


def _first(values: Ints) -> Bools:
    """Return whether each value has not occurred before."""
    first = np.zeros(len(values), np.bool_)
    first[np.unique(values, return_index=True)[1]] = True
    return first


def _by_tree(array: AnyArray, rows: AnyArray | slice, trees: slice, n: int) -> AnyArray:
    """Some n rows and trees of an array, shape (rows, trees), transposed: rows of a tree are neighbours."""
    out = np.empty((trees.stop - trees.start, n), array.dtype)

    def turn(part: slice) -> None:
        for begin in range(part.start, part.stop, _BLOCK):
            some = slice(begin, min(begin + _BLOCK, part.stop))
            out[:, some] = (array[rows][some, trees] if isinstance(rows, slice) else array[rows[some], trees]).T

    run([partial(turn, part) for part in ranges(n, _FEW_ROWS)])
    return out


#: Leaves of rows in a part, and sums of candidates of all parts, that are kept at once; values that are sorted at once.
_TOGETHER, _SORTED = 1 << 22, 1 << 21


def audit(options: GBDTOptions, features: Features, state: Arrays, history: History, groups: Any = None) -> AuditReport:
    """Prove or refute that a state is what the method makes of its examples.

    If the history is not complete, the bins are taken as recorded. O(trees * depth * features * rows) time.

    Returns
    -------
    AuditReport
        ``checked``: examples of the history, rows the model holds, trees, nodes and splits. ``worst``: ``rank``, the
        largest rank of a split among the candidates of its node; ``lack``, the largest share of the best gain that a
        split lacks; ``stale``, the largest difference between what the ledger has and what it would have now, in
        probability or in units of the target.
    """
    return audit_parts(options, features, state, PartsHere([AuditedRows(options, features, state, history)]))


def audit_parts(options: GBDTOptions, features: Features, model: Arrays, parts: AuditParts) -> AuditReport:
    """Return what :func:`audit` does, of rows that are divided among ``parts``, each an :class:`AuditedRows`.

    ``model`` is the state; its arrays by row are not used. The report is the same whatever the parts, but for the
    failures of rows, of which each part has its own.
    """
    counts, promise = parts.ask("counts"), options.promise()
    broken = [failure for count in counts for failure in count.failures]
    checked = {name: sum(getattr(count, name) for count in counts) for name in ("examples", "live", "held")}
    checked |= {"trees": 0, "nodes": 0, "splits": 0}
    worst, too_stale = {"rank": 0.0, "lack": 0.0, "stale": 0.0}, 0
    if model["classes"][0] >= 0:
        nodes, splits = len(model["node_feature"]), int((model["node_feature"] >= 0).sum())
        checked |= {"trees": len(model["tree_nodes"]), "nodes": nodes, "splits": splits}
        failures, too_stale = _compare_model(options, features, model, parts, counts, worst)
        broken += failures
    elif "tree_nodes" in model or checked["held"]:
        broken.append(message("audits.early", what="trees, or rows in trees,"))
    reason = noted(promise.reason, message("audits.measured_rank", rank=worst["rank"], lack=worst["lack"]))
    verdict: Literal["proven", "violated", "not_promised"] = "proven" if promise.promised else "not_promised"
    if promise.promised and too_stale:
        verdict, reason = "violated", message("audits.stale", derivatives=too_stale)
    if not counts[0].complete:
        reason = noted(reason, message("audits.live_only", what="the bins"))
    return AuditReport("violated" if broken else "holds", verdict, reason, checked, worst, broken)


def _compare_model(
    options: GBDTOptions,
    features: Features,
    model: Arrays,
    parts: AuditParts,
    counts: list[RowCounts],
    worst: dict[str, float],
) -> tuple[list[Message], int]:
    """Compare bins and trees; return failures and the number of entries that are too stale, and raise what is worst."""
    bins, with_cut = recorded_bins(model, features)
    sums = [one for one in parts.ask("class_sums") if one is not None]
    factors, failures = compare_factors(options, model, sum(sums[1:], sums[0]) if sums else None)
    broken, too_stale = failures, 0
    if counts[0].complete:
        together = max(1, _SORTED // max(1, *(count.examples for count in counts)))
        broken += _compare_bins(options, features, parts, bins, with_cut, together)
        broken += _compare_scale(options, model, parts)
    trees = AuditedTrees(options, model, bins, with_cut)
    parts.ask("begin", bins, with_cut, factors)
    candidates = max((len(tree) for tree in trees.tree), default=1) * max(1, trees.candidates.total)
    each = max(1, trees.width * max(max(count.held for count in counts), len(counts) * candidates))
    together, iterations = max(1, _TOGETHER // each), len(trees) // trees.width
    for first in range(0, iterations, together):
        some = range(first, min(first + together, iterations))
        answers = parts.ask("trees", some)
        worst["stale"] = max(worst["stale"], *(answer.stale for answer in answers))
        too_stale += sum(answer.too_stale for answer in answers)
        for t, of_rows in enumerate(zip(*(answer.trees for answer in answers), strict=True), first * trees.width):
            tree, failures = _compare_tree(trees, t, of_rows)
            broken += failures
            ranked = tree.better[trees.tree[t].feature >= 0]
            worst["rank"] = max(worst["rank"], float(ranked.max(initial=-1) + 1))
            worst["lack"] = max(worst["lack"], largest_lack(tree))
    return broken, too_stale


def largest_lack(tree: RecomputedTree) -> float:
    """Return the largest share of the best gain of its node that a split lacks, where a split gains anything."""
    beaten = np.flatnonzero((tree.better > 0) & (tree.best > 0))
    lack = (tree.best[beaten] - tree.gain[beaten]) / tree.best[beaten]
    return float(lack.max(initial=0.0))


def _compare_scale(options: GBDTOptions, state: Arrays, parts: AuditParts) -> list[Message]:
    """Compare origin and exponent with the targets of the last training."""
    origin, exponent = 0.0, 0
    if options.regression:
        targets = of_all(parts.ask("targets"))
        origin, largest = targets.mean, 0.0
        if targets.least == targets.greatest:
            origin = targets.least
            largest = abs(origin)
        elif targets.least < targets.greatest:
            largest = max(abs(targets.least - origin), abs(targets.greatest - origin))
        if largest > 0:
            fraction, exponent = math.frexp(largest)
            exponent -= fraction == 0.5
    recorded = float(state["origin"][0]), int(state["exponent"][0])
    if recorded != (origin, exponent):
        expected = origin, exponent
        return [message("audits.value", name="origin and exponent of the scores", found=recorded, expected=expected)]
    return []


def _compare_bins(
    options: GBDTOptions, features: Features, parts: AuditParts, bins: list[FeatureBins], with_cut: Ints, together: int
) -> list[Message]:
    """Compare the bins with those of the rows of the last training, of so many columns together."""
    differing: list[int] = []
    for first in range(0, len(bins), together):
        some = range(first, min(first + together, len(bins)))
        parts.ask("sort", some)
        kinds = {j: features.categorical[j] for j in some}
        derived = derived_together(kinds, options.max_bins, options.binning, partial(parts.ask, "answers"))
        differing += [j for j in some if not bins[j].equals(derived[j])]
    if features.sparse:
        indices, ones, rows = zip(*parts.ask("ones"), strict=True)
        found, place = np.unique(np.concatenate(indices), return_inverse=True)
        often = np.bincount(place, np.concatenate(ones), len(found))
        differing += (len(bins) + np.setxor1d(with_cut, found[often < sum(rows)])).tolist()
    return [message("audits.bins", feature=f"feature {j}", source="last training") for j in differing]


def _compare_tree(trees: AuditedTrees, t: int, parts: tuple[TreeOfRows, ...]) -> tuple[RecomputedTree, list[Message]]:
    """Score the splits of one tree, and return everything that is wrong with it."""
    recorded, nodes, options, state = trees.tree[t], trees.nodes(t), trees.options, trees.state
    tree = trees.gains.scored(recorded, trees.candidates.of(t // trees.width), added([part.sums for part in parts]))
    G, H, value = (state[name][nodes] for name in ("node_G", "node_H", "node_value"))
    if options.regression:  # whole weights, and what is left of them
        H = UNIT * H + (state["node_H_rest"][nodes].astype(np.int64) if "node_H_rest" in state else 0)
    inner, where = recorded.feature >= 0, dict[str, str]()
    for name in parts[0].wrong:
        rows = WrongRows(sum(part.wrong[name].rows for part in parts), min(part.wrong[name].id for part in parts))
        if rows.rows:
            where[name] = f"{counted(rows.rows, 'time')}, least id {rows.id}"
    wrong = {
        "node_G or node_H": (tree.G != G) | (tree.H != H),
        "node_value": value != np.where(inner, 0.0, trees.leaf_values(tree.G, tree.H)),
        "one-sided split": inner & (tree.better < 0),
        f"split (ranks below {trees.tolerance})": inner & (tree.better + 1 > trees.tolerance),
        "node_tried_h of a split": inner & (state["node_tried_h"][nodes] >= 0),
    }
    where |= {name: _times(here) for name, here in wrong.items() if here.any()}
    failures = [message("audits.tree", tree=t, array=name, where=said) for name, said in where.items()]
    if recorded.leaves > options.max_leaf_nodes:
        failures.append(message("audits.tree_leaves", tree=t, leaves=recorded.leaves, limit=options.max_leaf_nodes))
    return tree, failures


def _times(wrong: Bools) -> str:
    return f"{counted(int(wrong.sum()), 'time')}, first at {int(np.flatnonzero(wrong)[0])}"
