"""Compile the kernels of a learner in advance, so that processes started later load them from the cache."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from enum import Flag, auto
from typing import Any

import numpy as np

from raydt.arrays.blocks import is_clean
from raydt.arrays.kernel import compile_once
from raydt.arrays.sparse import SparseRows
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.examples.weights import UNIT
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED, Case, Learner, LearnerOptions, WorkPlan
from raydt.learners.many import ManyBatches
from raydt.parallel.threads import call_divided
from raydt.sessions.session import InProcessSession

#: Rows of the stream of a case, and indices that its sparse features are drawn from.
_ROWS, _WIDTH = 60, 5
#: Rows of the stream of a case with many of them.
_MANY_ROWS = 300


class Use(Flag):
    """Work that a process does with models, for which kernels are compiled."""

    ALONE = auto()  #: It does all work of a model itself.
    SHARDS = auto()  #: It gives rows to shards with stores of their own.
    THREADS = auto()  #: It divides work among threads.
    KEYS = auto()  #: It takes batches of many models together.
    ROWS = auto()  #: It predicts and learns single rows, as estimators do.


#: What runs need: of one model, of one whose rows shards have, of models by key.
ONE_MODEL = Use.ALONE | Use.THREADS
DIVIDED, BY_KEY = ONE_MODEL | Use.SHARDS, ONE_MODEL | Use.KEYS
EVERY_USE = DIVIDED | BY_KEY | Use.ROWS


def compile_kernels(learner: Learner, options: LearnerOptions | None = None, uses: Use = EVERY_USE) -> None:
    """Run the learner's cases once in this process, without options all of them: then their kernels are loaded."""
    for number, use in _concerning(learner, options, uses):
        _run(learner.kind, number, use)


def compile_missing(learner: Learner, options: LearnerOptions | None, uses: Use) -> None:
    """As :func:`compile_kernels`, but pass over what is in the cache: those kernels load when they are needed."""
    for number, use in _concerning(learner, options, uses):
        run = functools.partial(_run, learner.kind, number, use)
        compile_once(f"{learner.kind}-{number}-{use.name}", type(learner).__module__, run)


def _concerning(learner: Learner, options: LearnerOptions | None, uses: Use) -> list[tuple[int, Use]]:
    """Return the numbers of the cases whose kernels options need, of all cases without options, each with its uses."""
    numbers = [n for n, case in enumerate(learner.cases()) if options is None or learner.concerns(case, options)]
    return [(number, use) for number in numbers for use in Use if use in uses]


@functools.cache
def _run(kind: str, number: int, use: Use) -> None:
    """Run a case for a use; with shards, as the plan of the case has them."""
    learner = learners()[kind]
    case = learner.cases()[number]
    if use is Use.ALONE:
        _drive(learner, case, 1, WorkPlan())
    elif use is Use.SHARDS:
        _drive(learner, case, 2, case.plan)
    elif use is Use.THREADS:
        call_divided(functools.partial(_drive, learner, case, 1, WorkPlan()))
    elif use is Use.KEYS:
        _drive_together(learner, case)
    else:
        _drive_rows(learner, case)


def _begun(learner: Learner, case: Case, shards: int, plan: WorkPlan) -> tuple[InProcessSession, UpdateBatch]:
    """Return a session that has taken the stream of a case, and the stream."""
    features, batch = small_stream(case)
    options = learner.Options.model_validate({**case.options, **case.many, "kind": learner.kind})
    session = InProcessSession(learner, options, features, shards, plan)
    session.apply(batch)
    return session, batch


def _drive(learner: Learner, case: Case, shards: int, plan: WorkPlan) -> None:
    session, batch = _begun(learner, case, shards, plan)
    session.digest()
    session.restore(*session.state())
    session.finish()
    session.model()
    _predict(session, case, batch)
    if plan.shared_store:  # else shards may have the ids
        session.coordinator.store.find(batch.id)
    if case.classes > 2:
        with contextlib.suppress(InputError):  # of a learner that takes no more classes
            session.apply(_one_more(batch, batch.n_classes))
            session.finish()


