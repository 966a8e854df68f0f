"""Accuracy of FuDyADT in a stream: with the smoothing that has been right most often, with none, and by other rules.

    python benchmarks/smoothing.py streams [--rows 10000] [--only NAME ...]    # the product, river's Hoeffding tree
    python benchmarks/smoothing.py rules [--rows 10000] [--only NAME ...]      # other rules on the same trees
    python benchmarks/smoothing.py numbers [--rows 3000] [--only NAME ...]     # numeric labels; river's tree and forest

Tables are streams in the order of their files, over the last 1,000 rows and over all; 100 rows are the warm-up. *Weak*
streams are made of them: the labels of 30 % or 70 % of the rows, or of all, are exchanged among these rows, and labels
are drawn by a coin. Each row is predicted just before it is learned. ``rules`` walks the path of each row in the live
tree and simulates other choices, with the same fading: the deepest node of at least m rows (1, 2, 4, ..., 1024, root),
or of depth at most d, by the m or d that has been right most often; and, bottom up, the node's own majority wherever
it has been right more often than what is chosen below it, by counts of each node, which a rebuild forgets.

``numbers`` predicts a column of a table from the others: R2 by the mean of all labels so far, by FuDyADT and by river's
regressors. The window follows the stream, and 500 rows are the warm-up.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from harness import arguments, parquet, print_machine, progress, read, replayed, session, show
from numba import njit
from river import forest as river_forests
from river import tree as river_trees

from raydt.examples.updates import DELETE_VALUE, INSERT, UpdateBatch
from raydt.trees.canonical_arrays import passes_left
from raydt.trees.counted_tree import MULTIPLES
from raydt.trees.records import majority, refine

WARMUP, WINDOW, SMOOTHING, FADE = 100, 1_000, 30.0, 1 - 2.0**-10
TABLES = (
    *("electricity", "letter", "pendigits_train", "posture", "poker_lsn", "poker_uci_train", "wine_quality_white"),
    *("noshow", "heart_train", "adult_train", "weather_noaa", "sea_concepts", "covtype_head10k", "abalone"),
    *("covtype_class3_vs_4", "bananas", "phishing", "purchase_train", "image_segments", "optdigits_train"),
)
NOISY = ("electricity", "adult_train", "letter", "poker_lsn", "wine_quality_white", "heart_train", "posture")
NUMBERS = {
    "kddcup99_10pct": ("dst_bytes", "src_bytes", "count"),
    "beijing_pm25": ("TEMP", "Iws"),
    "electricity": ("nswprice", "transfer"),
    "abalone": ("y",),
    "wine_quality_white": ("y",),
    "givemesomecredit": ("DebtRatio", "age"),
    "adult_train": ("hours-per-week", "capital-gain", "fnlwgt"),
    "weather_noaa": ("feat_1",),
    "noshow": ("days_ahead",),
    "heart_train": ("f4",),
    "covtype_head10k": ("Elevation",),
}
SIZES, DEPTHS = (*(2**i for i in range(11)), 2**40), tuple(range(20, -1, -1))


class Stream(NamedTuple):
    name: str
    rows: Any  #: A table with the label ``y``.
    weak: bool = False


def streams(asked: list[str], limit: int) -> Iterator[Stream]:
    draw = np.random.default_rng(7)
    for name in asked:
        rows = read(name).slice(0, limit)
        for i, field in enumerate(rows.schema):  # times as numbers
            if pa.types.is_timestamp(field.type):
                rows = rows.set_column(i, field.name, rows[field.name].cast(pa.int64()).cast(pa.float64(), safe=False))
        yield Stream(name, rows)
        for share in (0.3, 0.7, 1.0) if name in NOISY else ():
            y = rows["y"].to_numpy(zero_copy_only=False).copy()
            some = np.flatnonzero(draw.random(len(y)) < share)
            y[some] = y[draw.permutation(some)]
            yield Stream(f"{name}, {share:.0%} exchanged", rows.drop_columns("y").append_column("y", pa.array(y)), True)
    for name, shares in (("coin 60 / 40", (0.6, 0.4)), ("coin 50 / 30 / 20", (0.5, 0.3, 0.2))):
        X = {f"x{j}": draw.random(limit) for j in range(6)}
        yield Stream(name, pa.table(X | {"y": draw.choice(len(shares), limit, p=shares).astype(str)}), True)


def show_all(title: str, names: list[str], lines: list[tuple[Stream, int, list[float]]]) -> None:
    """Print accuracies in per cent by stream, and the means of those of tables and of weak streams."""
    for window in (WINDOW, 0):
        here = [(stream, values) for stream, of, values in lines if of == window]
        body = [[stream.name, *(f"{100 * value:.1f}" for value in values)] for stream, values in here]
        for kind, weak in (("tables", False), ("weak streams", True)):
            some = np.array([values for stream, values in here if stream.weak == weak])
            if len(some):
                body.append([f"mean of {len(some)} {kind}", *(f"{100 * value:.2f}" for value in some.mean(axis=0))])
        show(f"{title}, {f'the last {window:,} rows' if window else 'all rows'}", ["Stream", *names], body)


def compare(asked: Any) -> None:
    """The product with its default and with smoothing 0, the majority so far, and river's Hoeffding tree."""
    lines, spent = [], {0.0: 0.0, 30.0: 0.0, "river": 0.0}
    for stream in streams(asked.only, asked.rows):
        peer, used = hoeffding(stream.rows)
        spent["river"] += used
        for window in (WINDOW, 0):
            values = []
            model = {"model": "sliding_window", "window": window} if window else {"model": "incremental"}
            for smoothing in (0.0, 30.0):
                with tempfile.TemporaryDirectory() as folder:
                    pq.write_table(stream.rows, f"{folder}/rows.parquet")
                    source, learner = parquet("rows", Path(folder), label="y"), {"kind": "fudyadt"}
                    found, used = replayed(learner | {"smoothing": smoothing}, source, model | {"warmup": WARMUP})
                values.append(found["metrics"]["accuracy"])
                spent[smoothing] += used if window == 0 else 0.0
            lines.append((stream, window, [found["baselines"]["majority"], *values, peer]))
        progress(stream.name, window, *lines[-1][2])
    show_all("Accuracy, %", ["majority", "smoothing 0", "default", "river HT"], lines)
    print("\nprocessor seconds of all streams, all rows:", {name: round(used, 1) for name, used in spent.items()})


