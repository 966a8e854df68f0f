"""Messages and their answers, cut where a row of metrics is due."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from raydt.examples.updates import CARRIES_ROW, BatchResult, UpdateBatch


def answered(batch: UpdateBatch, result: BatchResult) -> Iterator[tuple[UpdateBatch, BatchResult]]:
    """A message and its result, in pieces that end where the result has statistics within it.

    The last piece has the log of all; traffic is known at the end of a message only, and is that of each piece.
    """
    if not result.within:
        yield batch, result
        return
    begin, moments = 0, iter(result.within)
    for piece in split_at_multiples(batch, batch.every):
        end = begin + len(piece)
        here, last = slice(begin, end), end >= result.applied
        refused = [
            dataclasses.replace(refusal, position=refusal.position - begin)
            for refusal in result.refused
            if begin <= refusal.position < end
        ]
        yield (
            piece,
            dataclasses.replace(
                result,
                applied=min(result.applied, end) - begin,
                predictions=result.predictions[here],
                refused=refused,
                log=result.log if last else {},
                path=result.path[here],
                statistics=result.statistics if last else result.statistics | next(moments),
                snapshot=None,
                levels=None if result.levels is None else result.levels[here],
                within=[],
            ),
        )
        if last:
            return
        begin = end


def split_at_multiples(batch: UpdateBatch, every: int) -> Iterator[UpdateBatch]:
    """``batch`` in pieces that end at multiples of ``every``; whole if it crosses none.

    The pieces share the arrays of ``batch``. A barrier stays with the last piece.
    """
    first = batch.start + every - batch.start % every
    if first >= batch.stop:
        yield batch
        return
    rows_before = np.concatenate(([0], np.cumsum(CARRIES_ROW[batch.op])))
    edges = [0, *range(first - batch.start, len(batch), every), len(batch)]
    for begin, end in pairwise(edges):
        rows = slice(rows_before[begin], rows_before[end])
        yield dataclasses.replace(
            batch,
            start=batch.start + begin,
            op=batch.op[begin:end],
            id=batch.id[begin:end],
            X=batch.X[rows],
            sparse=None if batch.sparse is None else batch.sparse[rows],
            y=batch.y[rows],
            row=batch.row[begin:end],
            names=None if batch.names is None else batch.names[begin:end],
            barrier=batch.barrier if end == len(batch) else None,
        )
