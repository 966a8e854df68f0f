"""Numbers of threads, comparisons with slow twins, and actors in this process."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from actors.liveness import Peer
from raydt import parallel as threads
from raydt.arrays import blocks
from raydt.audits import recorded_tree
from raydt.batches import binning
from raydt.encoding import features
from raydt.estimators import frames
from raydt.examples import digest as row_digest
from raydt.examples.updates import UpdateBatch
from raydt.exchange import links
from raydt.learners.best_split import coordinator as best_split_coordinator
from raydt.learners.confidence_tree import tree as confidence_tree_trees
from raydt.learners.forest import audit as forest_audit
from raydt.learners.forest import trees
from raydt.learners.fudyadt import build_divided, dynamic_tree
from raydt.learners.gbdt import audit as gbdt_audit
from raydt.learners.gbdt import ensemble
from raydt.learners.gbdt import shard as gbdt_shard
from raydt.parallel import limited
from raydt.sessions.session import InProcessSession
from raydt.trees import packed_trees, shapley

# -- crews -----------------------------------------------------------------------------------------------------------
# Work divided among threads in tests: however little it is, by real threads or by simulated ones.

#: Numbers of threads that every net has cases with.
NUMBERS = (1, 2, 3, 5)
#: What work is too little for threads below, and a value with which hardly any is.
LITTLE: tuple[tuple[Any, str, int], ...] = (
    (recorded_tree, "FEW_ROWS", 1),
    (gbdt_audit, "_FEW_ROWS", 1),
    (ensemble, "_FEW_CELLS", 1),
    (confidence_tree_trees, "_FEW_ROWS", 1),
    (best_split_coordinator, "_FEW_ROWS", 1),
    (forest_audit, "TOGETHER", 100),
    (features, "_FEW_CELLS", 1),
    (frames, "_FEW_CELLS", 1),
    (binning, "_FEW_CELLS", 1),
    (binning, "_FEW_COUNTED", 1),
    (blocks, "_FEW_CELLS", 1),
    (trees, "_FEW", 1),
    (trees, "_FEW_NUMBERS", 1),
    (build_divided, "_FEW_CELLS", 1),
    (dynamic_tree, "LOOP_CELLS", 1),
    (packed_trees, "_TASK_NS", 1),
    (shapley, "_TASK_NS", 1),
    (shapley, "_FEW_NODES", 1),
    (row_digest, "_TOGETHER", 64),
    (links, "_HANDED_OUT", 0),
    (gbdt_shard, "ENCODED_BY_A_TASK", 64),
    (gbdt_shard, "CELLS_OF_A_THREAD", 1),
    (gbdt_shard, "UPDATED_CELLS_OF_A_THREAD", 1),
    (gbdt_shard, "CHANGES_OF_A_THREAD", 1),
)

#: Modules that divide work however little it is: their callers decide, or one task is a whole tree, column or block.
ALWAYS = {
    "learners.forest.leave_out",
    "learners.forest.recompute",
    "learners.gbdt.recompute",
    "sources.file_source",
}


class InAnyOrder(threads._Work[Any]):
    """Tasks of simulated threads: the calling one does them all, in an order that chance draws."""

    def __init__(self, tasks: Sequence[Callable[[], Any]], draw: random.Random) -> None:
        super().__init__(tasks)
        self._next = iter(draw.sample(range(len(tasks)), len(tasks)))


def begin_ahead(submit: Callable[..., None], work: Callable[[], None], at_once: int = 0) -> None:
    """Hand work to the pool if it is begun ahead of its result; a simulated thread never begins."""
    if at_once:
        submit(work, at_once)


@contextmanager
def crew(n: int | None, seed: int | str | None = None) -> Iterator[None]:
    """Divide work among ``n`` threads (None: as many as there are), however little; with a seed they are simulated."""
    with pytest.MonkeyPatch.context() as patch, limited(n):
        for module, name, value in LITTLE:
            patch.setattr(module, name, value)
        if seed is not None:
            patch.setattr(threads, "_Work", partial(InAnyOrder, draw=random.Random(seed)))
            patch.setattr(threads, "submit", partial(begin_ahead, threads.submit))
        yield


def number_of(name: str) -> int:
    """Draw a number of threads, the same for the same name."""
    return random.Random(f"threads of {name}").choice(NUMBERS)


# -- twins -----------------------------------------------------------------------------------------------------------
# A session against a slow twin: both take one stream, and everything that they can be asked is equal throughout.


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
    for (batch, whole), number in zip(batches, itertools.cycle(NUMBERS), strict=False):
        live, ever = len(twin.live), len(twin.ever)
        with crew(number, batch.start):
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


# -- actors here -----------------------------------------------------------------------------------------------------
# Actors in this process: a call of a method gives a future where Ray gives a reference.


class AtOnce(Executor):
    """Does what is asked in the thread that asks."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Return a future that is done."""
        done: Future[Any] = Future()
        try:
            done.set_result(call(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class Handle:
    """An actor, whose calls are made by ``thread``: at once, or one after the other in a thread of its own."""

    def __init__(self, actor: Any, thread: Executor | None = None) -> None:
        self._actor, self._thread = actor, thread or AtOnce()

    def __getattr__(self, name: str) -> Any:
        method, submit = getattr(self._actor, name), self._thread.submit

        class Method:
            @staticmethod
            def options(**_: Any) -> Any:
                return Method

            @staticmethod
            def remote(*arguments: Any) -> Future[Any]:
                return submit(method, *arguments)

        return Method


class Waiting:
    """As :class:`actors.liveness.Watch`, but for who is lost."""

    def collect(self, replies: Sequence[Future[Any]], peers: Sequence[Peer]) -> list[Any]:
        """Return the values, or raise the first error."""
        return [reply.result(60) for reply in replies]
