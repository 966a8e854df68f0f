"""The updates in the life of a run or state: what its lineage records of each, and how each is repeated for an audit.

Invariant: a lineage names no example. It has the files of an update with their hashes; who audits the run reads the
files again, like its source.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.config import Config
from pipelines.run_folder import fitting
from pipelines.updating.change_files import ChangeStreams, find_changes
from pipelines.updating.changes import (
    Deletions,
    Insertions,
    StateNames,
    no_deletions,
    no_insertions,
    read_deletions,
    read_insertions,
)
from raydt.errors import InputError, message_of
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.targets import in_order
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.learners import learners
from raydt.messages import message
from raydt.sessions.receipt import Receipt
from raydt.sessions.saved_model import SavedModel
from raydt.streams.base import Stream
from raydt.streams.history import Replay

#: Updates of a change log read at a time.
_BATCH = 1 << 14


def step_of(
    saved: SavedModel, place: str, names: StateNames, gone: Deletions, new: Insertions, receipt: Receipt
) -> dict[str, Any]:
    """Return the entry of an update of the state in ``place``, for the lineage of the state that it writes.

    The receipt has digests.
    """
    files: dict[str, Any] = {}
    if gone.file is not None:
        files["delete"] = {"path": _absolute(gone.path), "sha256": gone.file.content_hash(), "id": names.id}
        files["delete"] |= {"missing": "skip"} if gone.missing else {}
    if new.source is not None:
        files["insert"] = {"path": _absolute(new.path), "kind": new.source.identity().description["kind"]}
        files["insert"] |= {"fingerprint": new.source.identity().fingerprint, "label": names.label, "id": names.id}
        files["insert"] |= {} if names.weight is None else {"weight": names.weight}
    return {
        "state": place,
        **{key: saved.meta[key] for key in ("config_hash", "source_fingerprint", "offset")},
        "digest_before": receipt.digest_before,
        "digest_after": receipt.digest_after,
        "deletes": len(gone.ids),
        "inserts": len(new.ids),
        "files": files,
        **({"note": receipt.note} if receipt.note else {}),
    }


def begins_with(lineage: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a lineage begins with the updates of another, whatever their files are called."""
    keys = ("offset", "digest_before", "digest_after", "deletes", "inserts")
    return [[step.get(key) for key in keys] for step in lineage[: len(first)]] == [
        [step.get(key) for key in keys] for step in first
    ]


def batch_of(start: int, gone: Deletions, new: Insertions, positive: bool) -> UpdateBatch:
    """Return an update as a batch: all deletions, then all insertions."""
    op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), [len(gone.ids), len(new.ids)])
    ids = np.concatenate([gone.ids, new.ids])
    row = np.full(len(op), -1, dtype=np.int64)
    order = in_order(new.classes, positive)
    known: dict[str, Any] = {"sparse": new.sparse, "class_order": order, "weight": new.weight}
    return UpdateBatch(start, op, ids, new.X, new.y, len(new.classes), row, **known)


def names_after(
    names: StateNames, new: Insertions, begin: int, live: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
) -> dict[str, Any]:
    """Return dictionaries, text ids and subjects after an update, as components of a stream.

    ``begin`` is the number of the first insertion; ``live`` has ids and births of the examples that live then.
    """
    labels = names.labels if "positive" in names.labels else {"classes": new.classes}
    known: dict[str, Any] = {"source": {"categories": new.categories, "labels": labels}}
    if names.text_ids:
        new.all_ids.keep(set(live[0].tolist()))
        known |= new.all_ids.state()
    if names.subject_kind is not None:
        subjects = new.all_subjects
        if subjects is None:
            subjects = names.subjects
            subjects.add(new.ids, begin + np.arange(len(new.ids)), new.subjects)
        subjects.keep(*live)
        known |= subjects.state()
    return known


def history_of_run(config: Config, features: Features, stream: Stream, meta: Mapping[str, Any], run: str) -> History:
    """Replay the stream of a run up to its last state, and the files of each update in its lineage.

    ``stream`` is fresh, and at the last state, whose ``meta`` is given, in the end; ``run`` is for messages. InputError
    if the file of an update has changed, or is gone.
    """
    replay = Replay(stream.source)
    for step in meta.get("lineage", []):
        with fitting(run):
            replay.read(stream, int(step["offset"]))
            if "changes" in step["files"]:
                _follow_changes(config, features, stream, replay, step, run)
                continue
            names, gone, new = _read_again(config, features, stream, replay, step, run)
            begin = int(step["offset"])
            replay.add(batch_of(begin, gone, new, stream.source.positive is not None))
            known = names_after(names, new, begin + len(gone.ids), replay.living)
            stream.follow_update(gone.ids, new.ids, len(gone.ids) + len(new.ids), known, len(new.classes))
    replay.read(stream, int(meta["offset"]))
    return replay.result()


