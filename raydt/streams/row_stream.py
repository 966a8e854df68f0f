"""Base of the stream models: numbering, class counts, warm-up, bad rows, and the state they share.

Invariant: between two batches the state is a function of the updates handed out so far, not of how they were cut into
batches, how the source is chunked or how far it was read ahead. A model that chooses itself what to delete inserts no
id that is live, so that what it deletes is what it inserted: a row with such an id is bad. What ``on_error`` says about
bad rows decides how far the updates go, and none of them: up to where a stream stops or waits, they are those of a
stream that skips. So it may change whenever a run is resumed, and whoever reads a run again skips.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from raydt.arrays.types import Ints
from raydt.errors import ConfigError, InputError
from raydt.examples.subjects import Subjects
from raydt.examples.targets import classes_in, in_order
from raydt.examples.updates import CARRIES_ROW, DELETE, DUPLICATE_ID, INSERT, OP_NAMES, REFUSALS, UPDATE, UpdateBatch
from raydt.examples.weights import unless_equal
from raydt.messages import message
from raydt.redaction import quoted
from raydt.sources.base import Rows, Source
from raydt.streams.base import Skipped, Stream
from raydt.streams.id_dictionary import IdParts
from raydt.streams.reader import RowReader
from raydt.streams.text_ids import TextIds

_NO_IDS = np.empty(0, dtype=np.int64)


class RowStreamOptions(BaseModel, ABC):
    """Options all stream models share; each model's own options extend this one and know how to make the stream."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    warmup: int = Field(
        0,
        ge=0,
        description="number of first updates that build the model in one step (W); fewer where one that is no insert "
        "comes earlier",
    )
    on_error: Literal["error", "skip", "wait"] = Field(
        "error",
        description="error: stop before a bad row; skip: record it and go to the next; wait, of a source that is "
        "followed: go to the next once a newer row of its id is good, or deletes it",
    )

    @abstractmethod
    def make(self, source: Source, base_dir: str | Path = ".") -> Stream:
        """The stream over ``source``; relative paths are relative to ``base_dir``."""


