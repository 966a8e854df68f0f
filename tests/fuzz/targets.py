"""What is mutated, and how it is read: one target for each format."""

from __future__ import annotations

import codecs
import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from pipelines.cli import cli
from pipelines.config import StreamOptions, load_config
from pipelines.operation import load_yaml
from pipelines.prediction import KeyedPredictor, interface_of, trees_of
from pipelines.run_folder import RunFolder
from pipelines.running.plans import PlanLog
from pipelines.saved_runs import load_model
from pipelines.updating import update
from raydt.arrays.blocks import SparseRows
from raydt.errors import InputError, ModelFileError
from raydt.examples.updates import CLASSES, DELETE, INSERT, Reading, UpdateBatch, fixed, history_of_live
from raydt.export import build, sentences
from raydt.folders.arrays import MANIFEST
from raydt.keyed.packing import open_keys
from raydt.learners import traits_of
from raydt.sessions.receipt import encoded
from raydt.sessions.receipt_chain import read_chain
from raydt.sessions.saved_model import SavedModel
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.live.base import Part, Plan
from raydt.sources.live.followed import FollowedSource, Step
from raydt.sources.live.kafka import Kafka, KafkaChanges
from raydt.sources.options import SourceOptions
from raydt.streams.base import Stream
from raydt.trees.shapley import explain
from tests.corpus.cases import CONFIGS, FILES
from tests.corpus.make import arrow, clean, parquet
from tests.fuzz.mutations import BY_KEY, LEARNERS, change, mutated, resealed
from tests.small_tables import spelled_changelogs as spelled

#: The configs that the project comes with.
SHOWN = Path(__file__).parents[2] / "configs"

_LIBSVM = b"".join(b"%+d 1:1 %d:1 9:0 # row %d\n" % (1 - i % 2 * 2, i % 5 + 2, i) for i in range(16))

#: Rows after which a file counts as read.
ENOUGH = 100_000

_SOURCE, _STREAM = TypeAdapter(SourceOptions), TypeAdapter(StreamOptions)


@dataclass(frozen=True)
class Target:
    """One format: valid contents, the name of the file, and what reads it."""

    name: str
    file: str
    bases: list[bytes]
    read: Callable[[Path], None]
    text: bool = False

    def try_one(self, folder: Path, draw: random.Random) -> None:
        """Write one mutation and read it; raises what reading raises."""
        file = folder / self.file
        file.write_bytes(mutated(draw.choice(self.bases), self.bases, draw, self.text))
        self.read(file)


@dataclass(frozen=True)
class FolderTarget:
    """A folder of arrays, of which one file is mutated; or also sealed again, so that no hash shows it."""

    name: str
    folder: Path
    seal: bool
    read: Callable[[Path], None]

    def try_one(self, folder: Path, draw: random.Random) -> None:
        """Write one mutation and read it; raises what reading raises."""
        copy = folder / "model"
        contents = {file.name: file.read_bytes() for file in sorted(self.folder.iterdir())}
        shared = sorted((self.folder.parent / "rows").iterdir()) if self.folder.name == "state" else []
        contents |= {f"../rows/{file.name}": file.read_bytes() for file in shared}
        if self.seal:
            contents = resealed(contents, draw)
        else:
            name = draw.choice(sorted(contents))
            contents[name] = mutated(contents[name], list(contents.values()), draw, name == MANIFEST)
        for part in (copy, folder / "rows"):
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
        for name, data in contents.items():
            (copy / name).write_bytes(data)
        self.read(copy)


