"""When a batch D' trains all trees and bins again instead of updating them.

The decision follows from whole numbers, never from a clock: it is the same on every machine, with every number of
shards and after a restore. ``docs/explanation/guarantees.md`` states the rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy.typing as npt

from raydt.learners.gbdt.options import GBDTOptions
from raydt.messages import message
from raydt.presentation.words import counted


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
    def of(cls, state: Mapping[str, npt.NDArray[Any]]) -> TrainingRecord:
        """The record in a state."""
        return cls(**{name: int(state[name][0]) for name in RECORD})

    def numbers(self) -> dict[str, int]:
        """What a state keeps of it."""
        return asdict(self)

    def is_due(self, options: GBDTOptions, changes: int, live: int, trees: int) -> bool:
        """Whether to train all trees again instead of updating them by a batch, which :attr:`changes` has counted.

        Parameters
        ----------
        options : GBDTOptions
        changes : int
            Inserts and deletes of the batch.
        live : int
            Live rows after it.
        trees : int
        """
        if self.changes >= options.trains_after(self.trained_rows):
            return True
        return options.retrain == "auto" and self._costs_a_training(changes, live, trees)

    def _costs_a_training(self, changes: int, live: int, trees: int) -> bool:
        """Whether the update of so many rows would be as much work as a training, judged by the last update.

        A smaller batch is taken to be less work in proportion. A larger one is taken to be as much work as the last:
        beyond the rows that it changes, its work does not grow in proportion.
        """
        training = live * trees
        return self.work_changes > 0 and self.work * min(changes, self.work_changes) >= self.work_changes * training

    def add_training(self, seq: int, rows: int) -> None:
        """Record a training on so many rows that ended before update ``seq``.

        What is known of the work of an update grows old. It counts for less after each training, so that one update
        that was much work does not decide for training forever: after some trainings an update is tried again, sooner
        if it was little more work than a training.
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
    """What a batch D' costs and how often all trees are trained again, after a warm-up of so many rows; a sentence."""
    every, after = options.every(warmup), options.trains_after(warmup)
    if after <= every:
        return message("learners.always_trained", updates=counted(every, "update"), rows=warmup)
    sizes = {"updates": counted(every, "update"), "iterations": counted(options.max_iter, "iteration")}
    if options.retrain == "never":
        return message("learners.never_trained", **sizes)
    return message("learners.sometimes_trained", batches=-(-after // every), after=after, **sizes)
