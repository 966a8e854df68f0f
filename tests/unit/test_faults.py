"""The driver of a run: faults, incarnations, checkpoints that are due, observation, logs and telemetry."""

from __future__ import annotations

import ast
import json
import logging
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from pyarrow import fs as pafs

import raydt
from actors import session as ray_session
from actors import telemetry
from actors.liveness import Peer, Watch
from actors.placement import Placement
from actors.session import RaySession
from actors.telemetry import Telemetry
from pipelines import logs
from pipelines.config import load_config
from pipelines.logs import FIELDS, LinesToLog, log_to
from pipelines.operation import CheckpointOptions
from pipelines.run_folder import RunFolder
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.intake import Incarnations, Intake, RestartBudget
from pipelines.saved_runs import open_stream
from raydt.errors import ConfigError, InputError, NotWrittenError, ProcessLostError, RaydtError, RestartsSpentError
from raydt.examples.updates import Features, UpdateBatch
from raydt.exchange import messages as faults
from raydt.exchange.messages import POINTS, Plan, fault, injected
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.messages import message, quoted
from raydt.sessions.session import DIVIDED, ONE_MODEL, InProcessSession
from tests.refusals import refused
from tests.unit.small_checkpoints import Dying
from tests.unit.updatable import JOB

# -- faults ----------------------------------------------------------------------------------------------------------
# Fault points: off by default, each listed once and in use, asked for by a handler or by the environment.

ROOT = Path(raydt.__file__).resolve().parents[1]

#: A process that passes a point as often as it is told, after it has become what it is told.
PROGRAM = """
import sys
from raydt.exchange import messages as faults
point, passes, *epoch = sys.argv[1:]
if epoch:
    faults.begin_epoch(*map(int, epoch))
for index in range(int(passes)):
    faults.fault(point)
    print(index + 1, flush=True)
"""


