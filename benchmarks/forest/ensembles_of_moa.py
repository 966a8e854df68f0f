"""MOA's ensembles, and its tree PLASTIC, beside the exact forest: prequential accuracy, processor time of each row.

All in one process. Needs ``pip install capymoa`` beside raydt, and Java 17. The first 500 rows are not scored.
The exact forest is that of the last 1,000 rows, with its default trees and with 20 that hold all rows. MOA's times have
those of the virtual machine's own threads, which compile and collect garbage; a stream of some thousand rows ends while
it still compiles.

    python benchmarks/forest/ensembles_of_moa.py [--streams NAME ...] [--rows N] [--only LEARNER ...]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from capymoa.classifier import (
    PLASTIC,
    AdaptiveRandomForestClassifier,
    LeveragingBagging,
    StreamingGradientBoostedTrees,
    StreamingRandomPatches,
)
from capymoa.evaluation import prequential_evaluation
from capymoa.stream import NumpyStream
from harness import DATA, machine
from shares import WARMUP, replayed

#: Trees of the exact forest, and the share of them that holds each row.
OURS = {"exact forest, default": (40, 0.5), "exact forest, 20 trees, share 1": (20, 1.0)}
THEIRS = {
    "ARF 10": lambda schema: AdaptiveRandomForestClassifier(schema=schema, ensemble_size=10),
    "ARF 30": lambda schema: AdaptiveRandomForestClassifier(schema=schema, ensemble_size=30),
    "SRP 10": lambda schema: StreamingRandomPatches(schema=schema, ensemble_size=10),
    "Leveraging Bagging 10": lambda schema: LeveragingBagging(schema=schema, ensemble_size=10),
    "PLASTIC (one tree)": lambda schema: PLASTIC(schema=schema),
    "SGBT": lambda schema: StreamingGradientBoostedTrees(schema=schema),
}


def stream(path: Path, rows: int | None) -> NumpyStream:
    """Return the first rows of a file, or all; categories by number."""
    table = pq.read_table(path)[:rows]
    columns = []
    for column in table.columns:
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        text = pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type)
        codes = pc.dictionary_encode(plain).combine_chunks().indices if text else plain
        columns.append(codes.to_numpy(zero_copy_only=False).astype(float))
    y = np.unique(columns.pop(table.column_names.index("y")), return_inverse=True)[1]
    return NumpyStream(np.column_stack(columns), y, target_type="categorical")


def of_moa(learner: str, path: Path, rows: int | None) -> tuple[float, float]:
    """Accuracy after the first rows, and microseconds a row."""
    data = stream(path, rows)
    model = THEIRS[learner](data.get_schema())
    found = prequential_evaluation(data, model, window_size=1000, store_predictions=True, store_y=True)
    y, known = np.array(found.ground_truth_y()), np.array(found.predictions())
    return float(np.mean(y[WARMUP:] == known[WARMUP:])), found.cpu_time() / len(y) * 1e6


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", nargs="*", default=["electricity", "covtype_head10k"])
    parser.add_argument("--rows", type=int, help="first rows of each stream; all by default")
    parser.add_argument("--only", nargs="*", default=[*THEIRS, *OURS])
    asked = parser.parse_args()
    print(machine("capymoa"), "", "| stream | learner | accuracy | us a row |", "|---|---|---:|---:|", sep="\n")
    for name in asked.streams:
        path = DATA / f"{name}.parquet"
        for learner in asked.only:
            if learner in OURS:
                replayed(name, 700, *OURS[learner])  # imports, and compiles
                accuracy, took = replayed(name, asked.rows, *OURS[learner])
            else:
                accuracy, took = of_moa(learner, path, asked.rows)
            print(f"| {name} | {learner} | {accuracy:.3f} | {took:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
