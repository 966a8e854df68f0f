"""What it costs to have a model with shards: rounds, bytes and work as counts, and the seconds that these take.

Invariant: counts follow from sizes and from the shape of the model alone. A test compares them with what drivers count
(``tests/nets/test_costs.py``). Seconds are counts times rates that are measured on a machine
(``benchmarks/cost_model.py``).

Not here: the counts of a method, which the module of its name derives from its messages.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the data and of the messages.

    Attributes
    ----------
    rows : int
        Live examples, of all of which the first model is built (n).
    columns : int
        Numeric and categorical features (d).
    ones : float
        Sparse features that are 1 in a row, in the mean.
    classes : int
        0 where labels are numbers (K).
    groups : int
        Feature groups that have a feature (G).
    shards : int
        (S).
    batch : int
        Updates in a batch (b).
    """

    rows: int
    columns: int
    ones: float = 0.0
    classes: int = 2
    groups: int = 16
    shards: int = 1
    batch: int = 4096

    @property
    def batches(self) -> int:
        """Batches of the rows of the first model."""
        return -(-self.rows // self.batch)

    @property
    def inserts(self) -> int:
        """New rows of a batch of updates, which deletes as many as it inserts."""
        return self.batch // 2


class Shape(NamedTuple):
    """Shape of a model that is built of all rows.

    Attributes
    ----------
    levels : int
        Rounds that follow each other while a tree is built: its open levels.
    depth : float
        Levels that a row takes part in, in the mean.
    nodes : int
        Nodes of all trees.
    """

    levels: int
    depth: float
    nodes: int


class Cost(NamedTuple):
    """Counts of a piece of work.

    Attributes
    ----------
    rounds : int
        Messages of the coordinator that all shards get.
    sent, received : int
        Bytes of arrays, to and from all shards.
    cells : float
        Units of work that shards divide among them, such as a value of a row that is looked at once.
    rows : float
        Units of work for whole rows, which the coordinator and every shard do for all rows.
    """

    rounds: int
    sent: int
    received: int
    cells: float
    rows: float


class Costs(ABC):
    """Counts of one learner with given options."""

    @abstractmethod
    def shape(self, rows: int) -> Shape:
        """Return the shape to expect of a model of so many rows, before there is one."""

    @abstractmethod
    def first_model(self, sizes: Sizes, shape: Shape) -> Cost:
        """Return the cost of the first model: the shards get all rows, and the model is built of them."""

    @abstractmethod
    def batch(self, sizes: Sizes, shape: Shape) -> Cost:
        """Return the least cost of a batch of as many deletions as insertions, after which nothing is rebuilt."""


def sparse_aware_rows(sizes: Sizes, rows: int, messages: int) -> int:
    """Bytes of new rows at all shards (``raydt.batches.rows_on_shards``): slots and pointers, values divided."""
    return sizes.shards * (12 * rows + 8 * messages) + values_of(sizes, rows)


def values_of(sizes: Sizes, rows: int) -> int:
    """Bytes of the values of some rows, which go to one shard each."""
    return rows * 8 * sizes.columns + round(rows * 4 * sizes.ones)


def log2(rows: int) -> float:
    """Binary logarithm, at least 1."""
    return math.log2(max(2, rows))


@dataclass(frozen=True, slots=True)
class Machine:
    """Seconds that messages take between the processes of a machine, or of a cluster.

    Attributes
    ----------
    round : float
        A round without contents, with one shard.
    shard : float
        What every further shard adds to a round.
    byte : float
        A byte that the coordinator sends or receives.
    """

    round: float
    shard: float
    byte: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of a learner's units of work (:class:`Cost`).

    Attributes
    ----------
    alone : float
        A cell in one process that shares its work with nobody, rows and all: it runs other code than shards do.
    cell : float
        A cell at a shard.
    shard_row, coordinator_row : float
        A row at a shard, and at the coordinator.
    """

    alone: float
    cell: float
    shard_row: float
    coordinator_row: float


def seconds(cost: Cost, shards: int, rates: Rates, machine: Machine) -> float:
    """Predict the time of a piece of work on so many shards; one stands for one process without messages.

    Cells are divided evenly. Messages, work of the shards and work of the coordinator follow each other.
    """
    if shards == 1:
        return rates.alone * cost.cells
    work = rates.cell * cost.cells / shards + (rates.shard_row + rates.coordinator_row) * cost.rows
    rounds = cost.rounds * (machine.round + machine.shard * (shards - 1))
    return work + rounds + machine.byte * (cost.sent + cost.received)
