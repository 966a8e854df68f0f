"""Comparisons of a tree's state with the raw examples, and the report on them: what the audits of trees share.

Nothing of the fast path is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from raydt.audits.audit_report import AuditReport
from raydt.audits.recorded_tree import FOREVER, Bools, Ints
from raydt.audits.routed_history import BuildHistory, RoutedHistory
from raydt.examples.history import History


def report_of(
    truth: BuildHistory,
    history: History,
    verdict: tuple[Literal["proven", "violated", "not_promised"], str],
    replayed: int,
    worst: dict[str, float],
    broken: list[str],
    infeasible: list[str],
    **checked: int,
) -> AuditReport:
    """Return the report on a tree.

    ``verdict`` is that of feasibility with its reason, ``replayed`` the number of splits that were searched again, and
    ``checked`` counts what else was checked.
    """
    nodes, (feasibility, reason) = len(truth.tree), verdict
    if not history.complete:
        reason += "; counters and build-time splits were not checked, as only the live examples are known"
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


def found(wrong: Bools, what: str, detail: str = "", **values: npt.NDArray[Any]) -> list[str]:
    """One failure that counts the nodes that are ``wrong`` and describes the first of them, or none."""
    if not wrong.any():
        return []
    v = int(np.flatnonzero(wrong)[0])
    place = {name: array[v] for name, array in values.items()}
    count = int(wrong.sum())
    return [
        f"{what} at {count} node{'s' * (count != 1)}, first at node {v}"
        + (": " + detail.format(**place)) * bool(detail)
    ]


def live_by_id(history: History) -> Ints:
    """Return the places of the live examples in a history, by ascending id."""
    live = np.flatnonzero(history.deleted == FOREVER)
    ordered: Ints = live[np.argsort(history.id[live], kind="stable")]
    return ordered


def compare_rows(state: Mapping[str, npt.NDArray[Any]], history: History, leaf: Ints | None = None) -> list[str]:
    """Compare the live examples of a state with a history and, of a tree, the leaf of each with its route."""
    live, order = live_by_id(history), np.argsort(state["id"], kind="stable")
    if not np.array_equal(state["id"][order], history.id[live]):
        lost = np.setdiff1d(history.id[live], state["id"])
        extra = np.setdiff1d(state["id"], history.id[live])
        return [
            f"the model holds {len(order)} examples, the history {len(live)}: "
            f"{len(lost)} are missing (first ids {lost[:3].tolist()}), {len(extra)} too many ({extra[:3].tolist()})"
        ]
    known = {"y": ("label", history.y), "born": ("time of insertion", history.inserted)}
    if leaf is not None:
        known["leaf"] = ("leaf", leaf)
    failures = []
    for name, (what, expected) in known.items():
        wrong = np.flatnonzero(state[name][order] != expected[live])
        if len(wrong):
            i = wrong[0]
            failures.append(
                f"{what} of {len(wrong)} examples is wrong, first of id {history.id[live[i]]}: "
                f"{state[name][order][i]} instead of {expected[live[i]]}"
            )
    return failures


def compare_counts(state: Mapping[str, npt.NDArray[Any]], truth: RoutedHistory) -> list[str]:
    """Class counts of all nodes, from which labels follow, against the live examples."""
    recorded = np.zeros_like(truth.live_counts)
    recorded[:, : state["counts"].shape[1]] = state["counts"]
    return found(
        (recorded != truth.live_counts).any(axis=1),
        "class counts differ from the live examples",
        "{recorded} instead of {counted}",
        recorded=recorded,
        counted=truth.live_counts,
    )


def exceeds(values: Ints, rate: Fraction, sizes: Ints) -> Bools:
    """Whether value > rate * size, exactly."""
    p, q = rate.numerator, rate.denominator
    return np.array([a * q > p * b for a, b in zip(values.tolist(), sizes.tolist(), strict=True)], np.bool_)


def compare_warmup(state: Mapping[str, npt.NDArray[Any]], history: History) -> list[str]:
    """How many insertions a warm-up still waits for: none once it has ended, which the end of the stream does too."""
    left, expected = int(state["warmup_left"][0]), max(0, history.warmup - len(history.id))
    return [] if left in (0, expected) else [f"{left} insertions of the warm-up are left, not {expected}"]


def compare_counters(truth: BuildHistory, epsilon: Fraction | None, warmup: int, warming: bool) -> list[str]:
    """s, c and built of every node against the history; with ``epsilon`` Lemma 3.4, and that no rebuild is due."""
    tree = truth.tree
    s, c = truth.built_counts.sum(axis=1), np.zeros_like(truth.c) if warming else truth.c
    now = truth.live_counts.sum(axis=1)
    top = (tree.parent < 0) | (tree.built[tree.parent] != tree.built)
    by_update = top & (tree.built >= 0)
    if tree.built[0] < 2 * warmup:
        by_update[0] = False  # the warm-up built the root, whichever update ended it
    failures = found(s != tree.s, "s differs from the examples at BUILD", "{r} instead of {s}", r=tree.s, s=s)
    failures += found(c != tree.c, "c differs from the updates since BUILD", "{r} instead of {c}", r=tree.c, c=c)
    failures += found((tree.parent >= 0) & (tree.built < tree.built[tree.parent]), "a node is older than its parent")
    failures += found(by_update & ~truth.passed, "built names an update that did not pass", "{at}", at=tree.built)
    if not warming and epsilon is not None:
        failures += found(
            exceeds(tree.c, epsilon, tree.s), "a rebuild is due: c > epsilon s", "c = {c}, s = {s}", c=tree.c, s=tree.s
        )
        failures += found(exceeds(np.abs(now - tree.s), epsilon, tree.s), "Lemma 3.4 does not hold")
    return failures
