"""A batch D': which updates wait for its end, whether it trains all trees again, and what it has cost.

An inserted example has its slot at once, a deleted one keeps it until the batch is applied; in between an id means the
newest example of it. An example that is inserted and deleted within the batch never enters the model.

Whether trees and bins are trained again instead of updated follows from whole numbers, never from a clock: it is the
same on every machine, with every number of shards and after a restore. ``docs/explanation/guarantees.md`` states the
rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray, Ints, Slots
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.workspace import DEPTH, NODES, REFRESHED, ROWS, SUBTREES, TREES_RETRAINED
from raydt.messages import message
from raydt.presentation.words import counted

#: ``pending`` of an example in a state.
NOT_PENDING, TO_INSERT, TO_DELETE = 0, 1, 2

_NONE = np.empty(0, dtype=np.int32)


class PendingUpdates:
    """Examples to insert and examples to delete.

    Attributes
    ----------
    inserts, deletes, cancelled : ndarray of int32
        Their slots, and those of examples that were to be inserted and are deleted again: no model has them.
    """

    def __init__(self) -> None:
        self.inserts, self.deletes, self.cancelled = _NONE, _NONE, _NONE

    def __len__(self) -> int:
        return len(self.inserts) + len(self.deletes)

    def add(self, new: Slots, old: Slots) -> None:
        """Add insertions into the slots ``new`` and deletions of ``old``."""
        self.inserts = np.concatenate([self.inserts, new])
        cancelled = np.isin(old, self.inserts) if len(old) else np.zeros(0, dtype=np.bool_)
        self.deletes = np.concatenate([self.deletes, old[~cancelled]])
        if cancelled.any():
            self.inserts = self.inserts[~np.isin(self.inserts, old)]
            self.cancelled = np.concatenate([self.cancelled, old[cancelled]])

    def in_model(self, live: Slots) -> Slots:
        """Return slots of the rows in the model: of those that live and do not wait, and of those to delete."""
        return np.union1d(np.setdiff1d(live, self.inserts), self.deletes).astype(np.int32)

    @property
    def freed(self) -> Slots:
        """Slots that are free once the batch is applied."""
        return np.concatenate([self.deletes, self.cancelled])

    def status(self, slots: Slots) -> npt.NDArray[np.int8]:
        """``pending`` of some examples, shape (slots,)."""
        return (TO_INSERT * np.isin(slots, self.inserts) + TO_DELETE * np.isin(slots, self.deletes)).astype(np.int8)


@dataclass(slots=True)
class Counts:
    """Costs of an update, or the rows that all trees were ``trained`` on instead."""

    trees_checked: int = 0
    trees_retrained: int = 0
    subtrees: int = 0
    rows: int = 0
    nodes: int = 0
    depth: int = -1
    refreshed: int = 0
    rounds: int = 0
    trained: int = 0

    def work(self, ensemble: Any, changes: int) -> int:
        """Return the work of an update of so many rows, in rows that a tree is trained on.

        The weights are those of kernels on one core: a derivative is compared in a quarter of the time in which a tree
        is trained on a row, a candidate of a node judged in a twentieth.
        """
        trees, inner = len(ensemble.leaf), ensemble.options.max_leaf_nodes - 1
        judged = self.trees_checked * inner * ensemble.candidates
        work: int = self.rows + (self.refreshed * trees) // 4 + 2 * changes * trees + judged // 20
        return work

    def add(self, other: Counts) -> None:
        """Add the counts of another pass; the depth is the smaller one."""
        for field in fields(self):
            if field.name != "depth":
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        self.depth = min([d for d in (self.depth, other.depth) if d >= 0], default=-1)

    def state(self, ensemble: Any, counted: Mapping[str, int]) -> dict[str, AnyArray]:
        """Return the arrays of a state that are not by row, if these are the totals: trees, bins, and other numbers."""
        e, scalars = ensemble, {**counted, "rebuilds": self.subtrees, "rebuilt_rows": self.rows}
        scalars |= {"classes": e.classes if e else -1, "exponent": e.exponent if e else 0}
        state = {name: np.array([value], dtype=np.int64) for name, value in scalars.items()}
        return state if e is None else state | e.bins.arrays() | e.nodes() | {"origin": np.array([e.loss.origin])}

    @classmethod
    def of(cls, trees: int, of_shards: Sequence[Ints]) -> Counts:
        """Return the costs of a pass through so many trees, from what each shard has counted: rows are its own."""
        c = of_shards[0].tolist()
        rows, refreshed = (sum(int(counts[field]) for counts in of_shards) for field in (ROWS, REFRESHED))
        return cls(trees, c[TREES_RETRAINED], c[SUBTREES], rows, c[NODES], c[DEPTH], refreshed)


#: Columns that are not numbers of things.
_OTHER = {"seconds": np.float64}
COLUMNS = (
    "seq", "deletes", "inserts", "trees_checked", "trees_retrained", "subtrees", "rows", "nodes", "depth", "refreshed",
    "rounds", "trained", "seconds",
)  # fmt: skip


class UpdateLog:
    """One entry for each D' (and for the first training): its last update, and what it took (:class:`Counts`)."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, ...]] = []

    def add(self, seq: int, deletes: int, inserts: int, counts: Counts, seconds: float) -> None:
        """Record a D' that ended with update ``seq``."""
        taken = [getattr(counts, name) for name in COLUMNS[3:-1]]
        self._entries.append((seq, deletes, inserts, *taken, seconds))

    def arrays(self) -> dict[str, AnyArray]:
        """Columns of the entries, int64 but for ``seconds``."""
        columns = zip(*self._entries, strict=True) if self._entries else [()] * len(COLUMNS)
        return {
            name: np.array(column, dtype=_OTHER.get(name, np.int64))
            for name, column in zip(COLUMNS, columns, strict=True)
        }


