"""The receipt of one call of deletions and insertions: what it changed in the model, deletion by deletion.

Invariant: every figure was recorded by the learner while it applied this call. The paths and leaves are those at that
moment, not looked up in a later tree. A receipt is a few arrays, however many deletions it is for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from raydt.arrays.elementary import AnyArray, Arrays, Ints
from raydt.errors import ConfigError, UpdateError
from raydt.examples.updates import (
    DELETE,
    INSERT,
    NUMBERS,
    REFUSALS,
    Features,
    History,
    Log,
    Refusal,
    UpdateBatch,
    joined,
    unless_equal,
)
from raydt.learners import description_of, learners, traits_of
from raydt.learners.base import LearnerOptions, Traits
from raydt.learners.description import Call, Description, Effects, ReceiptWords
from raydt.messages import message
from raydt.sessions.session import IN_MEMORY, InProcessSession


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
    tell: Callable[[], ReceiptWords]  #: Puts it into the learner's words: most receipts are never read.
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

    @property
    def words(self) -> ReceiptWords:
        """Return the receipt as text for people, in the learner's words."""
        return self.tell()

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
            **self._figures(),
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
        """Digests, counts and subjects as JSON values."""
        return {**self._figures(), "subjects": list(self.subjects)}

    def _figures(self) -> dict[str, Any]:
        return {
            "digest_before": self.digest_before,
            "digest_after": self.digest_after,
            "active_before": self.active_before,
            "active": self.active,
            "deletes": len(self.ids),
            "inserts": len(self.inserted),
        }


class RefusedError(UpdateError):
    """An update that the learner refuses; ``position`` is its place in the batch."""

    def __init__(self, refusal: Refusal) -> None:
        problem, remedy = REFUSALS[refusal.reason]
        super().__init__(problem, row=refusal.position, remedy=remedy)
        self.position = refusal.position


class Method(NamedTuple):
    """A learner with some options, as receipts name and describe it: found once for all receipts of a model."""

    learner: str
    options_hash: str
    traits: Traits
    description: Description

    @classmethod
    def of(cls, options: LearnerOptions) -> Method:
        """Return the method of a model with these options."""
        return cls(options.kind, options_hash(options), traits_of(options), description_of(options))


def apply_with_receipt(
    session: InProcessSession,
    batch: UpdateBatch,
    classes: Sequence[Any] | AnyArray,
    method: Method,
    *,
    copies: tuple[str, ...],
    digest_before: str | None,
    ids: AnyArray | None = None,
) -> Receipt:
    """Apply a batch of deletions and insertions and say what it changed.

    ``ids`` are the updates' ids as the user names them, ``copies`` where copies may remain. Without ``digest_before``
    the receipt has no digests: the first costs a pass over the live examples. Updates before a RefusedError have taken
    effect.
    """
    names = batch.id if ids is None else ids
    deleted = batch.op == DELETE
    held = session.coordinator.locate(batch.id[deleted])
    traits = method.traits
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
    effects = method.description.effects(Call(seq, result.path[deleted], result, grown))
    after = result.statistics["active"]
    return receipt_of(
        method,
        effects,
        columns,
        names[batch.op == INSERT],
        active=(after + result.deletes - result.inserts, after),
        digests=(digest_before, None if digest_before is None else session.digest()),
        copies=copies,
    )


def receipt_of(
    method: Method,
    effects: Effects,
    deletions: dict[str, AnyArray],
    inserted: AnyArray,
    *,
    active: tuple[int, int],
    digests: tuple[str | None, str | None],
    copies: tuple[str, ...],
) -> Receipt:
    """Return the receipt of a call with these effects; ``active`` and ``digests`` are those before and after it."""
    return Receipt(
        learner=method.learner,
        options_hash=method.options_hash,
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
        copies=(*copies, *method.traits.stays, IN_MEMORY) if len(deletions["id"]) else (),
        log=effects.log,
        tell=partial(method.description.receipt, effects),
    )


