"""Processes that are killed on Ray, text ids that shards keep, and requests."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")

import json
import random
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

import pipelines
from pipelines import replay
from pipelines.auditing import audit_run, verify_receipts
from pipelines.running.intake import RestartBudget
from pipelines.validation import look_at
from raydt.errors import CheckpointsFailError, InputError, RaydtError, RestartsSpentError
from raydt.exchange.messages import injected
from raydt.folders.arrays import complete
from raydt.folders.checkpoint import read_checkpoint
from raydt.folders.folder import Folder
from raydt.learners.base import WorkPlan
from raydt.messages import message
from raydt.streams.id_dictionary import TextIds
from tests.refusals import refused
from tests.unit.test_live_kafka import Broker, job, plain
from tests.unit.test_requests import said

# -- ray kills -------------------------------------------------------------------------------------------------------
# Processes on Ray killed and stopped for real: what comes out is what the undisturbed run in this process gave.
#
# Most faults are asked for by ``RAYDT_FAULTS``, which each session hands to its actors, so that every place in the
# program at which a process can die is met for certain; the others come from outside, at a moment of their own
# choice.


#: 7,100 updates; the warm-up ends with the first BUILD.
CONFIG = {
    "source": {"kind": "synthetic", "generator": "hyperplane", "n": 4000, "n_features": 40, "drift": 4, "seed": 11},
    "stream": {"model": "sliding_window", "window": 900, "warmup": 900},
    "learner": {"kind": "fudyadt", "epsilon": 0.3, "max_depth": 6, "feature_groups": 4},
    "cluster": {"backend": "in_process", "shards": 2, "batch_size": 250},
    "checkpoint": {"every_updates": 500, "every_seconds": None},
    "output": {"report": False, "predictions": True, "metrics_every": 500},
}
#: Columns that say how the work was done and not what came out.
HOW = {"seconds", "rounds", "bytes_exchanged", "place"}

#: Cells of 900 rows and one: with so many the coordinator does not hold the model, but still does all rebuilds.
AFTER_A_WHILE = WorkPlan(local_work_limit=36_001)
#: Cells of a BUILD of 500 rows; larger ones are done by the shards.
ON_SHARDS = WorkPlan(local_work_limit=20_000)


def results(run):
    """What must not depend on faults: digest, updates and the columns of the tables (as text, since NaN != NaN)."""
    columns = {}
    for table in ("metrics", "predictions", "events"):
        for name, values in pq.read_table(f"{run.path}/{table}").to_pydict().items():
            if name not in HOW:
                columns[f"{table}.{name}"] = repr(values)
    return {"digest": run.digest, "updates": run.summary["updates"], **columns}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return results(pipelines.replay(CONFIG, tmp_path_factory.mktemp("undisturbed") / "run"))


@pytest.fixture
def replay_kills(cluster, tmp_path, monkeypatch):
    """A replay on Ray with faults; no process of it is left behind."""

    def replayed(faults="", checkpoint_every=500, plan=AFTER_A_WHILE, **settings):
        monkeypatch.setenv("RAYDT_FAULTS", faults)
        monkeypatch.setattr(WorkPlan, "within", lambda *_, **__: plan)
        overrides = ["cluster.backend=ray", f"checkpoint.every_updates={checkpoint_every}"]
        overrides += [f"cluster.{name}={value}" for name, value in settings.items()]
        return pipelines.replay(CONFIG, tmp_path / "run", overrides=overrides)

    yield replayed
    assert psutil.wait_procs(actors_here(), timeout=10)[1] == []


def actors_here(kind=""):
    """The actors of this process's Ray, those that are stopped too."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if command and command[0].startswith((f"ray::{kind or 'Coordinator'}", f"ray::{kind or 'FeatureShard'}")):
            found.append(process)
    return found


