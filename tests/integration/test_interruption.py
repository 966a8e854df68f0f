"""Interruptions of a run and of a sweep, sweeps, and the wheel."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
import raydt
from pipelines import replay, sweep
from pipelines.cli import cli
from pipelines.operation import dump_yaml
from pipelines.running import ending as interruption
from pipelines.running.ending import Interruption
from pipelines.sweeping import trials as job
from raydt.errors import ConfigError, InputError
from raydt.messages import message
from raydt.streams.deletion_log import warmup
from tests.refusals import refused

# -- interruption ----------------------------------------------------------------------------------------------------
# Signals to a real process: it ends soon, whatever its main thread is doing, and a resumed run is the undisturbed
# one.
#
# The bound is wide, for machines that do much else.

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
    for name, config in (("in_process", JOB), ("ray", ON_RAY)):  # the backend decides nothing
        quick = {**config, "cluster": {**config["cluster"], "backend": "in_process"}}
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


@pytest.mark.parametrize("act", ["sleep", "kernel"])
def test_before_the_first_model_the_run_is_left_to_be_resumed(start, undisturbed, act):
    """Kernels are compiled as the run meets them, here in the batch that completes the warm-up."""
    command = start(JOB, f"coordinator.local_rebuild@1={act}", cold=True)
    command.wait_for("coordinator.local_rebuild")
    command.signal(signal.SIGTERM)
    command.require_end(signal.SIGTERM, digest=False)
    require_same_when_resumed(command, undisturbed["in_process"])


@ray
def test_before_ray_has_started_nothing_is_left(start):
    command = start(ON_RAY, "coordinator.local_rebuild@1=sleep", cold=True)
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
    job = {**JOB, "source": {**JOB["source"], "n": 3000}, "cluster": {**JOB["cluster"], "threads": 1}}
    command = start(job, "coordinator.local_rebuild@10=kernel", "sweep", "--grid", "source.seed=3,4,5,6")
    command.wait_for("coordinator.local_rebuild")
    command.signal(signal.SIGTERM)
    assert command.process.returncode == 143, command.err
    assert command.seconds < BOUND_SECONDS
    summary = json.loads((command.run / "sweep.json").read_text())
    assert (summary["status"], summary["exit_reason"], summary["exit_code"]) == ("interrupted", "SIGTERM", 143)
    assert len(pq.read_table(command.run / "sweep.parquet")) == summary["done"]
    assert 1 <= summary["done"] < 4  # each passes there twice, after a look at what is to be compiled
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


# -- wheel -----------------------------------------------------------------------------------------------------------
# A wheel built from the sources works from any directory, without the sources beside it.

CONFIG = """\
source: {kind: synthetic, generator: sea, n: 300}
stream: {model: sliding_window, window: 100}
learner: {kind: fudyadt, epsilon: 0.5, max_depth: 4}
cluster: {backend: in_process}
"""


def run(*command, **options):
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder the wheel is installed to. Built from a copy, since a build leaves files in its source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    clone = folder / "clone"
    for package in ("raydt", "actors", "pipelines"):
        shutil.copytree(ROOT / package, clone / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE", "raydt_command.py"):
        shutil.copy(ROOT / file, clone / file)
    pip = sys.executable, "-m", "pip", "--disable-pip-version-check"
    run(*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(clone))
    [wheel] = folder.glob("raydt-*.whl")
    run(*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel))
    return folder / "site"


@pytest.fixture
def user(site, tmp_path):
    """Run Python in a directory of the user's own with what the wheel has installed."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables |= {"PYTHONPATH": str(site)}
    return lambda *arguments: run(sys.executable, *arguments, cwd=tmp_path, env=variables)


def test_what_is_installed(site, user):
    names = "raydt.__file__, actors.__file__, jobs.replay.__code__.co_filename"
    folders = user("-c", f"import raydt; from raydt import jobs; import actors; print({names})")
    own = site / "raydt" / "_packages"
    assert [Path(path).parents[1] for path in folders.split()] == [site, own, own / "pipelines"]
    assert user("-m", "raydt.jobs", "--version").split()[-1] == raydt.__version__
    assert (site / "bin" / "raydt").is_file()
    assert (site / "raydt" / "py.typed").is_file()
    assert {path.name for path in site.iterdir()} - {"__pycache__"} == {
        "bin", "raydt", "raydt_command.py", f"raydt-{raydt.__version__}.dist-info"
    }  # fmt: skip


