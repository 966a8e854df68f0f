"""One sequence of changes, written as different systems write it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

ROW = pa.struct([("id", pa.int64()), ("a", pa.float64()), ("s", pa.string()), ("y", pa.string())])

_WORDS = {
    "plain": ("insert", "update", "delete"),
    "debezium": ("r", "u", "d"),
    "flink": ("+I", "+U", "-D"),
    "delta": ("insert", "update_postimage", "delete"),
}

#: Options of a source by the name of the spelling.
SPELLINGS: dict[str, dict[str, Any]] = {**{name: {} for name in _WORDS}, "envelope": {"envelope": "debezium"}}

Change = tuple[str, int, float, str, str]


def flat(rows: Iterable[tuple[str | None, dict[str, Any] | None]]) -> pa.Table:
    """Rows (op, values) as columns, null where a value is not given."""
    return pa.table(
        {"op": pa.array([op for op, _ in rows], pa.string())}
        | {f.name: pa.array([(values or {}).get(f.name) for _, values in rows], f.type) for f in ROW}
    )


def enveloped(rows: list[tuple[Any, Any, Any]], before: pa.DataType = ROW, after: pa.DataType = ROW) -> pa.Table:
    """Rows (op, before, after) as Debezium has them."""
    return pa.table(
        {
            "before": pa.array([row[1] for row in rows], before),
            "after": pa.array([row[2] for row in rows], after),
            "source": pa.array([{"lsn": place} for place in range(len(rows))]),
            "op": pa.array([row[0] for row in rows], pa.string()),
            "ts_ms": pa.array(range(len(rows)), pa.int64()),
        }
    )


def spelled(changes: Iterable[Change], spelling: str) -> pa.Table:
    """Changes (kind, id, a, s, y), kind ``i``, ``u`` or ``d``, as one of :data:`SPELLINGS`."""
    rows: list[Any] = []
    held: dict[int, dict[str, Any]] = {}
    for kind, key, a, s, y in changes:
        row, old = {"id": key, "a": a, "s": s, "y": y}, held.get(key)
        if spelling == "envelope":
            rows += {
                "i": [("c", None, row)],
                "u": [("u", old, row)],
                "d": [("d", {"id": key}, None), (None, None, None)],
            }[kind]
        else:
            before = {"flink": "-U", "delta": "update_preimage"}.get(spelling)
            rows += [(before, old)] * (kind == "u" and before is not None)
            rows.append((_WORDS[spelling]["iud".index(kind)], row if kind != "d" else {"id": key}))
        held[key] = row
    return enveloped(rows) if spelling == "envelope" else flat(rows)
