"""``update``: deletions and insertions applied to a saved state, with a receipt, and without replaying its life.

Invariant: the input is only read. The new state is written as a whole after everything has been read, checked and
applied, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.outputs import Input, require_apart
from pipelines.receipts import ReceiptFile, now, opened_receipts, origin_of, require_about
from pipelines.redaction import quoting_as_its_run
from pipelines.run_files import is_of_state
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import StatePlace, find_state, open_state, states_of
from pipelines.threads_of_run import in_threads_of_its_run
from pipelines.updating.changes import (
    Missing,
    StateNames,
    no_deletions,
    no_insertions,
    read_deletions,
    read_insertions,
)
from pipelines.updating.contents import Asked, apply_lists, contents_after, copies_of, save_state
from pipelines.updating.inputs import Input as Given
from pipelines.updating.inputs import deletions_given, rows_given
from pipelines.updating.series import Series
from raydt.errors import ConfigError
from raydt.folders.lock import LOCK, locked
from raydt.folders.manifest import MANIFEST, is_folder_file
from raydt.keyed.saved import open_keys
from raydt.messages import message
from raydt.sessions.receipt import Receipt
from raydt.sessions.receipt_chain import Origin
from raydt.sessions.receipt_entry import checked_note
from raydt.sessions.saved_model import SavedModel


@in_threads_of_its_run
@quoting_as_its_run
def update(
    state: str | Path,
    *,
    insert: Given | None = None,
    delete: Given | None = None,
    missing: Missing = "error",
    out: str | Path | None = None,
    dry_run: bool = False,
    label: str | None = None,
    id_column: str | None = None,
    kind: str | None = None,
    receipts: ReceiptFile | None = None,
    note: str = "",
    keep: int | None = None,
) -> Receipt:
    """Delete and insert examples: first all deletions, then all insertions, so that an id can be replaced.

    Parameters
    ----------
    state : path or URI
        A run folder (its last state), one of its ``checkpoints/``, or a folder that ``update`` or
        ``save(..., with_examples=True)`` wrote.
    insert : path, URI, data frame or Arrow table, optional
        Parquet, Arrow IPC or CSV rows with the model's columns; of a frame, a named index is a column.
    delete : path, URI, list of ids, mapping, data frame or Arrow table, optional
        The ids to delete in a column ``id``, or the subjects whose rows are deleted in a column ``subject``; each may
        have the name that the source gives it. A repeated one counts once. Who gives it in memory cannot audit a run
        that continues from the state, since an audit reads the files again.
    missing : {"error", "skip"}
        What is done about ids and subjects that have no live example: refuse them, all in one error, or pass over them
        and list them in the receipt.
    out : path or URI
        New or empty folder for the new state; may be left out of a dry run, and if ``state`` is a folder of successive
        states (:func:`pipelines.apply_changes`), whose next one is then written.
    dry_run : bool
        Find out everything and write nothing.
    label, id_column : str, optional
        Columns of ``insert``: by default those the state was made with; for a state saved by an estimator those that a
        series or a named index said, else ``y``, and running ids.
    kind : {"parquet", "arrow", "csv", "jsonl", "libsvm"}, optional
        Of ``insert``; by default from the end of its name.
    receipts : ReceiptFile, optional
        Where to append the receipt: just before the new state is complete, so that no state is without its receipt.
    note : str
        Who asked, or the number of the case: it stands in the receipt, readable for everybody, and in the lineage.
    keep : int, optional
        Of a folder of successive states: how many of the newest to keep, at least 1. Receipts stay. By default all.

    Returns
    -------
    Receipt

    Raises
    ------
    ConfigError
        Nothing to do, an ``out`` that cannot be used or that another process writes, or a key that cannot be used.
    InputError
        No usable state, or a file that cannot be applied as a whole. Nothing has been written.

    Notes
    -----
    Where the state belongs to a run with ``output.quote_values: false``, errors quote no ids or values.
    Reading and writing take O(live examples x features), and the first digest a pass over the live examples.
    """
    if insert is None and delete is None:
        raise ConfigError(message("updates.nothing"))
    checked_note(note)
    place = find_state(state)
    job, folder = _opened(place), place.folder
    taken = [folder]
    if place.run is not None and place.config is not None:
        taken += [place.run, states_of(place.config, place.run)]
    target = _target(out, taken) if out is not None else None
    series = Series.of_state(state) if out is None else None
    if target is None and series is None and not dry_run:
        raise ConfigError(message("updates.no_target"))
    Series.require_keep(keep, series)
    writing = target if not dry_run else None
    writer = series.open(folder, []) if series is not None and not dry_run else _sole_writer(writing)
    with opened_receipts(receipts, dry_run=dry_run) as chain, writer:
        require_about(chain, receipts, job.origin)
        receipt: Receipt = job.apply(Asked(delete, insert, missing, label, id_column, kind, note))
        if not dry_run:
            meta, components = job.contents()
            if series is not None:
                writing = series.place(meta["offset"])
                meta["lineage"][-1] |= {"time": now(), "active": receipt.active}
            assert writing is not None
            save_state(writing, meta, components, receipt, chain)
            if series is not None:
                series.point_to_newest(keep)
    return receipt


class UpdateOfOne:
    """An update of one model, in memory."""

    def __init__(self, saved: SavedModel, place: StatePlace) -> None:
        self._saved, self._place = saved, place

    def origin(self) -> Origin:
        """Return what a chain has to name of the model."""
        return origin_of(self._place.folder.location, self._saved, lambda: self._saved.session().digest())

    def apply(self, asked: Asked) -> Receipt:
        """Read the lists and apply them; errors as of :func:`update`."""
        saved, kind = self._saved, asked.kind
        self._names = names = StateNames.of(saved, asked.label, asked.id_column)
        self._session = session = saved.session()
        find = session.coordinator.store.find
        gone = no_deletions()
        if asked.delete is not None:
            gone = read_deletions(deletions_given(asked.delete, names.keys), names, find, asked.missing)
        new = no_insertions(saved, names, gone)
        if asked.insert is not None:
            new = read_insertions(rows_given(asked.insert), kind, saved, names, find, gone)
        copies = copies_of(saved, self._place, gone.path or None)
        self._gone, self._new = gone, new
        self._receipt = replace(apply_lists(saved, names, session, gone, new, copies=copies), note=asked.note)
        return self._receipt

    def contents(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return ``meta`` and components of the new state."""
        folder = self._place.folder
        return contents_after(self._saved, folder, self._session, self._names, self._gone, self._new, self._receipt)