class RowStream(ABC):
    """Updates made from the good rows of a fresh source, in order; ConfigError if it does not fit the model."""

    changelog = False
    chooses_deletes = False
    delayed: bool = False

    def __init__(self, options: RowStreamOptions, source: Source) -> None:
        if source.is_changelog and not self.changelog:
            raise ConfigError(message("streams.changelog_source"))
        if self.changelog and not source.is_changelog:
            raise ConfigError(message("streams.no_changelog"))
        if not source.has_labels:
            raise ConfigError(message("streams.no_label_column"))
        self.source, self.times = source, source.times()
        #: Leading insertions that build the model at once. Fewer than planned once the warm-up has ended early: then
        #: everything from there on is as if this had been planned.
        self.warmup = options.warmup
        self.planned_warmup = options.warmup
        self._skip_bad = options.on_error != "error"  # a source that waits has said that it is to be passed over
        self._skip_refused = options.on_error == "skip"
        self._seq = 0
        self._foreign = 0  # updates before ``_seq`` that came from outside of the stream
        self._foreign_ids: set[int] = set()  # live ids that the stream did not insert
        self._n_classes = source.known_classes
        self._live: set[int] | None = set() if self.chooses_deletes and source.id_kind != "row" else None
        self._reader = RowReader(source, 0, self._skip_bad)
        self._text_ids = TextIds(source.rules) if source.id_kind == "text" else None
        self._subjects = Subjects() if source.subject_kind is not None else None

    def batches(self, size: int) -> Iterator[UpdateBatch]:
        """Yield updates from the current position on, ``size`` to a batch; less before a bad row and at the end.

        Under ``on_error: error`` the step after the batch that ends before a bad row is its InputError.
        """
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        while (batch := self._next(size)) is not None:
            if self._live is not None:
                inserted = batch.op == INSERT
                last = dict(
                    zip(
                        batch.id.tolist(),
                        zip(inserted.tolist(), np.cumsum(inserted).tolist(), strict=True),
                        strict=True,
                    )
                )
                deleted = {id_: rows for id_, (is_live, rows) in last.items() if not is_live}
                self._live.update(last.keys() - deleted.keys())
                self._live.difference_update(deleted)
                if self._text_ids is not None:
                    self._text_ids.end(batch.id[inserted], deleted)
            yield batch

    def divide_ids(self, parts: IdParts) -> None:
        """Have other processes keep the codes of text ids from now on; :meth:`restore` comes next."""
        if self._text_ids is not None:
            self._text_ids.divide(parts)

    def begin_with(self, rows: Iterator[Rows]) -> None:
        """Take the rows of the source, from the first one on, from here; see :meth:`raydt.streams.base.Stream`."""
        self._reader.begin_with(rows)

    @abstractmethod
    def _next(self, size: int) -> UpdateBatch | None:
        """The next at most ``size`` updates; None at the end, which calls ``finish`` of the reader."""

    def _available(self, size: int) -> int:
        """Return how many of the next ``size`` rows can be taken without inserting a live id; 1 if that may go."""
        while (n := self._reader.available(size)) and self._live is not None:
            row = self._peek(1)
            if int(row.id[0]) not in self._live:
                return _before_collision(self._peek(n).id, self._live)
            if self._deletes_before(row):
                return 1
            self._refuse(row)
        return n

    def _peek(self, k: int) -> Rows:
        """The next ``k`` rows, which must be available, with the ids they will have if they are inserted next."""
        rows = self._reader.peek(k)
        if self._text_ids is None or rows.names is None:
            return rows
        return replace(rows, id=self._text_ids.look(rows.names))

    def _take(self, k: int) -> Rows:
        """Hand out the next ``k`` rows, which must be available, as inserts."""
        rows = self._reader.take(k)
        if self._text_ids is None or rows.names is None:
            return rows
        return replace(rows, id=self._text_ids.give(rows.names, np.full(k, INSERT, dtype=np.int8)))

    def _deletes_before(self, row: Rows) -> bool:
        """Return True if this model deletes something before it inserts the next row, whose id is live."""
        return False

    def _refuse(self, row: Rows) -> None:
        """Make the next row bad, because its id is live."""
        name = int(row.id[0]) if row.names is None else row.names[0]
        file, line = self.source.where(int(row.row[0]))
        error = InputError(
            message("streams.live_id", id=quoted(name), problem=REFUSALS[DUPLICATE_ID][0]),
            file=file,
            row=line,
            column=self.source.id_column,
        )
        if not self._skip_refused:
            raise error
        self._reader.skip(error)

    def _cut_warmup(self, op: npt.NDArray[np.int8]) -> int:
        """End the warm-up before an update that is no insert; return how many updates come before the first of those.

        If none does, the warm-up ends here. The next updates are then to be looked for again, since rows that the
        shards have read for it lack features.
        """
        wrong = np.flatnonzero(op[: max(0, self.warmup - self._seq)] != INSERT)
        if not len(wrong):
            return len(op)
        if not wrong[0]:
            self.warmup = self._seq
            self._reader = self._reader.with_features(self._read_from)
        return int(wrong[0])

    def _read_from(self, row: int) -> RowReader:
        """Return a reader of the rows from one on, after those that were handed out."""
        return RowReader(self.source, row, self._skip_bad)

    def _before_first(self, op: int, **place: Any) -> InputError:
        """Return the error of an operation in a warm-up that has inserted nothing."""
        return InputError(message("streams.nothing_live", op=OP_NAMES[op]), **place)

    def _batch(self, op: npt.NDArray[np.int8], ids: Ints, rows: Rows, row: Ints) -> UpdateBatch:
        """Number a batch and count its classes; ``rows`` are those of its updates that carry features."""
        names = None if self._text_ids is None else self._text_ids.names_of(ids)
        start = self._seq
        if self._subjects is not None:
            self._note_subjects(self._subjects, op, ids, rows)
        self._n_classes = max(self._n_classes, classes_in(rows.y))
        self._seq += len(op)
        order = in_order(self.source.classes[: self._n_classes], self.source.positive is not None)
        return UpdateBatch(
            start,
            op,
            ids,
            rows.X,
            rows.y,
            self._n_classes,
            row,
            self.warmup,
            sparse=rows.sparse,
            class_order=order,
            names=names,
            time=rows.ts,
            weight=unless_equal(rows.weight),
        )

    def _note_subjects(self, subjects: Subjects, op: npt.NDArray[np.int8], ids: Ints, rows: Rows) -> None:
        """Note whose rows the next updates insert, and which ids they delete; arguments as of :meth:`_batch`."""
        seq = self._seq + np.arange(len(op))
        ends, begins = (op == DELETE) | (op == UPDATE), (op == INSERT) | (op == UPDATE)
        subjects.end(ids[ends], seq[ends])
        if rows.subject is not None:
            subjects.add(ids[begins], seq[begins], rows.subject[begins[CARRIES_ROW[op]]])

    def _spread(self, op: npt.NDArray[np.int8], rows: Rows, deleted: Ints, deleted_row: Ints | int = -1) -> UpdateBatch:
        """Return a batch of inserts (``rows``) and deletes (ids ``deleted``), each in order, as ``op`` says."""
        insert = op == INSERT
        ids = np.empty(len(op), dtype=np.int64)
        ids[insert] = rows.id
        ids[~insert] = deleted
        row = np.empty(len(op), dtype=np.int64)
        row[insert] = rows.row
        row[~insert] = deleted_row
        return self._batch(op, ids, rows, row)

    def state(self) -> dict[str, Any]:
        """Position and dictionaries; see :meth:`raydt.streams.base.Stream.state`."""
        row = self._reader.position
        state = {"seq": self._seq, "row": row, "n_classes": self._n_classes, "source": self.source.state(row)}
        if self.warmup < self.planned_warmup:
            state["warmup"] = self.warmup
        if self._text_ids is not None:
            state |= self._text_ids.state()
        if self._subjects is not None:
            state |= self._subjects.state()
        if self._foreign:
            state |= {"foreign": self._foreign, "foreign_ids": np.array(sorted(self._foreign_ids), dtype=np.int64)}
        return state

    def follow_update(
        self, deleted: Ints, inserted: Ints, updates: int, names: Mapping[str, Any], n_classes: int
    ) -> None:
        """Continue after updates from outside of the stream; see :meth:`raydt.streams.base.Stream.follow_update`."""
        state = self.state()
        if updates and self._seq < self.warmup:  # they ended it or, if nothing was inserted before, are all of it
            state["warmup"] = min(self.warmup, self._seq or updates)
        if "active" in state:
            kept = ~np.isin(state["active"], deleted)
            state |= {name: state[name][kept] for name in state if name.startswith("active")}
        foreign = np.union1d(np.setdiff1d(state.get("foreign_ids", _NO_IDS), deleted), inserted)
        self.restore(
            {
                **state,
                **names,
                "source": {**state["source"], **names["source"]},
                "seq": self._seq + updates,
                "n_classes": max(self._n_classes, n_classes),
                "foreign": self._foreign + updates,
                "foreign_ids": foreign,
            }
        )

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        self._seq, self._n_classes = int(state["seq"]), int(state["n_classes"])
        self.warmup = int(state.get("warmup", self.planned_warmup))
        self._reader.close()
        self.source.restore(state["source"])
        self._reader = self._read_from(int(state["row"]))
        self._foreign, self._foreign_ids = int(state.get("foreign", 0)), set(state.get("foreign_ids", _NO_IDS).tolist())
        if self._live is not None:
            active = state["active"] if "active" in state else state["subject_ids"]
            self._live = set(active.tolist()) | self._foreign_ids
        if self._text_ids is not None:
            self._text_ids.restore(state)
        if self._subjects is not None:
            self._subjects.restore(state)

    def names_of(self, ids: Ints) -> list[Any]:
        """Return ids of updates handed out as the user knows them."""
        return ids.tolist() if self._text_ids is None else self._text_ids.names_of(ids)

    def subjects_since(self, seq: int) -> dict[int, Any]:
        """Return whose rows the updates from ``seq`` on have inserted, by their numbers; of the newest batch only."""
        return {} if self._subjects is None else self._subjects.since(seq)

    def inputs(self) -> dict[str, Any]:
        """No file other than the source."""
        return {}

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it of an update; see :meth:`raydt.streams.base.Stream.where`."""
        return self.source.where(row)

    def length(self) -> int | None:
        """At most so many updates, where the source's number of rows is known: bad and ignored rows are among them."""
        return self.source.n_rows

    def take_skipped(self) -> list[Skipped]:
        """Bad rows passed over since the last call, up to the current position."""
        skipped, self._reader.skipped = self._reader.skipped, []
        return skipped


def _before_collision(ids: Ints, live: set[int]) -> int:
    """How many ids there are before the first that is live or was among them already; O(1) for each of these."""
    seen: set[int] = set()
    for begin in range(0, len(ids), 64):  # by parts, since the first collision may be near
        for place, id_ in enumerate(ids[begin : begin + 64].tolist(), begin):
            if id_ in seen or id_ in live:
                return place
            seen.add(id_)
    return len(ids)
