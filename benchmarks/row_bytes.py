"""Bytes of memory for each live row: the growth of a process from N to 2 N rows of 10 numbers, by learner.

``python benchmarks/row_bytes.py --rows 500000``; each fit has a process of its own. ``--learners`` names some.
"""

import gc
import subprocess
import sys

import numpy as np
import psutil
from harness import arguments

LEARNERS = {
    "fudyadt": "FullyDynamicTreeClassifier(max_depth=10)", "confidence_tree": "ConfidenceTreeClassifier()",
    "gbdt": "OnlineGradientBoostingClassifier(max_iter=20)", "gbdt, 100": "OnlineGradientBoostingClassifier()",
    "forest": "ExactForestClassifier(n_estimators=20)",
}  # fmt: skip


def resident(model: str, rows: int) -> int:
    """Return the resident bytes of this process that a fitted model adds."""
    import raydt

    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 10))
    eval(f"raydt.{model}", {"raydt": raydt}).fit(X, X[:, 0] > 0, ids=np.arange(1000))  # compiled, and warm
    X = rng.normal(size=(rows, 10))
    y = X[:, 0] + rng.normal(size=rows) > 0
    gc.collect()
    before = psutil.Process().memory_info().rss
    fitted = eval(f"raydt.{model}", {"raydt": raydt}).fit(X, y, ids=np.arange(rows))
    gc.collect()
    assert fitted.n_live_ == rows if hasattr(fitted, "n_live_") else True
    return psutil.Process().memory_info().rss - before


def main() -> None:
    given = arguments(__doc__, rows=500_000, learners=[*LEARNERS], one={"nargs": 2})
    if given.one:
        print(resident(given.one[0], int(given.one[1])))
        return
    for kind, model in ((kind, LEARNERS[kind]) for kind in given.learners):
        one, two = (
            int(subprocess.check_output([sys.executable, __file__, "--one", model, str(n)]).split()[-1])
            for n in (given.rows, 2 * given.rows)
        )
        print(f"{kind:16} {model:46} {(two - one) / given.rows:8.0f} bytes a row")


if __name__ == "__main__":
    main()
