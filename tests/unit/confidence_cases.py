"""Confidence trees after random streams, with the history of these, for the tests of checks and audit."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.sparse import SparseRows
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.updates import DELETE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.learners.confidence_tree.learner import LEARNER
from raydt.sessions.session import InProcessSession

_SOON: dict[str, Any] = {"grace_period": 15, "c": 0.05, "feature_groups": 3, "renew_bins": 0}
_LATE = {"grace_period": 15, "feature_groups": 3, "delta": 0.5, "renew_bins": 0}

#: Options, classes, sparse features, rows of the warm-up, updates.
CASES: dict[str, tuple[dict[str, Any], int, int, int, int]] = {
    "gini": (_SOON, 2, 0, 60, 900),
    "three classes": ({**_SOON, "rival": "split", "c": 0.01, "max_bins": 8}, 3, 0, 60, 900),
    "entropy": ({**_SOON, "criterion": "entropy", "c": 0.02}, 3, 0, 60, 900),
    "kearns_mansour": ({**_SOON, "criterion": "kearns_mansour"}, 2, 0, 60, 900),
    "theorem": (
        {**_LATE, "confidence": "theorem", "rival": "split", "tie_threshold": 0.8, "grace_period": 20},
        2,
        0,
        60,
        1600,
    ),
    "hoeffding": ({**_LATE, "rule": "hoeffding", "criterion": "entropy"}, 3, 0, 60, 900),
    "one over t": ({**_LATE, "rule": "hoeffding", "delta": "1/t", "tie_threshold": 0.2}, 2, 0, 60, 900),
    "corrected": ({**_LATE, "rule": "corrected"}, 2, 0, 60, 900),
    "mcdiarmid": ({**_LATE, "rule": "mcdiarmid", "tie_threshold": 12.0}, 2, 0, 60, 900),
    "drift": ({**_SOON, "drift_period": 20}, 3, 0, 60, 1600),
    "renewed": ({**_SOON, "renew_bins": 20}, 3, 0, 60, 900),
    "renewed sparse": ({**_SOON, "renew_bins": 20, "leaf_prediction": "naive_bayes"}, 2, 20, 60, 900),
    "majority": ({**_SOON, "leaf_prediction": "majority"}, 2, 0, 60, 900),
    "sparse": (_SOON, 2, 20, 60, 900),
    "drift sparse": ({**_SOON, "drift_period": 20, "c": 0.03}, 2, 20, 60, 1600),
    "warming": (_SOON, 2, 20, 500, 300),
}


class Case(NamedTuple):
    """What a run came to, and what it came from."""

    options: Any
    features: Features
    classes: int
    state: dict[str, Any]
    groups: dict[int, dict[str, Any]]
    history: History


@cache
def case(name: str, shards: int = 2, seed: int = 0) -> Case:
    """The state after a stream in which the label changes what it follows halfway. Do not change its arrays."""
    settings, classes, width, warmup, updates = CASES[name]
    options = LEARNER.Options.model_validate(settings)
    features = Features(("a", "b", "kind"), (False, False, True), options.feature_groups, sparse=width)
    rng = np.random.default_rng([seed, *map(ord, name)])
    n = updates
    X = np.stack([np.round(rng.normal(size=n), 1), rng.integers(0, 5, n) * 1.0, rng.integers(0, 4, n) * 1.0], axis=1)
    X[rng.random((n, 3)) < [0.05, 0.05, 0.0]] = np.nan
    ones = rng.random((n, width)) < 0.2
    late = np.arange(n) > n // 2
    y = (np.where(late, X[:, 2] > 1, np.nan_to_num(X[:, 0]) > 0.2)).astype(np.int32)
    if width:
        y ^= np.where(late, ones[:, 3], ones[:, 1] | ones[:, 2]).astype(np.int32)
    y[(X[:, 1] == 4) & (classes == 3)] = 2
    noisy = rng.random(n) < 0.1
    y[noisy] = rng.integers(0, classes, noisy.sum())

    op, key, inserted, deleted, rows = [], [], {}, {}, {}
    live: list[int] = []
    for i in range(n):
        kinds = (INSERT, DELETE, UPDATE, QUERY) if live else (INSERT,)
        weights = np.array((0.7, 0.2, 0.07, 0.03) if i < 0.7 * n else (0.4, 0.45, 0.12, 0.03))[: len(kinds)]
        kind = int(rng.choice(kinds, p=weights / weights.sum()))
        example = live[int(rng.integers(len(live)))] if kind in (DELETE, UPDATE) else i
        op.append(kind)
        key.append(example)
        if kind in (DELETE, UPDATE):
            deleted[rows[example]] = i
            live.remove(example)
        if kind in (INSERT, UPDATE):
            inserted[i], rows[example] = i, i
            live.append(example)
    ops, keys = np.array(op, dtype=np.int8), np.array(key, dtype=np.int64)
    sparse = SparseRows.of_lengths(ones.sum(axis=1), np.nonzero(ones)[1].astype(np.int32), width) if width else None
    session = InProcessSession(LEARNER, options, features, shards)
    for begin in range(0, n, 200 + seed):
        part = slice(begin, min(n, begin + 200 + seed))
        carries = np.flatnonzero(ops[part] != DELETE) + begin
        row = np.arange(part.start, part.stop)
        of_part = {"sparse": sparse[carries]} if sparse is not None else {}
        batch = UpdateBatch(begin, ops[part], keys[part], X[carries], y[carries], classes, row, warmup, **of_part)
        result = session.apply(batch)
        assert result.applied == len(batch)
    born = np.array(sorted(inserted))
    forever = np.iinfo(np.int64).max
    died = np.array([deleted.get(i, forever) for i in born.tolist()])
    ids, of_history = keys[born], sparse[born] if sparse is not None else None
    history = History(ids, X[born], y[born], born, died, warmup, sparse=of_history)
    return Case(options, features, classes, *session.state(), history)
