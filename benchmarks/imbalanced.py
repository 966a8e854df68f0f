"""``class_weight`` on two imbalanced sets beside LightGBM and scikit-learn: ``python benchmarks/imbalanced.py``.

All train the same trees (100 iterations, 20 leaves, learning rate 0.1, L2 1, no minimum leaf) on two thirds of the rows
and score the rest: the area under the ROC curve, F1 of class 1 at a probability of 0.5 (the mean, and the least and the
most of all splits) and at the threshold that is best on a fifth of the rows to train on, for a model of the others, and
the largest recall at a precision of 0.5. Then ours forgets a tenth of the rows it has learned, and LightGBM and
scikit-learn train again without them; the threshold stays. Givemesomecredit has 10 numbers, some missing, and 6.7 % of
class 1; w8a has 300 columns of 0 and 1.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from harness import arguments, print_machine, read, show
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import f1_score, precision_recall_curve, roc_auc_score
from sklearn.model_selection import train_test_split

from raydt import OnlineGradientBoostingClassifier

PRECISION = 0.5
LEAVES: dict[str, dict[str, Any]] = {
    "LightGBM": {"num_leaves": 20, "reg_lambda": 1.0, "min_child_samples": 1, "min_child_weight": 0.0, "verbose": -1},
    "scikit-learn": {"max_leaf_nodes": 20, "l2_regularization": 1.0, "min_samples_leaf": 1, "early_stopping": False},
}
#: Each makes a model from class_weight, seed and threads.
CONTESTANTS: dict[str, Callable[[Any, int, int], Any]] = {
    "raydt": lambda w, s, n: OnlineGradientBoostingClassifier(class_weight=w, random_state=s, n_jobs=n),
    "LightGBM": lambda w, s, n: LGBMClassifier(class_weight=w, random_state=s, n_jobs=n, **LEAVES["LightGBM"]),
    "scikit-learn": lambda w, s, _: HistGradientBoostingClassifier(
        class_weight=w, random_state=s, **LEAVES["scikit-learn"]
    ),
}


def data_of(name: str) -> tuple[Any, Any]:
    rows = read(name)
    y = (rows["y"].to_pandas().astype(int).to_numpy() > 0).astype(int)
    if name == "w8a":
        indices, X = rows["indices"].combine_chunks(), np.zeros((len(rows), 300))
        X[np.repeat(np.arange(len(rows)), np.diff(indices.offsets.to_numpy())), indices.flatten().to_numpy()] = 1.0
        return X, y
    names = [name for name in rows.column_names if name != "y"]
    return np.column_stack([rows[name].to_numpy().astype(np.float64) for name in names]), y


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


def compare(name: str, rows: int, seeds: int, threads: int) -> None:
    X, y = (part[:rows] for part in data_of(name))
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
    lines = []
    for who, setting in sorted(found, key=lambda key: (key[1][:4] != "None", key[1])):
        of_seeds = np.array(found[who, setting])
        auc, f1, chosen, recall = of_seeds.mean(axis=0)
        spread = f"{f1:.4f} ({of_seeds[:, 1].min():.2f} to {of_seeds[:, 1].max():.2f})"
        lines.append([f"{setting}: {who}", f"{auc:.4f}", spread, f"{chosen:.4f}", f"{recall:.4f}"])
    share = float(np.mean(y))
    for words, positive in (("majority", share > 0.5), ("always class 1", True)):
        f1, recall = f"{positive * 2 * share / (1 + share):.4f}", f"{positive and share >= PRECISION:.4f}"
        lines.append([words, "0.5000", f1, f1, recall])
    header = ["`class_weight`, learner", "AUC", "F1 at 0.5 (least to most)", "F1, chosen threshold"]
    title = f"{name}: {len(X):,} x {X.shape[1]}, {100 * y.mean():.1f} % of class 1; means of {seeds} splits"
    show(title, [*header, f"recall at precision {PRECISION}"], lines)


if __name__ == "__main__":
    names = "givemesomecredit", "w8a"
    given = arguments(__doc__, seeds=3, threads=1, only={"choices": names}, rows=10**9)
    print_machine("lightgbm", "scikit-learn")
    for name in [given.only] if given.only else names:
        compare(name, given.rows, given.seeds, given.threads)
