"""Typical uses of a learner after ``raydt doctor --compile``; prints the kernels that these uses still compile.

``python -m tests.typical_uses KIND`` runs in a process of its own, in which nothing else has compiled a kernel.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import pipelines
import raydt
from raydt.evaluation import warmup as warm_up_evaluation
from raydt.learners import learners
from raydt.sessions.session import compile_kernels
from raydt.streams.deletion_log import warmup as warm_up_streams

N = 700
_DRAW = np.random.default_rng(0)
X = _DRAW.normal(size=(N, 3))  # more than 256 values of each feature
TOKENS = [sorted({*row.tolist()}) for row in _DRAW.integers(0, 9, (N, 3))]
CLASSES = (X[:, 0] + X[:, 1] > 0).astype(int)
TARGETS: dict[str, Any] = {"two": CLASSES, "three": CLASSES + (X[:, 2] > 0), "numbers": X[:, 0] + X[:, 1]}
KEYS = np.arange(N) % 3

#: By learner: its estimators with the targets they take, its estimator for river, and options of small models.
ESTIMATORS: dict[str, tuple[dict[str, str], str | None, dict[str, Any]]] = {
    "best_split": ({"two": "SparseBestSplit"}, None, {}),
    "confidence_tree": (
        dict.fromkeys(("two", "three"), "ConfidenceTreeClassifier"),
        "RiverConfidenceTreeClassifier",
        {},
    ),
    "forest": (
        {**dict.fromkeys(("two", "three"), "ExactForestClassifier"), "numbers": "ExactForestRegressor"},
        "RiverForestClassifier",
        {"n_estimators": 4},
    ),
    "fudyadt": (
        {**dict.fromkeys(("two", "three"), "FullyDynamicTreeClassifier"), "numbers": "FullyDynamicTreeRegressor"},
        "RiverTreeClassifier",
        {},
    ),
    "gbdt": (
        {
            **dict.fromkeys(("two", "three"), "OnlineGradientBoostingClassifier"),
            "numbers": "OnlineGradientBoostingRegressor",
        },
        "RiverGradientBoostingClassifier",
        {"max_iter": 3},
    ),
    "sparse_tree": ({"two": "SparseDynamicTreeClassifier"}, None, {}),
}


def replay(kind: str, target: str, folder: Path, options: dict[str, Any]) -> None:
    """Replay a window, with one shard and with two; and with a model for each key, whose batches are small."""
    sparse = kind in ("best_split", "sparse_tree")
    columns = {"tokens": pa.array(TOKENS, pa.list_(pa.int32()))} if sparse else dict(zip("abc", X.T, strict=True))
    path = folder / f"{target}.parquet"
    pq.write_table(pa.table({**columns, "y": TARGETS[target], "key": KEYS}), path)
    numeric = {"objective" if kind == "gbdt" else "criterion": "squared_error"} if target == "numbers" else {}
    for shards, keyed in ((1, {}), (2, {}), (1, {"key": "key"})):
        if keyed and (sparse or target != "two"):
            continue
        config = {
            "source": {"kind": "parquet", "path": str(path), "label": "y", "features": [*columns], **keyed},
            "stream": {"model": "sliding_window", "window": 60 if keyed else 350, "warmup": 40 if keyed else 300},
            "learner": {"kind": kind, **options, **numeric},
            "cluster": {"backend": "in_process", "shards": shards, "batch_size": 8 if keyed else 4096},
            "output": {"report": False},
        }
        pipelines.replay(config, folder / f"{target} {shards} {[*keyed]}")


def estimate(name: str, target: str, options: dict[str, Any], rows: Any) -> None:
    """Fit, predict, insert, forget; and the same with a model for each key."""
    y = TARGETS[target]
    model = getattr(raydt, name)(**options).fit(rows[:400], y[:400])
    for i in (400, 401):
        model.predict(rows[:9])
        model.partial_fit(rows[i : i + 9], y[i : i + 9])
        model.forget(model.row_ids_[:5])
    model.predict(rows[:1])
    if rows is X and target != "three":
        keyed: Any = raydt.KeyedRegressor if target == "numbers" else raydt.KeyedClassifier
        models = keyed(getattr(raydt, name)(**options)).fit(X[:300], y[:300], keys=KEYS[:300])
        models.partial_fit(X[300:330], y[300:330], keys=KEYS[300:330])
        models.forget(models.row_ids_[:5])
        models.predict(X[:9], keys=KEYS[:9])


def learn_singly(name: str, options: dict[str, Any]) -> None:
    """Learn and forget one example at a time."""
    model = getattr(raydt, name)(**options)
    for i, row in enumerate(X[:400]):
        given = dict(zip("abc", row.tolist(), strict=True))
        model.predict_one(given)
        model.learn_one(given, CLASSES[i])
        if i > 350:
            model.forget_one(dict(zip("abc", X[i - 200].tolist(), strict=True)), CLASSES[i - 200])


def main() -> None:
    """Print the kernels that a learner's uses compile."""
    kind = sys.argv[1]
    compile_kernels(learners()[kind])
    warm_up_streams()
    warm_up_evaluation()
    from numba.core import event  # once a kernel has made Numba known

    compiled: list[str] = []

    class Noting(event.Listener):  # type: ignore[misc]
        def on_start(self, e: Any) -> None:
            compiled.append(e.data["dispatcher"].py_func.__qualname__)

        def on_end(self, e: Any) -> None:
            pass

    event.register("numba:compile", Noting())
    estimators, river, options = ESTIMATORS[kind]
    with tempfile.TemporaryDirectory() as folder:
        for target, name in estimators.items():
            replay(kind, target, Path(folder), options)
            estimate(name, target, options, TOKENS if river is None else X)
    if river is not None:
        learn_singly(river, options)
    print(*compiled)


if __name__ == "__main__":
    main()