def after_batches(n, act):
    """A handler that calls ``act`` once, when the driver has recorded so many batches."""
    passed = iter(range(1, 10**6))

    def handler(point):
        if point == "driver.recorded" and next(passed) == n:
            act()

    return handler


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("faults", "settings"),
    [
        (
            [
                "coordinator.before_batch@11#1=kill",  # between batches: ten are recorded, the next not begun
                "shard.before_answer/1@11#2=kill",  # between batches: it has answered all of seven
                "shard.after_answer/0@10#3=kill",  # its work is done, its answer is lost
                "coordinator.before_finish@1#4=kill",  # at the end
            ],
            {},
        ),
        (
            [
                "shard.between_meetings/0@23#1=kill",  # inside a BUILD on the shards
                "shard.before_answer/1@30#2=kill",  # inside a batch: its rows, or a BUILD
                "coordinator.before_snapshot@2#3=kill",  # during a checkpoint
                "shard.before_parts/1@2#4=kill",  # during a checkpoint: its part is being fetched
            ],
            {"plan": ON_SHARDS},
        ),
        (
            [
                "shard.between_parts/1@4#1=kill",  # some of its groups and rows are in files, the others not
                "shard.after_parts/0@1#2=kill",  # its parts are written, nobody has heard of it
                "shard.after_parts/1@3#3=kill",  # the same, with checkpoints before it in this epoch
            ],
            {"plan": ON_SHARDS},
        ),
        (
            [
                # The coordinator keeps no rows, and asks for columns in rebuilds of its own only.
                "shard.before_columns/1@120#1=kill",  # the coordinator is inside such a rebuild
                "coordinator.local_rebuild@80#2=kill",  # it has the columns
                "coordinator.before_restore@1#3=kill",  # during recovery
                "shard.before_restore/1@1#4=kill",  # during recovery
                "shard.before_parts/0@4#5=kill",  # at the end: the last checkpoint
            ],
            {"batch_size": 500, "plan": replace(AFTER_A_WHILE, row_cache_bytes=0), "checkpoint_every": 1000},
        ),
    ],
    ids=["at work", "BUILD on shards, checkpoint", "parts of a checkpoint", "rebuild, recovery, end"],
)
@pytest.mark.usefixtures("in_step")
def test_processes_killed_at_points(replay_kills, undisturbed, faults, settings):
    run = replay_kills(",".join(faults), **settings)
    recoveries = run.summary["recoveries"]
    assert results(run) == undisturbed
    assert run.summary["restarts"] == len(faults)
    for epoch, (recovery, fault) in enumerate(zip(recoveries, faults, strict=True), 1):
        who = "the coordinator" if fault.startswith("coordinator") else f"shard {fault.split('@')[0][-1]}"
        assert recovery["what"].startswith(f"{who} (pid ")
        assert recovery["what"].endswith(") died")
        assert recovery["epoch"] == epoch
        assert recovery["kind"] == "lost"
        if "before_restore" in "".join(faults[epoch : epoch + 1]):
            assert recovery["from_update"] is None  # the next fault fell before it was back at a checkpoint
        else:
            assert 0 < recovery["from_update"] <= recovery["at_update"]  # equal right after a checkpoint


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("in_step")
def test_processes_stopped_and_killed_from_outside(seed, replay_kills, undisturbed):
    chance = random.Random(seed)

    def kill_one():
        victims = actors_here()
        delay = chance.uniform(0, 0.1)
        threading.Timer(delay, chance.choice(victims).kill).start()

    # Epochs 1 and 2 record 6 batches between them, and all three 18 or 19.
    with injected(after_batches(chance.randint(7, 19), kill_one)):
        run = replay_kills(
            "coordinator.before_batch@4#1=stop,shard.before_answer/1@16#2=stop", patience_seconds=3, batch_size=500
        )
    assert results(run) == undisturbed
    lost = [recovery["what"] for recovery in run.summary["recoveries"]]
    silent = message("cluster.no_progress", name="", seconds=3)
    for what, name in zip(lost, ("the coordinator (pid ", "shard 1 (pid "), strict=False):
        assert what.startswith(name)
        assert what.endswith(f"){silent}")
    assert [recovery["from_update"] for recovery in run.summary["recoveries"][:2]] == [500, 1000]
    assert all(recovery["from_update"] >= 1000 for recovery in run.summary["recoveries"][2:])
    # A process that is killed when its work is done is no loss.
    assert len(lost) == 3 or (len(lost) == 2 and run.summary["restarts"] == 2), seed


