"""The updates of change logs applied to a session, scored before they are learned, with what the receipt tells of them.

Invariant: figures are those at the moment of each update, whatever comes after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.updating.change_files import ChangeFile, ChangeStreams, is_weighted
from pipelines.updating.changes import Deletions, Insertions, StateNames
from raydt.arrays.types import AnyArray, Int32s, Ints
from raydt.examples.subjects import objects
from raydt.examples.targets import NUMBERS, Targets, dtype_of, no_targets
from raydt.examples.updates import (
    DELETE,
    DELETE_VALUE,
    INSERT,
    REFUSALS,
    UPDATE,
    WITH_ID,
    BatchResult,
    Log,
    UpdateBatch,
    cut_at,
    joined,
)
from raydt.learners import description_of, traits_of
from raydt.learners.description import Call
from raydt.messages import message
from raydt.sessions.receipt import Receipt, receipt_of
from raydt.sessions.saved_model import SavedModel
from raydt.sessions.session import InProcessSession
from raydt.sources.encoded_source import EncodedSource
from raydt.streams.changelog import ChangelogStream
from raydt.streams.tally import Tally, known

log = logging.getLogger(__name__)

_NONE = np.empty(0, dtype=np.int64)


#: Updates, counts and scores.
Told = tuple[int, dict[str, int], dict[str, Any]]


_OF_STATE = object()  #: In place of the subject of an example that the state before had.


#: Counts of an update, as in a summary.
COUNTED = ("inserts", "deletes", "replaced", "queries", "predictions", "refused", "skipped")


#: Updates in a batch.
_BATCH = 1 << 12


class Applied:
    """Application of the updates of change logs to a session, in their order.

    If it ``begins``, the session has seen no update.
    """

    def __init__(
        self, saved: SavedModel, session: InProcessSession, streams: ChangeStreams, *, begins: bool = False
    ) -> None:
        self._saved, self._session, self._streams, self._begins = saved, session, streams, begins
        self._begin = int(saved.meta["offset"])
        self.told: Told = (0, {}, {})
        self.sums: AnyArray = np.zeros(0)  #: Sums of the scores of these updates alone.
        self.prequential: dict[str, Any] = {}
        nothing = no_targets(0, dtype_of(traits_of(saved.options).reading.regression))
        self._gone = [_Deleted(_NONE, _NONE, [], nothing, [])]
        self._whose: dict[int, Any] = {}  # subjects of the live examples that these updates have inserted, by id
        self._new_ids: list[Ints] = []
        self._new_names: list[Any] = []
        self._path: list[AnyArray] = []
        self._logs: list[Log] = []

    def run(self, files: Sequence[ChangeFile], copies: tuple[str, ...]) -> Receipt:
        """Apply files, and return the receipt; InputError for a bad row, UpdateError for a refused update."""
        session, tally = self._session, None
        digest = None if self._begins else session.digest()
        before, active = session.statistics(), session.coordinator.store.live
        for stream in self._streams.streams(files):
            tally = self._tally(stream, tally)
            for batch in stream.batches(_BATCH):
                for name in stream.source.lost.take() if isinstance(stream.source, EncodedSource) else ():
                    log.warning(message("rows.lost", column=name), extra={"event": "lost_column"})
                self._streams.require_labels(stream, batch)
                whose = stream.subjects_since(batch.start)
                for piece in _pieces(batch):
                    self._apply(piece, stream, tally, whose)
            tally.record_skipped(stream.take_skipped())
        assert tally is not None
        if self._begins or traits_of(self._saved.options).collects_updates:
            self._logs.append(session.finish())
        counts = {name: int(getattr(tally, name)) for name in COUNTED}
        self.sums = tally.prequential.sums() - self.sums
        tally.prequential.mark()
        scores = known({name: float(values[-1]) for name, values in tally.prequential.take_rows().items()})
        self.told, self.prequential = (tally.updates - self._begin, counts, scores), tally.prequential.state()
        return self._receipt(digest, before, active, copies)

    def _tally(self, stream: ChangelogStream, before: Tally | None) -> Tally:
        """Return the counts of a file, which go on from those of the file before, or from the scores of the state."""
        tally = Tally(stream, weighted=is_weighted(self._saved.meta))
        if before is not None:
            tally.restore(before.state())
            return tally
        if "scores" in self._saved.components:
            tally.prequential.restore(self._saved.components["scores"])
        self.sums = tally.prequential.sums()
        tally.prequential.mark()  # a window begins
        tally.prequential.take_rows()
        tally.updates = self._begin
        return tally

    def _apply(self, batch: UpdateBatch, stream: ChangelogStream, tally: Tally, whose: Mapping[int, Any]) -> None:
        store = self._session.coordinator.store
        by_value = batch.op[0] == DELETE_VALUE  # alone in its piece
        asked = self._equal(batch) if by_value else store.find(batch.id)
        ids, y = (
            column[asked] if len(column) else np.zeros(len(asked), column.dtype) for column in (store.id, store.y)
        )
        named = ids if by_value else batch.id
        result = self._session.apply(batch, skip_refused=self._streams.skips)
        tally.record(batch, result, 0.0)
        if result.applied < len(batch):
            refusal = result.refused[-1]
            remedy = message("updates.skip_update", remedy=REFUSALS[refusal.reason][1])
            raise tally.update_error(batch, refusal).but(remedy=remedy)
        taken = np.ones(len(batch), dtype=np.bool_)
        taken[[refusal.position for refusal in result.refused]] = False
        deleted = np.flatnonzero(taken & ((batch.op == DELETE) | (batch.op == UPDATE) | by_value))
        at = deleted + batch.start
        of_new = [self._whose.pop(one, _OF_STATE) for one in named[deleted].tolist()]
        self._gone.append(_Deleted(at, named[deleted], stream.names_of(named[deleted]), y[deleted], of_new))
        begun = np.flatnonzero(taken & ((batch.op == INSERT) | (batch.op == UPDATE)))
        inserted = batch.id[begun]
        if whose:
            numbers = (begun + batch.start).tolist()
            self._whose |= {one: whose[number] for one, number in zip(inserted.tolist(), numbers, strict=True)}
        self._new_ids.append(inserted)
        self._new_names += stream.names_of(inserted)
        self._path.append(result.path)
        self._logs.append(result.log)

    def _equal(self, batch: UpdateBatch) -> Int32s:
        """Return the slot of the example that a deletion by value takes: of those that equal its row, the oldest."""
        if not self._session.coordinator.store.live:
            return np.empty(0, dtype=np.int32)
        sparse = {} if batch.sparse is None else {"sparse": batch.sparse}
        equal = self._session.coordinator.find_equal(batch.X, 0, batch.y[0].item(), **sparse)
        return self._session.driver.run(equal)[:1]

    @property
    def session(self) -> InProcessSession:
        """The session."""
        return self._session

    @property
    def seq(self) -> int:
        """Number of the next update."""
        return self._streams.seq

    def whose(self, names: StateNames) -> npt.NDArray[np.object_] | None:
        """Return the subjects of the deleted examples, in the order of the receipt; None where no row has one."""
        if names.subject_kind is None:
            return None
        gone = _Deleted.joined(self._gone)
        of_state = names.subjects.of(gone.ids)
        return np.where([one is _OF_STATE for one in gone.whose], of_state, objects(gone.whose))

    @property
    def deletions(self) -> Deletions:
        """Ids that were deleted, those of replaced examples among them."""
        found = _Deleted.joined(self._gone)
        return Deletions(_shown(found.names, found.ids), found.ids)

    @property
    def insertions(self) -> Insertions:
        """Ids that were inserted, and what the state knows after them."""
        ids = np.concatenate([_NONE, *self._new_ids])
        return self._streams.known(_shown(self._new_names, ids), ids)

    def _receipt(self, digest: str | None, before: Mapping[str, int], active: int, copies: tuple[str, ...]) -> Receipt:
        options, session, gone = self._saved.options, self._session, _Deleted.joined(self._gone)
        statistics, path = session.statistics(), np.concatenate([np.empty(0, dtype=np.int32), *self._path])
        result = BatchResult(len(path), np.empty(0), log=joined(self._logs), path=path, statistics=statistics)
        grown = {name: statistics[name] - before[name] for name in traits_of(options).counts}
        effects = description_of(options).effects(Call(gone.seq, path[gone.seq - self._begin], result, grown))
        numeric = gone.y.dtype == NUMBERS
        labels = gone.y if numeric else np.array([*self._streams.classes, None], dtype=object)[:-1][gone.y]
        return receipt_of(
            options,
            effects,
            {"id": _shown(gone.names, gone.ids), "label": labels},
            _shown(self._new_names, np.concatenate([_NONE, *self._new_ids])),
            active=(active, session.coordinator.store.live),
            digests=(digest, session.digest()),
            copies=copies,
            log=result.log,
        )


class _Deleted(NamedTuple):
    """Examples that updates deleted, in their order."""

    seq: Ints  #: Numbers of the updates.
    ids: Ints
    names: list[Any]  #: Ids as the user knows them.
    y: Targets
    whose: list[Any]  #: Their subjects; :data:`_OF_STATE` of an example that was live before the updates.

    @staticmethod
    def joined(parts: Sequence[_Deleted]) -> _Deleted:
        """Return the examples of parts, at least one, in their order."""
        seq, ids, names, y, whose = zip(*parts, strict=True)
        lists = ([*chain.from_iterable(one)] for one in (names, whose))
        return _Deleted(np.concatenate(seq), np.concatenate(ids), next(lists), np.concatenate(y), next(lists))


def _shown(names: list[Any], ids: Ints) -> AnyArray:
    """Return ids as the user knows them: int64, or strings."""
    return objects(names) if any(isinstance(name, str) for name in names) else ids


def _pieces(batch: UpdateBatch) -> Iterator[UpdateBatch]:
    """Yield a batch in pieces in which no id comes twice, and deletions by value are alone."""
    places: list[int] = []
    seen: set[int] = set()
    alone = False
    for place, (op, i) in enumerate(zip(batch.op.tolist(), batch.id.tolist(), strict=True)):
        if alone or op == DELETE_VALUE or (WITH_ID[op] and i in seen):
            places += [place] if place else []
            seen = set()
        alone = op == DELETE_VALUE
        if WITH_ID[op]:
            seen.add(i)
    return cut_at(batch, places)
