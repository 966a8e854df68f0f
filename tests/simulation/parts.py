"""Parts of a checkpoint that simulated shards write themselves."""

from __future__ import annotations

from collections.abc import Iterator

from raydt.errors import ProcessLostError
from raydt.exchange.messages import Buckets, GroupSnapshot, Parts, Position
from raydt.folders.segments import CheckpointPlace, PartsElsewhere, Written, write_each
from tests.simulation.machines import ShardMachine
from tests.simulation.network import Network


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
