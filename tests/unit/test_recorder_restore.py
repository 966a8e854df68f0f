"""A recorder that was cut and restored: the tables are those of a run that nothing happened to."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_replay_recorder import FakeStream, updates

from pipelines.operation import Output
from pipelines.run_folder import RunFolder
from pipelines.running.records import Recorder
from raydt.evaluation.classification import Prequential
from raydt.examples.updates import CARRIES_ROW, DELETE, UNKNOWN_ID, BatchResult, Refusal, UpdateBatch
from raydt.streams.base import Skipped

N, EVERY = 60, 7
OP, TRUTH, PREDICTION = updates(N)
REFUSED = {9, 10, 31, 55}
SKIPPED = {4: 2, 30: 1, 58: 3}  # rows passed over before an update


class Session:
    """Answers as one learner would, whatever the batches; its traffic begins at 0."""

    def __init__(self):
        self.rounds = 0

    def apply(self, begin, end):
        part = slice(begin, end)
        carries = CARRIES_ROW[OP[part]]
        rows = (np.zeros((int(carries.sum()), 1)), TRUTH[part][carries])
        batch = UpdateBatch(begin, OP[part], np.arange(begin, end) + 1000, *rows, 3, np.arange(begin, end))
        prediction = PREDICTION[part].copy()
        prediction[[i - begin for i in REFUSED if begin <= i < end]] = -1
        self.rounds += 1
        statistics = {"nodes": end, "leaves": 1, "depth": 2, "rebuilds": end, "rebuilt_rows": 4}
        statistics |= {"rounds": self.rounds, "bytes_exchanged": 10 * self.rounds}
        refused = [Refusal(i - begin, UNKNOWN_ID) for i in range(begin, end) if i in REFUSED]
        result = BatchResult(end - begin, prediction, refused, statistics=statistics)
        causes = np.flatnonzero(OP[part] == DELETE)
        result.log = {"seq": causes + begin, "rows": np.ones(len(causes), np.int32)}
        return batch, result


def open_recorder(location):
    return Recorder(RunFolder(location), Output(metrics_every=EVERY, predictions=True), FakeStream("text"))


def work(recorder, sizes, stop, barriers=()):
    """Record up to ``stop``; the states at the barriers, as they come out of a file."""
    states, session, clock = [], Session(), recorder.seconds
    sizes = list(sizes)
    while recorder.updates < stop:
        begin = recorder.updates
        sizes.append(sizes.pop(0))
        ahead = [b for b in (*barriers, stop) if b > begin]
        end = min(begin + sizes[-1], begin + EVERY - begin % EVERY, *ahead)
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
    [state] = work(recorder, [5], 30, [20])
    recorder.abandon()
    again = open_recorder(tmp_path)
    again.restore(state)
    assert again.seconds == state["seconds"] == pytest.approx(0.1 * state["statistics"]["rounds"])
    rounds = again.statistics["rounds"]
    work(again, [1], 23)
    assert (again.statistics["rounds"], again.statistics["bytes_exchanged"]) == (rounds + 3, 10 * rounds + 30)
    assert again.totals({"rounds": 3, "rebuilds": 7}) == {"rounds": rounds + 3, "rebuilds": 7}


def test_a_state_is_not_changed_by_going_on(tmp_path):
    recorder = open_recorder(tmp_path)
    work(recorder, [5], 20)
    state, then = recorder.state(), through_a_file(recorder.state())
    work(recorder, [5], 40)
    recorder.commit()
    assert repr(state) == repr(then)
    recorder.abandon()
    again = open_recorder(tmp_path)
    again.restore(state)
    work(again, [5], 40)
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