@dataclass(frozen=True)
class RunTarget:
    """A run of which one JSON or YAML file has a value of another type somewhere, and a command that reads it.

    Of models by key also arrays of a checkpoint or the model are changed, and a run may have to go on from there.
    """

    name: str
    folder: Path
    rows: Path
    commands: list[list[str]]

    def try_one(self, folder: Path, draw: random.Random) -> None:
        """Change one file and run one command; raises what the command raises."""
        run, data = folder / "run", next(self.rows.iterdir())
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.folder, run)
        if draw.random() < 0.2 and ["purge"] in self.commands:
            _commanded(["purge"], run, data)
        files = [run / "config.yaml", *run.glob("*.json"), run / "log.jsonl", *run.glob("model"), *run.glob("*/[0-9]*")]
        file = draw.choice([*files, run / "summary.json"])
        if file.is_dir():
            contents = {str(part.relative_to(file)): part.read_bytes() for part in file.iterdir()}
            contents |= {f"../rows/{part.name}": part.read_bytes() for part in file.parent.glob("rows/*")}
            for name, data in resealed(contents, draw, arrays=self.commands is COMMANDS_BY_KEY).items():
                (file / name).write_bytes(data)
        elif file.suffix == ".jsonl":
            lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            change(lines, draw)
            file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        else:
            value = (
                load_yaml(file.read_text(encoding="utf-8")) if file.suffix == ".yaml" else json.loads(file.read_bytes())
            )
            change(value, draw)
            file.write_text(json.dumps(value), encoding="utf-8")
        command = draw.choice(self.commands)
        if self.commands is COMMANDS_BY_KEY and command == ["resume"]:
            (run / "summary.json").unlink()
        _commanded(command, run, data)


#: Commands, and what they get after the run.
COMMANDS = [
    ["audit"],
    ["verify"],
    ["report"],
    ["resume"],
    ["purge"],
    ["predict", "DATA", "--out", "OUT.parquet", "--overwrite"],
    ["predict", "DATA", "--explain", "0"],
    ["export", "--to", "treelite", "--out", "OUT.tl", "--overwrite"],
    ["update", "--delete", "IDS", "--dry-run"],
]

#: Of models by key.
COMMANDS_BY_KEY = [
    *(["audit"], ["audit", "--key", "north"], ["report"], ["report", "--key", "7", "--out", "OUT.html"], ["resume"]),
    ["predict", "DATA", "--out", "OUT.parquet", "--overwrite", "--on-error", "skip"],
    ["export", "--key", "south", "--to", "treelite", "--out", "OUT.tl", "--overwrite"],
]


def _commanded(words: Sequence[str], run: Path, data: Path) -> None:
    """Run a command in this process, quietly; its errors are raised."""
    ids = run.with_name("ids.csv")
    ids.write_text("id\n1\n", encoding="utf-8")
    names = {"DATA": str(data), "IDS": str(ids)}
    rest = [names.get(one, one.replace("OUT", str(run.with_name("out")))) for one in words]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        cli.main([rest[0], str(run), *rest[1:]], standalone_mode=False)


def read_data(file: Path, **options: object) -> None:
    """Every row of a file, under both policies."""
    _read(file, {"model": "incremental"}, **options)


def _read(file: Path, stream: dict[str, object], reading: Reading = CLASSES, **options: object) -> None:
    kind = {".parquet": "parquet", ".arrow": "arrow", ".arrows": "arrow"}.get(file.suffix, "csv")
    for on_error in ("skip", "error"):
        options = {"kind": kind, "path": str(file), "id": "k", **options}
        source = open_source(_SOURCE.validate_python(options), reading=reading)
        source.identity()
        chooses = stream["model"] not in ("incremental", "changelog")
        live: set[int] | None = set() if chooses else None
        _drain(_STREAM.validate_python({**stream, "on_error": on_error}).make(source), live)


def read_log(file: Path) -> None:
    """A deletion log beside good rows."""
    source = open_source(_SOURCE.validate_python({"kind": "csv", "path": str(FILES / "clean.csv"), "id": "k"}))
    _drain(_STREAM.validate_python({"model": "deletion_log", "deletion_log": str(file)}).make(source))


def read_config(file: Path) -> None:
    """A config, which must read back from what it resolves to."""
    config = load_config(file)
    again = load_config(load_yaml(config.to_yaml()))
    assert again.model_hash() == config.model_hash(), "the config does not read back to itself"


