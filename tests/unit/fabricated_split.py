"""A run folder of a sparse best split as a replay would leave it, made up from a seed."""

from __future__ import annotations

import numpy as np
import yaml

from raydt.folders.arrays import save_folder
from tests.unit.fabricated_run import fabricated_metrics, fabricated_run, write_table

UPDATES = 4500
TOKENS = ["offer", "<b>bold</b>", "", "w" * 300]
SPARSE = [{"name": "words", "kind": "sparse", "features": 1000}]
SPLIT = {"feature": 0, "name": "offer", "score": 0.25, "rows": 200, "with_feature": 50}
AUDIT = {
    "ok": True,
    "conformance": "holds",
    "feasibility": "proven",
    "reason": "",
    "checked": {"splits": 1},
    "worst": {"score": 0.26, "optimum": 0.25, "ratio": 1.04},
    "failures": [],
}
OWN = {"changes": 7, "moves": 9000, "buckets": 40, "rebuilds": 0, "rebuilt_rows": 0, "nodes": 3, "split": SPLIT}


def events(number, last=UPDATES, kinds=12, seed=1):
    rng = np.random.default_rng(seed)
    n = rng.integers(50, 100, number)
    return {
        "seq": np.sort(rng.choice(last, number, replace=False)),
        "feature": np.arange(number) % kinds,
        "score": rng.random(number),
        "n": n,
        "n1": n // 3,
    }


def best_split_run(folder, number=30, finder=None, **changed):
    finder = finder or {"name": "updgini"}
    fabricated_run(folder, learner="best_split", features=SPARSE, finder=finder, **{**OWN, **changed})
    config = {"source": {"kind": "parquet", "path": "x.parquet"}, "learner": {"kind": "best_split"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    for table in ("metrics", "events"):
        for part in (folder / table).iterdir():
            part.unlink()
    metrics = fabricated_metrics(450, UPDATES // 450)
    scan = finder["name"] == "scan"
    metrics |= {"changes": np.arange(450), "moves": 20 * np.arange(450) * (not scan)}
    metrics |= {"buckets": np.full(450, 0 if scan else 40)}
    write_table(folder / "metrics", metrics)
    if number:
        write_table(folder / "events", events(number))
    meta = {"learner": {"kind": "best_split", "alpha": 0.1}, "features": SPARSE, "classes": []}
    arrays = {"split": np.array([0, 200, 100, 50, 40])}
    save_folder(folder / "model", "model", meta | {"categories": {"words": TOKENS}}, {"arrays": arrays})
    return folder
