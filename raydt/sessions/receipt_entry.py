"""One entry of a chain of receipts: its schema, and the only bytes that stand for it.

Invariant: :func:`decoded` takes no line but the one that :func:`encoded` writes of the same values. So a line has one
meaning: no key is repeated, nothing is added, and what a signature covers is what was read.

Format: ``docs/reference/formats.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from raydt.messages import message

#: What new entries are written in; entries of ``raydt-receipt-1`` have no ``key_check``.
FORMAT = "raydt-receipt-2"

_Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_STRICT = ConfigDict(extra="forbid", strict=True)


class _Purged(BaseModel):
    """Of the entry of a purge: names of files, and hashes of the ids whose copies were erased (null: of all)."""

    model_config = _STRICT

    ids: list[_Hash] | None
    replaced: list[str]
    rewritten: list[str]
    out_of_reach: list[str]


class Entry(BaseModel):
    """The keys of an entry, in the order in which they are written."""

    model_config = _STRICT

    format: Literal["raydt-receipt-1", "raydt-receipt-2"]
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
    purged: _Purged | None = None
    public_key: _Hash = ""
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$")] = ""

    @model_validator(mode="after")
    def _agrees(self) -> Entry:
        """Require that the values fit each other."""
        given = self.model_fields_set
        if ("key_check" in given) != (self.format == FORMAT):
            raise ValueError(message("receipts.key_check", wanted=FORMAT, format=self.format))
        if ("public_key" in given) != ("signature" in given):
            raise ValueError(message("receipts.half_signed"))
        if self.purged is None and "purged" in given:
            raise ValueError(message("receipts.no_purge"))
        if any(hashes != sorted(hashes) for hashes in (self.deleted, self.inserted, self.subjects, self.missing)):
            raise ValueError(message("receipts.unsorted"))
        if self.active != self.active_before - len(self.deleted) + len(self.inserted):
            raise ValueError(message("receipts.other_active"))
        if self.purged and (self.deleted or self.inserted or self.digest_before != self.digest_after):
            raise ValueError(message("receipts.changing_purge"))
        return self


def encoded(values: Mapping[str, Any]) -> bytes:
    """Return the line of an entry, without its line feed."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode("ascii")


def decoded(line: bytes) -> dict[str, Any]:
    """Return the values of a line with its line feed; ValueError unless :func:`encoded` writes this line of them."""
    if not line.endswith(b"\n"):
        raise ValueError(message("receipts.cut_off"))
    try:
        values = validated(json.loads(line))
    except RecursionError as error:
        raise ValueError(message("receipts.nested")) from error
    if encoded(values) + b"\n" != line:
        raise ValueError(message("receipts.other_spelling"))
    return values


def validated(values: Any) -> dict[str, Any]:
    """Return the values of an entry, its keys in their order; ValueError names a key that is missing or wrong."""
    try:
        return Entry.model_validate(values).model_dump(exclude_unset=True)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, detail["loc"]))[:80]  # a key may be anything
        raise ValueError(f"{place}: {detail['msg']}" if place else detail["msg"]) from error
