"""FuDyADT beside scikit-learn's tree on data with holes: ``python benchmarks/missing_values.py --data ../shared/data``.

Holes are made at random in the numbers of real data, in the same cells for both. Each tree learns two thirds of
``--rows`` rows and predicts the others, which have as many holes. FuDyADT also grows its tree as scikit-learn does,
until nothing separates the rows of a leaf. In the last columns the rows to learn have no holes, and those to predict
have.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from harness import machine, table
from sklearn.dummy import DummyClassifier
from sklearn.tree import DecisionTreeClassifier

import raydt

#: Files of the data; their labels are in the column ``y``.
DATA = ("electricity", "image_segments", "pendigits_train", "wine_quality_white", "optdigits_train", "bananas")
SHARES = (0.0, 0.05, 0.2, 0.5)


def rows_of(path: Path, rows: int, draw: Any) -> tuple[Any, Any]:
    """Some rows of a file, in random order: its numbers, and its labels as codes."""
    whole = pq.read_table(path).to_pandas()
    some = whole.iloc[draw.permutation(len(whole))[:rows]]
    numbers = some.drop(columns="y").select_dtypes("number")
    return numbers.to_numpy(np.float64), np.unique(some["y"], return_inverse=True)[1]


def with_holes(X: Any, share: float, draw: Any) -> Any:
    """Numbers of which a share is missing."""
    return np.where(draw.random(X.shape) < share, np.nan, X)


def accuracies(X: Any, y: Any, share: float, draw: Any) -> list[float]:
    """Of the most frequent class and of the trees; then of two of them, trained on complete rows."""
    train = np.arange(len(y)) < 2 * len(y) // 3
    holes, found = with_holes(X, share, draw), []
    for learned in (holes, X):
        models = [DecisionTreeClassifier(max_depth=20, random_state=0), raydt.FullyDynamicTreeClassifier()]
        if learned is holes:
            grown = raydt.FullyDynamicTreeClassifier(epsilon=0.0, alpha=0.0, smoothing=0.0)
            models = [DummyClassifier(), *models, grown]
        for model in models:
            model.fit(learned[train], y[train])
            found.append(float((model.predict(holes[~train]) == y[~train]).mean()))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--rows", type=int, default=3000, help="rows of each set, at most")
    parser.add_argument("--seeds", type=int, default=5, help="trials: rows, holes and their division are drawn anew")
    given = parser.parse_args()
    print(machine("scikit-learn"), flush=True)
    lines = []
    for name in DATA:
        for share in SHARES:
            runs = []
            for seed in range(given.seeds):
                draw = np.random.default_rng([seed, int(100 * share)])
                X, y = rows_of(given.data / f"{name}.parquet", given.rows, draw)
                runs.append(accuracies(X, y, share, draw))
            means = 100 * np.mean(runs, axis=0)
            lines.append([name, f"{share:.0%}", *(f"{value:.1f}" for value in means)])
    header = ["data", "holes", "most frequent", "scikit-learn", "FuDyADT", "FuDyADT, grown out"]
    print(*table([*header, "scikit-learn, complete training", "FuDyADT, complete training"], lines), sep="\n")


if __name__ == "__main__":
    main()
