"""The channel between shards, and the exchange with the coordinator."""

import contextlib
import json
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import numpy as np
import pytest

import actors.channel
from actors.channel import Channel
from raydt.errors import ConfigError, ExchangeError, ProcessLostError, SequenceGapError, StaleEpochError
from raydt.exchange import links as meeting
from raydt.exchange.links import Frame, InProcessDriver, Meeting, NumberedShard, packed, proof, side_by_side, together
from raydt.exchange.meetings import AllGather, ReduceScatter, bundled
from raydt.exchange.messages import SET_ASIDE, Ask, Tell
from raydt.parallel import limited
from tests.refusals import refused

# -- channel ---------------------------------------------------------------------------------------------------------
# Sockets between shards: who is admitted, what arrives, and what a broken connection says.

SECRET = b"s" * 32


@contextmanager
def channels(shards, secrets=None, epochs=None):
    """Channels of so many shards, which are being connected, and the pool in which they are."""
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(shards))
        made = [
            stack.enter_context(closing(Channel(i, (epochs or [1] * shards)[i], "127.0.0.1"))) for i in range(shards)
        ]
        addresses = [channel.address for channel in made]
        connecting = [
            pool.submit(channel.connect, addresses, (secrets or [SECRET] * shards)[i]) for i, channel in enumerate(made)
        ]
        yield made, connecting, pool


def connected(connecting):
    for one in connecting:
        one.result()


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
@pytest.mark.parametrize("numbers", [0, 10, 400_000])
def test_parts_arrive_whatever_their_size(shards, numbers):
    """3.2 MB do not fit into the buffers of the system: all shards send and receive at the same time."""
    with channels(shards) as (made, connecting, pool):
        connected(connecting)

        def swap(channel, turn):
            return channel.swap([np.full(numbers + 1, 100 * turn + 10 * channel.index + to) for to in range(shards)])

        for turn in range(3):
            for index, parts in enumerate(pool.map(swap, made, [turn] * shards)):
                assert [(part[0], len(part)) for part in parts] == [
                    (100 * turn + 10 * i + index, numbers + 1) for i in range(shards)
                ]
        assert all(channel.sent >= 3 * 8 * numbers * (shards - 1) for channel in made)
        assert not any(channel.waits for channel in made)


@pytest.mark.parametrize("shards", [2, 5, 12])
def test_shards_meet_with_their_neighbours_alone(shards):
    """Sums, and what all are told, also where both are larger than what the system holds for a connection."""
    with channels(shards) as (made, connecting, pool):
        connected(connecting)
        links = [len(channel._peers) for channel in made]
        assert links == [min(shards - 1, {2: 1, 5: 4, 12: 7}[shards])] * shards

        def level(channel, size):
            parts = [np.full(size, channel.index + to) for to in range(shards)]
            (total,) = channel.swap(ReduceScatter(parts, np.add))
            return total[:1].tolist(), channel.swap(AllGather(np.full(size, channel.index), shards))

        for size in (1, 100_000):
            for index, (total, told) in enumerate(pool.map(level, made, [size] * shards)):
                assert total == [shards * index + shards * (shards - 1) // 2]
                assert [(part[-1], len(part)) for part in told] == [(one, size) for one in range(shards)]


def test_a_shard_that_is_early_is_not_lost_and_shows_that_it_waits():
    with channels(2) as (made, connecting, pool):
        connected(connecting)
        early = pool.submit(made[0].swap, [np.array([1]), np.array([2])])
        while not made[0].waits:
            time.sleep(0.001)
        assert not early.done()
        made[1].swap([np.array([3]), np.array([4])])
        assert [part.tolist() for part in early.result()] == [[1], [3]]


def test_a_port_is_closed_once_all_have_connected():
    with channels(3) as (made, connecting, _):
        connected(connecting)
        for channel in made:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(channel.address, timeout=2)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n" + b" " * 64,
        actors.channel._HELLO.pack(1, 1, b"c" * 32),
        actors.channel._HELLO.pack(1, 1, b"c" * 32) + b"p" * 32,  # with a proof of another secret
        actors.channel._HELLO.pack(2, 1, b"c" * 32) + b"p" * 32,
        actors.channel._HELLO.pack(1, 0, b"c" * 32) + b"p" * 32,
    ],
)
def test_strangers_are_not_admitted_and_keep_nobody_out(sent, monkeypatch):
    monkeypatch.setattr(actors.channel, "PROOF_SECONDS", 0.2)
    with closing(Channel(0, 1, "127.0.0.1")) as first, ThreadPoolExecutor(1) as pool:
        accepting = pool.submit(first.connect, [first.address, None], SECRET)
        with socket.create_connection(first.address, timeout=10) as stranger:
            stranger.sendall(sent)
            answer = b""
            with contextlib.suppress(ConnectionResetError):  # it was closed with something unread
                while more := stranger.recv(1024):
                    answer += more
            assert SECRET not in answer
            assert len(answer) in (0, 64)
        with closing(Channel(1, 1, "127.0.0.1")) as second:
            second.connect([first.address, second.address], SECRET)
            accepting.result()


