"""Decisions of the rule on the candidates at the checks of one window."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.types import Floats, Ints
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
from raydt.learners.confidence_tree.model import SplitRecord
from raydt.learners.confidence_tree.tree import CountedRows, Path


class Counts(NamedTuple):
    """Totals of the run so far."""

    checks: int = 0
    splits: int = 0
    ties: int = 0
    restarted: int = 0


class StepWindow(NamedTuple):
    """Steps that were taken together, and what nodes counted because of them."""

    path: Path
    counted: CountedRows


class Times(NamedTuple):
    """Examples taken, and classes known, just after each step: two arrays of int64, shape (steps,)."""

    t: Ints
    classes: Ints


class LeafSplit(NamedTuple):
    """Decision to split a leaf after a step."""

    node: int
    step: int
    feature: int  #: ``feature``, ``cut``: Of its new split.
    cut: int
    split: SplitRecord  #: Its record.


class Decider:
    """Scores and widths of candidates, for the coordinator only; ``by_feature``: the rival is on another feature."""

    def __init__(self, rule: SplitRule, *, by_feature: bool) -> None:
        self.rule, self.by_feature = rule, by_feature
        self._criterion = CRITERIA.index(rule.criterion)
        self._table = xlogx_table(0)

    def decide(self, window: StepWindow, times: Times, replies: list[Any], unit: int) -> list[LeafSplit]:
        """List the changes that the checks of a window come to: the first of each leaf.

        ``replies`` are the candidates of all shards; of all counts a row is ``unit`` units. A node with less than one
        row knows nothing.
        """
        checks = window.counted.checks
        if not len(checks):
            return []
        owns = np.ascontiguousarray(window.counted.owns)
        found, scores, impurity = self._merged(owns, replies, unit)
        m, t, classes = owns.sum(axis=1), times.t[checks["step"]], times.classes[checks["step"]]
        rows, taken = (m, t) if unit == 1 else (m / unit, t / unit)
        of_checks = zip(rows.tolist(), taken.tolist(), checks["depth"].tolist(), classes.tolist(), strict=True)
        width = np.array([self.rule.width(*of_check) if of_check[0] >= 1 else math.inf for of_check in of_checks])
        rival = np.where(found[:, RIVAL, FEATURE] >= 0, scores[:, RIVAL], impurity)
        # Most checks of leaves come to nothing, which takes long to find out one by one.
        some = self.rule.beats(scores[:, BEST], rival, width) | (width <= self.rule.tie_threshold)
        changes: dict[int, LeafSplit] = {}
        for c in np.flatnonzero(some & (found[:, BEST, FEATURE] >= 0)).tolist():
            node, step, known = int(checks["node"][c]), int(checks["step"][c]), int(classes[c])
            phis = float(scores[c, BEST]), float(rival[c]), float(impurity[c]), float(width[c])
            reason = self.rule.reason(*phis)
            if node in changes or reason is None:
                continue
            best = found[c, BEST].tolist()
            against = found[c, RIVAL, FEATURE], found[c, RIVAL, CUT]
            rival_feature, rival_cut = map(int, against) if against[0] >= 0 else (-1, -1)
            stamp = int(window.path.steps["stamp"][step])
            # Not of classes that are announced only: these must not change the record.
            sides = tuple(owns[c, :known].tolist()), tuple(best[COUNTS : COUNTS + known])
            record = SplitRecord(stamp, int(m[c]), int(t[c]), known, rival_feature, rival_cut, reason, *phis, *sides)
            changes[node] = LeafSplit(node, step, best[FEATURE], best[CUT], record)
        return list(changes.values())

    def _merged(self, owns: Ints, replies: list[Any], unit: int) -> tuple[Ints, Floats, Floats]:
        """Return the best candidate and its rival of each check, their scores, and the impurity of the node."""
        checks, classes = owns.shape
        found = np.empty((checks, 2, COUNTS + classes), dtype=np.int64)
        scores, impurity = np.empty((checks, 2)), np.empty(checks)
        if unit == 1:
            self._table = table_of(self.rule.criterion == "entropy", int(owns.sum(axis=1).max()), self._table)
        table = self._table if unit == 1 else self._table[:0]  # there is none of masses
        candidates = np.ascontiguousarray(np.concatenate(replies, axis=1))
        merge(self._criterion, self.by_feature, table, owns, candidates, found, scores, impurity)
        return found, scores, impurity