def points_in_use():
    """The literal names at every call of ``fault`` in the product, with the file of each."""
    for folder in ("raydt", "actors", "pipelines"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "fault":
                    yield ast.literal_eval(node.args[0]), file.relative_to(ROOT).as_posix()


def run(spec, *arguments):
    """The program with ``RAYDT_FAULTS`` set to a spec."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        env={**os.environ, "RAYDT_FAULTS": spec, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_every_point_is_listed_and_every_listed_one_is_in_use():
    used = dict(points_in_use())
    assert used.keys() == POINTS.keys()


def test_nothing_happens_by_default():
    assert faults._handler is None
    for point in POINTS:
        fault(point)


def test_a_handler_sees_every_pass_and_may_raise():
    seen = []
    with injected(seen.append):
        fault("driver.recorded")
        with pytest.raises(RaydtError, match="inner"), injected(raiser):
            fault("run.before_summary")
        fault("run.before_summary")
    fault("driver.recorded")
    assert seen == ["driver.recorded", "run.before_summary"]


def raiser(point):
    raise RaydtError("inner")


class TestPlan:
    @pytest.mark.parametrize(
        ("spec", "unknown"),
        [
            ("driver.recorded", None),
            ("driver.recorded@1=kill", None),
            ("driver.recorded@0#1=kill", None),
            ("driver.recorded@1#-1=kill", None),
            ("driver.recorded@1#0=explode", "act"),
            ("driver.lunch@1#0=kill", "point"),
            ("driver.recorded@1#0=kill;driver.recorded@2#0=kill", None),
            ("driver.recorded/x@1#0=kill", None),
        ],
    )
    def test_a_spec_that_makes_no_sense(self, spec, unknown):
        known = {"variable": "RAYDT_FAULTS", "part": spec} | ({"what": unknown} if unknown else {})
        with refused("exchange.fault_name" if unknown else "exchange.fault_form", ConfigError, **known):
            Plan(f"run.before_summary@1#0=raise, {spec}")

    def test_the_nth_pass_in_one_epoch(self):
        plan = Plan("driver.recorded@2#0=raise,driver.recorded@1#2=raise, ")
        plan("driver.recorded")
        plan("run.before_summary")
        with refused("exchange.fault", RaydtError, point="driver.recorded"):
            plan("driver.recorded")
        plan("driver.recorded")
        for _ in range(3):
            plan.begin_epoch(1)
            plan("driver.recorded")
        plan.begin_epoch(2)
        with refused("exchange.fault", RaydtError, point="driver.recorded"):
            plan("driver.recorded")

    def test_one_shard_or_any(self):
        plan = Plan("shard.before_answer/1@1#1=raise,shard.after_answer@1#1=raise")
        plan.begin_epoch(1, 0)
        plan("shard.before_answer")
        with refused("exchange.fault", RaydtError, point="shard.after_answer"):
            plan("shard.after_answer")
        plan.begin_epoch(1, 1)
        with refused("exchange.fault", RaydtError, point="shard.before_answer"):
            plan("shard.before_answer")
        plan.begin_epoch(1)  # the coordinator is no shard
        plan("shard.before_answer")


class TestEnvironment:
    def test_kill(self):
        process = run("shard.before_answer/1@3#2=kill", "shard.before_answer", 5, 2, 1)
        assert process.communicate(timeout=60)[0].split() == ["1", "2"]
        assert process.returncode == -signal.SIGKILL

    def test_another_epoch_or_shard_is_left_alone(self):
        for arguments in ((), (1, 1), (2, 0)):
            process = run("shard.before_answer/1@3#2=kill", "shard.before_answer", 3, *arguments)
            assert process.communicate(timeout=60)[0].split() == ["1", "2", "3"]
            assert process.returncode == 0

    def test_stop(self):
        process = run("driver.recorded@2#0=stop", "driver.recorded", 3)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert os.WSTOPSIG(status) == signal.SIGSTOP
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=60)[0].split() == ["1", "2", "3"]
        assert process.returncode == 0

    def test_hang(self):
        process = run("driver.recorded@2#0=hang", "driver.recorded", 3)
        assert process.stdout.readline() == "1\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
        process.kill()
        assert process.communicate(timeout=60)[0] == ""

    def test_a_bad_spec_is_refused_when_the_program_starts(self):
        process = run("nonsense", "driver.recorded", 1)
        out, error = process.communicate(timeout=60)
        assert out == ""
        assert f"ConfigError: {message('exchange.fault_form', variable='RAYDT_FAULTS', part='nonsense')}" in error


# -- incarnations ----------------------------------------------------------------------------------------------------
# Incarnations in this process, and the budget of restarts.

CONFIG = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 10},
    "learner": {"kind": "fudyadt", "epsilon": 0.5, "alpha": 0.5},
    "cluster": {"backend": "in_process"},
}


def test_each_incarnation_begins_empty_with_the_next_number():
    batch = UpdateBatch(
        0, np.zeros(2, np.int8), np.arange(2), np.zeros((2, 1)), np.zeros(2, np.int32), 1, np.arange(2), warmup=0
    )
    config = load_config(CONFIG).placed(Placement(1, "here"))
    with Incarnations(config, Features(("a",), (False,)), before=3) as incarnations:
        first = incarnations.open()
        assert incarnations.epoch == 4
        empty = first.digest()
        assert [result.applied for _, result in first.process([batch])] == [2]
        assert first.digest() != empty
        second = incarnations.open()
        assert incarnations.epoch == 5
        assert second.digest() == empty


def test_what_fails_while_ray_starts_is_raised_when_a_session_is_opened(monkeypatch):
    def fails(*given, **named):
        raise OSError("no kernels")

    monkeypatch.setattr("pipelines.running.intake.compile_missing", fails)
    ray = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr("pipelines.running.intake.connect", lambda *given, **named: ray)
    config = load_config(CONFIG, ["cluster.backend=ray"]).placed(Placement(1, "here"))
    with Incarnations(config, Features(("a",), (False,))) as incarnations, pytest.raises(OSError, match="no kernels"):
        incarnations.open()


@pytest.mark.parametrize(
    ("given", "placement", "uses"),
    [
        ([], Placement(1, "here"), None),
        ([], Placement(2, "here", divided=True), None),
        (["cluster.backend=ray"], Placement(2, "on Ray"), ONE_MODEL),
        (["cluster.backend=ray"], Placement(2, "on Ray", divided=True), DIVIDED),
    ],
)
def test_kernels_of_shards_are_compiled_where_shards_may_work(given, placement, uses, monkeypatch):
    asked = []
    monkeypatch.setattr("pipelines.running.intake.compile_missing", lambda *given: asked.append(given[2]))
    ray = SimpleNamespace(close=lambda: None, answers=lambda: True)
    monkeypatch.setattr("pipelines.running.intake.connect", lambda *given, **named: ray)
    with Incarnations(load_config(CONFIG, given).placed(placement), Features(("a",), (False,))) as incarnations:
        incarnations._compiled.require() if given else None
    assert asked == [uses] * (uses is not None)


class TestRestartBudget:
    def test_the_sixth_loss_within_ten_minutes_is_one_too_many(self):
        budget = RestartBudget()
        for index in range(5):
            budget.spend(ProcessLostError("shard 1 died", "Look"), 100.0 + index, run="runs/a", checkpoint=None)
        said = {
            "restarts": "5 restarts",
            "minutes": "4 minutes",
            "losses": "shard 1 died (5 times); the coordinator died",
            "remedy": f"Look. {message('runs.intact_checkpoint', update=12_000, run='runs/a')}",
        }
        with refused("runs.restarts_spent", RestartsSpentError, **said) as caught:
            budget.spend(ProcessLostError("the coordinator died"), 340.0, run="runs/a", checkpoint=12_000)
        assert caught.value.exit_code == 1
        assert not isinstance(caught.value, ProcessLostError)

    def test_losses_far_apart_are_each_the_first(self):
        budget = RestartBudget(most=1, seconds=60)
        for minute in range(10):
            budget.spend(ProcessLostError("shard 1 died"), 60.0 * minute, run="r", checkpoint=5)
        with refused("runs.restarts_spent", RestartsSpentError, restarts="1 restart", minutes="1 minute"):
            budget.spend(ProcessLostError("shard 1 died"), 599.0, run="r", checkpoint=5)

    def test_without_a_checkpoint_it_says_so(self):
        with refused("runs.restarts_spent", RestartsSpentError, remedy=message("runs.missing_checkpoint", run="r")):
            RestartBudget(most=0).spend(ProcessLostError("shard 1 died"), 0.0, run="r", checkpoint=None)


# -- due checkpoints -------------------------------------------------------------------------------------------------
# Checkpoints on Ray stand where they are due, however far updates are read and sent ahead of their results.

EVERY, SIZE, UPDATES = 80, 10, 1000
JOB_CHECKPOINTS = {
    "source": {"kind": "synthetic", "generator": "hyperplane", "n": UPDATES, "n_features": 2},
    "stream": {"model": "incremental"},
    "learner": {"kind": "fudyadt", "epsilon": 0.5, "alpha": 0, "beta": 0, "max_depth": 2},
}


class Handle:
    """A coordinator of this process, which applies a message when its result is awaited."""

    def __init__(self, session: InProcessSession) -> None:
        self._session, self.apply = session, self

    def remote(self, batches: Any, skip_refused: bool) -> Any:
        """Return what has the results when it is called."""

        def results() -> list[Any]:
            done = []
            for batch, segments in batches:
                done.append(self._session.apply(batch, skip_refused=skip_refused))
                done[-1].snapshot = None if segments is None else self._session.snapshot(segments)
            return done

        return results


def checkpoints(folder: Path, writing: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], str]:
    """Run with a checkpoint that is written ``writing`` updates later; where checkpoints stand, and the digest."""
    monkeypatch.setattr(ray_session, "TOGETHER", 10 * SIZE)
    config = load_config(JOB_CHECKPOINTS)
    source, stream = open_stream(config)
    here = InProcessSession(learners()["fudyadt"], config.learner, source.features)
    session = RaySession.__new__(RaySession)
    session._peers, session._divided, session._under_way = [Peer("the coordinator", Handle(here))], None, deque()
    session._watch = type("Watch", (), {"collect": staticmethod(lambda replies, _: [reply() for reply in replies])})()
    store = CheckpointStore(Folder(folder), 100)
    options = CheckpointOptions(every_updates=EVERY, every_seconds=None)
    checkpointer, written = Checkpointer(options, store), threading.Event()
    monkeypatch.setattr(store, "write", lambda content: (written.wait(30) and taken.append(content.number)) or 0)
    taken: list[int] = []
    intake, until = Intake(stream, SIZE, 10_000, 3, checkpointer.barrier), 0
    for batch, result in session.process(intake):
        if batch.barrier is not None and result.snapshot is not None:
            assert written.is_set() or not until, "two at the same time"
            written.clear()
            checkpointer.write(CheckpointContent(batch.stop, {}, result.snapshot, {}))
            until = batch.stop + writing
        if batch.stop >= until:
            written.set()
            checkpointer.settle()
    written.set()
    checkpointer.close()
    return taken, here.digest()


def test_no_due_checkpoint_is_passed_over_by_what_is_sent_ahead(tmp_path, monkeypatch):
    taken, digest = checkpoints(tmp_path, 0, monkeypatch)
    assert taken == list(range(EVERY, UPDATES, EVERY))
    assert checkpoints(tmp_path, UPDATES, monkeypatch) == ([EVERY], digest)


@pytest.mark.parametrize("writing", [SIZE, EVERY - SIZE, EVERY + SIZE, 2 * EVERY - SIZE])
def test_one_that_is_due_while_another_is_written_comes_an_interval_later_at_most(writing, tmp_path, monkeypatch):
    taken, _ = checkpoints(tmp_path, writing, monkeypatch)
    for before, at in pairwise(taken):
        assert at - before - writing <= EVERY


class Pauses:
    """A checkpointer whose run pauses again and again, by a clock that only work moves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, copying: float, writing: float) -> None:
        self.now, self.taken, self.fails, self._copying = 0.0, list[float](), False, copying
        store = CheckpointStore(Folder(folder), 3)
        monkeypatch.setattr(store, "write", lambda content: self._pass(writing))
        self._checkpointer = Checkpointer(CheckpointOptions(every_seconds=60), store, lambda: self.now)

    def _pass(self, seconds: float) -> int:
        self.now += seconds
        if self.fails:
            raise NotWrittenError("the disk is full")
        return 0

    def _content(self, segments: Any) -> Any:
        self.taken.append(self.now)
        self.now += self._copying
        return CheckpointContent(len(self.taken), {}, None, {})  # type: ignore[arg-type]

    def pause(self, updates: int) -> None:
        self._checkpointer.write_of_pause(updates, self._content)
        self._checkpointer.settle()


