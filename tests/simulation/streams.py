"""What the simulated machines are fed: named short streams, each for what it exercises, and random ones from a seed.

All are read by the product's own sources and stream models from a small Arrow file, with text ids, text categories and
text labels, so that going on from a checkpoint takes everything that it takes in a real run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import TypeAdapter

from raydt.examples.reading import CLASSES, Reading
from raydt.learners.base import Traits
from raydt.sources.opening import open_source
from raydt.sources.options import ArrowFiles
from raydt.sources.stored import StoredSource
from raydt.streams.base import Stream
from raydt.streams.options import StreamOptions
from raydt.streams.row_stream import RowStreamOptions

SCHEMA = pa.schema(
    [
        ("op", pa.string()),
        ("id", pa.string()),
        *((name, pa.float64()) for name in "abc"),
        ("d", pa.string()),
        ("y", pa.string()),
        ("ts", pa.int64()),
        ("ones", pa.list_(pa.int32())),
    ],
    {"n_features": "16"},
)

#: Rows that the bins are made from where the learner needs such and the stream says nothing of them.
_WARMUP = 2

Row = dict[str, Any]


class Workload(NamedTuple):
    """A stream that can be opened any number of times, and how many updates make a batch where nothing else is said.

    With ``stored`` the rows are not read from the file again, which is faster; there are no dictionaries to restore.
    """

    source: ArrowFiles
    options: RowStreamOptions
    batch: int
    stored: StoredSource | None = None
    reading: Reading = CLASSES

    def open(self) -> Stream:
        """The stream from its beginning, with nothing known of its categories, labels and ids."""
        return self.options.make(self.stored or open_source(self.source, reading=self.reading))

    def fit(self, traits: Traits) -> Workload:
        """The same examples as a learner takes them: with a warm-up, or sparse features for all or some columns."""
        if traits.warmup and not self.options.warmup:
            return self._replace(options=self.options.model_copy(update={"warmup": _WARMUP}))
        if not traits.reading.needs_sparse:
            return self
        features = ["a", "d", "ones"] if traits.reading.dense else ["ones"]
        source = self.source.model_copy(update={"features": features})
        fitted = self._replace(source=source, reading=traits.reading, stored=None)
        return fitted if self.stored is None else fitted.store()

    def store(self) -> Workload:
        """The same, with the rows in memory."""
        return self._replace(stored=StoredSource(self.open().source))


def written(path: Path, table: pa.Table) -> Path:
    """``path``, once the table is in it."""
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    return path


def workload(folder: Path, name: str, rows: Sequence[Row], batch: int, model: str, **options: Any) -> Workload:
    """A stream over ``rows``, which are written to ``folder``."""
    table = pa.Table.from_pylist([{**row, "ones": ones(row)} for row in rows], SCHEMA)
    path = written(folder / f"{name}.arrow", table)
    changelog = {"op": "op"} if model == "changelog" else {}
    source = ArrowFiles(path=str(path), id="id", ts="ts", features=["a", "b", "c", "d"], **changelog)
    adapter: TypeAdapter[Any] = TypeAdapter(StreamOptions)
    return Workload(source, adapter.validate_python({"model": model, "on_error": "skip", **options}), batch)


def ones(row: Row) -> list[int]:
    """The features of a row as indices: equal rows have equal ones."""
    return [*(5 * j + int(2 * row[name]) for j, name in enumerate("abc") if row[name]), 4 + 5 * "pqr".index(row["d"])]


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


def insert_only(folder: Path) -> Workload:
    return workload(folder, "insert_only", examples(12), 4, "incremental")


def sliding_window(folder: Path) -> Workload:
    return workload(folder, "sliding_window", examples(9, 1), 4, "sliding_window", window=5)


def random_updates(folder: Path) -> Workload:
    return workload(folder, "random_updates", examples(9, 2), 4, "random_updates", insert_probability=0.6)


def update_ops(folder: Path) -> Workload:
    rows = spelled("+0 +1 +2 *1 ?2 *1 +4 *0 *4 -2 ?4 +2 *2 -0")
    return workload(folder, "update_ops", rows, 4, "changelog")


def deletion_by_value(folder: Path) -> Workload:
    """Of two equal examples the older one goes; the last has no equal any more and is refused."""
    rows = spelled("+0 +1 +2 +0 +3 =1 +4 =0 -3 +5 =5 =5")
    rows[3] |= {"id": "twin"}
    return workload(folder, "deletion_by_value", rows, 5, "changelog")


def slot_reuse(folder: Path) -> Workload:
    """Ids that come back in the batch in which they were deleted, and slots that are filled again at once."""
    rows = spelled("+0 +1 +2 -1 +1 -0 +3 +4 -4 +4 -4 +0 -2 -1 +5 +6")
    return workload(folder, "slot_reuse", rows, 4, "changelog")


def warm_up(folder: Path) -> Workload:
    """The warm-up ends inside a batch, between two checkpoints."""
    return workload(folder, "warm_up", examples(9, 3), 4, "sliding_window", warmup=6, window=7)


def short_of_warm_up(folder: Path) -> Workload:
    """The model is built only when the stream ends."""
    return workload(folder, "short_of_warm_up", examples(11, 4), 3, "incremental", warmup=20)


def refusals(folder: Path) -> Workload:
    """Unknown and duplicate ids, and a row without a label, all passed over."""
    rows = spelled("+0 +1 -7 +2 +1 +3 *9 -0 -0 +4 +4 =8 +0 -2 ?3")
    rows[9] |= {"y": None}
    return workload(folder, "refusals", rows, 4, "changelog")


def late_class(folder: Path) -> Workload:
    """The third class, and with it wider counts, comes after the first checkpoint."""
    rows = examples(6, 5) + [{**row, "id": f"z{row['id']}"} for row in examples(3, 6, "zx")]
    return workload(folder, "late_class", rows, 3, "sliding_window", window=7)


#: The short streams by name.
NAMED: dict[str, Callable[[Path], Workload]] = {
    make.__name__: make
    for make in (
        insert_only,
        sliding_window,
        random_updates,
        update_ops,
        deletion_by_value,
        slot_reuse,
        warm_up,
        short_of_warm_up,
        refusals,
        late_class,
    )
}


def random_changes(draw: random.Random, n: int) -> list[Row]:
    """A change log of any operations; now and then an id is unknown, live already, or just deleted."""
    words: list[str] = []
    live: list[int] = []
    for _ in range(n):
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


def random_workload(folder: Path, seed: int) -> Workload:
    """A stream of any model over any rows."""
    draw = random.Random(f"workload {seed}")
    n = draw.randint(8, 30)
    warmup = draw.choice((0, 0, draw.randint(1, min(n, 10))))
    rows = examples(n, draw.randrange(1000), draw.choice(("xy", "xyz")))
    model = draw.choice(
        ("incremental", "sliding_window", "random_updates", "batches", "time_window", "changelog", "deletion_log")
    )
    options: dict[str, Any] = {"warmup": warmup}
    if model == "sliding_window":
        options |= {"window": draw.randint(max(1, warmup), 15)}
    elif model == "random_updates":
        options |= {"insert_probability": draw.choice((0.5, 0.7)), "seed": draw.randrange(1000)}
    elif model == "batches":
        steps = [draw.randint(max(1, warmup), n), draw.randrange(n), draw.randint(1, n)]
        options |= {"steps": steps, "removal_order": draw.choice(("fifo", "lifo", "random"))}
    elif model == "time_window":
        options |= {"duration": draw.randint(30, 150), "warmup": 0}
        for row in rows:
            row["ts"] += draw.randrange(15)
        options |= {"lateness": draw.choice((0, 20))}
    elif model == "changelog":
        rows, options = random_changes(draw, n + 10), {}
    elif model == "deletion_log":
        log = {"id": [f"e{draw.randrange(n + 2)}" for _ in range(n // 2)]}
        log["after"] = [draw.choice((None, draw.randint(warmup, n))) for _ in log["id"]]
        options |= {"deletion_log": str(written(folder / f"{seed}.log.arrow", pa.table(log)))}
    return workload(folder, str(seed), rows, draw.choice((1, 3, 4, 7, 16)), model, **options)
