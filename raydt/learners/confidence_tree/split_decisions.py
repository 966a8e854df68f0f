"""Decisions of the rule on the candidates at the checks of one window."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

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

Int64 = npt.NDArray[np.int64]


class StepWindow(NamedTuple):
    """Steps that were taken together, and what nodes counted because of them."""

    path: Path
    counted: CountedRows


class Times(NamedTuple):
    """Examples taken, and classes known, just after each step: two arrays of int64, shape (steps,)."""

    t: Int64
    classes: Int64


class LeafSplit(NamedTuple):
    """Decision to split a leaf after a step."""

    node: int
    step: int
    feature: int  #: ``feature``, ``cut``: Of its new split.
    cut: int
    split: SplitRecord  #: Its record.


class _Due(NamedTuple):
    """One check with its candidates: as ``impurity`` has them, as plain values."""

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
    """

    def __init__(self, rule: SplitRule, *, by_feature: bool) -> None:
        self._rule, self._by_feature = rule, by_feature
        self._criterion = CRITERIA.index(rule.criterion)
        self._table = xlogx_table(0)

    def decide(self, window: StepWindow, times: Times, replies: list[Any]) -> list[LeafSplit]:
        """List the changes that the checks of a window come to: the first of each leaf.

        ``replies`` are the candidates of all shards.
        """
        changes: dict[int, LeafSplit] = {}
        for due in self._due(window, times, replies):
            if due.node not in changes and (change := self._change(window, due)) is not None:
                changes[due.node] = change
        return list(changes.values())

    def _due(self, window: StepWindow, times: Times, replies: list[Any]) -> list[_Due]:
        """Of the checks, to which the shards have answered, those that may come to something."""
        if not len(window.counted.checks):
            return []
        owns = np.ascontiguousarray(window.counted.owns)
        checks, classes = owns.shape
        found = np.empty((checks, 2, COUNTS + classes), dtype=np.int64)
        scores, impurity = np.empty((checks, 2)), np.empty(checks)
        self._table = table_of(self._rule.criterion == "entropy", int(owns.sum(axis=1).max()), self._table)
        candidates = np.ascontiguousarray(np.concatenate(replies, axis=1))
        merge(self._criterion, self._by_feature, self._table, owns, candidates, found, scores, impurity)
        node, step, depth = (window.counted.checks[name] for name in ("node", "step", "depth"))
        m, t, known = owns.sum(axis=1), times.t[step], times.classes[step]
        of_checks = zip(m.tolist(), t.tolist(), depth.tolist(), known.tolist(), strict=True)
        width = np.array([self._rule.width(*of_check) if of_check[0] else math.inf for of_check in of_checks])
        rival = np.where(found[:, RIVAL, FEATURE] >= 0, scores[:, RIVAL], impurity)
        beats = self._rule.beats(scores[:, BEST], rival, width)
        # Most checks of leaves come to nothing, which takes long to find out one by one.
        some = beats | (width <= self._rule.tie_threshold)
        columns = node, step, m, t, known, width, owns, found, scores, impurity
        return [_Due(*row) for row in zip(*(column[some].tolist() for column in columns), strict=True)]

    def _change(self, window: StepWindow, due: _Due) -> LeafSplit | None:
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
        record = SplitRecord(stamp, due.m, due.t, due.classes, against[0], against[1], reason, *scores, *sides)
        return LeafSplit(due.node, due.step, best[FEATURE], best[CUT], record)
