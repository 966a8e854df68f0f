"""Stream model ``adaptive_window``: the last rows are live, as many as have predicted the newest rows best.

*Scouts* are models of one cheap learner (``Traits.scouts``), each over a window of its own: the last 64, 256, 2,048
and 16,384 rows. Every scout predicts every row before it learns the row. After every :data:`CLOCK` rows the
stream takes over the window of the scout that leads; if that is the longest scout, nothing is deleted.

For scouts h and c, ``wins[h, c]`` counts the rows that h alone has predicted right; at every choice an eighth of the
count fades, so that the last 1,000 rows or so decide. With d = wins[h, c] - wins[c, h] and v = wins[h, c] + wins[c, h],
scout h leads the present scout c if

    d - 1 > z sqrt(v),  with z = 2.5 if the window of h is the shorter one, 1.5 if it is the longer one:

the sign test with so many standard deviations. Rows that a cut has deleted do not come back, so a cut takes more
evidence than growth. Of several leading scouts the one with the largest margin is taken, of equals the shorter one.

What is live follows from the rows alone, not from the model that learns from the stream: the sequence of updates is the
same for every learner, any number of shards and any batches, and an audit that reads the rows again finds the same
deletions. Numbers to be predicted count as one of four classes, between the quartiles of the first rows.

Invariant: counts are integers, and a square root is exact to the last bit: a choice does not depend on the machine.

Sources: the trade of short against long windows, A. Bifet and R. Gavalda, Learning from time-changing data with
adaptive windowing, SDM 2007; several windows at once, beside this single test, M. Herbster and M. K. Warmuth, Tracking
the best expert, Machine Learning 1998. Here one model is kept, and scouts choose its window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from raydt.arrays.elementary import AnyArray, Bools, Ints
from raydt.examples.updates import (
    CODES,
    DELETE,
    INSERT,
    NUMBERS,
    Features,
    Targets,
    UpdateBatch,
    classes_in,
    no_targets,
)
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED, Learner
from raydt.sessions.session import InProcessSession
from raydt.sources.base import Rows, Source
from raydt.streams.base import ActiveList
from raydt.streams.row_stream import END, RowStream, RowStreamOptions

#: Rows that the scouts know, shortest first; a stream whose longest scout leads deletes nothing.
HORIZONS = (64, 256, 2048, 16384)
#: Rows between two choices of the window.
CLOCK = 128

#: Counts are kept in units of 1 / 2^_UNIT, of which at each choice the 2^_FADING-th part fades.
_UNIT, _FADING = 16, 3
#: Standard deviations by which a shorter and a longer scout lead, and wins beyond these.
_SHORTER, _LONGER, _MARGIN = 2.5, 1.5, 1.0
#: What the names of those parts of the stream's state begin with that are of the scouts.
SCOUTS = "scouts:"
#: Classes that numeric targets are told apart by, and rows whose quartiles tell them.
_PARTS, _FIRST = 4, 64


def scout() -> Learner:
    """Return the learner of the scouts."""
    return next(learner for learner in learners().values() if learner.traits(learner.Options()).scouts)


class Scout:
    """A model over the last ``width`` rows."""

    def __init__(self, features: Features, width: int) -> None:
        learner = scout()
        self.width, self.right, self._updates = width, 0, 0
        self._session = InProcessSession(learner, learner.Options(), features, 1, NOTHING_DIVIDED)

    def learn(self, X: AnyArray, y: Targets, n_classes: int, first: int, known: Ints) -> Bools:
        """Learn rows with the numbers from ``first`` on; return which of them were predicted right, shape (m,).

        ``known`` are the ascending numbers of the rows that are there; those of them that leave the window are deleted.
        """
        number = np.arange(first, first + len(y))
        old = number - self.width
        at = np.minimum(np.searchsorted(known, old), len(known) - 1)
        leaves = known[at] == old
        came = np.arange(len(y)) + np.cumsum(leaves)
        op = np.full(len(y) + int(leaves.sum()), DELETE, dtype=np.int8)
        op[came] = INSERT
        ids = np.empty(len(op), dtype=np.int64)
        ids[came], ids[op == DELETE] = number, old[leaves]
        right: Bools = self._apply(op, ids, X, y, n_classes)[came] == y
        self.right += int(right.sum())
        return right

    def forget(self, numbers: Ints, X: AnyArray, n_classes: int) -> None:
        """Delete rows by their numbers; ``X`` has none."""
        self._apply(np.full(len(numbers), DELETE, dtype=np.int8), numbers, X, no_targets(0, CODES), n_classes)

    def _apply(self, op: Any, ids: Ints, X: AnyArray, y: Targets, n_classes: int) -> Targets:
        self._updates += len(op)
        row = np.full(len(op), -1)
        return self._session.take(UpdateBatch(self._updates - len(op), op, ids, X, y, n_classes, row)).predictions

    def state(self) -> dict[str, Any]:
        """Return the arrays of the model, by the names of their parts, and its counts."""
        coordinator, groups = self._session.state()
        parts = {"coordinator": coordinator, **{f"group{number}": arrays for number, arrays in groups.items()}}
        found = {f"{part}:{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
        return {"updates": self._updates, "right": self.right, **found}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._updates, self.right = int(state["updates"]), int(state["right"])
        parts: dict[str, dict[str, Any]] = {}
        for path, array in state.items():
            part, named, name = path.partition(":")
            if named:
                parts.setdefault(part, {})[name] = array
        coordinator = parts.pop("coordinator")
        self._session.restore(coordinator, {int(part.removeprefix("group")): own for part, own in parts.items()})


class Scouts:
    """The scouts of a stream, and which of them leads."""

    def __init__(self, source: Source) -> None:
        self._features, self._numbers = source.features, source.target_dtype == NUMBERS
        widths = () if source.features.sparse else HORIZONS  # scouts read no column of indices
        self._scouts = [Scout(source.features, width) for width in widths]
        self._present = len(HORIZONS) - 1
        self._wins, self._new = np.zeros((2, len(HORIZONS), len(HORIZONS)), dtype=np.int64)
        self._rows = self._changes = self._right = self._n_classes = 0
        self._known = ActiveList(np.empty((0, 2), dtype=np.int64))  # number and id of the last rows, oldest first
        self._first = self._cuts = np.empty(0)  # first targets, and the quartiles of them

    @property
    def window(self) -> int | None:
        """Rows that are to be live; None if all are."""
        return None if self._present == len(HORIZONS) - 1 else HORIZONS[self._present]

    @property
    def rows_to_choice(self) -> int:
        """Rows up to the next choice, at least 1."""
        return CLOCK - self._rows % CLOCK

    def learn(self, rows: Rows) -> None:
        """Have all scouts predict and learn the next rows, at most :attr:`rows_to_choice`. O(scouts x m) updates."""
        if not self._scouts:
            return
        y = self._classes(rows.y) if self._numbers else rows.y
        self._n_classes = max(self._n_classes, classes_in(y))
        self._known.push(np.column_stack([np.arange(self._rows, self._rows + len(y)), rows.id]))
        known = self._known.view()[:, 0]
        right = np.array([one.learn(rows.X, y, self._n_classes, self._rows, known) for one in self._scouts])
        self._right += int(right[self._present].sum())
        hits = right.astype(np.int64)
        self._new += hits @ (1 - hits).T
        self._rows += len(y)
        self._known.take_first(int(np.searchsorted(known, self._rows - HORIZONS[-1])))
        if self._rows % CLOCK == 0:
            self._choose()

    def _choose(self) -> None:
        self._wins += (self._new << _UNIT) - (self._wins >> _FADING)
        self._new[:] = 0
        wins = self._wins / (1 << _UNIT)
        won, lost = wins[:, self._present], wins[self._present]
        deviations = np.where(np.arange(len(HORIZONS)) < self._present, _SHORTER, _LONGER)
        margins = won - lost - _MARGIN - deviations * np.sqrt(won + lost)
        best = int(np.argmax(margins))
        if margins[best] > 0:
            self._present, self._changes = best, self._changes + 1

    def _classes(self, y: Targets) -> Targets:
        """Return the part of each number: below the first quartile, up to the median, and so on.

        Of the first rows, each is told apart by the quartiles of the rows up to it.
        """
        told = []
        for number in y[: max(0, _FIRST - self._rows)].tolist():
            self._first = np.append(self._first, number)
            middle = np.sort(self._first)
            self._cuts = middle[[len(middle) * part // _PARTS for part in range(1, _PARTS)]]
            told.append(np.searchsorted(self._cuts, number, side="right"))
        if len(self._first) == _FIRST:
            self._first = np.empty(0)
        rest = np.searchsorted(self._cuts, y[len(told) :], side="right")
        return np.concatenate([told, rest]).astype(CODES)

    def forget(self, ids: Ints) -> None:
        """Delete the rows with these ids, whether or not they have left the window of the stream."""
        known = self._known.view()
        gone = np.isin(known[:, 1], ids)
        numbers = known[gone, 0].copy()
        for one in self._scouts:
            if len(own := numbers[numbers >= self._rows - one.width]):
                one.forget(own, np.empty((0, len(self._features.names))), self._n_classes)
        self._known = ActiveList(known[~gone])

    def figures(self) -> dict[str, Any]:
        """Return the window, its changes, and the rows that each scout, and the one chosen at the time, has predicted.

        ``regret`` says how many rows more the best single scout has predicted right than those chosen.
        """
        right = {str(one.width): one.right for one in self._scouts}
        return {
            "window": self.window,
            "changes": self._changes,
            "rows": self._rows,
            "right": right,
            "chosen_right": self._right,
            "regret": max(right.values(), default=0) - self._right,
        }

    def state(self) -> dict[str, Any]:
        """Return everything needed to go on."""
        counts = {"present": self._present, "rows": self._rows, "changes": self._changes, "right": self._right}
        arrays = {"wins": self._wins.copy(), "new": self._new.copy(), "known": self._known.array()}
        models = {f"{one.width}:{name}": part for one in self._scouts for name, part in one.state().items()}
        told = {"first": self._first.copy(), "cuts": self._cuts.copy()}
        return {**counts, "n_classes": self._n_classes, **arrays, **told, **models}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; begin anew without one, as after a purge."""
        if not state:
            return
        self._present, self._rows, self._changes = int(state["present"]), int(state["rows"]), int(state["changes"])
        self._right, self._n_classes = int(state["right"]), int(state["n_classes"])
        self._wins, self._new = np.array(state["wins"]), np.array(state["new"])
        self._known = ActiveList(state["known"])
        self._first, self._cuts = np.array(state["first"]), np.array(state["cuts"])
        for one in self._scouts:
            own = f"{one.width}:"
            one.restore({name.removeprefix(own): part for name, part in state.items() if name.startswith(own)})