def read_receipts(file: Path) -> None:
    """A chain of receipts, each line of which is the only spelling of its values."""
    read = read_chain(file)
    assert b"".join(encoded(entry) + b"\n" for entry in read.entries) == file.read_bytes(), "a line has two spellings"


def read_model(folder: Path) -> None:
    """A model or a state, and its predictions; a state also takes updates."""
    read_saved(load_model(folder))


def read_keys(folder: Path) -> None:
    """Models or states by key: each as one of its own, which has the place of its key, and all of them in a session."""
    saved = open_keys(folder)
    if saved is None:
        raise ModelFileError("a folder of one model")
    keys = list(saved.keys())
    assert len(set(keys)) == len(keys), "a key twice"
    assert [key for key in keys if key not in saved] == [], "a key is not in its group"
    for key in keys:
        read_saved(saved.saved(key))
    KeyedPredictor(saved).load(keys)


def read_saved(saved: SavedModel) -> None:
    """A model or a state, and its predictions; a state also takes updates."""
    draw = np.random.default_rng(0)
    X, sparse = np.round(draw.normal(size=(64, len(saved.features.names))), 1) + 0.0, None
    if saved.features.sparse:
        ones = draw.integers(0, 2, size=64)
        sparse = SparseRows.of_lengths(
            ones, draw.integers(0, saved.features.sparse, int(ones.sum())), saved.features.sparse
        )
    predicted = saved.predictor().predict(X, **({} if sparse is None else {"sparse": sparse}))
    if saved.classes:
        assert ((predicted >= 0) & (predicted < max(2, len(saved.classes)))).all(), "a prediction is no class"
        predicted = np.minimum(predicted, len(saved.classes) - 1)
    with suppress(InputError):  # leaves of naive Bayes, or features that nobody has counted
        trees, interface = trees_of(saved), interface_of(saved)
        some = None if sparse is None else sparse[np.arange(3)]
        if saved.features.sparse < 1 << 20:  # a contribution of each feature takes memory
            explain(trees, X[:3], some)
        for tree in range(min(trees.trees, 3)):
            sentences(trees, X[:3], some, tree, interface)
        build(trees, interface, "treelite")
    if saved.is_state:
        saved.learner.audit(
            saved.options, saved.features, saved.arrays, history_of_live(saved.arrays, saved.groups, saved.features),
            saved.groups,
        )  # fmt: skip
        _update(saved, X, predicted if np.isfinite(predicted).all() else np.zeros(64), sparse)


def _update(saved: SavedModel, X: npt.NDArray[np.float64], y: npt.NDArray[Any], sparse: SparseRows | None) -> None:
    """Insert rows into a state, every other time with weights, and delete half of what it had."""
    session = InProcessSession(saved.learner, saved.options, saved.features)
    session.restore(saved.arrays, saved.groups)
    store = session.coordinator.store
    live = np.sort(store.id[store.slots()])
    gone = live[::2]
    fresh = np.setdiff1d(np.arange(len(X) + len(live)), live)[: len(X)]
    op = np.repeat(np.array([INSERT, DELETE], dtype=np.int8), [len(X), len(gone)])
    ids, row = np.concatenate([fresh, gone]), np.full(len(op), -1)
    seq, classes = int(saved.arrays["seq"][0]), len(saved.classes)
    weight = None
    if traits_of(saved.options).reading.weights and len(live) % 2:
        weight = np.resize(fixed(np.array([0.0, 0.3, 1.0, 2.5])), len(X))
    result = session.apply(UpdateBatch(seq, op, ids, X, y, classes, row, sparse=sparse, weight=weight))
    assert result.applied == len(op), "an update was refused"
    session.finish()
    assert session.statistics()["active"] == len(live) + len(X) - len(gone), "examples are lost"


