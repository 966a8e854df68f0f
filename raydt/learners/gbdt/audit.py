"""The two verdicts on an in-place online GBDT, from a state and the raw examples.

*Conformance*: bins are those of the rows of the last training; every example the model holds lies in the leaf it routes
to, in every tree; all sums equal those recomputed from the ledger, bit for bit; leaf values are their formula; every
split leaves something on both sides and ranks within the tolerance; no tree has too many leaves. *Feasibility*, where
the kind of ``derivatives`` promises it: every stored derivative is one that a score within the tolerance of the present
one gives. How far the splits are from the best ones is measured.

Nothing of the fast path is imported but the derivatives in fixed point (``recompute``). Not here: a replay of the
updates; what was added for a row at its time, which the ledger alone knows, is checked in the first iteration, where
it is the same at any time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from raydt.arrays.elementary import softmax
from raydt.arrays.types import AnyArray, Bools, Floats, Ints
from raydt.audits.audit_report import AuditReport, noted
from raydt.audits.recorded_bins import MalformedModelError, recorded_bins
from raydt.audits.tree_audit import wrong_values
from raydt.audits.weights import class_factors, effective, given_weights, times, weighted_mean
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.weights import UNIT
from raydt.learners.gbdt.derivatives import LARGEST_RESIDUAL, ONE, RESIDUAL_BITS, Loss, quantised
from raydt.learners.gbdt.recompute import (
    RawRows,
    RecomputedCandidates,
    RecomputedTree,
    only,
    recorded_trees,
    training_bins,
)
from raydt.messages import Message, message
from raydt.parallel.threads import ranges, run
from raydt.presentation.words import counted

if TYPE_CHECKING:
    from raydt.learners.gbdt.options import GBDTOptions

Arrays = Mapping[str, AnyArray]

#: Values of ``pending``: none; an insertion; a deletion.
NOT_PENDING, TO_INSERT, TO_DELETE = 0, 1, 2
LIVE = np.iinfo(np.int64).max
#: A leaf of a classifier is clipped to it.
LARGEST_LEAF = 128.0
#: Leaves of rows that are kept at once, rows that are worth the start of another thread, and rows that are transposed.
_TOGETHER, _FEW_ROWS, _BLOCK = 1 << 22, 1 << 12, 1 << 10


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
    broken: list[Message] = []
    try:
        found = _examine(options, features, state, history, broken)
    except MalformedModelError as error:
        broken.append(message("audits.malformed", what="model", problem=str(error)))
        return AuditReport("violated", "violated", broken[-1], failures=broken)
    worst = {name: found.pop(name) for name in ("rank", "lack", "stale")}
    too_stale, promise = int(found.pop("too_stale")), options.promise()
    reason = noted(promise.reason, message("audits.measured_rank", rank=worst["rank"], lack=worst["lack"]))
    verdict: Literal["proven", "violated", "not_promised"] = "proven" if promise.promised else "not_promised"
    if promise.promised and too_stale:
        verdict = "violated"
        reason = message("audits.stale", derivatives=too_stale)
    if not history.complete:
        reason = noted(reason, message("audits.live_only", what="the bins"))
    return AuditReport(
        conformance="violated" if broken else "holds",
        feasibility=verdict,
        reason=reason,
        checked={name: int(count) for name, count in found.items()},
        worst=worst,
        failures=broken,
    )


def _examine(
    options: GBDTOptions, features: Features, state: Arrays, history: History, broken: list[Message]
) -> dict[str, float]:
    """Numbers of things checked, and measures; each failure is appended to ``broken``."""
    source, failures = _rows(options, state, history)
    broken += failures
    held = (state["pending"] != TO_INSERT) & (source >= 0)
    sparse = None if history.sparse is None else history.sparse[source[held]]
    found = dict.fromkeys(
        ("examples", "live", "held", "trees", "nodes", "splits", "rank", "lack", "stale", "too_stale"), 0.0
    )
    found |= {"examples": len(history.id), "live": int((state["pending"] != TO_DELETE).sum()), "held": int(held.sum())}
    if state["classes"][0] < 0:
        if "tree_nodes" in state or held.any():
            broken.append(message("audits.early", what="trees, or rows in trees,"))
        return found
    found |= {"trees": len(state["tree_nodes"]), "nodes": len(state["node_feature"])}
    found["splits"] = int((state["node_feature"] >= 0).sum())
    bins, with_cut = recorded_bins(state, features)
    factors, failures = class_factors(options, state, history)
    broken += failures
    if history.complete:
        first = _trained(state, history)
        weight = given_weights(history.weight, len(first))
        counting = first & (weight > 0)
        ones = None if history.sparse is None else history.sparse[np.flatnonzero(counting)]
        derived, derived_with_cut = training_bins(history.X[counting], ones, features, options)
        differing = [j for j, pair in enumerate(zip(bins, derived, strict=True)) if not pair[0].equals(pair[1])]
        differing += (len(bins) + np.setxor1d(with_cut, derived_with_cut)).tolist()
        broken += [message("audits.bins", feature=f"feature {j}", source="last training") for j in differing]
        broken += _scale(options, state, history.y[first], weight[first])
    # From here on sparse features are numbered as those with a cut are: there are few of them.
    feature = state["node_feature"].astype(np.int64)
    above, place = feature >= len(bins), np.searchsorted(with_cut, feature - len(bins))
    there = np.append(with_cut, -1)[place] == feature - len(bins)
    feature = np.where(above, np.where(there, len(bins) + place, len(bins) + len(with_cut)), feature)
    state = {**state, "node_feature": feature}
    y = history.y[source[held]]
    counted = effective(given_weights(history.weight, len(history.id))[source[held]], y, factors)
    trees = _Trees(options, state, RecomputedCandidates(bins, len(with_cut), options), y, held, counted)
    ones = None if sparse is None else only(sparse, with_cut)
    rows = RawRows(history.X[source[held]], ones, bins, options.l2_regularization, trees.units)
    for t, tree, failures in trees.recomputed(rows):
        broken += failures
        splits = trees.tree[t].feature >= 0
        found["rank"] = max(found["rank"], float(tree.better[splits].max(initial=-1) + 1))
        found["lack"] = max(found["lack"], largest_lack(tree))
    found["stale"], found["too_stale"] = trees.stale, trees.too_stale
    return found


def largest_lack(tree: RecomputedTree) -> float:
    """Return the largest share of the best gain of its node that a split lacks, where a split gains anything."""
    beaten = np.flatnonzero((tree.better > 0) & (tree.best > 0))
    lack = (tree.best[beaten] - tree.gain[beaten]) / tree.best[beaten]
    return float(lack.max(initial=0.0))


def _rows(options: GBDTOptions, state: Arrays, history: History) -> tuple[Ints, list[Message]]:
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


def _too_early(state: Arrays, begun: int) -> Bools:
    """Return which rows are in the model before the end of their D'; a state of format 2 does not tell."""
    early: Bools = (state["pending"] != TO_INSERT) & (state["born"] >= begun)
    return early if "begun" in state else np.zeros_like(early)


