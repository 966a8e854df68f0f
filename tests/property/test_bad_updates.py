"""Under ``on_error: skip`` the live rows of a change log are the good rows of its table, whatever was bad in between.

A row whose newest state cannot be used is not in the table as the model knows it: the former state has to go.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydt.examples.updates import CLASSES, DELETE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.sources.divided import open_source
from raydt.sources.options import JsonLinesFiles, ParquetFiles
from raydt.streams.deletion_log import Changelog, ChangelogStream

KINDS = {"parquet": ParquetFiles, "jsonl": JsonLinesFiles}
NAMES = ("id", "a", "s", "y")


class Table:
    """A table that changes at random, as a log in one spelling, and its good rows."""

    def __init__(self, draw: random.Random, *, envelope: bool, kind: str, text: bool) -> None:
        self.draw, self.envelope, self.kind, self.text = draw, envelope, kind, text
        self.rows: dict[Any, dict[str, Any] | None] = {}  # by id; None: the newest state cannot be used
        self.next = self.bad = 0
        self.log: list[dict[str, Any]] = []
        for _ in range(draw.randrange(20, 60)):
            self._change()

    @property
    def live(self) -> dict[Any, tuple[Any, ...]]:
        return {id: (row["a"], row["y"]) for id, row in self.rows.items() if row is not None}

    def _change(self) -> None:
        known = [*self.rows]
        op = self.draw.choice("iiudu") if known else "i"
        id = self._new() if op == "i" else self.draw.choice(known)
        row = {"id": id, "a": self.draw.random(), "s": self.draw.choice("pq"), "y": self.draw.choice(["no", "yes"])}
        if op == "d":
            del self.rows[id]
            self._write("d", {"id": id}, None)
            return
        before = None if op == "i" or self.draw.random() < 0.5 else {**row, "a": 0.5}
        if self.draw.random() < 0.6:
            self.rows[id] = row
            self._write(op, before, row)
            return
        self.bad += 1
        self.rows[id] = None
        spoilt = self.draw.choice(["label", "feature", "kind", "moved", "after"])
        if spoilt == "moved" and self.envelope and op == "u":
            before = {**row, "a": 0.5}
            row["id"] = self._new()
            del self.rows[id]  # what its new id stands for is known to nobody
        elif spoilt == "after" and self.envelope and op == "u":
            before = {**row, "a": 0.5}
            self._write(op, before, None)
            return
        elif spoilt == "kind" and self.kind == "jsonl":
            row["a"] = [1]  # the line is no row of the schema
        else:
            row["y" if spoilt == "label" else "a"] = None
        self._write(op, before, row)

    def _new(self) -> Any:
        self.next += 1
        return f"k{self.next}" if self.text else self.next

    def _write(self, op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        if self.envelope:
            self.log.append({"before": before, "after": after, "op": {"i": "c"}.get(op, op)})
        else:
            self.log.append({"op": op, **dict.fromkeys(NAMES), **(before if after is None else after)})

    def file(self, folder: Path) -> Path:
        path = folder / f"log.{self.kind}"
        id = pa.string() if self.text else pa.int64()
        fields = [pa.field(n, t) for n, t in zip(NAMES, (id, pa.float64(), pa.string(), pa.string()), strict=True)]
        row = pa.struct(fields)
        inside = [pa.field("before", row), pa.field("after", row)] if self.envelope else fields
        if self.kind == "parquet":
            pq.write_table(pa.Table.from_pylist(self.log, pa.schema([*inside, pa.field("op", pa.string())])), path)
        else:  # the first lines say what the columns hold
            good = {"id": "k0" if self.text else 0, "a": 0.5, "s": "p", "y": "no"}
            first = [{"before": good, "after": good, "op": "m"}] if self.envelope else [{**good, "op": "m"}]
            path.write_text("".join(json.dumps(line) + "\n" for line in first + self.log))
        return path


def updates(stream: ChangelogStream, draw: random.Random) -> Iterator[UpdateBatch]:
    """Updates in batches of any size; now and then the stream goes on from its state."""
    while (batch := next(stream.batches(draw.randrange(1, 9)), None)) is not None:
        yield batch
        if draw.random() < 0.2:
            stream.restore(stream.state())


def applied(live: dict[Any, tuple[Any, ...]], batch: UpdateBatch, classes: list[str]) -> list[int]:
    """Apply a batch as a model does, and return the positions of what it refuses."""
    refused, rows = [], iter(zip(batch.X[:, 0].tolist(), batch.y.tolist(), strict=True))
    for at, op in enumerate(batch.op.tolist()):
        assert op != QUERY
        name, row = batch.name(at), None if op == DELETE else next(rows)
        if (name in live) == (op == INSERT):
            refused.append(at)
        elif op == DELETE:
            del live[name]
        else:
            assert row is not None
            live[name] = row[0], classes[row[1]]
    return refused


def one_log(folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    envelope, kind, text = draw.random() < 0.5, draw.choice([*KINDS]), draw.random() < 0.5
    warmup = draw.choice([0, 0, 3, 9])
    table = Table(draw, envelope=envelope, kind=kind, text=text)
    options = {"envelope": "debezium"} if envelope else {}
    columns: dict[str, Any] = {"features": ["a"], "label": "y", "id": "id", "op": "op"}
    source = open_source(KINDS[kind](path=str(table.file(folder)), **columns, **options))
    stream = Changelog(on_error="skip", warmup=warmup).make(source)
    live: dict[Any, tuple[Any, ...]] = {}
    seq = skipped = 0
    for batch in updates(stream, draw):
        assert batch.start == seq
        assert set(batch.op[: max(0, batch.warmup - seq)].tolist()) <= {INSERT}
        seq = batch.stop
        skipped += len(stream.take_skipped())
        for at in applied(live, batch, source.classes):
            assert batch.tolerated is not None
            assert batch.tolerated[at]
    skipped += len(stream.take_skipped())
    assert live == table.live
    assert skipped == table.bad


@pytest.mark.turns(15)
@pytest.mark.parametrize("seed", range(40))
def test_live_rows_are_the_good_rows(tmp_path: Path, seed: int) -> None:
    one_log(tmp_path, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_live_rows_are_the_good_rows_of_any_log(tmp_path: Path, seed: int) -> None:
    one_log(tmp_path, seed)


@pytest.mark.parametrize("update", [{"a": None}, {"a": 2.0}])
def test_a_live_row_that_goes_ends_the_warmup(tmp_path: Path, update: dict[str, Any]) -> None:
    """A bad new row and a good one both end it."""
    rows = [{"op": "i", "id": id, "a": 0.5, "y": "no"} for id in range(4)]
    rows.append({**rows[2], "op": "u", **update})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    options = {"features": ["a"], "label": "y", "id": "id", "op": "op"}
    source = open_source(ParquetFiles(path=str(tmp_path / "log.parquet"), **options), reading=CLASSES)
    stream = Changelog(on_error="skip", warmup=5).make(source)
    warm, last = stream.batches(9)
    assert (warm.id.tolist(), warm.warmup) == ([0, 1, 2, 3], 5)
    assert (last.op.tolist(), last.warmup, last.ends_warmup) == ([UPDATE if update["a"] else DELETE], 4, True)