def test_what_the_sources_have_compiled_is_not_compiled_again(user):
    warmup()
    looked_up = "; print(*(sum(found.values()) for found in draw.stats[1:]))"
    program = "from raydt.streams.deletion_log import _draw as draw, warmup; warmup()"
    assert user("-c", program + looked_up).split() == ["1", "0"]  # hits, misses


def test_a_replay_with_its_report(site, user, tmp_path):
    (tmp_path / "config.yaml").write_text(CONFIG)
    user("-m", "raydt.jobs", "replay", "config.yaml", "--out", "run")
    report = (tmp_path / "run" / "report.html").read_text()
    assert (site / "raydt" / "_packages" / "pipelines" / "report" / "page.css").read_text().strip() in report
    assert (tmp_path / "run" / "summary.json").is_file()


def test_the_data_files_are_those_of_the_sources(site):
    def files(package, root):
        return {
            path.relative_to(root / package): path.read_bytes()
            for path in (root / package).rglob("*")
            if path.is_file() and not {"__pycache__", "_packages"} & {*path.relative_to(root).parts}
        }

    own = site / "raydt" / "_packages"
    for package, place in (("raydt", site), ("actors", own), ("pipelines", own)):
        assert files(package, place) == files(package, ROOT)


# -- sweep -----------------------------------------------------------------------------------------------------------
# Sweeps: equal to single replays on both backends, honest about failures, complete after a signal.

TIMES = ("seconds", "cpu_seconds", "us_per_update")


def config(backend="in_process", **sections):
    return {
        "source": {"kind": "synthetic", "generator": "sea", "n": 2000},
        "stream": {"model": "sliding_window", "window": 300, "warmup": 50},
        "learner": {"kind": "fudyadt", "alpha": 0.0, "beta": 0.0, "max_depth": 6},  # epsilon: auto is refused then
        "cluster": {"backend": backend},
        "output": {"report": False, "metrics_every": 500},
        **sections,
    }


