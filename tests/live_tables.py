"""Delta tables that change at random, and the rows that a reader of their changes must have.

A :class:`StoryTable` draws besides what else happens to tables: see there. What deltalake does not write, features of
the protocol above all, is written into the log by hand.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from raydt.messages import message_of
from tests.small_tables import SCHEMA, derived, examples

COLUMNS = ("id", "a", "b", "y")
FEED = {"delta.enableChangeDataFeed": "true"}


def rows_of(rng: np.random.Generator, ids: list[int]) -> pa.Table:
    """Rows with these ids: two numbers and a label."""
    n = len(ids)
    labels = pa.array([f"c{k}" for k in rng.integers(0, 3, n)], pa.string())
    return pa.table({"id": pa.array(ids, pa.int64()), "a": rng.random(n), "b": rng.random(n).round(1), "y": labels})


class LiveTable:
    """A table at ``path``, with its change data feed or without."""

    columns: tuple[str, ...] = COLUMNS
    writing: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, path: Path, seed: int = 0, rows: int = 40, feed: bool = True, **given: Any) -> None:
        self.path, self.rng, self.next = str(path), np.random.default_rng(seed), rows
        write_deltalake(self.path, self.rows(list(range(rows))), configuration=FEED if feed else {}, **given)

    def rows(self, ids: list[int]) -> pa.Table:
        """Draw rows with these ids."""
        return rows_of(self.rng, ids)

    def go_on(self, seed: int) -> None:
        """Draw what changes from another seed, in another process: the newest rows may not be known here."""
        self.rng = np.random.default_rng(seed)
        self.next = 1 + max(self.live(), default=-1)

    @property
    def version(self) -> int:
        return DeltaTable(self.path).version()

    def append(self, n: int = 5) -> None:
        """Insert rows."""
        write_deltalake(self.path, self.rows([*range(self.next, self.next + n)]), mode="append", **self.writing)
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
        given = self.rows([*range(low, low + 6)])
        self.next = max(self.next, low + 6)
        table = DeltaTable(self.path).merge(given, "s.id = t.id", source_alias="s", target_alias="t")
        table.when_matched_update_all().when_not_matched_insert_all().execute()

    def overwrite(self) -> None:
        """Replace all rows by about half of them, unchanged, and new ones."""
        table = self.at(None)
        kept = table.filter(pa.array(self.rng.random(len(table)) < 0.5))
        new = self.rows([*range(self.next, self.next + 3)])
        self.next += 3
        write_deltalake(self.path, pa.concat_tables([kept.cast(new.schema), new]), mode="overwrite", **self.writing)

    def spoil(self) -> None:
        """Take their labels from about a seventh of the rows, or give some of these labels again."""
        self._label("NULL" if self.rng.random() < 0.6 else "'c1'")

    def _label(self, value: str) -> None:
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
        return pa.table(DeltaTable(self.path, version=version).to_pyarrow_table().select(self.columns))

    def live(self, version: int | None = None) -> dict[int, dict[str, Any]]:
        """Rows of a version by id."""
        return {row["id"]: row for row in self.at(version).to_pylist()}


#: Values of the column that partitions a story's table, three in each story.
PLACES = (
    "p",
    "a b",
    " ",
    "x/y",
    "50%",
    "a%20b",
    "k=v",
    "a:b",
    "a+b",
    "#1",
    "what?",
    "..",
    "caf\xe9",
    "\U0001f9ea",
    "",
    None,
)
#: Columns of a story's table: those that some learner takes.
STORED = tuple(name for name in SCHEMA.names if name not in ("op", "id", "ts"))
#: Labels of all kinds, in SQL.
LABELS = {"y": "'x'", "y_of_three": "'z'", "number": "1.7"}


class StoryTable(LiveTable):
    """A table of rows that any learner takes, whose life a seed draws.

    The life has all changes of rows, bad rows and their repair, a feed that is turned on and off, partitions of hostile
    names, columns that are added, checkpoints, cleaned logs, vacuums and former versions brought back; and now and then
    (:meth:`end`) what nothing can follow. ``may`` has the messages with which the versions that nobody has read yet may
    be refused, and ``must`` the one with which they have to be.
    """

    columns = ("id", *STORED)
    writing = {"schema_mode": "merge"}  # noqa: RUF012

    def __init__(self, path: Path, seed: int, rows: int = 24) -> None:
        self.draw = random.Random(f"story {seed}")
        self.places = dict(zip("pqr", self.draw.sample(PLACES, 3), strict=True))
        self.partitioned = self.draw.random() < 0.7
        self.may, self.must = set[str](), ""
        self.told: list[str] = []
        feed, by = self.draw.random() < 0.6, {"partition_by": ["d"]} if self.partitioned else {}
        super().__init__(path, seed, rows, feed, **by)

    def rows(self, ids: list[int]) -> pa.Table:
        """Draw rows with these ids, whose categories are the places of the story."""
        found = [{**derived(row), **row, "id": id} for id, row in zip(ids, self._examples(len(ids)), strict=True)]
        for row in found:
            row.update({name: self.places.get(row[name]) for name in ("d", "d_or_null")})
        kept = pa.schema([pa.field("id", pa.int64()), *(SCHEMA.field(name) for name in STORED)])
        return pa.Table.from_pylist(found, kept)

    def _examples(self, n: int) -> list[dict[str, Any]]:
        return examples(n, int(self.rng.integers(1 << 30)))

    def step(self) -> None:
        """Have something happen that can be followed, if it is read before a vacuum or a cleaned log."""
        rows: list[Callable[[], None]] = [self.append, self.delete, self.update, self.merge, self.overwrite, self.move]
        rest = [self.compact, self.spoil, self.repair, self.feed, self.checkpoint, self.widen, self.restore, self.strip]
        self._do(self.draw.choice(rows if self.draw.random() < 0.6 else rest))

    def purge(self) -> None:
        """Remove what old versions need."""
        self._do(self.draw.choice([self.vacuum, self.clean]))

    def end(self) -> None:
        """Have the table become one that cannot be followed any more."""
        self._do(self.draw.choice([self.rename, self.mask, self.demand, self.lose, self.clone]))

    def _do(self, what: Callable[[], None]) -> None:
        self.told.append(what.__name__)
        what()

    def read(self) -> None:
        """Take note that all versions have been read."""
        self.may.clear()

    def require_refusal(self, error: Exception) -> None:
        """Require that an error is one that the story has given reason for."""
        said = message_of(error)
        assert said is not None, error
        assert said.id in {*self.may, self.must}, (self.told, error)

    # -- rows ----------------------------------------------------------------------------------------------------

    def move(self) -> None:
        """Move about a third of the rows to another partition."""
        place = self.draw.choice([*self.places.values()])
        text = "NULL" if place is None else f"'{place}'"
        updates = {"d": text, "d_or_null": text}
        DeltaTable(self.path).update(predicate=f"id % 3 = {self.draw.randrange(3)}", updates=updates)

    def _label(self, value: str) -> None:
        updates = {name: "NULL" if value == "NULL" else label for name, label in LABELS.items()}
        DeltaTable(self.path).update(predicate=f"id % 7 = {self.draw.randrange(7)}", updates=updates)

    def repair(self) -> None:
        """Give all rows without a label one."""
        DeltaTable(self.path).update(predicate="y IS NULL", updates=LABELS)

    # -- the table -----------------------------------------------------------------------------------------------

    def feed(self) -> None:
        """Turn the change data feed on or off."""
        on = self.draw.choice(["true", "false"])
        DeltaTable(self.path).alter.set_table_properties({"delta.enableChangeDataFeed": on})

    def checkpoint(self) -> None:
        """Write a checkpoint of the log."""
        DeltaTable(self.path).create_checkpoint()

    def widen(self) -> None:
        """Add a column that nobody reads, and rows that have it."""
        more = self.rows([self.next, self.next + 1])
        self.next += 2
        wide = more.append_column(f"more_{self.version}", pa.array([1.0, None]))
        write_deltalake(self.path, wide, mode="append", schema_mode="merge")

    def restore(self) -> None:
        """Bring the version before back, if its files are still there."""
        if self.version and not {"vacuum", "clean"} & {*self.told}:
            DeltaTable(self.path).restore(self.version - 1)

    def strip(self) -> None:
        """Take from the newest commit what the protocol does not require of files that are removed."""
        kept = [
            {"remove": {name: one["remove"][name] for name in ("path", "deletionTimestamp", "dataChange")}}
            if "remove" in one
            else one
            for one in self._actions(self.version)
        ]
        self._write(self.version, kept)

    def vacuum(self) -> None:
        """Remove the files that the newest version does not need."""
        table = DeltaTable(self.path)
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        self.may.add("live.history_gone")

    def clean(self) -> None:
        """Remove the log before a checkpoint."""
        self.checkpoint()
        for version in range(self.version):
            self._commit(version).unlink(missing_ok=True)
        self.may |= {"live.history_gone", "live.unreadable_version"}  # a feature is named by the library alone

    # -- what cannot be followed ---------------------------------------------------------------------------------

    def rename(self) -> None:
        """Rename a column by column mapping: its files have the former name."""
        held = DeltaTable(self.path)
        schema, mapped = json.loads(held.schema().to_json()), {}
        for number, field in enumerate(schema["fields"]):
            field["metadata"] = {
                "delta.columnMapping.id": number + 1,
                "delta.columnMapping.physicalName": mapped.get(field["name"], f"former_{field['name']}"),
            }
        mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": str(len(schema["fields"]))}
        metadata = {
            "id": str(held.metadata().id),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": held.metadata().partition_columns,
            "configuration": {**held.metadata().configuration, **mode},
            "createdTime": 0,
        }
        protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
        self._append("live.feature", {"protocol": protocol}, {"metaData": metadata})

    def mask(self) -> None:
        """Delete a row by a deletion vector."""
        add = dict(self._some_file())
        vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
        removed = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
        add |= {"deletionVector": {**vector, "cardinality": 1}, "dataChange": True}
        self._append("live.feature", {"protocol": _protocol("deletionVectors")}, {"remove": removed}, {"add": add})

    def demand(self) -> None:
        """Require a feature of readers."""
        feature = self.draw.choice(["typeWidening", "columnMapping", "deletionVectors", "futureFeature"])
        self._append("live.feature", {"protocol": _protocol(feature)})

    def lose(self) -> None:
        """Add a file without a column that has values by the statistics of the log."""
        rows = self.rows([self.next, self.next + 1])
        self.next += 2
        held = [name for name in rows.schema.names if name not in (*LABELS, "id", *(["d"] if self.partitioned else []))]
        for name in held:
            rows = rows.drop_columns([name])
        if self.partitioned:
            rows = rows.drop_columns(["d"])
        pq.write_table(rows, Path(self.path) / "lost.parquet")
        stats = {"numRecords": 2, "nullCount": dict.fromkeys((*held, *rows.schema.names), 0)}
        add = {"path": "lost.parquet", "partitionValues": {"d": "p"} if self.partitioned else {}, "dataChange": True}
        add |= {"size": (Path(self.path) / "lost.parquet").stat().st_size, "modificationTime": 1}
        self._append("live.lost_column", {"add": {**add, "stats": json.dumps(stats)}})

    def clone(self) -> None:
        """Add a file of another table, as a shallow clone has."""
        self._append("live.outside", {"add": {**self._some_file(), "path": "s3://elsewhere/part-0.parquet"}})

    def _append(self, must: str, *actions: dict[str, Any]) -> None:
        self._write(self.version + 1, list(actions))
        self.must = must

    def _some_file(self) -> dict[str, Any]:
        one = pa.table(DeltaTable(self.path).get_add_actions()).to_pylist()[0]
        values = {name: None if value is None else str(value) for name, value in (one.get("partition") or {}).items()}
        add = {"path": one["path"], "partitionValues": values, "size": one["size_bytes"], "modificationTime": 1}
        return {**add, "dataChange": True}

    def _commit(self, version: int) -> Path:
        return Path(self.path) / "_delta_log" / f"{version:020}.json"

    def _actions(self, version: int) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._commit(version).read_text().splitlines()]

    def _write(self, version: int, actions: list[dict[str, Any]]) -> None:
        self._commit(version).write_text("".join(json.dumps(one) + "\n" for one in actions))


def _protocol(feature: str) -> dict[str, Any]:
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
