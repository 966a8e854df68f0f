"""One setting of a sweep with a model for each key: scored as a keyed run is, over all keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pipelines.config import Config
from pipelines.keyed.parts import job_of
from pipelines.saved_runs import keyed_stream, no_rows
from raydt.keyed.records import Records
from raydt.keyed.scores import pooled
from raydt.keyed.session import KeyedSession
from raydt.keyed.stored import StoredKeys
from raydt.keyed.stream import ROWS
from raydt.streams.tally import known


def run_keys(
    source: StoredKeys, config: Config, arm: Callable[[Callable[[], None]], None] | None
) -> tuple[KeyedSession, dict[str, Any]] | None:
    """Learn all rows of a source, each by the model of its key; None if ``arm``'s function has ended that early.

    Returns the session at the end, and columns of the sweep's table. The error of a bad row or a refused update is
    raised, unless the stream passes them over.
    """
    stream, stops = keyed_stream(config, source), list[bool]()
    session = KeyedSession(job_of(config, stream), Records(config.output.metrics_every, predicting=False))
    if arm is not None:
        arm(lambda: stops.append(True))
    began, cpu_began, without_key = time.perf_counter(), time.thread_time(), 0
    for batch in stream.batches(config.cluster.batch_size * ROWS):
        if stops:
            return None
        session.apply(batch)
        without_key += len(stream.take_skipped())
    result = session.finish()
    seconds, cpu_seconds = time.perf_counter() - began, time.thread_time() - cpu_began
    totals = result.totals
    if not totals["updates"] and not totals["skipped"] + without_key:
        raise no_rows(config)
    scores = result.scores.sum(axis=0) if len(result.scores) else result.scores
    return session, {
        **{name: totals[name] for name in ("updates", "inserts", "deletes", "predictions", "refused")},
        "active": totals["inserts"] - totals["deletes"],
        "skipped": totals["skipped"] + without_key,
        "no_change": None,
        "majority": None,
        **known(pooled(scores, numbers=False)),
        "alarms": sum(row["alarms"] for row in session.key_rows()),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
    }
