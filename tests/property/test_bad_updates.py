"""Bad updates, feeds that are refused, and tables that hold each update once."""

from __future__ import annotations

import json
import pickle
import random
import re
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

import pipelines
import pipelines.running.loop as run
from pipelines import replay
from pipelines.config import StreamOptions, load_config
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.intake import Intake
from pipelines.validation import look_at
from raydt.errors import ProcessLostError, UpdateError
from raydt.examples.store import Subjects
from raydt.examples.updates import CARRIES_ROW, CLASSES, DELETE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.exchange.messages import injected
from raydt.folders.arrays import MANIFEST
from raydt.folders.folder import Folder
from raydt.messages import sentences
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles, JsonLinesFiles, ParquetFiles
from raydt.streams.base import Replay, Stream
from raydt.streams.deletion_log import Changelog, ChangelogStream
from tests.refusals import refused
from tests.small_tables import HOSTILE, derived, random_changes, table_of, written
from tests.small_tables import examples as examples_tables
from tests.volume import by_night, examples

# -- bad updates -----------------------------------------------------------------------------------------------------
# Under ``on_error: skip`` the live rows of a change log are the good rows of its table, whatever was bad in between.
#
# A row whose newest state cannot be used is not in the table as the model knows it: the former state has to go.

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
@pytest.mark.parametrize("seed", by_night(range(40), range(1000, 3000)))
def test_live_rows_are_the_good_rows(tmp_path: Path, seed: int) -> None:
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


# -- refused feeds ---------------------------------------------------------------------------------------------------
# Change feeds out of order: the advice about a refused update, followed, loses no row and no deletion.

#: Moves of a feed in order: at each, an id is inserted if it is not live, and else deleted or replaced.
MOVES = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=4, max_size=25)


def feed_of(moves: list[tuple[int, bool]]) -> list[tuple[str, int]]:
    feed: list[tuple[str, int]] = []
    live: set[int] = set()
    for key, replaced in moves:
        if key in live:
            feed.append(("d", key))
            live.remove(key)
        if key not in live and (replaced or not feed or feed[-1] != ("d", key)):
            feed.append(("c", key))
            live.add(key)
    return feed


def config_of(folder: Path, feed: list[tuple[str, int]], text_ids: bool, on_error: str) -> dict[str, object]:
    lines = [f"{op},{'k' * text_ids}{key},{i},{'ab'[i % 2]}\n" for i, (op, key) in enumerate(feed)]
    (folder / "feed.csv").write_text("op,k,x,y\n" + "".join(lines), encoding="utf-8")
    return {
        "source": {"kind": "csv", "path": str(folder / "feed.csv"), "id": "k", "op": "op"},
        "stream": {"model": "changelog", "on_error": on_error},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }


@examples(120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MOVES, st.integers(0, 30), st.booleans())
def test_a_swapped_pair_is_told_where_its_other_half_is(
    tmp_path: Path, moves: list[tuple[int, bool]], where: int, text_ids: bool
) -> None:
    feed = feed_of(moves)
    pairs = [i for i in range(len(feed) - 1) if feed[i][1] == feed[i + 1][1] and feed[i][0] != feed[i + 1][0]]
    if not pairs:
        return
    at = pairs[where % len(pairs)]
    swapped = [*feed[:at], feed[at + 1], feed[at], *feed[at + 2 :]]
    found = look_at(load_config(config_of(tmp_path, swapped, text_ids, "error")))
    assert found["stops_at"] == at, (swapped, found)
    first = found["bad_updates"][0]
    assert "skip" not in first, first
    remedy = sentences("runs")["early_insertion" if swapped[at][0] == "c" else "early_deletion"][1]
    assert re.search(rf"; row {at + 1} of .*feed\.csv .*\. {remedy}$", first)
    assert f"row {at + 1} of" in look_at(load_config(config_of(tmp_path, swapped, text_ids, "skip")))["bad_updates"][0]
    assert look_at(load_config(config_of(tmp_path, feed, text_ids, "error")))["ok"]  # the advice, followed


