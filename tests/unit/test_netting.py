"""Two states of rows to the changes between them: what is the same is no change, whatever its type."""

from __future__ import annotations

from math import nan
from typing import Any

import pyarrow as pa
import pytest

from raydt.encoding.labels import netted

#: A type, values that are all different, and one of them in other words.
KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.float64(), [nan, 0.5, None]),
    (pa.float32(), [nan, 0.5, None]),
    (pa.int64(), [1, 2, None]),
    (pa.string(), ["", "a", None]),
    (pa.list_(pa.int32()), [[], [1, 2], None]),
    (pa.list_(pa.string()), [["a"], ["b"], None]),
    (pa.struct([("q", pa.int8())]), [{"q": 1}, {"q": None}, None]),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda one: str(one)[:12])
def test_a_row_that_stays_is_no_change_and_any_other_is(kind: pa.DataType, values: list[Any]) -> None:
    def state(chosen: list[Any]) -> pa.Table:
        return pa.table({"id": pa.array(range(len(chosen)), pa.int64()), "x": pa.array(chosen, kind)})

    before = state(values)
    assert len(netted(before, before, "id", "op")) == 0
    moved = state([*values[1:], values[0]])
    assert netted(before, moved, "id", "op")["op"].to_pylist() == ["update"] * len(values)
