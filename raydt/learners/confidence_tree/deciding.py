"""Decisions of the rule on the candidates at the checks of one window."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.exchange.messages import Ask, Exchange
from raydt.finders.scores import table_of, xlogx_table
from raydt.learners.confidence_tree.bounds import SplitRule
from raydt.learners.confidence_tree.impurity import (
    BEST,
    COUNTS,
    CRITERIA,
    CUT,
    FEATURE,
    RIVAL,
    merge,
)
from raydt.learners.confidence_tree.model import Split
from raydt.learners.confidence_tree.tree import Counted, Path, Tree

Int64 = npt.NDArray[np.int64]


class Window(NamedTuple):
    """Steps that were taken together, and what nodes counted because of them."""

    path: Path
    counted: Counted


class Times(NamedTuple):
    """Examples taken, and classes known, just after each step: two arrays of int64, shape (steps,)."""

    t: Int64
    classes: Int64


class Change(NamedTuple):
    """Decision to split a leaf after a step.

    Attributes
    ----------
    node, step : int
    feature, cut : int
        Of its new split.
    split : Split
        Its record.
    """

    node: int
    step: int
    feature: int
    cut: int
    split: Split


class _Due(NamedTuple):
    """One check with its candidates: as ``impurity`` has them, as plain values."""

    check: int
    node: int
    step: int
    m: int
    t: int
    classes: int
    width: float
    own: list[int]
    candidates: list[list[int]]
    scores: list[float]
    impurity: float


class Decider:
    """Evaluates scores and widths, for the coordinator only.

    Parameters
    ----------
    rule : SplitRule
    by_feature : bool
        Whether the rival is on another feature.
    confirms : bool
        Whether candidates are approximate, so that what passes the test is looked at again, exactly.
    """

    def __init__(self, rule: SplitRule, *, by_feature: bool, confirms: bool) -> None:
        self._rule, self._by_feature, self._confirms = rule, by_feature, confirms
        self._criterion = CRITERIA.index(rule.criterion)
        self._table = xlogx_table(0)

    def decide(self, tree: Tree, window: Window, times: Times, replies: list[Any]) -> Exchange[list[Change]]:
        """The changes that the checks of a window come to: the first of each leaf.

        ``replies`` are the candidates of all shards.
        """
        passed: dict[int, list[int]] = {}
        changes: dict[int, Change] = {}
        for due in self._due(window, times, np.arange(len(window.counted.checks)), replies):
            if due.node in changes and not self._confirms:
                continue  # of a leaf that is split by now
            change = self._change(window, due)
            if change is None:
                continue
            changes[due.node] = change
            passed.setdefault(due.node, []).append(due.check)
        return (yield from self._confirmed(tree, window, times, passed)) if self._confirms else list(changes.values())

    def _due(self, window: Window, times: Times, which: Int64, replies: list[Any]) -> list[_Due]:
        """Of some checks, to which the shards have answered, those that may come to something."""
        if not len(which):
            return []
        owns = np.ascontiguousarray(window.counted.owns[which])
        checks, classes = owns.shape
        found = np.empty((checks, 2, COUNTS + classes), dtype=np.int64)
        scores, impurity = np.empty((checks, 2)), np.empty(checks)
        self._table = table_of(self._rule.criterion == "entropy", int(owns.sum(axis=1).max()), self._table)
        candidates = np.ascontiguousarray(np.concatenate(replies, axis=1))
        merge(self._criterion, self._by_feature, self._table, owns, candidates, found, scores, impurity)
        node, step, depth = (window.counted.checks[name][which] for name in ("node", "step", "depth"))
        m, t, known = owns.sum(axis=1), times.t[step], times.classes[step]
        of_checks = zip(m.tolist(), t.tolist(), depth.tolist(), known.tolist(), strict=True)
        width = np.array([self._rule.width(*of_check) if of_check[0] else math.inf for of_check in of_checks])
        rival = np.where(found[:, RIVAL, FEATURE] >= 0, scores[:, RIVAL], impurity)
        beats = self._rule.beats(scores[:, BEST], rival, width)
        # Most checks of leaves come to nothing, which takes long to find out one by one.
        some = beats | (width <= self._rule.tie_threshold)
        columns = which, node, step, m, t, known, width, owns, found, scores, impurity
        return [_Due(*row) for row in zip(*(column[some].tolist() for column in columns), strict=True)]

    def _change(self, window: Window, due: _Due) -> Change | None:
        """Return the decision of a check."""
        best, rival = due.candidates
        if best[FEATURE] < 0:
            return None
        best_phi, rival_phi = due.scores
        rival_phi = rival_phi if rival[FEATURE] >= 0 else due.impurity
        reason = self._rule.reason(best_phi, rival_phi, due.impurity, due.width)
        if reason is None:
            return None
        against = rival[:COUNTS] if rival[FEATURE] >= 0 else [-1, -1]
        stamp = int(window.path.steps["stamp"][due.step])
        scores = best_phi, rival_phi, due.impurity, due.width
        # Not of classes that are announced only: these must not change the record.
        sides = tuple(due.own[: due.classes]), tuple(best[COUNTS : COUNTS + due.classes])
        record = Split(stamp, due.m, due.t, due.classes, against[0], against[1], reason, *scores, *sides)
        return Change(due.node, due.step, best[FEATURE], best[CUT], record)

    def _confirmed(
        self, tree: Tree, window: Window, times: Times, passed: dict[int, list[int]]
    ) -> Exchange[list[Change]]:
        """Of the checks that pass with approximate candidates the first of each leaf that does with exact ones."""
        changes = []
        while passed:
            asked = np.array([checks[0] for checks in passed.values()])
            nodes = np.array(list(passed))
            parts = [
                np.flatnonzero(window.counted.entries["node"][after:] == node) + after
                for node, after in zip(passed, (window.counted.checks["entry"][asked] + 1).tolist(), strict=True)
            ]
            later = np.cumsum([0, *(len(part) for part in parts)])
            deltas = window.counted.deltas[:, np.concatenate(parts)]
            replies = yield Ask("confirm", {"sites": tree.nodes["site"][nodes], "later": later, "deltas": deltas})
            passed = {node: checks[1:] for node, checks in passed.items()}
            for due in self._due(window, times, asked, replies):
                change = self._change(window, due)
                if change is not None:
                    changes.append(change)
                    passed[due.node] = []
            passed = {node: checks for node, checks in passed.items() if checks}
        return changes