@pytest.mark.ray
@pytest.mark.nightly
def test_a_pause_shorter_than_the_patience_is_waited_for(replay_kills, undisturbed):
    def pause():
        for process in actors_here():
            process.suspend()
            threading.Timer(1.0, process.resume).start()

    with injected(after_batches(5, pause)):
        run = replay_kills(patience_seconds=10, shards=1)
    assert results(run) == undisturbed
    assert run.summary["restarts"] == 0
    assert run.summary["recoveries"] == []


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.usefixtures("in_step")
def test_a_run_whose_shard_hands_over_no_parts_of_checkpoints_stops_with_the_cause(
    replay_kills, undisturbed, tmp_path, monkeypatch
):
    """As where Ray's object plane is cut off, and its control plane is not: the shard answers, and does its work."""
    monkeypatch.setattr("pipelines.running.checkpoint.MOST_FAILURES", 2)
    with refused("runs.old_checkpoint", CheckpointsFailError, failed=2, last=500) as caught:
        replay_kills("shard.before_parts/0@2#1=hang", plan=ON_SHARDS, patience_seconds=3)
    assert re.match(r"shard 0 \(pid \d+ on [^)]+\) .*3 seconds", caught.value.message.parameters["cause"])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["restarts"], summary["recoveries"]) == ("failed", 0, [])
    monkeypatch.setenv("RAYDT_FAULTS", "")
    assert results(pipelines.resume(tmp_path / "run")) == undisturbed


@pytest.mark.ray
@pytest.mark.nightly
def test_a_fault_that_comes_back_ends_the_run_with_its_checkpoint_intact(replay_kills, tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.running.loop.RestartBudget", lambda: RestartBudget(most=1))
    with refused("runs.restarts_spent", RestartsSpentError, restarts="1 restart", minutes="1 minute") as caught:
        replay_kills("coordinator.after_batch@20#1=kill,coordinator.before_batch@1#2=kill", 4000, shards=1)
    lost, again = caught.value.message.parameters["losses"].split("; ")
    assert all(re.match(r"the coordinator \(pid \d+ on [^)]+\) ", one) for one in (lost, again))
    assert str(caught.value).endswith(message("runs.intact_checkpoint", update=4000, run=tmp_path / "run"))
    assert caught.value.exit_code == 1
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["exit_code"], summary["exit_reason"]) == ("failed", 1, "RestartsSpentError")
    assert [recovery["from_update"] for recovery in summary["recoveries"]] == [4000]
    assert read_checkpoint(Folder(tmp_path / "run" / "checkpoints" / "4000")).number == 4000


# -- ray reading -----------------------------------------------------------------------------------------------------
# Shards on Ray that read the rows of the warm-up themselves: what comes out is what a run in this process gives.