def hoeffding(rows: Any) -> tuple[float, float]:
    """Accuracy and processor seconds of river's Hoeffding tree with its defaults."""
    nominal = [field.name for field in rows.drop_columns("y").schema if pa.types.is_dictionary(field.type)]
    model = river_trees.HoeffdingTreeClassifier(nominal_attributes=nominal or None)
    labels = rows["y"].to_pylist()
    said, used = followed(model, rows.drop_columns("y"), labels)
    right = sum(a == b for a, b in zip(said[WARMUP:], labels[WARMUP:], strict=True))
    return right / (len(labels) - WARMUP), used


def followed(model: Any, features: Any, labels: list[Any]) -> tuple[list[Any], float]:
    """Return what a river model predicts for each row just before it learns it, and processor seconds."""
    examples = [{name: x for name, x in row.items() if x is not None and x == x} for row in features.to_pylist()]
    said, began = list[Any](), time.process_time()
    for x, y in zip(examples, labels, strict=True):
        said.append(model.predict_one(x))
        model.learn_one(x, y)
    return said, time.process_time() - began


def numbers(asked: Any) -> None:
    """R2 of predictions before learning, and processor seconds, of numeric labels."""
    names, warmup = (
        ["mean so far", "smoothing 0", "default", "gbdt", "forest", "river HT", "river ARF", "LightGBM"],
        500,
    )
    body, spent = list[list[str]](), np.zeros(len(names))
    for name, label in [(file, column) for file in asked.only for column in NUMBERS[file]]:
        rows = read(name).slice(0, asked.rows)
        rows = rows.drop_columns([field.name for field in rows.schema if pa.types.is_timestamp(field.type)])
        rows = rows.filter(pc.is_valid(rows[label]))
        y = rows[label].to_numpy().astype(np.float64)
        errors, used = [np.mean((y[1:] - np.cumsum(y)[:-1] / np.arange(1, len(y)))[warmup - 1 :] ** 2)], [0.0]
        with tempfile.TemporaryDirectory() as folder:
            pq.write_table(rows, f"{folder}/rows.parquet")
            trees = {"kind": "fudyadt", "criterion": "squared_error"}
            for learner in (
                {**trees, "smoothing": 0.0},
                trees,
                {"kind": "gbdt", "objective": "squared_error"},
                {"kind": "forest", "criterion": "squared_error"},
            ):
                stream = {"model": "adaptive_window", "warmup": warmup}
                found, seconds = replayed(learner, parquet("rows", Path(folder), label=label), stream)
                errors.append(found["metrics"]["mse"])
                used.append(seconds)
        features, nominal = rows.drop_columns(label), list[str]()
        for i, field in enumerate(features.schema):  # a leaf of river's has a linear model, which takes numbers
            if pa.types.is_dictionary(field.type):
                codes = features[field.name].combine_chunks().indices
                features, nominal = features.set_column(i, field.name, codes), [*nominal, field.name]
        kinds = river_trees.HoeffdingTreeRegressor, partial(river_forests.ARFRegressor, seed=7)
        for kind in kinds:
            said, seconds = followed(kind(nominal_attributes=nominal or None), features, y.tolist())
            errors.append(np.mean((y - np.array(said, dtype=np.float64))[warmup:] ** 2))
            used.append(seconds)
        began, squares = time.process_time(), list[Any]()
        table = features.to_pandas()
        for begin in range(warmup, len(y), 100):  # trained anew on all rows before
            model = lightgbm.LGBMRegressor(n_jobs=1, verbosity=-1).fit(table[:begin], y[:begin])
            squares.append((model.predict(table[begin : begin + 100]) - y[begin : begin + 100]) ** 2)
        errors.append(np.mean(np.concatenate(squares)))
        used.append(time.process_time() - began)
        values = [1 - error / np.var(y[warmup:]) for error in errors]
        progress(name, label, *values)
        body.append([f"{name} {label}", *(f"{value:.3f}" for value in values)])
        spent += used
    show("R2 of numeric labels", ["Stream", *names], body)
    print("\nprocessor seconds of all streams:", dict(zip(names, spent.round(1).tolist(), strict=True)))


