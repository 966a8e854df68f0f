"""CPU time of ``explain`` beside shap's TreeExplainer on the exported forest: ``python benchmarks/explain.py``.

Shallow: the 8 features of Electricity at depth 8. Deep: 30 drawn features at depth 18. Both sides in turns in one run,
median of the rounds after one that is not counted; rows of the peer are transformed beforehand.
"""

from typing import Any

import numpy as np
import shap
from harness import arguments, electricity, in_turns, print_machine, show

import raydt
from raydt.trees.shapley import explain


def drawn(rows: int) -> tuple[Any, Any]:
    """Rows of 30 numbers; the class depends on the signs of half of them."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(2 * rows, 30))
    return X, ((X[:, :15] > 0).sum(axis=1) + draw.normal(size=len(X)) > 7.5).astype(int)


def compared(name: str, data: tuple[Any, Any], n: int, depth: int, trees: int, asked: int, rounds: int) -> list[str]:
    X, y = data
    forest = raydt.ExactForestClassifier(n_estimators=trees, max_depth=depth, random_state=1).fit(X[:n], y[:n])
    described, pipeline, rows = forest.tree_sum(), forest.export("sklearn"), X[-asked:]
    theirs, peer_rows = pipeline[-1], pipeline[:-1].transform(rows)
    sides = {
        "raydt": lambda: explain(described, rows),
        "shap": lambda: shap.TreeExplainer(theirs).shap_values(peer_rows, check_additivity=False),
    }
    ours, peer = (1e6 * taken.median / asked for taken in in_turns(sides, rounds).values())
    return [name, f"{len(described.feature):,}", f"{ours:,.0f}", f"{peer:,.0f}", f"{peer / ours:.2f}"]


if __name__ == "__main__":
    given = arguments(__doc__, rows=10_000, rounds=3)
    print_machine("shap", "scikit-learn")
    n, rounds = given.rows, given.rounds
    lines = [compared("shallow", electricity(), n, 8, 20, 500, rounds)]
    lines.append(compared("deep", drawn(n), n, 18, 5, 60, rounds))
    show("Explanations", ["forest", "nodes", "raydt, us per row", "shap, us per row", "times as fast as shap"], lines)
