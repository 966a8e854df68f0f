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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from raydt.arrays.types import AnyArray, Ints
from raydt.audits.audit_report import AuditReport, noted
from raydt.audits.recorded_bins import MalformedModelError
from raydt.audits.recorded_tree import MalformedTreeError
from raydt.audits.tree_audit import compare_counts, compare_nodes, compare_rows, found
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.learners.confidence_tree.audit_splits import ROUNDING, Records, padded
from raydt.learners.confidence_tree.recompute import RecountedTree
from raydt.messages import Message, message
from raydt.presentation.words import counted

if TYPE_CHECKING:
    from raydt.learners.confidence_tree.options import ConfidenceTreeOptions

Arrays = Mapping[str, AnyArray]


def audit(
    options: ConfidenceTreeOptions, features: Features, state: Arrays, history: History, groups: Mapping[int, Arrays]
) -> AuditReport:
    """Prove or refute that a tree is what the method promises.

    If the history is not complete, records of splits are only checked to be consistent, and bins not at all.
    ``worst`` of the report is that of ``Records``. O((depth + splits) x (rows + ones) x features).
    """
    try:
        truth = RecountedTree(options, features, state, history)
    except (MalformedTreeError, MalformedModelError) as error:
        return AuditReport.malformed("tree", str(error))
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
            "counters": len(truth.counted[0]) + len(truth.in_trials[0]),
        },
        worst={name: value for name, value in records.worst().items() if math.isfinite(value)},
        failures=broken + infeasible,
    )


def _totals(state: Arrays, truth: RecountedTree) -> list[Message]:
    """Examples taken, and classes; when bins were renewed and trials compared last."""
    if not truth.complete:
        return []
    t, classes = truth.known_then(np.iinfo(np.int64).max)
    warm = truth.born[truth.first & truth.taken]
    compared = int(max(warm.max(initial=0), truth.comparisons().max(initial=0)))
    names = {"t": t, "classes": classes, "renewed": truth.renewed, "lived": truth.lived, "compared": compared}
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
    first = np.where(truth.restarted < 0, made, tree.built)  # a restarted node counts from when its trial began
    failures += compare_nodes("created", "time of the split above or of the trial", tree.built, first)
    failures += _trials(state, truth, made)
    since, counts = tree.s, tree.feature < 0
    beyond = (since < 0) | (since >= options.grace_period * truth.unit) | (~counts & (since > 0))
    failures += found(beyond, "audits.node_time", array="since", time=since)
    if truth.complete:
        later = zip([truth.arrivals(v) for v in range(len(tree))], truth.restarted, strict=True)
        rest = np.array([truth.since(rows[truth.born[rows] > again]) for rows, again in later])
        inner = tree.feature >= 0
        failures += compare_nodes("since", "examples since the last check", since, np.where(inner, 0, rest))
        failures += found(inner & (rest > 0), "audits.node_time", array="split", time=rest)
    return failures


def _trials(state: Arrays, truth: RecountedTree, made: Ints) -> list[Message]:
    """Check what trials have counted, and that each began, and each restart was, at a comparison after the split above.

    Their tallies of errors are about predictions of the past, which cannot be made again.
    """
    if not truth.options.drift_period:
        return []
    fresh = padded(state["trial_own"], truth.classes)
    failures = compare_nodes("trial_own", "examples counted by class in a trial", fresh, truth.fresh)
    again = truth.restarted >= 0
    times = {
        "trial_began": truth.began,
        "trial_restarted": truth.restarted,
        "created": np.where(again, truth.tree.built, -1),
    }
    for name, time in times.items():
        late = (time >= 0) & ((time < made) | (time > truth.compared))  # one may come just after the split
        if truth.complete:
            late |= (time >= 0) & ~np.isin(time, truth.comparisons())
        failures += found(late, "audits.node_time", array=name, time=time)
    order = again & (truth.tree.built >= truth.restarted)
    failures += found(order, "audits.node_time", array="trial_restarted", time=truth.restarted)
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
    failures = []
    rows, place = _places(state, truth)
    if truth.features.sparse:
        failures += _sparse_statistics(truth, groups, rows, place)
    if truth.fixed:
        numbers = sorted(groups)
        found = truth.each(lambda number: _wrong_counts(truth, number, groups[number], rows, place), numbers)
        for number, wrong in zip(numbers, found, strict=True):
            failures += [message("audits.group_counts", what=what, group=number) for what in wrong]
    return failures


def _wrong_counts(truth: RecountedTree, number: int, group: Arrays, rows: Ints, place: Ints) -> list[str]:
    """Which counts of a group of features differ from those of its rows, by their place."""
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
    """Rows that leaves and trials have counted, and the place of each at the shards; those that weigh 0 are nowhere."""
    parts = [(truth.counted, "place", 0)] + [(truth.in_trials, "trial_place", 0)] * ("trial_place" in state)
    if truth.options.leaf_prediction == "adaptive_inherited":
        parts.append((truth.inherited, "place", 1))
    rows = np.concatenate([rows for (rows, _), *_ in parts])
    place = np.concatenate([state[name].astype(np.int64)[nodes] + past for (_, nodes), name, past in parts])
    counted = truth.mass[rows] > 0
    return rows[counted], place[counted]


def _sparse_statistics(truth: RecountedTree, groups: Mapping[int, Arrays], rows: Ints, place: Ints) -> list[Message]:
    """Compare the counters of the sparse features of all groups."""
    ones, width = truth.sparse[rows], truth.features.sparse
    key, at = np.unique(np.repeat(place, ones.lengths) * width + ones.indices, return_inverse=True)
    where, feature = np.divmod(key, width)
    of_ones = np.repeat(rows, ones.lengths)
    n1 = truth.counts(at, of_ones, len(key))
    c11 = n1 - truth.counts(at[truth.y[of_ones] == 0], of_ones[truth.y[of_ones] == 0], len(key))
    of_group = truth.features.groups_of(feature)
    failures = []
    for number, group in sorted(groups.items()):
        mine = of_group == number
        expected = {"place": where, "feature": feature, "n1": n1, "c11": c11}
        if not all(np.array_equal(group[name], column[mine]) for name, column in expected.items()):
            failures.append(message("audits.group_counts", what="counters", group=number))
    return failures


def _feasibility(
    options: ConfidenceTreeOptions, truth: RecountedTree, records: Records
) -> tuple[Literal["proven", "violated", "not_promised"], Message, list[Message]]:
    """Verdict, reason, and where the promise is not kept."""
    promise, measured = options.promise(), _measured(records)
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


def _measured(records: Records) -> list[Message]:
    """How many of the splits are ties, and the least lead of the others; nothing without splits."""
    splits, ties = len(records.leads), sum(lead.tie for lead in records.leads)
    if not splits:
        return []
    remarks = [message("audits.measured_splits", splits=counted(splits - ties, "split"), ties=ties)]
    known = {name: value for name, value in records.worst().items() if math.isfinite(value)}
    if "lead" in known:
        remarks.append(message("audits.least_lead", lead=known["lead"], rival=records.rival))
    if "theorem_lead" in known:
        remarks.append(message("audits.theorem_lead", lead=known["theorem_lead"]))
    return remarks