def _predict(session: InProcessSession, case: Case, batch: UpdateBatch) -> None:
    sparse: dict[str, Any] = {} if batch.sparse is None else {"sparse": batch.sparse}
    session.coordinator.predict(batch.X, **sparse)
    if case.classes:
        session.coordinator.predict_proba(batch.X, case.classes, **sparse)


def _drive_together(learner: Learner, case: Case) -> None:
    """Take a batch as those of many keys are, if the learner takes them together."""
    session, batch = _begun(learner, case, 1, NOTHING_DIVIDED)
    more = _one_more(batch, 0)
    group = session.group(more)
    if group is not None:
        group.take([session], ManyBatches([more], False))


def _drive_rows(learner: Learner, case: Case) -> None:
    """Call a model that was neither saved nor restored as estimators do: predictions, single rows, digests again."""
    session, batch = _begun(learner, case, 1, NOTHING_DIVIDED)
    is_clean(batch.X.reshape(-1).view(np.int64))  # of all that is given to an estimator
    session.finish()
    session.digest()
    _predict(session, case, batch)
    session.apply(dataclasses.replace(_one_more(batch, 0), answers=False))
    session.digest()
    session.coordinator.locate(batch.id[-1:])
    if case.classes:
        row = batch.X[:1]
        session.predict_row(row)
        for op in (INSERT, DELETE_VALUE):
            session.take_row(op, int(batch.id.max()) + 2, row, 0)


def _one_more(batch: UpdateBatch, label: int) -> UpdateBatch:
    """Return the insertion that follows a batch, of a label: also of the first class that nothing was known of."""
    return UpdateBatch(
        len(batch.op),
        np.array([INSERT], dtype=np.int8),
        batch.id.max(keepdims=True) + 1,
        np.ascontiguousarray(batch.X[:1]),
        np.array([label], dtype=batch.y.dtype),
        max(batch.n_classes, label + 1) if batch.n_classes else 0,
        np.array([-1]),
        batch.warmup,
        sparse=None if batch.sparse is None else batch.sparse[np.arange(1)],
        weight=None if batch.weight is None else batch.weight[:1],
    )


def small_stream(case: Case) -> tuple[Features, UpdateBatch]:
    """Draw the features of a case, and one batch: inserts, then deletions, updates, queries and deletions by value."""
    draw = np.random.default_rng(0)
    rows = _MANY_ROWS if case.many else _ROWS
    half = rows // 2
    op = np.repeat(
        np.array([INSERT, DELETE, UPDATE, QUERY, DELETE_VALUE, INSERT], dtype=np.int8), [rows, half, 6, 2, 1, 6]
    )
    ids = np.concatenate([np.arange(rows), np.arange(half), np.arange(half, half + 6), [0] * 3, rows + np.arange(6)])
    n = int(CARRIES_ROW[op].sum())
    label = np.arange(n) % max(case.classes, 3)
    X = np.stack([label + draw.integers(0, 2, n), draw.random(n), np.arange(n) % 3], axis=1)
    if case.missing:
        X[::7, 0] = np.nan
    last = int(CARRIES_ROW[op[: op.tolist().index(DELETE_VALUE)]].sum())  # the row that the deletion by value names
    X[last], label[last] = X[rows - 1], label[rows - 1]
    sparse = None
    if case.sparse:
        drifts = np.arange(n) // 10  # the feature that tells the classes apart changes, so that splits are beaten
        drifts[last] = drifts[rows - 1]
        indices = (label + drifts).astype(np.int32) % _WIDTH
        sparse = SparseRows.of_lengths(np.ones(n, dtype=np.int64), indices, _WIDTH)
    features = Features(("a", "b", "c"), (False, False, True), 3, sparse=_WIDTH * case.sparse)
    if not case.dense:
        X, features = X[:, :0], Features((), (), 3, sparse=_WIDTH)
    weight = (UNIT // 2 * (1 + np.arange(n) % 3)).astype(np.uint32) if case.weighted else None
    y = label.astype(np.float64) if not case.classes else (label % case.classes).astype(np.int32)
    warmup = rows if case.many else min(case.warmup, rows)
    return features, UpdateBatch(
        *(0, op, ids, np.ascontiguousarray(X), y, case.classes, np.full(len(op), -1), warmup),
        sparse=sparse,
        weight=weight,
    )
