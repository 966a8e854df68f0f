"""CPU time of ``explain`` beside shap's TreeExplainer on the exported forest: ``python benchmarks/explain.py``.

Shallow: the 8 features of Electricity at depth 8. Deep: 30 drawn features at depth 18. Both sides in turns in one run,
median of the rounds after one that is not counted; rows of the peer are transformed beforehand.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import shap
from harness import electricity, table

import raydt
from raydt.trees.shapley import explain

ROWS, ROUNDS = 10_000, 3


def drawn() -> tuple[Any, Any]:
    """Rows of 30 numbers; the class depends on the signs of half of them."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(2 * ROWS, 30))
    return X, ((X[:, :15] > 0).sum(axis=1) + draw.normal(size=len(X)) > 7.5).astype(int)


def seconds(work: Callable[[], object]) -> float:
    """CPU time of a call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def compared(name: str, data: tuple[Any, Any], depth: int, trees: int, rows: int) -> list[str]:
    """A line of the table."""
    X, y = data
    forest = raydt.ExactForestClassifier(n_estimators=trees, max_depth=depth, random_state=1).fit(X[:ROWS], y[:ROWS])
    described, pipeline, asked = forest.tree_sum(), forest.export("sklearn"), X[-rows:]
    theirs, peer_rows = pipeline[-1], pipeline[:-1].transform(asked)
    times: list[tuple[float, float]] = []
    for _ in range(ROUNDS + 1):
        ours = seconds(lambda: explain(described, asked))
        peer = seconds(lambda: shap.TreeExplainer(theirs).shap_values(peer_rows, check_additivity=False))
        times.append((ours, peer))
    ours, peer = (1e6 * statistics.median(side) / rows for side in zip(*times[1:], strict=True))
    return [name, f"{len(described.feature):,}", f"{ours:,.0f}", f"{peer:,.0f}", f"{peer / ours:.2f}"]


def main() -> None:
    """Print the table."""
    lines = [
        compared("shallow", electricity(), depth=8, trees=20, rows=500),
        compared("deep", drawn(), depth=18, trees=5, rows=60),
    ]
    print(
        "\n".join(table(["forest", "nodes", "raydt, us per row", "shap, us per row", "times as fast as shap"], lines))
    )


if __name__ == "__main__":
    main()
