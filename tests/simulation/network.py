"""Simulated time, chance and failures: what can happen to messages and machines, whatever they are for."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from raydt.errors import SequenceGapError
from raydt.exchange.links import Frame, FrameReader, packed
from tests.simulation.machines import CoordinatorMachine, Machine, Message, ShardMachine, Swap

#: Simulated time until a message is sent again, and until a machine that does nothing is given up.
RESEND_AFTER, PATIENCE = 50, 400
#: Simulated time that what happens beside the work may take.
LEISURE = 200
#: More events than this are an endless loop.
MOST_EVENTS = 200_000


@dataclass(frozen=True)
class Faults:
    """Probabilities of what happens to a message, and to a machine at each place.

    ``cut`` is that the channel of two shards breaks under a frame, of which nothing or a part arrives.

    ``crash_writing`` is that the driver crashes somewhere while it writes a checkpoint, or after that removes those
    that it cannot restore; ``rot`` that a file of the last one is damaged before it is read.

    There is a place before and one after every event that a machine of the present epoch handles. ``crash_at`` are
    the places (counted over the run) at which it crashes for certain; by chance ``most`` machines fail at the most.

    With ``survivors`` machines that live are restored like new ones; without, all machines of an incarnation are new,
    as they are on Ray, and the old ones live on for a while.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    cut: float = 0.0
    crash: float = 0.0
    pause: float = 0.0
    crash_writing: float = 0.0
    rot: float = 0.0
    most: int = 6
    crash_at: frozenset[int] = frozenset()
    survivors: bool = True


NO_FAULTS = Faults()


def arrived(frame: Frame, draw: random.Random, *, cut: bool = False) -> Frame | None:
    """What a shard reads of a frame whose bytes come in pieces, of which the last does not if the channel is cut."""
    data = b"".join(packed(frame))
    ends = sorted(draw.randrange(1, len(data)) for _ in range(draw.randrange(4)))
    reader, found = FrameReader(), None
    for begin, end in itertools.pairwise([0, *ends, *([] if cut else [len(data)])]):
        while begin < end and found is None:
            space = reader.space
            count = min(len(space), end - begin)
            space[:count] = data[begin : begin + count]
            found, begin = reader.take(count), begin + count
    return found


