"""A run in chapters is the run without, whatever is gone while a chapter closes: the driver, its process, an actor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from pipelines import replay, resume
from pipelines.auditing import audit_run
from pipelines.following import follow
from raydt.exchange.messages import injected
from tests.chapter_runs import folders, in_chapters, rows, summary
from tests.cut_runs import Gone, at
from tests.unit.test_follow import changed, job, same

POINTS = (
    "driver.recorded",
    "follow.planned",
    "run.before_compaction",
    "checkpoint.before_manifest",
    "checkpoint.after_manifest",
    "run.before_summary",
    "run.before_report",
    "chapter.closed",
    "chapter.between_files",
)


@pytest.mark.turns(2)
@pytest.mark.parametrize(("point", "n"), [(point, 1 + (point != "run.before_report")) for point in POINTS])
def test_a_driver_that_is_gone_where_a_chapter_closes_does_not_show(tmp_path: Path, point: str, n: int) -> None:
    one_cut(tmp_path, 0, point, n)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("point", POINTS)
def test_drivers_that_are_gone_anywhere_do_not_show(tmp_path: Path, seed: int, point: str) -> None:
    one_cut(tmp_path, seed, point, 1 + seed % 4 * (point != "run.before_report"))


def one_cut(folder: Path, seed: int, point: str, n: int) -> None:
    table, run = changed(folder, seed), folder / "run"
    output = {"report": point == "run.before_report", "metrics_every": 10}
    config = in_chapters(table, follow={"keep": 3}, output=output)
    with injected(at(n, point=point)), pytest.raises(Gone):
        follow(config, run, until_idle=0.0)
    resumed = follow(run, until_idle=0.0)
    same(resumed, replay(job(table), folder / "whole"))
    chapters = folders(run)
    assert len(chapters) == 4
    assert rows(chapters, "metrics") == rows([folder / "whole"], "metrics")[-len(rows(chapters, "metrics")) :]
    for before, after in pairwise(chapters):
        assert summary(after)["chapter"]["digest_before"] == summary(before)["model_digest"]
    assert all((folder / "report.html").exists() == output["report"] for folder in chapters)
    assert sorted(entry.name for entry in (run / "chapters").iterdir()) == [folder.name for folder in chapters]
    assert audit_run(chapters[-1]).conformance == "holds"


def one_kill(folder: Path, seed: int, faults: str) -> None:
    table, run = changed(folder, seed), folder / "killed"
    config = folder / "job.yaml"
    config.write_text(json.dumps(in_chapters(table, follow={"keep": 2})))
    command = [sys.executable, "-m", "pipelines.cli", "follow", str(config), "--out", str(run), "--until-idle", "0"]
    environment = {**os.environ, "RAYDT_FAULTS": faults, "PYTHONPATH": str(Path(__file__).parents[2])}
    gone = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert gone.returncode == -signal.SIGKILL, gone.stderr
    same(resume(run), replay(job(table), folder / "whole"))


@pytest.mark.nightly
def test_a_process_that_is_killed_between_two_chapters_does_not_show(tmp_path: Path) -> None:
    one_kill(tmp_path, 0, "chapter.closed@2#0=kill")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_processes_that_are_killed_anywhere_do_not_show(tmp_path: Path, seed: int) -> None:
    points = [point for point in POINTS if point != "run.before_report"]
    one_kill(tmp_path, seed, f"{points[seed % len(points)]}@{1 + seed % 3}#0=kill")


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["fudyadt", "gbdt"])
def test_actors_go_on_over_chapters_and_a_lost_one_goes_back_to_the_chapter_before(tmp_path: Path, kind: str) -> None:
    table, run, closed = changed(tmp_path), tmp_path / "run", iter(range(1, 100))
    now = [0]

    def kill_in_the_third(point: str) -> None:
        if point == "chapter.closed":
            now[0] = next(closed)
        elif point == "driver.recorded" and now[0] == 2:
            log = (folders(run)[0] / "log.jsonl").read_text().splitlines()
            pids = [json.loads(line).get("pids") for line in log]
            os.kill(next(filter(None, pids))[-1], signal.SIGKILL)
            now[0] = 0

    cluster = {"backend": "ray", "shards": 2, "batch_size": 8, "memory_limit": 0}
    with injected(kill_in_the_third):
        result = follow(in_chapters(table, 20, learner={"kind": kind}, cluster=cluster), run, until_idle=0.0)
    same(result, replay(job(table, learner={"kind": kind}), tmp_path / "whole"))
    assert [summary(folder)["restarts"] for folder in folders(run)] == [0, 0, 1, 0, 0]


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_while_a_chapter_closes_ends_the_run_and_does_not_show(tmp_path: Path) -> None:
    table, run = changed(tmp_path), tmp_path / "run"
    with injected(at(2, act=stop, point="chapter.closed")), pytest.raises(SystemExit):
        follow(in_chapters(table), run, until_idle=0.0)
    assert [summary(folder)["exit_reason"] for folder in folders(run)] == ["end_of_chapter"] * 2
    with injected(at(1, act=stop, point="run.before_compaction")), pytest.raises(SystemExit):
        follow(run, until_idle=0.0)
    same(follow(run, until_idle=0.0), replay(job(table), tmp_path / "whole"))