def _read_again(
    config: Config, features: Features, stream: Stream, replay: Replay, step: Mapping[str, Any], run: str
) -> tuple[StateNames, Deletions, Insertions]:
    """Read the files of an update as it has read them, with the dictionaries that the stream had then."""
    files = step["files"]
    then = _state_then(config, features, stream, replay, step, files.get("insert", files.get("delete", {})))
    names, gone = StateNames.of(then), no_deletions()
    names.subjects.keep(*replay.living)
    new, found = no_insertions(then, names, gone), {}
    if any(file["path"] is None for file in files.values()):
        raise InputError(message("updates.in_memory", updates=step["offset"]), file=run)
    paths = " and ".join(file["path"] for file in files.values())
    try:
        if "delete" in files:
            gone = read_deletions(files["delete"]["path"], names, replay.find, files["delete"].get("missing", "error"))
            found["delete"] = None if gone.file is None else gone.file.content_hash()
            new = no_insertions(then, names, gone)
        if "insert" in files:
            new = read_insertions(files["insert"]["path"], files["insert"]["kind"], then, names, replay.find, gone)
            found["insert"] = None if new.source is None else new.source.identity().fingerprint
    except InputError as error:
        said = message("updates.unreadable", updates=step["offset"], files=paths, problem=message_of(error))
        raise InputError(said, file=run) from error
    if found != {name: file.get("sha256", file.get("fingerprint")) for name, file in files.items()}:
        raise InputError(message("updates.changed", updates=step["offset"], files=paths), file=run)
    return names, gone, new


def _state_then(
    config: Config,
    features: Features,
    stream: Stream,
    replay: Replay,
    step: Mapping[str, Any],
    columns: Mapping[str, Any],
) -> SavedModel:
    """Return what the reading of an update's files knows of the state before it; ``columns`` has label and id."""
    at, source, named = stream.state(), stream.source, {name: columns.get(name) for name in ("label", "id", "weight")}
    named |= {"id": named["id"] or source.id_column, "id_kind": source.id_kind}
    named |= {"subject": source.subject_column, "subject_kind": source.subject_kind}
    meta = {"kind": "state", "columns": named, "next_id": replay.next_id, "offset": int(step["offset"])}
    classes, categories = source.classes[: at["n_classes"]], at["source"].get("categories", {})
    learner = learners()[config.learner.kind]
    return SavedModel(learner, config.learner, features, classes, categories, meta, {"stream": at})


def _follow_changes(
    config: Config, features: Features, stream: Stream, replay: Replay, step: Mapping[str, Any], run: str
) -> None:
    """Replay the change logs of an update, and have the stream follow them; InputError if one has changed."""
    files, read_as, offset = step["files"]["changes"], step["read_as"], int(step["offset"])
    then = _state_then(config, features, stream, replay, step, read_as)
    names, paths = StateNames.of(then), " and ".join(file["path"] for file in files)
    names.subjects.keep(*replay.living)
    streams = ChangeStreams(then, names, read_as["spelling"], read_as["on_error"])
    try:
        found = [one for file in files for one in find_changes([file["path"]], file["kind"], then, names)]
        if [one.sha256 for one in found] != [file["sha256"] for file in files]:
            raise InputError(message("updates.changed", updates=offset, files=paths), file=run)
        for part in streams.streams(found):
            for batch in part.batches(_BATCH):
                replay.add(batch)
    except InputError as error:
        if error.message is not None and error.message.id == "updates.changed":
            raise
        said = message("updates.unreadable", updates=offset, files=paths, problem=message_of(error))
        raise InputError(said, file=run) from error
    history, empty = replay.result(), no_insertions(then, names, no_deletions())
    gone = history.id[(history.inserted < offset) & (history.deleted >= offset) & (history.deleted < streams.seq)]
    new = history.id[(history.inserted >= offset) & (history.deleted >= streams.seq)]
    after = replace(
        empty,
        classes=streams.classes,
        categories=streams.categories,
        all_ids=streams.text_ids,
        all_subjects=streams.subjects,
    )
    known = names_after(names, after, offset, replay.living)
    stream.follow_update(gone, new, streams.seq - offset, known, len(streams.classes))


def _absolute(path: str | Path | None) -> str | None:
    if path is None:
        return None
    text = str(path)
    return text if "://" in text else os.path.abspath(text)


def ids_between(
    before: Mapping[str, npt.NDArray[Any]], after: Mapping[str, npt.NDArray[Any]], since: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the ids that updates from number ``since`` on have deleted and inserted.

    ``before`` and ``after`` have ``id`` and ``born`` of the live examples.
    """
    new = after["born"] >= since
    return np.setdiff1d(before["id"], after["id"][~new]), after["id"][new]
