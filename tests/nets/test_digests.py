"""The digest that follows what changed is the one of a model from nothing, after every batch, for every case.

Labels and ids of the live rows are in it: a row with another label or id, or one that is not there, gives another
digest. So is every number of the tree; which leaf a row is in is not, and the nets compare it with the whole state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raydt.sessions.session import InProcessSession
from tests.cases import Trial, every_case


def restored(trial: Trial, features: Any, state: Any) -> str:
    """Digest of a session restored from a state."""
    other = InProcessSession(trial.learner, trial.options, features, 1)
    other.restore(*state)
    return other.digest()


@every_case("a digest from nothing")
def test_a_digest_kept_up_is_one_from_nothing(trial: Trial, tmp_path: Path) -> None:
    stream = trial.stream(tmp_path)
    features = trial.features(stream.source)
    sessions = [
        InProcessSession(trial.learner, trial.options, features, 1),
        InProcessSession(trial.learner, trial.options, features, 2, trial.case.plan),
    ]
    seen = set()
    for batch in stream.batches(3):  # few of the rows that live, so that the digest follows them
        for session in sessions:
            session.apply(batch, skip_refused=True)
        found = [session.digest() for session in sessions]
        seen.add(found[0])
        assert found == [restored(trial, features, sessions[0].state())] * 2, batch.start
    for session in sessions:
        session.finish()
    assert sessions[0].digest() == sessions[1].digest() == restored(trial, features, sessions[1].state())
    assert len(seen) > 15


@every_case("a digest from nothing")
def test_a_row_with_another_id_or_label_shows(trial: Trial, tmp_path: Path) -> None:
    stream = trial.stream(tmp_path)
    features = trial.features(stream.source)
    session = InProcessSession(trial.learner, trial.options, features, 1)
    for batch in stream.batches(16):
        session.apply(batch, skip_refused=True)
    session.finish()
    state, groups = session.state()
    assert restored(trial, features, (state, groups)) == session.digest()
    y, classes = state["y"][0], trial.case.classes
    for name, value in (("id", state["id"].max() + 1), ("y", (y + 1) % classes if classes else 1 - y)):
        other = {**state, name: state[name].copy()}
        other[name][0] = value
        assert restored(trial, features, (other, groups)) != session.digest(), name