HELLO, CHALLENGED = actors.channel._HELLO, b"c" * 32


def shown(answer, epoch=1, prover=1, secret=SECRET, mine=CHALLENGED):
    """What ``prover`` shows shard 0, which has answered with its challenge and proof."""
    return proof(secret, epoch, prover, 0, mine + answer[:32])


@pytest.mark.parametrize(
    ("hello", "answers", "show"),
    [
        (HELLO.pack(1, 1, CHALLENGED), True, lambda answer: shown(answer, secret=b"t" * 32)),
        (HELLO.pack(1, 1, CHALLENGED), True, lambda answer: answer[32:]),  # its own proof
        (HELLO.pack(1, 1, CHALLENGED), True, lambda answer: shown(answer, epoch=0)),  # of a former epoch
        (HELLO.pack(1, 1, CHALLENGED), True, lambda answer: shown(answer, prover=2)),  # of another shard
        (HELLO.pack(1, 1, CHALLENGED), True, lambda answer: shown(b"d" * 32)),  # of another connection
        (HELLO.pack(1, 1, CHALLENGED), True, lambda answer: shown(answer)[:-1]),
        (HELLO.pack(1, 1, CHALLENGED), True, lambda answer: b""),
        (HELLO.pack(0, 1, CHALLENGED), False, None),  # a former epoch
        (HELLO.pack(1, 0, CHALLENGED), False, None),  # itself
        (HELLO.pack(1, 3, CHALLENGED), False, None),  # nobody
        (HELLO.pack(2**64 - 1, 2**64 - 1, CHALLENGED), False, None),
        (HELLO.pack(1, 1, CHALLENGED)[:-1], False, None),
    ],
)
def test_no_step_of_a_handshake_lets_a_stranger_in(hello, answers, show, monkeypatch):
    """The shard hears them out and closes; the one they pretend to be is admitted then."""
    monkeypatch.setattr(actors.channel, "PROOF_SECONDS", 0.2)
    with closing(Channel(0, 1, "127.0.0.1")) as first, ThreadPoolExecutor(1) as pool:
        accepting = pool.submit(first.connect, [first.address, None, None], SECRET)
        with socket.create_connection(first.address, timeout=10) as stranger:
            stranger.sendall(hello)
            answer = b"".join(iter(lambda: stranger.recv(64), b"")) if not answers else received(stranger, 64)
            assert len(answer) == 64 * answers
            if show is not None:
                stranger.sendall(show(answer))
                with contextlib.suppress(ConnectionResetError):
                    assert stranger.recv(1) == b"", "it is admitted"
        with closing(Channel(1, 1, "127.0.0.1")) as second, closing(Channel(2, 1, "127.0.0.1")) as third:
            addresses = [first.address, second.address, third.address]
            with ThreadPoolExecutor(2) as others:
                for one in [others.submit(channel.connect, addresses, SECRET) for channel in (second, third)]:
                    one.result()
            accepting.result()


def received(connection, length):
    found = b""
    while len(found) < length:
        found += connection.recv(length - len(found))
    return found


