"""The loop of every job: a session takes what an intake hands on, and a tally notes what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pipelines.config import Config
from pipelines.running.loop.intake import Intake
from pipelines.running.loop.metric_cuts import answered
from pipelines.running.records.tally import Tally
from pipelines.saved_runs import no_rows
from raydt.errors import UpdateError
from raydt.examples.updates import BatchResult, UpdateBatch
from raydt.sessions.session import Session


def feed(
    config: Config,
    session: Session,
    intake: Intake,
    tally: Tally,
    recorded: Callable[[UpdateBatch, BatchResult], None] | None = None,
    undivided: AbstractContextManager[Any] | None = None,
) -> None:
    """Feed the session until the stream ends, the intake is stopped, or an update is refused for good.

    Parameters
    ----------
    config : Config
    session : Session
    intake : Intake
        What ended it early is in its ``error``, not raised.
    tally : Tally
        Its ``seconds`` go on, and are the processing time in the end.
    recorded : callable, optional
        Called with every batch and its result, once the tally has them.
    undivided : context manager, optional
        Entered whenever the tally takes a batch: what another thread reads of it outside is of one update.

    Raises
    ------
    UpdateError
        A refused update, unless ``stream.on_error`` is ``skip``. Everything before it has taken effect.
    InputError
        The source has no rows.
    """
    refused: UpdateError | None = None
    began = time.perf_counter() - tally.seconds
    for batch, result in session.process(intake, skip_refused=config.stream.on_error == "skip"):
        with undivided or nullcontext():
            now, before = time.perf_counter() - began, tally.seconds
            for piece, answer in answered(batch, result):
                share = (piece.start + answer.applied - batch.start) / max(1, result.applied)
                tally.record(piece, answer, before + share * (now - before))
            tally.record_skipped(intake.take_skipped(tally.updates))
        if result.applied < len(batch):
            refused = tally.update_error(batch, result.refused[-1])
        if recorded is not None:
            recorded(batch, result)
    tally.record_skipped(intake.take_skipped(tally.updates, ended=True))
    if refused is not None:
        raise refused
    if intake.error is None and not intake.stopped:
        if not tally.updates and not tally.skipped:
            raise no_rows(config)
        tally.record_log(session.finish())
    tally.seconds = time.perf_counter() - began
