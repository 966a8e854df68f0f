"""Small tables with every kind of column, change logs, and a table that changes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from raydt.encoding.labels import json_rows
from raydt.examples.updates import CLASSES
from raydt.sources.live.base import Part, Plan
from raydt.sources.live.kafka import Kafka, KafkaChanges

# -- small tables ----------------------------------------------------------------------------------------------------
# Small tables that any learner can take: text ids, text categories, labels or numbers, missing values, index lists.
#
# One file serves every case: each picks its columns. The values are few, so that there are ties and equal rows.

SCHEMA = pa.schema(
    [
        ("op", pa.string()),
        ("id", pa.string()),
        *((name, pa.float64()) for name in "abc"),
        ("d", pa.string()),
        ("a_or_null", pa.float64()),
        ("d_or_null", pa.string()),
        ("y", pa.string()),
        ("y_of_three", pa.string()),
        ("number", pa.float64()),
        ("ts", pa.int64()),
        ("ones", pa.list_(pa.int32())),
        ("weight", pa.float64()),
    ],
    {"n_features": "16"},
)

Row = dict[str, Any]


def columns(*, dense: bool, sparse: bool, missing: bool) -> list[str]:
    """The columns of the features of rows with numbers and categories, with index lists, or with both."""
    a, d = ("a_or_null", "d_or_null") if missing else ("a", "d")
    if sparse:
        return [a, d, "ones"] if dense else ["ones"]
    return [a, "b", "c", d]


def label(classes: int) -> str:
    """The column of the labels: that of two classes, of three, or of numbers (0)."""
    return {0: "number", 2: "y"}.get(classes, "y_of_three")


def written(path: Path, table: pa.Table) -> Path:
    """``path``, once the table is in it."""
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    return path


def table_of(rows: Sequence[Row], width: int = 16) -> pa.Table:
    """A table of rows; what they do not say themselves follows from what they say, so that equal rows are equal."""
    schema = SCHEMA.with_metadata({"n_features": str(width)})
    whole = [row if "number" in row else {**derived(row), **row} for row in rows]
    return pa.Table.from_pylist(whole, schema)


#: Names that raydt's own files have as keys or values, that look like numbers or nothing, or are hard to print.
HOSTILE = (
    *("completed", "status", "model_digest", "null", "NaN", "nan", "", " ", "0", "-0.0", "1e5", "true", "e0"),
    *("a,b", 'say "so"', "two\nlines", "../up", "\u202eright to left", "\U0001f9ea", "cafe\u0301", "caf\xe9", "\x00"),
    "long" * 40,
)
#: Possible sparse features of hostile rows.
WIDE = 1 << 20


class Hostile:
    """Changes what the numbers and names of rows are, and never which of them are equal, or their order.

    Numbers are multiplied by a power of two and moved by an offset, each column by its own; categories, labels and ids
    get hostile names; sparse features get indices up to the last of :data:`WIDE`.
    """

    def __init__(self, draw: random.Random) -> None:
        scale = lambda: draw.choice((2.0**-40, 2.0**-10, 1.0, 2.0**30))  # noqa: E731
        self._numbers = {name: (scale(), draw.choice((0.0, 0.0, -1.0, 2.0**12))) for name in "abc"}
        self._label = scale(), draw.choice((0.0, 2.0**30))
        names = draw.sample(HOSTILE, len(HOSTILE))
        self._values = dict(zip("pqrxyz", names, strict=False))
        self._ids = names[6:]
        self._index = draw.choice((1, (WIDE - 1) // 15))

    def id(self, name: str) -> str:
        """An id in the place of ``e<number>``: a hostile one for small numbers."""
        place = int(name[1:])
        return self._ids[place] if place < len(self._ids) else name

    def row(self, row: Row) -> Row:
        """The row, complete."""
        found = {**derived(row), **row}
        for name, (scale, offset) in self._numbers.items():
            for column in (name, f"{name}_or_null"):
                if found.get(column) is not None:
                    found[column] = (found[column] + offset) * scale
        for column in ("d", "d_or_null", "y", "y_of_three"):
            found[column] = self._values.get(found[column], found[column])
        if found["number"] is not None:
            found["number"] = found["number"] * self._label[0] + self._label[1]
        found["ones"] = [index * self._index for index in found["ones"]]
        return {**found, "id": self.id(found["id"])}


def derived(row: Row) -> Row:
    """The columns that other learners take of a row: missing values, a third class, a number, and indices."""
    indices = [
        *(5 * j + int(2 * row[name]) for j, name in enumerate("abc") if row[name]),
        4 + 5 * "pqr".index(row["d"]),
    ]
    return {
        "a_or_null": None if row["b"] == row["c"] == 1.0 else row["a"],
        "d_or_null": None if row["b"] == 0.0 and row["d"] == "p" else row["d"],
        "y_of_three": "z" if row["y"] == "x" and row["c"] > 0.5 else row["y"],
        "number": None if row["y"] is None else "xyz".index(row["y"]) * 1.7 - row["c"] / 3,
        "ones": indices,
        "weight": 0.5 * (1 + "pqr".index(row["d"])),
    }


def examples(n: int, seed: int = 0, classes: str = "xy") -> list[Row]:
    """Examples with few distinct values, so that there are ties and equal rows, and a label that needs two features."""
    draw = random.Random(seed)
    rows = []
    for i in range(n):
        a, b, c = (draw.randrange(4) / 2 for _ in range(3))
        d = draw.choice("pqr")
        y = classes[(a > b) ^ (d == "r")] if draw.random() > 0.15 else draw.choice(classes)
        rows.append({"op": "insert", "id": f"e{i}", "a": a, "b": b, "c": c, "d": d, "y": y, "ts": 10 * i})
    return rows


def spelled(text: str, seed: int = 0) -> list[Row]:
    """A change log from words: ``+3`` (insert e3), ``-3``, ``*3`` (update), ``?3`` (query), ``=3`` (delete by value).

    Inserts, queries and deletions by value of one number carry the same row, updates another one each.
    """
    numbers = [int(word[1:]) for word in text.split()]
    base = examples(max(numbers) + 1, seed)
    other = examples(len(numbers), seed + 1)
    rows = []
    for place, (word, number) in enumerate(zip(text.split(), numbers, strict=True)):
        op = {"+": "insert", "-": "delete", "*": "update", "?": "query", "=": "delete_value"}[word[0]]
        values = other[place] if op == "update" else base[number]
        rows.append({**values, "op": op, "id": f"e{number}", "ts": place})
    return rows


def random_changes(draw: random.Random, n: int, inserts: int = 0) -> list[Row]:
    """A change log of any operations, inserts first; now and then an id is unknown, live already, or just deleted."""
    words = [f"+{number}" for number in range(inserts)]
    live = list(range(inserts))
    for _ in range(n - inserts):
        number = draw.choice(live) if live and draw.random() < 0.9 else draw.randrange(n)
        kind = draw.choices("+-*?=", (8, 4, 3, 1, 1))[0]
        if kind == "+" and draw.random() < 0.9:
            number = draw.choice([i for i in range(n) if i not in live])
        if kind in "-=" and number in live:
            live.remove(number)
        elif kind == "+" and number not in live:
            live.append(number)
        words.append(f"{kind}{number}")
    return spelled(" ".join(words), draw.randrange(1000))


# -- changelogs ------------------------------------------------------------------------------------------------------
# One sequence of changes, written as different systems write it.

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


def spelled_changelogs(changes: Iterable[Change], spelling: str) -> pa.Table:
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


# -- changing table --------------------------------------------------------------------------------------------------
# A table of rows of several keys that changes at random, as a topic tells it, and what each key is to get of that.

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