def _drain(stream: Stream, live: set[int] | None = None) -> None:
    """Take every update; ``live`` are the examples so far, where the stream itself chooses what is deleted."""
    done = 0
    for batch in stream.batches(4096):
        for op, key in zip(batch.op.tolist(), batch.id.tolist(), strict=True) if live is not None else ():
            assert (key in live) == (op == DELETE), "a live id is inserted, or an unknown one deleted"
            live ^= {key}
        assert np.isfinite(batch.X).all(), "a feature is not finite"
        assert not np.signbit(batch.X[batch.X == 0]).any(), "a zero is negative"
        assert batch.n_classes <= len(stream.source.classes)
        assert (batch.y < max(1, batch.n_classes)).all(), "a label is no class"
        assert batch.weight is None or len(batch.weight) == len(batch.X), "rows without a weight"
        done += len(batch)
        if done > ENOUGH:
            return


def data_targets() -> list[Target]:
    """The targets that need no model."""
    table, coded = clean(), clean().set_column(3, "s", clean()["s"].dictionary_encode())
    views = clean().set_column(3, "s", clean()["s"].cast(pa.string_view()))
    csv = (FILES / "clean.csv").read_bytes()
    logs = [(FILES / name).read_bytes() for name in ("log.csv", "log-back.csv", "log-infinite.csv")]
    parquets = [
        parquet(table, compression="none", row_group_size=6),
        parquet(coded, compression="zstd"),
        parquet(table, compression="snappy", use_dictionary=False, data_page_version="2.0"),
        _delta(table),
        parquet(table, compression="none", use_byte_stream_split=["a"], use_dictionary=False, write_page_index=True),
    ]
    tables = (table, coded, views)
    files = [arrow(t, compression=c) for t in tables for c in (None, "zstd", "lz4")]
    streams = [arrow(t, stream=True, compression=c) for t in tables for c in (None, "lz4")]
    names = [*(CONFIGS / f"{name}.yaml" for name in ("bom", "octal", "small-number")), *sorted(SHOWN.glob("*.yaml"))]
    configs = [file.read_bytes() for file in names]
    timed = [_timed(stamps) for stamps in (True, False)]
    twice = table.set_column(0, "k", pa.array([place % 7 for place in range(len(table))]))
    log_table = pa.table({"id": [2, 0, 7], "after": pa.array([5, 12, None])})
    receipts = [(Path(__file__).parents[1] / "former" / "receipts-1.jsonl").read_bytes()]
    return [
        Target("receipts", "r.jsonl", receipts, read_receipts, text=True),
        Target("parquet", "t.parquet", parquets, read_data),
        Target("arrow file", "t.arrow", files, read_data),
        Target("arrow stream", "t.arrows", streams, read_data),
        Target("csv", "t.csv", [csv, *((FILES / n).read_bytes() for n in ("bom.csv", "quoted.csv"))], read_data, True),
        Target("weighted csv", "t.csv", [_text(_weighted())], _read_weighted, True),
        Target("weighted parquet", "t.parquet", [parquet(_weighted())], _read_weighted),
        Target("changelog", "t.csv", [(FILES / "changelog.csv").read_bytes()], _read_changelog, True),
        Target("envelope", "t.parquet", [parquet(_changes(), compression=c) for c in ("none", "zstd")], _read_envelope),
        Target("timed csv", "t.csv", timed, _read_timed, True),
        Target("permuted csv", "t.csv", timed, partial(_read_timed, minutes=130, permutation=3), True),
        Target("windowed csv", "t.csv", [csv, _text(twice)], _read_windowed, True),
        Target("libsvm", "t.libsvm", [_LIBSVM, codecs.BOM_UTF8 + _LIBSVM.replace(b":1", b":1e0")], _read_libsvm, True),
        Target("csv.gz", "t.csv.gz", [(FILES / "clean.csv.gz").read_bytes()], read_data),
        Target("config", "t.yaml", configs, read_config, True),
        Target("deletion log", "log.csv", logs, read_log, True),
        Target("topic", "t.jsonl", [_topic(_plain)], _read_topic, True),
        Target("enveloped topic", "t.jsonl", [_topic(_enveloped)], partial(_read_topic, envelope="debezium"), True),
        Target("plans", "plans.jsonl", [PLANS], _read_plans, True),
        Target("parquet log", "log.parquet", [parquet(log_table), parquet(log_table, compression="none")], read_log),
    ]


