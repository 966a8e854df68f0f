"""The raw history of a stream for an audit: which example was live during which updates.

Independent of any learner: a plain replay with a dictionary, which decides for itself which updates are refused.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from raydt.audit import History
from raydt.streams.base import Stream
from raydt.updates import CARRIES_ROW, DELETE, DELETE_VALUE, QUERY, UPDATE, UpdateBatch

_LIVE = np.iinfo(np.int64).max
_BATCH = 1 << 14


def history_of(stream: Stream, stop: int | None = None) -> History:
    """Replay ``stream`` and record every example that was inserted.

    An update is a delete and an insert at the same sequence number. Updates that cannot be applied (insert of a live
    id, delete or update of an unknown id, delete of a value nobody holds) have no effect.

    Parameters
    ----------
    stream : Stream
        Fresh, or at the position from which the history is wanted.
    stop : int, optional
        Number of updates, refused ones included, that were taken; all, if None.

    Returns
    -------
    History
        Examples in the order of insertion; ``warmup`` is the stream's.

    Notes
    -----
    O(1) per update. From the first delete by value on, examples are also kept by value, which takes O(d) each.
    """
    history = _Replay(len(stream.source.features))
    for batch in _until(stream, stop):
        history.add(batch)
    return history.result()


def _until(stream: Stream, stop: int | None) -> Iterator[UpdateBatch]:
    """Batches of ``stream`` up to update ``stop``, reading no further than that."""
    done = 0
    while stop is None or done < stop:
        batch = next(stream.batches(_BATCH if stop is None else min(_BATCH, stop - done)), None)
        if batch is None:
            return
        done = batch.stop
        yield batch


class _Replay:
    def __init__(self, d: int) -> None:
        self._live: dict[int, int] = {}  # id -> index below, in the order of insertion
        self._id: list[int] = []
        self._inserted: list[int] = []
        self._deleted: list[int] = []
        self._X: list[npt.NDArray[np.float64]] = [np.empty((0, d))]
        self._y: list[npt.NDArray[np.int32]] = [np.empty(0, dtype=np.int32)]
        self._warmup = 0
        #: Places in the lists above of the examples with one row and label, oldest first; dead ones may be among them.
        self._by_value: defaultdict[tuple[bytes, int], deque[int]] | None = None

    def add(self, batch: UpdateBatch) -> None:
        """Replay one batch."""
        self._warmup = batch.warmup
        if self._by_value is None and DELETE_VALUE in batch.op:
            self._by_value = self._index()
        carried = np.cumsum(CARRIES_ROW[batch.op]) - 1
        kept: list[int] = []
        for place, (op, i) in enumerate(zip(batch.op.tolist(), batch.id.tolist(), strict=True)):
            seq = batch.start + place
            if op == DELETE_VALUE:
                found = self._oldest(_value(batch.X, batch.y, int(carried[place])))
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
                    self._by_value[_value(batch.X, batch.y, row)].append(len(self._id))
                self._live[i] = len(self._id)
                self._id.append(i)
                self._inserted.append(seq)
                self._deleted.append(int(_LIVE))
                kept.append(row)
        self._X.append(batch.X[kept])
        self._y.append(batch.y[kept])

    def _remove(self, i: int, seq: int) -> None:
        self._deleted[self._live.pop(i)] = seq

    def _index(self) -> defaultdict[tuple[bytes, int], deque[int]]:
        """The examples replayed so far by value."""
        X, y = np.concatenate(self._X), np.concatenate(self._y)
        by_value: defaultdict[tuple[bytes, int], deque[int]] = defaultdict(deque)
        for index in self._live.values():
            by_value[_value(X, y, index)].append(index)
        return by_value

    def _oldest(self, value: tuple[bytes, int]) -> int | None:
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
            warmup=self._warmup,
        )


def _value(X: npt.NDArray[np.float64], y: npt.NDArray[np.int32], row: int) -> tuple[bytes, int]:
    """Row and label as one key; equal rows have equal bytes, since -0.0 does not occur."""
    return X[row].tobytes(), int(y[row])
