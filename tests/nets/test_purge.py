"""After a purge no byte of a run's folder holds a deleted example, for every case, also after kills.

The example has a text id, numbers, a category and an event time that occur nowhere else. It is inserted after the
warm-up, which alone fixes bins, and predicted; messages about refused updates quote its id.

Every model of a stream that deletes by itself, and every kind of file with ids, meets every learner, its cases in turn,
and nightly every case: 9 ways, one kill each. Under ``random_updates``, which draws what it deletes, the example takes
the place of one that is drawn. On Ray the folders of Ray are searched, too.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import pipelines
from pipelines.auditing import audit_run
from pipelines.prediction import interface_of, predict_file
from pipelines.purging import purge
from pipelines.run_folder import RunFolder
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.ending import read_summary
from pipelines.saved_runs import last_state
from raydt.examples.updates import DELETE
from raydt.exchange.messages import Barrier
from raydt.folders.arrays import read_manifest
from raydt.folders.folder import Folder
from raydt.sessions import adaptive_window
from raydt.streams.base import Stream
from raydt.streams.deletion_log import RandomUpdates
from tests import canaries as strangers
from tests.canaries import IDS, INDICES, LARGEST, SMALLEST, TIME, WIDTH, canary, hits, learned_first
from tests.cases import CASES, Trial, change_log, every_case, net, one_of_each, open_state
from tests.small_tables import SCHEMA, derived, examples, table_of, written

barrier = Checkpointer.barrier


class Killed(BaseException):
    """The process ends here."""


#: Of the small tables, with room for the index of a canary.
WIDE = SCHEMA.with_metadata({"n_features": str(WIDTH)})
#: Words of our own files, as somebody may call a class.
WORDS = [
    "completed",
    "status",
    "model_digest",
    "metrics",
    "a",
    "fudyadt",
    "0.2.0",
    "accuracy",
    "classes",
    "checkpoints",
]


def barrier_in_turn(checkpointer: Checkpointer, stream: Stream, updates: int) -> Barrier | None:
    """The barrier after ``updates``, once the checkpoint before it is written: every checkpoint that is due is kept."""
    while checkpointer._busy:
        time.sleep(0.001)
    return barrier(checkpointer, stream, updates)


def run_with_canaries(trial: Trial, folder: Path) -> tuple[Path, Callable[[str], Any]]:
    """A finished run whose stream inserts examples, refuses one of them again, and deletes them; and its kind of ids.

    One is the first example of all, with the smallest or largest label; one comes after the warm-up; one is the last,
    with the label at the other end. Ids are text or integers, and labels delayed or not, as drawn by the trial's name.
    """
    draw = random.Random(trial.name)
    config = trial.config(folder, 90)
    config["output"]["report"] = True
    config["checkpoint"]["keep"] = 100
    delayed = config["stream"]["delayed_labels"] = draw.random() < 0.5
    before = [{**derived(one), **one} for one in change_log(90, trial.case.warmup)]
    base, *after = ({**derived(one), **one} for one in examples(13, 5))
    ends = draw.sample([SMALLEST, LARGEST], 2)
    row, again, first = {**base, **canary()}, {**base, **canary("again ")}, {**base, **learned_first("first ", ends[0])}
    last, word = {**base, **canary("last ", ends[1])}, {**base, "id": "a word", "y_of_three": draw.choice(WORDS)}
    often = [{**one, "id": f"often {i}"} for i, one in enumerate(after)]
    often = [{**one, "ones": [1, INDICES[1]] if one["y"] == "x" else [1]} for one in often]
    rows = [
        {**first, "op": "insert"},
        *before,
        *({**one, "op": "insert"} for one in often),  # whose index is the best feature for a while
        {**row, "op": "insert"},
        {**row, "op": "query"},
        {**row, "op": "insert"},  # its id is live: refused, and quoted
        {**word, "op": "insert"},
        *({**one, "id": f"after {i}", "op": "insert"} for i, one in enumerate(after)),
        {**row, "op": "delete"},
        {**first, "op": "delete"},
        *({**one, "op": "delete"} for one in often),
        {**word, "op": "delete"},
        {**again, "op": "delete"},  # unknown: quoted, too
        *({**one, "id": f"later {i}", "op": "insert"} for i, one in enumerate(after[:4])),
        {**last, "op": "insert"},
        {**last, "op": "delete"},
        *({**one, "op": "query"} for one in ({**base, **canary("asked ")}, last) if delayed),
    ]
    ids: Callable[[str], Any] = str
    schema = WIDE
    if draw.random() < 0.5:
        numbers = {canary(name)["id"]: number for name, number in IDS.items()}
        ids = lambda name: numbers.setdefault(name, len(numbers))  # noqa: E731
        schema = schema.set(schema.get_field_index("id"), pa.field("id", pa.int64()))
        rows = [{**one, "id": ids(one["id"])} for one in rows]
    written(folder / "changes.arrow", pa.Table.from_pylist(rows, schema))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpointer, "barrier", barrier_in_turn)
        return Path(pipelines.replay(config, folder / "run").path), ids


def ops(monkeypatch: pytest.MonkeyPatch, stop: int | None) -> list[str]:
    """Count what is done to the storage; the process dies before operation ``stop``."""
    done: list[str] = []
    for name in ("_rename", "_delete_file", "_open_to_write", "_delete_folder"):
        real = getattr(Folder, name)

        def step(self: Any, *arguments: Any, real: Any = real, name: str = name) -> Any:
            if stop is not None and len(done) >= stop:
                raise Killed
            done.append(name)
            return real(self, *arguments)

        monkeypatch.setattr(Folder, name, step)
    return done


def live_categories(run: Path) -> dict[str, list[str]]:
    """The categories and tokens of all live examples of a run's checkpoint, decoded and sorted, by column."""
    saved, _ = open_state(run)
    values: dict[str, dict[int, Any]] = {
        name: {number: value for value, number in numbers.items()}
        for name, numbers in interface_of(saved).categories.items()
    }
    for name in set(saved.categories) - set(values):
        values[name] = dict(enumerate(saved.categories[name]))
    found: dict[str, list[str]] = {}
    for group, arrays in saved.groups.items():
        for place, column in enumerate(saved.features.group_columns(group).tolist()):
            name = saved.features.names[column] if column < len(saved.features.names) else ""
            if name in values:
                codes = arrays["X"][:, place]
                found[name] = sorted(repr(values[name][int(code)]) for code in codes[codes >= 0])  # -1: missing
        token = str(saved.features.sparse_column)
        if token in values and "sparse_values" in arrays:
            found.setdefault(token, []).extend(sorted(values[token][int(code)] for code in arrays["sparse_values"]))
    return found


