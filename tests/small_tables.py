"""Small tables that any learner can take: text ids, text categories, labels or numbers, missing values, index lists.

One file serves every case: each picks its columns. The values are few, so that there are ties and equal rows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

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
