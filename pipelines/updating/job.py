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

import numpy as np

from pipelines.outputs import Input, require_apart
from pipelines.receipts import ReceiptFile, now, opened_receipts
from pipelines.redaction import QUOTE_VALUES, may_quote, quoting_as_its_run
from pipelines.run_files import is_of_state
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import StatePlace, find_state, open_state, states_of
from pipelines.threads_of_run import in_threads_of_its_run
from pipelines.updating.change_files import read_before
from pipelines.updating.changes import (
    Deletions,
    Insertions,
    Missing,
    StateNames,
    no_deletions,
    no_insertions,
    read_deletions,
    read_insertions,
)
from pipelines.updating.inputs import Input as Given
from pipelines.updating.inputs import deletions_given, rows_given
from pipelines.updating.lineage import absolute, batch_of, names_after, step_of
from pipelines.updating.series import Series
from raydt.errors import ConfigError
from raydt.folders.arrays import save_folder
from raydt.folders.lock import LOCK, locked
from raydt.folders.manifest import MANIFEST, is_folder_file
from raydt.messages import message
from raydt.sessions.copies import OF_ANY_STATE
from raydt.sessions.receipt import Receipt, RefusedError, apply_with_receipt
from raydt.sessions.receipt_chain import OpenChain
from raydt.sessions.receipt_entry import checked_note
from raydt.sessions.saved_model import SavedModel, model_meta, state_components
from raydt.sessions.session import InProcessSession


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
        Columns of ``insert``: by default those the state was made with; for a state saved by an estimator ``y``, and
        running ids.
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
    saved, folder = open_state(place.folder)
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
        names = StateNames.of(saved, label, id_column)
        session = saved.session()
        find = session.coordinator.store.find
        gone = no_deletions()
        if delete is not None:
            gone = read_deletions(deletions_given(delete, names.keys), names, find, missing)
        new = no_insertions(saved, names, gone)
        if insert is not None:
            new = read_insertions(rows_given(insert), kind, saved, names, find, gone)
        batch = batch_of(int(saved.meta["offset"]), gone, new, "positive" in names.labels)
        ids: Any = np.concatenate([gone.names, new.names])
        copies = copies_of(saved, place, gone.path or None)
        whose = names.subjects.of(gone.ids) if names.subject_kind is not None else None
        try:
            receipt = apply_with_receipt(session, batch, new.classes, saved.options, ids=ids, copies=copies)
            receipt = replace(receipt.answering(whose, gone.subjects, gone.missing), note=note)
        except RefusedError as error:  # ids were checked, so that it is the label of a new row
            raise new.refused(error, error.position - len(gone.ids), names.label) from error
        if not dry_run:
            meta, components = contents_after(saved, folder, session, names, gone, new, receipt)
            if series is not None:
                writing = series.place(meta["offset"])
                meta["lineage"][-1] |= {"time": now(), "active": receipt.active}
            assert writing is not None
            save_state(writing, meta, components, receipt, chain)
            if series is not None:
                series.point_to_newest(keep)
    return receipt


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


def contents_after(
    saved: SavedModel,
    folder: RunFolder,
    session: InProcessSession,
    names: StateNames,
    gone: Deletions,
    new: Insertions,
    receipt: Receipt,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``meta`` and components of the new state, with the ``lineage`` it was made by in place of a config."""
    offset = int(saved.meta["offset"]) + len(gone.ids) + len(new.ids)
    meta = model_meta(saved.options, saved.features, new.classes, new.categories)
    meta |= {key: saved.meta[key] for key in ("named", "declared") if key in saved.meta}
    meta |= read_before(saved)
    meta |= {"config_hash": None, "source_fingerprint": None, "offset": offset}
    meta |= {"lineage": [*saved.meta.get("lineage", []), step_of(saved, folder.location, names, gone, new, receipt)]}
    meta |= {"columns": names.columns}
    meta |= {"numbered": names.numbered} if names.numbered else {}
    meta |= {} if may_quote(folder.location) else {QUOTE_VALUES: False}
    meta |= {"next_id": max(names.next_id, int(new.ids.max(initial=-1)) + 1)}
    components: dict[str, Any] = state_components(*session.state())
    live = components["coordinator"]["id"], components["coordinator"]["born"]
    components["stream"] = names_after(names, new, int(saved.meta["offset"]) + len(gone.ids), live)
    if "scores" in saved.components:  # for change logs that follow
        components["scores"] = saved.components["scores"]
    return meta, components


def save_state(
    target: RunFolder, meta: dict[str, Any], components: dict[str, Any], receipt: Receipt, chain: OpenChain | None
) -> None:
    """Write the new state, unless it is there, and its receipt last but for the manifest; or neither."""
    keep = (lambda: chain.append(receipt, time=now())) if chain is not None else (lambda: None)
    if target.has(MANIFEST):
        keep()
        return
    try:
        save_folder(target, "state", meta, components, before_commit=keep)
    except BaseException:
        target.clear(is_of_state)
        if chain is not None:
            chain.withdraw()
        raise


def copies_of(saved: SavedModel, place: StatePlace, delete: str | Path | None) -> tuple[str, ...]:
    """Where copies of deleted examples may be, with paths where they are known."""
    run, config = place.run, place.config
    places = [message("updates.copy_state", path=place.folder.location)]
    series, _, _ = place.folder.location.rpartition("/")
    for step in reversed(saved.meta.get("lineage", [])):
        above, _, name = step["state"].rpartition("/")
        if above != series or place.folder.has(f"../{name}/{MANIFEST}"):  # else it was removed
            places.append(message("updates.copy_earlier_state", path=step["state"]))
    if run is not None and config is not None:
        path = getattr(config.source, "path", None)
        if path is not None:
            places.append(message("updates.copy_source", path=path if isinstance(path, str) else ", ".join(path)))
        places.append(message("updates.copy_states", path=states_of(config, run).location))
        places += [
            message(id, path=f"{run.location}/{name}")
            for id, name in (
                ("updates.copy_predictions", "predictions"),
                ("updates.copy_quarantine", "quarantine"),
                ("updates.copy_log", "log.jsonl"),
            )
            if run.has(name)
        ]
        places.append(message("updates.copy_model", path=f"{run.location}/model"))
        if config.cluster.backend == "ray":
            places.append(message("updates.copy_of_ray"))
    elif not saved.meta.get("lineage"):
        places.append(message("updates.copy_origin"))
    if delete is not None:
        places.append(message("updates.copy_ids", path=absolute(str(delete))))
    if any(saved.features.categorical):
        places.append(message("updates.copy_categories"))
    if saved.classes:
        places.append(message("updates.copy_classes"))
    return (*places, *OF_ANY_STATE)
