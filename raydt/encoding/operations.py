"""Meaning of the values of an operation column: this project's words, Debezium's letters, Flink's row kinds.

Invariant: a value means an operation, nothing (the row is ignored), or is an error; none is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, StrictInt, model_validator

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

#: A truncate (Debezium's ``t``) removes examples that it does not name, so it is no update of one example.
_TRUNCATE = ("t", "truncate")


class OpValues(BaseModel):
    """Which values of the ``op`` column mean which operation; compared as text, without regard to case."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    insert: list[str | StrictInt] = ["insert", "i", "c", "r", "+I"]
    delete: list[str | StrictInt] = ["delete", "d", "-D"]
    update: list[str | StrictInt] = ["update", "u", "+U", "update_after", "update_postimage"]
    query: list[str | StrictInt] = ["query", "q"]
    delete_value: list[str | StrictInt] = ["delete_value"]
    ignore: list[str | StrictInt] = ["-U", "update_before", "update_preimage", "m"]

    def by_name(self) -> dict[str, list[str]]:
        """Values in lower case by the name of their operation, ``ignore`` among them."""
        return {name: [str(v).strip().casefold() for v in getattr(self, name)] for name in type(self).model_fields}

    def codes(self) -> dict[str, int]:
        """Operation code of each value in lower case, :data:`IGNORED` where it means none."""
        return {
            value: IGNORED if name == "ignore" else OP_NAMES.index(name)
            for name, values in self.by_name().items()
            for value in values
        }

    def describe(self) -> str:
        """All values, for messages."""
        written = {name: [str(value) for value in getattr(self, name)] for name in type(self).model_fields}
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
    words = [str(value).strip().casefold() for value in seen.values]
    op = np.array([*(known.get(word, _UNKNOWN) for word in words), _UNKNOWN], dtype=np.int8)[places]
    if tombstone is not None:
        op[tombstone] = IGNORED
    unknown = op == _UNKNOWN
    if unknown.any():
        texts = np.array([*map(str, seen.values), ""], dtype=np.object_)[places]
        truncate = np.array([*(word in _TRUNCATE for word in words), False])[places]
        faults.mark("no_operation", name, unknown & (places < 0), operations=values.describe())
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