def _times(wrong: Bools) -> str:
    return f"{counted(int(wrong.sum()), 'time')}, first at {int(np.flatnonzero(wrong)[0])}"


def _first(values: Ints) -> Bools:
    """Return whether each value has not occurred before."""
    first = np.zeros(len(values), np.bool_)
    first[np.unique(values, return_index=True)[1]] = True
    return first


def _trained(state: Arrays, history: History) -> Bools:
    """Return which examples the trees were last trained on: those that were live then."""
    end = int(state["trained"][0])
    trained: Bools = (history.inserted < end) & (history.deleted >= end)
    return trained


def _scale(options: GBDTOptions, state: Arrays, y: AnyArray, weight: Ints) -> list[Message]:
    """Origin and exponent against the targets of the last training."""
    origin, exponent = 0.0, 0
    if options.regression:
        y = y.astype(np.float64)
        if (weight == UNIT).all():
            origin = math.fsum(y.tolist()) / len(y) if len(y) else 0.0
        elif weight.any():
            origin = weighted_mean(y, weight)
        largest = float(np.abs(y - origin).max(initial=0.0))
        if len(np.unique(y)) == 1:
            origin, largest = float(y[0]), abs(float(y[0]))
        if largest > 0:
            fraction, exponent = math.frexp(largest)
            exponent -= fraction == 0.5
    recorded = float(state["origin"][0]), int(state["exponent"][0])
    if recorded != (origin, exponent):
        expected = origin, exponent
        return [message("audits.value", name="origin and exponent of the scores", found=recorded, expected=expected)]
    return []


