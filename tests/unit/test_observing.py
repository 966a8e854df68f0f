"""Observing costs nothing: how often metrics are wanted changes no message to the coordinator, and it never waits.

Ray is left out: the handle of the coordinator notes what it is sent, and does it when the answer is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from small_job import JOB

from actors import session as ray_session
from actors.liveness import Peer, Watch
from actors.session import RaySession
from pipelines.config import load_config
from pipelines.running.intake import Intake
from pipelines.saved_runs import open_stream
from raydt.learners import learners
from raydt.sessions.session import InProcessSession

UPDATES, SIZE = 30_000, 4096


class Handle:
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
    config = load_config({**JOB, "source": {**JOB["source"], "n": UPDATES}})
    source, stream = open_stream(config)
    here = InProcessSession(learners()["fudyadt"], config.learner, source.features)
    handle, session = Handle(here), RaySession.__new__(RaySession)
    session._peers = [Peer("the coordinator", handle)]
    session._divided = None
    session._under_way = ray_session.deque()
    session._watch = watch = Waiting(session)
    assert sum(len(batch) for batch, _ in session.process(Intake(stream, SIZE, every))) == UPDATES
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
