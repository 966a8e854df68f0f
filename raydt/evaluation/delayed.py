"""Predictions that wait for their labels: a query comes first, and the example with its label is inserted later.

Invariant: what is scored is the prediction of the latest query of an id before its insertion, beside what the baselines
predicted at that query; they knew no label that came after it. An example that was never asked about is scored by the
prediction just before its insertion. A query whose label never comes is kept, and never scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray, Bools, Ints
from raydt.evaluation.ranking import NO_LEVEL

#: What is kept of a query.
_COLUMNS = ("id", "prediction", "level", "no_change", "rival")


class Asked(NamedTuple):
    """Rows of a batch that were inserted or only predicted, in stream order; arrays of one length n."""

    id: Ints
    query: Bools  #: Only predicted.
    truth: AnyArray  #: ``truth``, ``prediction``: The truth of a query is not read.
    prediction: AnyArray
    levels: npt.NDArray[np.uint16] | None
    seq: Ints
    weight: npt.NDArray[np.uint32] | None = None  #: That of a query is not read.


class Delayed:
    """Scores a stream of queries and of labels that come later."""

    def __init__(self, evaluation: Any) -> None:
        self._evaluation = evaluation
        self._asked: dict[int, tuple[Any, int, Any, Any]] = {}  # id -> prediction, level, and those of the baselines

    def update(self, rows: Asked) -> None:
        """Take rows into account. O(1) for each, in Python."""
        inserted = ~rows.query
        learned = rows.truth[inserted]
        rivals = self._evaluation.rivals(learned)
        # What the baselines predict at a query is what they predict at the next insertion.
        known = [np.append(rival, now) for rival, now in zip(rivals, self._evaluation.rivals_now(), strict=True)]
        place: Ints = np.cumsum(inserted) - inserted
        prediction = rows.prediction.copy()
        levels = np.full(len(rows.id), NO_LEVEL) if rows.levels is None else rows.levels.copy()
        for i, (id_, query, at) in enumerate(zip(rows.id.tolist(), rows.query.tolist(), place.tolist(), strict=True)):
            if query:
                self._asked[id_] = (prediction[i].item(), int(levels[i]), known[0][at].item(), known[1][at].item())
            elif id_ in self._asked:
                prediction[i], levels[i], rivals[0][at], rivals[1][at] = self._asked.pop(id_)
        given = None if rows.levels is None else levels[inserted]
        weight = None if rows.weight is None else rows.weight[inserted]
        self._evaluation.score(learned, prediction[inserted], rivals, given, rows.seq[inserted], weight)

    def state(self) -> dict[str, Any]:
        """Return queries that wait, in order: arrays of one length."""
        columns = list(zip(*((id_, *entry) for id_, entry in self._asked.items()), strict=True)) or [()] * 5
        return {
            f"asked_{name}": np.array(column, dtype=np.int64 if name in ("id", "level") else np.float64)
            for name, column in zip(_COLUMNS, columns, strict=True)
        }

    def restore(self, state: Mapping[str, Any], dtype: np.dtype[Any]) -> None:
        """Resume from what :meth:`state` gave; ``dtype`` is that of the targets."""
        columns = (state[f"asked_{name}"] for name in _COLUMNS)
        kinds = (np.int64, dtype, np.int64, dtype, dtype)
        lists = (column.astype(kind).tolist() for column, kind in zip(columns, kinds, strict=True))
        self._asked = {id_: (*entry,) for id_, *entry in zip(*lists, strict=True)}
