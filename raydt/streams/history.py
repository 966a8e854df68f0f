"""The raw history of a stream for an audit: which example was live during which updates.

Independent of any learner: a plain replay with a dictionary, which decides for itself which updates are refused.
"""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Iterator

import numpy as np

from raydt.arrays.sparse import SparseRows, concatenated
from raydt.arrays.types import Floats, Ints
from raydt.errors import InputError
from raydt.examples.history import History
from raydt.examples.row_owners import are_in
from raydt.examples.targets import Targets, no_targets
from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, QUERY, UPDATE, UpdateBatch
from raydt.examples.weights import DTYPE, UNIT, Weights
from raydt.exchange.messages import Buckets
from raydt.messages import message
from raydt.sources.base import Source
from raydt.streams.base import Stream

#: A row's bytes and its label.
_Value = tuple[bytes, int | float]

_LIVE = np.iinfo(np.int64).max
_BATCH = 1 << 14


def history_of(stream: Stream, stop: int | None = None, own: Buckets | None = None) -> History:
    """Replay ``stream``, up to ``stop`` updates, and return every example inserted, in order; in ``own`` buckets only.

    An update is a delete and an insert of one number; what cannot be applied has no effect. InputError for own buckets
    of a stream that deletes by value.
    """
    history = Replay(stream.source, own)
    history.read(stream, stop)
    return history.result()


