"""The golden streams: generated data and settings whose digests are committed beside this file.

``python -m tests.golden.streams`` prints the digests of this version; a change of ``digests.json`` is a change of
results and belongs into the changelog.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pipelines.config import StreamOptions
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.options import SourceOptions

FILE = Path(__file__).with_name("digests.json")
SEA = {"kind": "synthetic", "generator": "sea", "n": 6000, "drift": 3, "noise": 0.1, "seed": 3}
HYPERPLANE = {"kind": "synthetic", "generator": "hyperplane", "n": 4000, "n_features": 7, "drift": 4, "seed": 11}
WINDOW = {"model": "sliding_window", "window": 500, "warmup": 500}
RANDOM = {"model": "random_updates", "insert_probability": 0.6, "seed": 5, "warmup": 50}
BATCHES = {"model": "batches", "steps": [0.5, 0.1, 1.0, 0.2], "removal_order": "random", "seed": 5}
#: Options of all streams that do not have their own: those of the version that made the digests.
PINNED = {"alpha": 0.1, "max_depth": None, "schedule": "published"}
STREAMS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "sea, incremental, alpha 0.1, no depth limit": (SEA, {"model": "incremental"}, {}),
    "sea, sliding window, epsilon 0.2, h 8": (SEA, WINDOW, {"epsilon": 0.2, "max_depth": 8}),
    "sea, random updates, epsilon 0": (SEA | {"n": 800}, RANDOM, {"epsilon": 0.0, "max_depth": 4}),
    "sea permuted, batches, random removal": (SEA | {"n": 2000, "permutation": 1}, BATCHES, {"epsilon": 0.1}),
    "hyperplane, incremental, epsilon 0.5, k 9": (
        HYPERPLANE,
        {"model": "incremental"},
        {"epsilon": 0.5, "alpha": 0.0, "beta": 0.0, "min_samples_split": 10},
    ),
    "hyperplane, sliding window, alpha 0.1, no depth limit": (HYPERPLANE, WINDOW, {}),
    "hyperplane, random updates, epsilon 1": (HYPERPLANE, RANDOM, {"epsilon": 1.0, "max_depth": 10}),
}


def digest_of(name: str, shards: int = 1, size: int = 1000, plan: WorkPlan | None = None) -> str:
    """Digest of the model after one golden stream."""
    source_options, stream_options, options = STREAMS[name]
    source = open_source(TypeAdapter(SourceOptions).validate_python(source_options))
    stream = TypeAdapter(StreamOptions).validate_python(stream_options).make(source)
    learner = learners()["fudyadt"]
    settings = learner.Options(kind="fudyadt", feature_groups=4, **(PINNED | options))
    session = InProcessSession(learner, settings, source.features, shards, plan or WorkPlan(2**40))
    for _ in session.process(stream.batches(size)):
        pass
    session.finish()
    return session.digest()


if __name__ == "__main__":
    json.dump({name: digest_of(name) for name in STREAMS}, sys.stdout, indent=2)
    sys.stdout.write("\n")
