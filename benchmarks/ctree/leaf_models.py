"""Predictions of leaves: naive Bayes on counts, with normal numbers, with inherited examples, river's Gaussian leaves.

Prequential accuracy (predict, then learn), one example at a time, defaults otherwise. *Drawn*: 5,300 rows of 49 numbers
in 5 classes, whose middles are drawn from N(0, s) and widths from exp(N(0, .2)), mean of three seeds. The others are
the first rows of streams of the folder of data, in their order; image segments are shuffled. With *theorem* no leaf of
so few rows is split.
Run: python benchmarks/ctree/leaf_models.py [--data FOLDER] [--rows 5000] [--without-river]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path[0] = str(Path(__file__).parents[1])  # this folder has a river.py

from raydt import RiverConfidenceTreeClassifier  # noqa: E402

FOLDER = Path(__file__).parents[3] / "shared" / "data"
STREAMS = (
    *("electricity", "covtype_head10k", "poker_uci_train", "sea_concepts", "posture", "beijing_pm25", "noshow"),
    *("bananas", "image_segments", "pendigits_train", "wine_quality_white", "adult_train", "phishing"),
)
KINDS = ("adaptive", "adaptive_normal", "adaptive_inherited")
Examples = list[tuple[dict[str, Any], str]]


def drawn(seed: int, spread: float) -> Examples:
    """Return rows of 49 numbers in five classes."""
    rng = np.random.default_rng(seed)
    middle, width = rng.normal(0.0, spread, (5, 49)), np.exp(rng.normal(0.0, 0.2, (5, 49)))
    y = rng.integers(0, 5, 5300)
    X = middle[y] + width[y] * rng.normal(size=(5300, 49))
    rows = [{f"x{j}": v for j, v in enumerate(x)} for x in X.tolist()]
    return list(zip(rows, map(str, y.tolist()), strict=True))


def stream(path: Path, rows: int) -> Examples:
    """Return the first rows of a file: numbers, and text as categories; times and persons are left out."""
    table = pq.read_table(path)
    y = table.column("y").cast(pa.string()).to_pylist()
    table = table.drop_columns([n for n in ("y", "time", "scheduled", "patient") if n in table.column_names])
    columns = {
        name: [v if v is None or isinstance(v, str) else float(v) for v in table.column(name).to_pylist()]
        for name in table.column_names
    }
    order = np.random.default_rng(0).permutation(len(y)) if path.stem == "image_segments" else np.arange(len(y))
    return [({name: column[i] for name, column in columns.items()}, y[i]) for i in order[:rows].tolist()]


def accuracy(model: Any, examples: Examples) -> tuple[float, float]:
    """Return the share of right predictions, and processor time in us a row."""
    right, began = 0, time.process_time()
    for x, y in examples:
        right += model.predict_one(x) == y
        model.learn_one(x, y)
    return right / len(examples), (time.process_time() - began) / len(examples) * 1e6


def cases(folder: Path, rows: int) -> Iterator[tuple[str, list[Examples], dict[str, Any]]]:
    """Yield the streams by name, and options of ours."""
    for spread in (0.2, 0.25):
        parts = [drawn(seed, spread) for seed in range(3)]
        yield f"drawn, s = {spread}", parts, {}
        yield f"drawn, s = {spread}, theorem", parts, {"confidence": "theorem", "renew_bins": 100}
    for name in STREAMS:
        if (folder / f"{name}.parquet").exists():
            yield name, [stream(folder / f"{name}.parquet", rows)], {}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=FOLDER)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--without-river", action="store_true")
    parser.add_argument("--only", default="", help="streams with this in their names")
    given = parser.parse_args()
    names = [*KINDS]
    models = [lambda kind=kind, **more: RiverConfidenceTreeClassifier(leaf_prediction=kind, **more) for kind in KINDS]
    if not given.without_river:
        from river.tree import HoeffdingTreeClassifier

        models, names = [*models, lambda **more: HoeffdingTreeClassifier()], [*names, "river"]
    print("| stream |", " | ".join(names), "|")
    means: list[list[float]] = []
    for name, parts, more in cases(given.data, given.rows):
        if given.only not in name:
            continue
        found = [np.mean([accuracy(make(**more), part) for part in parts], axis=0) for make in models]
        means.append([float(one[0]) for one in found])
        print(f"| {name} |", " | ".join(f"{one[0]:.3f} ({one[1]:.0f} us)" for one in found), "|", flush=True)
    print("| mean |", " | ".join(f"{mean:.3f}" for mean in np.mean(means, axis=0)), "|")


if __name__ == "__main__":
    main()