class AdaptiveWindowStream(RowStream):
    """Inserts every row; before a row, it deletes what the window that leads does not hold."""

    chooses_deletes = True

    def __init__(self, options: AdaptiveWindow, source: Source) -> None:
        super().__init__(options, source)
        self._active = ActiveList(np.empty(0, dtype=np.int64))
        self._scouts = Scouts(source)

    def begin_with(self, rows: Iterator[Rows]) -> None:
        """Leave the rows where they are: scouts need the features of all."""

    def _next(self, size: int) -> UpdateBatch | None:
        ops, parts, gone, made = [], [], [], 0
        while made < size and (available := self._available(min(size - made, self._scouts.rows_to_choice))):
            op, rows, deleted = self._step(available, size - made, self._seq + made)
            ops.append(op)
            parts += [rows] if len(rows) else []
            gone.append(deleted)
            made += len(op)
            if self._live is not None:  # which is brought up to date after the batch
                break
        if not ops:
            self._reader.finish()
            return None
        return self._spread(np.concatenate(ops), Rows.joined(parts or [self._take(0)]), np.concatenate(gone))

    def _step(self, available: int, most: int, seq: int) -> tuple[AnyArray, Rows, Ints]:
        """Return at most so many operations from ``seq`` on, up to the next choice, with their rows and deleted ids."""
        live, window = len(self._active), self._window(seq)
        if seq < self.warmup:
            most = min(most, self.warmup - seq)
        cut = min(max(0, live - window), most)
        filling = max(0, min(available, window - live + cut))
        length = min(most - cut, filling + 2 * (available - filling)) if live - cut <= window else 0
        op = np.full(cut + length, INSERT, dtype=np.int8)
        op[:cut] = DELETE
        op[cut + filling :: 2] = DELETE
        deletes = int(np.count_nonzero(op == DELETE))
        rows = self._take(len(op) - deletes)
        self._active.push(rows.id)
        if len(rows):
            self._scouts.learn(rows)
        return op, rows, self._active.take_first(deletes).copy()

    def _window(self, seq: int) -> int:
        """Return how many rows are to be live at update ``seq``; within the warm-up all are."""
        window = self._scouts.window
        return END if window is None or seq < self.warmup else window

    def _deletes_before(self, row: Rows) -> bool:
        """Return True if the example with this id is to be deleted before the row is inserted."""
        excess = max(0, len(self._active) + 1 - self._window(self._seq))
        return bool((self._active.view()[:excess] == row.id[0]).any())

    def length(self) -> int | None:
        """Return twice the rows, of which each may be deleted; once without scouts."""
        n = self.source.n_rows
        return None if n is None else n if self.source.features.sparse else 2 * n

    def let_go(self) -> None:
        """Let go of the scouts, which know rows that are not live."""
        self._scouts = Scouts(self.source)

    def figures(self) -> dict[str, Any]:
        """Return the window, and how often each scout was right."""
        return {"adaptive_window": self._scouts.figures()}

    def follow_update(
        self, deleted: Ints, inserted: Ints, updates: int, names: Mapping[str, Any], n_classes: int
    ) -> None:
        """Continue after updates from outside of the stream; scouts forget what these delete, and learn none."""
        super().follow_update(deleted, inserted, updates, names, n_classes)
        self._scouts.forget(deleted)

    def state(self) -> dict[str, Any]:
        """Position, dictionaries, the active ids, oldest first, and the scouts."""
        scouts = {f"{SCOUTS}{name}": part for name, part in self._scouts.state().items()}
        return {**super().state(), "active": self._active.array(), **scouts}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        super().restore(state)
        self._active = ActiveList(state["active"])
        own = {name.removeprefix(SCOUTS): part for name, part in state.items() if name.startswith(SCOUTS)}
        self._scouts.restore(own)


class AdaptiveWindow(RowStreamOptions):
    """As many of the most recent rows are live as predict the next row best."""

    stream = AdaptiveWindowStream
    reads_features = True
    model: Literal["adaptive_window"] = "adaptive_window"