@njit
def look(tree: Any, categorical: Any, x: Any, y: int, out: Any, own: Any, chosen: Any, key: Any) -> None:
    """Note whether each rule is right about a row: multiples of the smoothing, sizes, depths, and counts by node."""
    path, node, K = [np.int64(0)], np.int64(0), tree.counts.shape[1]
    shares = np.zeros((len(MULTIPLES), K))
    shares[:] = tree.counts[0] / max(1, tree.counts[0].sum())
    while tree.nodes[node].feature >= 0:
        j = tree.nodes[node].feature
        left = passes_left(tree, node, x[0, j], categorical[j])
        node = np.int64(tree.nodes[node].left) if left else np.int64(tree.nodes[node].right)
        path.append(node)
        for m in range(1, len(MULTIPLES)):
            refine(tree.counts, node, len(path) - 1, SMOOTHING * MULTIPLES[m], shares, m, m)
    labels, c = [majority(tree.counts, node) for node in path], 0
    for m in range(len(MULTIPLES)):
        out[c] = (labels[-1] if m == 0 else np.argmax(shares[m])) == y
        c += 1
    for size in SIZES:
        i = len(path) - 1
        while i > 0 and tree.statistics[path[i]].n < size:
            i -= 1
        out[c] = labels[i] == y
        c += 1
    for depth in DEPTHS:
        out[c] = labels[min(depth, len(path) - 1)] == y
        c += 1
    label = labels[-1]
    for i in range(len(path) - 1, -1, -1):
        node = path[i]
        if key[node] != tree.statistics[node].built:
            key[node], own[node], chosen[node] = tree.statistics[node].built, 0.0, 0.0
        if i < len(path) - 1:
            best = labels[i] if own[node] > chosen[node] else label
            own[node] = own[node] * FADE + (labels[i] == y)
            chosen[node] = chosen[node] * FADE + (label == y)
            label = best
    out[c] = label == y


