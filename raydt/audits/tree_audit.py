"""Comparisons of a tree's state with the raw examples, and the report on them: what the audits of trees share.

Nothing of the fast path is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

import numpy as np

from raydt.arrays.types import AnyArray, Bools, Ints
from raydt.audits.audit_report import AuditReport, noted
from raydt.audits.recorded_tree import FOREVER
from raydt.audits.routed_history import BuildHistory, RoutedHistory
from raydt.audits.weights import given_weights
from raydt.examples.history import History
from raydt.messages import Message, message
from raydt.presentation.words import counted


def report_of(
    truth: BuildHistory,
    history: History,
    verdict: tuple[Literal["proven", "violated", "not_promised"], str],
    replayed: int,
    worst: dict[str, float],
    broken: list[Message],
    infeasible: list[Message],
    **checked: int,
) -> AuditReport:
    """Return the report on a tree: ``verdict`` is that of feasibility, ``replayed`` the splits searched again."""
    nodes, (feasibility, reason) = len(truth.tree), verdict
    if not history.complete:
        reason = noted(reason, message("audits.live_only", what="counters and build-time splits"))
    return AuditReport(
        conformance="violated" if broken else "holds",
        feasibility=feasibility,
        reason=reason,
        checked={
            "examples": len(history.y),
            "live": int(truth.alive.sum()),
            "nodes": nodes,
            "counters": nodes if history.complete else 0,
            "splits": int((truth.tree.feature >= 0).sum()),
            "splits_replayed": replayed,
            **checked,
        },
        worst=worst,
        failures=broken + infeasible,
    )


def found(wrong: Bools, id: str, **values: str | AnyArray) -> list[Message]:
    """Return a message that counts the nodes that are ``wrong`` and has the ``values`` of the first, or none."""
    if not wrong.any():
        return []
    v = int(np.flatnonzero(wrong)[0])
    first = {name: value if isinstance(value, str) else value[v] for name, value in values.items()}
    return [message(id, where=f"{counted(int(wrong.sum()), 'node')}, first at node {v}", **first)]


def compare_nodes(array: str, meaning: str, recorded: AnyArray, expected: AnyArray) -> list[Message]:
    """Compare a number of each node, or its counts by class, with what it should be."""
    wrong = ~(recorded == expected).reshape(len(recorded), -1).all(axis=1)
    return found(wrong, "audits.node_value", array=array, meaning=meaning, found=recorded, expected=expected)


def live_by_id(history: History) -> Ints:
    """Return the places of the live examples in a history, by ascending id."""
    live = np.flatnonzero(history.deleted == FOREVER)
    ordered: Ints = live[np.argsort(history.id[live], kind="stable")]
    return ordered


def compare_rows(state: Mapping[str, AnyArray], history: History, leaf: Ints | None = None) -> list[Message]:
    """Compare the live examples of a state with a history and, of a tree, the leaf of each with its route."""
    live, order = live_by_id(history), np.argsort(state["id"], kind="stable")
    if not np.array_equal(state["id"][order], history.id[live]):
        lost = np.setdiff1d(history.id[live], state["id"])
        extra = np.setdiff1d(state["id"], history.id[live])
        ids = {"missing_ids": lost[:3].tolist(), "extra_ids": extra[:3].tolist()}
        sizes = {"held": len(order), "live": len(live), "missing": len(lost), "extra": len(extra)}
        return [message("audits.examples", **sizes, **ids)]
    known: dict[str, tuple[str, AnyArray]]
    known = {"y": ("label", history.y), "born": ("time of insertion", history.inserted)}
    if "weight" in state or history.weight is not None:
        known["weight"] = ("weight", given_weights(history.weight, len(history.id)))
        state = {**state, "weight": given_weights(state.get("weight"), len(order))}
    if leaf is not None:
        known["leaf"] = ("leaf", leaf)
    failures = []
    for name, (what, expected) in known.items():
        failures += wrong_values(what, history.id[live], state[name][order], expected[live])
    return failures


def wrong_values(what: str, ids: Ints, values: AnyArray, expected: AnyArray) -> list[Message]:
    """Return a message that counts the examples whose value is wrong and names the first, or none."""
    wrong = np.flatnonzero(values != expected)
    if not len(wrong):
        return []
    i = wrong[0]
    shown = {"id": ids[i], "found": values[i], "expected": expected[i]}
    return [message("audits.example_value", what=what, examples=len(wrong), **shown)]


def compare_counts(state: Mapping[str, AnyArray], truth: RoutedHistory) -> list[Message]:
    """Class counts of all nodes, from which labels follow, against the live examples."""
    recorded = np.zeros_like(truth.live_counts)
    recorded[:, : state["counts"].shape[1]] = state["counts"]
    return compare_nodes("counts", "live examples by class", recorded, truth.live_counts)


def exceeds(values: Ints, rate: Fraction, sizes: Ints) -> Bools:
    """Return whether a statistic exceeds its rate times the size of the node, exactly."""
    p, q = rate.numerator, rate.denominator
    return np.array([a * q > p * b for a, b in zip(values.tolist(), sizes.tolist(), strict=True)], np.bool_)


def compare_warmup(state: Mapping[str, AnyArray], history: History) -> list[Message]:
    """How many insertions a warm-up still waits for: none once it has ended, which the end of the stream does too."""
    left, expected = int(state["warmup_left"][0]), max(0, history.warmup - len(history.id))
    return [] if left in (0, expected) else [message("audits.value", name="warmup_left", found=left, expected=expected)]


def compare_counters(truth: BuildHistory, epsilon: Fraction | None, warmup: int, warming: bool) -> list[Message]:
    """s, c and built of every node against the history; with ``epsilon`` Lemma 3.4, and that no rebuild is due."""
    tree = truth.tree
    s, c = truth.built_counts.sum(axis=1), np.zeros_like(truth.c) if warming else truth.c
    now = truth.live_counts.sum(axis=1)
    top = (tree.parent < 0) | (tree.built[tree.parent] != tree.built)
    by_update = top & (tree.built >= 0)
    if tree.built[0] < 2 * warmup:
        by_update[0] = False  # the warm-up built the root, whichever update ended it
    failures = compare_nodes("s", "examples at BUILD", tree.s, s)
    failures += compare_nodes("c", "updates since BUILD", tree.c, c)
    failures += found(
        (tree.parent >= 0) & (tree.built < tree.built[tree.parent]), "audits.node_time", array="built", time=tree.built
    )
    failures += found(by_update & ~truth.passed, "audits.node_time", array="built", time=tree.built)
    if not warming and epsilon is not None:
        failures += found(exceeds(tree.c, epsilon, tree.s), "audits.overdue", c=tree.c, s=tree.s)
        failures += found(exceeds(np.abs(now - tree.s), epsilon, tree.s), "audits.lemma")
    return failures