def without_names(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without the names of classes and tokens, which a purge replaces."""
    split = {key: value for key, value in (summary.get("split") or {}).items() if key != "name"}
    return {**summary, "classes": len(summary["classes"]), "split": split}


@every_case("a purge", one_of_each)
def test_nothing_of_a_deleted_example_remains(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, ids = run_with_canaries(trial, tmp_path)
    found = hits(run)
    assert {name.split("/")[0] for name in found} >= {"checkpoints", "predictions", "quarantine"}
    everything = {one for held in found.values() for one in held}
    assert (b"an index" in everything) == trial.case.sparse
    assert {struct.pack("<d", LARGEST), struct.pack("<d", SMALLEST)} <= everything or trial.case.classes
    summary, config = read_summary(RunFolder(run)), (run / "config.yaml").read_bytes()
    digest, categories = summary["model_digest"], live_categories(run)
    assert any(categories.values()) == trial.case.dense
    draw = random.Random(trial.name)
    strangers.leave_behind(run, draw)
    foreign = strangers.put(run, tmp_path / "outside", draw)
    before = (
        strangers.seen(run, foreign),
        strangers.seen(tmp_path / "outside", sorted(os.listdir(tmp_path / "outside"))),
    )
    for _ in range(3):
        with monkeypatch.context() as patched:
            ops(patched, draw.randrange(12))
            with pytest.raises(Killed):
                purge(run)
    plan, done = purge(run, dry_run=True), purge(run)
    assert done == {**plan, "dry_run": False}
    assert (done["left_alone"], hits(run)) == (foreign, {})
    after = strangers.seen(run, foreign), strangers.seen(tmp_path / "outside", sorted(os.listdir(tmp_path / "outside")))
    assert after == before
    assert (done["digest"], len(list((run / "checkpoints").glob("[0-9]*/coordinator.*.npz")))) == (digest, 1)
    assert live_categories(run) == categories
    assert (run / "config.yaml").read_bytes() == config
    assert without_names(read_summary(RunFolder(run))) == without_names(summary)
    assert set(WORDS).isdisjoint(read_summary(RunFolder(run))["classes"])
    again = purge(run)
    assert (again["digest"], again["replaced"], again["rewritten"]) == (digest, [], [])
    report = audit_run(run)
    assert report.ok, report
    assert (
        read_manifest(last_state(RunFolder(run / "checkpoints"))).meta["offset"]
        == read_summary(RunFolder(run))["updates"]
    )
    assert pipelines.resume(run).summary["model_digest"] == digest
    gone = tmp_path / "gone.csv"
    gone.write_text(f"id\n{ids('later 0')}\n")
    receipt = pipelines.update(run, delete=gone, out=tmp_path / "second")
    assert receipt.digest_before == digest
    assert hits(tmp_path / "second") == {}
    rows = written(tmp_path / "rows.arrow", table_of(examples(5)))
    assert predict_file(run, rows, tmp_path / "predicted.parquet")["rows"] == 5


#: Model of the stream and kind of the files; files of lists have no CSV.
WAYS = [
    "changelog csv",
    "changelog parquet",
    "deletion_log arrow",
    "deletion_log csv",
    "sliding_window parquet",
    "time_window arrow",
    "time_window csv",
    "batches parquet",
    "random_updates arrow",
    "adaptive_window parquet",
]
#: Rows before the one with canaries, and behind it; a window has as many as the warm-up, or these.
BEFORE, BEHIND = 6, 14


def drawn(trial: Trial, config: dict[str, Any]) -> int:
    """Number of the first row behind the warm-up that a stream of random updates deletes; no value changes it."""
    stream = RandomUpdates.model_validate(config["stream"]).make(trial.source(config))
    for batch in stream.batches(64):
        deleted = batch.id[batch.op == DELETE]  # codes of text ids count them as they appear
        if (deleted >= trial.case.warmup).any():
            return int(deleted[deleted >= trial.case.warmup][0])
    raise AssertionError("nothing behind the warm-up is deleted")


def job(trial: Trial, way: str, folder: Path) -> dict[str, Any]:
    """A config whose stream inserts an example with canaries after the warm-up, and has deleted it by its end."""
    model, kind = way.split()
    kind = "arrow" if kind == "csv" and trial.case.sparse else kind
    warmup, columns = trial.case.warmup, dict(trial.columns)
    place, window = warmup + BEFORE, max(warmup, BEHIND)
    rows = [{**derived(one), **one, "id": f"row {i}"} for i, one in enumerate(examples(place + window + BEHIND, 3))]
    stream: dict[str, Any] = {"model": model, "warmup": warmup, "on_error": "skip"}
    if model == "random_updates":
        stream["insert_probability"] = 0.4
        path = written(folder / "plain.arrow", pa.Table.from_pylist(rows, WIDE))
        place = drawn(trial, {"source": {"kind": kind, "path": str(path), **columns}, "stream": stream})
        path.unlink()
    rows[place] = {**rows[place], **canary()}
    for i, row in enumerate(rows):
        row["ts"] = TIME + 10 * (i - place)
    if model == "changelog":
        columns["op"] = "op"
        rows += [{**rows[place], "op": "insert"}, {**rows[place], "op": "delete"}]
        rows += [{**rows[place], "id": canary("unknown ")["id"], "op": "delete"}, {**rows[0], "id": "last"}]
    elif model == "deletion_log":
        ids, after = [canary()["id"], canary("unknown ")["id"]], [len(rows) - 3, len(rows) - 2]
        pa.csv.write_csv(pa.table({"id": ids, "after": after}), folder / "gone.csv")
        stream["deletion_log"] = str(folder / "gone.csv")
    elif model == "sliding_window":
        stream["window"] = window
    elif model == "time_window":
        columns["ts"] = "ts"
        stream["duration"] = 10 * window + 5
    elif model == "batches":
        stream["steps"] = [len(rows), max(4, BEHIND - 4)]
    path, table = folder / f"rows.{kind}", pa.Table.from_pylist(rows, WIDE)
    if kind == "arrow":
        written(path, table)
    elif kind == "parquet":
        pa.parquet.write_table(table, path)
    else:
        named = [columns[name] for name in ("id", "label", "op", "ts", "weight") if name in columns]
        pa.csv.write_csv(table.select([*named, *columns["features"]]), path)
    config = trial.config(folder, warmup + 1)
    return {**config, "source": {"kind": kind, "path": str(path), **columns}, "stream": stream}


def in_turn(trial: Trial, way: str) -> bool:
    """Return True if every test run takes a way with a case: each learner a sixth of the ways, its cases in turn."""
    kinds, place = sorted({other.learner.kind for other in CASES if other.shipped}), WAYS.index(way)
    mine = [other for other in CASES if other.learner.kind == trial.learner.kind]
    return trial.shipped and place % 6 == kinds.index(trial.learner.kind) % 6 and mine[place % len(mine)] is trial


@net("a purge, by stream and source", "trial, way", [(trial, way) for trial in CASES for way in WAYS], in_turn)
def test_nothing_remains_whatever_the_stream_and_the_source(
    trial: Trial, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way.startswith("adaptive_window"):  # which scouts choose is another matter: they know more than is live
        window = max(trial.case.warmup, BEHIND)
        monkeypatch.setattr(adaptive_window.Scouts, "window", property(lambda _: window))
    run = Path(pipelines.replay(job(trial, way, tmp_path), tmp_path / "run").path)
    assert "checkpoints" in {name.split("/")[0] for name in hits(run)}
    digest = read_summary(RunFolder(run))["model_digest"]
    with monkeypatch.context() as patched:
        ops(patched, random.Random(f"{trial.name} {way}").randrange(8))
        with pytest.raises(Killed):
            purge(run)
    assert purge(run)["digest"] == digest
    assert hits(run) == {}
    assert pipelines.resume(run).summary["model_digest"] == digest
    assert (
        read_manifest(last_state(RunFolder(run / "checkpoints"))).meta["offset"]
        == read_summary(RunFolder(run))["updates"]
    )


RAY = [Path("/tmp/ray"), Path("/dev/shm")]


def of_ray() -> set[Path]:
    """Sessions and object stores on this machine."""
    return {path for folder in RAY if folder.is_dir() for path in folder.iterdir() if not path.is_symlink()}


#: Ways of a purge on Ray, and each case with one of them, in turn.
WAYS_ON_RAY = (WAYS[1], WAYS[3], WAYS[4], WAYS[5])
ON_RAY = [(trial, WAYS_ON_RAY[i % len(WAYS_ON_RAY)]) for i, trial in enumerate(CASES)]


@net("a purge on Ray", "trial, way", ON_RAY, lambda trial, way: False)
def test_nothing_remains_in_the_folders_of_ray(trial: Trial, way: str, tmp_path: Path) -> None:
    config, before = job(trial, way, tmp_path), of_ray()
    config["cluster"] |= {"backend": "ray", "shards": 2}
    run = Path(pipelines.replay(config, tmp_path / "run").path)
    assert hits(run)
    purge(run)
    assert hits(run) == {}
    for left in of_ray() - before - {tmp_path}:
        if left not in tmp_path.parents:  # tests may be in memory, too
            assert hits(left) == {}, left
