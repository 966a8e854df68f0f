"""One setting of a sweep with a model for each key: scored as a keyed run is, over all keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from pipelines.config import Config
from pipelines.keyed.parts import job_of
from pipelines.saved_runs import keyed_stream, no_rows
from raydt.keyed.records import Records
from raydt.keyed.scores import pooled
from raydt.keyed.session import KeyedSession, KeyFailedError
from raydt.keyed.stored import StoredKeys
from raydt.keyed.stream import ROWS
from raydt.streams.tally import known


class KeyedSetting:
    """A setting and its models; ``updates``: how many were applied before the last block of rows."""

    def __init__(self, source: StoredKeys, config: Config) -> None:
        self._config, self._stream, self.updates = config, keyed_stream(config, source), 0
        records = Records(config.output.metrics_every, predicting=False)
        self.session = KeyedSession(job_of(config, self._stream), records)

    def run(self, arm: Callable[[Callable[[], None]], None] | None) -> dict[str, Any] | None:
        """Learn all rows, each by the model of its key; None if ``arm``'s function has ended that early.

        Returns columns of the sweep's table. The error of a bad row or a refused update is raised, unless the stream
        passes them over.
        """
        stops = threading.Event()
        if arm is not None:
            arm(stops.set)
        began, cpu_began, without_key = time.perf_counter(), time.thread_time(), 0
        for batch in self._stream.batches(self._config.cluster.batch_size * ROWS):
            if stops.is_set():
                return None
            try:
                self.updates = self.session.apply(batch).totals["updates"]
            except KeyFailedError as error:  # there is no checkpoint to go back to
                raise error.__cause__ or error from None
            without_key += len(self._stream.take_skipped())
        result = self.session.finish()
        seconds, cpu_seconds = time.perf_counter() - began, time.thread_time() - cpu_began
        totals = result.totals
        if not totals["updates"] and not totals["skipped"] + without_key:
            raise no_rows(self._config)
        scores = result.scores.sum(axis=0) if len(result.scores) else result.scores
        return {
            **{name: totals[name] for name in ("updates", "inserts", "deletes", "predictions", "refused")},
            "active": totals["inserts"] - totals["deletes"],
            "skipped": totals["skipped"] + without_key,
            "no_change": None,
            "majority": None,
            **known(pooled(scores, numbers=False)),
            "alarms": sum(row["alarms"] for row in self.session.key_rows()),
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
        }
