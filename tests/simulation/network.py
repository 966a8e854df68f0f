"""Machines, the network between them, and the outcome of a run."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from raydt.errors import ProcessLostError, SequenceGapError, StaleEpochError
from raydt.exchange.links import Frame, FrameReader, Links, NumberedShard, Steps, packed
from raydt.exchange.messages import Ask, Buckets, Combine, EndOfPass, Exchange, GroupSnapshot, Parts, Position, Tell
from raydt.folders.segments import CheckpointPlace, PartsElsewhere, Written, write_each
from raydt.learners.base import LearnerOptions
from raydt.learners.batch_coordinator import BatchCoordinator
from raydt.learners.confidence_tree.naive_bayes import INHERITED

# -- machines --------------------------------------------------------------------------------------------------------
# Machines on the simulated network: each handles one event at a time, and may die or be paused between two.
#
# A coordinator machine drives the product's generators as the Ray driver does: one message is outstanding at every
# shard, a ``Tell`` is not waited for when it is sent, but before the next message is.


class Message(NamedTuple):
    """A request on its way to a shard, or with ``method`` None a reply on its way back.

    ``combine``: the shards are to meet among themselves.
    """

    shard: int
    epoch: int
    seq: int
    method: str | None
    content: Any
    combine: bool = False


class Swap(NamedTuple):
    """A frame on its way from one shard to another, over their channel."""

    sender: int
    shard: int
    frame: Frame


#: Puts something on the network: a function of one message.
Post = Callable[[Message], None]


def copied(value: Any) -> Any:
    """The same arrays in other memory, as after a way through a network."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [copied(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


class Machine:
    """What can die (``dead``), and does nothing before ``wakes``."""

    def __init__(self, name: str, epoch: int) -> None:
        self.name, self.epoch = name, epoch
        self.dead, self.wakes = False, 0


class ShardMachine(Machine):
    """A shard, which answers or refuses whatever reaches it, and meets others on a pass that it has begun."""

    def __init__(self, index: int, epoch: int, shard: NumberedShard) -> None:
        super().__init__(f"shard {index}", epoch)
        self.shard = shard
        self._pass: Steps[EndOfPass] | None = None
        self._links = Links(index, 1, epoch)

    def begin_epoch(self, epoch: int, shards: int) -> None:
        """Go on in a later epoch with so many shards, and new channels."""
        self.shard.begin_epoch(epoch)
        self._links, self._pass = Links(self.shard.index, shards, epoch), None

    def receive(self, message: Message, refused: Callable[[str], None]) -> list[Message | Swap]:
        """What a message has it send, if it was not refused: the reply, or parts for others."""
        assert message.method is not None
        if self._pass is not None and (message.epoch, message.seq) == (self.shard.epoch, self.shard.seq + 1):
            return []  # it is at work on that
        request = message.epoch, message.seq, message.method, message.content
        try:
            if message.combine:
                return self._advance(self.shard.combine(*request), None)
            return [self._reply(message.seq, self.shard.receive(*request))]
        except (StaleEpochError, SequenceGapError) as refusal:
            refused(type(refusal).__name__)
            return []

    def swap(self, swap: Swap, refused: Callable[[str], None]) -> list[Message | Swap]:
        """What a frame of another shard has it send, if it was not refused."""
        try:
            if not self._links.receive(swap.sender, swap.frame):
                refused("frame repeated")
        except StaleEpochError:
            refused("frame refused")
        sent = self._swaps(self._links.proceed())
        received = self._links.complete()
        return sent if received is None else [*sent, *self._advance(self._pass, received)]

    def _advance(self, steps: Any, received: list[Any] | None) -> list[Message | Swap]:
        """Go on with a pass for as long as there is something to go on with."""
        sent: list[Message | Swap] = []
        try:
            while received is not None or steps is not self._pass:
                parts = steps.send(received)
                self._pass = steps
                sent += self._swaps(self._links.begin(parts))
                received = self._links.complete()
        except StopIteration as end:
            self._pass = None if steps is self._pass else self._pass  # a repeated message may come during a pass
            sent.append(self._reply(self.shard.seq, end.value))
        return sent

    def _swaps(self, frames: list[tuple[int, Frame]]) -> list[Message | Swap]:
        return [Swap(self.shard.index, to, frame) for to, frame in frames]

    def _reply(self, seq: int, content: Any) -> Message:
        return Message(self.shard.index, self.shard.epoch, seq, None, copied(content))


