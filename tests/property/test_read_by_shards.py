"""Whole runs whose shards read the rows of the warm-up themselves, against runs to which rows are sent.

The shards are in this process and only Ray's calls are left out: config, source, stream, tables and messages are those
of a run. Every kind of source that shards can read, with all that changes what a row is; and those they cannot read, of
which ``validate`` says why.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.running import intake as incarnations
from pipelines.validation import look_at
from raydt.errors import ConfigError, InputError, RaydtError
from raydt.examples.updates import Features, UpdateBatch
from raydt.learners.base import Learner, WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sources import divided
from raydt.sources.divided import BlockReport, DividedReading, Opening, SourceFeatures
from tests.nets.test_runs import HOW
from tests.refusals import refused

ROWS, WARMUP, BLOCK = 170, 120, 32
BAD = 40, 90, 150  #: Bad rows, two in the warm-up: by columns of two shards, and by a label.
LEARNERS: dict[str, dict[str, Any]] = {
    "fudyadt": {"kind": "fudyadt", "epsilon": 0.2, "max_depth": 4, "feature_groups": 3},
    "gbdt": {"kind": "gbdt", "max_iter": 2, "feature_groups": 3, "objective": "multiclass", "update_every": 20},
    # What a lazy forest logs depends on when somebody looks.
    "forest": {"kind": "forest", "n_estimators": 3, "max_depth": 3, "feature_groups": 3, "rebuild": "eager"},
    "sparse_tree": {"kind": "sparse_tree", "finder": "updgini", "max_depth": 4, "feature_groups": 3},
    "best_split": {"kind": "best_split", "finder": "auto", "query_every": 7, "feature_groups": 3},
}
SPARSE = "gbdt", "sparse_tree", "best_split"  #: Learners that take lists.
DENSE = "fudyadt", "gbdt", "forest"


# -- shards in this process -------------------------------------------------------------------------------------------


class ReadingSession(InProcessSession):
    """As :class:`actors.session.RaySession` has its shards read."""

    def __init__(self, learner: Learner, options: Any, features: Features, shards: int, plan: WorkPlan) -> None:
        super().__init__(learner, options, features, shards, plan)
        self.reads, self.of = learner.traits(options).reads, features
        self.divided: DividedReading | None = None
        self.readers: list[SourceFeatures] = []

    def divide(self, source: Any, opening: Opening, warmup: int) -> DividedReading | str:
        for shard, groups in zip(self.shards, self.of.assign(len(self.shards)), strict=True):
            try:
                reader = SourceFeatures(opening, self.of, groups if self.reads == "columns" else None)
            except InputError:
                return f"shard {shard.index}"
            shard.worker.reader = reader
            self.readers.append(reader)
        self.divided = DividedReading(source, self, warmup)
        return self.divided

    def check(self, start: int, stop: int, unwanted: Sequence[int]) -> Callable[[], Sequence[BlockReport]]:
        reports = [reader.check(start, stop, unwanted) for reader in self.readers]
        return lambda: reports

    def process(self, batches: Iterable[UpdateBatch], *, skip_refused: bool = False) -> Iterator[Any]:
        return super().process(map(self._with_blocks, batches), skip_refused=skip_refused)

    def _with_blocks(self, batch: UpdateBatch) -> UpdateBatch:
        if self.divided is None or not batch.lacks_features:
            return batch
        WITHOUT.append(len(batch.X))
        return replace(batch, blocks=self.divided.blocks_of(batch.row))


#: Rows of batches that came without features.
WITHOUT: list[int] = []


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions on Ray are sessions here."""
    WITHOUT.clear()

    class Here:
        started, address = True, ""

        def answers(self) -> bool:
            return True

        def close(self) -> None:
            pass

    def opened(self: Any, cluster: Any, shards: int) -> InProcessSession:
        plan = replace(self.config.placement.plan, shared_store=False)
        return ReadingSession(self._learner, self.config.learner, self.features, shards, plan)

    monkeypatch.setattr(incarnations.Incarnations, "_connect", lambda *_: Here())
    monkeypatch.setattr(incarnations.Incarnations, "_on_ray", opened)
    monkeypatch.setattr(divided, "BLOCK_ROWS", BLOCK)


