"""Data sets of ``defaults.py`` as arrays, and how well a model predicts held-out rows of them.

Categories are columns of 0 and 1, NaN is -1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_breast_cancer, load_wine, make_classification

#: Data sets of held-out rows; of a larger one, the first rows of the drawn order are used.
SETS = [
    "electricity",
    "covtype_head10k",
    "poker_uci_train",
    "heart_train",
    "purchase_train",
    "a9a_train",
    "adult_train",
    "optdigits_train",
    "pendigits_train",
    "wine_quality_white",
    "givemesomecredit",
    "sea_concepts",
    "phishing",
    "bananas",
    "image_segments",
    "covtype_class3_vs_4",
    "posture",
]
MOST_ROWS = {"givemesomecredit": 150_000}
#: Data sets that had no part in the choice of the defaults: ``--only`` with their names.
UNTOUCHED = ["w8a", "mushrooms", "abalone", "kddcup99_10pct", "basehock"]
#: Data sets that were first looked at after the choice: of files, ...
FRESH = ["poker_lsn", "spamassassin", "reuters21578_earn_bydate"]
#: ... and of scikit-learn, the last with a class of one row in twenty, and one label in twenty drawn.
MADE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "made_rare": lambda: make_classification(50_000, 20, weights=[0.95], flip_y=0.05, random_state=0),
}
#: Most sparse features that are used: the most frequent ones.
WIDTH = 5_000

Rows = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Split:
    """Training and test rows."""

    X: Rows
    y: Codes
    X_test: Rows
    y_test: Codes


def load(folder: Path, name: str) -> tuple[Rows, Codes]:
    """X float64 (n, d) and class codes, in the order of the file."""
    if name in MADE:
        X, y = MADE[name]()
        return np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.int64)
    table = pq.read_table(folder / f"{name}.parquet")
    column = table["y"].cast(pa.string()).combine_chunks().dictionary_encode()
    y = np.asarray(column.indices, dtype=np.int64)
    if "indices" in table.column_names:
        ones = table["indices"].combine_chunks()
        of, codes = np.repeat(np.arange(len(y)), np.diff(ones.offsets.to_numpy())), ones.flatten().to_numpy()
        width = int(table.schema.metadata[b"n_features"])
        most = np.sort(np.argsort(-np.bincount(codes, minlength=width), kind="stable")[:WIDTH])
        column = np.full(width, -1)
        column[most] = np.arange(len(most))
        kept = column[codes] >= 0
        X = np.zeros((len(y), len(most)))
        X[of[kept], column[codes[kept]]] = 1.0
        return X, y
    columns = []
    for feature in table.drop_columns(["y"]).columns:
        if pa.types.is_dictionary(feature.type):
            codes = feature.unify_dictionaries().combine_chunks().indices.to_numpy(zero_copy_only=False)
            columns += [(codes == code).astype(np.float64) for code in np.unique(codes)]
        else:
            columns.append(np.nan_to_num(feature.cast(pa.float64()).to_numpy(), nan=-1.0))
    return np.column_stack(columns), y


def split(name: str, X: Rows, y: Codes, seed: int) -> Split:
    """Four fifths to train on, and the rest, in an order drawn from a seed."""
    order = np.random.default_rng(seed).permutation(len(y))[: MOST_ROWS.get(name, 50_000)]
    train, test = np.split(order, [len(order) * 4 // 5])
    return Split(X[train], y[train], X[test], y[test])


def auc(shares: Rows, y: Codes, classes: Codes) -> float:
    """Mean area under the ROC curve of the classes that some test rows have and others have not."""
    areas = []
    for column, label in enumerate(classes[1:] if len(classes) == 2 else classes, start=len(classes) == 2):
        _, rank = np.unique(shares[:, column], return_inverse=True)
        positive, negative = np.bincount(rank, y == label), np.bincount(rank, y != label)
        if positive.sum() and negative.sum():
            below = np.cumsum(negative) - negative / 2
            areas.append(float((positive * below).sum() / (positive.sum() * negative.sum())))
    return float(np.mean(areas))


def quality(model: Any, data: Split) -> npt.NDArray[np.float64]:
    """Accuracy and AUC on the test rows."""
    shares = model.predict_proba(data.X_test)
    return np.array([np.mean(model.predict(data.X_test) == data.y_test), auc(shares, data.y_test, model.classes_)])


def majority(data: Split) -> float:
    """Accuracy of the most frequent training class."""
    return float(np.mean(data.y_test == np.bincount(data.y).argmax()))


def row(*cells: object) -> None:
    """Print a line of a Markdown table."""
    print(
        "| " + " | ".join(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in cells) + " |", flush=True
    )


def tables(folder: Path, names: list[str]) -> Iterator[tuple[str, Rows, Codes]]:
    """The data sets that are there; of the others, a line says so."""
    for name in names:
        if name in MADE or (folder / f"{name}.parquet").exists():
            yield name, *load(folder, name)
        else:
            print(f"{name} is left out: {folder / name}.parquet is missing", file=sys.stderr)