class Replay:
    """A history while it is recorded: of a stream over ``source``, and of updates from elsewhere in between.

    Of the examples in ``own`` buckets alone, if these are given: what becomes of an id depends on no other.
    """

    def __init__(self, source: Source, own: Buckets | None = None) -> None:
        self._own = own
        d, width, target_dtype = len(source.features.names), source.features.sparse, source.target_dtype
        self._done, self._complete = 0, True
        self._live: dict[int, int] = {}  # id -> index below, in the order of insertion
        self._id, self._inserted, self._deleted = array("q"), array("q"), array("q")
        self._X: list[Floats] = [np.empty((0, d))]
        self._sparse = [SparseRows.empty(width)] if width else []
        self._y: list[Targets] = [no_targets(0, target_dtype)]
        self._weights: list[Weights | None] = []  # of the batches
        self._kept: list[int] = []  # examples of each batch
        self._warmup = 0
        #: Places in the lists above of the examples with one row and label, oldest first; dead ones may be among them.
        self._by_value: defaultdict[_Value, deque[int]] | None = None

    def begin(self, history: History, updates: int) -> None:
        """Begin after so many updates, with the examples of then; what else was deleted before is not known."""
        self._done, self._complete = updates, False
        told = history.id, history.inserted, history.deleted
        self._id, self._inserted, self._deleted = (array("q", numbers.tobytes()) for numbers in told)
        self._live = {self._id[i]: i for i in np.flatnonzero(history.deleted == _LIVE).tolist()}
        self._X, self._y, self._kept = [history.X], [history.y], [len(self._id)]
        self._sparse = [] if history.sparse is None else [history.sparse]
        self._weights = [history.weight]

    def read(self, stream: Stream, stop: int | None = None) -> None:
        """Replay ``stream`` up to update ``stop``, reading no further than that."""
        while stop is None or self._done < stop:
            batch = next(stream.batches(_BATCH if stop is None else min(_BATCH, stop - self._done)), None)
            if batch is None:
                return
            self.add(batch)

    def find(self, ids: Ints) -> Ints:
        """Return the place of the live example of each id; -1 where there is none."""
        return np.array([self._live.get(i, -1) for i in ids.tolist()], dtype=np.int64)

    @property
    def live(self) -> set[int]:
        """Ids of the live examples."""
        return set(self._live)

    @property
    def living(self) -> tuple[Ints, Ints]:
        """Ids of the live examples, and the numbers of the updates that inserted them."""
        born = [self._inserted[index] for index in self._live.values()]
        return np.array([*self._live], dtype=np.int64), np.array(born, dtype=np.int64)

    @property
    def next_id(self) -> int:
        """One more than the largest id ever inserted."""
        return max(self._id, default=-1) + 1

    def add(self, batch: UpdateBatch) -> None:
        """Replay one batch."""
        self._done = batch.stop
        if not batch.start:
            self._warmup = batch.warmup
        elif batch.ends_warmup:
            self._warmup = min(self._warmup, batch.warmup)
        if self._by_value is None and DELETE_VALUE in batch.op:
            self._by_value = self._index()
        carried = np.cumsum(CARRIES_ROW[batch.op]) - 1
        kept: list[int] = []
        for place, op, i in self._updates(batch):
            seq = batch.start + place
            if op == DELETE_VALUE:
                found = self._oldest(_value(batch.X, batch.y, batch.sparse, int(carried[place])))
                if found is not None:
                    self._remove(found, seq)
            elif op == DELETE:
                if i in self._live:
                    self._remove(i, seq)
            elif op != QUERY and (i in self._live) == (op == UPDATE):
                if op == UPDATE:
                    self._remove(i, seq)
                row = int(carried[place])
                if self._by_value is not None:
                    self._by_value[_value(batch.X, batch.y, batch.sparse, row)].append(len(self._id))
                self._live[i] = len(self._id)
                self._id.append(i)
                self._inserted.append(seq)
                self._deleted.append(int(_LIVE))
                kept.append(row)
        self._X.append(batch.X[kept])
        if batch.sparse is not None:
            self._sparse.append(batch.sparse[kept])
        self._y.append(batch.y[kept])
        self._weights.append(None if batch.weight is None else batch.weight[kept])
        self._kept.append(len(kept))

    def _updates(self, batch: UpdateBatch) -> Iterator[tuple[int, int, int]]:
        """Return place, operation and id of the updates of a batch, of own buckets alone."""
        if self._own is None:
            return zip(range(len(batch.op)), batch.op.tolist(), batch.id.tolist(), strict=True)
        if (batch.op == DELETE_VALUE).any():
            raise InputError(message("audits.by_value"))
        own = np.flatnonzero(are_in(batch.id, self._own))
        return zip(own.tolist(), batch.op[own].tolist(), batch.id[own].tolist(), strict=True)

    def _remove(self, i: int, seq: int) -> None:
        self._deleted[self._live.pop(i)] = seq

    def _index(self) -> defaultdict[_Value, deque[int]]:
        """The examples replayed so far by value."""
        X, y, sparse = np.concatenate(self._X), np.concatenate(self._y), self._all_sparse()
        by_value: defaultdict[_Value, deque[int]] = defaultdict(deque)
        for index in self._live.values():
            by_value[_value(X, y, sparse, index)].append(index)
        return by_value

    def _all_sparse(self) -> SparseRows | None:
        return concatenated(self._sparse) if self._sparse else None

    def _oldest(self, value: _Value) -> int | None:
        """Id of the oldest live example of a value. Amortised O(1): a dead one is met once."""
        assert self._by_value is not None
        places = self._by_value[value]
        while places:
            index = places.popleft()
            if self._deleted[index] == _LIVE:
                return self._id[index]
        return None

    def result(self) -> History:
        """Everything replayed so far."""
        return History(
            id=np.array(self._id, dtype=np.int64),
            X=np.concatenate(self._X),
            y=np.concatenate(self._y),
            inserted=np.array(self._inserted, dtype=np.int64),
            deleted=np.array(self._deleted, dtype=np.int64),
            warmup=self._warmup if self._complete else 0,
            complete=self._complete,
            sparse=self._all_sparse(),
            weight=self._all_weights(),
        )

    def _all_weights(self) -> Weights | None:
        """Weights of all examples, if there are some."""
        if all(weights is None for weights in self._weights):
            return None
        ones = (np.full(n, UNIT, dtype=DTYPE) for n in self._kept)
        return np.concatenate(
            [one if weights is None else weights for weights, one in zip(self._weights, ones, strict=True)]
        )


def _value(X: Floats, y: Targets, sparse: SparseRows | None, row: int) -> _Value:
    """Row and label as one key; equal rows have equal bytes, since there is no -0.0 and but one NaN."""
    ones = b"" if sparse is None else sparse.row(row).tobytes()
    return X[row].tobytes() + ones, y[row].item()