def _opened(place: StatePlace) -> Any:
    """Return the update of what lies at a place: one model, or one for each key (with the same methods)."""
    keys = open_keys(place.folder.root, filesystem=place.folder.filesystem)
    if keys is None:
        return UpdateOfOne(open_state(place.folder)[0], place)
    from pipelines.keyed.updating import UpdateOfKeys

    return UpdateOfKeys(keys, place)


def _target(out: str | Path, taken: list[RunFolder]) -> RunFolder:
    """Where the new state goes: a folder with nothing in it, and not in one that is taken."""
    target = RunFolder(out)
    require_apart("--out", target.location, [Input("what is updated", place.location) for place in taken])
    _require_free(target)
    return target


def _require_free(target: RunFolder) -> None:
    """Refuse a folder with anything in it but the lock and files of an update that has no manifest yet."""
    try:
        names = target.names()
    except OSError as error:  # a file, or no permission to look
        raise ConfigError(message("updates.no_folder", folder=target.location, reason=str(error))) from error
    unfinished = LOCK in names and MANIFEST not in names and all(is_folder_file(name) for name in names if name != LOCK)
    if names and not unfinished:
        raise ConfigError(message("updates.full_folder", folder=target.location))


@contextmanager
def _sole_writer(target: RunFolder | None) -> Iterator[None]:
    """Be the only process that writes the new state, and remove what one that was killed has left of it."""
    if target is None:
        yield
        return
    with locked(target):
        _require_free(target)  # another process may have been quicker
        target.clear(is_of_state)
        yield
