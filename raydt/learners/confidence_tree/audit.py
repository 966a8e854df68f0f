"""The two verdicts on a confidence tree, from a state and the raw examples.

*Conformance*: every live example lies in the leaf it routes to; class counts, what each node has counted, the
statistics of the shards and the bins equal their recomputation; and every split was, at its time, the best of all
candidates by brute force, against the rival and the width that its record says, with its rule satisfied.
*Feasibility*: every split beats all others by two widths of Theorem 4, or was taken on a tie, where the options promise
it.

Nothing of the fast path is imported (``recompute``, ``replay``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from raydt.arrays.elementary import AnyArray, Floats, Ints
from raydt.audits.bins import compare_groups
from raydt.audits.recorded_tree import (
    AuditReport,
    compare_counts,
    compare_nodes,
    compare_rows,
    found,
    noted,
)
from raydt.examples.updates import CountedOnes, Features, History
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
from raydt.presentation.charts import counted

if TYPE_CHECKING:
    from raydt.learners.confidence_tree.options import ConfidenceTreeOptions

# The records of a confidence tree's splits, replayed from raw examples for its audit.
#
# Nothing of the fast path is imported.

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
        """Check that the numbers of a record satisfy the rule, for the reason it gives."""
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
        rows = truth.arrivals(node)
        rows = rows[truth.died[rows] > stamp]
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
        """Return True if one candidate may be the first of some: it is or, with logarithms, equals that up to rounding.

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


def audit(
    options: ConfidenceTreeOptions, features: Features, state: Arrays, history: History, groups: Mapping[int, Arrays]
) -> AuditReport:
    """Prove or refute that a tree is what the method promises.

    If the history is not complete, records of splits are only checked to be consistent, and bins not at all.
    ``worst`` of the report is that of ``Records``. O((depth + splits) x (rows + ones) x features).
    """
    truth = RecountedTree(options, features, state, history)
    broken = compare_rows(state, history, truth.leaf) + compare_counts(state, truth) + truth.wrong_weights
    broken += _totals(state, truth) + _nodes(state, truth) + _bins(truth, state, groups)
    broken += _statistics(state, truth, groups)
    records = Records(truth, state)
    broken += records.failures()
    verdict, reason, infeasible = _feasibility(options, truth, records)
    inner, replayed = int((truth.tree.feature >= 0).sum()), len(records.leads)
    return AuditReport(
        conformance="violated" if broken else "holds",
        feasibility=verdict,
        reason=reason,
        checked={
            "examples": len(truth.y),
            "live": int(truth.alive.sum()),
            "nodes": len(truth.tree),
            "splits": inner,
            "splits_replayed": replayed,
            "counters": len(truth.counted[0]),
        },
        worst={name: value for name, value in records.worst().items() if math.isfinite(value)},
        failures=broken + infeasible,
    )


def _totals(state: Arrays, truth: RecountedTree) -> list[Message]:
    """Examples taken, and classes; when bins were renewed last, and the end of the warm-up."""
    if not truth.complete:
        return []
    t, classes = truth.known_then(np.iinfo(np.int64).max)
    warm = truth.born[truth.first & truth.taken]
    names = {"t": t, "classes": classes, "renewed": truth.renewed, "lived": truth.lived}
    names["compared"] = int(warm.max(initial=0))
    return [
        message("audits.value", name=name, found=int(state[name][0]), expected=value)
        for name, value in names.items()
        if state[name][0] != value
    ]


def _nodes(state: Arrays, truth: RecountedTree) -> list[Message]:
    """Check the counts of nodes, when they were made, and arrivals since their last check."""
    tree, options = truth.tree, truth.options
    own = padded(state["own"], truth.classes)
    failures = compare_nodes("own", "examples counted by class", own, truth.own)
    made = np.where(tree.parent >= 0, truth.stamp[tree.parent], -1)
    failures += compare_nodes("created", "time of the split above", tree.built, made)
    since, counts = tree.s, tree.feature < 0
    beyond = (since < 0) | (since >= options.grace_period * truth.unit) | (~counts & (since > 0))
    failures += found(beyond, "audits.node_time", array="since", time=since)
    if truth.complete:
        rest = np.array([truth.since(truth.arrivals(v)) for v in range(len(tree))])
        inner = tree.feature >= 0
        failures += compare_nodes("since", "examples since the last check", since, np.where(inner, 0, rest))
        failures += found(inner & (rest > 0), "audits.node_time", array="split", time=rest)
    return failures


def _bins(truth: RecountedTree, state: Arrays, groups: Mapping[int, Arrays]) -> list[Message]:
    """Bins against the rows they were made from, and those of the groups against the whole."""
    if not truth.fixed:
        return [message("audits.early", what="bins")] if "bins_kinds" in state else []
    failures = []
    if truth.complete:
        source = "warm-up" if len(truth.versions) == 1 else "last renewal"
        pairs = zip(truth.bins, truth.versions[-1][1], truth.features.names, strict=True)
        failures += [
            message("audits.bins", feature=repr(name), source=source)
            for recorded, derived, name in pairs
            if not recorded.equals(derived)
        ]
    starts = state["bins_starts"]
    for number, group in sorted(groups.items()):
        columns = truth.features.group_columns(number)
        begin, end = (starts[[columns[0], columns[-1] + 1]]) if len(columns) else (0, 0)
        same = all(np.array_equal(group[f"bins_{n}"], state[f"bins_{n}"][begin:end]) for n in ("values", "ranks"))
        same = same and all(np.array_equal(group[f"bins_{n}"], state[f"bins_{n}"][columns]) for n in ("kinds", "seen"))
        if not same:
            failures.append(message("audits.group_counts", what="bins", group=number))
    return failures


