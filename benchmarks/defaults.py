"""Default arguments of the fully dynamic tree: how well it predicts held-out rows, and rows of a stream.

    python benchmarks/defaults.py held-out | options | streams [--data FOLDER] [--orders 3] [--only NAME ...]

``held-out`` fits FullyDynamicTreeClassifier() to four fifths of each data set in a drawn order and predicts the rest,
with scikit-learn's DecisionTreeClassifier(max_depth=10) and the majority class; ``options`` changes one option at a
time; ``streams`` predicts each row just before it is learned. AUC is that of one class against the rest, in the mean of
the classes. Categories are columns of 0 and 1 for both sides, NaN is -1.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from harness import DATA, arguments, print_machine, progress, read, session, show
from sklearn.datasets import load_breast_cancer, load_wine, make_classification
from sklearn.tree import DecisionTreeClassifier

from raydt import FullyDynamicTreeClassifier
from raydt.examples.updates import DELETE, INSERT, UpdateBatch

#: Data sets of held-out rows; of a larger one, the first rows of the drawn order are used.
SETS = [
    *("electricity", "covtype_head10k", "poker_uci_train", "heart_train", "purchase_train", "a9a_train"),
    *("adult_train", "optdigits_train", "pendigits_train", "wine_quality_white", "givemesomecredit", "sea_concepts"),
    *("phishing", "bananas", "image_segments", "covtype_class3_vs_4", "posture"),
]
MOST_ROWS = {"givemesomecredit": 150_000}
#: Data sets that had no part in the choice of the defaults: ``--only`` with their names.
UNTOUCHED = ["w8a", "mushrooms", "abalone", "kddcup99_10pct", "basehock"]
#: Data sets that were first looked at after the choice: of files (poker_lsn, spamassassin, reuters21578_earn_bydate),
#: and of scikit-learn, the last with a class of one row in twenty, and one label in twenty drawn.
MADE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "made_rare": lambda: make_classification(50_000, 20, weights=[0.95], flip_y=0.05, random_state=0),
}
#: Most sparse features that are used: the most frequent ones.
WIDTH = 5_000
#: One option changed at a time.
CHANGES: tuple[dict[str, Any], ...] = (
    {}, *({"max_depth": depth} for depth in (10, 15, None)), *({"alpha": alpha} for alpha in (0.05, 0.1, 0.2)),
    *({"min_samples_split": rows} for rows in (5, 20)),
)  # fmt: skip

Rows = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


class Split(NamedTuple):
    X: Rows
    y: Codes
    X_test: Rows
    y_test: Codes


def load(folder: Path, name: str) -> tuple[Rows, Codes]:
    """Return X float64 (n, d) and class codes, in the order of the file."""
    if name in MADE:
        X, y = MADE[name]()
        return np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.int64)
    table = read(name, folder)
    y = np.asarray(table["y"].cast(pa.string()).combine_chunks().dictionary_encode().indices, dtype=np.int64)
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
    shares = model.predict_proba(data.X_test)
    return np.array([np.mean(model.predict(data.X_test) == data.y_test), auc(shares, data.y_test, model.classes_)])


def peer_quality(data: Split, seed: int) -> npt.NDArray[np.float64]:
    return quality(DecisionTreeClassifier(max_depth=10, random_state=seed).fit(data.X, data.y), data)


def majority(data: Split) -> float:
    return float(np.mean(data.y_test == np.bincount(data.y).argmax()))


def tables(folder: Path, names: list[str]) -> Iterator[tuple[str, Rows, Codes]]:
    """Yield the data sets that are there; a line says which are not."""
    for name in names:
        if name in MADE or (folder / f"{name}.parquet").exists():
            progress(name)
            yield name, *load(folder, name)
        else:
            progress(f"{name} is left out: {folder / name}.parquet is missing")


def held_out(folder: Path, names: list[str], orders: int) -> None:
    """Accuracy and AUC on held-out rows, in the mean of the orders."""
    lines, means = [], []
    for name, X, y in tables(folder, names):
        found = []
        for seed in range(orders):
            data = split(name, X, y, seed)
            ours = quality(FullyDynamicTreeClassifier().fit(data.X, data.y), data)
            found.append([majority(data), *ours, *peer_quality(data, seed)])
        means.append(np.mean(found, axis=0))
        shape = f"{len(data.y) + len(data.y_test):,} x {X.shape[1]}, {y.max() + 1}"
        lines.append([name, shape, *(f"{value:.4f}" for value in means[-1])])
    lines.append(["mean", "", *(f"{value:.4f}" for value in np.mean(means, axis=0))])
    header = ["Data", "rows x features, classes", "majority", "raydt", "AUC", "scikit-learn", "AUC"]
    show("Held-out rows", header, lines)


def options(folder: Path, names: list[str], orders: int) -> None:
    """One option changed at a time: what it gains over scikit-learn's tree, in the mean of data sets and orders."""
    gains: dict[str, list[Any]] = {}
    smoothings = [{"smoothing": s} for s in (0.0, 10.0, 20.0, 40.0, 80.0)]  # of predictions only: the tree is the same
    for name, X, y in tables(folder, names):
        here: dict[str, list[Any]] = {}
        for seed in range(orders):
            data = split(name, X, y, seed)
            peer, base = peer_quality(data, seed), majority(data)
            for change in (CHANGES[0], *smoothings, *CHANGES[1:]):
                result = quality(FullyDynamicTreeClassifier(**change).fit(data.X, data.y), data)
                here.setdefault(_in_words(change), []).append([*(result - peer), result[0] - base])
        for words, values in here.items():
            gains.setdefault(words, []).append(np.mean(values, axis=0))
    lines = []
    for words, values in gains.items():
        accuracy, area, _ = np.mean(values, axis=0)
        lines.append([words, f"{accuracy:+.4f}", f"{area:+.4f}", f"{np.min(values, axis=0)[2]:+.4f}"])
    header = ["accuracy less scikit-learn's", "AUC less scikit-learn's", "worst accuracy less the majority's"]
    show("One option changed", ["Options", *header], lines)


