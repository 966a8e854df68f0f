"""A run folder that is removed, or replaced, while the run is at work: one error, and no promise to resume."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from small_job import JOB

from pipelines import replay
from raydt.errors import RaydtError
from raydt.exchange.messages import injected
from raydt.folders.folder import LOCK
from tests.refusals import refused

CONFIG = {
    **JOB,
    "source": {"kind": "synthetic", "generator": "sea", "n": 2000},
    "cluster": {"backend": "in_process", "batch_size": 20},
    "checkpoint": {"every_seconds": None, "every_updates": 200},
    "output": {"report": True, "metrics_every": 50, "predictions": True},
}
pytestmark = pytest.mark.usefixtures("steady_checkpoints")

#: Points that a run passes, and how often at least.
POINTS = {"driver.recorded": 90, "checkpoint.before_manifest": 8, "run.before_compaction": 1, "run.before_report": 1}


def moved(run: Path) -> None:
    run.rename(run.with_name("elsewhere"))


def removed(run: Path) -> None:
    moved(run)  # at once, whatever another thread writes there
    shutil.rmtree(run.with_name("elsewhere"), ignore_errors=True)


def replaced(run: Path) -> None:
    """By a run of another process."""
    removed(run)
    run.mkdir()
    for name in (LOCK, "config.yaml"):
        (run / name).write_text("another's", encoding="utf-8")


def a_file(run: Path) -> None:
    removed(run)
    run.write_text("mine", encoding="utf-8")


@pytest.mark.parametrize("how", [removed, moved, replaced, a_file])
@pytest.mark.parametrize("point", POINTS)
def test_one_error_says_that_the_run_is_lost(point: str, how: Callable[[Path], None], tmp_path: Path) -> None:
    run, draw = tmp_path / "run", random.Random(f"{point} {how.__name__}")
    at, passed = draw.randrange(POINTS[point]), iter(range(10**6))
    stopped = draw.random() < 0.3  # by a signal, too, which would promise to resume

    def remove(there: str) -> None:
        if there == point and next(passed) == at:
            how(run)
            if stopped:
                os.kill(os.getpid(), signal.SIGTERM)

    with injected(remove), refused("runs.removed", RaydtError) as raised:
        replay(CONFIG, run)
    assert str(raised.value).startswith(f"{run}: ")
    assert not raised.value.kept
    assert not (run / "summary.json").exists()
    if how is replaced:
        assert {path.read_text(encoding="utf-8") for path in (run / LOCK, run / "config.yaml")} == {"another's"}
