"""What an update makes of a session and of a state in memory, and how the new state is written.

Invariant: the new state is written as a whole, just after its receipt, or not at all.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipelines.receipts import QUOTE_VALUES, may_quote, now
from pipelines.run_folder import RunFolder, is_of_state
from pipelines.saved_runs import StatePlace, states_of
from pipelines.updating.change_files import read_before
from pipelines.updating.changes import Deletions, Insertions, Missing, StateNames
from pipelines.updating.changes import Input as Given
from pipelines.updating.lineage import absolute, batch_of, names_after
from raydt.folders.arrays import MANIFEST, save_folder
from raydt.messages import message
from raydt.sessions.receipt import Receipt, RefusedError, apply_with_receipt
from raydt.sessions.receipt_chain import OpenChain
from raydt.sessions.saved_model import SavedModel, model_meta, state_components
from raydt.sessions.session import OF_ANY_STATE, InProcessSession
from raydt.sources.files.jsonl import DIALECT


class Asked(NamedTuple):
    """What an update by lists is asked for; see :func:`update`."""

    delete: Given | None
    insert: Given | None
    missing: Missing
    label: str | None
    id_column: str | None
    kind: str | None
    note: str


def apply_lists(
    saved: SavedModel,
    names: StateNames,
    session: InProcessSession,
    gone: Deletions,
    new: Insertions,
    *,
    copies: tuple[str, ...],
    warmup: int | None = None,
) -> Receipt:
    """Apply an update to a session of a state, and return its receipt; UpdateError for a label that is refused.

    ``warmup`` is given of a model that begins: there is no digest before, and its rows are all that it will get.
    """
    batch = batch_of(int(saved.meta["offset"]), gone, new, "positive" in names.labels)
    ids: Any = np.concatenate([gone.names, new.names])
    whose = names.subjects.of(gone.ids) if names.subject_kind is not None else None
    first = None if warmup is None else ""
    batch = batch if warmup is None else replace(batch, warmup=warmup)
    try:
        receipt = apply_with_receipt(
            session, batch, new.classes, saved.options, ids=ids, copies=copies, digest_before=first
        )
    except RefusedError as error:  # ids were checked, so that it is the label of a new row
        raise new.refused(error, error.position - len(gone.ids), names.label) from error
    if warmup is not None:
        session.finish()
        receipt = replace(receipt, digest_before=None, digest_after=session.digest())
    return receipt.answering(whose, gone.subjects, gone.missing)


def meta_after(
    saved: SavedModel,
    folder: RunFolder,
    names: StateNames,
    step: dict[str, Any],
    known: tuple[list[Any], dict[str, Any]],
) -> dict[str, Any]:
    """Return ``meta`` of the state after an update, the last ``step`` of its lineage, less its running number.

    ``known`` are classes and categories.
    """
    meta = model_meta(saved.options, saved.features, *known)
    meta |= {key: saved.meta[key] for key in ("named", "declared", DIALECT) if key in saved.meta}
    meta |= read_before(saved)
    offset = int(saved.meta["offset"]) + step["deletes"] + step["inserts"]
    meta |= {"config_hash": None, "source_fingerprint": None, "offset": offset}
    meta |= {"lineage": [*saved.meta.get("lineage", []), step]}
    meta |= {"columns": names.columns}
    meta |= {"numbered": names.numbered} if names.numbered else {}
    return meta | ({} if may_quote(folder.location) else {QUOTE_VALUES: False})


def components_after(
    saved: SavedModel, session: InProcessSession, names: StateNames, gone: Deletions, new: Insertions
) -> dict[str, Any]:
    """Return the components of the state after an update."""
    components: dict[str, Any] = state_components(*session.state())
    live = components["coordinator"]["id"], components["coordinator"]["born"]
    components["stream"] = names_after(names, new, int(saved.meta["offset"]) + len(gone.ids), live)
    if "scores" in saved.components:  # for change logs that follow
        components["scores"] = saved.components["scores"]
    return components


def save_state(
    target: RunFolder, meta: dict[str, Any], components: dict[str, Any], receipt: Receipt, chain: OpenChain | None
) -> None:
    """Write the new state, unless it is there, and its receipt last but for the manifest; or neither."""

    def keep() -> None:
        if chain is not None:
            chain.append(receipt, time=now())
            meta["lineage"][-1]["receipt"] = chain.head  # the manifest comes after it

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
        files = [*step["files"].get("changes", ()), *(file for kind, file in step["files"].items() if kind == "insert")]
        places += [message("updates.copy_rows", path=file["path"]) for file in files if file["path"] is not None]
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
    else:
        places.append(message("updates.copy_origin"))
    if delete is not None:
        places.append(message("updates.copy_ids", path=absolute(str(delete))))
    if any(saved.features.categorical):
        places.append(message("updates.copy_categories"))
    if saved.classes:
        places.append(message("updates.copy_classes"))
    return (*places, *OF_ANY_STATE)
