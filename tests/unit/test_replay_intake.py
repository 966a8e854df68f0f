"""The intake: pieces that end at multiples, in order and complete, with and without reading ahead."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.running.intake import Intake, split_at_multiples
from raydt.errors import InputError
from raydt.examples.updates import CARRIES_ROW, DELETE, INSERT, QUERY, UpdateBatch
from raydt.exchange.messages import Barrier
from raydt.parallel import limited, threads
from raydt.streams.base import Skipped


def a_batch(start, op):
    op = np.array(op, dtype=np.int8)
    m = len(op)
    rows = int(CARRIES_ROW[op].sum())
    X = np.flatnonzero(CARRIES_ROW[op]).reshape(-1, 1) + float(start)
    return UpdateBatch(start, op, np.arange(start, start + m), X, np.zeros(rows, np.int32), 2, np.arange(m) + start)


class FakeStream:
    """Hands out ``n`` inserts; raises, and passes over rows, where told."""

    times = None

    def __init__(self, n, bad_at=None, skip_at=()):
        self.n, self.bad_at, self.skip_at, self.done = n, bad_at, set(skip_at), 0
        self.threads, self.allowed = set(), set()
        self._skipped = []

    def batches(self, size):
        while self.done < self.n:
            self.threads.add(threading.get_ident())
            self.allowed.add(threads())
            stop = min(self.done + size, self.n)
            if self.bad_at is not None:
                stop = min(stop, self.bad_at)
                if stop == self.done:
                    raise InputError("bad row", row=self.bad_at)
            self._skipped += [Skipped(r, "f", "why") for r in range(self.done, stop) if r in self.skip_at]
            batch = a_batch(self.done, [INSERT] * (stop - self.done))
            self.done = stop
            yield batch

    def take_skipped(self):
        skipped, self._skipped = self._skipped, []
        return skipped


@given(
    start=st.integers(0, 30),
    op=st.lists(st.sampled_from([INSERT, DELETE, QUERY]), min_size=1, max_size=40),
    every=st.integers(1, 15),
)
def test_pieces_are_the_batch_and_end_at_multiples(start, op, every):
    batch = a_batch(start, op)
    pieces = list(split_at_multiples(batch, every))
    for name in ("op", "id", "X", "y", "row"):
        assert np.array_equal(np.concatenate([getattr(piece, name) for piece in pieces]), getattr(batch, name))
    position = start
    for piece in pieces:
        assert piece.start == position
        assert len(piece.X) == CARRIES_ROW[piece.op].sum()
        assert piece.start // every == (piece.stop - 1) // every
        position = piece.stop
    assert position == batch.stop
    assert all(piece.stop % every == 0 for piece in pieces[:-1])


def test_a_barrier_stays_with_the_last_piece():
    batch = UpdateBatch(
        **{f: getattr(a_batch(0, [INSERT] * 5), f) for f in ("start", "op", "id", "X", "y", "n_classes", "row")},
        barrier=Barrier({"seq": 5}),
    )
    assert [piece.barrier for piece in split_at_multiples(batch, 2)] == [None, None, Barrier({"seq": 5})]


@pytest.mark.parametrize("ahead", [0, 3])
class TestIntake:
    def test_everything_arrives_once_and_in_order(self, ahead):
        stream = FakeStream(103)
        starts = [(batch.start, batch.stop) for batch in Intake(stream, 10, 25, ahead)]
        assert [start for start, _ in starts[1:]] == [stop for _, stop in starts[:-1]]
        assert starts[0][0] == 0
        assert starts[-1][1] == 103
        assert {25, 50, 75, 100} <= {stop for _, stop in starts}

    def test_a_learner_that_reports_within_batches_gets_them_whole(self, ahead):
        batches = list(Intake(FakeStream(103), 10, 3, ahead, within=True))
        assert [batch.stop for batch in batches] == [*range(10, 101, 10), 103]
        assert {batch.every for batch in batches} == {3}

    def test_it_reads_with_the_threads_of_the_run(self, ahead):
        stream = FakeStream(103)
        with limited(None), limited(3):
            list(Intake(stream, 10, 25, ahead))
        assert stream.allowed == {3}

    def test_an_error_ends_it_after_everything_before(self, ahead):
        intake = Intake(FakeStream(100, bad_at=37), 10, 1000, ahead)
        assert list(intake)[-1].stop == 37
        assert isinstance(intake.error, InputError)

    def test_a_stop_hands_on_what_was_taken(self, ahead):
        stream = FakeStream(1000)
        intake = Intake(stream, 10, 1000, ahead)
        last = 0
        for batch in intake:
            last = batch.stop
            if last == 50:
                intake.stop()
        assert last == stream.done < 1000
        assert intake.error is None

    def test_rows_passed_over_are_reported_once(self, ahead):
        intake = Intake(FakeStream(30, skip_at=[3, 17, 29]), 10, 1000, ahead)
        rows = []
        for batch in intake:
            rows += [entry.row for entry in intake.take_skipped(batch.stop)]
        rows += [entry.row for entry in intake.take_skipped(30)]
        assert rows == [3, 17, 29]

    def test_rows_passed_over_further_on_are_not_reported_yet(self, ahead):
        intake = Intake(FakeStream(30, skip_at=[3, 17, 29]), 10, 1000, ahead)
        stops = [batch.stop for batch in intake]  # all is read
        assert [[entry.row for entry in intake.take_skipped(stop)] for stop in stops[:2]] == [[3], [17]]

    def test_rows_passed_over_after_the_last_batch_are_reported_in_the_end(self, ahead):
        class Stream(FakeStream):
            def batches(self, size):
                yield from super().batches(size)
                self._skipped.append(Skipped(30, "f", "why"))

        intake = Intake(Stream(30), 10, 1000, ahead)
        stops = [batch.stop for batch in intake]  # all is read
        assert [intake.take_skipped(stop) for stop in stops] == [[], [], []]  # a checkpoint of now is before them
        assert [entry.row for entry in intake.take_skipped(30, ended=True)] == [30]

    def test_reading_ahead_happens_in_another_thread(self, ahead):
        stream = FakeStream(30)
        list(Intake(stream, 10, 1000, ahead))
        assert (threading.get_ident() in stream.threads) == (ahead == 0)


def test_reading_ahead_is_bounded():
    stream = FakeStream(1000)
    batches = iter(Intake(stream, 10, 1000, ahead=3))
    next(batches)
    batches.close()
    assert stream.done <= 50
