"""MOA's ensembles on two streams, through CapyMOA: prequential accuracy, and processor time of each row.

Needs ``pip install capymoa`` (in an environment of its own) and Java 17; nothing of raydt. The exact forest on the same
rows: ``python benchmarks/forest/shares.py --sets --streams electricity covtype_head10k --limit 45312``.
Run: python benchmarks/forest/ensembles_of_moa.py [--data FOLDER] [--streams NAME ...] [--limit ROWS]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from capymoa.classifier import (
    AdaptiveRandomForestClassifier,
    LeveragingBagging,
    StreamingGradientBoostedTrees,
    StreamingRandomPatches,
)
from capymoa.evaluation import prequential_evaluation
from capymoa.stream import NumpyStream

FOLDER = Path(__file__).parents[3] / "shared" / "data"
LEARNERS = {
    "ARF 10": lambda schema: AdaptiveRandomForestClassifier(schema=schema, ensemble_size=10),
    "ARF 30": lambda schema: AdaptiveRandomForestClassifier(schema=schema, ensemble_size=30),
    "SRP 10": lambda schema: StreamingRandomPatches(schema=schema, ensemble_size=10),
    "Leveraging Bagging 10": lambda schema: LeveragingBagging(schema=schema, ensemble_size=10),
    "SGBT": lambda schema: StreamingGradientBoostedTrees(schema=schema),
}


def stream(path: Path, limit: int) -> NumpyStream:
    """Return the first rows of a file; categories by number."""
    table = pq.read_table(path)[:limit]
    columns = []
    for column in table.columns:
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        text = pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type)
        codes = pc.dictionary_encode(plain).combine_chunks().indices if text else plain
        columns.append(codes.to_numpy(zero_copy_only=False).astype(float))
    y = np.unique(columns.pop(table.column_names.index("y")), return_inverse=True)[1]
    return NumpyStream(np.column_stack(columns), y, target_type="categorical")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=FOLDER)
    parser.add_argument("--streams", nargs="*", default=["electricity", "covtype_head10k"])
    parser.add_argument("--limit", type=int, default=45_312)
    given = parser.parse_args()
    print("| stream | learner | accuracy | us a row |")
    for name in given.streams:
        for learner, make in LEARNERS.items():
            rows = stream(given.data / f"{name}.parquet", given.limit)
            found = prequential_evaluation(rows, make(rows.get_schema()), window_size=1000)
            n = rows.X.shape[0] if hasattr(rows, "X") else found["cumulative"].metrics_dict()["instances"]
            share, took = found["cumulative"].accuracy() / 100, found["cpu_time"] / n * 1e6
            print(f"| {name} | {learner} | {share:.3f} | {took:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
