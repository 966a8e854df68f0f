"""Sparse best splits: UPDGINI and UPDENT beside the scan of all seen features.

    python benchmarks/sparse/run.py TABLE [OPTIONS]

    speed      UPDGINI and UPDENT beside the scan, a query after every update; insertions and windows
    dimension  time per update by the number of features
    alpha      filled buckets and time by alpha (Figure 1)
    points     time and filled buckets by the number of rows (Figures 2, 3)
    density    time by the number of features and by density (Figure 4)
    datasets   real data: time, worst ratio, what auto chooses (Tables 1, 2, Figure 5)
    memory     bytes per seen and per unseen feature
    tree       the sparse fully dynamic tree beside river, the dense tree, and the trivial predictors

``--seeds`` is the number of trials, or of rounds of a timing; ``--plot`` writes the figure beside the page of results.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # where the harness and this folder, as ``sparse``, are found

from harness import commands  # noqa: E402 (needs the path)

#: Name of each table, and the function that prints it.
TABLES = {
    "speed": "sparse.figures:speed", "dimension": "sparse.figures:dimension", "alpha": "sparse.figures:alpha",
    "points": "sparse.figures:points", "density": "sparse.figures:density", "datasets": "sparse.figures:datasets",
    "memory": "sparse.figures:memory", "tree": "sparse.tree:run",
}  # fmt: skip

if __name__ == "__main__":
    commands(__doc__, TABLES, "river", "ray", data=[])
