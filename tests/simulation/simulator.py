"""The third driver of the exchange: the real coordinator and shards, an unreliable network, machines that fail.

Everything happens in one thread in simulated time and follows from a seed. Threads among which a machine divides its
work are simulated, too: their tasks are done one after the other, in any order. Messages and replies are delayed, lost
(and sent again under the same number) and duplicated; duplicates may arrive rounds or incarnations later. A machine may
crash before and after every event it handles, and be paused; a pause that takes too long counts as a crash. Then the
driver restores the last checkpoint into machines of the next epoch, perhaps another number of them, and reads the
stream again from there. The driver may crash too: a new one has nothing but the store. With about every second
seed, shards write their own parts of a checkpoint, may crash at each of them, and read their own parts back.

Expected: the same digest, model, rows, predictions, scores and refusals as without any of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from raydt.errors import ExchangeError, ProcessLostError, StaleEpochError
from raydt.evaluation.scoring import NO_LEVEL
from raydt.examples.updates import BatchResult, Features, UpdateBatch
from raydt.exchange.links import NumberedShard
from raydt.exchange.messages import Barrier, Buckets, Snapshot
from raydt.learners.base import WorkPlan
from raydt.sessions.session import take_snapshot, whole
from raydt.sources.base import Source
from raydt.streams.base import Stream
from tests.cases import Trial
from tests.crews import crew, number_of
from tests.simulation.network import (
    NO_FAULTS,
    CoordinatorMachine,
    Faults,
    Machine,
    MachineParts,
    Network,
    ShardMachine,
    outcome,
)


@dataclass(frozen=True)
class Setup:
    """A learner, its options, where its work is done, and the case it is, if it is one."""

    name: str
    learner: Any
    options: Any
    plan: WorkPlan
    trial: Trial | None = None

    def features(self, source: Source) -> Features:
        """The features of the rows, in groups."""
        return replace(source.features, groups=self.options.feature_groups)


class DriverDied(BaseException):
    """The driver is gone in the middle of what it does; nothing that would tidy up may catch this."""


@dataclass
class Record:
    """What a driver has written down, as in a run folder: everything up to ``updates``, once."""

    updates: int = 0
    predictions: list[float | None] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    refused: list[list[int]] = field(default_factory=list)
    inserts: int = 0
    deletes: int = 0

    def add(self, batch: UpdateBatch, result: BatchResult) -> None:
        """Note a batch, which must be the next one, and have been taken in full."""
        assert (batch.start, result.applied) == (self.updates, len(batch)), "an update is missing, or comes twice"
        self.updates = batch.stop
        self.predictions += [None if value != value else value for value in result.predictions.tolist()]  # of NaN
        unknown = np.full(len(batch), NO_LEVEL)
        self.levels += (unknown if result.levels is None else result.levels).tolist()
        self.refused += [[batch.start + refusal.position, refusal.reason] for refusal in result.refused]
        self.inserts += result.inserts
        self.deletes += result.deletes


@dataclass(frozen=True)
class Saved:
    """A checkpoint: the learner's state (coordinator, groups, rows of shards), the stream's, and the record."""

    state: dict[str, Any]
    groups: dict[int, dict[str, Any]]
    buckets: dict[Buckets, dict[str, Any]]
    stream: dict[str, Any]
    run: dict[str, Any]


class Driver(Machine):
    """The process that reads the stream and owns the machines; a new one knows nothing."""

    def __init__(self, stream: Stream) -> None:
        super().__init__("driver", 0)
        self.stream, self.record = stream, Record()
        self.writes: int | None = None  # position of the checkpoint that is being made
        self.at_end = False  # the stream has ended


@dataclass(frozen=True)
class Plan:
    """Decisions that must not matter: shards by epoch, the size of each next batch, where a checkpoint is wanted."""

    shards: Callable[[int], int]
    size: Callable[[], int]
    checkpoint: Callable[[], bool]


class Simulation(Network):
    """One run: machines, network, stream and store.

    Parameters
    ----------
    setup : Setup
    open_stream : callable
        A fresh stream.
    store : object
        Keeps checkpoints, see ``tests.simulation.stores``.
    plan : Plan
    seed : int
        Of everything that happens by chance.
    faults : Faults
    """

    def __init__(
        self,
        setup: Setup,
        open_stream: Callable[[], Stream],
        store: Any,
        plan: Plan,
        *,
        seed: int = 0,
        faults: Faults = NO_FAULTS,
    ) -> None:
        super().__init__(seed, faults)
        self.setup, self.store, self.plan = setup, store, plan
        self.open, self.seed = open_stream, seed
        self.driver: Driver = Driver(open_stream())
        self._features: Features = setup.features(self.driver.stream.source)
        self._count = 0  # shards of this incarnation, once all have been started
        # And do not hand their parts to the driver. Drawn, as setups take turns by seed: one may have even seeds only.
        self.shards_write = store.shared and random.Random(f"parts {seed}").random() < 0.5
        self._outcome: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """Everything that must not depend on faults, once the stream has ended."""
        self.post(self.visit, self.driver, self._begin)
        with self.threads():
            self.pass_time()
        return self._outcome

    def threads(self) -> AbstractContextManager[None]:
        """Threads that a process has: how many, and in which order they do their tasks, follows from the seed."""
        name = f"{self.setup.name} {self.seed}"
        return crew(number_of(name), name)

    def lost(self, epoch: int) -> None:
        self.visit(self.driver, self._begin_after, epoch)

    def replace_driver(self) -> None:
        self.epoch += 1  # what the machines of the old one still say reaches nobody
        self.store.new_driver()
        self.driver = Driver(self.open())
        self.post(self.visit, self.driver, self._begin, delay=self.random.randint(1, 500))

    # -- an incarnation -------------------------------------------------------------------------------------------

    def _begin_after(self, epoch: int) -> None:
        if epoch == self.epoch:
            self._begin()

    def _begin(self) -> None:
        """The next incarnation, from the last checkpoint or from the beginning."""
        self.epoch += 1
        self.events["incarnations"] += 1
        if self.falls("rot"):
            self.store.rot(self.random)
        try:
            saved = self.store.load(apart=self.shards_write)
        except DriverDied:  # while it removes checkpoints after the one to restore
            self.events["crash going back"] += 1
            self.crash(self.driver)
            return
        driver, shards = self.driver, self.plan.shards(self.epoch)
        self.events["restored"] += saved is not None
        driver.stream, driver.record, driver.writes, driver.at_end = self.open(), Record(), None, False
        if saved is not None:
            driver.stream.restore(saved.stream)
            driver.record = Record(**saved.run)
        old = self.members()
        reused = self.faults.survivors and saved is not None and shards == self._count
        self._count = shards
        alive = [machine for machine in old if reused and not machine.dead and machine.wakes <= self.time]
        self.abandon([machine for machine in old if machine not in alive])
        self.then(self._start_shard, self.epoch, 0, shards, saved, {machine.name: machine for machine in alive})

    def _start_shard(self, epoch: int, index: int, shards: int, saved: Saved | None, alive: dict[str, Any]) -> None:
        """Bring up the shards, one after the other, and then the coordinator."""
        if epoch != self.epoch:
            return
        if index == shards:
            self._start_coordinator(shards, saved, alive)
            return
        then = partial(self.then, self._start_shard, epoch, index + 1, shards, saved, alive)
        self.bring_up(epoch, index, shards, saved, alive, then)

    def bring_up(
        self,
        epoch: int,
        index: int,
        shards: int,
        saved: Saved | None,
        alive: dict[str, Any],
        restored: Callable[[], None],
    ) -> None:
        """Have one shard begin the epoch and read its part of a checkpoint; ``restored`` is called at its end."""
        groups = self._features.assign(shards)[index]
        machine = alive.get(f"shard {index}")
        if machine is None or machine.dead:
            worker = self.setup.learner.shard(self.setup.options, self._features, groups)
            machine = self.new_shard(index, epoch, worker)

        def restore() -> None:
            try:
                machine.begin_epoch(epoch, shards)
            except StaleEpochError:  # it slept, and has been restored to a later incarnation before it heard of this
                assert epoch != self.epoch
                self.events["stale restore"] += 1
                return
            if saved is not None:
                machine.shard.worker.restore({int(g): saved.groups[int(g)] for g in groups} | saved.buckets)
            restored()

        machine.epoch = epoch
        self.shards.append(machine)
        self.visit(machine, restore)

    def new_shard(self, index: int, epoch: int, worker: Any) -> ShardMachine:
        """A machine for a shard."""
        return ShardMachine(index, epoch, NumberedShard(worker, index))

    def new_coordinator(self, coordinator: Any, shards: int) -> CoordinatorMachine:
        """A machine for a coordinator."""
        return CoordinatorMachine(self.epoch, coordinator, shards, self.send, self.remind)

    def _start_coordinator(self, shards: int, saved: Saved | None, alive: dict[str, Any]) -> None:
        old = alive.get("coordinator")
        if old is None or old.dead:
            coordinator = self.setup.learner.coordinator(self.setup.options, self._features, shards, self.setup.plan)
        else:
            old.dead, coordinator = True, old.coordinator
        machine = self.new_coordinator(coordinator, shards)

        def restore() -> None:
            if saved is not None:
                coordinator.restore(saved.state)
            self.coordinator = machine
            self.then(self._at_driver, machine.epoch, self._feed)

        self.visit(machine, restore)

    def _at_driver(self, epoch: int, handle: Callable[..., None], *arguments: Any) -> None:
        """Something reaches the driver from an incarnation: heard only if it is the present one."""

        def heed() -> None:  # asked when it wakes, if it sleeps
            if epoch == self.epoch:
                handle(*arguments)
            else:
                self.events["stale answer"] += 1

        self.visit(self.driver, heed)

    # -- batches --------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Hand the next batch to the coordinator."""
        batch = next(self.driver.stream.batches(self.plan.size()), None)
        held = getattr(self.driver.stream.source, "held", None)  # of a source that is followed
        if batch is None and held is not None:
            self.events["source away"] += 1
            self.post(self._at_driver, self.epoch, self._feed, delay=self.random.randint(1, 50))
            return
        if batch is None:
            self.driver.at_end = True
            self._finish_once_written()
            return
        if self.driver.writes is None and self.plan.checkpoint():
            self.driver.writes = batch.stop
            batch = replace(batch, barrier=Barrier(self.driver.stream.state(), self.store.segments))
        self.then(self.visit, self.coordinator, self._apply, self.coordinator, batch)

    def _apply(self, machine: CoordinatorMachine, batch: UpdateBatch) -> None:
        def applied(result: BatchResult) -> None:
            if batch.barrier is None:
                self.then(self._at_driver, machine.epoch, self._take, batch, result)
            else:
                machine.run(
                    take_snapshot(machine.coordinator, batch.barrier.segments() or ()), lambda s: snapped(result, s)
                )

        def snapped(result: BatchResult, snapshot: Snapshot) -> None:
            result.snapshot = snapshot
            self.then(self._at_driver, machine.epoch, self._take, batch, result)

        machine.run(machine.coordinator.process(batch, skip_refused=True), applied)

    def _take(self, batch: UpdateBatch, result: BatchResult) -> None:
        """The driver has the result of a batch: it goes on, and beside that makes a checkpoint."""
        self.driver.record.add(batch, result)
        if batch.barrier is not None:
            assert result.snapshot is not None
            saved = batch.stop, result.snapshot, batch.barrier.stream, asdict(self.driver.record)
            if self.shards_write:
                self._have_written(*saved)
            else:
                self._collect(result.snapshot, [], lambda: self._write(*saved))
        self._feed()

    def _finish_once_written(self) -> None:
        if self.driver.at_end and self.driver.writes is None:
            self.then(self.visit, self.coordinator, self._finish, self.coordinator)

    def _finish(self, machine: CoordinatorMachine) -> None:
        """The end of the stream: the last checkpoint is of everything, and is what is compared."""

        def finished(_: None) -> None:
            machine.run(machine.coordinator.gather_digest(), hashed)

        def hashed(_: None) -> None:
            digest = machine.coordinator.digest()
            machine.run(take_snapshot(machine.coordinator), lambda snapshot: snapped(snapshot, digest))

        def snapped(snapshot: Snapshot, digest: str) -> None:
            self.then(self._at_driver, machine.epoch, self._compare, snapshot, digest)

        machine.run(machine.coordinator.finish(), finished)

    def _compare(self, snapshot: Snapshot, digest: str) -> None:
        def end() -> None:
            self._outcome, self.ended = outcome(digest, self.driver.record, whole(snapshot), self.setup.options), True

        self._collect(snapshot, [], end)

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def _collect(self, snapshot: Snapshot, parts: list[Any], done: Callable[[], None]) -> None:
        """Fetch what the shards have set aside, one after the other."""
        if len(parts) == len(self.shards):
            snapshot.parts = parts
            done()
            return

        machine, epoch = self.shards[len(parts)], self.epoch

        def answer() -> None:
            try:
                part = machine.shard.take_aside(snapshot.aside)
            except ExchangeError:
                assert epoch != self.epoch, "a part of the present snapshot is gone"
                self.events["part refused"] += 1
            else:
                self.then(self._at_driver, epoch, more, part)

        def more(part: Any) -> None:
            self._collect(snapshot, [*parts, part], done)

        self.later(self.visit, machine, answer)

    def _have_written(self, position: int, snapshot: Snapshot, stream: dict[str, Any], run: dict[str, Any]) -> None:
        """Write a checkpoint, of which the shards write their own parts as soon as all of them are awake."""
        asleep = max((machine.wakes for machine in self.shards if not machine.dead), default=0) - self.time
        if asleep > 0:
            saved = position, snapshot, stream, run
            self.post(self._at_driver, self.epoch, self._have_written, *saved, delay=asleep)
            return
        snapshot.parts = MachineParts(self, snapshot.aside)
        self._write(position, snapshot, stream, run)

    def _write(self, position: int, snapshot: Any, stream: dict[str, Any], run: dict[str, Any]) -> None:
        self.store.left[0] = self.random.randrange(40) if self.falls("crash_writing") else None
        try:
            self.store.write(position, snapshot, stream, run)
        except DriverDied:
            self.crash(self.driver)
            return
        except ProcessLostError:  # the next incarnation goes back to the checkpoint before
            self.events["parts lost"] += 1
            return
        self.driver.writes = None
        self.events["checkpoints"] += 1
        self._finish_once_written()
