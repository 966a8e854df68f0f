"""Forests that remember: each mutant breaks one rule of exactness, and the twin's digest shows it.

A mutant is the learner with one function replaced before its kernels are compiled, so each runs in its own process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: What is replaced, by the module it is in: the text that is there, and what a forgetful author might have written.
MUTANTS = {
    "a candidate keeps its count": (
        "candidates",
        "    b = bucket_of(cuts, np.int64(tried.used), x)\n    add_to_bucket(buckets[b], y, by, rules.numeric)\n",
        "    b = bucket_of(cuts, np.int64(tried.used), x)\n"
        "    if by > 0:\n        add_to_bucket(buckets[b], y, by, rules.numeric)\n",
    ),
    "a best candidate that got worse stays": (
        "changing",
        "        if feature != nodes[node].feature or threshold != nodes[node].threshold:\n",
        "        if by > 0 and (feature != nodes[node].feature or threshold != nodes[node].threshold):\n",
    ),
    "extremes stay": (
        "candidates",
        "    if tried.lows == 0 or tried.highs == 0:\n        return True\n",
        "    if tried.lows < 0 or tried.highs < 0:\n        return True\n",
    ),
    "features that were constant stay out": (
        "changing",
        "            if blocks.skipped[block, word] & scratch.differs[word]:\n",
        "            if blocks.skipped[block, word] & scratch.differs[word] & np.uint64(0):\n",
    ),
    "memberships in the order of arrival": (
        "holding",
        "        out = np.empty((len(ids), self.options.copies), dtype=np.int32)\n",
        "        out = np.empty((len(ids), self.options.copies), dtype=np.int32)\n"
        "        ids = np.arange(len(ids)) + (self.__dict__.setdefault('came', 0))\n"
        "        self.__dict__['came'] += len(ids)\n",
    ),
    "what lies beside a path stays closed": (
        "growing",
        "    node = np.int64(scratch.stack[place])\n    if may_split(forest, node, rules):\n",
        "    node = np.int64(scratch.stack[place])\n    if place == 1 and may_split(forest, node, rules):\n",
    ),
    "a feature is taken for constant that is not": (
        "growing",
        "            constant[0, word] = constant[1, word]\n",
        "            constant[0, word] |= constant[1, word] << np.uint64(1)\n",
    ),
    "equal votes go to the class that came first": (
        "model",
        "    order = order[order < votes.shape[1]]\n",
        "    order = np.arange(votes.shape[1])\n",
    ),
    "classes are digested by their codes": (
        "model",
        "    live = order[totals[roots].any(axis=0)[order]]\n",
        "    live = np.flatnonzero(totals[roots].any(axis=0))\n",
    ),
    "classes without examples are digested": (
        "model",
        "    live = order[totals[roots].any(axis=0)[order]]\n",
        "    live = order\n",
    ),
    "leaves that may be split stay": (
        "changing",
        "    if same or forest.nodes[leaf].feature == OPEN or not",
        "    if same or by > 0 or forest.nodes[leaf].feature == OPEN or not",
    ),
}


def run(tree: Path, sequences: int) -> int:
    """Exit code of the sequences under the sources in ``tree``: 0 equal, 7 a digest differs."""
    code = (
        "import sys, numpy as np\n"
        "from tests.property.test_forest_twin import WAYS, Run\n"
        f"for seed in range({sequences}):\n"
        "    draws = np.random.default_rng([99, seed])\n"
        "    run = Run(draws, bool(seed % 3 == 0), bool(seed % 2))\n"
        "    try:\n"
        "        WAYS[seed % len(WAYS)](run, int(draws.integers(5, 30)))\n"
        "        run.same()\n"
        "    except AssertionError:\n"
        "        sys.exit(7)\n"
    )
    path = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tree / "cache")}
    return subprocess.run([sys.executable, "-c", code], env=environment, cwd=tree, check=False).returncode


def copied(folder: Path) -> Path:
    """The sources that a mutant needs, in a folder of their own."""
    for name in ("raydt", "tests", "examples", "pipelines", "actors"):
        (folder / name).symlink_to(ROOT / name) if name != "raydt" else _copy(ROOT / name, folder / name)
    return folder


def _copy(source: Path, target: Path) -> None:
    for path in source.rglob("*.py"):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(path.read_text())


@pytest.mark.nightly  # each compiles all kernels
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, tmp_path: Path) -> None:
    module, old, new = MUTANTS[name]
    tree = copied(tmp_path)
    path = tree / "raydt" / "learners" / "forest" / f"{module}.py"
    text = path.read_text()
    assert text.count(old) == 1, "the text to replace is not there"
    path.write_text(text.replace(old, new))
    assert run(tree, 2000) == 7  # most within 100, features taken for constant after 1,260
