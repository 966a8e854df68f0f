"""Which learner to take first: accuracy, speed and memory of all learners with their defaults, and of peers.

Each learner is fitted to three quarters of the rows of each data set, drawn at random, and scores the rest. Times are
wall seconds on all cores, at one data set: a model of all its training rows, one row replaced (of a peer: a model
trained anew), predictions of one row and of 10,000. Bytes are those of the saved model and of the estimator with its
rows.

Run: python benchmarks/choice.py [--seeds 3] [--timed electricity] [--sets electricity adult_train ...]
"""

import os
import pickle
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from defaults import Split, load
from harness import DATA, arguments, print_machine, progress, show, stored_bytes, timed
from lightgbm import LGBMClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier

import raydt

SETS = [
    *("electricity", "adult_train", "covtype_head10k", "givemesomecredit", "heart_train", "pendigits_train"),
    *("phishing", "posture", "wine_quality_white"),
]
MOST_ROWS, REPLACED = 50_000, 50

LEARNERS: dict[str, Callable[[], Any]] = {
    "gbdt": raydt.OnlineGradientBoostingClassifier,
    "gbdt, 255 bins": lambda: raydt.OnlineGradientBoostingClassifier(max_bins=255),
    "forest": raydt.ExactForestClassifier,
    "fudyadt": raydt.FullyDynamicTreeClassifier,
    "confidence_tree": raydt.ConfidenceTreeClassifier,
}
PEERS: dict[str, Callable[[], Any]] = {
    "LightGBM": lambda: LGBMClassifier(verbose=-1),
    "scikit-learn's random forest": lambda: RandomForestClassifier(n_jobs=-1),
    "scikit-learn's tree, depth 10": lambda: DecisionTreeClassifier(max_depth=10),
}


def seconds(work: Callable[[], object]) -> float:
    return timed(work, perf_counter)[0]


def split_of(name: str, seed: int) -> Split:
    X, y = load(DATA, name)
    order = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
    train, test = np.split(order, [len(order) * 3 // 4])
    return Split(X[train], y[train], X[test], y[test])


def scores(model: Any, split: Split) -> tuple[float, float]:
    """Accuracy and AUC, of several classes each against the rest."""
    p = model.predict_proba(split.X_test)
    accuracy = float((np.asarray(model.classes_)[p.argmax(axis=1)] == split.y_test).mean())
    y = split.y_test
    each = [roc_auc_score(y == c, p[:, i]) for i, c in enumerate(model.classes_) if (y == c).any()]
    return accuracy, each[-1] if len(each) == 2 else float(np.mean(each))


def cells_of(make: Callable[[], Any], split: Split, *, ours: bool) -> list[str]:
    """Cells of the table: seconds to fit, ms for a row replaced, us for predictions, KB, MB."""
    make().fit(split.X[:1000], split.y[:1000]).predict(split.X_test[:10])  # loads all kernels
    model = make()
    fit = seconds(lambda: model.fit(split.X, split.y))
    one = statistics.median(seconds(lambda i=i: model.predict(split.X_test[i : i + 1])) for i in range(200))
    many = np.resize(split.X_test, (10_000, split.X_test.shape[1]))
    per_row = statistics.median(seconds(lambda: model.predict(many)) for _ in range(5)) / len(many)
    if ours:
        X, y = split.X_test, split.y_test
        each = [slice(i, i + 1) for i in range(REPLACED)]
        works = [lambda i=i: (model.forget([i.start]), model.partial_fit(X[i], y[i])) for i in each]
        replaced = statistics.mean(map(seconds, works))
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model")
            size = sum(file.stat().st_size for file in (Path(folder) / "model").rglob("*") if file.is_file())
        memory = stored_bytes(model)
    else:
        replaced, size, memory = fit, len(pickle.dumps(model)), split.X.nbytes + split.y.nbytes
    times = [f"{fit:.2f}", f"{1e3 * replaced:.2f}", f"{1e6 * one:,.0f}", f"{1e6 * per_row:.2f}"]
    return [*times, f"{size / 1e3:,.0f}", f"{memory / 1e6:.0f}"]


if __name__ == "__main__":
    asked = arguments(__doc__, seeds=3, timed="electricity", sets={"nargs": "+", "default": SETS})
    print_machine("scikit-learn", "lightgbm")
    contestants = LEARNERS | PEERS
    means: dict[str, list[Any]] = {who: [] for who in contestants}  # accuracy and AUC by data set
    for name in asked.sets:
        found: dict[str, list[tuple[float, float]]] = {who: [] for who in contestants}
        for seed in range(asked.seeds):
            split = split_of(name, seed)
            for who, make in contestants.items():
                found[who].append(scores(make().fit(split.X, split.y), split))
        for who, results in found.items():
            means[who].append(np.mean(results, axis=0))
            progress(name, who, "accuracy {:.3f}, AUC {:.3f}".format(*means[who][-1]))
    rows = []
    for who, sets in means.items():
        accuracy, auc = np.mean(sets, axis=0)
        rows.append([who, *(f"{100 * one[0]:.1f}" for one in sets), f"{100 * accuracy:.1f}", f"{auc:.3f}"])
    show("Accuracy in %, and the means of accuracy and AUC", ["", *asked.sets, "accuracy", "AUC"], rows)
    split = split_of(asked.timed, 0)
    header = [
        "", "fit s", "a row replaced ms", "predict 1 row us", "of 10,000, a row us", "saved KB", "with its rows MB",
    ]  # fmt: skip
    rows = [[who, *cells_of(make, split, ours=who in LEARNERS)] for who, make in contestants.items()]
    show(f"Speed and memory at {asked.timed}, {len(split.y):,} x {split.X.shape[1]}", header, rows)
    print(f"load {os.getloadavg()[0]:.1f} at the end")