def test_a_shard_is_admitted_once(monkeypatch):
    """Whoever repeats the handshake of one that is there is not heard."""
    monkeypatch.setattr(actors.channel, "CONNECT_SECONDS", 2.0)
    with closing(Channel(0, 1, "127.0.0.1")) as first, ThreadPoolExecutor(2) as pool:
        accepting = pool.submit(first.connect, [first.address, None, None], SECRET)
        with socket.create_connection(first.address, timeout=10) as one:
            one.sendall(HELLO.pack(1, 1, CHALLENGED))
            one.sendall(shown(received(one, 64)))
            while first._awaited != {2}:
                time.sleep(0.001)
            with socket.create_connection(first.address, timeout=10) as again:
                again.sendall(HELLO.pack(1, 1, CHALLENGED))
                with contextlib.suppress(ConnectionResetError):
                    assert again.recv(1) == b""
            with closing(Channel(2, 1, "127.0.0.1")) as third, closing(socket.create_server(("127.0.0.1", 0))) as port:
                late = pool.submit(third.connect, [first.address, port.getsockname(), third.address], SECRET)
                accepting.result()
                answering, _ = port.accept()
                answering.close()
                with pytest.raises(ProcessLostError):
                    late.result()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "timed out"),  # it is half open: its node is gone, or it listens and never answers
        (b"", "it was closed"),
        (b"c" * 32, "it was closed"),
        (b"c" * 64, "what answers is not this shard"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" + b" " * 64, "what answers is not this shard"),
    ],
)
def test_what_answers_in_place_of_a_shard_is_a_lost_shard(answer, reason, monkeypatch):
    monkeypatch.setattr(actors.channel, "CONNECT_SECONDS", 0.5)
    with (
        closing(Channel(1, 1, "127.0.0.1")) as channel,
        closing(socket.create_server(("127.0.0.1", 0))) as port,
        ThreadPoolExecutor(1) as pool,
    ):
        calling = pool.submit(channel.connect, [port.getsockname()[:2], channel.address], SECRET)
        if answer is not None:
            answering, _ = port.accept()
            with closing(answering):
                received(answering, HELLO.size)
                answering.sendall(answer)
        with refused("exchange.unreachable", ProcessLostError, peer=0, shard=1, reason=reason):
            calling.result()


def test_a_shard_that_is_silent_in_a_swap_is_waited_for_and_lost_when_its_connection_ends():
    """A half-open connection shows nothing: the watch over the processes decides, by who waits and who does not."""
    with channels(2) as (made, connecting, pool):
        connected(connecting)
        large = [np.zeros(3_000_000)] * 2  # more than the system holds for a peer that does not read
        waiting = pool.submit(made[0].swap, large)
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            assert not waiting.done()
            time.sleep(0.01)
        assert made[0].waits
        made[1]._peers[0].socket.shutdown(socket.SHUT_WR)  # it does not send any more
        with refused("exchange.cut", ProcessLostError, peer=1, shard=0, reason="it was closed"):
            waiting.result()


@pytest.mark.parametrize("length", [1 << 20, 1 << 47, 1 << 63])
def test_a_hostile_length_breaks_the_channel_and_takes_no_memory(length):
    with channels(2) as (made, connecting, _):
        connected(connecting)
        text = json.dumps([["a", "|u1", *([length] if length < 1 << 48 else [1 << 32, length >> 32])]]).encode()
        said = length + 8 if length < 1 << 40 else length  # one that lies, and some that there is no memory for
        made[1]._peers[0].socket.sendall(struct.pack("<4sQQIQ", b"rdt1", 1, 1, len(text), said) + text)
        began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ProcessLostError, match=r"^shard 1 is lost: its channel to shard 0 broke \("):
            made[0].swap([np.arange(3)] * 2)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began < 50_000  # kB


def test_a_stranger_who_sends_byte_by_byte_has_no_more_time(monkeypatch):
    monkeypatch.setattr(actors.channel, "PROOF_SECONDS", 0.3)
    with closing(Channel(0, 1, "127.0.0.1")) as first, ThreadPoolExecutor(1) as pool:
        accepting = pool.submit(first.connect, [first.address, None], SECRET)
        with socket.create_connection(first.address, timeout=10) as stranger, contextlib.suppress(OSError):
            began = time.monotonic()
            while time.monotonic() - began < 0.1 * actors.channel._HELLO.size:
                stranger.sendall(b"x")
                time.sleep(0.1)
        assert time.monotonic() - began < 3
        with closing(Channel(1, 1, "127.0.0.1")) as second:
            second.connect([first.address, second.address], SECRET)
            accepting.result()


