"""Delta tables that change at random, and the rows that a reader of their changes must have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

COLUMNS = ("id", "a", "b", "y")
FEED = {"delta.enableChangeDataFeed": "true"}


def rows_of(rng: np.random.Generator, ids: list[int]) -> pa.Table:
    """Rows with these ids: two numbers and a label."""
    n = len(ids)
    labels = pa.array([f"c{k}" for k in rng.integers(0, 3, n)], pa.string())
    return pa.table({"id": pa.array(ids, pa.int64()), "a": rng.random(n), "b": rng.random(n).round(1), "y": labels})


class LiveTable:
    """A table at ``path``, with its change data feed or without."""

    def __init__(self, path: Path, seed: int = 0, rows: int = 40, feed: bool = True) -> None:
        self.path, self.rng, self.next = str(path), np.random.default_rng(seed), rows
        table = rows_of(self.rng, list(range(rows)))
        write_deltalake(self.path, table, configuration=FEED if feed else {})

    def go_on(self, seed: int) -> None:
        """Draw what changes from another seed, in another process: the newest rows may not be known here."""
        self.rng = np.random.default_rng(seed)
        self.next = 1 + max(self.live(), default=-1)

    @property
    def version(self) -> int:
        return DeltaTable(self.path).version()

    def append(self, n: int = 5) -> None:
        """Insert rows."""
        write_deltalake(self.path, rows_of(self.rng, [*range(self.next, self.next + n)]), mode="append")
        self.next += n

    def delete(self) -> None:
        """Delete about a fifth."""
        DeltaTable(self.path).delete(f"id % 5 = {self.rng.integers(5)}")

    def update(self) -> None:
        """Change about a third."""
        DeltaTable(self.path).update(predicate=f"id % 3 = {self.rng.integers(3)}", updates={"a": "a + 1"})

    def merge(self) -> None:
        """Update what is there, insert what is not."""
        low = int(self.rng.integers(self.next))
        given = rows_of(self.rng, [*range(low, low + 6)])
        self.next = max(self.next, low + 6)
        table = DeltaTable(self.path).merge(given, "s.id = t.id", source_alias="s", target_alias="t")
        table.when_matched_update_all().when_not_matched_insert_all().execute()

    def overwrite(self) -> None:
        """Replace all rows by about half of them, unchanged, and new ones."""
        table = self.at(None)
        kept = table.filter(pa.array(self.rng.random(len(table)) < 0.5))
        new = rows_of(self.rng, [*range(self.next, self.next + 3)])
        self.next += 3
        write_deltalake(self.path, pa.concat_tables([kept.cast(new.schema), new]), mode="overwrite")

    def spoil(self) -> None:
        """Take their labels from about a seventh of the rows, or give some of these labels again."""
        value = "NULL" if self.rng.random() < 0.6 else "'c1'"
        DeltaTable(self.path).update(predicate=f"id % 7 = {self.rng.integers(7)}", updates={"y": value})

    def compact(self) -> None:
        """Put small files together: no change of the rows."""
        DeltaTable(self.path).optimize.compact()

    def change(self) -> None:
        """Change something."""
        kinds = ("append", "delete", "update", "merge", "overwrite", "compact")
        getattr(self, kinds[self.rng.integers(len(kinds))])()

    def at(self, version: int | None) -> pa.Table:
        """The rows of a version."""
        return pa.table(DeltaTable(self.path, version=version).to_pyarrow_table().select(COLUMNS))

    def live(self, version: int | None = None) -> dict[int, dict[str, Any]]:
        """Rows of a version by id."""
        return {row["id"]: row for row in self.at(version).to_pylist()}
