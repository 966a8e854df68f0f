"""Work divided among threads in tests: however little it is, by real threads or by simulated ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from raydt import parallel as threads
from raydt.arrays import blocks
from raydt.audits import recorded_tree
from raydt.encoding import features
from raydt.estimators import frames
from raydt.examples import row_digest
from raydt.exchange import links
from raydt.learners.best_split import coordinator as best_split_coordinator
from raydt.learners.confidence_tree import tree as confidence_tree_trees
from raydt.learners.forest import audit as forest_audit
from raydt.learners.forest import trees
from raydt.learners.fudyadt import build_divided, dynamic_tree
from raydt.learners.gbdt import audit as gbdt_audit
from raydt.learners.gbdt import ensemble, trainer
from raydt.parallel import limited
from raydt.trees import packed_trees, shapley

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
    (blocks, "_FEW_CELLS", 1),
    (trees, "_FEW", 1),
    (build_divided, "_FEW_CELLS", 1),
    (dynamic_tree, "LOOP_CELLS", 1),
    (packed_trees, "_TASK_NS", 1),
    (shapley, "_TASK_NS", 1),
    (shapley, "_FEW_NODES", 1),
    (row_digest, "_TOGETHER", 64),
    (links, "_HANDED_OUT", 0),
    (trainer, "_ENCODED", 64),
    (trainer, "CELLS_OF_A_THREAD", 1),
    (trainer, "UPDATED_CELLS_OF_A_THREAD", 1),
    (trainer, "CHANGES_OF_A_THREAD", 1),
)

#: Modules that divide work however little it is: their callers decide, or one task is a whole tree, column or block.
ALWAYS = {
    "batches.binning",
    "exchange.shard",
    "learners.forest.oob_score",
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