def test_strangers_one_after_the_other_do_not_keep_it_waiting(monkeypatch):
    monkeypatch.setattr(actors.channel, "CONNECT_SECONDS", 0.5)
    with closing(Channel(0, 1, "127.0.0.1")) as first, ThreadPoolExecutor(1) as pool:
        accepting = pool.submit(first.connect, [first.address, ("203.0.113.1", 1)], SECRET)
        with contextlib.suppress(ConnectionError):
            while not accepting.done():
                with socket.create_connection(first.address, timeout=10) as stranger:
                    stranger.sendall(b"x" * 100)
        with refused("exchange.unreachable", ProcessLostError, peer=1, address="203.0.113.1:1", reason="timed out"):
            accepting.result()


@pytest.mark.parametrize("strangers", [5, 20])
def test_silent_strangers_keep_nobody_waiting(strangers, monkeypatch):
    """They came first and say nothing: one after the other they would take longer than all shards have."""
    monkeypatch.setattr(actors.channel, "CONNECT_SECONDS", 8.0)
    with closing(Channel(0, 1, "127.0.0.1")) as first, ExitStack() as stack:
        for said in range(strangers):
            stranger = stack.enter_context(socket.create_connection(first.address, timeout=10))
            stranger.sendall(b"x" * (said % 3))
        began = time.monotonic()
        with ThreadPoolExecutor(1) as pool, closing(Channel(1, 1, "127.0.0.1")) as second:
            accepting = pool.submit(first.connect, [first.address, None], SECRET)
            second.connect([first.address, second.address], SECRET)
            accepting.result()
        assert time.monotonic() - began < actors.channel.PROOF_SECONDS


def test_of_too_many_strangers_the_first_are_closed(monkeypatch):
    monkeypatch.setattr(actors.channel, "MOST_VISITORS", 3)
    monkeypatch.setattr(actors.channel, "PROOF_SECONDS", 60.0)
    with closing(Channel(0, 1, "127.0.0.1")) as first, ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(first.address, timeout=10)) for _ in range(5)]
        with ThreadPoolExecutor(1) as pool, closing(Channel(1, 1, "127.0.0.1")) as second:
            accepting = pool.submit(first.connect, [first.address, None], SECRET)
            assert [stranger.recv(1) for stranger in strangers[:2]] == [b"", b""]
            assert not accepting.done()
            second.connect([first.address, second.address], SECRET)
            accepting.result()


FLOOD = """
import socket, sys, time
until, ports = time.monotonic() + float(sys.argv[1]), [int(port) for port in sys.argv[2:]]
open_ones = []
print("begun", flush=True)
while time.monotonic() < until:
    for port in ports:
        one = socket.socket()
        one.setblocking(False)
        try:
            one.connect_ex(("127.0.0.1", port))
            one.send(b"x" * 48)
        except OSError:
            pass
        open_ones.append(one)
    for one in open_ones[:-200]:
        one.close()
    del open_ones[:-200]
"""


SHARD = """
import json, sys, time
from actors.channel import Channel
channel = Channel(int(sys.argv[1]), 1, "127.0.0.1")
print(json.dumps(channel.address), flush=True)
addresses, began = [tuple(one) for one in json.loads(sys.stdin.readline())], time.monotonic()
channel.connect(addresses, b"s" * 32)
print(time.monotonic() - began, flush=True)
sys.stdin.readline()  # its connections are open until all have connected
"""