@dataclass(slots=True)
class TrainingRecord:
    """The last training of all trees, and the updates since; part of a state."""

    trained: int = 0  #: Updates of the stream before the end of the last training.
    trained_rows: int = 0  #: Rows it was made on.
    changes: int = 0  #: Inserts and deletes since.
    #: ``work``, ``work_changes``: Work of the last update in place (:meth:`raydt.learners.gbdt.update.Counts.work`),
    #: less a thirty-second part for each training since; and its inserts and deletes.
    work: int = 0
    work_changes: int = 0
    trainings: int = 0  #: Trainings of all trees so far, with the first.

    @classmethod
    def of(cls, state: Mapping[str, AnyArray]) -> TrainingRecord:
        """Return the record in a state."""
        return cls(**{name: int(state[name][0]) for name in RECORD})

    def numbers(self) -> dict[str, int]:
        """Return what a state keeps of it."""
        return asdict(self)

    def is_due(self, options: GBDTOptions, changes: int, live: int, trees: int) -> bool:
        """Return True if all trees are to be trained again for ``changes``, which leave ``live`` rows."""
        if self.changes >= options.trains_after(self.trained_rows):
            return True
        return options.retrain == "auto" and self._costs_a_training(changes, live, trees)

    def _costs_a_training(self, changes: int, live: int, trees: int) -> bool:
        """Return True if the update would be as much work as a training: in proportion, at most as the last one."""
        training = live * trees
        return self.work_changes > 0 and self.work * min(changes, self.work_changes) >= self.work_changes * training

    def add_training(self, seq: int, rows: int) -> None:
        """Record a training on so many rows before update ``seq``.

        The known work of an update then counts less, so that one that was much work does not decide for ever.
        """
        self.work -= -(-self.work // _FORGOTTEN)
        self.trained, self.trained_rows, self.changes = seq, rows, 0
        self.trainings += 1

    def add_update(self, work: int, changes: int) -> None:
        """Record an update in place."""
        self.work, self.work_changes = work, changes


#: Part of the work of the last update that each training takes off. To try an update again that was twice the work of a
#: training then costs a twentieth of the trainings between.
_FORGOTTEN = 32

#: The arrays of a state that hold the record.
RECORD = tuple(field.name for field in fields(TrainingRecord))


def outlook(options: GBDTOptions, warmup: int) -> str:
    """Say what a batch D' costs and how often all trees are trained again, after a warm-up of so many rows."""
    every, after = options.every(warmup, warmup), options.trains_after(warmup)
    if after <= every:
        return message("learners.always_trained", updates=counted(every, "update"), rows=warmup)
    sizes = {"updates": counted(every, "update"), "iterations": counted(options.max_iter, "iteration")}
    if options.retrain == "never":
        return message("learners.never_trained", **sizes)
    return message("learners.sometimes_trained", batches=-(-after // every), after=after, **sizes)
