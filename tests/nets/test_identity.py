"""One model (P1) for every case: shards, batch size and the place of the work change nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raydt.learners.base import WorkPlan
from raydt.learners.forest import coordinator
from raydt.sessions.session import InProcessSession
from tests.cases import GROUPS, Trial, every_case, never, one_of_each
from tests.simulation.outcomes import outcome
from tests.simulation.simulator import Record

LARGE = 10**9
#: Shards, batch size, where the work is done: every two values of two of them meet. A shard more than there are
#: feature groups has no features: it has no rows to restore, but gets every request.
WAYS = (
    (1, 7, WorkPlan(0, 0, shared_store=False)),
    (1, 200, WorkPlan(LARGE, None, shared_store=False)),
    (2, 7, WorkPlan(LARGE, 0, shared_store=False)),
    (2, 200, WorkPlan(0, None, shared_store=False)),
    (4, 1, WorkPlan(36, 128, shared_store=False)),
    (GROUPS + 1, 1, WorkPlan(0, 0, shared_store=False)),
)


def result(trial: Trial, folder: Path, shards: int, size: int, plan: WorkPlan) -> dict[str, Any]:
    """Digest, predictions, scores, refusals and state at the end; restored after each batch of the second half."""
    stream = trial.stream(folder)
    features = trial.features(stream.source)
    session, record = InProcessSession(trial.learner, trial.options, features, shards, plan), Record()
    while (batch := next(stream.batches(size), None)) is not None:
        record.add(batch, session.apply(batch, skip_refused=True))
        if batch.stop > 60:
            state = session.state()
            session = InProcessSession(trial.learner, trial.options, features, shards, plan)
            session.restore(*state)
    session.finish()
    return outcome(session.digest(), record, session.state(), trial.options)


@every_case("identity", one_of_each)
def test_the_same_whatever_the_way(trial: Trial, tmp_path: Path) -> None:
    expected = result(trial, tmp_path, 1, 16, WorkPlan())
    assert expected["deletes"] > 20
    for shards, size, plan in WAYS:
        found = result(trial, tmp_path, shards, size, plan)
        different = [name for name in expected if found[name] != expected[name]]
        assert not different, f"{', '.join(different)} differ: {shards} shards, batches of {size}, {plan}"


@every_case("identity", never)
def test_the_same_however_the_stream_is_cut(trial: Trial, tmp_path: Path) -> None:
    expected = result(trial, tmp_path, 1, 16, WorkPlan())
    for size in (*range(1, 40), 60, 100):
        assert result(trial, tmp_path, 1 + size % 4, size, trial.case.plan) == expected, size


@every_case("updates without answers")
def test_answers_that_nobody_wants_change_no_model(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees of a forest are then built from all rows at once: of few updates, too."""
    monkeypatch.setattr(coordinator, "STEPS_OF_A_BUILD", 1 << 40)
    stream = trial.stream(tmp_path)
    given, wanted = trial.session(stream, 1), [trial.session(stream, shards) for shards in (1, 2, 3)]
    for batch in stream.batches(24):
        given.apply(batch, skip_refused=True)
        for session in wanted:
            session.apply(replace(batch, answers=False), skip_refused=True)
            assert session.digest() == given.digest()
