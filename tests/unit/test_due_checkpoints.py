"""Checkpoints on Ray stand where they are due, however far updates are read and sent ahead of their results."""

from __future__ import annotations

import math
import threading
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from actors import session as ray_session
from actors.liveness import Peer
from actors.session import RaySession
from pipelines.config import load_config
from pipelines.operation import CheckpointOptions
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.intake import Intake
from pipelines.saved_runs import open_stream
from raydt.errors import NotWrittenError
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.sessions.session import InProcessSession

EVERY, SIZE, UPDATES = 80, 10, 1000
JOB = {
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
    config = load_config(JOB)
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
