"""``class_weight`` on two imbalanced sets beside LightGBM and scikit-learn: ``python benchmarks/imbalanced.py``.

All train the same trees (100 iterations, 20 leaves, learning rate 0.1, L2 1, no minimum leaf) on two thirds of the rows
and score the rest: the area under the ROC curve, F1 of class 1 at a probability of 0.5 (the mean, and the least and the
most of all splits) and at the threshold that is best on a fifth of the rows to train on, for a model of the others, and
the largest recall at a precision of 0.5. Then ours forgets a tenth of the rows it has learned, and LightGBM and
scikit-learn train again without them; the threshold stays.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from harness import DATA, machine, table
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import f1_score, precision_recall_curve, roc_auc_score
from sklearn.model_selection import train_test_split

from raydt import OnlineGradientBoostingClassifier

PRECISION = 0.5


def credit() -> tuple[Any, Any]:
    """givemesomecredit: 10 numbers, some missing; 6.7 % of class 1."""
    rows = pq.read_table(DATA / "givemesomecredit.parquet")
    names = [name for name in rows.column_names if name != "y"]
    X = np.column_stack([rows[name].to_numpy().astype(np.float64) for name in names])
    return X, rows["y"].to_pandas().astype(int).to_numpy()


def pages() -> tuple[Any, Any]:
    """w8a: 300 binary features; 3.0 % of class 1."""
    rows = pq.read_table(DATA / "w8a.parquet")
    indices = rows["indices"].combine_chunks()
    X = np.zeros((len(rows), 300))
    X[np.repeat(np.arange(len(rows)), np.diff(indices.offsets.to_numpy())), indices.flatten().to_numpy()] = 1.0
    return X, (rows["y"].to_pandas().astype(int).to_numpy() > 0).astype(int)


def ours(class_weight: Any, seed: int, threads: int) -> Any:
    """Ours, with default bins."""
    return OnlineGradientBoostingClassifier(class_weight=class_weight, random_state=seed, n_jobs=threads)


def lightgbm(class_weight: Any, seed: int, threads: int) -> Any:
    """LightGBM with these trees."""
    import lightgbm

    return lightgbm.LGBMClassifier(
        class_weight=class_weight,
        num_leaves=20,
        reg_lambda=1.0,
        min_child_samples=1,
        min_child_weight=0.0,
        random_state=seed,
        n_jobs=threads,
        verbose=-1,
    )


def scikit_learn(class_weight: Any, seed: int, threads: int) -> Any:
    """The histogram gradient boosting of scikit-learn with these trees."""
    return HistGradientBoostingClassifier(
        class_weight=class_weight,
        max_leaf_nodes=20,
        l2_regularization=1.0,
        min_samples_leaf=1,
        early_stopping=False,
        random_state=seed,
    )


CONTESTANTS: dict[str, Callable[[Any, int, int], Any]] = {
    "raydt": ours,
    "LightGBM": lightgbm,
    "scikit-learn": scikit_learn,
}


def chosen_threshold(make: Callable[[], Any], X: Any, y: Any, seed: int) -> float:
    """The threshold of the largest F1 on a fifth of the rows, for a model of the others."""
    X_fit, X_held, y_fit, y_held = train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
    precision, recall, thresholds = precision_recall_curve(y_held, make().fit(X_fit, y_fit).predict_proba(X_held)[:, 1])
    return float(thresholds[(precision * recall / np.maximum(precision + recall, 1e-12))[:-1].argmax()])


def scores(model: Any, X: Any, y: Any, threshold: float) -> list[float]:
    """AUC, F1 at 0.5 and at a threshold, and recall at the precision."""
    p = model.predict_proba(X)[:, 1]
    precision, recall, _ = precision_recall_curve(y, p)
    f1 = [f1_score(y, p >= limit) for limit in (0.5, threshold)]
    return [roc_auc_score(y, p), *f1, float(recall[precision >= PRECISION].max())]


def run(name: str, data: tuple[Any, Any], seeds: int, threads: int) -> None:
    """Print the table of one data set: means over the seeds."""
    X, y = data
    found: dict[tuple[str, str], list[list[float]]] = {}
    for seed in range(seeds):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=1 / 3, stratify=y, random_state=seed)
        gone = np.random.default_rng(seed).permutation(len(X_train))[: len(X_train) // 10]
        kept = np.setdiff1d(np.arange(len(X_train)), gone)
        for class_weight in (None, "balanced"):
            for who, make in CONTESTANTS.items():
                made = partial(make, class_weight, seed, threads)
                threshold = chosen_threshold(made, X_train, y_train, seed)
                model = made().fit(X_train, y_train)
                found.setdefault((who, f"{class_weight}"), []).append(scores(model, X_test, y_test, threshold))
                if who == "raydt":
                    model.forget(model.row_ids_[gone], digests=False)
                else:
                    model = made().fit(X_train[kept], y_train[kept])
                after = scores(model, X_test, y_test, threshold)
                found.setdefault((who, f"{class_weight}, a tenth forgotten"), []).append(after)
    print(f"\n{name}: {len(X):,} x {X.shape[1]}, {100 * y.mean():.1f} % of class 1; means of {seeds} splits\n")
    header = ["`class_weight`, learner", "AUC", "F1 at 0.5 (least to most)", "F1, chosen threshold"]
    rows = []
    for who, setting in sorted(found, key=lambda key: (key[1][:4] != "None", key[1])):
        of_seeds = np.array(found[who, setting])
        auc, f1, chosen, recall = of_seeds.mean(axis=0)
        spread = f"{f1:.4f} ({of_seeds[:, 1].min():.2f} to {of_seeds[:, 1].max():.2f})"
        rows.append([f"{setting}: {who}", f"{auc:.4f}", spread, f"{chosen:.4f}", f"{recall:.4f}"])
    print("\n".join(table([*header, f"recall at precision {PRECISION}"], rows)))


def main() -> None:
    """Both data sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="splits into rows to train on and to test")
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of each learner (scikit-learn: OMP_NUM_THREADS)"
    )
    parser.add_argument("--only", choices=("givemesomecredit", "w8a"), help="one of the data sets")
    arguments = parser.parse_args()
    print(machine("lightgbm", "scikit-learn"))
    for name, read in (("givemesomecredit", credit), ("w8a", pages)):
        if arguments.only in (None, name):
            run(name, read(), arguments.seeds, arguments.threads)


if __name__ == "__main__":
    main()