def receipt_of_keys(
    method: Method,
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
    work: dict[str, int | float] = dict.fromkeys(("counts_changed", *method.traits.counts), 0)
    for one in by_key.values():
        for name, count in one.work.items():
            work[name] = work.get(name, 0) + count
    figures = {name: sum(getattr(one, name) for one in by_key.values()) for name in _REBUILT}
    effects = Effects({name: column for name, column in columns.items() if name not in _NAMED}, work, **figures)
    named = {name: column for name, column in columns.items() if name in _NAMED}
    inserted = [one.inserted for one in by_key.values() if len(one.inserted)]
    none = np.empty(0, dtype=np.int64)
    whole = receipt_of(
        method,
        effects,
        named,
        np.concatenate(inserted) if inserted else none,
        active=active,
        digests=digests,
        copies=copies,
    )
    return replace(whole, by_key=dict(by_key))


#: Columns of deletions that are no learner's own, and counts of rebuilds.
_NAMED = ("key", "id", "subject", "label")
_REBUILT = ("rebuilds", "rebuilt_rows", "rebuilt_nodes")


def options_hash(options: LearnerOptions) -> str:
    """SHA-256 of the options of a learner, as JSON with sorted keys: ``sha256:`` and 64 hexadecimal digits."""
    text = json.dumps(options.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


# One entry of a chain of receipts: its schema, and the only bytes that stand for it.
#
# Invariant: :func:`decoded` takes no line but the one that :func:`encoded` writes of the same values. So a line has one
# meaning: no key is repeated, nothing is added, and what a signature covers is what was read.
#
# Format: ``docs/reference/formats.md``.

#: What new entries are written in. Entries of ``raydt-receipt-1`` have no ``key_check``.
FORMAT = "raydt-receipt-6"

#: The first format, and the one from which on every line has its own hash.
_FIRST, _SEALED = "raydt-receipt-1", "raydt-receipt-5"
#: First bytes of each line, whatever its format.
BEGIN = b'{"format":"raydt-receipt-'
#: Keys that came with a format; each may be left out.
_SINCE = {
    "raydt-receipt-3": ("subjects", "missing", "note", "work", "copies", "keys", "rolled_back"),
    "raydt-receipt-4": ("source",),
    _SEALED: ("origin", "sha256"),
    FORMAT: ("former",),
}

#: Letters of a note.
NOTE = 500

_Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
_STRICT = ConfigDict(extra="forbid", strict=True)


class _Purged(BaseModel):
    """Of the entry of a purge: names of files, and hashes of the ids whose copies were erased (null: of all)."""

    model_config = _STRICT

    ids: list[_Hash] | None
    replaced: list[str]
    rewritten: list[str]
    out_of_reach: list[str]


class _OfKey(BaseModel):
    """Of the entry of models by key: what has changed of one; ``key`` is hashed as ids are."""

    model_config = _STRICT

    key: _Hash
    digest_before: _Digest | None  #: null of a new key
    digest_after: _Digest
    active_before: NonNegativeInt
    active: NonNegativeInt
    deleted: list[_Hash]
    inserted: list[_Hash]
    subjects: list[_Hash] = []


class _OfSource(BaseModel):
    """Of the entry of requests that a run has read from its source: where they were, and when they took effect."""

    model_config = _STRICT

    of: dict[str, Any]  #: which source, as it describes itself
    place: str  #: where in the source the requests are: a version, offsets, rows
    time: float | None = None  #: of the newest change there, in seconds since 1970, if the source tells it
    updates: Annotated[list[NonNegativeInt], Field(min_length=2, max_length=2)]  #: from the first to before the last
    at: list[NonNegativeInt]  #: the update that was each of ``deleted``
    #: Rows that came and went in these updates and are not in ``inserted`` and ``deleted``, replaced ones in both.
    others: Annotated[list[NonNegativeInt], Field(min_length=2, max_length=2)]
    #: The first update that waits for the learner's next batch; what came before it is in the model.
    waiting: NonNegativeInt | None = None
    #: What became of bad rows when the entry was written, of a run that did not stop at the first.
    on_error: Literal["skip", "wait"] | None = None


class _Origin(BaseModel):
    """The model that a chain is about."""

    model_config = _STRICT

    run: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None  #: that trained it; null: none, or an early one
    data: _Digest | None  #: fingerprint of the source of that run, as the chain began
    digest: _Digest  #: of the first model that the chain, or the state it began with, knows


class Entry(BaseModel):
    """The keys of an entry, in the order in which they are written."""

    model_config = _STRICT

    format: Annotated[str, Field(pattern="^raydt-receipt-[1-6]$")]
    previous: _Digest | None
    time: str
    raydt_version: str
    learner: str
    options_hash: _Digest
    digest_before: _Digest
    digest_after: _Digest
    active_before: NonNegativeInt
    active: NonNegativeInt
    deleted: list[_Hash]
    inserted: list[_Hash]
    key_check: _Hash = ""
    former: _Digest = ""  #: of the model before, in the format in which the entries before have its digest
    subjects: list[_Hash] = []
    missing: list[_Hash] = []
    note: Annotated[str, Field(max_length=NOTE)] = ""  #: who asked, or the number of the case
    work: list[_Pair] = []  #: what was rebuilt: names and values, in the learner's words
    copies: list[str] = []  #: where copies of the deleted examples may remain
    keys: list[_OfKey] = []  #: of models by key, each one that has changed, by its hash
    #: The entry (from 1 on) after which the model is again as it was then; 0: as before the first.
    rolled_back: NonNegativeInt | None = None
    purged: _Purged | None = None
    source: _OfSource | None = None  #: of requests that came through the source of a run
    origin: _Origin | None = None  #: what the chain is about, if its writer knows more than one call
    public_key: _Hash = ""
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$")] = ""
    sha256: _Digest = ""  #: of the line without this key; every line has it from format 5 on

    @model_validator(mode="after")
    def _agrees(self) -> Entry:
        """Require that the values fit each other."""
        given = self.model_fields_set
        if ("key_check" in given) != (self.format != _FIRST):
            raise ValueError(message("receipts.key_check", format=self.format))
        for wanted, names in _SINCE.items():
            if self.format < wanted and given.intersection(names):
                raise ValueError(
                    message("receipts.later_key", keys=", ".join(names), wanted=wanted, format=self.format)
                )
        if self.rolled_back is None and "rolled_back" in given:
            raise ValueError(message("receipts.no_rollback"))
        if ("public_key" in given) != ("signature" in given):
            raise ValueError(message("receipts.half_signed"))
        for name in ("deleted", "inserted") if self.keys else ():
            parts = [one for part in self.keys for one in getattr(part, name)]
            if sorted(parts) != sorted(getattr(self, name)):
                raise ValueError(message("receipts.other_keys", name=name))
        if self.purged is None and "purged" in given:
            raise ValueError(message("receipts.no_purge"))
        if any(hashes != sorted(hashes) for hashes in (self.deleted, self.inserted, self.subjects, self.missing)):
            raise ValueError(message("receipts.unsorted"))
        if self.rolled_back is not None:
            if self.deleted or self.inserted or self.subjects or self.missing or self.purged:
                raise ValueError(message("receipts.changing_rollback"))
        elif self.active != self.active_before - len(self.deleted) + len(self.inserted) + self._others():
            raise ValueError(message("receipts.other_active"))
        if self.purged and (self.deleted or self.inserted or self.digest_before != self.digest_after):
            raise ValueError(message("receipts.changing_purge"))
        if self.source is not None:
            (first, stop), at = self.source.updates, self.source.at
            if len(at) != len(self.deleted) or (at and not first <= min(at) <= max(at) < stop):
                raise ValueError(message("receipts.other_updates"))
        for name in ("source", "origin"):
            if getattr(self, name) is None and name in given:
                raise ValueError(message("receipts.no_object", name=name))
        return self

    def _others(self) -> int:
        """Return by how many the live examples grew with rows that the entry does not list."""
        return 0 if self.source is None else self.source.others[0] - self.source.others[1]


def checked_note(note: str) -> str:
    """Return a note that an entry can hold; ConfigError says how long it may be."""
    if len(note) > NOTE:
        raise ConfigError(message("receipts.long_note", most=NOTE, found=len(note)))
    return note


def encoded(values: Mapping[str, Any]) -> bytes:
    """Return the line of an entry, without its line feed."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode("ascii")


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an entry with the hash of its line."""
    own = {name: value for name, value in values.items() if name != "sha256"}
    return {**own, "sha256": "sha256:" + hashlib.sha256(encoded(own)).hexdigest()}


def decoded(line: bytes) -> dict[str, Any]:
    """Return the values of a line with its line feed; ValueError unless :func:`encoded` writes this line of them."""
    try:
        found = json.loads(line.decode("ascii"))
    except RecursionError as error:
        raise ValueError(message("receipts.nested")) from error
    except ValueError as error:
        cut = line.startswith(BEGIN) and not line.endswith(b"\n")
        raise ValueError(message("receipts.cut_off" if cut else "receipts.no_json")) from error
    if not line.endswith(b"\n"):
        raise ValueError(message("receipts.cut_off"))
    values = validated(found)
    if encoded(values) + b"\n" != line:
        raise ValueError(message("receipts.other_spelling"))
    if values["format"] >= _SEALED and sealed(values) != values:
        raise ValueError(message("receipts.other_hash"))
    return values


def validated(values: Any) -> dict[str, Any]:
    """Return the values of an entry, its keys in their order; ValueError names a key that is missing or wrong."""
    try:
        return Entry.model_validate(values).model_dump(exclude_unset=True)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, detail["loc"]))[:80]  # a key may be anything
        raise ValueError(f"{place}: {detail['msg']}" if place else detail["msg"]) from error


# A model trained again from nothing on the live examples of a history.


def trained_from_nothing(
    options: LearnerOptions, features: Features, history: History, class_order: Ints, state: Arrays
) -> InProcessSession:
    """Train on the live examples of a history, inserted at once by ids, with the class weights in ``state``."""
    learner = learners()[options.kind]
    live = np.flatnonzero(history.deleted == np.iinfo(np.int64).max)
    live = live[np.argsort(history.id[live], kind="stable")]
    n = len(live)
    session = InProcessSession(learner, options, features)
    if "class_weight" in state:
        session.coordinator.weigh_classes(state["class_weight"])
    op, row = np.full(n, INSERT, dtype=np.int8), np.full(n, -1)
    X = np.ascontiguousarray(history.X[live])
    sparse = None if history.sparse is None else history.sparse[live]
    y, classes = history.y[live], len(class_order)
    weight = None if history.weight is None else unless_equal(history.weight[live])
    known: dict[str, Any] = {"sparse": sparse, "class_order": class_order, "weight": weight}
    batch = UpdateBatch(0, op, history.id[live], X, y, classes, row, n, **known)
    session.apply(batch)
    session.finish()
    return session