def replay(X: Rows, y: Codes, window: int, change: dict[str, Any]) -> tuple[float, float, float]:
    """Share of rows predicted right just before they are learned, rows rebuilt and microseconds of CPU per update."""
    running = session("fudyadt", X.shape[1], **change)
    right = done = 0
    began = time.process_time()
    for first in range(0, len(y), 1000):
        new = np.arange(first, min(first + 1000, len(y)))
        old = new - window if window else np.full(len(new), -1)
        pairs = np.stack([old, new], axis=1).ravel()
        kept = pairs >= 0
        ids, ops = pairs[kept], np.tile(np.array([DELETE, INSERT], np.int8), len(new))[kept]
        batch = UpdateBatch(done, ops, ids, X[new], y[new].astype(np.int32), int(y.max()) + 1, np.full(len(ops), -1))
        result = running.driver.run(running.coordinator.process(batch))
        right += int((result.predictions[ops == INSERT] == y[new]).sum())
        done += len(ops)
    used = 1e6 * (time.process_time() - began) / done
    return right / len(y), running.statistics()["rebuilt_rows"] / done, used


def streams(folder: Path, names: list[str], orders: int) -> None:
    """Accuracy of a stream in the order of the file."""
    lines = []
    for name, window in (("electricity", 0), ("electricity", 1000), ("covtype_head10k", 0), ("sea_concepts", 0)):
        for _, X, y in tables(folder, [name] if name in names else []):
            replay(X[:500], y[:500], window, {})
            for change in (*CHANGES, {"beta": 0.1}):
                accuracy, rebuilt, used = replay(X, y, window, change)
                cells = f"{accuracy:.4f}", f"{rebuilt:.1f}", f"{used:.1f}"
                lines.append([name, f"{window or 'none'}", _in_words(change), *cells])
    header = ["Stream", "window", "options", "accuracy", "rows rebuilt per update", "us per update"]
    show("Streams", header, lines)


def _in_words(change: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in change.items()) or "the defaults"


if __name__ == "__main__":
    parts = {"held-out": held_out, "options": options, "streams": streams}
    given = arguments(__doc__, part_={"choices": parts}, data=DATA, orders=3, only=SETS)
    print_machine("scikit-learn")
    parts[given.part](given.data, given.only, given.orders)