def test_a_replay_says_when_skipping_is_right(tmp_path: Path) -> None:
    """It has not read on, and so names the condition."""
    for number, feed in enumerate(([("c", 1), ("c", 1), ("d", 1)], [("c", 1), ("d", 2), ("c", 2)])):
        config = config_of(tmp_path, feed, False, "error")
        with refused("runs.refused_id", UpdateError):
            replay(config, tmp_path / f"run{number}")
        summary = json.loads((tmp_path / f"run{number}" / "summary.json").read_text(encoding="utf-8"))
        assert summary["updates"] == 1


# -- subject tables --------------------------------------------------------------------------------------------------
# What is known of subjects follows the live rows alone, in every stream, however it is cut or resumed.

MODELS: dict[str, dict[str, Any]] = {
    "incremental": {},
    "sliding_window": {"window": 5},
    "random_updates": {"insert_probability": 0.6},
    "batches": {"steps": [9, 2, 20, 0, 15], "removal_order": "random"},
    "time_window": {"duration": 60, "lateness": 20},
    "changelog": {},
    "deletion_log": {},
    "deletion_log, by subject": {},
}


def people(draw: random.Random, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with a person in the place of the text column, who has a hostile name."""
    return [{**derived(row), **row, "d": draw.choice(HOSTILE)} for row in rows]


def opened(folder: Path, model: str, draw: random.Random) -> Any:
    """What opens a stream of a model over rows of persons, whose ids come again."""
    n, kind = 60, model.partition(",")[0]
    options = {"model": kind, "on_error": "skip", **MODELS[model]}
    rows = examples_tables(n, draw.randrange(99))
    if kind == "changelog":
        rows = [{**row, "id": f"e{int(row['id'][1:]) % 12}"} for row in random_changes(draw, n)]
    elif kind != "batches":  # which reads rows again
        rows = [{**row, "id": f"e{draw.randrange(14)}", "ts": row["ts"] + draw.randrange(30)} for row in rows]
    rows = people(draw, rows)
    if kind == "deletion_log":
        by_subject = model.endswith("by subject")
        named = [draw.choice(HOSTILE[-8:]) if by_subject else f"e{draw.randrange(16)}" for _ in range(20)]
        after = sorted(draw.choices(range(n + 5), k=20))
        written(folder / "log.arrow", pa.table({"subject" if by_subject else "id": named, "after": after}))
        options |= {"deletion_log": str(folder / "log.arrow")}
    path = written(folder / "rows.arrow", table_of(rows))
    source = ArrowFiles(
        path=str(path), id="id", subject="d", ts="ts", features=["a"], **({"op": "op"} if kind == "changelog" else {})
    )
    adapter: TypeAdapter[Any] = TypeAdapter(StreamOptions)
    return lambda: adapter.validate_python(options).make(open_source(source), folder)


def whole(state: dict[str, Any]) -> dict[int, tuple[int, Any]]:
    """Birth and subject by id."""
    names = [state["subjects"][code] for code in state["subject_codes"].tolist()]
    births = zip(state["subject_born"].tolist(), names, strict=True)
    return dict(zip(state["subject_ids"].tolist(), births, strict=True))


class Twin:
    """Whose rows live, by a dictionary, with the births that a learner would note; values are deleted by nobody."""

    def __init__(self, stream: Stream) -> None:
        self.live: dict[int, tuple[int, Any]] = {}
        self._whose = {
            int(row): whose for rows in stream.source.rows() for row, whose in zip(rows.row, rows.subject, strict=True)
        }

    def add(self, batch: Any) -> None:
        for place, (op, id_) in enumerate(zip(batch.op.tolist(), batch.id.tolist(), strict=True)):
            if op == DELETE:
                self.live.pop(id_, None)
            elif op in (INSERT, UPDATE) and (id_ in self.live) == (op == UPDATE):
                self.live[id_] = batch.start + place, self._whose[int(batch.row[place])]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_a_stream_knows_whose_rows_live(model: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{model} {seed}")
    make = opened(tmp_path, model, draw)
    stream, twin, states = make(), Twin(make()), []
    replay = Replay(stream.source)
    for batch in stream.batches(draw.choice([1, 4, 100])):
        assert CARRIES_ROW[batch.op].sum() == len(batch.X)
        twin.add(batch)
        replay.add(batch)
        states.append((batch.stop, stream.state()))
    ids, born = replay.living
    for number, (stop, state) in enumerate(states):
        kept = Subjects()
        kept.restore(state)
        if number == len(states) - 1:
            kept.keep(ids, born)
            found = whole(kept.state())
            by_value = {i: one for i, one in twin.live.items() if i in found}  # deleted by value, which the twin cannot
            assert found == by_value
            assert set(found) == set(ids.tolist())
            assert set(kept.known) == {subject for _, subject in found.values()}
        if model != "batches" and number in (0, len(states) // 2):
            again = make()
            again.restore(state)
            rest = list(again.batches(7))
            assert (rest[-1].stop if rest else stop) == states[-1][0]
            end, last = again.state(), states[-1][1]
            assert whole(end) == whole(last)
            assert end["subjects"] == last["subjects"]


@pytest.mark.parametrize("seed", range(3))
def test_a_log_of_subjects_deletes_what_lives_of_them(seed: int, tmp_path: Path) -> None:
    """However the stream is cut; and each id of the subject, oldest first."""
    make = opened(tmp_path, "deletion_log, by subject", random.Random(seed))
    sequences = []
    for size in (1, 3, 100):
        stream = make()
        batches = list(stream.batches(size))
        sequences.append([(int(o), int(i), int(r)) for b in batches for o, i, r in zip(b.op, b.id, b.row, strict=True)])
        assert all(len(batch) <= size for batch in batches)
    assert sequences[0] == sequences[1] == sequences[2]
    live: dict[int, Any] = {}
    twin = Twin(make())
    for op, id_, row in sequences[0]:
        if op == DELETE:
            file, line = stream.where(row)
            named = stream._log.ids[line]
            assert file.endswith("log.arrow")
            assert live.pop(id_) == named
        else:
            assert id_ not in live
            live[id_] = twin._whose[row]


@pytest.mark.parametrize("seed", range(20))
def test_the_table_is_a_dictionary(seed: int) -> None:
    """Against a plain dictionary, with undone insertions, copies, and deletions that are applied late or at once."""
    draw = random.Random(seed)
    table, twin, seq = Subjects(), dict[int, tuple[int, Any]](), 0
    names = [*HOSTILE, *range(5), "1", ("a", 1)]
    for _ in range(60):
        what = draw.random()
        if what < 0.5:
            new = [i for i in draw.sample(range(40), draw.randrange(6)) if i not in twin]
            whose = [draw.choice(names) for _ in new]
            size = len(table)
            table.add(np.array(new, dtype=np.int64), seq + np.arange(len(new)), whose)
            if draw.random() < 0.3:
                table.cut(size)
            else:
                twin |= {i: (seq + n, one) for n, (i, one) in enumerate(zip(new, whose, strict=True))}
                seq += len(new)
        elif what < 0.8:
            gone = draw.sample(sorted(twin), min(len(twin), draw.randrange(4)))
            table.end(np.array(gone, dtype=np.int64), seq + np.arange(len(gone)))
            seq += len(gone)
            for i in gone:
                del twin[i]
        elif what < 0.9:
            table = pickle.loads(pickle.dumps(table))  # as copies do
            state = table.state()
            table.restore(state)
        else:
            kept = draw.sample(sorted(twin), len(twin) // 2)
            twin = {i: twin[i] for i in kept}
            table.keep(
                np.array(list(twin), dtype=np.int64), np.array([born for born, _ in twin.values()], dtype=np.int64)
            )
        if draw.random() < 0.5:
            asked = draw.sample(names, 3)
            ids, born, whose = table.rows_of(asked)
            assert {i: (b, w) for i, b, w in zip(ids.tolist(), born.tolist(), whose, strict=True)} == {
                i: one for i, one in twin.items() if one[1] in asked
            }
            assert born.tolist() == sorted(born.tolist())
            some = np.arange(40)
            assert table.of(some).tolist() == [twin[i][1] if i in twin else None for i in range(40)]
    assert whole(table.state()) == twin
    assert set(table.known) == {whose for _, whose in twin.values()}
    assert not any(name in repr(pickle.dumps(table)) for name in map(str, HOSTILE[-1:]) if name not in table.known)


# -- tables exactly once ---------------------------------------------------------------------------------------------
# However often a run is cut, its tables hold each update once and without a gap: those of a run that was not.
#
# The learner is the real one, in process; what is lost, or dies with the whole run, is a process that this very
# thread pretends to be. Checkpoints are taken at drawn distances, some are damaged before they are needed, and rows
# are read ahead as on Ray.

N = 160
TABLES = ("metrics", "events", "predictions", "quarantine")
COSTS = {"seconds", "rounds", "bytes_exchanged", "place"}
STREAMS: dict[str, dict[str, Any]] = {
    "changelog": {"model": "changelog"},
    "sliding_window": {"model": "sliding_window", "window": 40, "warmup": 10},
    "random_updates": {"model": "random_updates", "insert_probability": 0.6},
}


#: Where the driver may die in the end, when the stream has been applied: in this thread, not in the one that writes.
ENDS = ("run.before_compaction", "checkpoint.before_manifest", "checkpoint.after_manifest", "run.before_summary")


class Died(BaseException):
    """The driver is gone."""


@dataclass(frozen=True)
class Cut:
    """One incarnation is lost after so many batches, once the newest ``damaged`` checkpoints are.

    With ``driver`` it is the driver that dies, and the run is resumed. ``every_updates`` is where the next incarnation
    takes checkpoints.
    """

    batches: int
    damaged: int
    every_updates: int
    driver: bool


@dataclass(frozen=True)
class Case:
    stream: str
    batch_size: int
    ahead: int
    every_updates: int
    keep: int
    cuts: tuple[Cut, ...]
    end: str | None = None


distances = st.integers(3, 60)
cases = st.builds(
    Case,
    stream=st.sampled_from(sorted(STREAMS)),
    batch_size=st.integers(1, 30),
    ahead=st.sampled_from([0, 3]),
    every_updates=distances,
    keep=st.integers(1, 3),
    cuts=st.lists(
        st.builds(Cut, st.integers(1, 40), st.integers(0, 3), distances, st.booleans()), min_size=1, max_size=5
    ).map(tuple),
    end=st.sampled_from([None, *ENDS]),
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of which some are bad, and operations of which some must be refused."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 9, N) / 2.0, rng.integers(0, 5, N).astype(float)
    y = np.where((a > 2) ^ (b == 1) ^ (rng.random(N) < 0.1), "up", "down")
    a[[3, 50, 51, 90, N - 1]] = np.inf
    op = rng.choice(["insert", "insert", "insert", "delete", "update", "query"], N)
    op[:10] = "insert"
    table = {"key": [f"id {i}" for i in rng.integers(0, 60, N)], "op": op, "a": a, "b": b, "y": y}
    file = tmp_path_factory.mktemp("source") / "rows.parquet"
    pq.write_table(pa.table(table), file)
    return file


def config_of_once(source: Path, case: Case) -> dict[str, Any]:
    columns = {"id": "key", "op": "op"} if case.stream == "changelog" else {"features": ["a", "b"]}
    return {
        "source": {"kind": "parquet", "path": str(source), "label": "y", **columns},
        "stream": {**STREAMS[case.stream], "on_error": "skip"},
        "learner": {"kind": "fudyadt", "max_depth": 4, "epsilon": 0.1, "alpha": 0.0, "beta": 0.0},
        "cluster": {"backend": "in_process", "batch_size": case.batch_size},
        "checkpoint": {"every_seconds": None, "every_updates": case.every_updates, "keep": case.keep},
        "output": {"report": False, "predictions": True, "metrics_every": 25},
    }


def tables(folder: Path) -> dict[str, list[str]]:
    """All rows in order; those passed over, whose order follows the batches, sorted. NaN is equal to itself here."""
    read = {}
    for name in TABLES:
        rows = ds.dataset(folder / name).to_table().to_pylist() if (folder / name).exists() else []
        read[name] = [repr({key: value for key, value in row.items() if key not in COSTS}) for row in rows]
    read["quarantine"].sort()
    return read


def damage(folder: Path, count: int) -> None:
    numbers = sorted(int(entry.name) for entry in (folder / "checkpoints").iterdir() if entry.name.isdecimal())
    for number in numbers[1:][-count:] if count else []:  # the oldest stays: with none that is sound a run stops
        manifest = folder / "checkpoints" / str(number) / MANIFEST
        if manifest.exists():
            manifest.write_bytes(manifest.read_bytes()[:-1])


class Undisturbed(dict[str, Any]):
    """Long, and no help in a message."""

    def __repr__(self) -> str:
        return "undisturbed"


class Cutter:
    """Loses a process when enough batches of an incarnation have been recorded, and the driver in the end."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.cuts, self.end, self.batches = folder, list(case.cuts), case.end, 0

    def __call__(self, point: str) -> None:
        if point == self.end and threading.current_thread() is threading.main_thread():
            self.end = None
            raise Died
        if point != "driver.recorded" or not self.cuts:
            return
        self.batches += 1
        if self.batches >= self.cuts[0].batches:
            self.batches, cut = 0, self.cuts.pop(0)
            if (self.folder / "checkpoints").exists():
                damage(self.folder, cut.damaged)
            if cut.driver:
                raise Died
            raise ProcessLostError("the coordinator (pid 1 on here) died")


def replay_once(source: Path, case: Case, folder: Path) -> pipelines.RunResult:
    distances = iter([case.every_updates, *(cut.every_updates for cut in case.cuts), 10])

    class Uneven(Checkpointer):
        """Each incarnation takes its checkpoints elsewhere, as it does where they are taken by time; none is late."""

        def begin(self, updates: int, last: int | None) -> None:
            super().begin(updates, last)
            self._options = self._options.model_copy(update={"every_updates": next(distances)})

        def write(self, *checkpoint: Any) -> None:
            super().write(*checkpoint)
            self.settle()

    def intake(stream: Stream, size: int, every: int, _: int, barrier: Any, **others: Any) -> Intake:
        return Intake(stream, size, every, case.ahead, barrier, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "Checkpointer", Uneven)
        patch.setattr(run, "Intake", intake)
        patch.setattr(Folder, "_flush", lambda folder, path: None)  # no power fails here, and a disk is slow
        with injected(Cutter(folder, case)):
            act = partial(pipelines.replay, config_of_once(source, case), folder)
            while True:
                try:
                    return act()
                except Died:
                    act = partial(pipelines.resume, folder)


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Digest, summary metrics and tables of each stream, without checkpoints, in batches that fit no other."""
    whole = Undisturbed()
    for stream in STREAMS:
        folder = tmp_path_factory.mktemp(stream)
        ended = replay_once(source, Case(stream, 23, 0, 10_000, 1, ()), folder)
        whole[stream] = (ended.digest, ended.metrics, tables(folder))
    return whole


# Not shrunk: that takes longer than it helps, as a case is a few numbers.
@examples(15, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(case=cases)
def test_every_table_is_that_of_an_undisturbed_run(source: Path, undisturbed: dict[str, Any], case: Case) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ended = replay_once(source, case, folder)
        digest, metrics, expected = undisturbed[case.stream]
        found = tables(folder)
        for name in TABLES:
            assert found[name] == expected[name], name
        assert (ended.digest, ended.metrics) == (digest, metrics)
        parts = [len(list((folder / name).iterdir())) for name in TABLES if (folder / name).exists()]
        assert set(parts) == {1}  # compacted, and nothing hidden is left


def test_the_runs_compared_have_something_in_every_table(undisturbed: dict[str, Any]) -> None:
    _, _, found = undisturbed["changelog"]
    assert all(len(found[name]) > 5 for name in TABLES)
    reasons = " ".join(found["quarantine"])
    assert "'seq': -1" in reasons  # never became an update
    assert "no live example" in reasons  # refused
