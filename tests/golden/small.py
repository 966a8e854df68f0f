"""Digests of small runs: every case of every learner, the first of each with a model for each of a few keys, and every
shipped config that has its data, with few rows.

``python -m tests.golden.small`` prints those of this version; a change of ``small.json`` is a change of results and
belongs into the changelog.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pipelines
from tests.cases import CASES, Trial, first_cases
from tests.keyed_runs import config, files

FILE = Path(__file__).with_name("small.json")
CONFIGS = Path(__file__).parents[2] / "configs"
#: The shipped configs that draw their rows, and what makes them small.
SMALL = {
    "best_split": ["source.limit=400", "stream.window=150"],
    "cluster": ["source.limit=1500", "stream.warmup=1000"],
    "confidence_tree": ["source.limit=4000", "stream.window=2000", "stream.warmup=500"],
    "ctree_figure2": ["source.limit=4000"],
    "forest": ["source.limit=1500", "stream.window=800", "stream.warmup=300"],
    "fudyadt": ["source.limit=1500", "stream.window=500"],
    "gbdt": ["source.limit=900", "stream.window=400", "stream.warmup=400"],
    "laptop": ["source.limit=2000"],
    "sparse_tree": ["source.limit=900", "stream.window=600", "stream.warmup=200"],
}
HERE = ["cluster.backend=in_process", "output.report=false"]


def of_config(name: str, folder: Path) -> str:
    """Digest of the model of a shipped config with few rows."""
    return pipelines.replay(CONFIGS / f"{name}.yaml", folder / "run", overrides=[*SMALL[name], *HERE]).digest


def of_case(config: dict[str, Any], folder: Path) -> str:
    """Digest of the model of a case."""
    return pipelines.replay(config, folder / "run").digest


def of_keys(trial: Trial, folder: Path) -> str:
    """Digest over the models by key of a case."""
    whole, _ = files(trial, folder)
    return of_case(config(trial, whole, key="key"), folder)


def main() -> None:
    """Print all digests."""
    found: dict[str, dict[str, str]] = {"configs": {}, "cases": {}, "keys": {}}
    for name in SMALL:
        with tempfile.TemporaryDirectory() as folder:
            found["configs"][name] = of_config(name, Path(folder))
    for trial in CASES:
        with tempfile.TemporaryDirectory() as folder:
            found["cases"][trial.name] = of_case(trial.config(Path(folder)), Path(folder))
    for trial in filter(lambda one: one.shipped, first_cases()):
        with tempfile.TemporaryDirectory() as folder:
            found["keys"][trial.name] = of_keys(trial, Path(folder))
    json.dump(found, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
