"""Memory of one key's model in ``KeyedClassifier`` beyond its rows, in use and idle.

python benchmarks/keyed_estimators.py --memory [--rows 100] [--learners NAME ...]
"""

import gc
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import arguments, print_machine, show

import raydt

LEARNERS: dict[str, Callable[[], Any]] = {
    "FuDyADT": raydt.FullyDynamicTreeClassifier,
    "confidence tree": raydt.ConfidenceTreeClassifier,
    "forest, 10 trees": lambda: raydt.ExactForestClassifier(n_estimators=10),
    "forest, 64 trees": lambda: raydt.ExactForestClassifier(n_estimators=64),
    "GBDT, 20 iterations": lambda: raydt.OnlineGradientBoostingClassifier(max_iter=20),
}
#: Features of a row, rows of a key, and keys, where memory is measured.
COLUMNS, ROWS, KEYS = 10, 100, 20


def memory(learner: str, rows: int) -> list[str]:
    """Memory of a key after a fit, a deletion, an insertion, a prediction and a digest, and once it is idle.

    Without its rows; the mean of some keys.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(KEYS * rows, COLUMNS))
    y = (X[:, 0] + 0.5 * rng.normal(size=len(X)) > 0).astype(int)
    keys = np.arange(len(X)) % KEYS
    for _ in ("warm", "measured"):
        gc.collect()
        tracemalloc.start()
        keyed = raydt.KeyedClassifier(LEARNERS[learner]()).fit(X, y, keys=keys)
        keyed.forget(keyed.row_ids_[: 5 * KEYS])
        keyed.partial_fit(X[: 5 * KEYS], y[: 5 * KEYS], keys=keys[: 5 * KEYS])
        keyed.predict(X[: 3 * KEYS], keys=keys[: 3 * KEYS])
        keyed.digest()
        held = []
        for _ in range(2):
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0] / KEYS - rows * 8 * (COLUMNS + 3))
            for model in keyed.models_.values():
                model._trim()
        tracemalloc.stop()
    return [learner, *(f"{one / 1024:.0f}" for one in held)]


if __name__ == "__main__":
    given = arguments(__doc__, memory=False, learners=list(LEARNERS), rows=ROWS)
    warnings.simplefilter("ignore")
    print_machine()
    lines = [memory(one, given.rows) for one in given.learners]
    show("Memory of a key", ["Learner", "KB", "KB, idle"], lines)
