"""The in-process driver delivers requests as the contract says, and a shard refuses what is out of order."""

import threading

import numpy as np
import pytest

from raydt.errors import ExchangeError, SequenceGapError, StaleEpochError
from raydt.exchange import links as meeting
from raydt.exchange.links import Meeting, side_by_side, together
from raydt.exchange.messages import SET_ASIDE, Ask, Tell
from raydt.exchange.shard import InProcessDriver, NumberedShard
from raydt.parallel import limited
from tests.refusals import refused


class Recorder:
    """A worker that notes what it is handed and answers with how often it was asked."""

    def __init__(self, columns):
        self.columns = np.array(columns)
        self.seen = []

    def handle(self, method, payload):
        if method == "fail":
            raise KeyError("node")
        self.seen.append((method, payload))
        return np.array([len(self.seen)])

    def rows(self, slots):
        return {7: {"X": np.array(slots)}}

    def state(self, slots):
        return {7: {"seen": np.array([len(self.seen)])}}


@pytest.fixture
def shards():
    return [NumberedShard(Recorder([0, 1]), 0), NumberedShard(Recorder([2]), 1)]


def test_an_exchange_reads_like_a_conversation(shards):
    def conversation():
        first = yield Ask("split", {"node": 3}, [{"rows": 1}, {"rows": 2}])
        yield Tell("go", {"node": 4})
        second = yield Ask("split", {"node": 5})
        return [reply.tolist() for reply in first + second]

    driver = InProcessDriver(shards)
    assert driver.run(conversation()) == [[1], [1], [3], [3]]
    assert shards[0].worker.seen[0] == ("split", {"node": 3, "rows": 1})
    assert shards[1].worker.seen == [("split", {"node": 3, "rows": 2}), ("go", {"node": 4}), ("split", {"node": 5})]
    assert [shard.seq for shard in shards] == [3, 3]
    assert driver.traffic.rounds == 3


def test_traffic_counts_the_bytes_of_arrays_both_ways(shards):
    def conversation():
        yield Ask("a", {"x": np.zeros(10), "n": 3}, [{"y": [np.zeros(2, np.int8)]}, {"y": (np.zeros(1), "text")}])

    driver = InProcessDriver(shards)
    driver.run(conversation())
    assert driver.traffic.bytes == 2 * 80 + 2 + 8 + 2 * 8


def test_an_exchange_without_requests(shards):
    def silence():
        return 7
        yield

    driver = InProcessDriver(shards)
    assert driver.run(silence()) == 7
    assert driver.traffic.rounds == 0


def test_a_second_driver_goes_on_where_the_first_ended(shards):
    def conversation():
        yield Ask("a", {})

    InProcessDriver(shards).run(conversation())
    InProcessDriver(shards).run(conversation())
    assert [shard.seq for shard in shards] == [2, 2]


def test_a_repeated_message_is_answered_and_not_done_again(shards):
    shard = shards[1]
    first = shard.receive(0, 1, "split", {})
    assert shard.receive(0, 1, "split", {}) is first
    assert len(shard.worker.seen) == 1
    work = shard.work()
    assert (work["shard"], work["columns"], work["requests"]) == (1, [2], 1)


def test_gaps_and_other_epochs_are_refused(shards):
    shard = shards[1]
    shard.receive(0, 1, "split", {})
    for seq in (0, 3):
        with refused("exchange.gap", SequenceGapError, shard=1, seen=1, sent=seq):
            shard.receive(0, seq, "split", {})
    shard.begin_epoch(2)
    for epoch in (0, 1, 3):
        with refused("exchange.other_epoch", StaleEpochError, shard=1, epoch=2, sent=epoch):
            shard.receive(epoch, 1, "split", {})
    with refused("exchange.old_epoch", StaleEpochError, begun=2):
        shard.begin_epoch(2)
    assert len(shard.worker.seen) == 1
    shard.receive(2, 1, "split", {})
    assert len(shard.worker.seen) == 2


