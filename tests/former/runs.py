"""Write one small, complete run of each learner with the program on ``PYTHONPATH``: the runs of its format.

::

    git worktree add ../before 2e3b84d
    PYTHONPATH=../before python tests/former/runs.py 1

A run of the present format is made in the same way, whenever ``FORMAT_VERSION`` is raised; from format 3 on by two
shards, which own the rows of a GBDT. ``receipts-1.jsonl`` is a chain that 60156d2 wrote: deletions, insertions and
purges, signed and not, under the key ``bytes(range(32))``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: The program that wrote the runs of each format.
COMMITS = {1: "2e3b84d", 2: "the first of format 2", 3: "the first of format 3"}
SEA, SPARSE = {"generator": "sea"}, {"generator": "sparse", "irrelevant": 12, "drift": 3, "noise": 0.2}
NUMBERS = {"kind": "csv", "path": "numbers.csv", "label": "y"}
#: By the name of the file; before a hyphen, the learner.
LEARNERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "best_split": (SPARSE, {}),
    "confidence_tree": (SEA, {"rule": "hoeffding", "delta": 0.2}),
    "forest": (SEA, {"n_estimators": 3, "max_depth": 3}),
    "fudyadt": (SEA, {"epsilon": 0.2, "max_depth": 3}),
    "gbdt": (SEA, {"max_iter": 3, "max_leaf_nodes": 4}),
    "forest-numbers": (NUMBERS, {"criterion": "squared_error", "n_estimators": 3, "max_depth": 3}),
    "fudyadt-numbers": (NUMBERS, {"criterion": "squared_error", "max_depth": 3}),
    "sparse_tree": (SPARSE, {"finder": "updgini", "alpha": 0.0, "beta": 0.01, "finder_alpha": 0.2, "max_depth": 3}),
}


def job(kind: str) -> dict[str, Any]:
    """The config of a run."""
    source, options = LEARNERS[kind]
    return {
        "source": source if source is NUMBERS else {"kind": "synthetic", "n": 150, "seed": 7, **source},
        "stream": {"model": "sliding_window", "window": 40, "warmup": 20},
        "learner": {"kind": kind.partition("-")[0], "feature_groups": 2, **options},
        "cluster": {"backend": "in_process", "shards": 2, "memory_limit": 0, "batch_size": 40},
        "checkpoint": {"every_updates": 70, "every_seconds": None, "keep": 2},
        "output": {"report": False, "predictions": True},
    }


def main(number: str) -> None:
    """Write the runs of a format."""
    (HERE / f"format-{number}").mkdir(exist_ok=True)
    for kind in (kind for kind in LEARNERS if number == "1" or "-" not in kind):
        with tempfile.TemporaryDirectory() as folder:
            config, run = Path(folder, "job.yaml"), Path(folder, "run")
            config.write_text(json.dumps(job(kind)), encoding="utf-8")
            rows = "".join(f"{i * 37 % 150},{i * 11 % 7},{1.7e9 + i * 37 % 150}\n" for i in range(150))
            Path(folder, "numbers.csv").write_text(f"a,b,y\n{rows}", encoding="utf-8")
            subprocess.run([sys.executable, "-m", "pipelines.cli", "replay", config, "--out", run], check=True)
            for file in (".lock", "log.jsonl"):  # they name the machine, and folders of it
                (run / file).unlink(missing_ok=True)
            shutil.make_archive(str(HERE / f"format-{number}" / kind), "zip", run)


if __name__ == "__main__":
    main(sys.argv[1])