class CoordinatorMachine(Machine):
    """A coordinator and the driver of its generators; ``post`` sends, ``remind`` has ``send_again`` called later.

    Attributes
    ----------
    seq : int
        Number of the last message.
    waiting : set of int
        Shards that have not answered it.
    """

    def __init__(
        self,
        epoch: int,
        coordinator: BatchCoordinator,
        shards: int,
        post: Post,
        remind: Callable[[CoordinatorMachine, int], None],
    ) -> None:
        super().__init__("coordinator", epoch)
        self.coordinator, self.shards, self.post, self.remind = coordinator, shards, post, remind
        self.seq = 0
        self.waiting: set[int] = set()
        self._request: Ask = Tell("", {})
        self._payloads: list[Any] = []
        self._replies: dict[int, Any] = {}
        self._held: Ask | None = None  # to be sent when the Tell before it is acknowledged
        self._exchange: Exchange[Any] | None = None
        self._done: Callable[[Any], None]

    def run(self, exchange: Exchange[Any], done: Callable[[Any], None]) -> None:
        """Begin an exchange; ``done`` receives what it returns."""
        assert self._exchange is None
        self._exchange, self._done = exchange, done
        self._step(None)

    def receive(self, message: Message) -> bool:
        """Take a reply; False if it is not one to the last message, or was taken before."""
        if (message.epoch, message.seq) != (self.epoch, self.seq) or message.shard not in self.waiting:
            return False
        self.waiting.remove(message.shard)
        self._replies[message.shard] = message.content
        if not self.waiting:
            if self._held is not None:
                held, self._held = self._held, None
                self._send(held)
            elif not isinstance(self._request, Tell):
                self._step([self._replies[index] for index in range(self.shards)])
        return True

    def send_again(self) -> None:
        """Send the last message once more to the shards that have not answered."""
        for index in sorted(self.waiting):
            request, combine = self._request, isinstance(self._request, Combine)
            self.post(Message(index, self.epoch, self.seq, request.method, self._payloads[index], combine))
        self.remind(self, self.seq)

    def _step(self, replies: list[Any] | None) -> None:
        assert self._exchange is not None
        try:
            request = self._exchange.send(replies)  # type: ignore[arg-type]
        except StopIteration as end:
            self._exchange = None
            self._done(end.value)
            return
        if self.waiting:
            self._held = request
        else:
            self._send(request)

    def _send(self, request: Ask) -> None:
        self.seq += 1
        self._request, self._replies = request, {}
        self.waiting = set(range(self.shards))
        self._payloads = [copied(request.for_shard(index)) for index in range(self.shards)]
        self.send_again()
        if isinstance(request, Tell):
            self._step([])


# -- network ---------------------------------------------------------------------------------------------------------
# Simulated time, chance and failures: what can happen to messages and machines, whatever they are for.

#: Simulated time until a message is sent again, and until a machine that does nothing is given up.
RESEND_AFTER, PATIENCE = 50, 400
#: Simulated time that what happens beside the work may take.
LEISURE = 200


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
    most_events : int
        More events than this are an endless loop.
    ghosts : list of Machine
        Those of earlier epochs that may still live. They hear and say everything at the addresses of the present ones.
    """

    most_events = 200_000

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
        for _ in range(self.most_events):
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
            self.notice(swap.frame.epoch)
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
            self.notice(machine.epoch)

    def notice(self, epoch: int) -> None:
        """Have somebody notice later that a machine of ``epoch`` is gone."""
        self.post(self.lost, epoch, delay=self.random.randint(1, 100))


# -- parts -----------------------------------------------------------------------------------------------------------
# Parts of a checkpoint that simulated shards write themselves.


class MachineParts(PartsElsewhere):
    """What the shards have set aside under a number, each of which writes its own parts, and may die at each."""

    def __init__(self, network: Network, number: Position) -> None:
        self._network, self._number = network, number

    def __iter__(self) -> Iterator[Parts]:
        """Never: the shards see the folder."""
        raise NotImplementedError

    def write(self, place: CheckpointPlace) -> Iterator[Written]:
        """Have the shards write one after the other, in any order."""
        shards = self._network.shards
        for machine in self._network.random.sample(shards, len(shards)):
            self._require_alive(machine)
            written = write_each(place, self._parts(machine))
            self._require_alive(machine)  # its answer does not arrive
            yield written

    def _parts(self, machine: ShardMachine) -> Iterator[tuple[int | Buckets, GroupSnapshot]]:
        for part in machine.shard.take_aside(self._number).items():
            yield part
            self._require_alive(machine)

    def _require_alive(self, machine: ShardMachine) -> None:
        self._network.writing.add(self._network.places)
        if machine.dead or self._network.fails(machine):
            raise ProcessLostError(machine.name)


# -- outcomes --------------------------------------------------------------------------------------------------------
# What must not depend on faults, shards or batches.


def outcome(
    digest: str, record: Any, state: tuple[dict[str, Any], dict[int, dict[str, Any]]], options: LearnerOptions
) -> dict[str, Any]:
    """What must be the same whatever happens."""
    coordinator, groups = by_node(*state, inherits=getattr(options, "leaf_prediction", None) == INHERITED)
    columns = {group: exactly(groups[group]) for group in sorted(groups)}
    return {"digest": digest, **asdict(record), "state": exactly(coordinator), "groups": columns}


def exactly(arrays: dict[str, Any]) -> dict[str, Any]:
    """Arrays as values that are equal if all bits are: NaN is not equal to itself."""
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def by_node(
    state: dict[str, Any], groups: dict[int, dict[str, Any]], *, inherits: bool = False
) -> tuple[dict[str, Any], dict[int, Any]]:
    """Return the state with statistics in the order of the nodes that gather them, where there are places.

    Which place a node has depends on how the stream was cut; the digest leaves it out. If leaves count what they
    have inherited (``inherits``), it is at the place after theirs.
    """
    if "place" not in state:
        return state, groups
    places = state["place"]
    if inherits:
        places = np.concatenate([places, np.where(state["place"] >= 0, state["place"] + 1, -1)])
    old = places[places >= 0]
    order = np.full(places.max(initial=-1) + 1, -1)
    order[old] = np.arange(len(old))
    ordered = {}
    for number, arrays in groups.items():
        ordered[number] = dict(arrays)
        for name in {"totals", "bins"} & arrays.keys():
            counted = np.zeros((len(old), *arrays[name].shape[1:]), arrays[name].dtype)
            here = old < len(arrays[name])
            counted[here] = arrays[name][old[here]]
            assert counted.sum() == arrays[name].sum(), f"{name} counts examples where no node does"
            ordered[number][name] = counted
        if "place" in arrays:
            nodes = order[arrays["place"]]
            rank = np.lexsort((arrays["feature"], nodes))
            ordered[number] |= {name: arrays[name][rank] for name in ("feature", "n1", "c11")}
            ordered[number]["place"] = nodes[rank]
    return state | {"place": np.where(state["place"] >= 0, order[state["place"]], -1)}, ordered
