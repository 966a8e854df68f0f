"""The simulator with a clock: the real coordinator and shards against virtual time, from one seed.

A process begins what has reached it as soon as it is idle, in the order of arrival, and one of its host's cores is
free. It works for as long as its *costs* say, and only then is what it sends on its way: through its own port, at
``bandwidth`` bytes a second and one message after the other, then a latency, then through the receiver's port. So a
message waits where a link has a queue. A meeting is the product's own ladder of rounds, frame by frame, as bytes that
are packed and read as between processes. A request goes to the coordinator and from there to the shards as on Ray:
nobody waits for a ``Tell``, but the next request does.

Faults are those of the simulator, in seconds: a message that is lost is sent again after a while (a frame by TCP, in
order), a late one takes longer, a crash is noticed after a while. Then all processes of the next epoch are restored at
the same time, and the updates after the last checkpoint come again.

Costs are given, or measured: the processor time of each event as it happens here, one process after the other.
Not simulated: threads of a process, memory that runs short, a host's processes sharing one port, and other jobs.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from raydt.exchange.links import Frame, FrameReader, Links, NumberedShard, Traffic, packed
from raydt.exchange.meetings import AllGather, ReduceScatter
from raydt.exchange.messages import MET, Payload
from tests.simulation.network import CoordinatorMachine, Machine, Message, Network, ShardMachine, Swap
from tests.simulation.simulator import Saved, Simulation

#: Units of virtual time in a second.
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Wire:
    """What lies between processes, in seconds and bytes a second."""

    call: float = 0.0  #: Until a request or a reply is there.
    frame: float = 0.0  #: Until a frame of another shard is there.
    bandwidth: float = math.inf  #: Of the port of a process, each way.
    noticed: float = 0.0  #: Until a crash is noticed.
    again: float = 0.2  #: Until what was lost is sent again.
    late: float = 1.0  #: What a late message takes longer, at the most.


class Step(NamedTuple):
    """What a learner does in one go: between two requests (``kind``), or of a pass between two places it waits at."""

    kind: str
    seconds: float  #: Of the processor, as measured.


class Met(NamedTuple):
    """A meeting that a shard has begun: how its parts go, how many they are, and their bytes."""

    way: str
    parts: int
    bytes: int


@dataclass
class Done:
    """What one event had a process do, and the processor seconds that it took here.

    ``what`` is the name of the event; ``sent`` are the bytes of each frame, ``received`` those of one that has come;
    ``messages`` counts requests and replies that were sent. ``steps`` and ``meetings`` are in order.
    """

    machine: Machine
    what: str
    seconds: float = 0.0
    sent: list[int] = field(default_factory=list)
    received: int = 0
    messages: int = 0
    steps: list[Step] = field(default_factory=list)
    meetings: list[Met] = field(default_factory=list)


#: Seconds that an event takes.
Costs = Callable[[Done], float]


def measured(done: Done) -> float:
    """The processor seconds that it has taken here."""
    return done.seconds


def size_of(*contents: Any) -> int:
    """Bytes of all arrays in messages."""
    traffic = Traffic()
    traffic.count(*contents)
    return traffic.bytes


# -- machines that say what they do ------------------------------------------------------------------------------------


def place_of(worker: Any) -> str:
    """Where in its pass a worker waits for others: the function, and the line in it; empty outside of passes."""
    steps = getattr(getattr(worker, "_meeting", None) or getattr(worker, "meeting", None), "_steps", None)
    if steps is None:
        return ""
    while hasattr(steps.gi_yieldfrom, "gi_code"):
        steps = steps.gi_yieldfrom
    return f"{steps.gi_code.co_name}+{steps.gi_frame.f_lineno - steps.gi_code.co_firstlineno}"


class NotingShard(NumberedShard):
    """A shard that notes the steps of its learner."""

    def __init__(self, worker: Any, index: int) -> None:
        super().__init__(worker, index)
        self.steps: list[Step] = []
        self._request = ""

    def _timed(self, handle: Callable[[str, Payload], Any], method: str, payload: Payload) -> Any:
        self._request = self._request if method == MET else method
        before, began = place_of(self.worker) if method == MET else "", time.thread_time()
        answer = super()._timed(handle, method, payload)
        seconds = time.thread_time() - began
        self.steps.append(Step(f"{self._request}: {before} > {place_of(self.worker)}", seconds))
        return answer


class _NotingLinks(Links):
    def __init__(self, index: int, shards: int, epoch: int, meetings: list[Met]) -> None:
        super().__init__(index, shards, epoch)
        self._meetings = meetings

    def begin(self, parts: Sequence[Any]) -> list[tuple[int, Frame]]:
        ways = {AllGather: "gather", ReduceScatter: "reduce"}
        told = parts[:1] if isinstance(parts, AllGather) else parts
        self._meetings.append(Met(ways.get(type(parts), "deal"), len(parts), size_of(*told)))  # type: ignore[call-overload]
        return super().begin(parts)


class ClockedShard(ShardMachine):
    """A shard that notes steps and meetings, and makes each step of a pass in an event of its own.

    So what it has for others leaves before it makes the next step.
    """

    def __init__(self, index: int, epoch: int, worker: Any) -> None:
        self.noting, self.meetings = NotingShard(worker, index), list[Met]()
        self.received: list[Any] | None = None  # what the next step begins with
        super().__init__(index, epoch, self.noting)

    def begin_epoch(self, epoch: int, shards: int) -> None:
        """As every shard."""
        super().begin_epoch(epoch, shards)
        self.received = None
        self._links = _NotingLinks(self.shard.index, shards, epoch, self.meetings)

    def _advance(self, steps: Any, received: list[Any] | None) -> list[Message | Swap]:
        """Begin a pass; what has been received waits for its step."""
        if steps is not self._pass:
            return self._step(steps, None)
        self.received = received
        return []

    def go_on(self) -> list[Message | Swap]:
        """Make the next step."""
        received, self.received = self.received, None
        return self._step(self._pass, received)

    def _step(self, steps: Any, received: list[Any] | None) -> list[Message | Swap]:
        try:
            parts = steps.send(received)
        except StopIteration as end:
            self._pass = None if steps is self._pass else self._pass  # a repeated message may come during a pass
            return [self._reply(self.shard.seq, end.value)]
        self._pass = steps
        sent = self._swaps(self._links.begin(parts))
        self.received = self._links.complete()
        return sent


class ClockedCoordinator(CoordinatorMachine):
    """A coordinator that notes what it does after each round."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.steps: list[Step] = []

    def _step(self, replies: list[Any] | None) -> None:
        kind, began = f"after {self._request.method}" if replies is not None else "begin", time.thread_time()
        super()._step(replies)
        self.steps.append(Step(kind, time.thread_time() - began))