@pytest.mark.parametrize(("copying", "writing", "rest"), [(0.0, 0.0, 1.0), (0.0, 0.5, 4.5), (0.5, 0.0, 4.5)])
def test_checkpoints_of_pauses_take_a_tenth_of_the_time(tmp_path, monkeypatch, copying, writing, rest):
    """That of the copy counts, too: nothing else goes on meanwhile."""
    monkeypatch.setattr("pipelines.running.checkpoint.PAUSES_PER_SECOND", math.inf)
    pauses = Pauses(tmp_path, monkeypatch, copying, writing)
    for updates in range(1, 200):
        pauses.pause(updates)
        pauses.pause(updates)  # which has nothing new
        pauses.now += 0.25
    gaps = [after - before for before, after in pairwise(pauses.taken)]
    assert len(gaps) > 5
    assert all(rest <= gap - copying - writing <= rest + 0.25 for gap in gaps), gaps


def test_the_more_checkpoints_of_pauses_there_were_the_rarer_they_are(tmp_path, monkeypatch):
    """Each leaves parts of tables: in an hour in which changes trickle there are some hundred, not some thousand."""
    pauses = Pauses(tmp_path, monkeypatch, 0.0, 0.0)
    for updates in range(1, 3601):
        pauses.now += 1.0
        pauses.pause(updates)
    assert 200 < len(pauses.taken) < 300
    assert pauses.taken[:9] == [float(second) for second in range(1, 10)]


