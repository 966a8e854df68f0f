"""The recorder and the intake of a replay."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.operation import Output
from pipelines.run_folder import RunFolder
from pipelines.running.intake import Intake, split_at_multiples
from pipelines.running.records import Recorder, metrics_schema
from raydt.errors import InputError, UpdateError
from raydt.evaluation.classification import Prequential
from raydt.evaluation.regression import PrequentialErrors
from raydt.evaluation.scoring import CLASS_SCORES, FADED
from raydt.examples.updates import (
    CARRIES_ROW,
    CODES,
    DELETE,
    DUPLICATE_ID,
    INSERT,
    NUMBERS,
    QUERY,
    REFUSALS,
    UNKNOWN_ID,
    UPDATE,
    BatchResult,
    Refusal,
    UpdateBatch,
)
from raydt.exchange.messages import Barrier
from raydt.parallel import limited, threads
from raydt.streams.base import Skipped, Tally

# -- replay recorder -------------------------------------------------------------------------------------------------
# What a run records: against a loop over single updates, and whatever way the stream was cut.


class FakeSource:
    positive = None
    known_classes = 0
    target_dtype = CODES
    classes = ("a", "b", "c", "read ahead")

    def __init__(self, id_kind="integer"):
        self.id_kind = id_kind


class FakeStream:
    delayed = False
    planned_warmup = 0

    times = None

    def __init__(self, id_kind="integer"):
        self.source = FakeSource(id_kind)

    def where(self, row):
        return ("data.csv", row % 100) if row >= 0 else ("deletions.csv", -2 - row)


def read(folder, table):
    return pq.read_table(folder.path(f"{table}/part-00000.parquet")).to_pylist()


def updates(n, seed=1):
    rng = np.random.default_rng(seed)
    op = rng.choice([INSERT, INSERT, DELETE, UPDATE, QUERY], n).astype(np.int8)
    truth = rng.integers(0, 3, n).astype(np.int32)
    prediction = np.where(CARRIES_ROW[op], rng.integers(0, 3, n), -1).astype(np.int32)
    prediction[:5] = -1
    return op, truth, prediction


def run(folder, n, size, every, refused=(), output=None):
    """Record ``n`` updates in batches of ``size`` that never cross a multiple of ``every``."""
    op, truth, prediction = updates(n)
    prediction[list(refused)] = -1
    recorder = Recorder(folder, output or Output(metrics_every=every, predictions=True), FakeStream())
    begin = 0
    while begin < n:
        end = min(n, begin + size, begin + every - begin % every)
        part = slice(begin, end)
        carries = CARRIES_ROW[op[part]]
        batch = UpdateBatch(
            begin,
            op[part],
            np.arange(begin, end) + 1000,
            np.zeros((int(carries.sum()), 1)),
            truth[part][carries],
            3,
            np.arange(begin, end),
        )
        refusals = [Refusal(i - begin, UNKNOWN_ID) for i in refused if begin <= i < end]
        statistics = {"nodes": end, "leaves": 1, "depth": 2, "rebuilds": end, "rebuilt_rows": 4}
        result = BatchResult(end - begin, prediction[part], refusals, statistics=statistics)
        result.log = {
            "seq": np.arange(begin, end)[op[part] == DELETE],
            "rows": np.ones(int((op[part] == DELETE).sum())),
        }
        recorder.record(batch, result, float(end))
        begin = end
    recorder.close()
    return recorder, (op, truth, prediction)


def test_tables_equal_a_loop_over_updates(tmp_path):
    refused = [20, 33, 34]
    recorder, (op, truth, prediction) = run(RunFolder(tmp_path), 95, 7, 10, refused)
    rows = read(RunFolder(tmp_path), "metrics")
    assert [row["seq"] for row in rows] == [10, 20, 30, 40, 50, 60, 70, 80, 90, 95]
    inserts = deletes = predictions = scored = hits = 0
    window_scored = window_hits = 0
    for i in range(95):
        learned = op[i] in (INSERT, UPDATE) and i not in refused
        inserts += learned
        deletes += op[i] in (DELETE, UPDATE) and i not in refused
        predictions += prediction[i] >= 0
        if learned and prediction[i] >= 0:
            scored, window_scored = scored + 1, window_scored + 1
            hits, window_hits = hits + (truth[i] == prediction[i]), window_hits + (truth[i] == prediction[i])
        if (i + 1) % 10 == 0 or i == 94:
            row = rows.pop(0)
            counts = (row["seq"], row["inserts"], row["deletes"], row["predictions"], row["active"], row["nodes"])
            assert counts == (i + 1, inserts, deletes, predictions, inserts - deletes, i + 1)
            assert row["accuracy"] == hits / scored
            assert row["window_accuracy"] == pytest.approx(window_hits / window_scored)
            window_scored = window_hits = 0
    assert (recorder.inserts, recorder.deletes, recorder.refused) == (inserts, deletes, 3)
    parts = (inserts - recorder.replaced, deletes - recorder.replaced, recorder.replaced, recorder.queries, 3)
    assert sum(parts) == recorder.updates == 95
    assert min(parts) > 0


@pytest.mark.parametrize("delayed", [False, True])
def test_streams_recorded_together_are_as_recorded_alone(delayed):
    rng = np.random.default_rng(2)
    stream = FakeStream()
    stream.delayed = delayed
    together, alone = [Tally(stream) for _ in range(6)], [Tally(stream) for _ in range(6)]
    for turn in range(4):
        answered = []
        for k, n in enumerate((9, 1, 30, 4, 200, 12)):
            op, truth, prediction = updates(n, seed=10 * turn + k)
            y = truth[CARRIES_ROW[op]] % (1 + k)  # some have fewer classes
            ids, start = rng.integers(0, 50, n), together[k].updates
            batch = UpdateBatch(start, op, ids, np.zeros((len(y), 1)), y, 1 + k, np.arange(n))
            applied = int(rng.integers(0, n + 1))  # also nothing
            refused = [Refusal(at, UNKNOWN_ID) for at in sorted(set(rng.integers(0, n, 2).tolist()))]
            prediction[[refusal.position for refusal in refused]] = -1
            result = BatchResult(applied, prediction, refused, statistics={"nodes": turn})
            result.give_levels(np.arange(n), rng.integers(0, 9, n)) if k else None
            answered.append((batch, result, float(turn)))
        Tally.record_all([(tally, *one) for tally, one in zip(together, answered, strict=True)])
        for tally, one in zip(alone, answered, strict=True):
            tally.record(*one)
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_equal(one.state(), other.state())


def test_predictions_carry_labels_and_queries_without_a_label_have_none(tmp_path):
    folder = RunFolder(tmp_path)
    recorder = Recorder(folder, Output(predictions=True), FakeStream())
    op = np.array([INSERT, DELETE, QUERY], dtype=np.int8)
    batch = UpdateBatch(0, op, np.array([5, 6, 0]), np.zeros((2, 1)), np.array([2, -1], np.int32), 3, np.arange(3))
    recorder.record(batch, BatchResult(3, np.array([0, -1, 1], np.int32)), 0.0)
    recorder.close()
    assert read(folder, "predictions") == [
        {"seq": 0, "id": 5, "prediction": "a", "truth": "c"},
        {"seq": 2, "id": 0, "prediction": "b", "truth": None},
    ]
    assert recorder.predictions == 2
    assert recorder.prequential.snapshot().scored == 1  # a query is only predicted


def test_predictions_carry_the_ids_of_the_user(tmp_path):
    folder = RunFolder(tmp_path)
    recorder = Recorder(folder, Output(predictions=True), FakeStream("text"))
    op = np.array([INSERT, QUERY], dtype=np.int8)
    rows = np.zeros((2, 1)), np.array([1, -1], np.int32), 3, np.arange(2)
    batch = UpdateBatch(0, op, np.array([5, -1]), *rows, names=["c5", None])
    recorder.record(batch, BatchResult(2, np.array([0, 1], np.int32)), 0.0)
    recorder.close()
    assert [row["id"] for row in read(folder, "predictions")] == ["c5", None]
    assert recorder.classes == ["a", "b"]  # others were only read ahead
    assert np.shape(recorder.metrics()["confusion"]) == (2, 2)


def test_only_the_part_that_was_taken_counts(tmp_path):
    recorder = Recorder(RunFolder(tmp_path), Output(), FakeStream())
    op = np.array([INSERT, INSERT, INSERT], dtype=np.int8)
    batch = UpdateBatch(
        7, op, np.array([1, 2, 2]), np.zeros((3, 1)), np.zeros(3, np.int32), 1, np.array([101, 102, 103])
    )
    result = BatchResult(2, np.array([0, 0, -1], np.int32), [Refusal(2, DUPLICATE_ID)])
    recorder.record(batch, result, 0.0)
    assert (recorder.updates, recorder.inserts, recorder.refused) == (9, 2, 0)
    error = recorder.update_error(batch, result.refused[0])
    assert isinstance(error, UpdateError)
    assert str(error).startswith(f"data.csv, row 3: update 9: {REFUSALS[DUPLICATE_ID][0]} (id 2). ")


def test_undefined_shares_are_null_in_the_summary_and_nan_in_the_table(tmp_path):
    folder = RunFolder(tmp_path)
    recorder = Recorder(folder, Output(), FakeStream())
    recorder.close()
    undefined = dict.fromkeys([score.name for score in CLASS_SCORES] + [f"faded_{name}" for name in FADED])
    assert recorder.metrics() == {**undefined, "alarms": 0, "confusion": []}
    assert recorder.baselines() == {"no_change": None, "majority": None}
    assert math.isnan(read(folder, "metrics")[0]["accuracy"])


# -- replay intake ---------------------------------------------------------------------------------------------------
# The intake: pieces that end at multiples, in order and complete, with and without reading ahead.


def a_batch(start, op):
    op = np.array(op, dtype=np.int8)
    m = len(op)
    rows = int(CARRIES_ROW[op].sum())
    X = np.flatnonzero(CARRIES_ROW[op]).reshape(-1, 1) + float(start)
    return UpdateBatch(start, op, np.arange(start, start + m), X, np.zeros(rows, np.int32), 2, np.arange(m) + start)


class IntakeFakeStream:
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
        stream = IntakeFakeStream(103)
        starts = [(batch.start, batch.stop) for batch in Intake(stream, 10, 25, ahead)]
        assert [start for start, _ in starts[1:]] == [stop for _, stop in starts[:-1]]
        assert starts[0][0] == 0
        assert starts[-1][1] == 103
        assert {25, 50, 75, 100} <= {stop for _, stop in starts}

    def test_a_learner_that_reports_within_batches_gets_them_whole(self, ahead):
        batches = list(Intake(IntakeFakeStream(103), 10, 3, ahead, within=True))
        assert [batch.stop for batch in batches] == [*range(10, 101, 10), 103]
        assert {batch.every for batch in batches} == {3}

    def test_it_reads_with_the_threads_of_the_run(self, ahead):
        stream = IntakeFakeStream(103)
        with limited(None), limited(3):
            list(Intake(stream, 10, 25, ahead))
        assert stream.allowed == {3}

    def test_an_error_ends_it_after_everything_before(self, ahead):
        intake = Intake(IntakeFakeStream(100, bad_at=37), 10, 1000, ahead)
        assert list(intake)[-1].stop == 37
        assert isinstance(intake.error, InputError)

    def test_a_stop_hands_on_what_was_taken(self, ahead):
        stream = IntakeFakeStream(1000)
        intake = Intake(stream, 10, 1000, ahead)
        last = 0
        for batch in intake:
            last = batch.stop
            if last == 50:
                intake.stop()
        assert last == stream.done < 1000
        assert intake.error is None

    def test_rows_passed_over_are_reported_once(self, ahead):
        intake = Intake(IntakeFakeStream(30, skip_at=[3, 17, 29]), 10, 1000, ahead)
        rows = []
        for batch in intake:
            rows += [entry.row for entry in intake.take_skipped(batch.stop)]
        rows += [entry.row for entry in intake.take_skipped(30)]
        assert rows == [3, 17, 29]

    def test_rows_passed_over_further_on_are_not_reported_yet(self, ahead):
        intake = Intake(IntakeFakeStream(30, skip_at=[3, 17, 29]), 10, 1000, ahead)
        stops = [batch.stop for batch in intake]  # all is read
        assert [[entry.row for entry in intake.take_skipped(stop)] for stop in stops[:2]] == [[3], [17]]

    def test_rows_passed_over_after_the_last_batch_are_reported_in_the_end(self, ahead):
        class Stream(IntakeFakeStream):
            def batches(self, size):
                yield from super().batches(size)
                self._skipped.append(Skipped(30, "f", "why"))

        intake = Intake(Stream(30), 10, 1000, ahead)
        stops = [batch.stop for batch in intake]  # all is read
        assert [intake.take_skipped(stop) for stop in stops] == [[], [], []]  # a checkpoint of now is before them
        assert [entry.row for entry in intake.take_skipped(30, ended=True)] == [30]

    def test_reading_ahead_happens_in_another_thread(self, ahead):
        stream = IntakeFakeStream(30)
        list(Intake(stream, 10, 1000, ahead))
        assert (threading.get_ident() in stream.threads) == (ahead == 0)


def test_reading_ahead_is_bounded():
    stream = IntakeFakeStream(1000)
    batches = iter(Intake(stream, 10, 1000, ahead=3))
    next(batches)
    batches.close()
    assert stream.done <= 50


# -- recorder numbers ------------------------------------------------------------------------------------------------
# What a run of a regression records: numbers in tables and scores, however it is cut, and after a restore.

N, EVERY = 90, 10
RNG = np.random.default_rng(2)
OP = RNG.choice([INSERT, INSERT, DELETE, UPDATE, QUERY], N).astype(np.int8)
TRUTH = np.where(OP == QUERY, np.nan, np.round(RNG.normal(size=N), 2))
PREDICTION = np.where(CARRIES_ROW[OP] & (np.arange(N) >= 8), TRUTH + RNG.normal(size=N), np.nan)
PREDICTION[OP == QUERY] = 0.25


class NumberSource(FakeSource):
    target_dtype = NUMBERS
    classes = ()


class NumberStream(FakeStream):
    def __init__(self) -> None:
        self.source = NumberSource()


def opened(folder: Path) -> Recorder:
    return Recorder(RunFolder(folder), Output(metrics_every=EVERY, predictions=True), NumberStream())


def work(recorder: Recorder, size: int, stop: int) -> Recorder:
    while recorder.updates < stop:
        begin = recorder.updates
        end = min(stop, begin + size, begin + EVERY - begin % EVERY)
        part = slice(begin, end)
        carries = CARRIES_ROW[OP[part]]
        rows = np.zeros((int(carries.sum()), 1)), TRUTH[part][carries]
        batch = UpdateBatch(begin, OP[part], np.arange(begin, end), *rows, 0, np.arange(begin, end))
        recorder.record(batch, BatchResult(end - begin, PREDICTION[part]), 0.0)
    return recorder


@pytest.mark.parametrize("size", [1, 7, 90])
def test_tables_and_scores(tmp_path: Path, size: int) -> None:
    recorder = work(opened(tmp_path), size, N)
    recorder.close()
    metrics = pq.read_table(tmp_path / "metrics")
    assert metrics.schema == metrics_schema(PrequentialErrors.columns)
    predictions = pq.read_table(tmp_path / "predictions")
    assert predictions.schema.types[2:] == [pa.float64(), pa.float64()]
    there = ~np.isnan(PREDICTION)
    np.testing.assert_array_equal(predictions["prediction"], PREDICTION[there])
    np.testing.assert_array_equal(predictions["truth"].to_numpy(), TRUTH[there])
    assert predictions["truth"].null_count == int((OP == QUERY).sum())
    scored = there & np.isin(OP, [INSERT, UPDATE])
    error = (TRUTH - PREDICTION)[scored]
    assert recorder.metrics()["mse"] == pytest.approx(np.mean(error**2), rel=1e-12)
    assert list(recorder.baselines()) == ["no_change", "mean"]
    assert (recorder.predictions, recorder.n_classes, recorder.classes) == (int(there.sum()), 0, [])
    assert metrics["mse"][-1].as_py() == recorder.metrics()["mse"]


def test_scores_that_are_no_numbers_are_null(tmp_path: Path) -> None:
    recorder = opened(tmp_path)
    assert set(recorder.metrics().values()) == {None}
    op, key = np.zeros(2, dtype=np.int8), np.arange(2)
    batch = UpdateBatch(0, op, key, np.zeros((2, 1)), np.array([1e300, -1e300]), 0, key)
    recorder.record(batch, BatchResult(2, np.zeros(2)), 0.0)
    json.dumps([recorder.metrics(), recorder.baselines()], allow_nan=False)
    assert recorder.metrics()["mse"] is None
    assert recorder.metrics()["mae"] == 1e300


# -- recorder restore ------------------------------------------------------------------------------------------------
# A recorder that was cut and restored: the tables are those of a run that nothing happened to.

N_RESTORE, EVERY_RESTORE = 60, 7
OP_RESTORE, TRUTH_RESTORE, PREDICTION_RESTORE = updates(N_RESTORE)
REFUSED = {9, 10, 31, 55}
SKIPPED = {4: 2, 30: 1, 58: 3}  # rows passed over before an update


class Session:
    """Answers as one learner would, whatever the batches; its traffic begins at 0."""

    def __init__(self):
        self.rounds = 0

    def apply(self, begin, end):
        part = slice(begin, end)
        carries = CARRIES_ROW[OP_RESTORE[part]]
        rows = (np.zeros((int(carries.sum()), 1)), TRUTH_RESTORE[part][carries])
        batch = UpdateBatch(begin, OP_RESTORE[part], np.arange(begin, end) + 1000, *rows, 3, np.arange(begin, end))
        prediction = PREDICTION_RESTORE[part].copy()
        prediction[[i - begin for i in REFUSED if begin <= i < end]] = -1
        self.rounds += 1
        statistics = {"nodes": end, "leaves": 1, "depth": 2, "rebuilds": end, "rebuilt_rows": 4}
        statistics |= {"rounds": self.rounds, "bytes_exchanged": 10 * self.rounds}
        refused = [Refusal(i - begin, UNKNOWN_ID) for i in range(begin, end) if i in REFUSED]
        result = BatchResult(end - begin, prediction, refused, statistics=statistics)
        causes = np.flatnonzero(OP_RESTORE[part] == DELETE)
        result.log = {"seq": causes + begin, "rows": np.ones(len(causes), np.int32)}
        return batch, result


def open_recorder(location):
    return Recorder(RunFolder(location), Output(metrics_every=EVERY_RESTORE, predictions=True), FakeStream("text"))


def work_restore(recorder, sizes, stop, barriers=()):
    """Record up to ``stop``; the states at the barriers, as they come out of a file."""
    states, session, clock = [], Session(), recorder.seconds
    sizes = list(sizes)
    while recorder.updates < stop:
        begin = recorder.updates
        sizes.append(sizes.pop(0))
        ahead = [b for b in (*barriers, stop) if b > begin]
        end = min(begin + sizes[-1], begin + EVERY_RESTORE - begin % EVERY_RESTORE, *ahead)
        clock += 0.1
        recorder.record(*session.apply(begin, end), clock)
        for at in range(begin, end):
            recorder.record_skipped([Skipped(at, "data.csv", f"bad {i}") for i in range(SKIPPED.get(at, 0))])
        if end in barriers:
            states.append(through_a_file(recorder.state()))
    return states


def through_a_file(state):
    """Plain JSON values and arrays, and nothing shared with the recorder, which goes on."""
    arrays = {}

    def take_out(value):
        if isinstance(value, dict):
            return {key: take_out(entry) for key, entry in value.items()}
        if isinstance(value, np.ndarray):
            arrays[f"array {len(arrays)}"] = value
            return f"array {len(arrays) - 1}"
        return value

    def put_in(value):
        if isinstance(value, dict):
            return {key: put_in(entry) for key, entry in value.items()}
        return arrays.get(value, value) if isinstance(value, str) else value

    return put_in(json.loads(json.dumps(take_out(state), allow_nan=False)))


def test_time_and_traffic_go_on_from_the_checkpoint(tmp_path):
    recorder = open_recorder(tmp_path)
    [state] = work_restore(recorder, [5], 30, [20])
    recorder.abandon()
    again = open_recorder(tmp_path)
    again.restore(state)
    assert again.seconds == state["seconds"] == pytest.approx(0.1 * state["statistics"]["rounds"])
    rounds = again.statistics["rounds"]
    work_restore(again, [1], 23)
    assert (again.statistics["rounds"], again.statistics["bytes_exchanged"]) == (rounds + 3, 10 * rounds + 30)
    assert again.totals({"rounds": 3, "rebuilds": 7}) == {"rounds": rounds + 3, "rebuilds": 7}


def test_a_state_is_not_changed_by_going_on(tmp_path):
    recorder = open_recorder(tmp_path)
    work_restore(recorder, [5], 20)
    state, then = recorder.state(), through_a_file(recorder.state())
    work_restore(recorder, [5], 40)
    recorder.commit()
    assert repr(state) == repr(then)
    recorder.abandon()
    again = open_recorder(tmp_path)
    again.restore(state)
    work_restore(again, [5], 40)
    assert repr(state) == repr(then)


class TestMetrics:
    def test_a_window_goes_on_and_an_earlier_version_gives_the_same_scores(self):
        truth, prediction = np.arange(90, dtype=np.int32) % 3, (np.arange(90, dtype=np.int32) // 2) % 3
        levels = (np.arange(90) * 40).astype(np.uint16)
        whole, resumed, earlier = Prequential(True), Prequential(True), Prequential(True)
        whole.update(truth[:50], prediction[:50], levels[:50])
        whole.mark()
        whole.take_rows()
        whole.update(truth[50:60], prediction[50:60], levels[50:60])
        state = whole.state()
        resumed.restore(through_a_file(state))
        counts = {name: int(state["hits"][k]) for k, name in ((2, "no_change"), (3, "majority"))}
        kept = {name: state[name] for name in ("confusion", "inserted")}
        earlier.restore({**kept, **counts, "last": int(state["registers"][0])})
        for one in (whole, resumed, earlier):
            one.update(truth[60:], prediction[60:], levels[60:])
            one.mark()
        rows, again, before = (one.take_rows() for one in (whole, resumed, earlier))
        assert repr(rows) == repr(again)
        unknown = {name for name in rows if name.startswith(("window_", "faded_"))} | {"auc"}
        for name in rows.keys() - unknown:
            assert before[name] == rows[name]
        assert np.isnan(before["auc"][0])
        assert not np.isnan(rows["auc"][0])
