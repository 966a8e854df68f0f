"""A session against a slow twin: both take one stream, and everything that they can be asked is equal throughout."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from raydt.examples.updates import UpdateBatch
from raydt.sessions.session import InProcessSession
from tests.crews import NUMBERS, crew


def assert_same(
    batches: Iterable[tuple[UpdateBatch, UpdateBatch]],
    new_session: Callable[[], InProcessSession],
    twin: Any,
    shown: Callable[[Any, Any], Any],
    expected: Callable[[], Any],
    *,
    handovers: Collection[int] = (),
    skip: bool = False,
) -> InProcessSession:
    """Compare predictions, refusals, rebuilds, counts and state after every batch, and return the session at the end.

    Batches are taken with 1, 2, 3 and 5 simulated threads in turn.

    ``batches`` are as the session and as the twin takes them; ``shown`` is what of a state is ``expected``. After the
    batches with the updates ``handovers`` a new session goes on from the state.
    """
    session = new_session()
    for (batch, whole), threads in zip(batches, itertools.cycle(NUMBERS), strict=False):
        live, ever = len(twin.live), len(twin.ever)
        with crew(threads, batch.start):
            result, known = session.apply(batch, skip_refused=skip), twin.process(whole, skip_refused=skip)
        where = f"updates {batch.start} to {batch.stop}"
        assert result.applied == known.applied, where
        assert [(r.position, r.reason) for r in result.refused] == known.refused, where
        np.testing.assert_array_equal(result.predictions, known.predictions, where)
        columns = [result.log[name].tolist() for name in ("seq", "rows", "depth", "nodes")] if result.log else [()]
        assert list(zip(*columns, strict=True)) == known.log, where
        inserts = len(twin.ever) - ever
        assert (result.inserts, result.deletes) == (inserts, live + inserts - len(twin.live)), where
        state = session.state()
        assert shown(*state) == expected(), where
        if result.applied < len(batch):
            break
        if any(batch.start <= update < batch.stop for update in handovers):
            session = new_session()
            session.restore(*state)
            assert shown(*session.state()) == expected(), where
    session.finish()
    twin.finish()
    assert shown(*session.state()) == expected()
    statistics = session.statistics()
    assert (statistics["rebuilds"], statistics["rebuilt_rows"]) == (twin.rebuilds, twin.rebuilt_rows)
    return session
