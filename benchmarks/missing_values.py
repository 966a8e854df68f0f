"""FuDyADT beside scikit-learn's tree on data with holes: ``python benchmarks/missing_values.py``.

Holes are made at random in the numbers of real data, in the same cells for both. Each tree learns two thirds of
``--rows`` rows and predicts the others, which have as many holes. FuDyADT also grows its tree as scikit-learn does,
until nothing separates the rows of a leaf. In the last columns the rows to learn have no holes, and those to predict
have.
"""

from pathlib import Path
from typing import Any

import numpy as np
from harness import DATA, arguments, print_machine, read, show
from sklearn.dummy import DummyClassifier
from sklearn.tree import DecisionTreeClassifier

import raydt

SETS = ("electricity", "image_segments", "pendigits_train", "wine_quality_white", "optdigits_train", "bananas")
SHARES = (0.0, 0.05, 0.2, 0.5)


def rows_of(name: str, folder: Path, rows: int, draw: Any) -> tuple[Any, Any]:
    """Some rows of a file, in random order: its numbers, and its labels as codes."""
    whole = read(name, folder).to_pandas()
    some = whole.iloc[draw.permutation(len(whole))[:rows]]
    numbers = some.drop(columns="y").select_dtypes("number")
    return numbers.to_numpy(np.float64), np.unique(some["y"], return_inverse=True)[1]


def accuracies(X: Any, y: Any, share: float, draw: Any) -> list[float]:
    """Of the most frequent class and of the trees; then of two of them, trained on complete rows."""
    train = np.arange(len(y)) < 2 * len(y) // 3
    holes, found = np.where(draw.random(X.shape) < share, np.nan, X), []
    for learned in (holes, X):
        models = [DecisionTreeClassifier(max_depth=20, random_state=0), raydt.FullyDynamicTreeClassifier()]
        if learned is holes:
            grown = raydt.FullyDynamicTreeClassifier(epsilon=0.0, alpha=0.0, smoothing=0.0)
            models = [DummyClassifier(), *models, grown]
        for model in models:
            model.fit(learned[train], y[train])
            found.append(float((model.predict(holes[~train]) == y[~train]).mean()))
    return found


if __name__ == "__main__":
    given = arguments(__doc__, data=DATA, rows=3000, seeds=5)
    print_machine("scikit-learn")
    lines = []
    for name in SETS:
        for share in SHARES:
            runs = []
            for seed in range(given.seeds):
                draw = np.random.default_rng([seed, int(100 * share)])
                runs.append(accuracies(*rows_of(name, given.data, given.rows, draw), share, draw))
            lines.append([name, f"{share:.0%}", *(f"{100 * value:.1f}" for value in np.mean(runs, axis=0))])
    header = ["data", "holes", "most frequent", "scikit-learn", "FuDyADT", "FuDyADT, grown out"]
    show("Missing values", [*header, "scikit-learn, complete training", "FuDyADT, complete training"], lines)