def _by_tree(array: AnyArray, held: Bools) -> AnyArray:
    """Some rows of an array, shape (rows, trees), transposed: rows of a tree are neighbours."""
    rows = np.flatnonzero(held)
    out = np.empty((array.shape[1], len(rows)), array.dtype)

    def turn(part: slice) -> None:
        for begin in range(part.start, part.stop, _BLOCK):
            some = slice(begin, min(begin + _BLOCK, part.stop))
            out[:, some] = array[rows[some]].T

    run([partial(turn, part) for part in ranges(len(rows), _FEW_ROWS)])
    return out


class _Trees:
    """All trees of a state, and the rows they hold."""

    def __init__(
        self,
        options: GBDTOptions,
        state: Arrays,
        candidates: RecomputedCandidates,
        y: AnyArray,
        held: Bools,
        weight: Ints,
    ) -> None:
        classes = int(state["classes"][0])
        self.options, self.state, self.y, self.held, self.classes = options, state, y, held, classes
        self.weight = weight
        self.binary = classes == 2 and options.objective in ("auto", "binary")
        self.width = 1 if options.regression or self.binary else classes
        self.unit = math.ldexp(1.0, int(state["exponent"][0]) - RESIDUAL_BITS)
        self.loss = Loss(self.width, options.regression, float(state["origin"][0]), self.unit)
        self.units = (2.0**-RESIDUAL_BITS, 1.0 / UNIT) if options.regression else (1.0 / ONE, 1.0 / ONE**2)
        self.candidates = candidates
        self.tree = recorded_trees(state, self.candidates.cuts)
        if len(self.tree) % self.width or not (
            state["leaf"].shape == state["ledger"].shape == (len(held), len(self.tree))
        ):
            raise MalformedModelError(message("states.ledger", trees=len(self.tree), width=self.width))
        self._leaf, self._ledger = (_by_tree(state[name], held) for name in ("leaf", "ledger"))
        self.end = np.cumsum(state["tree_nodes"])
        self.tolerance = max(
            1, math.ceil(options.robustness_tolerance * min(self.candidates.per_feature, self.candidates.total))
        )
        self.stale, self.too_stale = 0.0, 0

    def recomputed(self, rows: RawRows) -> Iterator[tuple[int, RecomputedTree, list[Message]]]:
        """Every tree with its number and what is wrong with it, from the rows the state holds."""
        F = np.full((len(self.y), self.width), self.loss.origin)
        iterations = range(len(self.tree) // self.width)
        together = max(1, _TOGETHER // max(1, F.size))
        for first in iterations[::together]:
            found = list(
                chain.from_iterable(run([partial(self._dealt, rows, m) for m in iterations[first : first + together]]))
            )
            parts = ranges(len(F), _FEW_ROWS)
            for stale, too_stale in run([partial(self._staleness, F, found, part) for part in parts]):
                self.stale, self.too_stale = max(self.stale, stale), self.too_stale + too_stale
            yield from found

    def _dealt(self, rows: RawRows, m: int) -> list[tuple[int, RecomputedTree, list[Message]]]:
        """Recompute the trees of one iteration."""
        candidates, found = self.candidates.of(m), []
        for k in range(self.width):
            t = m * self.width + k
            entry = self.ledger(t)
            g = entry if self.options.regression else ONE * (self.y == (1 if self.binary else k)) - entry
            h = self.weight if self.options.regression else times(np.abs(g) * (ONE - np.abs(g)), self.weight)
            g = times(g, self.weight)
            tree = rows.deal(self.tree[t], g, h, candidates)
            found.append((t, tree, self.failures(t, tree)))
        return found

    def _staleness(
        self, F: Floats, trees: list[tuple[int, RecomputedTree, list[Message]]], part: slice
    ) -> tuple[float, int]:
        """Add the trees to ``F``; return the ledger's largest distance from it, and how many exceed the tolerance."""
        scores, y, stale, too_stale = F[part], self.y[part], 0.0, 0
        scale = self.unit if self.options.regression else 1.0 / ONE
        for t, tree, _ in trees:
            k = t % self.width
            if k == 0:
                fresh = quantised(scores, y, self.loss)
                low, high = self.range_of(scores, fresh)
            entry = self._ledger[t, part].astype(np.int64)
            stale = max(stale, float(np.abs(entry - fresh[k]).max(initial=0)) * scale)
            too_stale += int(((entry < low[k]) | (entry > high[k])).sum())
            scores[:, k] += self.state["node_value"][self.end[t] - len(self.tree[t]) :][tree.leaf[part]]
        return stale, too_stale

    def range_of(self, F: Floats, fresh: Ints) -> tuple[Ints, Ints]:
        """Least and greatest entries that scores within the tolerance of ``F`` give, both of the shape of ``fresh``."""
        tolerance = self.options.tolerance
        if not self.options.bounded or not tolerance:
            return fresh, fresh
        if self.options.regression:
            width = math.ceil(tolerance * 2 ** (RESIDUAL_BITS - 4))
            return fresh - width, fresh + width
        p = softmax(F)[:, -self.width :].T
        odds = math.exp(tolerance * (1 if self.binary else 2))
        low, high = (np.floor(part * ONE + 0.5) for part in (p / (p + (1 - p) * odds), p * odds / (p * odds + (1 - p))))
        low, high = (np.clip(part, 1, ONE - 1).astype(np.int64) for part in (low, high))
        return np.minimum(low, fresh), np.maximum(high, fresh)

    def ledger(self, t: int) -> Ints:
        """Ledger entry of each row in a tree."""
        entries: Ints = self._ledger[t].astype(np.int64)
        return entries

    def failures(self, t: int, tree: RecomputedTree) -> list[Message]:
        """Everything that is wrong with one tree."""
        recorded = self.tree[t]
        nodes = slice(int(self.end[t]) - len(recorded), int(self.end[t]))
        G, H, value = (self.state[name][nodes] for name in ("node_G", "node_H", "node_value"))
        if self.options.regression:  # whole weights, and what is left of them
            H = UNIT * H + (self.state["node_H_rest"][nodes].astype(np.int64) if "node_H_rest" in self.state else 0)
        inner = recorded.feature >= 0
        expected = np.where(inner, 0.0, self.leaf_values(tree.G, tree.H))
        entry = self.ledger(t)
        low, high = (-LARGEST_RESIDUAL, LARGEST_RESIDUAL) if self.options.regression else (1, ONE - 1)
        found = {
            "leaf": self._leaf[t] != tree.leaf,
            "ledger": (entry < low) | (entry > high),
            "node_G or node_H": (G != tree.G) | (H != tree.H),
            "node_value": value != expected,
            "one-sided split": inner & (tree.better < 0),
            f"split (ranks below {self.tolerance})": inner & (tree.better + 1 > self.tolerance),
            "node_tried_h of a split": inner & (self.state["node_tried_h"][nodes] >= 0),
        }
        if t < self.width:
            start = np.full((len(self.y), self.width), self.loss.origin)
            found["ledger of an empty model"] = entry != quantised(start, self.y, self.loss)[t]
        failures = [
            message("audits.tree", tree=t, array=name, where=_times(wrong))
            for name, wrong in found.items()
            if wrong.any()
        ]
        limit = self.options.max_leaf_nodes
        if recorded.leaves > limit:
            failures.append(message("audits.tree_leaves", tree=t, leaves=recorded.leaves, limit=limit))
        return failures

    def leaf_values(self, G: Ints, H: Ints) -> Floats:
        """Algorithm 1, line 7, of sums, with l2_regularization; 0 where there is nothing."""
        empty = H == 0
        beta = np.where(
            empty, 0.0, G * self.units[0] / np.where(empty, 1.0, H * self.units[1] + self.options.l2_regularization)
        )
        if self.options.regression:
            return self.options.learning_rate * beta * math.ldexp(1.0, int(self.state["exponent"][0]))
        if not self.binary:
            beta = beta * ((self.classes - 1) / self.classes)
        values: Floats = self.options.learning_rate * np.clip(beta, -LARGEST_LEAF, LARGEST_LEAF)
        return values
