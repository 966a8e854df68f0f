"""Schedule of the searches for a split, and the steps sent to the shards.

The search is due at the end of the warm-up, and later after every update whose number, counted from 1, is a multiple of
``query_every``: so the places of the searches depend on the stream alone, never on how it is cut into batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.learners.sequential import ADD, LOOK

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class SearchSteps(NamedTuple):
    """Steps for the shards, and the searches among them."""

    #: Shape (steps,): 1: a row comes, -1: it goes, 0: only a search; times its mass where examples have weights.
    sign: npt.NDArray[Any]
    slots: npt.NDArray[np.int32]  #: Shape (steps,).
    query: Bools  #: Shape (steps,): whether the split is searched after a step.
    seq: Int64  #: Shape (searches,): the update after which each search was due first.

    def __len__(self) -> int:
        return len(self.sign)


def due(begin: int, stop: int, warmup: int, every: int) -> Int64:
    """Numbers of the updates in ``begin``, ..., ``stop`` - 1 after which the split is searched."""
    first = max(begin, warmup)
    multiples = np.arange(-(-(first + 1) // every) * every, stop + 1, every, dtype=np.int64) - 1
    return np.append(np.int64(warmup - 1), multiples) if begin < warmup <= stop else multiples


def work_of(
    kind: npt.NDArray[np.int32], slots: npt.NDArray[np.int32], seq: Int64, searches: Int64, fresh: bool
) -> SearchSteps:
    """Return the shards' work: steps, and searches after some updates; ``fresh``: unchanged since the last one."""
    changes = kind != LOOK
    kind, slots, seq = kind[changes], slots[changes], seq[changes]
    last = np.searchsorted(seq, searches, side="right")  # steps before each search
    places, first = np.unique(last, return_index=True)
    if fresh and len(places) and places[0] == 0:
        places, first = places[1:], first[1:]
    sign = np.concatenate([[0], np.where(kind == ADD, 1, -1)]).astype(np.int8)  # step 0 is for a search before all
    query = np.zeros(len(sign), dtype=np.bool_)
    query[places] = True
    begin = int(not query[0])
    return SearchSteps(
        sign[begin:], np.append(np.int32(0), slots)[begin:].astype(np.int32), query[begin:], searches[first]
    )
