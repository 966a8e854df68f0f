"""Short windows of Electricity: 4,000 rows, 50 trees of 10 leaves, defaults otherwise, beside LightGBM trained again.

A window slides over the rows in their order; each step predicts the incoming rows, then takes them in and the oldest
out. Mean accuracy and standard deviation of ten starts (``random_state``); LightGBM has no chance in it.
Run: python benchmarks/gbdt/short_windows.py [--starts 10]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raydt import OnlineGradientBoostingClassifier

FILE = Path(__file__).parents[3] / "shared" / "data" / "electricity.parquet"
WINDOW = 4000


def slide(X: Any, y: Any, step: int, predict: Callable[[int], Any]) -> float:
    """Return the accuracy of what ``predict`` says of the rows from a position on, all of which are known before."""
    right = [predict(at) == y[at : at + step] for at in range(WINDOW, len(X) - step + 1, step)]
    return float(np.mean(right))


def updated(X: Any, y: Any, step: int, seed: int, retrain: Any) -> float:
    """Ours: trained once, then updated."""
    model = OnlineGradientBoostingClassifier(
        max_iter=50, max_leaf_nodes=10, n_jobs=1, random_state=seed, retrain=retrain
    )
    model.partial_fit(X[:WINDOW], y[:WINDOW], [0, 1], ids=np.arange(WINDOW))

    def predict(at: int) -> Any:
        come, go = np.arange(at, at + step), np.arange(at - WINDOW, at - WINDOW + step)
        found = model.predict(X[come])
        model.replace_examples(go, X[come], y[come], new_ids=come, digests=False)
        return found

    return slide(X, y, step, predict)


def trained(X: Any, y: Any, step: int) -> float:
    """Return the accuracy of LightGBM, trained again at each step."""

    def predict(at: int) -> Any:
        model = lightgbm.LGBMClassifier(n_estimators=50, num_leaves=10, verbose=-1, n_jobs=1)
        return model.fit(X[at - WINDOW : at], y[at - WINDOW : at]).predict(X[at : at + step])

    return slide(X, y, step, predict)


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=10)
    starts = parser.parse_args().starts
    table = pq.read_table(FILE)
    y = np.asarray(pc.equal(table.column("y").cast("string"), "UP")).astype(np.int64)
    columns = [table.column(name) for name in table.column_names if name != "y"]
    plain = [c.combine_chunks().indices if hasattr(c.type, "value_type") else c for c in columns]
    X = np.column_stack([np.asarray(c).astype(float) for c in plain])
    for step in (1000, 200):
        print(f"{step} in and out: LightGBM {trained(X, y, step):.4f}", flush=True)
        for retrain in ("auto", "never"):
            found = [updated(X, y, step, seed, retrain) for seed in range(starts)]
            print(f"  retrain: {retrain} {np.mean(found):.4f}, deviation {np.std(found):.4f}", flush=True)


if __name__ == "__main__":
    main()
