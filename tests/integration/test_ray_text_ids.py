"""Text ids at the shards that own the rows: what comes out is what a run in this process gives, whoever is lost."""

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run
from raydt.errors import InputError, RaydtError
from raydt.exchange.messages import injected
from raydt.folders.arrays import complete
from raydt.folders.checkpoint import read_checkpoint
from raydt.folders.folder import Folder
from raydt.streams.id_dictionary import TextIds
from tests.integration.test_ray_kills import results

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ROWS, WARMUP = 1500, 700
LEARNERS = {
    "gbdt": {"kind": "gbdt", "max_iter": 4, "feature_groups": 4, "update_every": 100},
    "fudyadt": {"kind": "fudyadt", "epsilon": 0.2, "max_depth": 6, "feature_groups": 4},
}
STREAMS = {
    "deletion_log": {"model": "deletion_log", "warmup": WARMUP},
    "sliding_window": {"model": "sliding_window", "warmup": WARMUP, "window": WARMUP + 100},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    draw = np.random.default_rng(3)
    columns = {f"x{j}": draw.integers(0, 60, ROWS) / 4 for j in range(6)}
    columns["y"] = (columns["x0"] + columns["x1"] > 14).astype(np.int64)
    columns["id"] = [f"person {i} é" for i in draw.permutation(ROWS)]
    folder = tmp_path_factory.mktemp("files")
    pq.write_table(pa.table(columns), folder / "t.parquet")
    after = np.sort(draw.integers(WARMUP, ROWS, 300))
    gone = [columns["id"][draw.integers(0, at)] for at in after.tolist()]
    first = {id: place for place, id in reversed(list(enumerate(gone)))}  # nobody is deleted twice
    kept = sorted(first.values())
    pq.write_table(pa.table({"id": [gone[i] for i in kept], "after": after[kept]}), folder / "log.parquet")
    return folder


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(TextIds, "most_here", 50)
    monkeypatch.setattr(TextIds, "remembered", 40)


def config_of(files, learner, stream):
    log = {"deletion_log": str(files / "log.parquet")} if stream == "deletion_log" else {}
    return {
        "source": {"kind": "parquet", "path": str(files / "t.parquet"), "id": "id"},
        "stream": {**STREAMS[stream], **log},
        "learner": LEARNERS[learner],
        "cluster": {"backend": "in_process", "batch_size": 100},
        "checkpoint": {"every_updates": 200, "every_seconds": None, "keep": 9},
        "output": {"report": False, "predictions": True, "metrics_every": 90},
    }


def on_ray(config, shards):
    return {**config, "cluster": {"shards": shards, "batch_size": 100, "memory_limit": 0}}


def newest_of(run):
    folder = Folder(f"{run.path}/checkpoints")
    return folder.inside(str(complete(folder)[-1]))


def stream_of(run):
    return read_checkpoint(newest_of(run)).components["stream"]


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("stream", STREAMS)
def test_killed_and_resumed(files, tmp_path, monkeypatch, cluster, learner, stream):
    """Each of the processes is lost once; the last state is that of one process, and any number goes on from it."""
    config = config_of(files, learner, stream)
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
    assert [name[:11] for name in sorted(names) if name.startswith("ids-")] == ["ids-000-128", "ids-128-256"]
    of_stream = "".join(newest_of(there).read(name).decode("latin-1") for name in names if name.startswith("stream"))
    assert of_stream.count("person") < 100, "the driver has written more than the ids of the last deleted rows"
    one, other = stream_of(here), stream_of(there)
    for name in ("ids", "id_codes", "id_died", "id_next", "id_rows"):
        np.testing.assert_array_equal(one[name], other[name])
    assert audit_run(there.path).ok
    monkeypatch.delenv("RAYDT_FAULTS")


@pytest.mark.parametrize("cluster_after", [{"shards": 3, "memory_limit": 0}, {"backend": "in_process"}])
def test_other_processes_go_on(files, tmp_path, monkeypatch, cluster, cluster_after):
    config = config_of(files, "gbdt", "deletion_log")
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


def test_a_bad_update_after_divided_ids(files, tmp_path, cluster):
    """The stream has been read beyond the update that is refused, and goes back to it."""
    config = config_of(files, "gbdt", "deletion_log")
    log = pq.read_table(files / "log.parquet")
    twice = pa.table({"id": [log["id"][5].as_py()], "after": [log["after"][200].as_py()]})
    pq.write_table(pa.concat_tables([log.slice(0, 201), twice, log.slice(201)]), tmp_path / "log.parquet")
    config["stream"]["deletion_log"] = str(tmp_path / "log.parquet")
    states = []
    for place, one in (("here", config), ("there", on_ray(config, 2))):
        with pytest.raises(InputError):
            pipelines.replay(one, tmp_path / place)
        folder = Folder(str(tmp_path / place / "checkpoints"))
        states.append(read_checkpoint(folder.inside(str(complete(folder)[-1]))).components["stream"])
    assert states[0]["seq"] == states[1]["seq"] > WARMUP
    for name in ("ids", "id_codes", "id_died", "id_next", "id_rows"):
        np.testing.assert_array_equal(states[0][name], states[1][name])


def test_chapters_hand_divided_ids_over(tmp_path, monkeypatch, cluster):
    """The session goes on with the ids of its shards; what a lost process had comes from the chapter before."""
    pytest.importorskip("deltalake")
    from pipelines.following import follow
    from tests import live_tables
    from tests.chapter_runs import folders, in_chapters
    from tests.unit.test_follow import changed, job, same

    plain = live_tables.rows_of
    monkeypatch.setattr(
        live_tables, "rows_of", lambda rng, ids: plain(rng, ids).append_column("key", pa.array([f"k{i}" for i in ids]))
    )
    monkeypatch.setattr(live_tables, "COLUMNS", (*live_tables.COLUMNS, "key"))
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