def test_a_checkpoint_of_a_pause_that_failed_comes_again(tmp_path, monkeypatch):
    """After the time between two checkpoints, also if nothing new has come."""
    pauses = Pauses(tmp_path, monkeypatch, 0.0, 0.0)
    pauses.fails, pauses.now = True, 5.0
    for _ in range(300):
        pauses.pause(1)
        pauses.now += 0.5
        pauses.fails = pauses.now < 100
    assert pauses.taken == [5.0, 65.0, 125.0]


# -- observing -------------------------------------------------------------------------------------------------------
# Observing costs nothing: how often metrics are wanted changes no message to the coordinator, and it never waits.
#
# Ray is left out: the handle of the coordinator notes what it is sent, and does it when the answer is asked for.

UPDATES_OBSERVING, SIZE_OBSERVING = 30_000, 4096


class ObservingHandle:
    """The coordinator's actor."""

    def __init__(self, session: InProcessSession) -> None:
        self._session, self.sent, self.apply = session, list[int](), self

    def remote(self, batches: Sequence[Any], skip_refused: bool) -> Any:
        """Note a message; the answer to it."""
        self.sent.append(sum(len(batch) for batch, _ in batches))
        return lambda: [self._session.apply(batch, skip_refused=skip_refused) for batch, _ in batches]