def hits(stream: Stream, window: int) -> np.ndarray:
    """Return the outcomes of all rules on the rows after the warm-up, shape (rows, rules): right or wrong."""
    names, columns = stream.rows.drop_columns("y").column_names, []
    flags = [pa.types.is_dictionary(stream.rows.schema.field(name).type) for name in names]
    for name, flag in zip(names, flags, strict=True):
        column = stream.rows[name].to_pandas()
        columns.append(np.unique(column.astype(str), return_inverse=True)[1] if flag else column)
    X = np.ascontiguousarray(np.stack(columns, axis=1), dtype=np.float64)
    y = np.unique(stream.rows["y"].to_pandas().astype(str), return_inverse=True)[1].astype(np.int32)
    running, n = session("fudyadt", flags), np.arange(WARMUP)
    op, none = np.full(WARMUP, INSERT, np.int8), np.full(WARMUP, -1)
    running.apply(UpdateBatch(0, op, n, X[:WARMUP], y[:WARMUP], int(y.max()) + 1, none, WARMUP))
    out = np.zeros((len(y), len(MULTIPLES) + len(SIZES) + len(DEPTHS) + 1), dtype=np.bool_)
    by_node = np.zeros(4 * len(y)), np.zeros(4 * len(y)), np.full(4 * len(y), -9)
    for i in range(WARMUP, len(y)):
        live = running.coordinator.live
        look(live.tree, live.categorical, X[i : i + 1], y[i], out[i], *by_node)
        running.take_row(INSERT, i, X[i], int(y[i]))
        if window and i >= window:
            running.take_row(DELETE_VALUE, 0, X[i - window], int(y[i - window]))
    return out[WARMUP:]


def best_so_far(right: np.ndarray, fade: float) -> float:
    """Share of rows about which the candidate is right that has been right most often, the first on a tie."""
    counts, total = np.zeros(right.shape[1]), 0
    for row in right:
        total += row[counts.argmax()]
        counts = counts * fade + row
    return total / len(right)


def rules(asked: Any) -> None:
    """Accuracy of other rules, on the trees that the product has."""
    m, s, d = len(MULTIPLES), len(SIZES), len(DEPTHS)
    given = [2, *(i for i in range(m) if i != 2)]
    choices: dict[str, Callable[[np.ndarray], float]] = {
        "leaf": lambda out: out[:, 0].mean(),
        "30": lambda out: out[:, 2].mean(),
        "by smoothing": lambda out: best_so_far(out[:, given], FADE),
        "fading 1/256": lambda out: best_so_far(out[:, given], 1 - 2.0**-8),
        "no fading": lambda out: best_so_far(out[:, given], 1.0),
        "by size": lambda out: best_so_far(out[:, m : m + s], FADE),
        "by depth": lambda out: best_so_far(out[:, m + s : m + s + d], FADE),
        "by node": lambda out: out[:, -1].mean(),
    }
    lines = []
    for stream in streams(asked.only, asked.rows):
        for window in (WINDOW, 0):
            out = hits(stream, window)
            lines.append((stream, window, [float(choice(out)) for choice in choices.values()]))
        progress(stream.name, window, *lines[-1][2])
    show_all("Accuracy by rule, %", list(choices), lines)


if __name__ == "__main__":
    parts: dict[str, tuple[Callable[[Any], None], int, Iterable[str]]] = {
        "streams": (compare, 10_000, TABLES),
        "rules": (rules, 10_000, TABLES),
        "numbers": (numbers, 3_000, NUMBERS),
    }
    given = arguments(__doc__, part_={"choices": tuple(parts)}, rows=0, only=[""])
    work, most, tables = parts[given.part]
    given.rows, given.only = given.rows or most, [name for name in given.only if name] or list(tables)
    print_machine("river")
    work(given)
