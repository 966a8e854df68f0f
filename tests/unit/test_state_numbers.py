"""Numbers of a state that the nets over all learners have shown to be wrong, or wrong unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt.streams.history import history_of
from tests.cases import CASES, Trial


def of(kind: str) -> list[Any]:
    return [pytest.param(trial, id=trial.name) for trial in CASES if trial.learner.kind == kind]


@pytest.mark.parametrize("trial", of("confidence_tree"))
@pytest.mark.parametrize("size", [1, 16, 200])
def test_room_for_places_and_classes_does_not_show(trial: Trial, size: int, tmp_path: Path) -> None:
    """How much of it a shard has depends on how the stream was cut."""
    stream = trial.stream(tmp_path)
    session = trial.session(stream)
    for _ in session.process(stream.batches(size), skip_refused=True):
        pass
    for arrays in session.state()[1].values():
        totals = arrays["totals"]
        assert totals[-1].any(), "places that nothing was counted at"
        assert totals.shape[1] == 2 or totals[:, -1].any(), "classes that nothing is of"
        assert arrays["bins"].shape[::2] == totals.shape


@pytest.mark.parametrize("trial", of("fudyadt") + of("sparse_tree"))
def test_a_warm_up_that_has_ended_has_nothing_left(trial: Trial, tmp_path: Path) -> None:
    """With another number the next updates would wait for its end."""
    stream = trial.stream(tmp_path)
    session = trial.session(stream)
    for _ in session.process(stream.batches(16), skip_refused=True):
        pass
    state, groups = session.state()
    history, features = history_of(trial.stream(tmp_path)), trial.features(stream.source)
    assert trial.learner.audit(trial.options, features, state, history, groups).failures == []
    state["warmup_left"] = np.array([1])
    report = trial.learner.audit(trial.options, features, state, history, groups)
    assert "1 insertions of the warm-up are left, not 0" in report.failures