class Waiting(Watch):
    """Notes how many messages the coordinator had whenever an answer was waited for."""

    def __init__(self, session: RaySession) -> None:
        super().__init__(1.0)
        self._of, self.messages = session, list[int]()

    def collect(self, replies: Sequence[Any], peers: Sequence[Peer]) -> list[Any]:
        """Call for the answers."""
        self.messages.append(len(self._of._under_way))
        return [reply() for reply in replies]


def observed(every: int) -> tuple[list[int], list[int], str]:
    """Updates in each message, messages at the coordinator when one was waited for, and the digest."""
    config = load_config({**JOB, "source": {**JOB["source"], "n": UPDATES_OBSERVING}})
    source, stream = open_stream(config)
    here = InProcessSession(learners()["fudyadt"], config.learner, source.features)
    handle, session = ObservingHandle(here), RaySession.__new__(RaySession)
    session._peers = [Peer("the coordinator", handle)]
    session._divided = None
    session._under_way = deque()
    session._watch = watch = Waiting(session)
    assert sum(len(batch) for batch, _ in session.process(Intake(stream, SIZE_OBSERVING, every))) == UPDATES_OBSERVING
    return handle.sent, watch.messages, here.digest()


@pytest.mark.parametrize("every", [50, 1000, 4096])
def test_how_often_metrics_are_wanted_changes_no_message(every: int) -> None:
    sent, messages, digest = observed(every)
    seldom, _, expected = observed(10**9)
    # The first message is one batch, so that the coordinator begins at once; so there may be one more.
    assert len(sent) - len(seldom) in (0, 1)
    assert min(sent[1:-1]) >= ray_session.TOGETHER
    assert messages == [ray_session.AHEAD] * (len(sent) - 2) + [2, 1]
    assert digest == expected


# -- telemetry -------------------------------------------------------------------------------------------------------
# What is counted of a run, whatever happens to it; and the port it is shown at.


class Recorded:
    """Stands for a counter or gauge of Ray: refuses what Ray refuses, and keeps what it was given."""

    made: ClassVar[dict[str, list[float]]] = {}

    def __init__(self, name, description, keys):
        assert description
        assert keys == ("run",)
        self._values = self.made.setdefault(name, [])

    def set_default_tags(self, tags):
        assert tags == {"run": "a run"}
        return self

    def inc(self, value):
        assert value > 0
        self._values.append(value)

    set = inc


@pytest.fixture
def made(monkeypatch):
    """What was recorded, by metric."""
    from ray.util import metrics

    Recorded.made = {}
    Gauge = type("Gauge", (Recorded,), {"set": lambda self, value: self._values.append(value)})
    monkeypatch.setattr(metrics, "Counter", Recorded)
    monkeypatch.setattr(metrics, "Gauge", Gauge)
    return Recorded.made


def statistics(rebuilds, rounds, active=5):
    return {"active": active, "rebuilds": rebuilds, "rebuilt_rows": 10 * rebuilds, "rounds": rounds, "nodes": 3}


def test_what_is_repeated_after_a_loss_is_counted_once_and_traffic_as_it_was(made):
    meter = Telemetry("a run")
    meter.batch(statistics(4, 8), 100, 2)
    meter.batch(statistics(7, 12), 200, 2)
    meter.restarted()
    for updates, rebuilds, rounds in ((150, 5, 3), (200, 7, 7), (300, 9, 20)):
        meter.batch(statistics(rebuilds, rounds), updates, 1)
    assert sum(made["raydt_updates_total"]) == 300
    assert sum(made["raydt_rebuilds_total"]) == 9
    assert sum(made["raydt_rebuilt_rows_total"]) == 90
    assert sum(made["raydt_rounds_total"]) == 12 + (7 - 3) + (20 - 7)
    assert sum(made["raydt_restarts_total"]) == 1
    assert made["raydt_epoch"] == [1, 1, 2, 2, 2]
    assert made["raydt_queue_depth"] == [2, 2, 1, 1, 1]


