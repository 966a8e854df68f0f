"""Debezium's envelope: a change as the structs ``before`` and ``after``, told apart by an operation.

Invariant: opening an envelope changes neither the number nor the order of the rows, and every value of a good row comes
from one struct: ``before`` for a delete, else ``after``. A bad update has the id in ``before``, if there is one.

What the operations mean is in ``raydt.encoding.operations``, what becomes of the opened rows in the encoder.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raydt.arrays.types import Bools
from raydt.encoding.columns import id_values, in_words
from raydt.encoding.faults import Faults
from raydt.errors import InputError
from raydt.examples.updates import DELETE, INSERT, QUERY, UPDATE
from raydt.messages import message
from raydt.redaction import quoted, quoted_columns

BEFORE, AFTER = "before", "after"


class Envelope:
    """Rows inside ``before`` and ``after``, which have the field ``id``; other columns stand ``outside``."""

    def __init__(self, outside: Iterable[str], id: str) -> None:
        self._outside, self._id = tuple(outside), id

    def row_schema(self, schema: pa.Schema, file: str) -> pa.Schema:
        """Return the columns of the rows inside: outer ones, then fields of the structs, or an InputError."""
        fields = [schema.field(name) for name in self._outside if schema.names.count(name) == 1]
        inside: dict[str, pa.Field] = {}
        for side in (AFTER, BEFORE):
            for field in self._fields(schema, side, file):
                # Without a deletion (an update) a writer may not know the types of `before` (of `after`).
                if field.name not in inside or pa.types.is_null(inside[field.name].type):
                    inside[field.name] = field
        return pa.schema([*fields, *inside.values()])

    def stored(self, name: str) -> str:
        """Where a column of the opened rows is stored, for messages."""
        return name if name in self._outside else f"{AFTER}.{name}"

    def columns(self, names: Iterable[str]) -> list[str]:
        """Return the columns of a file to read for these columns of the opened rows, as far as the file has it."""
        return [*map(self.stored, names), f"{BEFORE}.{self._id}"]

    def tombstones(self, batch: pa.RecordBatch, op: str) -> Bools:
        """Mask, shape (n,), of the rows in which everything is null: what Kafka keeps of a key after its deletion."""
        empty = batch.column(op).is_null()
        for side in (BEFORE, AFTER):
            if side in batch.schema.names:
                empty = pc.and_(empty, batch.column(side).is_null())
        return np.asarray(empty)

    def open(
        self, batch: pa.RecordBatch, names: Iterable[str], op: npt.NDArray[np.int8], faults: Faults
    ) -> pa.RecordBatch:
        """Return columns ``names`` of the rows inside; bad are null structs, and updates that change the id."""
        deletes = op == DELETE
        inserts = (op == INSERT) | (op == UPDATE) | (op == QUERY)
        for code, side, needed in (("no_after", AFTER, inserts), ("no_before", BEFORE, deletes)):
            empty = np.asarray(batch.column(side).is_null()) if side in batch.schema.names else np.ones(len(op), bool)
            faults.mark(code, side, empty, needed)
        columns = {name: self.column(batch, name) for name in names}
        if self._id in columns:
            columns[self._id] = self._ids(batch, columns[self._id], op, faults)
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))

    def column(self, batch: pa.RecordBatch, name: str, side: str = AFTER) -> pa.Array:
        """A column of the opened rows as ``side`` has it; all null where the struct or the field was not written."""
        if name in self._outside and name in batch.schema.names:
            return batch.column(name)
        struct = batch.column(side) if side in batch.schema.names else pa.nulls(batch.num_rows)
        if pa.types.is_null(struct.type) or struct.type.get_field_index(name) < 0:
            return pa.nulls(batch.num_rows)
        return pc.struct_field(struct, name)

    def _ids(self, batch: pa.RecordBatch, after: pa.Array, op: npt.NDArray[np.int8], faults: Faults) -> pa.Array:
        before, after = id_values(self.column(batch, self._id, BEFORE)), id_values(after)
        if pa.types.is_null(after.type):
            after = pa.nulls(len(after), before.type)
        before = pc.cast(before, after.type)
        faults.mark("no_key", f"{BEFORE}.{self._id}", np.asarray(before.is_null()), op == DELETE)
        moved = np.asarray(pc.fill_null(pc.not_equal(before, after), False))
        faults.mark("moved_id", self._id, moved, op == UPDATE, after)
        faults.mark("no_id", self._id, np.asarray(after.is_null()), op == UPDATE)
        # A bad update still names its old row.
        return pc.if_else(pa.array((op == DELETE) | (op == UPDATE)), pc.coalesce(before, after), after)

    @staticmethod
    def _fields(schema: pa.Schema, side: str, file: str) -> list[pa.Field]:
        if schema.names.count(side) != 1:
            inner = [f.name for f in schema if pa.types.is_struct(f.type) and f.type.get_field_index(side) >= 0]
            said = message("columns.no_struct", columns=quoted_columns(schema.names))
            if inner:
                said = message("columns.wrapped_struct", outer=quoted(inner[0]))
            raise InputError(said, file=file, column=side)
        kind = schema.field(side).type
        if pa.types.is_struct(kind):
            return list(kind)
        if pa.types.is_null(kind):
            return []
        raise InputError(message("columns.not_struct", kind=in_words(kind)), file=file, column=side)