def _read_changelog(file: Path) -> None:
    _read(file, {"model": "changelog"}, op="op")


def _read_weighted(file: Path) -> None:
    _read(file, {"model": "incremental"}, Reading(weights=True), weight="w")


def _read_libsvm(file: Path) -> None:
    _read(file, {"model": "incremental"}, Reading(sparse=True), id=None, kind="libsvm")


def _read_envelope(file: Path) -> None:
    _read(file, {"model": "changelog"}, id="id", envelope="debezium")


class _Message(NamedTuple):
    """A message of a topic: a line, without which it is a tombstone; its key."""

    line: bytes

    def value(self) -> bytes | None:
        return self.line if not self.line.startswith(b"!") else None

    def key(self) -> bytes:
        return self.line.removeprefix(b"!")


class _Topic(KafkaChanges):
    """The lines of a file as the messages of a topic, without a broker."""

    def __init__(self, options: Kafka, lines: Sequence[bytes]) -> None:
        self.name, self._options, self._reading, self._lines = options.path, options, CLASSES, lines

    def plan(self, after: Plan | None) -> Plan | None:
        begin = 0 if after is None else after["to"]["0"]
        end = min(len(self._lines), begin + 5)
        return {"from": {"0": begin}, "to": {"0": end}} if end > begin else None

    def read(self, plan: Plan, columns: Sequence[str]) -> Iterator[Part]:
        yield self._rows([_Message(line) for line in self._lines[plan["from"]["0"] : plan["to"]["0"]]])


def _read_topic(file: Path, **options: Any) -> None:
    """Every message, under both policies; the ids that are live at the end are those of a plain replay."""
    given = Kafka(path="kafka://nowhere/topic", id="id", features=["a", "s"], label="y", text=["s", "y"], **options)
    for on_error in ("skip", "error"):
        source = FollowedSource(given, _Topic(given, file.read_bytes().split(b"\n")))
        _drain(_STREAM.validate_python({"model": "changelog", "on_error": on_error}).make(source))


def _read_plans(file: Path) -> None:
    """Plans of a run, each of which is as it was written."""
    known = PLANS.splitlines()
    log = PlanLog(RunFolder(file.parent), grows=False)
    for number in range(10):
        step = log.find(number)
        assert step is None or b'"version": %d' % step.plan["version"] in known[step.number], "another plan"


def _read_timed(file: Path, minutes: int = 10, permutation: int | None = None) -> None:
    options = {"ts": "t", "permutation": permutation}
    column = open_source(_SOURCE.validate_python({"kind": "csv", "path": str(file), "id": "k", **options})).require_ts()
    lengths = {"duration": 60 * minutes, "lateness": 30 * minutes}
    stream = lengths if column.kind == "integer" else {key: f"{seconds}s" for key, seconds in lengths.items()}
    _read(file, {"model": "time_window", **stream}, **options)


def _read_windowed(file: Path) -> None:
    _read(file, {"model": "sliding_window", "window": 4})
    _read(file, {"model": "random_updates"})
    _read(file, {"model": "batches", "steps": [6, 2, 9, 1.0]})


def _insert(state: Path, file: Path) -> None:
    update(state, insert=file, dry_run=True)


def _delete(state: Path, file: Path) -> None:
    update(state, delete=file, dry_run=True)


