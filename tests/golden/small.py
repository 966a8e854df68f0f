"""Digests of small runs: every case of every learner, the first of each with a model for each of a few keys, and every
shipped config that has its data, with few rows.

``python -m tests.golden.small`` writes those of this version; a change of ``small.json`` is a change of results and
belongs into the changelog.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pipelines
from pipelines.saved_runs import find_state, open_members
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


#: Of a model: the digest, and that in the format before the present one; "" of a learner that has had no other.
Digests = tuple[str, str]


def of_config(name: str, folder: Path) -> Digests:
    """Digests of the model of a shipped config with few rows."""
    return _of(pipelines.replay(CONFIGS / f"{name}.yaml", folder / "run", overrides=[*SMALL[name], *HERE]))


def of_case(config: dict[str, Any], folder: Path) -> Digests:
    """Digests of the model of a case."""
    return _of(pipelines.replay(config, folder / "run"))


def of_keys(trial: Trial, folder: Path) -> Digests:
    """Digests over the models by key of a case."""
    whole, _ = files(trial, folder)
    return of_case(config(trial, whole, key="key"), folder)


def _of(run: Any) -> Digests:
    return run.digest, open_members(find_state(run.path).folder).former() or ""


def main(only: str = "") -> None:
    """Write all digests, made anew of the configs and cases whose names begin with ``only``."""
    found: dict[str, dict[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))

    def put(table: str, name: str, make: Callable[[Path], Digests]) -> None:
        if name.startswith(only):
            with tempfile.TemporaryDirectory() as folder:
                found[table][name], former = make(Path(folder))
            if former:
                found[f"former {table}"][name] = former

    for name in SMALL:
        put("configs", name, partial(of_config, name))
    for trial in CASES:
        put("cases", trial.name, lambda folder: of_case(trial.config(folder), folder))  # noqa: B023
    for trial in filter(lambda one: one.shipped, first_cases()):
        put("keys", trial.name, partial(of_keys, trial))
    FILE.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
