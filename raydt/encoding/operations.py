"""Meaning of the values of an operation column: this project's words, Debezium's letters, Flink's row kinds.

Invariant: a value means an operation, nothing (the row is ignored), or is an error; none is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, StrictFloat, StrictInt, model_validator

from raydt.arrays.types import Bools
from raydt.encoding.columns import Dictionary, missing
from raydt.encoding.faults import Faults
from raydt.examples.updates import OP_NAMES
from raydt.messages import message

#: Code of a row that is no update: it is passed over, neither bad nor skipped.
IGNORED = -1
_UNKNOWN = -2
#: Code of an update whose new row is bad, so that its old row goes and nothing comes.
RETRACTION = -3

OpValue = str | StrictInt | StrictFloat | None

#: A truncate (Debezium's ``t``) removes examples that it does not name, so it is no update of one example.
_TRUNCATE = ("t", "truncate")


#: A whole number as pandas writes a column in which one is missing.
_WHOLE = re.compile(r"(-?[0-9]+)\.0*")


def _word(value: Any) -> str:
    """Return how a value is compared: as text in lower case, a whole number without a point, a missing one as empty."""
    text = "" if value is None or value != value else str(value).strip().casefold()
    whole = _WHOLE.fullmatch(text)
    return text if whole is None else whole[1]


class OpValues(BaseModel):
    """Which values of the ``op`` column mean which operation; compared as text, without regard to case.

    Both ``""`` and null stand for no value: AWS DMS writes such rows for what was there before the changes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    insert: list[OpValue] = ["insert", "i", "c", "r", "+I"]
    delete: list[OpValue] = ["delete", "d", "-D"]
    update: list[OpValue] = ["update", "u", "+U", "update_after", "update_postimage"]
    query: list[OpValue] = ["query", "q"]
    delete_value: list[OpValue] = ["delete_value"]
    ignore: list[OpValue] = ["-U", "update_before", "update_preimage", "m"]

    def by_name(self) -> dict[str, list[str]]:
        """Values in lower case by the name of their operation, ``ignore`` among them."""
        return {name: [*map(_word, getattr(self, name))] for name in type(self).model_fields}

    def codes(self) -> dict[str, int]:
        """Operation code of each value in lower case, :data:`IGNORED` where it means none."""
        return {
            value: IGNORED if name == "ignore" else OP_NAMES.index(name)
            for name, values in self.by_name().items()
            for value in values
        }

    def describe(self) -> str:
        """All values, for messages."""
        written = {
            name: ["no value" if _word(value) == "" else str(value) for value in getattr(self, name)]
            for name in type(self).model_fields
        }
        return "; ".join(f"{name}: {', '.join(values)}" for name, values in written.items() if values)

    @model_validator(mode="after")
    def _distinct(self) -> OpValues:
        seen: set[str] = set()
        for values in self.by_name().values():
            if repeated := seen & set(values):
                raise ValueError(message("sources.two_meanings", value=min(repeated)))
            seen |= set(values)
        return self


def read_operations(
    column: pa.Array, name: str, values: OpValues, tombstone: Bools | None, faults: Faults
) -> npt.NDArray[np.int8]:
    """Return n operation codes, :data:`IGNORED` in rows of ``tombstone``, a number below it in bad rows."""
    seen, known = Dictionary(), values.codes()
    places = seen.encode(column, 0)
    words = [_word(value) for value in seen.values]
    op = np.array([known.get(word, _UNKNOWN) for word in [*words, ""]], dtype=np.int8)[places]
    if tombstone is not None:
        op[tombstone] = IGNORED
    unknown = op == _UNKNOWN
    if unknown.any():
        texts = np.array([*map(str, seen.values), ""], dtype=np.object_)[places]
        truncate = np.array([*(word in _TRUNCATE for word in words), False])[places]
        empty = np.array([*(word == "" for word in words), True])[places]
        faults.mark("no_operation", name, unknown & empty, operations=values.describe())
        faults.mark("truncate", name, unknown & truncate, values=texts)
        faults.mark("unknown_operation", name, unknown, values=texts, operations=values.describe())
    return op


def without_ids(op: npt.NDArray[np.int8], bad: Sequence[int], ids: pa.Array) -> npt.NDArray[np.int8]:
    """Return operations, :data:`IGNORED` in the ``bad`` rows that have no usable id."""
    places, op = np.array(bad, dtype=np.int64), op.copy()
    unusable = missing(ids)
    if unusable is not None:
        op[places[unusable[places]]] = IGNORED
    return op
