"""Folders of runs and sweeps that no job has written."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipelines.display import sweep_facts
from pipelines.report.page import document
from pipelines.sweeping.grid import Axis, Row, Settings, read_grid, settings_of
from raydt.evaluation.scoring import CLASS_SCORES
from raydt.folders.arrays import save_folder
from raydt.messages import message
from raydt.presentation.blocks import Article

# -- fabricated run --------------------------------------------------------------------------------------------------
# A run folder as a replay would leave it, made up from a seed, for tests of what reads run folders.

FEATURES = ["period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer", "weekday"]

#: Keys of the summary of a run that lost a shard, was resumed later, and could not write one checkpoint.
RECOVERED: dict[str, Any] = {
    "restarts": 1,
    "recoveries": [
        {
            "epoch": 2,
            "kind": "lost",
            "what": "shard 1 (pid 4712 on node-a) died",
            "at_update": 3700,
            "from_update": 0,
            "seconds": 0.42,
        },
        {
            "epoch": 3,
            "kind": "resumed",
            "what": "the driver was killed",
            "at_update": 6200,
            "from_update": 4096,
            "seconds": 5.2,
        },
    ],
    "checkpoints": {"written": 12, "failed": 1, "seconds": 1.25, "bytes": 3_400_000, "last": 10_000},
}


def write_table(folder: Path, columns: dict[str, Any], parts: int = 1) -> None:
    """Write ``columns`` as ``parts`` Parquet parts."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    bounds = np.linspace(0, table.num_rows, parts + 1).astype(int)
    for part, (start, stop) in enumerate(pairwise(bounds)):
        pq.write_table(table.slice(start, stop - start), folder / f"part-{part:05d}.parquet")