GRID = ["learner.epsilon=0.1:0.3:0.1", "stream.window=200,300"]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The grid, one setting after another."""
    return sweep(config(), GRID, tmp_path_factory.mktemp("sweeps") / "here")


def untimed(table):
    return table.drop_columns([*TIMES]).to_pylist()


def test_every_setting_is_what_a_replay_of_it_gives(here, tmp_path):
    rows = here.table.to_pylist()
    assert [(row["learner.epsilon"], row["stream.window"]) for row in rows] == [
        (e, w) for e in (0.1, 0.2, 0.3) for w in (200, 300)
    ]
    for row in rows[::3]:
        sets = [f"{key}={row[key]}" for key in ("learner.epsilon", "stream.window")]
        summary = replay(config(), tmp_path / str(row["setting"]), overrides=sets).summary
        assert row["digest"] == summary["model_digest"]
        expected = {**summary, **summary["metrics"], **summary["baselines"]}
        for name in set(row) & set(expected) - {*TIMES, "error"}:
            assert row[name] == expected[name], name


@pytest.mark.parametrize("n", [2, 3, 5])
def test_threads_give_the_same_table_in_the_same_order(here, n, tmp_path):
    there = sweep(config(cluster={"backend": "in_process", "threads": n}), GRID, tmp_path / "there")
    assert untimed(there.table) == untimed(here.table)
    assert there.curves == here.curves
    logs = [(Path(one.path) / "log.jsonl").read_text().splitlines() for one in (here, there)]
    assert [[json.loads(line)["setting"] for line in log] for log in logs] == [[*range(6)]] * 2
    keys = here.summary.keys() - {"parallel", "started", "best"} - {key for key in here.summary if "seconds" in key}
    assert {key: here.summary[key] for key in keys} == {key: there.summary[key] for key in keys}
    assert there.summary["parallel"] == n


@pytest.mark.parametrize("kind", ["gbdt", "forest", "confidence_tree"])
def test_settings_of_each_learner_run_at_the_same_time(kind, tmp_path):
    grid = ["stream.window=200,250,300"]
    tables = []
    for n in (1, 3):
        one = config(learner={"kind": kind}, cluster={"backend": "in_process", "threads": n})
        tables.append(untimed(sweep(one, grid, tmp_path / str(n)).table))
    assert tables[0] == tables[1]
    assert not any(row["error"] for row in tables[0])


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_ray_gives_the_same_table(here, tmp_path):
    there = sweep(config("ray"), GRID, tmp_path / "there")
    assert untimed(there.table) == untimed(here.table)
    assert there.summary["best"]["accuracy"] == here.summary["best"]["accuracy"]
    assert there.exit_code == 0


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_a_deletion_log_with_text_ids_on_ray(tmp_path):
    """Ids, places of refused updates and random draws, over arrays that arrive read-only."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=300)
    ids = [f"c{i}" for i in range(300)]
    pq.write_table(pa.table({"k": ids, "x": x, "y": (x > 0).astype(int)}), tmp_path / "data.parquet")
    pq.write_table(pa.table({"id": ["c5", "c7", "nobody"], "after": [100, 200, 250]}), tmp_path / "log.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "data.parquet"), "id": "k"}
    stream = {"model": "deletion_log", "deletion_log": str(tmp_path / "log.parquet")}
    grid = {"stream.on_error": ["skip", "error"]}
    tables = []
    for backend in ("in_process", "ray"):
        result = sweep(
            config(backend, source=source, stream=stream), {**grid, "learner.epsilon": [0.5]}, tmp_path / backend
        )
        assert (result.exit_code, result.status, result.summary["failed"]) == (2, "completed", 1)
        tables.append(untimed(result.table))
    skipped, failed = tables[0]
    assert tables[0] == tables[1]
    assert (skipped["refused"], skipped["deletes"], skipped["error"]) == (1, 2, None)
    assert "log.parquet, row 2" in failed["error"]
    assert "'nobody'" in failed["error"]
    assert (failed["updates"], failed["accuracy"], failed["digest"]) == (252, None, None)


def test_what_is_left_behind(here):
    folder = Path(here.path)
    assert {file.name for file in folder.iterdir()} == {
        "config.yaml", "sweep.parquet", "curves.parquet", "sweep.json", "sweep.html", "log.jsonl",
    }  # fmt: skip
    assert pq.read_table(folder / "sweep.parquet").equals(here.table)
    summary = json.loads((folder / "sweep.json").read_text())
    assert summary == here.summary
    assert summary["grid"] == {"learner.epsilon": [0.1, 0.2, 0.3], "stream.window": [200, 300]}
    accuracy = here.table["accuracy"].to_pylist()
    best = summary["best"]["accuracy"]
    assert (best["value"], best["setting"]) == (max(accuracy), accuracy.index(max(accuracy)))
    assert here.best["accuracy"]["values"].keys() == {"learner.epsilon", "stream.window"}
    assert pipelines.load_config(folder / "config.yaml").learner.epsilon == 0.1


@pytest.mark.parametrize("backend", ["in_process", pytest.param("ray", marks=pytest.mark.ray)])
def test_trials_have_rows_of_their_own(tmp_path, backend, request):
    if backend == "ray":
        request.getfixturevalue("cluster")
    trials = "source.permutation=5,6"
    grid = [trials, "learner.epsilon=0.1,0.5", "learner.min_samples_split=2,20"]
    done = sweep(config(backend), grid, tmp_path / "sweep")
    rows = done.table.to_pylist()
    assert [(row["source.permutation"], row["learner.min_samples_split"]) for row in rows] == [
        *[(5, 2), (5, 20)] * 2, *[(6, 2), (6, 20)] * 2,
    ]  # fmt: skip
    assert len({row["digest"] for row in rows}) == 8
    for row in rows[::7]:
        keys = [key for key in row if key.startswith(("source.", "learner.")) and row[key] is not None]
        sets = [f"{key}={row[key]}" for key in keys]
        summary = replay(config(), tmp_path / str(row["setting"]), overrides=sets).summary
        assert (row["digest"], row["accuracy"]) == (summary["model_digest"], summary["metrics"]["accuracy"])
    metrics = pq.read_table(tmp_path / "0" / "metrics").to_pylist()
    curve = [moment for moment in done.curves.to_pylist() if moment["setting"] == 0]
    assert [(m["updates"], m["leaves"], m["accuracy"]) for m in curve] == [
        (m["seq"], m["leaves"], m["accuracy"]) for m in metrics if m["seq"] % 500 == 0
    ]
    assert done.summary["trials"] == 2
    best = done.best["accuracy"]
    means = [np.mean([rows[setting]["accuracy"], rows[setting + 4]["accuracy"]]) for setting in range(4)]
    assert best["value"] == pytest.approx(max(means))
    assert "source.permutation" not in best["values"]
    page = (tmp_path / "sweep" / "sweep.html").read_text()
    command = html.unescape(re.search(r"<code>(raydt replay .*)</code>", page)[1])
    sets = [word for word in shlex.split(command)[3:] if word != "--set"]
    again = replay(tmp_path / "sweep" / "config.yaml", tmp_path / "again", overrides=sets).summary
    assert again["model_digest"] == rows[best["setting"]]["digest"]
    assert "2; numbers are their means" in page


def test_the_command_replays_the_best_setting_also_of_another_learner(tmp_path):
    """Options that the first setting's learner has, with other defaults, are not taken over."""
    done = sweep(config(learner={"kind": "fudyadt"}), ["learner.kind=fudyadt,forest"], tmp_path / "sweep")
    best = done.table.to_pylist()[done.best["accuracy"]["setting"]]
    assert best["learner.kind"] == "forest"
    page = (tmp_path / "sweep" / "sweep.html").read_text()
    command = html.unescape(re.search(r"<code>(raydt replay .*)</code>", page)[1])
    sets = [word for word in shlex.split(command)[3:] if word != "--set"]
    again = replay(tmp_path / "sweep" / "config.yaml", tmp_path / "again", overrides=sets).summary
    assert again["model_digest"] == best["digest"]


def test_a_trial_whose_rows_break_off_fails_alone(tmp_path, monkeypatch):
    pq.write_table(pa.table({"x": np.arange(60.0), "y": [0, 1] * 30}), tmp_path / "data.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "data.parquet")}
    first = job.Trial.read

    def read(trial):
        if trial.configs[0].source.permutation == 2:
            raise InputError("it is gone", file="data.parquet", row=0)
        return first(trial)

    monkeypatch.setattr(job.Trial, "read", read)
    one = config(source=source, stream={"model": "incremental"})
    done = sweep(one, ["source.permutation=1:3:1", "learner.epsilon=0.1,0.2"], tmp_path / "a")
    assert done.table["error"].to_pylist() == [None, None, *["data.parquet, row 0: it is gone"] * 2, None, None]
    assert (done.exit_code, done.summary["failed"]) == (2, 2)


def failures(done):
    """Exit code, and the errors of the settings."""
    assert done.table["setting"].to_pylist() == [*range(len(done.table))]
    return done.exit_code, done.table["error"].to_pylist()


def test_a_setting_that_is_not_valid_does_not_stop_the_others(tmp_path):
    code, (bad, good) = failures(sweep(config(), ["learner.epsilon=-0.1,0.1"], tmp_path / "a"))
    assert (code, good) == (2, None)
    assert bad.startswith("learner: epsilon must be")  # the table has the setting beside it
    one = config(stream={"model": "incremental"}, learner={"kind": "fudyadt"})
    code, (good, bad) = failures(sweep(one, {"stream.model": ["incremental", "changelog"]}, tmp_path / "b"))
    assert (code, good) == (2, None)
    assert "source.op" in bad


def test_settings_of_which_none_is_valid_are_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(job, "run_setting", None)
    with pytest.raises(ConfigError, match=r"config with learner.epsilon=-0.2: learner: epsilon must be"):
        sweep(config(), ["learner.epsilon=-0.2,-0.1"], tmp_path / "a")
    numeric = config(learner={"kind": "fudyadt", "criterion": "squared_error"})
    with pytest.raises(ConfigError, match=r"^with learner.epsilon=0.1: a sweep compares accuracies"):
        sweep(numeric, ["learner.epsilon=0.1,0.2"], tmp_path / "a")
    with refused("configs.unused_key", ConfigError, key="address"):
        sweep(config(), ["learner.epsilon=0.1"], tmp_path / "a", address="auto")
    assert not (tmp_path / "a").exists()


def test_a_bad_row_stops_the_sweep_before_it_begins_unless_all_pass_over_it(tmp_path):
    rows = {"x": [0.5, 0.6, *range(40)], "y": [0, None] + [0, 1] * 20}
    pq.write_table(pa.table(rows), tmp_path / "data.parquet")
    one = config(source={"kind": "parquet", "path": str(tmp_path / "data.parquet")}, stream={"model": "incremental"})
    with pytest.raises(InputError, match="row 1, column 'y'"):
        sweep(one, ["learner.epsilon=0.1,0.2"], tmp_path / "a")
    assert not (tmp_path / "a").exists()
    result = sweep(one, ["learner.epsilon=0.1,0.2"], tmp_path / "a", overrides=["stream.on_error=skip"])
    assert result.table["skipped"].to_pylist() == [1, 1]


def test_finders_are_compared_where_all_take_the_features_of_the_source(tmp_path):
    lists = pa.array([[0, i % 7 + 1] if i % 2 else [i % 5 + 8] for i in range(60)], pa.list_(pa.int32()))
    columns = {"ones": lists, "size": np.arange(60.0), "y": ["a", "b"] * 30}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "t.parquet"), "label": "y"}
    learner = {"kind": "sparse_tree", "alpha": 0.05, "beta": 0.05}
    stream = {"model": "sliding_window", "window": 20, "warmup": 10}
    both = "learner.finder=updgini,updent"
    sparse = config(source={**source, "features": ["ones"]}, stream=stream, learner=learner)
    done = sweep(sparse, [both], tmp_path / "sparse")
    assert done.table["error"].to_pylist() == [None, None]
    mixed = config(source=source, stream=stream, learner=learner)
    code, (good, bad) = failures(sweep(mixed, [both], tmp_path / "mixed"))
    assert (code, good) == (2, None)
    assert "the features 'size' are" in bad
    code, (bad, good) = failures(sweep(sparse, ["learner.kind=fudyadt,sparse_tree"], tmp_path / "exact"))
    assert (code, good) == (2, None)
    assert "sparse" in bad


