"""Ray's object plane is cut off and its control plane is not: batches are applied, and no part of a shard arrives.

Such a checkpoint fails as if the shard were lost, although it is not. ``tests/integration/test_ray_kills.py`` has the
same on real Ray.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_job import JOB

from pipelines import replay, resume
from pipelines.running.intake import RestartBudget
from raydt.errors import CheckpointsFailError, ProcessLostError
from raydt.messages import message
from raydt.sessions.session import InProcessSession
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("steady_checkpoints")

#: 25 batches.
CONFIG = {**JOB, "cluster": {"backend": "in_process", "batch_size": 20}}
SILENT = message("cluster.no_progress", name="shard 0 (pid 7 on far)", seconds=20)


def every(updates: int) -> dict[str, Any]:
    """A job with a checkpoint every so many updates."""
    return {**CONFIG, "checkpoint": {"every_seconds": None, "every_updates": updates}}


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No parts arrive, nine times; which births the snapshots without parts had. Then they do, so that a test ends."""
    snapshot, lost = InProcessSession.snapshot, list[int]()

    def parts() -> Iterator[Any]:
        raise ProcessLostError(SILENT, actor="shard", shard=0)
        yield

    def cut(self: InProcessSession, *arguments: Any) -> Any:
        taken = snapshot(self, *arguments)
        if len(lost) < 9:
            lost.append(len(taken.born))
            taken.parts = parts()
        return taken

    monkeypatch.setattr(InProcessSession, "snapshot", cut)
    return lost


def test_a_run_stops_with_the_cause_instead_of_going_on_without_checkpoints(tmp_path: Path, cut_off: list[int]) -> None:
    with refused("runs.no_checkpoint", CheckpointsFailError, failed=5, cause=SILENT):
        replay(every(20), tmp_path / "run")
    assert cut_off == [20, 40, 60, 80, 100, 120]  # the last comes with the batch after which the run is found to fail
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["exit_reason"], summary["restarts"]) == ("failed", "CheckpointsFailError", 0)
    assert (summary["checkpoints"]["failed"], summary["checkpoints"]["written"]) == (5, 0)
    cut_off += [0] * 9
    assert resume(tmp_path / "run").digest == replay(CONFIG, tmp_path / "whole").digest


def test_a_run_that_comes_to_its_last_checkpoint_is_not_repeated_for_ever(
    tmp_path: Path, cut_off: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is due before, and a pass takes so long that the budget of restarts has room for one more each time."""
    monkeypatch.setattr("pipelines.running.loop.RestartBudget", lambda: RestartBudget(seconds=0.0))
    with refused("runs.no_checkpoint", CheckpointsFailError, failed=5, cause=SILENT):
        replay(every(10**6), tmp_path / "run")
    assert cut_off == [500] * 5
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["restarts"]) == ("failed", 4)
