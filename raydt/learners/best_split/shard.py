"""The work of a shard of the sparse best split: keep its features of every live row, and the finder of its groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from raydt.arrays.types import AnyArray, Int32s, Ints
from raydt.batches.rows_on_shards import ShardWithRows, without_rows
from raydt.examples.features import Features
from raydt.finders.finder import Finder, FinderName, FinderSteps
from raydt.learners.best_split.options import BestSplitOptions

#: Finders by their number in messages and states.
FINDERS: tuple[FinderName, ...] = get_args(FinderName)
#: The number of no finder yet.
UNDECIDED = -1

#: Steps whose rows are put together at once.
_TOGETHER = 1 << 14


class BestSplitShard(ShardWithRows):
    """Owner of whole feature groups."""

    def __init__(self, options: BestSplitOptions, features: Features, groups: Ints) -> None:
        super().__init__(features, groups)
        self._options = options
        self._unit_of = np.full(features.groups, -1, dtype=np.int32)
        self._unit_of[groups] = np.arange(len(groups))
        self._number, self._finder = UNDECIDED, self._new_finder("scan")

    def _new_finder(self, name: FinderName) -> Finder:
        return Finder(name, self._options.entropy, self._options.alpha, len(self.groups))

    def _on_measure(self, slots: Any) -> Ints:
        """How many features are 1 in some of the rows, and how many ones these have."""
        self._held.make_room(slots)
        ones = self._held.sparse(np.array(slots)).indices
        return np.array([len(np.unique(ones)), len(ones)], dtype=np.int64)

    def _on_steps(self, finder: int, sign: Any, label: Any, slots: Any, query: Any) -> dict[str, AnyArray]:
        """Take steps; return candidates of each search, shape (groups, searches, 3), and the structures' ``work``."""
        if finder != self._number:
            self._number, self._finder = finder, self._new_finder(FINDERS[finder])
        self._weigh(np.array(sign))
        self._held.make_room(slots)
        moved, parts = self._finder.moves, []
        for begin in range(0, len(sign), _TOGETHER):
            part = slice(begin, begin + _TOGETHER)
            with_row = sign[part] != 0
            rows = self._held.sparse(np.array(slots[part])[with_row])
            indptr = np.zeros(len(with_row) + 1, dtype=np.int64)
            indptr[1:][with_row] = rows.lengths
            unit = self._unit_of[self._features.groups_of(rows.indices)]
            where = np.cumsum(indptr), rows.indices, unit
            steps = FinderSteps(np.array(sign[part]), np.array(label[part]), *where, np.array(query[part]))
            parts.append(self._finder.apply(steps))
        candidates = np.ascontiguousarray(np.concatenate(parts).swapaxes(0, 1))
        work = np.array([self._finder.moves - moved, self._finder.buckets_filled], dtype=np.int64)
        return {"candidates": candidates, "work": work}

    def _weigh(self, counts: AnyArray) -> None:
        """Make all counts masses with the first ones that are: these are of int64."""
        if counts.dtype == np.int64 and not self._finder.weighted:
            self._finder.weigh()

    def state(self, slots: Int32s) -> dict[int, dict[str, Any]]:
        """Counters and bucket of every feature that is 1 somewhere, by group; ``node`` is the finder, n and c1."""
        node = np.array([self._number, self._finder.n, self._finder.c1], dtype=np.int64)
        return {g: {**self._finder.state(unit), "node": node} for unit, g in enumerate(self.groups.tolist())}

    def restore(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ... as they do at the coordinator."""
        self._held.restore(state)
        parts = [without_rows(state[g]) for g in self.groups.tolist()]
        if not parts:
            return
        self._number, n, c1 = parts[0]["node"].tolist()
        if self._number != UNDECIDED:
            self._finder = self._new_finder(FINDERS[self._number])
            self._weigh(parts[0]["n1"])
            self._finder.restore(n, c1, parts)
