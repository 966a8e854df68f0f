"""``update --changes``: change logs applied to a saved state, scored before they are learned.

Invariant: all files are applied, or none: the new state is written as a whole in the end, after a receipt of it. A file
whose contents a state has in it is passed over, so that a command that is given once more, or was killed anywhere,
applies each file once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pipelines.operation import in_threads_of_its_run
from pipelines.receipts import ReceiptFile, now, opened_receipts, quoting_as_its_run, require_about
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import StatePlace, find_state, open_members, states_of
from pipelines.updating.change_files import (
    ChangeFile,
    applied_files,
    find_changes,
    spelling_of,
)
from pipelines.updating.changes import StateNames, without_a_config
from pipelines.updating.lineage import absolute
from pipelines.updating.lists import Series
from pipelines.updating.members import UpdateOfChanges, copies_of, save_state
from raydt.errors import ConfigError
from raydt.folders.arrays import MANIFEST
from raydt.messages import message
from raydt.sessions.receipt import Receipt, checked_note
from raydt.sessions.saved_model import SavedModel


@dataclass(frozen=True, slots=True)
class ChangesResult:
    """Outcome of :func:`apply_changes`."""

    state: str  #: The new state; the newest one there was, if no file was new; empty of a dry run.
    receipt: Receipt | None  #: None if no file was new, or the new ones have no update.
    files: list[str]  #: Files that were applied.
    known: list[str]  #: Files passed over, since the state has their contents.
    updates: int = 0
    counts: dict[str, int] = field(default_factory=dict)  #: As in a summary: ``inserts``, ``replaced``, ``refused``...
    scores: dict[str, Any] = field(default_factory=dict)  #: Columns of a row of the metrics table.

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        told = {"out": self.state or None, "files": self.files, "known": self.known, "updates": self.updates}
        receipt = {} if self.receipt is None else self.receipt.as_dict()
        return {**told, **self.counts, "scores": self.scores, **receipt}


@in_threads_of_its_run
@quoting_as_its_run
def apply_changes(
    state: str | Path,
    changes: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    dry_run: bool = False,
    op: str | None = None,
    envelope: Literal["debezium"] | None = None,
    label: str | None = None,
    id_column: str | None = None,
    kind: str | None = None,
    on_error: Literal["error", "skip"] = "error",
    receipts: ReceiptFile | None = None,
    note: str = "",
    keep: int | None = None,
) -> ChangesResult:
    """Apply change logs to a saved state, and score each row before the model learns it.

    Parameters
    ----------
    state : path or URI
        As of :func:`pipelines.update`, or a folder of successive states, of which the newest is taken.
    changes : path or URI, or a sequence of these
        Files, folders or patterns: Parquet, Arrow IPC, CSV or JSON Lines, in the order in which they are applied. A
        file whose contents the state has in it is passed over.
    out : path or URI, optional
        Folder of successive states, new, empty or the one that ``state`` is: the new state is its entry named by the
        number of updates, its file ``latest`` names that entry, and ``report.html`` shows them all. By default the
        folder that ``state`` is.
    op, envelope : str, optional
        As in ``source``. By default as the changes before were written, else by the columns of the file.
    kind : {"parquet", "arrow", "csv", "jsonl"}, optional
        By default from the end of each name.
    on_error : {"error", "skip"}
        At a row that cannot be used, or an update that the model refuses: stop and write nothing, or pass it over.
    dry_run, label, id_column, receipts, note, keep : optional
        As of :func:`pipelines.update`.

    Raises
    ------
    ConfigError
        An ``out`` that cannot be used or that another process writes, or a key that cannot be used.
    InputError, UpdateError
        No usable state, a bad row or a refused update. Nothing has been written.
    """
    checked_note(note)
    paths = [str(one) for one in ([changes] if isinstance(changes, str | Path) else changes)]
    series = Series(RunFolder(out)) if out is not None else Series.of_state(state)
    if series is None and not dry_run:
        raise ConfigError(message("updates.no_target"))
    Series.require_keep(keep, series)
    writing = series if not dry_run else None
    with opened_receipts(receipts, dry_run=dry_run) as receipts_open, _writer(writing, state, keep):
        place = find_state(state)
        job = UpdateOfChanges(open_members(place.folder), place)
        require_about(receipts_open, receipts, job.origin)
        names = StateNames.of(job.common, label, id_column)
        new, old = _split(find_changes(paths, kind, job.common, names), applied_files(job.common.meta))
        known_files = [one.path for one in old]
        if not new:
            return ChangesResult(place.folder.location, None, [], known_files)
        spelling = spelling_of(job.common, op, envelope)
        with without_a_config():
            receipt, told = job.apply(new, names, spelling, on_error, _copies(job.common, place, new))
        receipt = replace(receipt, note=note)
        result = ChangesResult("", receipt, [one.path for one in new], known_files, *told)
        if writing is None:
            return result
        meta, components = job.contents(receipt)
        meta |= {"spelling": spelling} if spelling else {}
        target = writing.place(meta["offset"])
        if target.has(MANIFEST):  # no update: there is nothing to write, and nothing that a receipt could tell
            return replace(result, state=target.location, receipt=None)
        meta["lineage"][-1] |= {
            "files": {"changes": [{**one.described(), "path": absolute(one.path)} for one in new]},
            "read_as": {"spelling": spelling, "label": names.label, "id": names.id, "on_error": on_error}
            | ({} if names.weight is None else {"weight": names.weight}),
            "updates": result.updates,
            "time": now(),
            "replaced": result.counts["replaced"],
            "queries": result.counts["queries"],
            "active": receipt.active,
            "scores": result.scores,
        }
        save_state(target, meta, components, receipt, receipts_open)
        return replace(result, state=target.location)


@contextmanager
def _writer(series: Series | None, state: str | Path, keep: int | None) -> Iterator[None]:
    """Be the only process that writes successive states, and name the newest of them in the end."""
    if series is None:
        yield
        return
    place = find_state(state)
    taken = [] if place.run is None or place.config is None else [place.run, states_of(place.config, place.run)]
    with series.open(place.folder, taken):
        yield
        series.point_to_newest(keep)


def _split(found: Sequence[ChangeFile], known_files: set[str]) -> tuple[list[ChangeFile], list[ChangeFile]]:
    """Return the files that are new, and those whose contents the state, or a file before them, has."""
    new: list[ChangeFile] = []
    old: list[ChangeFile] = []
    seen = set(known_files)
    for one in found:
        (old if one.sha256 in seen else new).append(one)
        seen.add(one.sha256)
    return new, old


def _copies(saved: SavedModel, place: StatePlace, files: Sequence[ChangeFile]) -> tuple[str, ...]:
    return (*copies_of(saved, place, None), *(message("updates.copy_changes", path=one.path) for one in files))
