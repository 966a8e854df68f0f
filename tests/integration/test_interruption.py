"""Signals to a real process: it ends soon, whatever its main thread is doing, and a resumed run is the undisturbed one.

The bound is wide, for machines that do much else.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.operation import dump_yaml
from pipelines.running import ending as interruption
from pipelines.running.ending import Interruption
from raydt.messages import message

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
HELD = Path(__file__).with_name("held_command.py")

#: From the last signal to the end of the process.
BOUND_SECONDS = 5.0

JOB: dict[str, Any] = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 30_000, "drift": 2, "seed": 3},
    "stream": {"model": "sliding_window", "window": 2000, "warmup": 2000},
    "learner": {"kind": "fudyadt", "epsilon": 0.5, "max_depth": 8},
    "cluster": {"backend": "in_process", "shards": 2, "batch_size": 500},
    "checkpoint": {"every_updates": 4000},
    "output": {"report": False},
}
ON_RAY = {**JOB, "source": {**JOB["source"], "n": 6000}, "cluster": {**JOB["cluster"], "backend": "ray"}}
ON_RAY["cluster"]["memory_limit"] = 0
ray = pytest.mark.ray


class Command:
    """A command in a process of its own; ``cold``: no kernel is compiled yet, so all are tried out at the beginning."""

    def __init__(
        self, folder: Path, job: dict[str, Any], places: str, *arguments: str, faults: str = "", cold: bool = False
    ) -> None:
        self.run, self.marks = folder / "run", folder / "marks"
        self.marks.mkdir()
        config = folder / "job.yaml"
        config.write_text(dump_yaml(job))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAYDT_FAULTS": faults}
        if cold:
            environment["NUMBA_CACHE_DIR"] = str(folder / "kernels")
        command = [sys.executable, str(HELD), places, str(self.marks), *(arguments or ("replay",))]
        self.process = subprocess.Popen(
            [*command[:5], str(config), "--out", str(self.run), *command[5:]], cwd=ROOT, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.others: list[psutil.Process] = []

    def wait_for(self, place: str, times: int = 1) -> None:
        """Until the process has passed a place so often."""
        self.wait_until(lambda: (self.marks / place).exists() and self.marked(place) >= times)

    def marked(self, place: str) -> int:
        return (self.marks / place).read_text().count("\n")

    def wait_until(self, happened: Any) -> None:
        give_up = time.monotonic() + 180
        while not happened():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < give_up
            time.sleep(0.02)

    def signal(self, *numbers: signal.Signals, apart: float = 0.4) -> None:
        """Send signals, one after the other, and wait for the end."""
        self.others = psutil.Process(self.process.pid).children(recursive=True)
        for place, number in enumerate(numbers):
            time.sleep(apart if place else 0)
            self.process.send_signal(number)
        began = time.monotonic()
        self.process.wait(timeout=60)
        self.seconds = time.monotonic() - began
        self.out, self.err = self.process.communicate(timeout=60)

    @property
    def summary(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.run / "summary.json").read_text())
        return content

    def require_end(self, number: signal.Signals, *, digest: bool, within: float = BOUND_SECONDS) -> None:
        """It has ended as it should, in time, and nothing of it is left."""
        assert self.process.returncode == 128 + number, self.err
        assert self.seconds < within, self.err
        assert self.summary["status"] == "interrupted"
        assert (self.summary["exit_reason"], self.summary["exit_code"]) == (number.name, 128 + number)
        assert (self.summary["model_digest"] is not None) == digest
        assert psutil.wait_procs(self.others, timeout=10)[1] == []
        if not digest:
            last, at = self.summary["checkpoints"]["last"], self.summary["updates"]
            line = message("runs.resume_start" if last is None else "runs.resume", run=self.run, update=last)
            ended = message("runs.interrupted_at", update=at, resume=line)
            assert self.err.splitlines()[-1] == ended or line in self.out


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Start commands; none of them is left in the end."""
    started: list[Command] = []

    def command(*arguments: Any, **options: Any) -> Command:
        started.append(Command(tmp_path, *arguments, **options))
        return started[-1]

    yield command
    for one in started:
        one.process.kill()
        one.process.wait()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Digests and tables of the jobs, without a signal."""
    folder = tmp_path_factory.mktemp("undisturbed")
    results = {}
    for name, job in (("in_process", JOB), ("ray", ON_RAY)):  # the backend decides nothing
        quick = {**job, "cluster": {**job["cluster"], "backend": "in_process"}}
        run = pipelines.replay(quick, folder / name)
        results[name] = (run.digest, run.summary["metrics"], run.summary["updates"], predictions(folder / name))
    return results


def predictions(run: Path) -> Any:
    return pq.read_table(run / "predictions") if (run / "predictions").exists() else None


def require_same_when_resumed(command: Command, expected: tuple[Any, ...], backend: str = "in_process") -> None:
    run = pipelines.resume(command.run, overrides=[f"cluster.backend={backend}"])
    assert run.status == "completed"
    assert (run.digest, run.summary["metrics"], run.summary["updates"], predictions(command.run)) == expected


@pytest.mark.parametrize("number", interruption.SIGNALS)
def test_in_the_stream_there_is_time_for_an_orderly_end(start, undisturbed, number):
    command = start(JOB, "driver.recorded@*=pause,patient@*=mark")
    command.wait_for("driver.recorded", 10)
    command.signal(number)
    command.require_end(number, digest=True, within=30.0)
    assert command.summary["updates"] == command.summary["checkpoints"]["last"]
    assert f"interrupted ({number.name})" in command.out
    assert f"raydt resume {command.run} continues from update {command.summary['updates']:,}" in command.out
    assert not (command.run / "report.html").exists()
    require_same_when_resumed(command, undisturbed["in_process"])


def test_while_the_main_thread_is_in_compiled_code(start, undisturbed):
    command = start(JOB, "driver.recorded@30=kernel")
    command.wait_for("driver.recorded")
    command.signal(signal.SIGTERM)
    command.require_end(signal.SIGTERM, digest=False)
    assert command.out == ""
    assert command.summary["checkpoints"]["last"] < command.summary["updates"]
    require_same_when_resumed(command, undisturbed["in_process"])


def test_the_second_signal_ends_at_once(start, undisturbed):
    command = start(JOB, "driver.recorded@30=kernel,patient@*=mark")  # one signal alone would take a minute
    command.wait_for("driver.recorded")
    command.signal(signal.SIGINT, signal.SIGINT)
    assert command.process.returncode == 130, command.err
    assert command.seconds < BOUND_SECONDS
    if (command.run / "summary.json").exists():  # it has not waited for a busy disk
        assert (command.summary["status"], command.summary["exit_code"]) == ("interrupted", 130)
    require_same_when_resumed(command, undisturbed["in_process"])


@pytest.mark.parametrize("place", ["checkpoint.before_manifest@2=sleep", "checkpoint.before_manifest@2=kernel"])
def test_while_a_checkpoint_is_being_written(start, undisturbed, place):
    command = start(JOB, place)
    command.wait_for("checkpoint.before_manifest")
    command.signal(signal.SIGTERM)
    command.require_end(signal.SIGTERM, digest=False)
    first = command.summary["checkpoints"]["last"]
    assert {entry.name for entry in (command.run / "checkpoints").glob("*/manifest.json")} == {"manifest.json"}
    assert [int(entry.parent.name) for entry in (command.run / "checkpoints").glob("*/manifest.json")] == [first]
    require_same_when_resumed(command, undisturbed["in_process"])


@pytest.mark.parametrize(
    ("place", "digest"), [("run.before_compaction", False), ("run.before_summary", True), ("report", True)]
)
def test_at_the_end_of_the_stream(start, undisturbed, place, digest):
    command = start({**JOB, "output": {"report": True}}, f"{place}@1=sleep")
    command.wait_for(place)
    command.signal(signal.SIGTERM)
    command.require_end(signal.SIGTERM, digest=digest)
    if digest:
        assert command.summary["model_digest"] == undisturbed["in_process"][0]
    require_same_when_resumed(command, undisturbed["in_process"])


@pytest.mark.parametrize(
    ("job", "act"), [(JOB, "sleep"), (JOB, "kernel"), pytest.param(ON_RAY, "sleep", marks=ray)],
    ids=["compiling", "compiled code", "starting Ray"],
)  # fmt: skip
def test_before_the_first_update_nothing_is_left(start, job, act):
    command = start(job, f"coordinator.local_rebuild@1={act}", cold=True)
    command.wait_for("coordinator.local_rebuild")
    command.signal(signal.SIGTERM)
    assert command.process.returncode == 143, command.err
    assert command.seconds < BOUND_SECONDS
    assert command.err.splitlines()[-1] == "terminated"
    assert not command.run.exists()
    assert psutil.wait_procs(command.others, timeout=10)[1] == []


def stopped(command: Command) -> bool:
    """Whether a process of the job is stopped."""
    for process in psutil.Process(command.process.pid).children(recursive=True):
        try:
            if process.status() == psutil.STATUS_STOPPED:
                return True
        except psutil.NoSuchProcess:
            continue
    return False


@ray
@pytest.mark.parametrize(
    "faults",
    ["shard.before_answer/1@60#1=stop", "coordinator.after_batch@10#1=kill,coordinator.before_restore@1#2=stop"],
    ids=["in a BUILD on the shards", "in a recovery"],
)
@pytest.mark.usefixtures("cluster")  # for the one that is resumed
def test_on_ray_while_an_actor_does_not_answer(start, undisturbed, faults):
    command = start(ON_RAY, "report@1=mark", faults=faults)
    command.wait_until(lambda: stopped(command))
    command.signal(signal.SIGINT)
    command.require_end(signal.SIGINT, digest=False)
    assert command.summary["restarts"] == faults.count("kill")
    require_same_when_resumed(command, undisturbed["ray"], "ray")


@ray
def test_in_the_stream_on_ray(start, undisturbed):
    command = start(ON_RAY, "driver.recorded@*=pause")
    command.wait_for("driver.recorded", 8)
    command.signal(signal.SIGTERM)
    command.require_end(signal.SIGTERM, digest=command.summary["model_digest"] is not None)
    require_same_when_resumed(command, undisturbed["ray"])


def test_a_sweep_keeps_the_settings_that_are_done(start):
    job = {**JOB, "source": {**JOB["source"], "n": 3000}}
    command = start(job, "coordinator.local_rebuild@14=kernel", "sweep", "--grid", "learner.max_depth=2,3,4,5")
    command.wait_for("coordinator.local_rebuild")
    command.signal(signal.SIGTERM)
    assert command.process.returncode == 143, command.err
    assert command.seconds < BOUND_SECONDS
    summary = json.loads((command.run / "sweep.json").read_text())
    assert (summary["status"], summary["exit_reason"], summary["exit_code"]) == ("interrupted", "SIGTERM", 143)
    assert len(pq.read_table(command.run / "sweep.parquet")) == summary["done"]
    assert 1 <= summary["done"] < 4  # the first setting has passed there 12 times, all of them 15 times
    if (command.run / "sweep.html").exists():  # the page and the line come last, if there is time
        said = message("sweeps.interrupted", done=summary["done"], settings="4 settings")
        assert command.err.splitlines()[-1] == said


def hear(number: signal.Signals) -> None:
    """Send this process a signal, and give it time to handle it."""
    os.kill(os.getpid(), number)
    time.sleep(0.2)


def test_the_same_signal_handed_on_by_a_wrapper_is_one_wish(monkeypatch):
    monkeypatch.setattr(interruption, "REPEATED_SECONDS", 60.0)
    monkeypatch.setattr(interruption, "GRACE_SECONDS", 60.0)
    stops: list[str] = []
    with Interruption() as wish:
        wish.arm(lambda: stops.append("stop"), lambda: pytest.fail("cut short"))
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
        assert wish.signal is signal.SIGTERM
        assert stops
        assert wish.settle() is signal.SIGTERM


def test_outside_the_main_thread_signals_are_left_alone():
    before = [signal.getsignal(number) for number in interruption.SIGNALS]
    threads = set(threading.enumerate())  # those of other tests may be ending meanwhile
    seen: list[Any] = []

    def job() -> None:
        with Interruption():
            more = set(threading.enumerate()) - threads
            seen.append(([signal.getsignal(number) for number in interruption.SIGNALS], len(more)))

    worker = threading.Thread(target=job)
    worker.start()
    worker.join()
    assert seen == [(before, 1)]


def test_what_was_there_is_there_again():
    before = [signal.getsignal(number) for number in interruption.SIGNALS]
    wish = Interruption()
    with pytest.raises(SystemExit, match="130"), wish:
        hear(signal.SIGINT)
    assert wish.signal is signal.SIGINT
    assert [signal.getsignal(number) for number in interruption.SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_an_interactive_session_is_not_ended(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setattr(interruption, "GRACE_SECONDS", 0.05)
    stops: list[str] = []
    with Interruption() as wish:
        wish.arm(lambda: stops.append("stop"), lambda: pytest.fail("cut short"))
        hear(signal.SIGINT)
        assert stops == ["stop"]
        with pytest.raises(SystemExit, match="130"):
            hear(signal.SIGINT)
