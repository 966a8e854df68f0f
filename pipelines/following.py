"""The job that follows a live source: a run whose stream ends when a signal says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from pipelines.chapters import run_of
from pipelines.config import Config, load_config
from pipelines.display import Reporter
from pipelines.histories import EndedRun
from pipelines.receipts import may_quote, said
from pipelines.run_folder import RunFolder
from pipelines.running.ending import RunResult
from pipelines.running.intake import Attending, write_failure
from pipelines.running.plans import with_address
from pipelines.running.replay import begin, resume
from raydt.audits.recorded_tree import AuditReport, noted
from raydt.errors import ConfigError
from raydt.examples.updates import DTYPE, UNIT, History
from raydt.folders.folder import locked
from raydt.keyed.packing import Member
from raydt.keyed.source import KeySource, SharedSource
from raydt.learners import traits_of
from raydt.messages import message, message_of
from raydt.sources.base import Rows
from raydt.sources.live.base import HistoryGoneError, LiveOptions
from raydt.sources.live.followed import FollowedSource


def follow(
    config: Config | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    address: str | None = None,
    overwrite: bool = False,
    progress: Reporter | None = None,
    until_idle: float | None = None,
) -> RunResult:
    """Follow a live source, until a signal ends the run.

    Parameters
    ----------
    config : Config, mapping or path
        A config, whose source is a live one, or the folder of a run that has one, which goes on.
    out, overrides, address, overwrite, progress
        As of :func:`pipelines.running.replay.replay`.
    until_idle : float, optional
        End the run as complete when nothing new has come for so many seconds; not while the source is away, or the run
        waits at a bad row.

    Returns
    -------
    RunResult
        Of a run that a signal has interrupted, or that has ended with ``until_idle``.

    Raises
    ------
    ConfigError
        The source has an end, or as of ``replay``.
    InputError
        As of ``replay`` and ``resume``; what comes next in the source is gone for good. ``status.json`` of a run that
        goes on says ``failed``, and why.
    """

    attending: Attending | None = None

    def attend(source: FollowedSource, folder: RunFolder) -> None:
        nonlocal attending
        source.patient = True
        source.pause = attending = Attending(source, folder, until_idle)

    there = RunFolder(config) if isinstance(config, (str, Path)) and RunFolder(config).has("config.yaml") else None
    try:
        if there is not None:
            return resume(there.location, overrides=overrides, address=address, progress=progress, attend=attend)
        loaded = load_config(config, with_address(overrides, address))
        if not isinstance(loaded.source, LiveOptions):
            raise ConfigError(message("live.has_an_end", kind=loaded.source.kind))
        return begin(loaded, out, given=config, overwrite=overwrite, progress=progress, attend=attend)
    except Exception as error:
        said = message_of(error)
        # Of other errors of a config nothing has been changed, and the run can go on without what was given.
        if not isinstance(error, ConfigError) or (said is not None and said.id == "runs.other_data"):
            _note_failure(error, there, attending)
        raise


def _note_failure(error: Exception, run: RunFolder | None, attending: Attending | None) -> None:
    """Say in ``status.json`` of a run that it has failed and why, unless another process is at work on it."""
    folder = attending.folder if attending is not None else run
    if folder is None or not folder.has("config.yaml"):  # nothing is kept of it
        return
    folder = folder if (found := run_of(folder)) is None else found[0]
    with suppress(ConfigError, OSError), locked(folder):
        reason = said(error, may_quote(folder.location))
        write_failure(folder, reason) if attending is None else attending.fail(reason)


# The audit against the table itself: the live examples, as the changes made them, are its rows at the version.
#
# Invariant: the rows are read from the table as it was at that version, not from its changes.

#: What the report calls the rows that were compared.
CHECKED = "rows_of_the_table"

_LIVE = np.iinfo(np.int64).max

#: Features, label and weight of each example, as bytes, by id.
_Examples = dict[Any, bytes]


class _Table(NamedTuple):
    """A table as it was at a version."""

    source: FollowedSource  #: With the dictionaries of the run.
    rows: Rows | None  #: None if there is no row.
    place: str  #: For messages.


def compare_with_table(report: AuditReport, ended: EndedRun, histories: Mapping[Member, History]) -> None:
    """Enter in a report whether the live examples of each member, or of one, are the rows of the table.

    Nothing is compared, which the report says, within a version, of a source that keeps no versions, and after updates
    from elsewhere. Rows without a key are of no model.
    """
    if (table := _table_of(report, ended)) is None:
        return
    shared = SharedSource(table.source, traits_of(ended.config.learner).reading)
    parts: dict[Member, Rows | None] = {None: table.rows}
    if None not in histories:
        parts = {} if table.rows is None else {part.key: part.rows for part in shared.split(table.rows)}
    found: list[tuple[_Examples, _Examples]] = []
    keys: set[Member] = {*histories, *(key for key in parts if key is not None)}
    for key in keys if ended.only is None else keys & {ended.only}:
        rows, there, own = parts.get(key), key in histories, ended.streams.of(key)
        if key is not None:
            source = KeySource(shared)
            if there:
                source.restore(own.source.state())
            if rows is not None:
                source.give(rows)
            rows = next(source.rows(), None)
        found.append((_usable(rows), _living(histories[key], cast(Any, own).names_of) if there else {}))
    _compare(report, table, found)


def _table_of(report: AuditReport, ended: EndedRun) -> _Table | None:
    """Return the table at the version of a state; None, and no row is checked, where there is nothing to compare.

    The report says where the table does not keep the version any more.
    """
    config, members = ended.config, ended.members
    state = members.components["stream"]
    foreign = bool(state.get("foreign") or members.meta.get("lineage"))
    step = state["source"].get("step")
    if not isinstance(config.source, LiveOptions) or step is None:
        return None
    version = config.source.at(step["plan"])
    report.checked[CHECKED] = 0
    if version is None or step["rows"] is None or foreign:
        return None
    source = FollowedSource(version, version.open(), traits_of(config.learner).reading)
    source.restore({**state["source"], "step": None})
    try:
        chunks = list(takewhile(lambda chunk: source.last is not None and not source.last.number, source.rows()))
    except HistoryGoneError as gone:
        report.reason = noted(report.reason, message("verdicts.table_gone", reason=gone.parts["problem"]))
        return None
    return _Table(source, Rows.joined(chunks) if chunks else None, source.live.place(step["plan"]))


def _compare(report: AuditReport, table: _Table, found: Iterable[tuple[_Examples, _Examples]]) -> None:
    """Compare rows of the table with live examples, in pairs."""
    rows = different = 0
    for kept, living in found:
        rows += len(kept)
        different += sum(kept.get(name) != living.get(name) for name in kept.keys() | living.keys())
    report.checked[CHECKED] = rows
    if different:
        said = message("audits.other_table", rows=different, place=table.place)
        report.conformance, report.failures = "violated", [*report.failures, said]


def _usable(rows: Rows | None) -> _Examples:
    """Return the good ones of some rows."""
    if rows is None:
        return {}
    ids: list[Any] = (rows.id if rows.names is None else rows.names).tolist()
    found = dict(zip(ids, _bytes(rows), strict=True))
    for at in rows.bad:
        found.pop(ids[at], None)
    return found


def _living(history: History, names: Callable[[Any], Any]) -> _Examples:
    """Return the live examples of a history."""
    live = history.deleted == _LIVE
    return dict(zip(names(history.id[live]), _bytes(history, live), strict=True))


def _bytes(examples: Rows | History, which: Any = slice(None)) -> Iterable[bytes]:
    """Features, label and weight of each of some examples."""
    X, y, weight, sparse = examples.X[which], examples.y[which], examples.weight, examples.sparse
    weights = np.full(len(X), UNIT, dtype=DTYPE) if weight is None else weight[which]
    parts = [[row.tobytes() for row in column] for column in (X, y, weights)]
    if sparse is not None:
        tokens = sparse[which]
        parts.append([tokens.row(at).tobytes() for at in range(len(tokens))])
    return map(b"".join, zip(*parts, strict=True))


# Runs that go on: they follow a table or a topic until they are stopped.