class Network:
    """A queue of events, the machines they reach, and what goes wrong with either.

    Attributes
    ----------
    events : Counter
        What has happened, by kind.
    places : int
        Places at which a machine might have crashed so far.
    silent : set of int
        Those of them after an event on which the coordinator sent nothing, as there were more replies to come. A crash
        there leaves behind what a crash before the event leaves.
    recovering : set of int
        Places at which a crash is one during a recovery: the machines of an incarnation after the first are being
        restored.
    writing : set of int
        Places at which a shard writes its own parts of a checkpoint.
    ghosts : list of Machine
        Those of earlier epochs that may still live. They hear and say everything at the addresses of the present ones.
    """

    def __init__(self, seed: int, faults: Faults) -> None:
        self.random, self.faults = random.Random(seed), faults
        self._smooth = not (faults.loss or faults.duplicate or faults.late)
        self._steady = not (faults.crash or faults.pause)
        self.events: Counter[str] = Counter()
        self.time, self.epoch, self.places = 0, 0, 0
        self.silent: set[int] = set()
        self.recovering: set[int] = set()
        self.writing: set[int] = set()
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._outbox: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.driver = Machine("driver", 0)
        self.coordinator: CoordinatorMachine | None = None
        self.shards: list[ShardMachine] = []
        self.ghosts: list[Machine] = []
        # By epoch, sender and receiver: when the last frame arrives; and the channels that are broken.
        self._arrivals: dict[tuple[int, int, int], int] = {}
        self._broken: set[tuple[int, int, int]] = set()
        self.ended = False

    def pass_time(self) -> None:
        """Let events happen until one of them ends the run."""
        for _ in range(MOST_EVENTS):
            if self.ended:
                return
            assert self._queue, "nothing is under way, and the stream has not ended"
            self.time, _, happen, arguments = heapq.heappop(self._queue)
            happen(*arguments)
        raise AssertionError("the run does not end")

    def post(self, happen: Callable[..., None], *arguments: Any, delay: int | None = None) -> None:
        """Have something happen later."""
        after = 1 + int(20 * self.random.random()) if delay is None else delay
        heapq.heappush(self._queue, (self.time + after, next(self._order), happen, arguments))

    def then(self, happen: Callable[..., None], *arguments: Any) -> None:
        """Have something happen later if the machine that handles the present event survives it."""
        self._outbox.append((self.post, (happen, *arguments)))

    def later(self, happen: Callable[..., None], *arguments: Any) -> None:
        """The same beside the work: it may take long."""
        self._outbox.append((partial(self.post, delay=self.random.randint(1, LEISURE)), (happen, *arguments)))

    def send(self, message: Message) -> None:
        """Put a message on the network if its sender survives."""
        self._let_go([message])

    def remind(self, machine: CoordinatorMachine, seq: int) -> None:
        """Send message ``seq`` again, until it is answered or its sender is dead."""

        def again() -> None:
            if not machine.dead and machine.seq == seq and machine.waiting:
                self.events["resent"] += 1
                machine.send_again()
                self._flush(whole=True)

        self.post(again, delay=RESEND_AFTER)

    def visit(self, machine: Machine | None, handle: Callable[..., None], *arguments: Any) -> None:
        """An event reaches a machine: now, when it wakes, or never."""
        if machine is None or machine.dead:
            return
        if machine.wakes > self.time:
            self.post(self.visit, machine, handle, *arguments, delay=machine.wakes - self.time)
        elif not self.fails(machine):
            handle(*arguments)
            if machine is self.coordinator and not self._outbox:
                self.silent.add(self.places)
            self._flush(whole=not self.fails(machine))

    def lost(self, epoch: int) -> None:
        """Somebody has noticed that a machine of ``epoch`` is gone."""
        raise NotImplementedError

    def replace_driver(self) -> None:
        """The driver is gone, and its machines are abandoned; have a new one begin."""
        raise NotImplementedError

    def abandon(self, machines: list[Machine]) -> None:
        """Give up machines, which live on for a while."""
        self.coordinator, self.shards = None, []
        for machine in machines:
            if not machine.dead:
                self.events["ghost"] += 1
                self.ghosts.append(machine)
                self.post(self._end, machine, delay=self.random.randint(1, 4 * PATIENCE))

    def members(self) -> list[Machine]:
        """Shards and coordinator of the present epoch."""
        return [*self.shards, *([self.coordinator] if self.coordinator else [])]

    def _end(self, ghost: Machine) -> None:
        ghost.dead = True
        self.ghosts.remove(ghost)

    # -- messages -------------------------------------------------------------------------------------------------

    def _transmit(self, message: Message) -> None:
        """Put a message on the network: once, twice or not at all, now or much later."""
        if self._smooth:
            self.post(self._deliver, message)
            return
        for _ in range(0 if self._chance("loss") else 1 + self._chance("duplicate")):
            late = self.random.randint(100, 2000) if self._chance("late") else 0
            self.post(self._deliver, message, delay=late + self.random.randint(1, 20))

    def _deliver(self, message: Message) -> None:
        """A message reaches whoever lives at its address, in whatever epoch."""
        if message.method is None:
            for machine in [self.coordinator, *self.ghosts]:
                if isinstance(machine, CoordinatorMachine):
                    self.visit(machine, self._at_coordinator, machine, message)
            return
        index = message.shard
        for machine in [*self.shards[index : index + 1], *self.ghosts]:
            if isinstance(machine, ShardMachine) and machine.shard.index == index:
                self.visit(machine, self._at_shard, machine, message)

    def _at_shard(self, machine: ShardMachine, message: Message) -> None:
        refusals: list[str] = []
        self._let_go(machine.receive(message, refusals.append))
        if not refusals:
            return
        self.events[refusals[0]] += 1
        sender = self.coordinator
        if sender is not None and message.epoch == machine.epoch == sender.epoch and machine in self.shards:
            assert message.seq < sender.seq, f"a message of this round was refused: {refusals}"

    def _let_go(self, sent: list[Message | Swap]) -> None:
        for one in sent:
            self._outbox.append((self._carry if isinstance(one, Swap) else self._transmit, (one,)))

    def _carry(self, swap: Swap) -> None:
        """Put a frame on the channel of two shards: in order and now or much later, perhaps twice; or it breaks."""
        link = swap.frame.epoch, swap.sender, swap.shard
        if link in self._broken:
            return
        if self.faults.cut and self.falls("cut"):
            self.events["failures"] += 1
            assert arrived(swap.frame, self.random, cut=True) is None, "a part of a frame is taken for a frame"
            self._broken.add(link)
            self.post(self.lost, swap.frame.epoch, delay=self.random.randint(1, 100))
            return
        frame = arrived(swap.frame, self.random)
        assert frame is not None
        swap = swap._replace(frame=frame)
        delay = self.random.randint(100, 2000) if self.faults.late and self._chance("late") else 0
        arrival = max(self._arrivals.get(link, 0), self.time + delay + self.random.randint(1, 20))
        self._arrivals[link] = arrival
        self.post(self._deliver_swap, swap, delay=arrival - self.time)
        if self.faults.duplicate and self._chance("duplicate"):
            self.post(self._deliver_swap, swap, delay=arrival - self.time + self.random.randint(0, 50))

    def _deliver_swap(self, swap: Swap) -> None:
        """A frame reaches whoever lives at its address, in whatever epoch."""
        for machine in [*self.shards[swap.shard : swap.shard + 1], *self.ghosts]:
            if isinstance(machine, ShardMachine) and machine.shard.index == swap.shard:
                self.visit(machine, self._swapped, machine, swap)

    def _swapped(self, machine: ShardMachine, swap: Swap) -> None:
        refusals: list[str] = []
        try:
            self._let_go(machine.swap(swap, refusals.append))
        except SequenceGapError:  # a channel keeps order, and the frame before it waits until the machine wakes
            self.post(self.visit, machine, self._swapped, machine, swap, delay=1)
        self.events["frames"] += 1
        self.events.update(refusals)

    def _at_coordinator(self, machine: CoordinatorMachine, message: Message) -> None:
        self.events["reply ignored"] += not machine.receive(message)

    # -- failures -------------------------------------------------------------------------------------------------

    def _chance(self, kind: str) -> bool:
        happens: bool = self.random.random() < getattr(self.faults, kind)
        self.events[kind] += happens
        return happens

    def _flush(self, *, whole: bool) -> None:
        """Let go what a machine has sent; of one that has crashed, some of it in any order."""
        sent, self._outbox = self._outbox, []
        if not whole:
            sent = self.random.sample(sent, self.random.randint(0, len(sent)))
        for send, arguments in sent:
            send(*arguments)

    def fails(self, machine: Machine) -> bool:
        """Whether a machine crashes at this place. It may also fall asleep, and handles what comes when it wakes."""
        if machine is not self.driver and machine.epoch != self.epoch:
            return False
        place, self.places = self.places, self.places + 1
        if self.epoch > 1 and self.coordinator is None:
            self.recovering.add(place)
        if place in self.faults.crash_at:
            self.crash(machine)
            return True
        if self._steady:
            return False
        if self.falls("crash"):
            self.crash(machine)
            return True
        if self.falls("pause"):
            self.events["failures"] += 1
            length = self.random.randint(1, self.random.choice((PATIENCE, 5 * PATIENCE)))
            machine.wakes = self.time + length
            if length > PATIENCE and machine is not self.driver:
                self.events["paused too long"] += 1
                self.post(self.lost, machine.epoch, delay=PATIENCE)
        return False

    def falls(self, kind: str) -> bool:
        """Whether chance has a machine fail, and it may."""
        return self.events["failures"] < self.faults.most and self._chance(kind)

    def crash(self, machine: Machine) -> None:
        """A machine is gone."""
        machine.dead = True
        self.events["failures"] += 1
        self.events[f"crash of {machine.name.split()[0]}"] += 1
        self.events["crash in recovery"] += self.epoch > 1 and self.coordinator is None
        if machine is self.driver:
            self.abandon(self.members())
            self.replace_driver()
        else:
            self.post(self.lost, machine.epoch, delay=self.random.randint(1, 100))
