"""Audits that are divided on Ray, the channel between actors, and the session's folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from actors.cluster import connect
from pipelines import auditing as divided_audit
from pipelines.auditing import PartOfRun, audit_run, open_part, saved_state
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import config_of, last_state, states_of
from pipelines.valuing import value_rows
from raydt.audits.bins import PartsHere
from raydt.errors import ConfigError, InputError, ModelFileError, RaydtError
from raydt.examples.row_owners import RowOwners
from raydt.learners import learners
from raydt.learners.base import WorkPlan, audit_divided
from tests.integration.test_ray_kills import results
from tests.refusals import refused

# -- ray audit -------------------------------------------------------------------------------------------------------
# Audits of runs that are divided by buckets of rows: each part reads the run and its source for itself.


ROWS, WARMUP = 1500, 400
KINDS: dict[str, dict[str, Any]] = {
    "classes, text ids": {"objective": "multiclass"},
    "numbers, weights": {"objective": "squared_error"},
    "two classes, balanced": {"objective": "binary", "class_weight": "balanced"},
}


@pytest.fixture
def table(tmp_path):
    draw = np.random.default_rng(3)
    columns: dict[str, Any] = {f"x{j}": draw.integers(0, 60, ROWS) / 4 for j in range(4)}
    columns["word"] = [f"w{v}" for v in draw.integers(0, 9, ROWS)]
    columns["classes, text ids"] = [f"c{int(a + b) // 12}" for a, b in zip(columns["x0"], columns["x1"], strict=True)]
    columns["numbers, weights"] = columns["x0"] - columns["x2"] / 3
    columns["two classes, balanced"] = (columns["x1"] > 11).astype(int)
    columns["w"] = draw.integers(0, 5, ROWS) / 2
    columns["id"] = draw.permutation(ROWS) + 100
    columns["name"] = [f"id {i}" for i in columns["id"]]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def run_of(table, kind: str, out, shards: int | None) -> Any:
    text, weights = "text" in kind, "weights" in kind
    source = {"kind": "parquet", "path": str(table), "label": kind, "id": "name" if text else "id"}
    source["exclude"] = [*(other for other in KINDS if other != kind), "id" if text else "name"]
    if weights:
        source["weight"] = "w"
    else:
        source["exclude"].append("w")
    here = {"backend": "in_process"}
    return pipelines.replay(
        {
            "source": source,
            "stream": {"model": "sliding_window", "window": 900, "warmup": WARMUP},
            "learner": {"kind": "gbdt", "max_iter": 4, "update_every": 150, "feature_groups": 4, **KINDS[kind]},
            "cluster": here if shards is None else {"shards": shards, "batch_size": 100, "memory_limit": 0},
            "checkpoint": {"every_updates": 400, "every_seconds": None},
            "output": {"report": False},
        },
        out,
    ).path


def in_parts(run: Any, shards: int) -> Any:
    """The report of parts in this process, as processes on Ray would open them."""
    folder = RunFolder(run)
    saved = saved_state(last_state(states_of(config_of(folder), folder)))
    updates = int(saved.meta["offset"])
    parts = [open_part(PartOfRun(str(run), updates, own)) for own in RowOwners(shards).of_all()]
    return audit_divided(learners()["gbdt"], saved.options, saved.features, saved.arrays, PartsHere(parts)).as_dict()


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "shards"),
    [
        ("classes, text ids", 2),
        *(
            pytest.param(kind, shards, marks=pytest.mark.nightly)
            for kind, shards in product(KINDS, (None, 2))
            if (kind, shards) != ("classes, text ids", 2)
        ),
    ],
)
def test_parts_of_a_run_report_what_one_process_does(table, tmp_path, cluster, kind, shards) -> None:
    """Rows of separate shards are in files by owner, in several segments; those of one process are in one."""
    run = run_of(table, kind, tmp_path / "run", shards)
    whole = audit_run(run).as_dict()
    assert whole["ok"]
    for parts in (1, 3, 8):
        assert in_parts(run, parts) == whole, parts
    assert audit_run(run, shards=2).as_dict() == whole


@pytest.mark.ray
@pytest.mark.parametrize("by", ["row", pytest.param("word", marks=pytest.mark.nightly)])
def test_values_by_tasks_are_those_of_one_process(table, tmp_path, cluster, by) -> None:
    """To the byte, table and page."""
    source = {"kind": "parquet", "path": str(table), "id": "id", "label": "two classes, balanced"}
    source["features"] = ["x0", "x1", "x2", "x3", "word"]
    learner = {"kind": "forest", "n_estimators": 5}
    run = pipelines.train({"source": source, "stream": {"holdout": 0}, "learner": learner}, tmp_path / "run").path
    found = [
        value_rows(run, table, tmp_path / f"{name}.parquet", by=by, address=address)
        for name, address in (("here", None), ("there", "auto"))
    ]
    here, there = ([Path(one[name]).read_bytes() for name in ("out", "page")] for one in found)
    assert here == there


@pytest.mark.ray
def test_what_is_wrong_is_found_by_its_part(table, tmp_path, cluster) -> None:
    """Another label in the source is another source; a damaged file of an owner is named."""
    run = run_of(table, "two classes, balanced", tmp_path / "run", 2)
    damaged = max((Path(run) / "checkpoints").glob("*/buckets-2048-4096.*.npz"), key=lambda file: int(file.parent.name))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    for shards in (1, 2):
        with pytest.raises(
            ModelFileError, match=rf"{damaged.name}: .* The state before it, of update [\d,]+, is sound"
        ):
            audit_run(run, shards=shards)
    pq.write_table(pq.read_table(table).slice(1), table)
    with pytest.raises(InputError, match="no longer"):
        audit_run(run, shards=2)


@pytest.mark.ray
def test_a_lost_process_ends_the_audit_with_a_remedy(table, tmp_path, cluster, monkeypatch) -> None:
    run = run_of(table, "two classes, balanced", tmp_path / "run", None)

    def dies(part: PartOfRun) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(divided_audit, "open_part", dies)
    with refused("audits.part_lost", RaydtError) as caught:
        audit_run(run, shards=2)
    assert " died. Audit again" in str(caught.value)


@pytest.mark.ray
def test_what_cannot_be_divided_says_so(table, tmp_path, monkeypatch) -> None:
    config = {"source": {"kind": "synthetic", "generator": "sea", "n": 300}, "learner": {"kind": "fudyadt"}}
    config |= {"stream": {"model": "sliding_window", "window": 100}, "cluster": {"backend": "in_process"}}
    run = pipelines.replay(config, tmp_path / "run").path
    with refused("audits.undivided", ConfigError, learner="fudyadt"):
        audit_run(run, shards=2)
    with refused("commands.no_shards", ConfigError):
        audit_run(run, address="auto")
    with refused("cluster.no_shard", ConfigError, shards=0):
        audit_run(run, shards=0)
    with refused("keyed.one", InputError):
        audit_run(run, "north", shards=2)
    monkeypatch.setattr("actors.cluster._is_connected", lambda: False)
    monkeypatch.setattr(divided_audit, "SHARDS_PER_CPU", 0)
    with refused("audits.many_parts", ConfigError, shards=2):
        audit_run(run_of(table, "numbers, weights", tmp_path / "boosted", None), shards=2, address="local")


# -- ray channel -----------------------------------------------------------------------------------------------------
# Shards of a GBDT on Ray meet over their channel: who dies in the middle of a pass does not show.

CONFIG = {
    "source": {"kind": "synthetic", "generator": "hyperplane", "n": 900, "n_features": 6, "drift": 4, "seed": 11},
    "stream": {"model": "sliding_window", "window": 500, "warmup": 400},
    "learner": {"kind": "gbdt", "max_iter": 3, "max_bins": 32, "update_every": 200, "retrain": "never"},
    "cluster": {"backend": "in_process", "shards": 2, "batch_size": 100},
    "checkpoint": {"every_updates": 400, "every_seconds": None},
    "output": {"report": False, "predictions": True, "metrics_every": 400},
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return results(pipelines.replay(CONFIG, tmp_path_factory.mktemp("undisturbed") / "run"))


@pytest.fixture
def replay(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(WorkPlan, "within", lambda *_, **__: WorkPlan(local_work_limit=0))

    def replayed(faults="", **settings):
        monkeypatch.setenv("RAYDT_FAULTS", faults)
        overrides = ["cluster.backend=ray", *(f"cluster.{name}={value}" for name, value in settings.items())]
        return pipelines.replay(CONFIG, tmp_path / "run", overrides=overrides)

    return replayed


@pytest.mark.ray
def test_what_a_shard_raises_in_the_middle_of_a_pass_arrives(replay):
    with refused("exchange.fault", RaydtError, point="shard.between_meetings"):
        replay("shard.between_meetings/1@5#1=raise")


@pytest.mark.ray
@pytest.mark.parametrize(("processes", "cpus"), [(2, 1), (1, 2), (1, 3), (2, 2)])
@pytest.mark.nightly
def test_processes_of_several_shards_meet_as_shards_do(processes, cpus, replay, undisturbed):
    run = replay(shards=processes, **{"resources.shard.num_cpus": cpus, "resources.coordinator.num_cpus": 0})
    assert results(run) == undisturbed
    assert run.summary["rounds"] > 0


@pytest.mark.ray
@pytest.mark.parametrize(
    ("act", "settings"),
    [("kill", {}), pytest.param("stop", {"patience_seconds": 3}, marks=pytest.mark.nightly)],
)
def test_a_shard_that_is_lost_in_the_middle_of_a_pass_does_not_show(act, settings, replay, undisturbed):
    run = replay(f"shard.between_meetings/1@5#1={act}", **settings)
    assert results(run) == undisturbed
    assert run.summary["rounds"] > 0
    (lost,) = run.summary["recoveries"]
    assert re.match(r"shard 1 \(pid \d+ on ", lost["what"]), lost


# -- ray folder ------------------------------------------------------------------------------------------------------
# What a private Ray leaves on the disk once it has ended: nothing; other sessions are left alone.

#: In a process of its own, which no other test has connected to a Ray.
PROGRAM = """
import os, pathlib
from actors.cluster import Cluster, connect
cluster = connect("local")
import ray, numpy as np
folder = pathlib.Path(ray._private.worker._global_node.get_session_dir_path())
other = folder.parent / f"session_of_nobody_{os.getpid()}"
other.mkdir()
assert ray.get(ray.put(np.arange(10_000))).sum() == 49_995_000
assert any(folder.iterdir())
assert Cluster(started=False)._session is None
cluster.close()
print("left", folder.exists(), "other", other.exists())
other.rmdir()
"""


@pytest.mark.nightly
def test_the_session_folder_goes_with_its_ray() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.strip() == "left False other True", done.stderr


KILLED = """
import os, signal
from actors.cluster import connect
cluster = connect("local")
import psutil
agents = [one.pid for one in psutil.Process().children(recursive=True) if "agent" in " ".join(one.cmdline()).lower()]
print(*agents, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_agents_of_a_private_ray_end_with_a_driver_that_is_killed() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, check=False, timeout=300)
    agents = [int(word) for word in done.stdout.split()]
    assert done.returncode == -signal.SIGKILL
    assert len(agents) >= 2
    until = time.monotonic() + 10.0  # without the process that follows the driver they take a minute
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in agents):
        assert time.monotonic() < until, agents
        time.sleep(0.05)


@pytest.mark.parametrize("name", ["TMPDIR", "RAY_TMPDIR"])
def test_a_folder_for_temporary_files_with_a_long_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would end with "AF_UNIX path length cannot exceed 107 bytes", or wait for a raylet that is not there."""
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv(name, folder := "/tmp/" + "x" * 60)
    monkeypatch.setattr("actors.cluster._is_connected", lambda: False)  # whatever other tests have left
    with refused("cluster.long_tmpdir", ConfigError, name=name, folder=folder):
        connect("local")
