"""The two verdicts on a forest of another learner's trees: memberships here, and each tree by its learner's own audit.

Nothing of the fast path is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.learners.audit_report import AuditReport
from raydt.learners.forest.audit import compare_rows, definition_of, live_by_id
from raydt.learners.forest.out_of_sample import leaves_of, out_of_sample
from raydt.learners.forest.recompute import members, root_key

if TYPE_CHECKING:
    from raydt.learners.forest.options import ForestOptions

Arrays = Mapping[str, npt.NDArray[Any]]
Verdict = Literal["proven", "violated", "not_promised"]


class _Drawn(NamedTuple):
    """What a tree draws from."""

    key: np.uint64
    features: int


def audit_guests(options: ForestOptions, features: Features, state: Arrays, history: History) -> AuditReport:
    """Prove or refute what the learner of the trees promises of each of them.

    Parameters
    ----------
    options : ForestOptions
    features : Features
    state : mapping of str to ndarray
        As the coordinator exports it.
    history : History
        The raw examples, read from their source, deleted ones too.

    Returns
    -------
    AuditReport
        Figures of the trees, added up, and the worst of them.

    Notes
    -----
    O(depth n d log n) for each tree, O(n T) for memberships.
    """
    guests = options.guests()
    assert guests is not None
    live = live_by_id(history)
    broken = compare_rows(state, history, live)
    warming = int(state["seq"][0]) < int(state["warmup"][0])
    definition = definition_of(options, features)
    held = members(definition, history.id)
    tried = 0 if definition.features == len(features) else definition.features
    by_id = np.argsort(state["id"], kind="stable")
    stops = np.cumsum(state["tree_nodes"]).tolist()
    checked: dict[str, int] = {}
    worst: dict[str, float] = {}
    infeasible: list[str] = []
    verdicts: list[tuple[Verdict, str]] = []
    for tree, (begin, stop) in enumerate(zip([0, *stops], stops, strict=False) if not broken else ()):
        mine = held[:, tree]
        nodes = {name: state[name][begin:stop] for name in ("feature", "threshold", "left", "right", *guests.types)}
        nodes["counts"] = state["totals"][begin:stop]
        past = _of(history, mine)
        slots = by_id[mine[live]]
        rows = {name: state[name][slots] for name in ("id", "y", "born")}
        rows["leaf"] = leaves_of(nodes, history.X[live][mine[live]], definition.categorical)
        left = np.array([max(0, history.warmup - len(past.id)) if warming else 0])
        report = guests.audit(
            features, _Drawn(root_key(definition, tree), tried), {**nodes, **rows, "warmup_left": left}, past
        )
        named = [f"tree {tree}: {failure}" for failure in report.failures]
        (broken if report.conformance == "violated" else infeasible).extend(named)
        verdicts.append((report.feasibility, f"tree {tree}: {report.reason}"))
        for name, value in report.checked.items():
            checked[name] = checked.get(name, 0) + value
        for name, gap in report.worst.items():
            worst[name] = max(worst.get(name, 0.0), gap)
    if not broken:
        X, y = history.X[live], history.y[live].astype(np.int64)
        worst |= out_of_sample(state, X, y, held[live], definition.categorical, numeric=False)
    checked |= {"examples": len(history.y), "live": len(live), "trees": options.n_estimators}
    feasibility, reason = _verdict(verdicts, broken)
    return AuditReport(
        "violated" if broken else "holds", feasibility, reason, checked, worst=worst, failures=broken + infeasible
    )


def _verdict(verdicts: list[tuple[Verdict, str]], broken: list[str]) -> tuple[Verdict, str]:
    """The weakest of the verdicts on the trees."""
    order: tuple[Verdict, ...] = ("violated", "not_promised")
    for verdict in order:
        found = [reason for feasibility, reason in verdicts if feasibility == verdict]
        if found:
            return verdict, found[0] + (f"; {len(found)} of {len(verdicts)} trees" if len(found) > 1 else "")
    if broken:
        return "violated", broken[0]
    return "proven", f"each of {len(verdicts)} trees is feasible on its examples, within the features its nodes draw"


def _of(history: History, mine: npt.NDArray[np.bool_]) -> History:
    """The history of some examples."""
    names = ("id", "X", "y", "inserted", "deleted")
    return replace(history, **{name: getattr(history, name)[mine] for name in names})
