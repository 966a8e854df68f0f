"""An audit of a saved state against the raw examples: its arrays, the rows it stores, and the learner's verdicts.

A learner's audit recomputes everything from the history and so never reads the rows that a state stores. ``update``
and ``resume`` rebuild from exactly these rows, whatever the learner; they are compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from raydt.arrays.lazy import Lazy
from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import Arrays, Floats, Ints
from raydt.audits.audit_report import AuditReport
from raydt.audits.parts import Parts
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.row_owners import are_in
from raydt.exchange.messages import Buckets
from raydt.folders.parts import chosen
from raydt.folders.rows import with_live
from raydt.learners.base import Learner
from raydt.messages import Message, message
from raydt.trees.state_schema import HELD_OR_MISSING, Array, check_arrays, check_held


def audit(
    learner: Learner,
    options: Any,
    features: Features,
    classes: int,
    state: Arrays,
    history: History,
    groups: Mapping[int, Arrays],
    *,
    checked: bool = False,
) -> AuditReport:
    """Prove or refute what a learner promises of a state, and that it stores the rows of the source.

    Of an incomplete history, made of the stored rows, these are not compared. ``classes`` is 0 for numeric targets.
    ``checked`` says that :meth:`Learner.check` has found the arrays sound.
    """
    check = None if checked else partial(learner.check, options, features, classes)
    differing, problem = _stored(features, state, history, groups, check)
    if problem is not None:
        return _with(differing, AuditReport.malformed("state", problem))
    return _with(differing, learner.audit(options, features, state, history, groups))


class AuditedPart:
    """The rows in some buckets, of a state and of the source, as a part of :func:`audit_divided`."""

    def __init__(
        self,
        learner: Learner,
        options: Any,
        features: Features,
        classes: int,
        state: Arrays,
        history: History,
        groups: Mapping[int, Arrays],
    ) -> None:
        check = partial(learner.check, options, features, classes)
        self._stored = _stored(features, state, history, groups, check)
        self._rows = None if self._stored[1] else learner.audited_rows(options, features, state, history)

    def stored(self) -> tuple[list[Message], str | None]:
        """Return failures of stored rows, and what cannot be in the arrays."""
        return self._stored

    def __getattr__(self, method: str) -> Any:
        """Return a method of the learner's own part."""
        if method.startswith("_"):
            raise AttributeError(method)
        return getattr(self._rows, method)


def rows_within(
    learner: Learner, options: Any, features: Features, state: Arrays, groups: Mapping[int, Arrays], own: Buckets
) -> tuple[Arrays, Mapping[int, Arrays]]:
    """Return a state that has all rows, and its feature groups, with the rows in some buckets alone."""
    mine = are_in(state["id"], own)
    declared = learner.schema(options, features, state, state=True).arrays
    by_row = {of.name: state[of.name] for of in declared if of.shape[:1] == ("rows",)}
    return {**state, **chosen(by_row, mine)}, Lazy(groups, lambda group: with_live(groups[group], mine))


def audit_divided(learner: Learner, options: Any, features: Features, model: Arrays, parts: Parts) -> AuditReport:
    """As :func:`audit`, of rows that are divided by buckets among ``parts``, each an :class:`AuditedPart`."""
    stored = parts.ask("stored")
    differing = [failure for failures, _ in stored for failure in failures]
    for _, problem in stored:
        if problem is not None:
            return _with(differing, AuditReport.malformed("state", problem))
    return _with(differing, learner.audit_parts(options, features, model, parts))


def _stored(
    features: Features,
    state: Arrays,
    history: History,
    groups: Mapping[int, Arrays],
    check: Callable[[Arrays, Mapping[int, Arrays]], None] | None,
) -> tuple[list[Message], str | None]:
    """Return failures of stored rows, and what cannot be in the arrays."""
    differing: list[Message] = []
    try:
        if history.complete:
            differing = compare_stored_rows(features, state, history, groups)
        if check is not None:
            check(state, groups)
    except (KeyError, ValueError) as error:
        problem = message("states.missing", array=error.args[0]) if isinstance(error, KeyError) else str(error)
        return differing, problem
    return differing, None


def _with(differing: list[Message], report: AuditReport) -> AuditReport:
    """Return a report with failures of stored rows."""
    if differing:
        report.conformance = "violated"
        report.failures = [*differing, *report.failures]
    return report


def compare_stored_rows(
    features: Features, state: Arrays, history: History, groups: Mapping[int, Arrays]
) -> list[Message]:
    """Compare stored ids, labels and features with the examples inserted; return a failure for each array."""
    born, ids, y = state["born"], state["id"], state["y"]
    dtypes = {"born": np.int64, "id": np.int64, "y": history.y.dtype}
    check_arrays(state, [Array(name, dtype, ("rows",)) for name, dtype in dtypes.items()], {})
    check_held(groups, features, (HELD_OR_MISSING,), len(born))
    order = np.argsort(history.inserted, kind="stable")
    place = np.append(order, -1)[np.searchsorted(history.inserted, born, sorter=order)]
    known = place >= 0
    known[known] = history.inserted[place[known]] == born[known]
    failures = []
    if not known.all():
        first = int(np.flatnonzero(~known)[0])
        strangers = int((~known).sum())
        failures.append(message("audits.unknown_rows", rows=strangers, id=ids[first]))
    rows, place = np.flatnonzero(known), place[known]
    for what, stored, source in (("id", ids, history.id), ("label", y, history.y)):
        wrong = np.flatnonzero(stored[rows] != source[place])
        if len(wrong):
            i = int(wrong[0])
            failures.append(_differing(len(wrong), what, ids[rows[i]], stored[rows[i]], source[place[i]]))
    for number, group in sorted(groups.items()):
        columns = features.group_columns(number)
        failures += _dense(features, columns, ids[rows], group["X"][rows], history.X[np.ix_(place, columns)])
        if history.sparse is not None:
            own = np.array([number])
            stored_ones = SparseRows.of_arrays(group, features.sparse)[rows]
            failures += _sparse(features, ids[rows], stored_ones, history.sparse[place].of_groups(own, features.groups))
    return failures


def _dense(features: Features, columns: Ints, ids: Ints, stored: Floats, source: Floats) -> list[Message]:
    """The columns of one feature group, bit for bit, so that NaN equals NaN."""
    bits = [np.ascontiguousarray(X).view(np.uint64) for X in (stored, source)]
    wrong = np.argwhere(bits[0] != bits[1])
    if not len(wrong):
        return []
    i, j = wrong[0]
    return [_differing(len(wrong), repr(features.name(int(columns[j]))), ids[i], stored[i, j], source[i, j])]


def _sparse(features: Features, ids: Ints, stored: SparseRows, source: SparseRows) -> list[Message]:
    """The sparse features of one feature group that are 1."""
    ours, theirs = (
        np.repeat(np.arange(len(ones)), ones.lengths) * features.sparse + ones.indices for ones in (stored, source)
    )
    wrong = np.setxor1d(ours, theirs, assume_unique=True)
    if not len(wrong):
        return []
    row, index = divmod(int(wrong[0]), features.sparse)
    held = int(index in stored.row(row))
    return [_differing(len(wrong), repr(features.name(len(features.names) + index)), ids[row], held, 1 - held)]


def _differing(count: int, what: str, example: Any, stored: Any, source: Any) -> Message:
    return message("audits.stored_value", values=count, what=what, id=example, found=stored, expected=source)
