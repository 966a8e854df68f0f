"""The updates in the life of a run or state: what its lineage records of each, and how each is repeated for an audit.

Invariant: a lineage names no example. It has the files of an update with their hashes; who audits the run reads the
files again, like its source.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from pipelines.config import Config
from pipelines.updating.change_files import ChangeFile, ChangeStreams
from pipelines.updating.changes import (
    RULES,
    Deletions,
    Insertions,
    StateNames,
    rules_of,
)
from raydt.arrays.elementary import AnyArray, Ints
from raydt.errors import InputError, message_of
from raydt.examples.updates import DELETE, INSERT, NEWEST_RULES, Features, UpdateBatch, in_order
from raydt.learners import learners
from raydt.messages import message
from raydt.sessions.receipt import Receipt
from raydt.sessions.saved_model import SavedModel
from raydt.sources.files.jsonl import Dialect
from raydt.streams.base import Replay

T = TypeVar("T")

#: Updates of a change log read at a time.
_BATCH = 1 << 14

#: Numbers of deleted examples, what was inserted, the number of the first insertion, and that of all updates.
_Found = tuple[Ints, Insertions, int, int]


def step_of(
    saved: SavedModel, place: str, names: StateNames, gone: Deletions, new: Insertions, receipt: Receipt
) -> dict[str, Any]:
    """Return the entry of an update, whose receipt has digests, for the lineage of the state it writes."""
    files: dict[str, Any] = {}
    if gone.file is not None:
        files["delete"] = {"path": absolute(gone.path), "sha256": gone.file.content_hash(), "id": names.id}
        files["delete"] |= {"missing": "skip"} if gone.missing else {}
    if new.source is not None:
        files["insert"] = {"path": absolute(new.path), "kind": new.source.identity().description["kind"]}
        files["insert"] |= {"fingerprint": new.source.identity().fingerprint, "label": names.label, "id": names.id}
        files["insert"] |= {} if names.weight is None else {"weight": names.weight}
    run = saved.meta.get("run", {}).get("id")
    return {
        "state": place,
        **({} if run is None else {"run": run}),
        **{key: saved.meta[key] for key in ("config_hash", "source_fingerprint", "offset")},
        "digest_before": receipt.digest_before,
        "digest_after": receipt.digest_after,
        "deletes": len(receipt.ids),
        "inserts": len(receipt.inserted),
        "files": files,
        RULES: rules_of(saved),
        **({"note": receipt.note} if receipt.note else {}),
    }


def begins_with(lineage: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a lineage begins with the updates of another, whatever their files are called."""
    keys = ("offset", "digest_before", "digest_after", "deletes", "inserts")
    return [[step.get(key) for key in keys] for step in lineage[: len(first)]] == [
        [step.get(key) for key in keys] for step in first
    ]


def batch_of(start: int, gone: Deletions, new: Insertions, positive: bool) -> UpdateBatch:
    """Return an update as a batch: all deletions, then all insertions. It ends a warm-up that is under way."""
    op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), [len(gone.ids), len(new.ids)])
    ids = np.concatenate([gone.ids, new.ids])
    row = np.full(len(op), -1, dtype=np.int64)
    order = in_order(new.classes, positive)
    known: dict[str, Any] = {"sparse": new.sparse, "class_order": order, "weight": new.weight}
    return UpdateBatch(start, op, ids, new.X, new.y, len(new.classes), row, start, **known)


def names_after(names: StateNames, new: Insertions, begin: int, live: tuple[Ints, Ints]) -> dict[str, Any]:
    """Return components of a stream after an update with insertions from ``begin`` on, and what is ``live``."""
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
    absent = new.all_absent
    if absent is None:
        absent = names.absent
        absent.bring(new.names.tolist())
    return known | absent.state()


def state_before(
    config: Config, features: Features, stream: Any, step: Mapping[str, Any], offset: int, next_id: int
) -> SavedModel:
    """Return what the state before an update says, by the stream as it was then."""
    files, at, source = step["files"], stream.state(), stream.source
    own = step.get("read_as") or files.get("insert") or files.get("delete") or {}
    columns = {"label": own.get("label"), "id": own.get("id") or source.id_column, "id_kind": source.id_kind}
    columns |= {"subject": source.subject_column, "subject_kind": source.subject_kind, "weight": own.get("weight")}
    meta = {"kind": "state", "columns": columns, "next_id": next_id, "offset": offset}
    # An update without rules is of an earlier build, which has read its files as those of the run, or by later rules.
    meta |= {**Dialect.recorded(config.source), RULES: step.get(RULES, getattr(config.source, "rules", NEWEST_RULES))}
    classes, categories = source.classes[: at["n_classes"]], at["source"].get("categories", {})
    learner = learners()[config.learner.kind]
    return SavedModel(learner, config.learner, features, classes, categories, meta, {"stream": at})


def read_again(step: Mapping[str, Any], run: str, read: Callable[[list[Any]], T | None]) -> T:
    """Return what ``read`` makes of the files of an update; InputError if one has changed (None), or is gone."""
    files: dict[str, Any] = step["files"]
    named = files.get("changes", list(files.values()))
    if any(file["path"] is None for file in named):
        raise InputError(message("updates.in_memory", updates=step["offset"]), file=run)
    told = {"updates": step["offset"], "files": " and ".join(file["path"] for file in named)}
    try:
        found = read(named)
    except InputError as error:
        said = message("updates.unreadable", **told, problem=message_of(error))
        raise InputError(said, file=run) from error
    if found is None:
        raise InputError(message("updates.changed", **told), file=run)
    return found


def replay_changes(
    streams: ChangeStreams, files: Iterable[ChangeFile], replay: Replay, offset: int
) -> tuple[Ints, Insertions, int, int]:
    """Replay the streams of files; return ids deleted, what was inserted, the first number, and how many updates."""
    for part in streams.streams(files):
        for batch in part.batches(_BATCH):
            replay.add(batch)
    history = replay.result()
    gone = history.id[(history.inserted < offset) & (history.deleted >= offset) & (history.deleted < streams.seq)]
    new = history.id[(history.inserted >= offset) & (history.deleted >= streams.seq)]
    return gone, streams.known(new, new), offset, streams.seq - offset


def absolute(path: str | None) -> str | None:
    """Return a path that is the same wherever a command is started; None of a table in memory."""
    return path if path is None or "://" in str(path) else os.path.abspath(path)


def ids_between(before: Mapping[str, AnyArray], after: Mapping[str, AnyArray], since: int) -> tuple[Ints, Ints]:
    """Return ids that updates from ``since`` on deleted and inserted, by the live examples before and after."""
    new = after["born"] >= since
    return np.setdiff1d(before["id"], after["id"][~new]), after["id"][new]
