"""The audit against the table itself: the live examples, as the changes made them, are its rows at the version.

Invariant: the rows are read from the table as it was at that version, not from its changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import numpy as np

from pipelines.config import Config
from raydt.audits.audit_report import AuditReport
from raydt.examples.history import History
from raydt.learners import traits_of
from raydt.messages import message
from raydt.sources.base import Rows
from raydt.sources.live.base import LiveOptions
from raydt.sources.live.followed import FollowedSource

#: What the report calls the rows that were compared.
CHECKED = "rows_of_the_table"

_LIVE = np.iinfo(np.int64).max


def compare_with_table(
    report: AuditReport, config: Config, state: Mapping[str, Any], history: History, names: Any
) -> None:
    """Enter in a report whether the examples that are live in ``history`` are the rows of the table.

    ``state`` is that of the stream; ``names`` gives the ids as the table has them. Nothing is compared, which the
    report says, within a version, of a source that keeps no versions, and after updates from elsewhere.
    """
    step = state["source"].get("step")
    if not isinstance(config.source, LiveOptions) or step is None:
        return
    version = config.source.at(step["plan"])
    report.checked[CHECKED] = 0
    if version is None or step["rows"] is None or state.get("foreign"):
        return
    source = FollowedSource(version, version.open(), traits_of(config.learner).reading)
    source.restore({**state["source"], "step": None})
    chunks = list(takewhile(lambda chunk: source.last is not None and not source.last.number, source.rows()))
    table = Rows.joined(chunks) if chunks else None
    kept = {} if table is None else _rows(table.id.tolist() if table.names is None else table.names, table.X, table.y)
    unusable = [] if table is None else sorted(table.bad)
    for at in unusable:
        kept.pop(table.id[at] if table.names is None else table.names[at], None)  # type: ignore[union-attr]
    live = history.deleted == _LIVE
    model = _rows(names(history.id[live]), history.X[live], history.y[live])
    report.checked[CHECKED] = len(kept)
    different = [name for name in kept.keys() | model.keys() if kept.get(name) != model.get(name)]
    if different:
        said = message("audits.other_table", rows=len(different), place=source.live.place(step["plan"]))
        report.conformance, report.failures = "violated", [*report.failures, said]


def _rows(ids: Any, X: Any, y: Any) -> dict[Any, bytes]:
    """Features and label of each id, as bytes."""
    return {id: row.tobytes() + label.tobytes() for id, row, label in zip(ids, X, y, strict=True)}
