"""Statistics within a batch are those of batches that end there: every case of every learner that reports them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from pipelines.running.intake import answered, split_at_multiples
from raydt.examples.updates import BatchResult, UpdateBatch
from tests.cases import CASES, Trial

UPDATES = 240
#: Statistics that are known at the end of a batch only.
AT_THE_END = ("active", "rounds", "bytes_exchanged")
REPORTING = [trial for trial in CASES if trial.learner.traits(trial.options).reports_within]


class Seen:
    """What a run records: statistics at each multiple of ``every``, and predictions, refusals and log of all."""

    def __init__(self, pairs: Iterable[tuple[UpdateBatch, BatchResult]], every: int) -> None:
        self.statistics: dict[int, dict[str, int]] = {}
        self.predictions: list[Any] = []
        self.refused: list[tuple[int, int]] = []
        self.log: list[tuple[Any, ...]] = []
        for batch, result in pairs:
            stop = batch.start + result.applied
            if stop % every == 0:
                self.statistics[stop] = {n: v for n, v in result.statistics.items() if n not in AT_THE_END}
            self.predictions += result.predictions[: result.applied].tolist()
            self.refused += [(batch.start + refusal.position, refusal.reason) for refusal in result.refused]
            self.log += zip(*(column.tolist() for column in result.log.values()), strict=True)


@pytest.mark.parametrize(
    ("trial", "every", "size"),
    [
        pytest.param(trial, *cut, id=f"{trial.name}-{cut}", marks=pytest.mark.nightly if (i + j) % 2 else [])
        for i, trial in enumerate(REPORTING)
        for j, cut in enumerate(((1, 240), (5, 64), (7, 16), (50, 240)))
    ],
)
def test_statistics_within_a_batch_are_those_of_batches_that_end_there(
    trial: Trial, every: int, size: int, tmp_path: Path
) -> None:
    stream = trial.stream(tmp_path, UPDATES)
    batches = list(stream.batches(size))
    cut, whole = trial.session(stream), trial.session(stream)

    pieces = chain.from_iterable(split_at_multiples(batch, every) for batch in batches)
    wanted = Seen(cut.process(pieces, skip_refused=True), every)
    asked = [replace(batch, every=every) for batch in batches]
    results = whole.process(asked, skip_refused=True)
    found = Seen(chain.from_iterable(answered(batch, result) for batch, result in results), every)

    assert found.statistics == wanted.statistics
    assert len(found.statistics) >= UPDATES // every
    assert found.predictions == wanted.predictions
    assert found.refused == wanted.refused
    assert str(found.log) == str(wanted.log)  # NaN equals NaN
    assert whole.digest() == cut.digest()
    assert found.statistics[max(found.statistics)]["splits"] > 0, "a tree that never splits proves nothing"


@pytest.mark.parametrize("trial", REPORTING, ids=lambda trial: trial.name)
def test_statistics_within_a_batch_take_no_message(trial: Trial, tmp_path: Path) -> None:
    stream = trial.stream(tmp_path, UPDATES)
    batches = list(stream.batches(64))
    sessions = {every: trial.session(stream) for every in (0, 5)}
    traffic = []
    for every, session in sessions.items():
        list(session.process([replace(batch, every=every) for batch in batches], skip_refused=True))
        traffic.append((session.statistics()["rounds"], session.statistics()["bytes_exchanged"]))
    assert traffic[0] == traffic[1]
    assert traffic[0][0] >= len(batches)


@pytest.mark.parametrize("stop", [0, 1, 4, 5, 6, 9])
def test_pieces_end_with_the_update_that_stops_the_stream(stop: int, tmp_path: Path) -> None:
    trial = REPORTING[0]
    batch = next(trial.stream(tmp_path, UPDATES).batches(10))
    session = trial.session(trial.stream(tmp_path, UPDATES))
    bad = batch.id.copy()
    bad[stop] = bad[0] if stop else 0
    op = batch.op.copy()
    if not stop:
        op[0] = 1  # a deletion of nothing
    (asked, result), *_ = session.process([replace(batch, id=bad, op=op, every=5)])
    pieces = list(answered(asked, result))
    assert sum(piece.applied for _, piece in pieces) == result.applied
    assert [piece.start for piece, _ in pieces] == ([0, 5] if result.applied > 5 else [0])
