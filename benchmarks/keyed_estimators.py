"""One model for each key beside one for all: ``python benchmarks/keyed_estimators.py``.

``noshow`` by neighbourhood and ``adult_train`` by occupation, in the order of the files: the first three quarters are
learned, the last quarter is scored. The model for all has the key as a category. ``--memory`` prints instead what an
idle model of one key takes, beyond its rows.
"""

import gc
import time
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import arguments, print_machine, read, show
from sklearn.metrics import roc_auc_score

import raydt

SETS = {"noshow": "neighbourhood", "adult_train": "occupation"}
LEARNERS: dict[str, Callable[[], Any]] = {
    "FuDyADT": raydt.FullyDynamicTreeClassifier,
    "confidence tree": raydt.ConfidenceTreeClassifier,
    "forest, 10 trees": lambda: raydt.ExactForestClassifier(n_estimators=10),
    "forest, 64 trees": lambda: raydt.ExactForestClassifier(n_estimators=64),
    "GBDT, 20 iterations": lambda: raydt.OnlineGradientBoostingClassifier(max_iter=20),
}
#: Features of a row, rows of a key, and keys, where memory is measured.
COLUMNS, ROWS, KEYS = 10, 100, 20


def scores(name: str, learner: str) -> list[str]:
    """Accuracy and area under the curve by key and for all, and for how many keys the own model is better."""
    key, rows = SETS[name], read(name)
    rows = rows.drop_columns([one for one in ("time", "scheduled", "patient") if one in rows.column_names])
    y = np.array(rows["y"].to_pylist()).astype(str)
    names = next(one for one in rows.column_names if one.lower().startswith(key[:9]))
    X, cut = rows.drop_columns(["y"]), len(rows) * 3 // 4
    began = time.process_time()
    keyed = raydt.KeyedClassifier(LEARNERS[learner](), names, unknown="prior").fit(X[:cut], y[:cut])
    seconds = time.process_time() - began
    whole = LEARNERS[learner]().fit(X[:cut], y[:cut])
    keys, truth, positive = np.array(X[names][cut:].to_pylist()), y[cut:], keyed.classes_[1] == y[cut:]
    right = [model.predict(X[cut:]) == truth for model in (keyed, whole)]
    area = [roc_auc_score(positive, model.predict_proba(X[cut:])[:, 1]) for model in (keyed, whole)]
    own, all_keys = ([hits[keys == one].mean() for one in np.unique(keys)] for hits in right)
    better, worse = (sum(map(compare, own, all_keys)) for compare in (float.__gt__, float.__lt__))
    unknown = int((~keyed.has_model(X[cut:])).sum())
    pairs = [f"{one:.3f} / {other:.3f}" for one, other in ((right[0].mean(), right[1].mean()), area)]
    return [name, learner, f"{len(keyed.models_)} ({unknown})", *pairs, f"{better} / {worse}", f"{seconds:.1f}"]


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
    if given.memory:
        lines = [memory(one, given.rows) for one in given.learners]
        show("Memory of a key", ["Learner", "KB", "KB, idle"], lines)
    else:
        head = ["Data", "Learner", "Keys (rows of unknown)", "Accuracy: by key / one model", "AUC"]
        lines = [scores(name, learner) for name in SETS for learner in given.learners]
        show("By key and for all", [*head, "Keys better / worse", "CPU s of fit by key"], lines)