def fabricated_metrics(rows: int, every: int, seed: int = 1) -> dict[str, np.ndarray]:
    """A metrics table of a sliding window of 1,000 with drift in the middle."""
    rng = np.random.default_rng(seed)
    seq = np.arange(1, rows + 1) * every
    inserts = np.where(seq < 1000, seq, (seq + 1000) // 2)
    deletes = seq - inserts
    predictions = inserts
    scored = np.diff(predictions, prepend=0)
    drift = np.where(np.abs(np.arange(rows) - rows / 2) < rows / 20, 0.12, 0.0)
    shares = {
        "accuracy": 0.88 - drift + rng.normal(0, 0.02, rows),
        "no_change": 0.85 + rng.normal(0, 0.02, rows),
        "majority": 0.58 + rng.normal(0, 0.04, rows),
    }
    hits = {name: np.minimum(np.round(np.clip(share, 0, 1) * scored), scored) for name, share in shares.items()}
    cumulative = {name: np.cumsum(hit) / np.maximum(predictions, 1) for name, hit in hits.items()}
    nodes = (2 * np.round(30 + 20 * (1 - np.exp(-np.arange(rows) / 40)) + rng.normal(0, 3, rows)) + 1).astype(np.int64)
    return {
        "seq": seq,
        "inserts": inserts,
        "deletes": deletes,
        "predictions": predictions,
        "active": inserts - deletes,
        "nodes": nodes,
        "leaves": (nodes + 1) // 2,
        "depth": rng.integers(7, 11, rows),
        "rebuilds": np.cumsum(rng.integers(5, 20, rows)),
        "rebuilt_rows": np.cumsum(rng.integers(200, 9000, rows)),
        "rounds": np.arange(rows) * 3,
        "bytes_exchanged": np.arange(rows) * 4096,
        "seconds": np.cumsum(every * rng.uniform(3e-5, 5e-5, rows)),
        "accuracy": cumulative["accuracy"],
        "f1": cumulative["accuracy"] + 0.01,
        "macro_f1": cumulative["accuracy"] - 0.01,
        "kappa": 2 * cumulative["accuracy"] - 1,
        "window_accuracy": hits["accuracy"] / scored,
        "no_change": cumulative["no_change"],
        "majority": cumulative["majority"],
        "window_no_change": hits["no_change"] / scored,
        "window_majority": hits["majority"] / scored,
    }


def fabricated_events(rebuilds: int, last: int, seed: int = 2) -> dict[str, np.ndarray]:
    """A log of ``rebuilds`` rebuilds up to update ``last``; larger ones happen at the shards."""
    rng = np.random.default_rng(seed)
    rows = np.minimum(2 ** rng.exponential(3.2, rebuilds), 1000).astype(np.int64)
    place = np.where(rows > 700, 2, np.where(rng.random(rebuilds) < 0.4, 0, 1)).astype(np.int8)
    return {
        "seq": np.sort(rng.integers(1, last + 1, rebuilds)),
        "rows": rows,
        "depth": rng.integers(0, 10, rebuilds).astype(np.int32),
        "nodes": np.maximum(1, rows // 12),
        "place": place,
        # What is small runs inside the compiled loop, without a time of its own.
        "seconds": np.choose(place, [0 * rows, np.where(rows > 300, 1e-6 * rows, 0), 0.003 + 1e-7 * rows]),
    }


def fabricated_tree(classes: int, depth: int, rows: int, seed: int = 3) -> dict[str, np.ndarray]:
    """Arrays of a random tree in preorder whose counts add up."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, list[Any]] = {"feature": [], "threshold": [], "left": [], "right": [], "counts": []}

    def grow(counts: np.ndarray, level: int) -> int:
        node = len(arrays["feature"])
        for name, value in (("feature", -1), ("threshold", 0.0), ("left", -1), ("right", -1), ("counts", counts)):
            arrays[name].append(value)
        if level < depth and counts.sum() > 4 and (level < 2 or rng.random() < 0.85):
            share = rng.beta(0.8, 0.8, classes)
            left = np.minimum(np.round(counts * share), counts).astype(np.int64)
            arrays["feature"][node] = int(rng.integers(len(FEATURES)))
            arrays["threshold"][node] = float(rng.integers(7) if arrays["feature"][node] == 6 else rng.random())
            arrays["left"][node] = grow(left, level + 1)
            arrays["right"][node] = grow(counts - left, level + 1)
        return node

    grow(rng.multinomial(rows, rng.dirichlet(np.full(classes, 4.0))).astype(np.int64), 0)
    n = len(arrays["feature"])
    built = 2 * rng.integers(-1, 40000, n) + 1
    size = np.array(arrays["counts"]).sum(axis=1) + rng.integers(0, 3, n)
    return {
        "feature": np.array(arrays["feature"], dtype=np.int32),
        "threshold": np.array(arrays["threshold"], dtype=np.float64),
        "left": np.array(arrays["left"], dtype=np.int32),
        "right": np.array(arrays["right"], dtype=np.int32),
        "counts": np.array(arrays["counts"], dtype=np.int64),
        "s": size,
        "c": (rng.random(n) * (size // 10 + 1)).astype(np.int64),
        "built": built,
    }


def write_model(folder: Path, arrays: dict[str, np.ndarray], **learner: Any) -> None:
    """Write the predict-only model of a run; ``learner`` replaces options."""
    options = {"kind": "fudyadt", "epsilon": 0.1, "alpha": 0.0, "beta": 0.0, "max_depth": 10} | learner
    meta = {"learner": options, "features": [], "classes": [], "categories": {"weekday": list("MTWTFSS")}}
    save_folder(folder / "model", "model", meta, {"arrays": arrays})


def fabricated_run(folder: Path, *, rows: int = 450, every: int = 100, rebuilds: int = 6000, **changes: Any) -> Path:
    """A finished run of FuDyADT over a sliding window; ``changes`` replace keys of its summary."""
    folder.mkdir(parents=True, exist_ok=True)
    metrics = fabricated_metrics(rows, every)
    events = fabricated_events(rebuilds, rows * every)
    write_table(folder / "metrics", metrics, parts=3)
    write_table(folder / "events", events, parts=2)
    write_model(folder, fabricated_tree(classes=2, depth=9, rows=1000))
    config = {
        "source": {"kind": "parquet", "path": "/data/electricity.parquet", "label": "class", "positive": "DOWN"},
        "stream": {"model": "sliding_window", "warmup": 0, "window": 1000, "seed": 7},
        "learner": {"kind": "fudyadt", "feature_groups": 7, "epsilon": 0.1, "alpha": 0.0, "beta": 0.0, "max_depth": 10},
        "cluster": {"backend": "ray", "shards": 2, "batch_size": 4096, "memory_limit": 5000},
        "output": {"metrics_every": every, "predictions": False, "report": True},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    last = {name: column[-1].item() for name, column in metrics.items()}
    summary = {
        "schema_version": 1,
        "status": "completed",
        "exit_reason": "end_of_stream",
        "name": "electricity-window",
        "started": "2025-03-04T09:15:27+00:00",
        "learner": "fudyadt",
        "label": "class",
        "positive": "DOWN",
        "classes": ["UP", "DOWN"],
        "features": [{"name": name, "kind": "numeric"} for name in FEATURES[:-1]]
        + [{"name": FEATURES[-1], "kind": "categorical"}],
        "updates": last["seq"],
        **{key: last[key] for key in ("inserts", "deletes", "predictions", "active", "seconds", "rebuilds")},
        **{key: last[key] for key in ("rebuilt_rows", "nodes", "leaves", "depth", "rounds", "bytes_exchanged")},
        "updates_per_second": last["seq"] / last["seconds"],
        "metrics": {
            **{key: last[key] for key in ("accuracy", "f1", "macro_f1", "kappa")},
            "confusion": [[8200, 1900], [1500, 10650]],
        },
        "baselines": {"no_change": last["no_change"], "majority": last["majority"]},
        "peak_rss_bytes": 312_400_000,
        "shards": 2,
        "backend": "ray",
        "where": message("runs.with_shards", shards="2 shards"),
        "restarts": 0,
        "recoveries": [],
        "checkpoints": {"written": 7, "failed": 0, "seconds": 0.6, "bytes": 1_900_000, "last": last["seq"]},
        "refused": 0,
        "skipped": 0,
        "model_digest": "sha256:" + "3f" * 32,
        "config_hash": "sha256:" + "a1" * 32,
        "source_fingerprint": "sha256:" + "0c" * 32,
        "raydt_version": "0.1.0",
        "versions": {"python": "3.11.7", "numpy": "2.4.0", "numba": "0.68.0", "pyarrow": "26.0.0", "ray": "2.60.0"},
        "startup_seconds": 4.31,
        "report_seconds": None,
        "work": [
            {"shard": 0, "columns": [0, 1, 2], "requests": 412, "seconds": 0.048, "pid": 4711},
            {"shard": 1, "columns": [3, 4, 5, 6], "requests": 412, "seconds": 0.061, "pid": 4712},
        ],
        "audit": {
            "ok": True,
            "conformance": "holds",
            "feasibility": "not_promised",
            "reason": "alpha and beta are 0, and the theorem needs both to be positive.",
            "checked": {"nodes": last["nodes"], "examples": last["active"], "splits_replayed": 40},
            "worst": {"gain_gap": 0.0312, "leaf_gini": 0.4871},
            "failures": [],
        },
        "error": None,
    }
    summary.update(changes)
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


# -- fabricated split ------------------------------------------------------------------------------------------------
# A run folder of a sparse best split as a replay would leave it, made up from a seed.

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


# -- fabricated sweep ------------------------------------------------------------------------------------------------
# Rows of a sweep as its settings would give them, made up, for tests of what shows them.


def row(setting: int, keys: dict[str, Any], accuracy: float, us: float = 2.0) -> Row:
    """A setting that was scored."""
    scores = dict.fromkeys((score.name for score in CLASS_SCORES), accuracy)
    work = dict.fromkeys(("updates", "rebuilds", "rebuilt_rows", "nodes", "leaves", "depth", "alarms"), 5)
    levels = {"no_change": 0.7, "majority": 0.5, "promised": accuracy < 0.6}
    return {
        "setting": setting,
        "learner": "fudyadt",
        **keys,
        "us_per_update": us,
        **scores,
        **work,
        **levels,
    }


def failed(setting: int, keys: dict[str, Any], error: str = "a <b>bad</b> update\nmore") -> Row:
    """A setting that failed."""
    return {"setting": setting, "learner": "fudyadt", **keys, "updates": 3, "error": error, "exit_code": 2}


def rows_of(grid: list[str], accuracies: list[float]) -> tuple[list[Axis], list[Row]]:
    """The axes of a grid and a row for each setting."""
    axes = read_grid(grid)
    return axes, [row(i, keys, a) for i, (keys, a) in enumerate(zip(settings_of(axes), accuracies, strict=True))]


def fabricated_sweep(
    axes: list[Axis],
    rows: list[Row],
    text: str = "some",
    verdict: str = "",
    trials: int = 1,
) -> Article:
    """The article about an interrupted sweep; ``text`` is what names and labels say."""
    summary = {
        "name": text, "learner": "fudyadt", "rows": 9, "status": "interrupted", "exit_reason": "SIGINT",
        "done": len(rows), "settings": len(rows) + 1, "failed": sum("error" in row for row in rows),
        "verdict": verdict, "backend": "ray", "parallel": 2, "seconds": 1.0, "read_seconds": 1.0, "trials": trials,
        "best": {},
    }  # fmt: skip
    config = {section: {"kind": text} for section in ("learner", "stream", "source")}
    runs = Settings(axes, rows, {0: config}, {})
    return runs.article(summary, sweep_facts(summary, "/x"), f"raydt replay --set {text}", f"a: {text}")


def fabricated_page(*arguments: Any, **options: Any) -> str:
    """The page of such a sweep."""
    shown = fabricated_sweep(*arguments, **options)
    return document(shown.title, "sweep", [shown])