def test_a_message_that_failed_may_be_sent_again(shards):
    with pytest.raises(KeyError, match="node"):
        shards[0].receive(0, 1, "fail", {})
    assert (shards[0].seq, shards[0].answered) == (0, 0)
    shards[0].receive(0, 1, "split", {})


def test_what_is_set_aside_is_of_its_message_and_taken_once(shards):
    shard = shards[0]
    shard.receive(0, 1, "split", {})
    number = shard.receive(0, 2, SET_ASIDE, {"slots": [3, 4, 5], "stored": 1})
    assert shard.receive(0, 2, SET_ASIDE, {"slots": [3, 4, 5], "stored": 1}) == number
    shard.receive(0, 3, "split", {})
    aside = shard.take_aside(number)[7]
    assert (aside.rows["X"].tolist(), aside.state["seen"].tolist()) == ([4, 5], [1])
    with refused("exchange.other_snapshot", ExchangeError, shard=0, found=(0, 0), wanted=(0, 2)):
        shard.take_aside(number)


def test_parts_of_two_snapshots_are_never_mixed(shards):
    shard = shards[0]
    first, second = (shard.receive(0, seq, SET_ASIDE, {"slots": [seq], "stored": 0}) for seq in (1, 2))
    with refused("exchange.other_snapshot", ExchangeError, shard=0, found=(0, 2), wanted=(0, 1)):
        shard.take_aside(first)
    assert shard.take_aside(second)[7].rows["X"].tolist() == [2]


class Adder:
    """A worker whose passes add numbers: every shard owns the sum of one column, and tells all."""

    def __init__(self, index: int, shards: int) -> None:
        self.columns = np.array([])
        self.meeting, self.index, self.shards = Meeting(), index, shards

    def handle(self, method, payload):
        if method == "add":
            return self.meeting.begin(self.steps(**payload))
        return self.meeting.receive(**payload)

    def steps(self, rounds, mine):
        found = []
        for r in range(rounds):
            parts = yield [np.array([mine * 10**owner + r]) for owner in range(self.shards)]
            answers = yield [sum(parts)] * self.shards
            found.append([int(answer[0]) for answer in answers])
        return found


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_shards_put_parts_together_and_all_receive_what_they_make_of_them(shards, rounds):
    workers = [Adder(index, shards) for index in range(shards)]
    driver = InProcessDriver([NumberedShard(worker, index) for index, worker in enumerate(workers)])
    with limited(shards):
        ended = driver.run(together("add", {"rounds": rounds}, [{"mine": index + 1} for index in range(shards)]))
    total = shards * (shards + 1) // 2
    expected = [[total * 10**owner + shards * r for owner in range(shards)] for r in range(rounds)]
    assert ended == [(expected, 2 * rounds)] * shards
    assert driver.traffic.rounds == 1 + 2 * rounds


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
@pytest.mark.parametrize("handed_out", [0, 1 << 18])
def test_threads_make_the_same_pass(shards, handed_out, monkeypatch):
    monkeypatch.setattr(meeting, "_HANDED_OUT", handed_out)
    with limited(shards):
        results = side_by_side([Adder(index, shards).steps(3, index + 1) for index in range(shards)])
    total = shards * (shards + 1) // 2
    assert results == [[[total * 10**owner + shards * r for owner in range(shards)] for r in range(3)]] * shards


def test_an_error_of_one_thread_ends_the_pass():
    def fails():
        yield [np.array([1])] * 2
        raise ValueError("lost")

    with limited(2), pytest.raises(ValueError, match="lost"):
        side_by_side([Adder(0, 2).steps(3, 1), fails()])


def test_all_shards_are_asked_at_the_same_time():
    meeting = threading.Barrier(3)

    class Waits(Recorder):
        def handle(self, method, payload):
            return meeting.wait(20)

    with limited(3):
        replies = []

        def conversation():
            replies.extend((yield Ask("wait", {})))

        InProcessDriver([NumberedShard(Waits([]), index) for index in range(3)]).run(conversation())
    assert sorted(replies) == [0, 1, 2]
