"""Trees of the exact forest, and the share of them that holds each example: how the defaults were chosen.

    python benchmarks/forest/shares.py [--sets NAME ...] [--streams NAME ...] [--limit 10000] [--settings 20,1 ...]

Held-out accuracy and AUC of one random quarter of each data set, with the processor seconds of the training; accuracy
of each row of a stream just before it is learned, of the last 1,000 rows, with microseconds for each row.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from choice import scores, split_of
from kit import show
from measure import DATA, machine

import pipelines
from raydt import ExactForestClassifier

#: Trees, and the share of them.
SETTINGS = [(100, 0.1), (100, 0.5), (40, 0.5), (20, 1.0), (50, 1.0)]
#: First rows of a stream, which no score counts.
WARMUP = 500
#: Data sets on which the default was chosen, and others.
CHOSEN = [
    "image_segments",
    "wine_quality_white",
    "phishing",
    "pendigits_train",
    "covtype_head10k",
    "heart_train",
    "electricity",
    "adult_train",
]
OTHERS = [
    "poker_uci_train",
    "covtype_class3_vs_4",
    "bananas",
    "abalone",
    "optdigits_train",
    "sea_concepts",
    "mushrooms",
    "purchase_train",
    "givemesomecredit",
]
#: Streams: columns of a file that are no features, or options of a generator.
STREAMS: dict[str, list[str] | dict[str, Any]] = {
    "electricity": [],
    "covtype_head10k": [],
    "noshow": ["time", "scheduled", "patient"],
    "beijing_pm25": ["time"],
    "posture": [],
    "poker_lsn": [],
    "heart_train": [],
    "sea": {"generator": "sea", "n": 10_000, "drift": 3},
    "hyperplane": {"generator": "hyperplane", "n": 10_000, "drift": 3},
}


def setting(text: str) -> tuple[int, float]:
    """Trees and share from ``20,1``."""
    trees, share = text.split(",")
    return int(trees), float(share)


def held_out(name: str, settings: list[tuple[int, float]]) -> list[str]:
    """Cells of a data set."""
    split, cells = split_of(name, int(name in OTHERS)), []
    for trees, share in settings:
        began = time.process_time()
        model = ExactForestClassifier(n_estimators=trees, sample_share=share).fit(split.X, split.y)
        took = time.process_time() - began
        cells.append("{:.3f} / {:.3f} / {:.1f}".format(*scores(model, split), took))
    return [f"{name}, {len(split.y):,} rows", *cells]


def replayed(name: str, rows: int | None, trees: int, share: float) -> tuple[float, float]:
    """Accuracy after the first 500 rows of a stream (None: all) with a window of 1,000, and microseconds a row."""
    given = STREAMS.get(name, [])
    of_file = {"kind": "parquet", "path": str(DATA / f"{name}.parquet"), "label": "y", "exclude": given}
    source = {"kind": "synthetic", **given} if isinstance(given, dict) else of_file
    config: dict[str, Any] = {
        "source": {**source, "limit": rows},
        "stream": {"model": "sliding_window", "window": 1000, "warmup": WARMUP},
        "learner": {"kind": "forest", "n_estimators": trees, "sample_share": share},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        summary = pipelines.replay(config, Path(folder) / "run").summary
        took = time.process_time() - began
    return summary["metrics"]["accuracy"], 1e6 * took / (summary["inserts"] - WARMUP)


def prequential(name: str, limit: int, settings: list[tuple[int, float]]) -> list[str]:
    """Cells of a stream."""
    cells = [replayed(name, limit, trees, share) for trees, share in settings]
    return [name, *(f"{accuracy:.3f} / {took:,.0f}" for accuracy, took in cells)]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=[*CHOSEN, *OTHERS])
    parser.add_argument("--streams", nargs="*", default=list(STREAMS))
    parser.add_argument("--limit", type=int, default=10_000)
    parser.add_argument("--settings", nargs="*", type=setting, default=SETTINGS, help="trees,share")
    asked = parser.parse_args()
    print(machine("scikit-learn"))
    header = ["", *(f"{trees} trees, share {share:g}" for trees, share in asked.settings)]
    show("Held-out accuracy / AUC / seconds to fit", header, [held_out(name, asked.settings) for name in asked.sets])
    streams = [prequential(name, asked.limit, asked.settings) for name in asked.streams]
    show("Prequential accuracy / us for each row", header, streams)


if __name__ == "__main__":
    main()
