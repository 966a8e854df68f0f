"""Small jobs and runs that are updated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

import pipelines

# -- updatable -------------------------------------------------------------------------------------------------------
# A fixed sequence of examples and runs over its beginning, for tests of ``update``.

COLUMNS = ["key", "a", "colour", "y"]


def table(begin: int, end: int, *, text_ids: bool = True) -> pa.Table:
    """Examples ``begin`` to ``end`` of one fixed sequence."""
    rng = np.random.default_rng(1)
    a, colour = np.round(rng.normal(size=2000), 2), rng.integers(0, 3, 2000)
    y = np.where((a > 0) ^ (colour == 1), "yes", np.where(rng.random(2000) < 0.3, "no", "perhaps"))
    key = [f"k{i:04d}" for i in range(2000)] if text_ids else list(range(2000))
    columns = [key, a, np.array(["red", "green", "blue"])[colour], y]
    return pa.table([pa.array(list(c)[begin:end]) for c in columns], names=COLUMNS)


def replayed(folder: Path, **source: Any) -> Path:
    """A run over the first 200 examples."""
    pq.write_table(table(0, 200, text_ids=source.pop("text_ids", True)), folder / "train.parquet")
    stream = source.pop("stream", {"model": "incremental"})
    learner = source.pop("learner", {"kind": "fudyadt", "alpha": 0.02, "beta": 0.02})
    config = {
        "checkpoint": source.pop("checkpoint", {}),
        "source": {"kind": "parquet", "path": str(folder / "train.parquet"), "id": "key", **source},
        "stream": stream,
        "learner": learner,
        "cluster": {"backend": "in_process"},
        "output": {"predictions": True, "report": False},
    }
    return Path(pipelines.replay(config, folder / "run").path)


def ids_file(file: Path, ids: list[Any], name: str = "id") -> Path:
    pacsv.write_csv(pa.table({name: ids}), file)
    return file


# -- small job -------------------------------------------------------------------------------------------------------
# A job that takes no time, for tests of the commands.

JOB = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 500},
    "stream": {"model": "incremental"},
    "learner": {"kind": "fudyadt", "max_depth": 3},
    "cluster": {"backend": "in_process"},
    "output": {"report": False},
}
