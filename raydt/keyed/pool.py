"""One batch of each of many models: in a loop, or together where the learner can take many by one compiled call.

A batch of few updates costs a session more in Python than in counting. :func:`apply_all` gives what a loop of
``session.apply`` gives, bit for bit: predictions, refusals, logs, statistics and models. Only what says how the work
was done differs: ``seconds``, of logs too, and the traffic, as models that are taken together exchange nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from raydt.examples.updates import BatchResult, UpdateBatch
from raydt.learners.batch_coordinator import Many
from raydt.learners.many import ManyBatches
from raydt.sessions.session import InProcessSession


def apply_all(
    sessions: Sequence[InProcessSession], batches: Sequence[UpdateBatch], skip_refused: bool = False
) -> list[BatchResult]:
    """Apply one batch of each of some sessions; the results in their order.

    Each session is a different one. After an error, or an interrupt, those whose batches were taken are as ever, and
    those that were at work refuse to go on (:attr:`InProcessSession.whole`).
    """
    groups: dict[Many, list[int]] = {}
    alone: list[int] = []
    for i, (session, batch) in enumerate(zip(sessions, batches, strict=True)):
        group = session.group(batch)
        (alone if group is None else groups.setdefault(group, [])).append(i)
    results: list[BatchResult | None] = [None] * len(batches)
    for group, members in groups.items():
        taken = _together(group, [sessions[i] for i in members], [batches[i] for i in members], skip_refused)
        for i, result in zip(members, taken, strict=True):
            results[i] = result
            if result is None:
                alone.append(i)
    for i in alone:
        results[i] = sessions[i].apply(batches[i], skip_refused=skip_refused)
    return [result for result in results if result is not None]


def _together(
    group: Many, sessions: Sequence[InProcessSession], batches: Sequence[UpdateBatch], skip_refused: bool
) -> list[BatchResult | None]:
    """Take the batches of one group; None of those that go the usual way."""
    began = time.perf_counter()
    for session in sessions:
        session.whole = False
    results = group.take(sessions, ManyBatches(batches, skip_refused))
    seconds = (time.perf_counter() - began) / len(batches)
    for session, result in zip(sessions, results, strict=True):
        session.whole = True
        if result is not None:
            result.seconds = seconds
            traffic = session.driver.traffic
            result.statistics["rounds"], result.statistics["bytes_exchanged"] = traffic.rounds, traffic.bytes
    return results
