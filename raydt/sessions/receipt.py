"""The receipt of one call of deletions and insertions: what it changed in the model, deletion by deletion.

Invariant: every figure was recorded by the learner while it applied this call. The paths and leaves are those at that
moment, not looked up in a later tree. A receipt is a few arrays, however many deletions it is for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray
from raydt.errors import UpdateError
from raydt.examples.targets import NUMBERS
from raydt.examples.updates import DELETE, INSERT, REFUSALS, Log, Refusal, UpdateBatch, joined
from raydt.learners import description_of, traits_of
from raydt.learners.base import LearnerOptions
from raydt.learners.description import Call, Effects, ReceiptWords
from raydt.sessions.copies import IN_MEMORY
from raydt.sessions.session import InProcessSession


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Receipt:
    """Changes made by one call."""

    learner: str  #: ``learner``, ``options_hash``: The algorithm by its ``kind``, and SHA-256 of its options.
    options_hash: str
    #: A row for each deletion, in the order in which they were applied (``pyarrow.table(receipt.deletions)`` is a table
    #: of it). ``id`` and ``label`` always, and what the learner records: ``id`` As the caller names it: int64, or
    #: strings. ``label`` Its class, whose count went down by one at every node of the path; of a regression the number.
    #: ``leaf`` Of one tree the leaf it was in before the call: place in preorder in the model of ``digest_before``.
    #: ``path`` Of one tree nodes from the root to its leaf when it was deleted, both included: those whose counts
    #: changed. Without a tree, class counts that changed. ``rebuilt_depth``, ``rebuilt_rows``, ``rebuilt_nodes`` Of a
    #: tree that is rebuilt: depth of the node whose subtree this deletion caused to be rebuilt, examples in it, nodes
    #: built; -1, 0, 0 if it caused none. ``changed`` Of what is not rebuilt: whether the deletion changed the tree, or
    #: the split.
    deletions: dict[str, AnyArray]
    inserted: AnyArray  #: Ids inserted, in order.
    #: ``rebuilds``, ``rebuilt_rows``, ``rebuilt_nodes``: Subtrees rebuilt by the whole call, examples that went into
    #: them, and nodes built.
    rebuilds: int
    rebuilt_rows: int
    rebuilt_nodes: int
    #: What else the whole call took, by the learner's own names: ``counts_changed``, the class counts on the paths of
    #: all deleted and inserted examples, added up, and by how much the learner's own counts have grown; of a learner
    #: that applies the call at once, sums over its log.
    work: dict[str, int | float]
    active_before: int  #: ``active_before``, ``active``: Live examples before and after.
    active: int
    #: ``digest_before``, ``digest_after``: Digests of the model; None if the caller asked for none.
    digest_before: str | None
    digest_after: str | None
    copies: tuple[str, ...]  #: Where copies of the deleted examples may remain; empty if nothing was deleted.
    log: Log  #: The learner's own record of the call (:attr:`raydt.examples.updates.BatchResult.log`).
    words: ReceiptWords  #: The same for people, in the learner's words.
    #: Subjects (persons) that the call named and whose rows it deleted; ``deletions["subject"]`` says whose each row
    #: was, where that is known.
    subjects: tuple[Any, ...] = ()
    #: Ids or subjects that the call named and that had no live example: it passed over them.
    missing: tuple[Any, ...] = ()
    note: str = ""  #: Who asked, or the number of the case.
    #: Of models by key the receipt of each key that has changed; the others are then over all keys, and ``deletions``
    #: has a column ``key``. The first digest of a new key is None.
    by_key: Mapping[str | int, Receipt] = field(default_factory=dict)

    @property
    def ids(self) -> AnyArray:
        """Ids deleted, in order."""
        return self.deletions["id"]

    def answering(
        self, whose: npt.NDArray[np.object_] | None, subjects: Sequence[Any], missing: Sequence[Any]
    ) -> Receipt:
        """Return the receipt for a request that named ``subjects``; ``whose`` rows were deleted, if known."""
        deletions = self.deletions
        if whose is not None:
            deletions = {"id": deletions["id"], "subject": whose, **deletions}
        return replace(self, deletions=deletions, subjects=tuple(subjects), missing=tuple(missing))

    def __repr__(self) -> str:
        updates = f"{len(self.ids):,} deleted, {len(self.inserted):,} inserted"
        return f"Receipt({updates}, {self.words.short}, {self.active:,} live)"

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON values; the columns of ``deletions`` are lists."""
        return {
            "learner": self.learner,
            "options_hash": self.options_hash,
            "digest_before": self.digest_before,
            "digest_after": self.digest_after,
            "active_before": self.active_before,
            "active": self.active,
            "deletes": len(self.ids),
            "inserts": len(self.inserted),
            "rebuilds": self.rebuilds,
            "rebuilt_rows": self.rebuilt_rows,
            "rebuilt_nodes": self.rebuilt_nodes,
            **self.work,
            "deletions": {name: column.tolist() for name, column in self.deletions.items()},
            "inserted": self.inserted.tolist(),
            "subjects": list(self.subjects),
            "missing": list(self.missing),
            "copies": list(self.copies),
            "note": self.note,
            **({"keys": [{"key": key, **one.brief()} for key, one in self.by_key.items()]} if self.by_key else {}),
        }

    def brief(self) -> dict[str, Any]:
        """Digests and counts as JSON values."""
        return {
            "digest_before": self.digest_before,
            "digest_after": self.digest_after,
            "active_before": self.active_before,
            "active": self.active,
            "deletes": len(self.ids),
            "inserts": len(self.inserted),
            "subjects": list(self.subjects),
        }