def test_what_a_run_goes_on_from_was_counted_when_it_was_done(made):
    meter = Telemetry("a run", epoch=4)
    meter.begin(statistics(7, 12), 200)
    meter.batch(statistics(8, 15), 250, 1)
    meter.restarted()
    meter.begin(statistics(7, 12), 200)
    for updates, rebuilds, rounds in ((240, 8, 14), (300, 9, 20)):
        meter.batch(statistics(rebuilds, rounds), updates, 1)
    assert sum(made["raydt_updates_total"]) == 100
    assert sum(made["raydt_rebuilds_total"]) == 2
    assert sum(made["raydt_rounds_total"]) == (15 - 12) + (20 - 12), "repeated rounds are rounds"


def test_nothing_new_is_no_error_and_other_learners_have_other_statistics(made):
    meter = Telemetry("a run", epoch=3)
    for _ in range(2):
        meter.batch({"active": 0, "rounds": 1}, 10, 0)
    meter.checkpointed(0.0)
    assert made["raydt_updates_total"] == [10]
    assert made["raydt_rebuilds_total"] == []
    assert made["raydt_checkpoints_total"] == [1]
    assert made["raydt_epoch"] == [3, 3]


def test_a_port_that_is_taken_is_refused_before_ray_waits_for_it(monkeypatch):
    monkeypatch.setattr(telemetry, "LEAVING_SECONDS", 0.2)
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with refused("cluster.taken_port", ConfigError, port=port, reason="Address already in use"):
            telemetry.require_endpoint(port)
    telemetry.require_endpoint(port)


def test_a_ray_without_an_endpoint_is_refused(monkeypatch):
    monkeypatch.setattr(telemetry, "_SERVERS", ("json", "no_such_module"))
    with refused("cluster.no_endpoint", ConfigError, absent="no_such_module"):
        telemetry.require_endpoint(18080)


# -- logs ------------------------------------------------------------------------------------------------------------
# The log of a run: whole lines of JSON that say where the run was, whoever was killed, on every file system.

log = logging.getLogger("raydt.test")


@pytest.fixture(params=["local", "appending", "object store"])
def folder(tmp_path, request):
    """A run folder of each kind; ``Dying`` cannot append, as object stores cannot."""
    folder = RunFolder.create(tmp_path / "my-run")
    if request.param != "local":
        folder.filesystem = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
        folder.root, folder.is_local = "my-run", False
    if request.param == "object store":
        folder.filesystem = pafs.PyFileSystem(Dying(tmp_path))
    return folder


def entries(tmp_path):
    return [json.loads(line) for line in (tmp_path / "my-run" / "log.jsonl").read_text().splitlines()]


def test_a_record_is_a_line_with_its_extras_and_the_log_ends_with_the_run(folder, tmp_path):
    with log_to(folder):
        log.info("rebuilt %d", 3, extra={"rows": 17})
        try:
            raise ValueError("x\ny")
        except ValueError:
            log.exception("failed")
    log.warning("after the run")
    assert [(e["level"], e["message"]) for e in entries(tmp_path)] == [("info", "rebuilt 3"), ("error", "failed")]
    assert entries(tmp_path)[0]["rows"] == 17
    assert "ValueError: x" in entries(tmp_path)[1]["traceback"]
    assert logging.getLogger("raydt").level == logging.NOTSET


def test_what_other_packages_add_to_a_record_is_left_out(folder, tmp_path):
    """As Ray does with ``_ray_timestamp_ns``: its factory stamps every record of a process that has imported it."""
    with log_to(folder):
        log.info("x", extra={"_stamp_of_another": 1, "rows": 17})
    assert entries(tmp_path)[0].keys() == {"time", "level", "logger", "message", *FIELDS, "rows"}


def test_a_run_that_forbids_values_withholds_them_from_every_log(folder, tmp_path):
    """Whatever else logs in the process, and whichever run began first."""
    with log_to(RunFolder.create(tmp_path / "other")), log_to(folder, quote=False):
        log.warning("%s: %s", InputError(f"{quoted('v1')} is bad"), OSError("v2"), extra={"why": quoted("v3")})
        value = f"v{4}"  # a traceback shows the line of code
        try:
            raise ValueError(value)
        except ValueError:
            log.exception("failed")
    for run in ("my-run", "other"):
        text = (tmp_path / run / "log.jsonl").read_text()
        assert re.search(r"\(a value\) is bad: OSError.*, in test_a_run.*ValueError", text, re.DOTALL)
        assert not re.search(r"v[1-4]", text)


