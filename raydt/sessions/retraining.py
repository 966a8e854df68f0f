"""A model trained again from nothing on the live examples of a history."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.types import Arrays, Ints
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.updates import INSERT, UpdateBatch
from raydt.examples.weights import unless_equal
from raydt.learners import learners
from raydt.learners.base import LearnerOptions
from raydt.sessions.session import InProcessSession


def trained_from_nothing(
    options: LearnerOptions, features: Features, history: History, class_order: Ints, state: Arrays
) -> InProcessSession:
    """Train on the live examples of a history, inserted at once by ids, with what is fixed in ``state``."""
    learner = learners()[options.kind]
    live = np.flatnonzero(history.deleted == np.iinfo(np.int64).max)
    live = live[np.argsort(history.id[live], kind="stable")]
    n = len(live)
    session = InProcessSession(learner, learner.fixed_by(options, state), features)
    if "class_weight" in state:
        session.coordinator.weigh_classes(state["class_weight"])
    op, row = np.full(n, INSERT, dtype=np.int8), np.full(n, -1)
    X = np.ascontiguousarray(history.X[live])
    sparse = None if history.sparse is None else history.sparse[live]
    y, classes = history.y[live], len(class_order)
    weight = None if history.weight is None else unless_equal(history.weight[live])
    known: dict[str, Any] = {"sparse": sparse, "class_order": class_order, "weight": weight}
    batch = UpdateBatch(0, op, history.id[live], X, y, classes, row, n, **known)
    session.apply(batch)
    session.finish()
    return session
