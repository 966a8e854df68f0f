"""Two states of some rows to the changes between them.

Invariant: an id changes at most once, and a row that is the same in both states is no change.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def netted(before: pa.Table, after: pa.Table, id: str, op: str) -> pa.Table:
    """Return what makes ``after`` of ``before``: rows with a column ``op``, deletes first, both parts by id.

    The tables have the same columns, and an id once. O(n log n).
    """
    before, after = (table.combine_chunks().take(pc.sort_indices(table[id])) for table in (before, after))
    place = pc.index_in(after[id], value_set=before[id].combine_chunks())
    there = before.take(pc.fill_null(place, 0)) if len(before) else after
    known = pc.is_valid(place)
    same = known
    for name in after.schema.names:
        same = pc.and_(same, _equal(after[name], there[name]))
    gone = before.filter(pc.invert(pc.is_in(before[id], value_set=after[id].combine_chunks())))
    kept = pc.invert(same)
    ops = pc.if_else(known, pa.scalar("update"), pa.scalar("insert")).filter(kept)
    deletes = gone.append_column(op, pa.array(["delete"] * len(gone), pa.string()))
    return pa.concat_tables([deletes, after.filter(kept).append_column(op, ops)])


def _equal(one: Any, other: Any) -> Any:
    """Where two columns are equal, or both null, or both not a number."""
    try:
        same = pc.fill_null(pc.equal(one, other), False)
    except pa.ArrowNotImplementedError:  # lists and records
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return pa.array([mine == its for mine, its in pairs], pa.bool_())
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other)))