def test_every_record_says_where_the_run_is(folder, tmp_path):
    with log_to(folder) as context:
        log.info("run started", extra={"event": "run_started"})
        context.seq, context.epoch = 500, 2
        log.info("lost", extra={"event": "process_lost", "actor": "shard", "shard": 1})
        logging.getLogger("actors.session").warning("of another module")
    assert [tuple(entry[name] for name in FIELDS) for entry in entries(tmp_path)] == [
        ("my-run", None, None, "driver", None, "run_started"),
        ("my-run", 500, 2, "shard", 1, "process_lost"),
        ("my-run", 500, 2, "driver", None, None),
    ]


def test_a_record_is_written_at_once_and_the_log_goes_on_without_half_a_line(folder, tmp_path):
    for begin in (0, 3):
        with log_to(folder):
            for i in range(begin, begin + 3):
                assert [entry["message"] for entry in entries(tmp_path)] == [str(k) for k in range(i)]
                log.info("%d", i)
        file = tmp_path / "my-run" / "log.jsonl"
        file.write_bytes(file.read_bytes() + b'{"time": "2026-11-2')
    with log_to(folder):
        assert len(entries(tmp_path)) == 6


def test_a_long_log_is_not_rewritten_for_every_record_but_is_for_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "_SHORT_BYTES", 1000)
    folder = RunFolder.create(tmp_path / "my-run")
    folder.filesystem, folder.root, folder.is_local = pafs.PyFileSystem(Dying(tmp_path)), "my-run", False
    with log_to(folder):
        for i in range(100):
            log.info("%d", i)
        assert len(entries(tmp_path)) < 10
        log.warning("look")
        assert len(entries(tmp_path)) == 101
        log.info("end")
    assert len(entries(tmp_path)) == 102


def test_a_killed_driver_has_lost_no_line(tmp_path):
    program = (
        "import logging, os, signal\n"
        "from pipelines.logs import log_to\n"
        "from pipelines.run_folder import RunFolder\n"
        f"with log_to(RunFolder({str(tmp_path / 'my-run')!r})):\n"
        "    for i in range(1000):\n"
        "        logging.getLogger('raydt').info('%d', i)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "my-run").mkdir()
    ended = subprocess.run([sys.executable, "-c", program], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [entry["message"] for entry in entries(tmp_path)] == [str(i) for i in range(1000)]


def test_numbers_stay_numbers_and_lines_stay_json(tmp_path):
    with log_to(RunFolder.create(tmp_path / "my-run")):
        log.info("x", extra={"seq": np.int64(3), "share": np.float32("nan"), "cost": float("inf"), "where": tmp_path})
    [entry] = entries(tmp_path)
    assert (entry["seq"], entry["share"], entry["cost"], entry["where"]) == (3, None, None, str(tmp_path))


def test_a_log_that_cannot_be_written_says_so_once_and_harms_nobody(folder, tmp_path, monkeypatch, capfd):
    def full(*_):
        raise OSError(28, "No space left on device")

    with log_to(folder):
        log.info("before")
        with monkeypatch.context() as patched:
            patched.setattr(logs.JsonFormatter, "format", full)
            log.info("lost")
            log.warning("lost too")
        log.info("after")
    err = capfd.readouterr().err
    problem = "[Errno 28] No space left on device"
    assert err.count(message("outputs.log_records", file=f"{folder.location}/log.jsonl", reason=problem)) == 1
    assert "Traceback" not in err
    assert "Logging error" not in err
    assert [entry["message"] for entry in entries(tmp_path)] == ["before", "after"]


def test_what_another_package_prints_becomes_records(caplog):
    """Line by line, without colours; empty lines are left out."""
    stream = LinesToLog(logging.getLogger("pipelines.ray"), "ray")
    with caplog.at_level(logging.INFO, "pipelines.ray"), redirect_stdout(stream):
        print("\x1b[33m(raylet)\x1b[0m a worker died")
        print("half", end=" ")
        print("a line\n\nand one")
        print("not ended", end="")
    assert [(record.event, record.message) for record in caplog.records] == [
        ("ray", "(raylet) a worker died"),
        ("ray", "half a line"),
        ("ray", "and one"),
    ]
