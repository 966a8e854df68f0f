"""The exact forest of the last rows beside river's adaptive random forest, or beside MOA's ensembles.

    python benchmarks/forest/streams.py [--only NAME ...] [--limit ROWS] [--window 1000]
    python benchmarks/forest/streams.py --moa [--only NAME ...] [--limit ROWS] [--learners NAME ...]

Each row is predicted just before it is learned; processor time for each row, a whole replay for ours. River's forest
has ten trees and its defaults; beside it the exact forest has one setting for all streams, which was chosen on the
first 5,000 rows of each: twenty trees, of which each example lives in five. ``--moa`` needs ``pip install capymoa`` and
Java 17; its first 500 rows are not scored. MOA's times have those of the virtual machine's own threads, which compile
and collect garbage; a stream of some thousand rows ends while it still compiles.
"""

import sys
import time
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])  # where the harness is found

import numpy as np  # noqa: E402 (needs the path)
from harness import DATA, arguments, parquet, print_machine, progress, read, replayed, show  # noqa: E402

NAMES = ("electricity", "bananas", "image_segments", "posture", "poker_lsn", "covtype_head10k", "covtype_class3_vs_4")
WARMUP = 500
FAST = {
    "n_estimators": 20, "sample_share": 0.25, "max_features": "sqrt", "thresholds": 2, "min_samples_split": 4,
    "max_depth": 15, "rebuild": "lazy",
}  # fmt: skip
#: Exact forests beside MOA's ensembles: trees, and the share of them that holds each row.
OURS = {
    "exact forest, default": {"n_estimators": 40, "sample_share": 0.5},
    "exact forest, 20 trees, share 1": {"n_estimators": 20, "sample_share": 1.0},
}
#: MOA's learners by their name in CapyMOA, and their options.
THEIRS: dict[str, tuple[str, dict[str, int]]] = {
    "ARF 10": ("AdaptiveRandomForestClassifier", {"ensemble_size": 10}),
    "ARF 30": ("AdaptiveRandomForestClassifier", {"ensemble_size": 30}),
    "SRP 10": ("StreamingRandomPatches", {"ensemble_size": 10}),
    "Leveraging Bagging 10": ("LeveragingBagging", {"ensemble_size": 10}),
    "PLASTIC (one tree)": ("PLASTIC", {}),
    "SGBT": ("StreamingGradientBoostedTrees", {}),
}


def ours(name: str, limit: int, window: int, warmup: int, **options: Any) -> tuple[float, float]:
    """Return accuracy, and microseconds for each row after the warm-up."""
    stream = {"model": "sliding_window", "window": window} | ({"warmup": warmup} if warmup else {})
    sections = {"output": {"report": False, "predictions": False, "metrics_every": 20_000}} if not warmup else {}
    sections |= {"checkpoint": {"every_seconds": 3600}} if not warmup else {}
    source = parquet(name, label="y", limit=limit)
    summary, seconds = replayed({"kind": "forest", **options}, source, stream, **sections)
    return summary["metrics"]["accuracy"], 1e6 * seconds / (summary["inserts"] - warmup)


def of_river(name: str, limit: int) -> tuple[float, float]:
    from river.forest import ARFClassifier

    frame = read(name).slice(0, limit).to_pandas()
    labels = frame.pop("y").astype(str).tolist()
    model, right = ARFClassifier(n_models=10, seed=1), 0
    began = time.process_time()
    for row, y in zip(frame.to_dict("records"), labels, strict=True):
        right += model.predict_one(row) == y
        model.learn_one(row, y)
    return right / len(labels), 1e6 * (time.process_time() - began) / len(labels)


def of_moa(learner: str, name: str, limit: int) -> tuple[float, float]:
    """Return accuracy and microseconds for each row; categories are numbers."""
    import capymoa.classifier
    import pyarrow as pa
    import pyarrow.compute as pc
    from capymoa.evaluation import prequential_evaluation
    from capymoa.stream import NumpyStream

    table = read(name)[:limit]
    columns = []
    for column in table.columns:
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        text = pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type)
        codes = pc.dictionary_encode(plain).combine_chunks().indices if text else plain
        columns.append(codes.to_numpy(zero_copy_only=False).astype(float))
    y = np.unique(columns.pop(table.column_names.index("y")), return_inverse=True)[1]
    data = NumpyStream(np.column_stack(columns), y, target_type="categorical")
    kind, options = THEIRS[learner]
    model = getattr(capymoa.classifier, kind)(schema=data.get_schema(), **options)
    found = prequential_evaluation(data, model, window_size=1000, store_predictions=True, store_y=True)
    y, known = np.array(found.ground_truth_y()), np.array(found.predictions())
    return float(np.mean(y[WARMUP:] == known[WARMUP:])), found.cpu_time() / len(y) * 1e6


def beside_river(names: list[str], limit: int, window: int) -> None:
    ours(names[0], 500, 100, 0, **FAST)  # imports and compiles
    found = {name: (*ours(name, limit, window, 0, **FAST), *of_river(name, limit)) for name in names}
    found["mean"] = tuple(np.mean(list(found.values()), axis=0))
    lines = []
    for name, (a, b, c, d) in found.items():
        lines.append([name, f"{a:.4f}", f"{c:.4f}", f"{b:,.0f}", f"{d:,.0f}", f"{d / b:.1f}"])
    show("Prequential accuracy and CPU time", ["stream", "ours", "ARF", "us", "us of ARF", "times"], lines)


def beside_moa(names: list[str], limit: int, learners: list[str]) -> None:
    lines = []
    for name in names:
        for learner in learners:
            if learner in OURS:
                ours(name, 700, 1000, WARMUP, **OURS[learner])  # imports and compiles
                accuracy, us = ours(name, limit, 1000, WARMUP, **OURS[learner])
            else:
                accuracy, us = of_moa(learner, name, limit)
            lines.append([name, learner, f"{accuracy:.3f}", f"{us:,.0f}"])
            progress(*lines[-1])
    show("Prequential accuracy and CPU time", ["stream", "learner", "accuracy", "us a row"], lines)


if __name__ == "__main__":
    options = {"learners": [*THEIRS, *OURS], "moa": False}
    asked = arguments(__doc__, only=list(NAMES), limit=10**9, window=1000, **options)
    print_machine("river", "capymoa")
    names = [name for name in asked.only if (DATA / f"{name}.parquet").exists()]
    if asked.moa:
        beside_moa(names, asked.limit, asked.learners)
    else:
        beside_river(names, asked.limit, asked.window)
