"""What the rule makes of the candidates at the checks of one window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.exchange import Ask, Exchange
from raydt.finders.scores import table_of, xlogx_table
from raydt.learners.confidence_tree.bounds import REVISIT, SplitRule
from raydt.learners.confidence_tree.impurity import (
    BEST,
    COUNTS,
    CRITERIA,
    CURRENT,
    CUT,
    FEATURE,
    RIVAL,
    merge,
)
from raydt.learners.confidence_tree.model import Split
from raydt.learners.confidence_tree.tree import LEAF, Tree

Int64 = npt.NDArray[np.int64]


@dataclass(slots=True)
class Window:
    """Steps that were walked, and what came of it.

    Attributes
    ----------
    steps : ndarray of STEP
    pending : ndarray of int64
        The steps that were walked.
    t, classes : ndarray of int64, shape (steps,)
        Examples taken, and classes known, just after each step.
    entries : ndarray of ENTRY
    checks : ndarray of CHECK
    owns : ndarray of int64, shape (checks, K)
        What the node of each check had counted then.
    label : ndarray of int32, shape (entries,)
    """

    steps: npt.NDArray[np.void]
    pending: Int64
    t: Int64
    classes: Int64
    entries: npt.NDArray[np.void]
    checks: npt.NDArray[np.void]
    owns: Int64
    label: npt.NDArray[np.int32]


class Change(NamedTuple):
    """What becomes of a node after a step.

    Attributes
    ----------
    node, step : int
    feature, cut : int
        Of its new split; -1 of a node that becomes a leaf.
    split : Split or None
    """

    node: int
    step: int
    feature: int
    cut: int
    split: Split | None


class _Found(NamedTuple):
    """Of checks: candidates BEST, RIVAL and CURRENT with their scores, and the impurity of the node unsplit."""

    candidates: Int64
    scores: npt.NDArray[np.float64]
    impurity: npt.NDArray[np.float64]


class Decider:
    """Evaluates scores and widths, for the coordinator only.

    Parameters
    ----------
    rule : SplitRule
    by_feature : bool
        Whether the rival is on another feature.
    confirms : bool
        Whether candidates are approximate, so that what passes the test is looked at again, exactly.
    revisit : bool
        Whether a change of one node voids all that comes after.
    """

    def __init__(self, rule: SplitRule, *, by_feature: bool, confirms: bool, revisit: bool) -> None:
        self._rule, self._by_feature, self._confirms, self._revisit = rule, by_feature, confirms, revisit
        self._criterion = CRITERIA.index(rule.criterion)
        self._table = xlogx_table(0)

    def decide(self, tree: Tree, window: Window, replies: list[Any]) -> Exchange[list[Change]]:
        """The changes that the checks of a window come to: the first of each leaf, with ``revisit`` the first of all.

        ``replies`` are the candidates of all shards.
        """
        found = self._merged(window.owns, replies)
        due: dict[int, list[int]] = {}
        for check, node in enumerate(window.checks["node"].tolist()):
            if self._change(tree, window, found, check, check) is not None:
                due.setdefault(node, []).append(check)
        if self._revisit:
            first = min((checks[0] for checks in due.values()), default=None)
            due = {} if first is None else {int(window.checks["node"][first]): [first]}
        if self._confirms:
            return (yield from self._confirmed(tree, window, due))
        changes = [self._change(tree, window, found, checks[0], checks[0]) for checks in due.values()]
        return [change for change in changes if change is not None]

    def _merged(self, owns: Int64, replies: list[Any]) -> _Found:
        checks, classes = owns.shape
        found = np.empty((checks, 3, COUNTS + classes), dtype=np.int64)
        scores, impurity = np.empty((checks, 3)), np.empty(checks)
        if checks:
            self._table = table_of(self._rule.criterion == "entropy", int(owns.sum(axis=1).max()), self._table)
            candidates = np.ascontiguousarray(np.concatenate(replies, axis=1))
            where = self._criterion, self._by_feature, self._table
            merge(*where, owns, candidates, found, scores, impurity)
        return _Found(found, scores, impurity)

    def _change(self, tree: Tree, window: Window, found: _Found, check: int, at: int) -> Change | None:
        """What check number ``check`` comes to, whose candidates are number ``at`` of ``found``."""
        best, rival, current = found.candidates[at, [BEST, RIVAL, CURRENT]]
        best_phi, rival_phi, current_phi = found.scores[at].tolist()
        due, own = window.checks[check], window.owns[check]
        node, step = int(due["node"]), int(due["step"])
        inner = tree.nodes["feature"][node] != LEAF
        impurity, m = float(found.impurity[at]), int(own.sum())
        if inner and self._is_void(best, current, own):
            return Change(node, step, LEAF, LEAF, None)
        if best[FEATURE] < 0:
            return None
        classes, t = int(window.classes[step]), int(window.t[step])
        width = self._rule.width(m, t, int(due["depth"]), classes)
        if inner:
            same = best[FEATURE] == current[FEATURE] and best[CUT] == current[CUT]
            if same or not self._rule.beats(best_phi, current_phi, width):
                return None
            if window.entries["sign"][due["entry"]] < 0:
                return Change(node, step, LEAF, LEAF, None)
            reason: int | None = REVISIT
            rival, rival_phi = current, current_phi
        else:
            rival_phi = rival_phi if rival[FEATURE] >= 0 else impurity
            reason = self._rule.reason(best_phi, rival_phi, impurity, width)
        if reason is None:
            return None
        against = (int(rival[FEATURE]), int(rival[CUT])) if rival[FEATURE] >= 0 else (-1, -1)
        stamp = int(window.steps["stamp"][step])
        scores = best_phi, rival_phi, impurity, width
        sides = tuple(own.tolist()), tuple(best[COUNTS:].tolist())
        record = Split(stamp, m, t, classes, *against, reason, *scores, *sides)
        return Change(node, step, int(best[FEATURE]), int(best[CUT]), record)

    @staticmethod
    def _is_void(best: Int64, current: Int64, own: Int64) -> bool:
        """Whether an inner node has nothing to split any more: one class, one side, or no candidate."""
        left = int(current[COUNTS:].sum())
        return bool((own > 0).sum() < 2 or left == 0 or left == own.sum() or best[FEATURE] < 0)

    def _confirmed(self, tree: Tree, window: Window, due: dict[int, list[int]]) -> Exchange[list[Change]]:
        """Of the checks that pass with approximate candidates the first of each leaf that does with exact ones."""
        changes = []
        while due:
            asked = [checks[0] for checks in due.values()]
            nodes = np.array(list(due))
            parts = [
                np.flatnonzero(window.entries["node"][after:] == node) + after
                for node, after in zip(due, (window.checks["entry"][asked] + 1).tolist(), strict=True)
            ]
            later = np.cumsum([0, *(len(part) for part in parts)])
            payload = {
                "places": tree.nodes["place"][nodes],
                "later": later,
                "entries": packed(tree, window, np.concatenate(parts)),
            }
            found = self._merged(np.ascontiguousarray(window.owns[asked]), (yield Ask("confirm", payload)))
            for at, (node, check) in enumerate(zip(nodes.tolist(), asked, strict=True)):
                change = self._change(tree, window, found, check, at)
                if change is not None:
                    changes.append(change)
                due[node] = [] if change is not None else due[node][1:]
            due = {node: checks for node, checks in due.items() if checks}
        return changes


def packed(tree: Tree, window: Window, which: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
    """Some entries of a window as shards take them, shape (4, entries): slot, place, sign, label."""
    entries = window.entries[which]
    places = tree.nodes["place"][entries["node"]]
    return np.stack([entries["slot"], places, entries["sign"], window.label[which]]).astype(np.int32)