ROWS, WARMUP = 1500, 1100
LEARNERS = {
    "fudyadt": {"kind": "fudyadt", "epsilon": 0.2, "max_depth": 6, "feature_groups": 4},
    "gbdt": {"kind": "gbdt", "max_iter": 4, "feature_groups": 4, "objective": "multiclass"},
    "forest": {"kind": "forest", "n_estimators": 6, "feature_groups": 4, "rebuild": "eager"},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    draw = np.random.default_rng(7)
    columns = {f"x{j}": draw.integers(0, 60, ROWS) / 4 for j in range(6)}
    columns["word"] = [f"w{v}" for v in draw.integers(0, 9, ROWS)]
    columns["y"] = [f"c{int(a + b) // 8}" for a, b in zip(columns["x0"], columns["x1"], strict=True)]
    columns["id"] = draw.permutation(ROWS) + 100
    columns["x3"][[600, 1300]] = np.inf
    folder = tmp_path_factory.mktemp("files")
    pq.write_table(pa.table(columns), folder / "t.parquet", row_group_size=200)
    pacsv.write_csv(pa.table(columns), folder / "t.csv")
    return folder


def config_of(files, learner, form, **source):
    return {
        "source": {"kind": form, "path": str(files / f"t.{form}"), "id": "id", **source},
        "stream": {"model": "sliding_window", "window": WARMUP + 50, "warmup": WARMUP, "on_error": "skip"},
        "learner": LEARNERS[learner],
        "cluster": {"backend": "in_process", "batch_size": 100},
        "checkpoint": {"every_updates": 500, "every_seconds": None},
        "output": {"report": False, "predictions": True, "metrics_every": 90},
    }


def on_ray(config, shards):
    return {**config, "cluster": {"shards": shards, "batch_size": 100, "memory_limit": 0}}


def events(run):
    with open(f"{run.path}/log.jsonl") as lines:
        return [json.loads(line).get("event") for line in lines]


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(("form", "source"), [("parquet", {}), ("csv", {"permutation": 4}), ("csv", {})])
def test_same_run(files, tmp_path, monkeypatch, cluster, learner, form, source):
    config = config_of(files, learner, form, **source)
    expected = results(pipelines.replay(config, tmp_path / "here"))
    monkeypatch.setattr("raydt.sources.divided.BLOCK_ROWS", 128)
    for shards in (1, 2, 3):
        run = pipelines.replay(on_ray(config, shards), tmp_path / f"{shards}")
        assert results(run) == expected, shards
        assert "rows_read" in events(run)


@pytest.mark.ray
@pytest.mark.nightly
def test_a_shard_that_is_killed_while_it_reads(files, tmp_path, monkeypatch, cluster):
    config = config_of(files, "fudyadt", "parquet")
    expected = results(pipelines.replay(config, tmp_path / "here"))
    monkeypatch.setattr("raydt.sources.divided.BLOCK_ROWS", 128)
    monkeypatch.setenv("RAYDT_FAULTS", f"shard.before_block/1@{random.randint(1, 5)}#1=kill")
    run = pipelines.replay(on_ray(config, 2), tmp_path / "there")
    assert results(run) == expected
    assert [one["kind"] for one in run.summary["recoveries"]] == ["lost"]


@pytest.mark.ray
@pytest.mark.nightly
def test_validate_says_who_reads(files):
    config = pipelines.load_config(on_ray(config_of(files, "gbdt", "parquet"), 2))
    assert "columns that it owns" in str(look_at(config)["reading"])
    config = pipelines.load_config(config_of(files, "gbdt", "parquet"))
    assert look_at(config)["reading"] is None


# -- ray text ids ----------------------------------------------------------------------------------------------------
# Text ids at the shards that own the rows: what comes out is what a run in this process gives, whoever is lost.

ROWS_IDS, WARMUP_IDS = 1500, 700
LEARNERS_IDS = {
    "gbdt": {"kind": "gbdt", "max_iter": 4, "feature_groups": 4, "update_every": 100},
    "fudyadt": {"kind": "fudyadt", "epsilon": 0.2, "max_depth": 6, "feature_groups": 4},
}
STREAMS = {
    "deletion_log": {"model": "deletion_log", "warmup": WARMUP_IDS},
    "sliding_window": {"model": "sliding_window", "warmup": WARMUP_IDS, "window": WARMUP_IDS + 100},
}


@pytest.fixture(scope="module")
def files_ids(tmp_path_factory):
    draw = np.random.default_rng(3)
    columns = {f"x{j}": draw.integers(0, 60, ROWS_IDS) / 4 for j in range(6)}
    columns["y"] = (columns["x0"] + columns["x1"] > 14).astype(np.int64)
    columns["id"] = [f"person {i} é" for i in draw.permutation(ROWS_IDS)]
    folder = tmp_path_factory.mktemp("files")
    pq.write_table(pa.table(columns), folder / "t.parquet")
    after = np.sort(draw.integers(WARMUP_IDS, ROWS_IDS, 300))
    gone = [columns["id"][draw.integers(0, at)] for at in after.tolist()]
    first = {id: place for place, id in reversed(list(enumerate(gone)))}  # nobody is deleted twice
    kept = sorted(first.values())
    pq.write_table(pa.table({"id": [gone[i] for i in kept], "after": after[kept]}), folder / "log.parquet")
    return folder


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(TextIds, "most_here", 50)
    monkeypatch.setattr(TextIds, "remembered", 40)


def config_of_ids(files, learner, stream):
    log = {"deletion_log": str(files / "log.parquet")} if stream == "deletion_log" else {}
    return {
        "source": {"kind": "parquet", "path": str(files / "t.parquet"), "id": "id"},
        "stream": {**STREAMS[stream], **log},
        "learner": LEARNERS_IDS[learner],
        "cluster": {"backend": "in_process", "batch_size": 100},
        "checkpoint": {"every_updates": 200, "every_seconds": None, "keep": 9},
        "output": {"report": False, "predictions": True, "metrics_every": 90},
    }


def newest_of(run):
    folder = Folder(f"{run.path}/checkpoints")
    return folder.inside(str(complete(folder)[-1]))


def stream_of(run):
    return read_checkpoint(newest_of(run)).components["stream"]


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("learner", LEARNERS_IDS)
@pytest.mark.parametrize("stream", STREAMS)
def test_killed_and_resumed(files_ids, tmp_path, monkeypatch, cluster, learner, stream):
    """Each of the processes is lost once; the last state is that of one process, and any number goes on from it."""
    config = config_of_ids(files_ids, learner, stream)
    here = pipelines.replay(config, tmp_path / "here")
    faults = [
        f"shard.before_ids/{random.randint(0, 1)}@{random.randint(2, 9)}#1=kill",
        "shard.before_ids_written/1@2#2=kill",
        "coordinator.before_batch@9#3=kill",
    ]
    monkeypatch.setenv("RAYDT_FAULTS", ",".join(faults))
    there = pipelines.replay(on_ray(config, 2), tmp_path / "there")
    assert results(there) == results(here)
    assert there.summary["restarts"] == len(faults)
    names = newest_of(there).names()
    assert [name[:13] for name in sorted(names) if name.startswith("ids-")] == ["ids-0000-2048", "ids-2048-4096"]
    of_stream = "".join(newest_of(there).read(name).decode("latin-1") for name in names if name.startswith("stream"))
    assert of_stream.count("person") < 100, "the driver has written more than the ids of the last deleted rows"
    one, other = stream_of(here), stream_of(there)
    for name in ("ids", "id_codes", "id_died", "id_next", "id_rows"):
        np.testing.assert_array_equal(one[name], other[name])
    assert audit_run(there.path).ok
    monkeypatch.delenv("RAYDT_FAULTS")


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("cluster_after", [{"shards": 3, "memory_limit": 0}, {"backend": "in_process"}])
def test_other_processes_go_on(files_ids, tmp_path, monkeypatch, cluster, cluster_after):
    config = config_of_ids(files_ids, "gbdt", "deletion_log")
    here = pipelines.replay(config, tmp_path / "here")
    recorded = iter(range(99))

    def end(point):
        if point == "driver.recorded" and next(recorded) == 12:
            raise RaydtError("the driver ends")

    with injected(end), pytest.raises(RaydtError, match="the driver ends"):
        pipelines.replay(on_ray(config, 2), tmp_path / "there")
    overrides = [f"cluster.{name}={json.dumps(value)}" for name, value in cluster_after.items()]
    if "shards" not in cluster_after:
        overrides += ["cluster.shards=null"]
    assert results(pipelines.resume(tmp_path / "there", overrides=overrides)) == results(here)


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.usefixtures("few")
def test_a_bad_update_after_divided_ids(files_ids, tmp_path, cluster):
    """The stream has been read beyond the update that is refused, and goes back to it."""
    config = config_of_ids(files_ids, "gbdt", "deletion_log")
    log = pq.read_table(files_ids / "log.parquet")
    twice = pa.table({"id": [log["id"][5].as_py()], "after": [log["after"][200].as_py()]})
    pq.write_table(pa.concat_tables([log.slice(0, 201), twice, log.slice(201)]), tmp_path / "log.parquet")
    config["stream"]["deletion_log"] = str(tmp_path / "log.parquet")
    states = []
    for place, one in (("here", config), ("there", on_ray(config, 2))):
        with pytest.raises(InputError):
            pipelines.replay(one, tmp_path / place)
        folder = Folder(str(tmp_path / place / "checkpoints"))
        states.append(read_checkpoint(folder.inside(str(complete(folder)[-1]))).components["stream"])
    assert states[0]["seq"] == states[1]["seq"] > WARMUP_IDS
    for name in ("ids", "id_codes", "id_died", "id_next", "id_rows"):
        np.testing.assert_array_equal(states[0][name], states[1][name])


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.usefixtures("few")
def test_chapters_hand_divided_ids_over(tmp_path, monkeypatch, cluster):
    """The session goes on with the ids of its shards; what a lost process had comes from the chapter before."""
    pytest.importorskip("deltalake")
    from pipelines.following import follow
    from tests import live_tables
    from tests.unit.test_chapters import folders, in_chapters
    from tests.unit.test_follow import changed, job, same

    plain = live_tables.rows_of
    monkeypatch.setattr(
        live_tables, "rows_of", lambda rng, ids: plain(rng, ids).append_column("key", pa.array([f"k{i}" for i in ids]))
    )
    monkeypatch.setattr(live_tables.LiveTable, "columns", (*live_tables.COLUMNS, "key"))
    monkeypatch.setattr(TextIds, "most_here", 10)
    monkeypatch.setattr(TextIds, "remembered", 8)
    table, named = changed(tmp_path), {"source": {"id": "key", "features": ["a", "b"]}}
    whole = pipelines.replay(job(table, **named), tmp_path / "whole")
    monkeypatch.setenv("RAYDT_FAULTS", "shard.before_ids/1@12#1=kill,coordinator.before_batch@4#2=kill")
    on_shards = {"cluster": {"backend": "ray", "shards": 2, "batch_size": 8, "memory_limit": 0}}
    config = in_chapters(table, every=25, **named, **on_shards, checkpoint={"every_updates": 16, "every_seconds": None})
    run = follow(config, tmp_path / "run", until_idle=0.0)
    same(run, whole)
    chapters = folders(tmp_path / "run")
    assert len(chapters) > 2
    assert sum(json.loads((place / "summary.json").read_text())["restarts"] for place in chapters) == 2
    assert audit_run(chapters[-1]).conformance == "holds"
    states = [Folder(f"{place}/checkpoints") for place in (tmp_path / "whole", chapters[-1])]
    one, other = (read_checkpoint(state.inside(str(complete(state)[-1]))).components["stream"] for state in states)
    for name in ("ids", "id_codes", "id_died", "id_next", "id_rows"):
        np.testing.assert_array_equal(one[name], other[name])


# -- ray requests ----------------------------------------------------------------------------------------------------
# Receipts of a run that follows a topic on Ray: those of the same run in one process, with the same offsets.


@pytest.mark.nightly
def test_a_topic_on_ray_leaves_the_same_chain(cluster: Any, tmp_path: Path) -> None:
    broker, given = Broker(), {"output": {"report": False, "receipts": True}}
    for id in range(400):
        broker.send("asked", id, plain("c", id))
    for id in range(0, 400, 7):
        broker.send("asked", id, plain("d", id))
    broker.flush()
    one = replay(job(broker, "asked", **given), tmp_path / "one")
    on_ray = {"backend": "ray", "shards": 2, "memory_limit": 0, "batch_size": 16}
    other = replay(job(broker, "asked", **given, cluster=on_ray), tmp_path / "ray")
    assert one.digest == other.digest
    assert said(tmp_path / "one") == said(tmp_path / "ray")
    (entry,) = [entry for entry in said(tmp_path / "ray") if entry["deleted"]]
    assert entry["deleted"].keys() == {*range(0, 400, 7)}
    found = verify_receipts(tmp_path / "ray" / "receipts.jsonl", tmp_path / "ray", ids=["7"])
    assert (found["ok"], found["ids"][0]["live"]) == (True, False)
