"""A table of rows of several keys that changes at random, as a topic tells it, and what each key is to get of that."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from raydt.encoding.labels import json_rows
from raydt.examples.updates import CLASSES
from raydt.sources.live.base import Part, Plan
from raydt.sources.live.kafka import Kafka, KafkaChanges
from tests.small_tables import written

KEYS = ("north", "south", "7")
TYPES = {"id": pa.int64(), "shop": pa.string(), "a": pa.float64(), "s": pa.string(), "y": pa.string()}


class ChangingTable:
    """Messages (``log``), the good rows by id (``live``), and the ``effects`` on keys, which every one names.

    ``requested`` are the ids of good rows that a deletion or a bad new row took away, in order.
    """

    def __init__(self, draw: random.Random, changes: int, *, text: bool = False, bad: float = 0.25) -> None:
        self.draw, self.text, self._bad = draw, text, bad
        self.log: list[dict[str, Any]] = []
        self.effects: list[dict[str, Any]] = []
        self.requested: list[Any] = []
        self.skipped = 0
        self._rows: dict[Any, dict[str, Any] | None] = {}  # None: the newest state cannot be used
        self._next = 0
        for _ in range(changes):
            self._change()

    @property
    def live(self) -> dict[Any, dict[str, Any]]:
        return {id: row for id, row in self._rows.items() if row is not None}

    def _row(self, id: Any) -> dict[str, Any]:
        draw = self.draw
        row = {"id": id, "shop": draw.choice(KEYS), "a": draw.random(), "s": draw.choice("pqr")}
        return {**row, "y": draw.choice(["no", "yes"])}

    def _change(self) -> None:
        draw = self.draw
        op = draw.choice("cciuuud") if self._rows else "c"
        if op == "c" or not self._rows:
            self._next += 1
            id: Any = f"k{self._next}" if self.text else self._next
        else:
            id = draw.choice([*self._rows])
        if op == "d":
            self._delete(id)
        elif op == "i":  # of an id that the table has
            self._insert_again(id)
        elif draw.random() < self._bad:
            self._spoil(op, id)
        else:
            row = self._row(id)
            self.log.append({"op": op, **row})
            self._give(self._rows.get(id), row)
            self._rows[id] = row

    def _delete(self, id: Any) -> None:
        """Some deletions name the key, most do not; now and then one of an id that is gone."""
        row = self._rows.pop(id)
        named = {"shop": row["shop"]} if row is not None and self.draw.random() < 0.2 else {}
        self.log.append({"op": "d", "id": id, **named})
        if row is not None:
            self._remove(row)
        if self._bad and self.draw.random() < 0.2:
            self.log.append({"op": "d", "id": id, **self.draw.choice([{}, {"shop": self.draw.choice([*KEYS, "new"])}])})
            self.skipped += 1

    def _insert_again(self, id: Any) -> None:
        row, there = self._row(id), self._rows[id]
        if there is None:
            self.log.append({"op": "c", **row})
            self._give(None, row)
            self._rows[id] = row
            return
        if row["shop"] == there["shop"] or not self._bad:
            return  # what a key makes of that is its own affair
        self.log.append({"op": "c", **row})
        self.skipped += 1

    def _spoil(self, op: str, id: Any) -> None:
        """A row without a label, or without a key, or with another kind of value."""
        row = {**self._row(id), **self.draw.choice([{"y": None}, {"shop": None}, {"a": "much"}])}
        self.log.append({"op": op, **row})
        self.skipped += 1
        if (there := self._rows.get(id)) is not None:
            self._remove(there)
        self._rows[id] = None

    def _give(self, before: dict[str, Any] | None, row: dict[str, Any]) -> None:
        if before is None:
            self.effects.append({"op": "insert", **row})
        elif before["shop"] == row["shop"]:
            self.effects.append({"op": "update", **row})
        else:
            self.effects.append({"op": "delete", "id": row["id"], "shop": before["shop"]})
            self.effects.append({"op": "insert", **row})

    def _remove(self, row: dict[str, Any]) -> None:
        self.effects.append({"op": "delete", "id": row["id"], "shop": row["shop"]})
        self.requested.append(row["id"])

    def file(self, path: Path) -> Path:
        """Write the effects, as a change log in which each row names its key."""
        types = {**TYPES, "id": pa.string()} if self.text else TYPES
        return written(path, pa.Table.from_pylist(self.effects, pa.schema([("op", pa.string()), *types.items()])))

    def options(self, **given: Any) -> dict[str, Any]:
        """What names the columns."""
        return {"id": "id", "features": ["a", "s"], "label": "y", "key": "shop", **given}


class Told(KafkaChanges):
    """The messages of a table as a topic gives them, ``together`` in each plan, without a broker."""

    def __init__(self, table: ChangingTable, together: int = 16) -> None:
        text = ["shop", "s", "y", *(["id"] if table.text else [])]
        self._options = self.options = Kafka(path="kafka://nowhere/topic", **table.options(text=text))
        self.name, self._reading, self._log, self._together = self.options.path, CLASSES, table.log, together

    def plan(self, after: Plan | None) -> Plan | None:
        begin = 0 if after is None else after["to"]["0"]
        end = min(len(self._log), begin + self._together)
        return {"from": {"0": begin}, "to": {"0": end}} if end > begin else None

    def read(self, plan: Plan, columns: Sequence[str]) -> Iterator[Part]:
        some = self._log[plan["from"]["0"] : plan["to"]["0"]]
        yield json_rows([json.dumps(one).encode() for one in some], self.schema())