def test_a_used_folder_is_refused_and_replaced_on_demand(here, tmp_path):
    grid = ["learner.epsilon=0.5"]
    small = config(source={"kind": "synthetic", "generator": "sea", "n": 400})
    first = sweep(small, grid, tmp_path / "a")
    with refused("runs.other_run", ConfigError, status="completed"):
        sweep(small, grid, tmp_path / "a")
    again = sweep(small, grid, tmp_path / "a", overwrite=True)
    assert untimed(again.table) == untimed(first.table)


def test_the_command_line(tmp_path, capsys):
    file = tmp_path / "my.yaml"
    file.write_text(json.dumps(config(source={"kind": "synthetic", "generator": "sea", "n": 600})))
    arguments = ["sweep", str(file), "--grid", "learner.epsilon=0.1:4:0.1", "--out", str(tmp_path / "a")]
    assert cli.main(args=arguments, standalone_mode=False) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[:2] == ["learner.epsilon", "Updates/s"]
    assert out[31] == message("sweeps.best_shown", shown=30, settings=40)
    assert out[-1].endswith("/a/sweep.html")
    assert cli.main(args=[*arguments, "--overwrite", "--json"], standalone_mode=False) == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["table"]) == printed["done"] == 40


@pytest.mark.parametrize("backend", ["in_process", pytest.param("ray", marks=pytest.mark.ray)])
def test_a_signal_keeps_what_is_done(tmp_path, backend):
    """200 settings that take a minute; SIGINT after the first few."""
    file = tmp_path / "my.yaml"
    file.write_text(json.dumps(config(backend, source={"kind": "synthetic", "generator": "sea", "n": 20_000})))
    out = tmp_path / "a"
    command = [sys.executable, "-m", "pipelines.cli", "sweep", str(file), "--grid", "learner.epsilon=0.001:0.2:0.001"]
    process = subprocess.Popen(
        [*command, "--out", str(out)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    give_up = time.monotonic() + 120
    log = out / "log.jsonl"
    while time.monotonic() < give_up and (not log.exists() or log.read_text().count("\n") < 2):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    summary = json.loads((out / "sweep.json").read_text())
    assert (summary["status"], summary["exit_reason"], summary["exit_code"]) == ("interrupted", "SIGINT", 130)
    done = pq.read_table(out / "sweep.parquet")
    assert 2 <= len(done) == summary["done"] < 200
    assert done["error"].null_count == len(done)
    if printed:
        assert f"{len(done)} of 200 done" in printed
        assert "interrupted (SIGINT)" in printed
    else:  # leaving Ray took longer than a signal leaves time for: what is done is said on stderr
        assert f"{message('sweeps.interrupted', done=len(done), settings='200 settings')}\n" in errors