class RefusedError(UpdateError):
    """An update that the learner refuses; ``position`` is its place in the batch."""

    def __init__(self, refusal: Refusal) -> None:
        problem, remedy = REFUSALS[refusal.reason]
        super().__init__(problem, row=refusal.position, remedy=remedy)
        self.position = refusal.position


def apply_with_receipt(
    session: InProcessSession,
    batch: UpdateBatch,
    classes: Sequence[Any] | AnyArray,
    options: LearnerOptions,
    *,
    copies: tuple[str, ...],
    ids: AnyArray | None = None,
    digest_before: str | None = None,
    digests: bool = True,
) -> Receipt:
    """Apply a batch of deletions and insertions and say what it changed.

    ``ids`` are the updates' ids as the user names them, ``copies`` where copies may remain. Digests can be left out:
    the first costs a pass over the live examples, unless ``digest_before`` is given. Updates before a RefusedError have
    taken effect.
    """
    names = batch.id if ids is None else ids
    deleted = batch.op == DELETE
    held = session.coordinator.locate(batch.id[deleted])
    if digests and digest_before is None:
        digest_before = session.digest()
    traits, description = traits_of(options), description_of(options)
    before = session.statistics() if traits.counts else {}
    result = session.apply(batch)
    if result.refused:
        raise RefusedError(result.refused[0])
    if traits.collects_updates:
        result.log = joined([result.log, session.finish()])
        result.statistics = session.statistics()
    targets = held.pop("y")
    labels = targets if targets.dtype == NUMBERS else np.asarray(classes)[targets]
    columns = {"id": names[deleted], "label": labels, **held}
    grown = {name: result.statistics[name] - before[name] for name in traits.counts}
    seq = batch.start + np.flatnonzero(deleted)
    effects = description.effects(Call(seq, result.path[deleted], result, grown))
    after = result.statistics["active"]
    return receipt_of(
        options,
        effects,
        columns,
        names[batch.op == INSERT],
        active=(after + result.deletes - result.inserts, after),
        digests=(digest_before, session.digest()) if digests else (None, None),
        copies=copies,
        log=result.log,
    )


def receipt_of(
    options: LearnerOptions,
    effects: Effects,
    deletions: dict[str, AnyArray],
    inserted: AnyArray,
    *,
    active: tuple[int, int],
    digests: tuple[str | None, str | None],
    copies: tuple[str, ...],
    log: Log,
) -> Receipt:
    """Return the receipt of a call with these effects; ``active`` and ``digests`` are those before and after it."""
    return Receipt(
        learner=options.kind,
        options_hash=options_hash(options),
        deletions={**deletions, **effects.columns},
        inserted=inserted,
        rebuilds=effects.rebuilds,
        rebuilt_rows=effects.rebuilt_rows,
        rebuilt_nodes=effects.rebuilt_nodes,
        work=effects.work,
        active_before=active[0],
        active=active[1],
        digest_before=digests[0],
        digest_after=digests[1],
        copies=(*copies, *traits_of(options).stays, IN_MEMORY) if len(deletions["id"]) else (),
        log=log,
        words=description_of(options).receipt(effects),
    )


def receipt_of_keys(
    options: LearnerOptions,
    by_key: Mapping[str | int, Receipt],
    *,
    active: tuple[int, int],
    digests: tuple[str, str],
    copies: tuple[str, ...],
) -> Receipt:
    """Return the receipt of a call that has changed some of the models by key, from the receipt of each.

    ``active`` and ``digests`` are those over all keys.
    """
    parts = {key: one for key, one in by_key.items() if len(one.ids)}
    columns: dict[str, AnyArray] = {"id": np.empty(0, dtype=np.int64), "label": np.empty(0, dtype=np.int64)}
    if parts:
        counts = [len(one.ids) for one in parts.values()]
        columns = {"key": np.repeat(np.array([*parts], dtype=object), counts)}
        for name in next(iter(parts.values())).deletions:
            columns[name] = np.concatenate([one.deletions[name] for one in parts.values()])
    work: dict[str, int | float] = dict.fromkeys(("counts_changed", *traits_of(options).counts), 0)
    for one in by_key.values():
        for name, count in one.work.items():
            work[name] = work.get(name, 0) + count
    figures = {name: sum(getattr(one, name) for one in by_key.values()) for name in _REBUILT}
    effects = Effects({name: column for name, column in columns.items() if name not in _NAMED}, work, **figures)
    named = {name: column for name, column in columns.items() if name in _NAMED}
    inserted = [one.inserted for one in by_key.values() if len(one.inserted)]
    none = np.empty(0, dtype=np.int64)
    log: Log = {}
    whole = receipt_of(
        options,
        effects,
        named,
        np.concatenate(inserted) if inserted else none,
        active=active,
        digests=digests,
        copies=copies,
        log=log,
    )
    return replace(whole, by_key=dict(by_key))


#: Columns of deletions that are no learner's own, and counts of rebuilds.
_NAMED = ("key", "id", "subject", "label")
_REBUILT = ("rebuilds", "rebuilt_rows", "rebuilt_nodes")


def options_hash(options: LearnerOptions) -> str:
    """SHA-256 of the options of a learner, as JSON with sorted keys: ``sha256:`` and 64 hexadecimal digits."""
    text = json.dumps(options.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