def _timed(stamps: bool) -> bytes:
    """The good rows with event times, some of them out of order."""
    minutes = [0, 1, 3, 2, 5, 9, 8, 14, 15, 19, 17, 30, 31, 44, 45, 60]
    texts = [f"2024-05-31 12:{m:02d}:00" if m < 60 else "2024-05-31T13:00:00.5" for m in minutes]
    return _text(clean().append_column("t", pa.array(texts if stamps else [60 * m for m in minutes])))


def _weighted() -> pa.Table:
    """The good rows with weights."""
    return clean().append_column("w", pa.array([0.5 * (place % 4) for place in range(16)]))


def _text(table: pa.Table) -> bytes:
    """The bytes of a CSV file."""
    sink = io.BytesIO()
    pacsv.write_csv(table, sink)
    return sink.getvalue()


def _changes() -> pa.Table:
    inserts = [("i", key, 0.5 * key, "rg"[key % 2], "ab"[key % 3 == 0]) for key in range(8)]
    return spelled([*inserts, ("u", 3, 7.5, "b", "a"), ("d", 1, 0.0, "", ""), ("i", 1, 2.5, "r", "b")], "envelope")


def _plain(op: str, row: dict[str, Any]) -> dict[str, Any]:
    return {"op": op, **row}


def _enveloped(op: str, row: dict[str, Any]) -> dict[str, Any]:
    return {"op": op, "before": row if op != "c" else None, "after": row if op != "d" else None}


def _topic(spell: Callable[[str, dict[str, Any]], dict[str, Any]]) -> bytes:
    """Changes of eight rows, some of which come back, and a tombstone."""
    rows = [{"id": n, "a": n / 2, "s": "pq"[n % 2], "y": "xyz"[n % 3]} for n in range(8)]
    told = [("c", row) for row in rows] + [("u", {**rows[3], "a": 9.0}), ("d", rows[1]), ("c", rows[1])]
    return b"\n".join([*(json.dumps(spell(*one)).encode() for one in told), b"!2"])


def _plans() -> bytes:
    """Plans as a run keeps them."""
    with tempfile.TemporaryDirectory() as place:
        log = PlanLog(RunFolder(place))
        for number in range(4):
            log.keep(Step(number, 10 * number, {"version": number}))
        return (Path(place) / "plans.jsonl").read_bytes()


PLANS = _plans()


def _delta(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    encodings = {"k": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY", "y": "DELTA_LENGTH_BYTE_ARRAY"}
    pq.write_table(table, sink, use_dictionary=False, column_encoding=encodings, compression="none")
    return sink.getvalue()


def all_targets(models: Path | None) -> list[Target | FolderTarget | RunTarget]:
    """All targets; ``models`` holds the folders ``model`` and ``state``, without which these are left out."""
    targets: list[Target | FolderTarget | RunTarget] = [*data_targets()]
    if models is not None:
        later = clean().set_column(0, "k", pa.array(range(100, 116)))
        state = models / "state"
        targets += [
            Target("update insert", "t.csv", [_text(later)], partial(_insert, state), True),
            Target("update parquet", "t.parquet", [parquet(later)], partial(_insert, state)),
            Target("update delete", "d.csv", [b"id\n0\n7\n15\n"], partial(_delete, state), True),
        ]
        targets += [
            FolderTarget(
                f"{name}{f' {learner}' * (learner != '.')}{' resealed' * seal}",
                models / learner / name,
                seal,
                read_model,
            )
            for learner in (".", *LEARNERS)
            for name in ("model", "state")
            for seal in (False, True)
        ]
        targets += [
            RunTarget(
                f"run {learner}",
                models / learner / "run",
                models.parent / f"rows {learner}",
                COMMANDS_BY_KEY if learner in BY_KEY else COMMANDS,
            )
            for learner in (*LEARNERS, *BY_KEY)
        ]
        targets += [
            FolderTarget(f"{name} {learner} resealed", models / learner / name, True, read_keys)
            for learner in BY_KEY
            for name in ("model", "state")
        ]
    return targets