# -- sources ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One table in several forms; with bad rows, and without."""
    draw, folder = np.random.default_rng(11), tmp_path_factory.mktemp("files")
    good: dict[str, Any] = {f"x{j}": draw.integers(0, 30, ROWS) / 4 for j in range(4)}
    good["word"] = [f"w{v}" for v in draw.integers(0, 7, ROWS)]
    good["code"] = draw.integers(0, 4, ROWS)
    good["y"] = [f"c{int(a + b) // 6}" for a, b in zip(good["x0"], good["x1"], strict=True)]
    good["id"] = draw.permutation(ROWS) + 500
    good["at"] = np.arange(ROWS)
    bad = {name: list(values) for name, values in good.items()}
    bad["x2"][BAD[0]], bad["x1"][BAD[1]], bad["y"][BAD[2]] = float("inf"), float("inf"), None
    bad["word"][100] = None  # bad for some learners
    bad["word"][BAD[0]], bad["y"][BAD[0]] = "only in a bad row", "c9"  # of these no code is learned
    for name, table in (("good", pa.table(good)), ("bad", pa.table(bad))):
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=50)
        pacsv.write_csv(table, folder / f"{name}.csv")
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress((folder / f"{name}.csv").read_bytes()))
        for part, rows in (("a", table[:70]), ("b", table[70:])):
            (folder / f"{name}-parts").mkdir(exist_ok=True)
            pq.write_table(rows, folder / f"{name}-parts" / f"{part}.parquet")
        with pa.ipc.new_file(folder / f"{name}.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=37)
        with pa.ipc.new_stream(folder / f"{name}-stream.arrow", table.schema) as stream:
            stream.write_table(table, max_chunksize=37)
    (folder / "good.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in pa.table(good).to_pylist()))
    for name, columns in (("good", good), ("bad", bad)):
        lists = {"ones": [sorted({int(a), 40 + int(b)}) for a, b in zip(good["x0"], good["x1"], strict=True)]}
        lists["tokens"] = [[f"t{one}" for one in ones] for ones in lists["ones"]]
        if name == "bad":
            lists["ones"][BAD[0]], lists["ones"][BAD[1]], lists["tokens"][BAD[0]] = [1, 1], [-1], ["only", None]
            lists["tokens"][BAD[1]] = None
        two = {
            "id": good["id"],
            "y": [label and "xy"[label > "c1"] for label in columns["y"]],
            "x3": good["x3"],
            **lists,
        }
        pq.write_table(pa.table(two), folder / f"{name}-lists.parquet", row_group_size=50)
        lines = [
            f"{y} {' '.join(f'{one}:1' for one in ones or ())}"
            for y, ones in zip((1 - int(a) // 4 if a < 8 else 1 for a in good["x0"]), lists["ones"], strict=True)
        ]
        if name == "bad":
            lines[BAD[0]], lines[BAD[1]], lines[BAD[2]] = "1 5:2", "0 b:1", "none 5:1"
        (folder / f"{name}.libsvm").write_text("# a note\n\n" + "".join(f"{line}\n" for line in lines))
        (folder / f"{name}.libsvm.gz").write_bytes(gzip.compress((folder / f"{name}.libsvm").read_bytes()))
        operations = ["insert"] * ROWS
        for row in (12, 35, 70):
            operations[row] = "m"
        for row in range(WARMUP + 12, ROWS, 5):
            operations[row] = "delete"
        if name == "bad":
            operations[101] = "unheard of"
        changes = {
            **columns,
            "op": operations,
            "id": [500 + row - 60 * (op == "delete") for row, op in enumerate(operations)],
        }
        pq.write_table(pa.table(changes), folder / f"{name}-changes.parquet", row_group_size=50)
        pacsv.write_csv(pa.table(changes), folder / f"{name}-changes.csv")
        inside = [{key: row[key] for key in row if key != "op"} for row in pa.table(changes).to_pylist()]
        enveloped = [
            {
                "op": {"insert": "c", "delete": "d"}.get(op, op),
                "before": row if op == "delete" else None,
                "after": None if op == "delete" else row,
            }
            for op, row in zip(operations, inside, strict=True)
        ]
        pq.write_table(pa.Table.from_pylist(enveloped), folder / f"{name}-envelope.parquet", row_group_size=50)
    wrong = {**changes, "op": ["insert"] * 50 + ["delete"] + ["insert"] * (ROWS - 51)}
    pq.write_table(pa.table(wrong), folder / "wrong-changes.parquet")
    ids = pa.table({"id": good["id"][:30], "after": [WARMUP + 10 + i for i in range(30)]})
    pq.write_table(ids, folder / "log.parquet")
    return folder


def table(form: str, name: str = "good", **others: Any) -> Callable[[Path], dict[str, Any]]:
    """The ``source`` of a form of the table."""
    kind = "parquet" if form == "-parts" else form.strip("-").split(".")[-1]
    end = {"-parts": "-parts", "-stream.arrow": "-stream.arrow"}.get(form, f".{form}")
    kind = "csv" if form == "csv.gz" else kind
    features = ["x0", "x1", "x2", "x3", "word", "code"]
    given = {"features": features, "categorical": ["code"], "id": "id", "label": "y", **others}
    return lambda files: {"kind": kind, "path": str(files / f"{name}{end}"), **given}


def generated(generator: str, **others: Any) -> Callable[[Path], dict[str, Any]]:
    """The ``source`` of a generator."""
    return lambda files: {"kind": "synthetic", "generator": generator, "n": ROWS, **others}


def lists(name: str, features: list[str], **others: Any) -> Callable[[Path], dict[str, Any]]:
    """The ``source`` of a table of lists."""
    given = {"kind": "parquet", "features": features, "id": "id", "label": "y", **others}
    return lambda files: {**given, "path": str(files / f"{name}-lists.parquet")}


def lines(name: str, **others: Any) -> Callable[[Path], dict[str, Any]]:
    """The ``source`` of a LIBSVM file."""
    return lambda files: {"kind": "libsvm", "path": str(files / name), **others}


def changes(name: str, **others: Any) -> Callable[[Path], dict[str, Any]]:
    """The ``source`` of a change log."""
    features = ["x0", "x1", "x2", "x3", "word"]
    given = {"kind": name.split(".")[-1], "features": features, "id": "id", "op": "op", "label": "y", **others}
    return lambda files: {**given, "path": str(files / name)}


WINDOW: dict[str, Any] = {"model": "sliding_window", "window": WARMUP + 10}
LOG: dict[str, Any] = {"model": "changelog"}
#: Source, and stream.
CASES: dict[str, tuple[Callable[[Path], dict[str, Any]], dict[str, Any]]] = {
    "parquet": (table("parquet"), WINDOW),
    "arrow": (table("arrow"), WINDOW),
    "an Arrow stream": (table("-stream.arrow"), WINDOW),
    "csv": (table("csv"), WINDOW),
    "compressed csv": (table("csv.gz"), WINDOW),
    "several files": (table("-parts"), WINDOW),
    "json lines": (table("jsonl"), WINDOW),
    "limit within the warm-up": (table("parquet", limit=100), WINDOW),
    "limit after the warm-up": (table("csv", limit=140), WINDOW),
    "permutation": (table("parquet", permutation=5), WINDOW),
    "permutation of csv, limit": (table("csv", permutation=5, limit=130), WINDOW),
    "no ids": (table("parquet", id=None), {"model": "incremental"}),
    "bad rows": (table("parquet", "bad"), WINDOW),
    "bad rows of csv": (table("csv", "bad"), WINDOW),
    "bad rows, permutation": (table("arrow", "bad", permutation=9), WINDOW),
    "bad rows in several files": (table("-parts", "bad"), WINDOW),
    "random updates": (table("parquet"), {"model": "random_updates"}),
    "batches": (table("parquet"), {"model": "batches", "steps": [WARMUP, 20, 20]}),
    "time window": (table("parquet", ts="at"), {"model": "time_window", "duration": WARMUP + 5}),
    "deletion log": (table("parquet"), {"model": "deletion_log", "deletion_log": "log.parquet"}),
    "deletion log, bad rows": (table("csv", "bad"), {"model": "deletion_log", "deletion_log": "log.parquet"}),
    "sea": (generated("sea"), WINDOW),
    "hyperplane, permutation": (generated("hyperplane", n_features=5, permutation=2), WINDOW),
    "tree, limit": (generated("randcbt", limit=140), WINDOW),
    "change log": (changes("good-changes.parquet"), LOG),
    "change log of csv": (changes("good-changes.csv"), LOG),
    "change log, bad rows": (changes("bad-changes.parquet"), LOG),
    "change log, delete in the warm-up": (changes("wrong-changes.parquet"), LOG),
    "Debezium": (changes("good-envelope.parquet", envelope="debezium"), LOG),
    "Debezium, bad rows": (changes("bad-envelope.parquet", envelope="debezium"), LOG),
}
#: The same of learners that take lists.
LISTS: dict[str, tuple[Callable[[Path], dict[str, Any]], dict[str, Any]]] = {
    "libsvm": (lines("good.libsvm"), WINDOW),
    "libsvm, width and limit": (lines("good.libsvm", n_features=90, limit=100), {"model": "incremental"}),
    "libsvm, permutation": (lines("good.libsvm", permutation=3), {"model": "random_updates"}),
    "compressed libsvm, bad rows": (lines("bad.libsvm.gz"), WINDOW),
    "libsvm, bad rows, permutation": (lines("bad.libsvm", permutation=3), WINDOW),
    "lists": (lists("good", ["ones"]), WINDOW),
    "lists, bad rows": (lists("bad", ["ones"]), WINDOW),
    "lists and numbers": (lists("good", ["x3", "ones"], permutation=8), WINDOW),
    "tokens": (lists("good", ["tokens"]), WINDOW),
    "tokens, bad rows": (lists("bad", ["tokens"]), WINDOW),
    "more tokens than may be": (lists("good", ["tokens"], n_features=20), WINDOW),
    "generated lists": (generated("sparse", irrelevant=60, permutation=2), WINDOW),
}


def config_of(files: Path, case: str, learner: str, *, on_error: str = "skip", **cluster: Any) -> dict[str, Any]:
    source, stream = (CASES | LISTS)[case]
    if "deletion_log" in stream:
        stream = {**stream, "deletion_log": str(files / stream["deletion_log"])}
    return {
        "source": source(files),
        "stream": {**stream, "warmup": WARMUP, "on_error": on_error},
        "learner": LEARNERS[learner],
        "cluster": {"backend": "in_process", "shards": 1, "batch_size": 25, **cluster},
        "checkpoint": {"every_updates": 60, "every_seconds": None},
        "output": {"report": False, "predictions": True, "metrics_every": 50},
    }


def ordered(table: pa.Table) -> pa.Table:
    """Return a table; rows passed over come in their order, not those of a message before those that are refused."""
    return table.sort_by("source_row") if "source_row" in table.column_names else table


def outcome(config: dict[str, Any], folder: Path) -> Any:
    """What a run gives: digest, tables and labels; or the error that ends it, and the tables up to there."""
    try:
        run = pipelines.replay(config, folder)
    except RaydtError as error:
        return type(error), str(error).replace(str(folder), "RUN")
    tables = {
        f"{path.name}.{name}": repr(values)
        for path in sorted(folder.iterdir())
        if path.is_dir() and list(path.glob("*.parquet"))
        for name, values in ordered(pq.read_table(path)).to_pydict().items()
        if name not in HOW
    }
    return run.digest, tables, {name: run.summary.get(name) for name in ("classes", "features", "updates", "scores")}


def pairs() -> Iterator[Any]:
    """Cases and learners; every test run takes each case with one learner, in turn."""
    for cases, kinds in ((CASES, DENSE), (LISTS, SPARSE)):
        for place, case in enumerate(cases):
            for learner in kinds:
                if (case, learner) != ("lists and numbers", "best_split"):  # which takes no numbers
                    by_day = learner == kinds[place % 3]
                    yield pytest.param(case, learner, marks=[] if by_day else pytest.mark.nightly)


@pytest.mark.turns(12)
@pytest.mark.parametrize(("case", "learner"), list(pairs()))
def test_the_run_is_that_of_rows_that_are_sent(case: str, learner: str, files: Path, tmp_path: Path) -> None:
    expected = outcome(config_of(files, case, learner), tmp_path / "sent")
    assert not WITHOUT
    assert expected[0] is not ConfigError, expected
    shards = 1 + (list(CASES | LISTS).index(case) + list(LEARNERS).index(learner)) % 3
    config = config_of(files, case, learner, backend="ray", shards=shards, memory_limit=0)
    assert outcome(config, tmp_path / "read") == expected
    assert sum(WITHOUT) > 0, ("the shards have read nothing", expected)
    if "bad" in case and case in CASES:
        assert [str(row) in expected[1]["quarantine.source_row"] for row in BAD] == [True] * 3 or "permutation" in case


@pytest.mark.turns(3)
@pytest.mark.parametrize("case", [case for case in CASES if "bad" in case])
def test_a_bad_row_ends_the_run_with_the_same_words(case: str, files: Path, tmp_path: Path) -> None:
    config = config_of(files, case, "fudyadt", on_error="error")
    expected = outcome(config, tmp_path / "sent")
    assert expected[0] is InputError
    config["cluster"] |= {"backend": "ray", "shards": 2, "memory_limit": 0}
    assert outcome(config, tmp_path / "read") == expected


# -- sources that shards do not read ----------------------------------------------------------------------------------


def said_of(config: dict[str, Any]) -> Any:
    """What ``validate`` says of the reading."""
    return look_at(pipelines.load_config(config))["reading"]


@pytest.mark.parametrize(
    ("case", "learner", "limit", "why"),
    [
        ("parquet", "confidence_tree", 0, "runs.whole_rows"),
        ("libsvm", "sparse_tree", 10**6, "runs.unknown_ones"),  # the coordinator may hold them all
    ],
)
def test_validate_says_why_rows_are_sent_and_they_are(
    case: str, learner: str, limit: int, why: str, files: Path, tmp_path: Path
) -> None:
    config = config_of(files, case, "gbdt") | {"learner": {"kind": learner}}
    expected = outcome(config, tmp_path / "here")
    config["cluster"] |= {"backend": "ray", "shards": 2, "memory_limit": limit}
    said = said_of(config)
    assert (said.id, said.parameters["why"].id) == ("runs.rows_sent", why)
    assert "\n" not in str(said)
    assert outcome(config, tmp_path / "there") == expected
    assert not WITHOUT


@pytest.mark.parametrize(
    ("address", "path", "id"),
    [
        (None, "good.parquet", "runs.rows_read"),  # a private Ray is on this machine
        ("10.0.0.1:6379", "good.parquet", "runs.rows_read_there"),
        ("10.0.0.1:6379", None, "runs.rows_read"),
    ],
)
def test_validate_says_where_files_have_to_be(
    address: str | None, path: str | None, id: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if "ray" in sys.modules:  # another test may have connected this process to a Ray
        monkeypatch.setattr(sys.modules["ray"], "is_initialized", lambda: False)
    config = config_of(files, "sea" if path is None else "parquet", "fudyadt", backend="ray", shards=2, memory_limit=0)
    config["cluster"]["address"] = address
    assert said_of(config).id == id


def test_a_shard_without_the_files_is_sent_the_rows(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(files, "parquet", "fudyadt")
    expected = outcome(config, tmp_path / "here")

    def missing(self: Any, opening: Opening, features: Any, groups: Any = None) -> None:
        raise InputError("gone", file="good.parquet")

    monkeypatch.setattr(SourceFeatures, "__init__", missing)
    config["cluster"] |= {"backend": "ray", "shards": 2, "memory_limit": 0}
    assert outcome(config, tmp_path / "there") == expected
    assert [record.args for record in caplog.records if getattr(record, "event", "") == "rows_sent"] != []


def test_a_file_that_grows_is_refused_as_without_shards(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grows while it is read: by whoever reads then, and in the same words."""
    said = []
    for backend in ("in_process", "ray"):
        path = tmp_path / backend / "t.csv"
        path.parent.mkdir()
        path.write_bytes((files / "good.csv").read_bytes())
        config = config_of(files, "csv", "fudyadt")
        config["source"]["path"] = str(path)
        config["cluster"] |= {"backend": backend, "shards": 2, **({"memory_limit": 0} if backend == "ray" else {})}
        opened = incarnations.Incarnations.open

        def open_and_grow(self: Any, opened: Any = opened, path: Path = path) -> Any:
            with path.open("a") as file:
                file.write("1,1,1,1,w1,1,c1,9999,999\n")
            return opened(self)

        with monkeypatch.context() as patch:
            patch.setattr(incarnations.Incarnations, "open", open_and_grow)
            with refused("files.changed", InputError) as caught:
                pipelines.replay(config, tmp_path / backend / "run")
        said.append(str(caught.value).replace(str(path), "FILE"))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("path", "id"),
    [("pipe.csv", "files.no_file"), ("/dev/null", "files.no_file"), ("http://127.0.0.1:9/t.csv", "files.web")],
)
def test_what_cannot_be_read_twice_is_no_source(path: str, id: str, files: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    config = config_of(files, "csv", "fudyadt")
    config["source"]["path"] = path if "/" in path else str(tmp_path / path)
    with refused(id, InputError):
        look_at(pipelines.load_config(config))
    if path == "pipe.csv":
        config["source"]["path"] = str(tmp_path / "*.csv")
        with refused(id, InputError):
            look_at(pipelines.load_config(config))
