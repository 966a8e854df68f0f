"""Compile the kernels of a learner in advance, so that processes started later load them from the cache."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np

from raydt.arrays.kernel import compile_once
from raydt.arrays.sparse import SparseRows
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.examples.weights import UNIT
from raydt.learners import learners
from raydt.learners.base import Case, Learner, LearnerOptions, WorkPlan
from raydt.parallel.threads import call_divided
from raydt.sessions.session import InProcessSession

#: Rows of the stream of a case, and indices that its sparse features are drawn from.
_ROWS, _WIDTH = 60, 5


def compile_kernels(learner: Learner, options: LearnerOptions | None = None) -> None:
    """Run the learner's cases once in this process; without options all of them, else those that concern these."""
    for number, case in enumerate(learner.cases()):
        if options is None or learner.concerns(case, options):
            _run(learner.kind, number)


def compile_missing(learner: Learner, options: LearnerOptions) -> None:
    """As :func:`compile_kernels`, but pass over the cases whose kernels are in the cache: these load when needed."""
    for number, case in enumerate(learner.cases()):
        if learner.concerns(case, options):
            run = functools.partial(_run, learner.kind, number)
            compile_once(f"{learner.kind}-{number}", type(learner).__module__, run)


def load_kernels(learner: Learner, options: LearnerOptions) -> None:
    """Load, once, what a process needs that shares its work with nobody and whose first updates are timed."""
    for number, case in enumerate(learner.cases()):
        if learner.concerns(case, options):
            _run(learner.kind, number, with_shards=False)


@functools.cache
def _run(kind: str, number: int, *, with_shards: bool = True) -> None:
    """Run a case with all work in one process and a shared store and, before, as its plan has shards and threads do."""
    learner = learners()[kind]
    case = learner.cases()[number]
    if with_shards:
        _drive(learner, case, 2, case.plan)
        call_divided(functools.partial(_drive, learner, case, 1, WorkPlan()))
    _drive(learner, case, 1, WorkPlan())


def _drive(learner: Learner, case: Case, shards: int, plan: WorkPlan) -> None:
    features, batch = small_stream(case)
    options = learner.Options.model_validate({**case.options, "kind": learner.kind})
    session = InProcessSession(learner, options, features, shards, plan)
    session.apply(batch)
    session.digest()
    session.restore(*session.state())
    session.finish()
    sparse: dict[str, Any] = {} if batch.sparse is None else {"sparse": batch.sparse}
    session.model()
    session.coordinator.predict(batch.X, **sparse)
    if case.classes:
        session.coordinator.predict_proba(batch.X, case.classes, **sparse)
    if plan.shared_store:  # else shards may have the ids
        session.coordinator.store.find(batch.id)
    if case.classes > 2:
        with contextlib.suppress(InputError):  # of a learner that takes no more classes
            session.apply(_of_a_new_class(batch))
            session.finish()


def _of_a_new_class(batch: UpdateBatch) -> UpdateBatch:
    """Return the insertion that follows a batch, of a class that nothing was known of."""
    classes = batch.n_classes
    return UpdateBatch(
        len(batch.op),
        np.array([INSERT], dtype=np.int8),
        batch.id.max(keepdims=True) + 1,
        np.ascontiguousarray(batch.X[:1]),
        np.array([classes], dtype=np.int32),
        classes + 1,
        np.array([-1]),
        batch.warmup,
        sparse=None if batch.sparse is None else batch.sparse[np.arange(1)],
    )


def small_stream(case: Case) -> tuple[Features, UpdateBatch]:
    """Draw the features of a case, and one batch: inserts, then deletions, updates, queries and deletions by value."""
    draw = np.random.default_rng(0)
    half = _ROWS // 2
    op = np.repeat(
        np.array([INSERT, DELETE, UPDATE, QUERY, DELETE_VALUE, INSERT], dtype=np.int8), [_ROWS, half, 6, 2, 1, 6]
    )
    ids = np.concatenate([np.arange(_ROWS), np.arange(half), np.arange(half, half + 6), [0] * 3, _ROWS + np.arange(6)])
    n = int(CARRIES_ROW[op].sum())
    label = np.arange(n) % max(case.classes, 3)
    X = np.stack([label + draw.integers(0, 2, n), draw.random(n), np.arange(n) % 3], axis=1)
    if case.missing:
        X[::7, 0] = np.nan
    last = int(CARRIES_ROW[op[: op.tolist().index(DELETE_VALUE)]].sum())  # the row that the deletion by value names
    X[last], label[last] = X[_ROWS - 1], label[_ROWS - 1]
    sparse = None
    if case.sparse:
        drifts = np.arange(n) // 10  # the feature that tells the classes apart changes, so that splits are beaten
        drifts[last] = drifts[_ROWS - 1]
        indices = (label + drifts).astype(np.int32) % _WIDTH
        sparse = SparseRows.of_lengths(np.ones(n, dtype=np.int64), indices, _WIDTH)
    features = Features(("a", "b", "c"), (False, False, True), 3, sparse=_WIDTH * case.sparse)
    if not case.dense:
        X, features = X[:, :0], Features((), (), 3, sparse=_WIDTH)
    weight = (UNIT // 2 * (1 + np.arange(n) % 3)).astype(np.uint32) if case.weighted else None
    y = label.astype(np.float64) if not case.classes else (label % case.classes).astype(np.int32)
    warmup = min(case.warmup, _ROWS)
    return features, UpdateBatch(
        *(0, op, ids, np.ascontiguousarray(X), y, case.classes, np.full(len(op), -1), warmup),
        sparse=sparse,
        weight=weight,
    )
