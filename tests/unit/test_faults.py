"""Fault points: off by default, each listed once and in use, asked for by a handler or by the environment."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import raydt
from raydt.errors import ConfigError, RaydtError
from raydt.exchange import messages as faults
from raydt.exchange.messages import POINTS, Plan, fault, injected
from raydt.messages import message
from tests.refusals import refused

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