def _statistics(state: Arrays, truth: RecountedTree, groups: Mapping[int, Arrays]) -> list[Message]:
    """Check the counts of the shards at every node against the live examples."""
    failures = list[Message]()
    rows, place = _places(state, truth)
    if truth.features.sparse:
        counted = CountedOnes.of(truth.sparse[rows], place, truth.y[rows], truth.mass[rows])
        names, nothing = ("place", "feature", "n1", "c11"), np.empty((0, 2), np.int64)
        failures += compare_groups(truth.features, groups, counted, names, nothing, None)
    if truth.fixed:
        numbers = sorted(groups)
        found = truth.each(lambda number: _wrong_counts(truth, number, groups[number], rows, place), numbers)
        for number, wrong in zip(numbers, found, strict=True):
            failures += [message("audits.group_counts", what=what, group=number) for what in wrong]
    return failures


def _wrong_counts(truth: RecountedTree, number: int, group: Arrays, rows: Ints, place: Ints) -> list[str]:
    """Return the names of the counts of a group of features that differ from those of its rows."""
    K, places, totals = truth.classes, len(group["totals"]), padded(group["totals"], truth.classes)
    if place.max(initial=-1) >= places:
        return ["places"]
    counted = truth.counts(place * K + truth.y[rows], rows, places * K).reshape(places, K)
    wrong = [] if np.array_equal(totals, counted) else ["totals"]
    columns = truth.features.group_columns(number).tolist()
    ends = dict(zip(columns, np.cumsum([truth.bins[j].bins for j in columns]).tolist(), strict=True))

    def equal(j: int) -> bool:
        bins = truth.bins[j].bins
        at = (place * bins + truth.codes[rows, j]) * K + truth.y[rows]
        expected = truth.counts(at, rows, places * bins * K).reshape(places, bins, K)
        return not places or np.array_equal(padded(group["bins"][:, ends[j] - bins : ends[j]], K), expected)

    same = zip(columns, truth.each(equal, columns), strict=True)
    return wrong + [f"counts by bin of {truth.features.names[j]!r}" for j, alike in same if not alike]


def _places(state: Arrays, truth: RecountedTree) -> tuple[Ints, Ints]:
    """Rows that leaves have counted, and the place of each at the shards; those that weigh 0 are nowhere."""
    parts = [(truth.counted, 0)]
    if truth.options.leaf_prediction == "adaptive_inherited":
        parts.append((truth.inherited, 1))
    rows = np.concatenate([rows for (rows, _), _ in parts])
    place = np.concatenate([state["place"].astype(np.int64)[nodes] + past for (_, nodes), past in parts])
    counted = truth.mass[rows] > 0
    return rows[counted], place[counted]


def _feasibility(
    options: ConfidenceTreeOptions, truth: RecountedTree, records: Records
) -> tuple[Literal["proven", "violated", "not_promised"], Message, list[Message]]:
    """Verdict, reason, and where the promise is not kept."""
    promise, measured = options.promise(), _measured(options, records)
    if not promise.promised:
        live = [] if truth.complete else [message("audits.live_only", what="bins and splits")]
        return "not_promised", noted(promise.reason, *measured, *live), []
    if truth.unit > 1:
        return "not_promised", noted(message("audits.weighed_rows"), *measured), []
    if not truth.complete:
        return "not_promised", message("audits.earlier_splits"), []
    failures = []
    for node, lead, _, width, tie in records.leads:
        beaten = lead < 2 * width - ROUNDING
        if beaten and not (tie and width <= options.tie_threshold):
            failures.append(message("audits.lead", node=node, lead=lead, widths=2 * width))
    inner = int((truth.tree.feature >= 0).sum())
    if failures or len(records.leads) < inner:
        failures = failures or [message("audits.not_replayed")]
        return "violated", failures[0], failures
    return "proven", noted(promise.reason, *(measured or [message("audits.no_split")])), []


def _measured(options: ConfidenceTreeOptions, records: Records) -> list[Message]:
    """Report the number of ties among the splits, and the least lead of the others; nothing without splits."""
    splits, ties = len(records.leads), sum(lead.tie for lead in records.leads)
    if not splits:
        return []
    remarks = [message("audits.measured_splits", splits=counted(splits - ties, "split"), ties=ties)]
    known = {name: value for name, value in records.worst().items() if math.isfinite(value)}
    if "lead" in known:
        remarks.append(message("audits.least_lead", lead=known["lead"], rival=options.rival))
    if "theorem_lead" in known:
        remarks.append(message("audits.theorem_lead", lead=known["theorem_lead"]))
    return remarks
