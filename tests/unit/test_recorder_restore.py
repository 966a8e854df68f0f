"""A recorder that was cut and restored: the tables are those of a run that nothing happened to."""

from __future__ import annotations

import json
import tempfile

import numpy as np
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_replay_recorder import FakeStream, updates

from pipelines.config import Output
from pipelines.run_folder import RunFolder
from pipelines.running.records.recorder import Recorder
from raydt.errors import InputError
from raydt.evaluation.classification import Prequential
from raydt.examples.updates import CARRIES_ROW, DELETE, UNKNOWN_ID, BatchResult, Refusal, UpdateBatch
from raydt.streams.base import Skipped
from tests.volume import examples

N, EVERY = 60, 7
OP, TRUTH, PREDICTION = updates(N)
REFUSED = {9, 10, 31, 55}
SKIPPED = {4: 2, 30: 1, 58: 3}  # rows passed over before an update
TABLES = ("metrics", "events", "predictions", "quarantine")
COSTS = {"seconds", "rounds", "bytes_exchanged"}


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


def content(location, *, costs=False):
    """All tables: what repr tells apart, NaN being equal to itself. Refused and skipped rows as a set."""
    tables = {name: ds.dataset(f"{location}/{name}").to_table().to_pylist() for name in TABLES}
    for row in tables["metrics"]:
        for name in () if costs else COSTS:
            del row[name]
    tables["quarantine"].sort(key=repr)
    return {name: list(map(repr, rows)) for name, rows in tables.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    location = tmp_path_factory.mktemp("undisturbed")
    recorder = open_recorder(location)
    work(recorder, [8], N)
    recorder.close()
    return recorder, content(location)


sizes = st.lists(st.integers(1, 20), min_size=1, max_size=4)
lives = st.lists(
    st.tuples(sizes, st.integers(0, N), st.sets(st.integers(1, N), max_size=5), st.integers(1, 3), st.booleans()),
    max_size=4,
)


@examples(30)
@given(lives=lives, last=sizes, compact=st.booleans())
def test_each_update_is_in_the_tables_once_wherever_the_run_was_cut(undisturbed, lives, last, compact):
    whole, expected = undisturbed
    with tempfile.TemporaryDirectory() as location:
        kept = []
        for life, (batches, crash, barriers, back, closed) in enumerate(lives):
            recorder = open_recorder(location)
            take_up(recorder, kept)
            kept = (kept + work(recorder, batches, crash, sorted(barriers)))[-3:]
            if closed:
                recorder.close()  # interrupted: a row of metrics at an odd place
            elif life % 2:
                recorder.commit()  # the checkpoint did not come about
            recorder.abandon()
            kept = kept[: len(kept) - back + 1]  # the newest are damaged
        recorder = open_recorder(location)
        take_up(recorder, kept)
        work(recorder, last, N)
        recorder.close()
        if compact:
            recorder.compact()
            recorder.finish_compaction()
        assert content(location) == expected
        assert recorder.metrics() == whole.metrics()
        assert recorder.baselines() == whole.baselines()
        ours, theirs = recorder.state(), whole.state()
        for state in (ours, theirs):
            del state["seconds"], state["tables"], state["statistics"], state["prequential"]
        assert ours == theirs


def take_up(recorder, kept):
    if kept:
        recorder.restore(kept[-1])
    else:
        recorder.clear()


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


def test_predictions_may_be_switched_off_and_on_again(tmp_path):
    recorder = open_recorder(tmp_path)
    [state] = work(recorder, [5], 20, [20])
    recorder.abandon()
    silent = Recorder(RunFolder(tmp_path), Output(metrics_every=EVERY), FakeStream("text"))
    silent.restore(state)
    [state] = work(silent, [5], 40, [40])
    silent.abandon()
    again = open_recorder(tmp_path)
    again.restore(state)
    work(again, [5], N)
    again.close()
    seen = ds.dataset(tmp_path / "predictions").to_table().column("seq").to_pylist()
    assert seen == [i for i in np.flatnonzero(PREDICTION >= 0) if not 20 <= i < 40 and i not in REFUSED]


def test_a_run_that_is_complete_is_closed_again_without_another_row(tmp_path):
    recorder = open_recorder(tmp_path)
    work(recorder, [5], N)
    recorder.close()
    again = open_recorder(tmp_path)
    again.restore(recorder.state())
    again.close()
    assert ds.dataset(tmp_path / "metrics").to_table().column("seq").to_pylist() == [*range(EVERY, N, EVERY), N]


def test_a_missing_part_of_any_table_leaves_all_of_them_alone(tmp_path):
    recorder = open_recorder(tmp_path)
    [state] = work(recorder, [5], 40, [20])
    recorder.close()
    (tmp_path / "quarantine" / state["tables"]["quarantine"]["parts"][0]).unlink()
    before = sorted(tmp_path.rglob("*.parquet"))
    again = open_recorder(tmp_path)
    with pytest.raises(InputError, match=r"quarantine/part-00000\.parquet: is missing"):
        again.require(state)
    assert sorted(tmp_path.rglob("*.parquet")) == before
    assert again.updates == 0


class TestMetrics:
    @given(pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 5)), max_size=40), cut=st.integers(0, 40))
    def test_scores_go_on_exactly(self, pairs, cut):
        truth, prediction = (np.array([pair[i] for pair in pairs], dtype=np.int32) for i in (0, 1))
        whole, first, second = Prequential(), Prequential(), Prequential()
        whole.update(truth, prediction)
        first.update(truth[:cut], prediction[:cut])
        second.restore(through_a_file(first.state()))
        second.update(truth[cut:], prediction[cut:])
        assert second.snapshot() == whole.snapshot()
        assert repr(second.state()) == repr(whole.state())

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