@contextmanager
def processes(script, arguments):
    """A process for each list of arguments, which is killed in the end."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    made = [subprocess.Popen([sys.executable, "-c", script, *map(str, given)], **pipes) for given in arguments]
    try:
        yield made
    finally:
        for one in made:
            one.kill()
            one.communicate()


@pytest.mark.parametrize(("shards", "strangers"), [(4, 2), pytest.param(16, 6, marks=pytest.mark.nightly)])
def test_a_flood_of_strangers_loses_no_shard(shards, strangers):
    """The ports are open before the shards call, and strangers call as often as they can, for 12 s, on the loopback."""
    with processes(SHARD, [[index] for index in range(shards)]) as made:
        addresses = [json.loads(one.stdout.readline()) for one in made]
        with processes(FLOOD, [[12, *(port for _, port in addresses)]] * strangers) as flood:
            assert [one.stdout.readline() for one in flood] == [b"begun\n"] * strangers
            time.sleep(0.3)  # longer than it takes to fill what the system holds
            for one in made:
                one.stdin.write(json.dumps(addresses).encode() + b"\n")
                one.stdin.flush()
            seconds = [float(one.stdout.readline() or "inf") for one in made]
            assert max(seconds) < actors.channel.CONNECT_SECONDS / 2


def test_a_shard_shows_that_it_waits_for_one_that_connects_late():
    with closing(Channel(0, 1, "127.0.0.1")) as first, ThreadPoolExecutor(1) as pool:
        accepting = pool.submit(first.connect, [first.address, None], SECRET)
        while not first.waits:
            assert not accepting.done()
            time.sleep(0.001)
        with closing(Channel(1, 1, "127.0.0.1")) as second:
            second.connect([first.address, second.address], SECRET)
            accepting.result()
            assert not first.waits
            assert not second.waits


@pytest.mark.parametrize("case", [{"secrets": [SECRET, b"t" * 32]}, {"epochs": [1, 2]}])
def test_another_secret_or_epoch_is_refused_by_both(case, monkeypatch):
    monkeypatch.setattr(actors.channel, "CONNECT_SECONDS", 0.5)
    with channels(2, **case) as (made, connecting, _):
        address = "{}:{}".format(*made[0].address)
        with pytest.raises(ProcessLostError) as caught:
            connecting[1].result()
        assert caught.value.shard == 0
        assert address in str(caught.value)
        with pytest.raises(ProcessLostError) as caught:
            connecting[0].result()
        assert caught.value.shard == 1


def test_a_shard_that_is_gone_cannot_be_reached():
    with closing(Channel(0, 1, "127.0.0.1")) as gone:
        address = gone.address
    with (
        closing(Channel(1, 1, "127.0.0.1")) as channel,
        refused("exchange.unreachable", ProcessLostError, peer=0, shard=1, reason="Connection refused"),
    ):
        channel.connect([address, channel.address], SECRET)


def test_an_address_that_is_not_of_this_node():
    """The address is one of documentation, as if Ray was told that of a router."""
    with refused(
        "exchange.no_port", ConfigError, shard=3, host="203.0.113.9", reason="Cannot assign requested address"
    ):
        Channel(3, 1, "203.0.113.9")


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_a_connection_that_ends_in_a_frame_is_a_lost_shard(share):
    with channels(2) as (made, connecting, _):
        connected(connecting)
        whole = b"".join(map(bytes, packed(Frame(1, 1, np.arange(100)))))
        made[1]._peers[0].socket.sendall(whole[: int(share * len(whole))])
        made[1].close()
        with pytest.raises(ProcessLostError) as caught:
            made[0].swap([np.arange(100)] * 2)
        assert (caught.value.actor, caught.value.shard) == ("shard", 1)


@pytest.mark.parametrize(
    "frame", [Frame(2, 1, np.arange(3)), Frame(1, 2, np.arange(3)), Frame(1, 1, np.arange(3)), None]
)
def test_a_frame_of_another_epoch_or_turn_or_of_no_parts_breaks_the_channel(frame):
    with channels(2) as (made, connecting, _):
        connected(connecting)
        made[1]._peers[0].socket.sendall(b"x" * 100 if frame is None else b"".join(map(bytes, packed(frame))))
        with pytest.raises(ProcessLostError, match=r"^shard 1 is lost: its channel to shard 0 broke \("):
            made[0].swap([np.arange(3)] * 2)


def test_a_repeated_frame_has_no_effect():
    with channels(2) as (made, connecting, pool):
        connected(connecting)
        made[1]._peers[0].socket.sendall(b"".join(map(bytes, packed(Frame(1, 1, bundled([np.array([5])]))))))
        found = list(pool.map(lambda channel: channel.swap([np.array([7])] * 2), made))
        assert [part.tolist() for part in found[0]] == [[7], [5]]
        found = list(pool.map(lambda channel: channel.swap([np.array([8])] * 2), made))
        assert [[part.tolist() for part in parts] for parts in found] == [[[8], [8]]] * 2


# -- exchange --------------------------------------------------------------------------------------------------------
# The in-process driver delivers requests as the contract says, and a shard refuses what is out of order.


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
def shards_exchange():
    return [NumberedShard(Recorder([0, 1]), 0), NumberedShard(Recorder([2]), 1)]


def test_an_exchange_reads_like_a_conversation(shards_exchange):
    def conversation():
        first = yield Ask("split", {"node": 3}, [{"rows": 1}, {"rows": 2}])
        yield Tell("go", {"node": 4})
        second = yield Ask("split", {"node": 5})
        return [reply.tolist() for reply in first + second]

    driver = InProcessDriver(shards_exchange)
    assert driver.run(conversation()) == [[1], [1], [3], [3]]
    assert shards_exchange[0].worker.seen[0] == ("split", {"node": 3, "rows": 1})
    assert shards_exchange[1].worker.seen == [
        ("split", {"node": 3, "rows": 2}),
        ("go", {"node": 4}),
        ("split", {"node": 5}),
    ]
    assert [shard.seq for shard in shards_exchange] == [3, 3]
    assert driver.traffic.rounds == 3


def test_traffic_counts_the_bytes_of_arrays_both_ways(shards_exchange):
    def conversation():
        yield Ask("a", {"x": np.zeros(10), "n": 3}, [{"y": [np.zeros(2, np.int8)]}, {"y": (np.zeros(1), "text")}])

    driver = InProcessDriver(shards_exchange)
    driver.run(conversation())
    assert driver.traffic.bytes == 2 * 80 + 2 + 8 + 2 * 8


def test_an_exchange_without_requests(shards_exchange):
    def silence():
        return 7
        yield

    driver = InProcessDriver(shards_exchange)
    assert driver.run(silence()) == 7
    assert driver.traffic.rounds == 0


def test_a_second_driver_goes_on_where_the_first_ended(shards_exchange):
    def conversation():
        yield Ask("a", {})

    InProcessDriver(shards_exchange).run(conversation())
    InProcessDriver(shards_exchange).run(conversation())
    assert [shard.seq for shard in shards_exchange] == [2, 2]


def test_a_repeated_message_is_answered_and_not_done_again(shards_exchange):
    shard = shards_exchange[1]
    first = shard.receive(0, 1, "split", {})
    assert shard.receive(0, 1, "split", {}) is first
    assert len(shard.worker.seen) == 1
    work = shard.work()
    assert (work["shard"], work["columns"], work["requests"]) == (1, [2], 1)


def test_gaps_and_other_epochs_are_refused(shards_exchange):
    shard = shards_exchange[1]
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


def test_a_message_that_failed_may_be_sent_again(shards_exchange):
    with pytest.raises(KeyError, match="node"):
        shards_exchange[0].receive(0, 1, "fail", {})
    assert (shards_exchange[0].seq, shards_exchange[0].answered) == (0, 0)
    shards_exchange[0].receive(0, 1, "split", {})


def test_what_is_set_aside_is_of_its_message_and_taken_once(shards_exchange):
    shard = shards_exchange[0]
    shard.receive(0, 1, "split", {})
    number = shard.receive(0, 2, SET_ASIDE, {"slots": [3, 4, 5], "stored": 1})
    assert shard.receive(0, 2, SET_ASIDE, {"slots": [3, 4, 5], "stored": 1}) == number
    shard.receive(0, 3, "split", {})
    aside = shard.take_aside(number)[7]
    assert (aside.rows["X"].tolist(), aside.state["seen"].tolist()) == ([4, 5], [1])
    with refused("exchange.other_snapshot", ExchangeError, shard=0, found=(0, 0), wanted=(0, 2)):
        shard.take_aside(number)


def test_parts_of_two_snapshots_are_never_mixed(shards_exchange):
    shard = shards_exchange[0]
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