# -- the clock ---------------------------------------------------------------------------------------------------------


class ClockedNetwork(Network):
    """A network on which everything takes as long as ``costs`` and ``wire`` say.

    Attributes
    ----------
    time : int
        Nanoseconds since the beginning.
    busy : dict
        Nanoseconds for which each process has worked, by its name.
    """

    most_events = 100_000_000

    def wind(
        self,
        wire: Wire,
        costs: Costs = measured,
        *,
        cores: int | None = None,
        slow: Mapping[str, float] | None = None,
        note: Callable[[Done], None] = lambda done: None,
    ) -> None:
        """Set the clock.

        Parameters
        ----------
        wire : Wire
        costs : callable
        cores : int or None
            So many processes work at the same time; None: all.
        slow : mapping
            Stragglers: by the name of a process, how many times as long it works.
        note : callable
            Hears of all that is done.
        """
        self.wire, self.costs, self.cores, self.slow, self.note = wire, costs, cores, slow or {}, note
        self.busy: dict[str, int] = {}
        self._at_work: set[Machine] = set()
        self._ready: deque[tuple[Machine, Callable[..., None], tuple[Any, ...]]] = deque()
        self._out: dict[str, int] = {}  # when the port of a process is free again
        self._in: dict[str, int] = {}

    # -- work -----------------------------------------------------------------------------------------------------

    def post(self, happen: Callable[..., None], *arguments: Any, delay: int | None = None) -> None:
        """Have something happen later: by default as late as a request is there."""
        super().post(happen, *arguments, delay=_units(self.wire.call) if delay is None else delay)

    def visit(self, machine: Machine | None, handle: Callable[..., None], *arguments: Any) -> None:
        """An event reaches a machine, which handles it when it is idle."""
        if machine is not None and not machine.dead:
            self._ready.append((machine, handle, arguments))
            self._begin_work()

    def _begin_work(self) -> None:
        """Have machines begin what has reached them, each in its order, while there are idle ones and cores."""
        for _ in range(len(self._ready)):
            machine, handle, arguments = waits = self._ready.popleft()
            if machine.dead:
                continue
            if machine in self._at_work or (self.cores is not None and len(self._at_work) >= self.cores):
                self._ready.append(waits)
            elif machine.wakes > self.time:
                self.post(self.visit, machine, handle, *arguments, delay=machine.wakes - self.time)
            elif not self.fails(machine):
                self._work(machine, handle, arguments)

    def _work(self, machine: Machine, handle: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._at_work.add(machine)
        done, began = Done(machine, getattr(handle, "__name__", "")), time.thread_time()
        handle(*arguments)
        sent = [self._packed(*one) for one in self._outbox]
        done.seconds = time.thread_time() - began
        self._outbox = []
        if machine is self.coordinator and not sent:
            self.silent.add(self.places)
        done.sent = [len(given[-1]) for send, given in sent if send == self._carry_bytes]
        done.received = len(arguments[-1]) if handle == self._read else 0
        done.messages = sum(send == self._transmit for send, _ in sent)
        if isinstance(machine, ClockedShard):
            done.steps, machine.noting.steps = machine.noting.steps, []
            done.meetings[:] = machine.meetings
            machine.meetings.clear()
        elif isinstance(machine, ClockedCoordinator):
            done.steps, machine.steps = machine.steps, []
        self.note(done)
        taken = _units(self.costs(done) * self.slow.get(machine.name, 1.0))
        self.busy[machine.name] = self.busy.get(machine.name, 0) + taken
        if isinstance(machine, ClockedShard) and machine.received is not None:
            self._ready.appendleft((machine, self._go_on, (machine,)))
        self.post(self._end_work, machine, sent, delay=taken)

    def _go_on(self, machine: ClockedShard) -> None:
        if machine.received is not None:
            self._let_go(machine.go_on())

    def _end_work(self, machine: Machine, sent: list[Any]) -> None:
        """Let go what a machine has sent, unless it has crashed."""
        self._at_work.discard(machine)
        assert not self._outbox
        self._outbox = sent
        self._flush(whole=not self.fails(machine))
        self._begin_work()

    # -- ways -----------------------------------------------------------------------------------------------------

    def _way(self, sender: str, receiver: str, size: int, latency: float) -> int:
        """When something that is sent now has arrived in full, in time from now."""
        span = round(SECOND * size / self.wire.bandwidth)
        leaves = max(self.time, self._out.get(sender, 0))
        self._out[sender] = leaves + span
        self._in[receiver] = max(leaves + _units(latency), self._in.get(receiver, 0)) + span
        return self._in[receiver] - self.time

    def _hindered(self) -> int:
        """What chance adds to a way."""
        return _units(self.wire.late * self.random.random()) if self.faults.late and self._chance("late") else 0

    def _transmit(self, message: Message) -> None:
        """Put a message on the network: once, twice or not at all, now or later."""
        shard = f"shard {message.shard}"
        ends = (shard, "coordinator") if message.method is None else ("coordinator", shard)
        lost = self.faults.loss and self._chance("loss")
        for _ in range(0 if lost else 1 + bool(self.faults.duplicate and self._chance("duplicate"))):
            way = self._way(*ends, size_of(message.content), self.wire.call)
            self.post(self._deliver, message, delay=way + self._hindered())

    def _packed(self, send: Callable[..., None], arguments: tuple[Any, ...]) -> tuple[Callable[..., None], Any]:
        """Turn a frame that is sent into bytes."""
        if send != self._carry:
            return send, arguments
        (swap,) = arguments
        return self._carry_bytes, (swap.sender, swap.shard, swap.frame.epoch, b"".join(packed(swap.frame)))

    def _carry_bytes(self, sender: int, shard: int, epoch: int, data: bytes) -> None:
        """Put the bytes of a frame on the channel of two shards: in order, and whole, however late."""
        link = epoch, sender, shard
        if link in self._broken:
            return
        if self.faults.cut and self.falls("cut"):
            self.events["failures"] += 1
            self._broken.add(link)
            self.notice(epoch)
            return
        way = self._way(f"shard {sender}", f"shard {shard}", len(data), self.wire.frame) + self._hindered()
        if self.faults.loss and self._chance("loss"):
            way += _units(self.wire.again)
        arrival = self._arrivals[link] = max(self._arrivals.get(link, 0), self.time + way)
        self.post(self._deliver_bytes, sender, shard, data, delay=arrival - self.time)

    def _deliver_bytes(self, sender: int, shard: int, data: bytes) -> None:
        for machine in [*self.shards[shard : shard + 1], *self.ghosts]:
            if isinstance(machine, ShardMachine) and machine.shard.index == shard:
                self.visit(machine, self._read, machine, sender, data)

    def _read(self, machine: ShardMachine, sender: int, data: bytes) -> None:
        reader, begin, frame = FrameReader(), 0, None
        while frame is None:
            space = reader.space
            space[:] = data[begin : begin + len(space)]
            begin += len(space)
            frame = reader.take(len(space))
        self._swapped(machine, Swap(sender, machine.shard.index, frame))

    def remind(self, machine: CoordinatorMachine, seq: int) -> None:
        """Send message ``seq`` again, if messages are lost here: on Ray none is."""

        def again() -> None:
            if not machine.dead and machine.seq == seq and machine.waiting:
                self.events["resent"] += 1
                machine.send_again()
                self._flush(whole=True)

        if self.faults.loss:
            self.post(again, delay=_units(self.wire.again))

    def notice(self, epoch: int) -> None:
        """Have somebody notice that a machine of ``epoch`` is gone."""
        self.post(self.lost, epoch, delay=_units(self.wire.noticed))


def _units(seconds: float) -> int:
    return round(SECOND * seconds)


class Clock(ClockedNetwork, Simulation):
    """A simulated run under the clock, with everything that a run has: driver, checkpoints, faults, recovery.

    Attributes
    ----------
    taken : list of (int, float)
        Where in the stream each batch ended, and when the driver knew.
    lost_at : list of float
        When the driver heard of each crash.
    """

    def __init__(self, *arguments: Any, wire: Wire, costs: Costs = measured, **more: Any) -> None:
        clock = {name: more.pop(name) for name in ("cores", "slow", "note") if name in more}
        self.wire = wire  # before the first event is posted
        super().__init__(*arguments, **more)
        self.wind(wire, costs, **clock)
        self.taken: list[tuple[int, float]] = []
        self.lost_at: list[float] = []

    def new_shard(self, index: int, epoch: int, worker: Any) -> ShardMachine:
        """A machine that notes what it does."""
        return ClockedShard(index, epoch, worker)

    def new_coordinator(self, coordinator: Any, shards: int) -> CoordinatorMachine:
        """A machine that notes what it does."""
        return ClockedCoordinator(self.epoch, coordinator, shards, self.send, self.remind)

    def lost(self, epoch: int) -> None:
        """Note when."""
        if epoch == self.epoch:
            self.lost_at.append(self.time / SECOND)
        super().lost(epoch)

    def _start_shard(self, epoch: int, index: int, shards: int, saved: Saved | None, alive: dict[str, Any]) -> None:
        """Bring up all shards at the same time, and the coordinator once the last of them is there."""
        if epoch != self.epoch:
            return
        left = set(range(shards))

        def restored(index: int) -> None:
            left.discard(index)
            if not left and epoch == self.epoch:
                self._start_coordinator(shards, saved, alive)

        for one in range(shards):
            self.bring_up(epoch, one, shards, saved, alive, partial(self.then, restored, one))

    def _take(self, batch: Any, result: Any) -> None:
        self.taken.append((batch.stop, self.time / SECOND))
        super()._take(batch, result)
