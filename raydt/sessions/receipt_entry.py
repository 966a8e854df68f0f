"""One entry of a chain of receipts: its schema, and the only bytes that stand for it.

Invariant: :func:`decoded` takes no line but the one that :func:`encoded` writes of the same values. So a line has one
meaning: no key is repeated, nothing is added, and what a signature covers is what was read.

Format: ``docs/reference/formats.md``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from raydt.errors import ConfigError
from raydt.messages import message

#: What new entries are written in. Entries of ``raydt-receipt-1`` have no ``key_check``.
FORMAT = "raydt-receipt-5"

_FIRST = "raydt-receipt-1"
#: First bytes of each line, whatever its format.
BEGIN = b'{"format":"raydt-receipt-'
#: Keys that came with a format; each may be left out.
_SINCE = {
    "raydt-receipt-3": ("subjects", "missing", "note", "work", "copies", "keys", "rolled_back"),
    "raydt-receipt-4": ("source",),
    FORMAT: ("origin", "sha256"),
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

    format: Literal["raydt-receipt-1", "raydt-receipt-2", "raydt-receipt-3", "raydt-receipt-4", "raydt-receipt-5"]
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
    if values["format"] >= FORMAT and sealed(values) != values:
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
