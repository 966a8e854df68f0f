"""The records of a confidence tree's splits, replayed from raw examples for its audit.

Nothing of the fast path is imported.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.types import AnyArray, Floats, Ints
from raydt.learners.confidence_tree.recompute import (
    RecountedTree,
    SplitCandidates,
    delta_at,
    lead_of,
    phi_of,
    theorem_width,
    width_of,
    widths_needed,
)
from raydt.messages import Message, message
from raydt.presentation.words import counted

Arrays = Mapping[str, AnyArray]

#: Scores and widths are computed with errors far below this.
ROUNDING = 1e-11
#: Reasons by their number in a record.
RULE, TIE = range(2)


class Lead(NamedTuple):
    """By how much the phi of a split is below that of all other candidates."""

    node: int
    lead: float  #: ``lead``, ``needed``: And what the rule asks for, in the unit of phi.
    needed: float
    theorem: float  #: Width of Theorem 4; infinite for a criterion that it is not about.
    tie: bool  #: Whether it was taken on a tie.


def padded(array: AnyArray, classes: int) -> Ints:
    """Counts with a column for each of so many classes."""
    padded: Ints = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, max(0, classes - array.shape[-1]))])
    return padded.astype(np.int64)


class Records:
    """The records of all splits against what was true at their time."""

    def __init__(self, truth: RecountedTree, state: Arrays) -> None:
        self._truth = truth
        #: Nodes and parameters of each message; those on a number of the records are apart by its name.
        self._wrong: dict[tuple[str, Any], list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        self.leads: list[Lead] = []  #: Of each split that could be replayed.
        self._names = [name for name in state if name.startswith("split_")]
        self._phi, self._impurity = self._scores(state["split_own"], state["split_left"])
        for i, node in enumerate(np.flatnonzero(truth.tree.feature >= 0).tolist()):
            record = {name.removeprefix("split_"): state[name][i] for name in self._names}
            self._look(i, node, int(state["cut"][node]), record)
            if truth.complete:
                self._replay(node, int(state["cut"][node]), record)

    @property
    def rival(self) -> str:
        """Which splits the rule compares with."""
        return self._truth.options.rival

    def failures(self) -> list[Message]:
        """One for each kind, which counts the nodes and describes the first."""
        return [
            message(id, where=f"{counted(len(nodes), 'split')}, first at node {nodes[0][0]}", **nodes[0][1])
            for (id, _), nodes in self._wrong.items()
        ]

    def worst(self) -> dict[str, float]:
        """The least lead in units of what the rule asks for, and of two widths of Theorem 4; infinite of none.

        Splits that were taken on a tie do not count: nothing is asked of their lead.
        """
        shares = [(lead.lead / lead.needed, lead.lead / (2 * lead.theorem)) for lead in self.leads if not lead.tie]
        rule, theorem = zip(*shares, strict=True) if shares else ((math.inf,), (math.inf,))
        about = self._truth.options.resolved_criterion != "error"
        return {"lead": min(rule), "theorem_lead": min(theorem) if about else math.inf}

    def _then(self, node: int) -> Ints:
        """Counts of a node at the time of its split."""
        truth = self._truth
        rows = truth.arrivals(node)
        left: Ints = rows[truth.died[rows] > truth.stamp[node]]
        return left

    def _same(self, node: int, what: str, recorded: Any, expected: Any) -> None:
        """Note a difference, of floats one beyond rounding."""
        exact = not isinstance(expected, float)
        close = exact or math.isclose(recorded, expected, rel_tol=ROUNDING, abs_tol=ROUNDING)
        same = np.array_equal(recorded, expected) if exact else close
        self._holds(node, same, "audits.record", name=what, recorded=recorded, expected=expected)

    def _holds(self, node: int, holds: bool | np.bool_, id: str, **parameters: Any) -> None:
        if not holds:
            self._wrong[id, parameters.get("name")].append((node, parameters))

    def _scores(self, own: Ints, left: Ints) -> tuple[Floats, Floats]:
        """Phi of each split, and of none, where their recorded counts can be those of a split; NaN elsewhere."""
        phi, impurity = np.full(len(own), math.nan), np.full(len(own), math.nan)
        sound = ((left >= 0) & (left <= own)).all(axis=1) & (own.sum(axis=1) > 0)
        criterion, own = self._truth.options.resolved_criterion, own[sound]
        unit = self._truth.unit
        phi[sound], impurity[sound] = phi_of(criterion, left[sound], own, unit), phi_of(criterion, own, own, unit)
        return phi, impurity

    def _look(self, i: int, node: int, cut: int, record: dict[str, Any]) -> None:
        """Check what the i-th record alone shows."""
        truth, options = self._truth, self._truth.options
        feature, depth = int(truth.tree.feature[node]), int(truth.tree.depth[node])
        own, left = record["own"], record["left"]
        at = float(truth.tree.threshold[node])
        threshold = truth.threshold(feature, cut, int(truth.stamp[node])) if truth.fixed else math.nan
        if options.renewal and not truth.complete:
            threshold = at  # of bins that are not known any more
        at_cut = {"name": "threshold", "recorded": at, "expected": threshold}
        self._holds(node, at == threshold, "audits.record", **at_cut)
        m, t, classes = (int(record[name]) for name in ("m", "t", "classes"))
        sound = m == own.sum() > 0 and (left >= 0).all() and (left <= own).all() and t > 0 and classes > 1
        sound = sound and 0 < left.sum() < m
        self._holds(node, sound, "audits.record_counts", m=m, own=own, left=left, t=t)
        if not sound:
            return
        self._same(node, "phi", record["phi"], float(self._phi[i]))
        self._same(node, "impurity", record["impurity"], float(self._impurity[i]))
        sizes = len(truth.features), m / truth.unit, t / truth.unit, depth, classes
        self._same(node, "epsilon", record["epsilon"], width_of(options, *sizes))
        self._rule(node, record)

    def _rule(self, node: int, record: dict[str, Any]) -> None:
        """Whether the numbers of a record satisfy the rule, for the reason it gives."""
        options = self._truth.options
        phi, rival, impurity, width = (float(record[name]) for name in ("phi", "rival_phi", "impurity", "epsilon"))
        needed = widths_needed(options) * width
        beats = phi <= rival - needed if options.rule == "ctree" else lead_of(options, phi, rival) > needed
        tie = width <= options.tie_threshold and phi < impurity and options.tie_threshold > 0
        expected = RULE if beats else TIE if tie else None
        shown = {"phi": phi, "rival": rival, "width": width, "reason": record["reason"]}
        self._holds(node, record["reason"] == expected, "audits.rule", **shown)

    def _replay(self, node: int, cut: int, record: dict[str, Any]) -> None:
        """The record against the examples that the node had counted then."""
        truth, options, stamp = self._truth, self._truth.options, int(self._truth.stamp[node])
        feature, depth = int(truth.tree.feature[node]), int(truth.tree.depth[node])
        passed = truth.members(node)
        self._holds(node, (truth.born[passed] == stamp).any(), "audits.stamp", stamp=stamp)
        rows = self._then(node)
        own, (t, classes) = truth.counts_of(rows), truth.known_then(stamp)
        self._same(node, "own", padded(record["own"], truth.classes), own)
        for name, expected in (("m", int(own.sum())), ("t", t), ("classes", classes)):
            self._same(node, name, int(record[name]), expected)
        candidates = truth.candidates(rows, stamp)
        place = candidates.at(feature, cut)
        if place < 0:
            self._holds(node, False, "audits.record", name="cut", recorded=(feature, cut), expected="a candidate")
            return
        self._same(node, "left", padded(record["left"], truth.classes), candidates.left[place])
        self._same(node, "phi of the candidate", record["phi"], float(candidates.phi[place]))
        best = int(candidates.feature[0]), int(candidates.cut[0])
        first = self._comes(candidates, place, np.arange(len(candidates.phi)), own)
        self._holds(node, first, "audits.record", name="best candidate", recorded=(feature, cut), expected=best)
        self._rival(node, record, rows, candidates, place)
        others = np.delete(candidates.phi, place)
        impurity = float(phi_of(options.resolved_criterion, own[None], own, truth.unit)[0])
        lead = (float(others[0]) if len(others) else impurity) - float(candidates.phi[place])
        sizes = int(own.sum()) / truth.unit, t / truth.unit, depth, len(truth.features)
        needed = widths_needed(options) * width_of(options, sizes[3], *sizes[:3], classes) / lead_of(options, 0.0, 1.0)
        theorem = theorem_width(options.resolved_criterion, delta_at(options, t), *sizes, classes)
        self.leads.append(Lead(node, lead, needed, theorem, bool(record["reason"] == TIE)))

    def _comes(self, candidates: SplitCandidates, place: int, among: Ints, own: Ints) -> bool:
        """Whether one candidate may be the first of some: it is or, with logarithms, equals that up to rounding.

        Of those that part the classes alike it has to be the first: their phi has the same bits, however it is rounded.
        """
        if place == among[0]:
            return True
        close = abs(float(candidates.phi[place] - candidates.phi[among[0]])) <= ROUNDING
        if not close or place not in among or self._truth.options.resolved_criterion != "entropy":
            return False
        return not any(candidates.parts_alike(place, other, own) for other in among[among < place].tolist())

    def _rival(self, node: int, record: dict[str, Any], rows: Ints, candidates: SplitCandidates, place: int) -> None:
        """Check the rival that a split was compared with."""
        truth, criterion = self._truth, self._truth.options.resolved_criterion
        feature, cut, own = int(record["rival_feature"]), int(record["rival_cut"]), truth.counts_of(rows)
        rivals = candidates.rivals(place, truth.options.rival == "feature")
        if not len(rivals):
            self._same(node, "rival", (feature, cut), (-1, -1))
            self._same(node, "rival_phi", record["rival_phi"], float(phi_of(criterion, own[None], own, truth.unit)[0]))
            return
        index = candidates.at(feature, cut)
        rival, right = int(rivals[0]), index >= 0 and self._comes(candidates, index, rivals, own)
        expected = int(candidates.feature[rival]), int(candidates.cut[rival])
        self._holds(node, right, "audits.record", name="rival", recorded=(feature, cut), expected=expected)
        self._same(node, "rival_phi", record["rival_phi"], float(candidates.phi[rival]))
