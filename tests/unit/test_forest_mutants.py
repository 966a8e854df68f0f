"""Forests that remember: each mutant breaks one rule of exactness, and the twin's digest shows it.

A mutant is the learner with one function replaced before its kernels are compiled, so each runs in its own process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Of each mutant the module, a text that is there once, and what a forgetful author might have written instead.
MUTANTS = {
    "a candidate keeps its count": (
        "candidates",
        "    add_to_bucket(buckets[b], y, by, rules.numeric)\n    return",
        "    add_to_bucket(buckets[b], y, max(by, 0), rules.numeric)\n    return",
    ),
    "a best candidate that got worse stays": (
        "update_tree",
        "        if feature != nodes[node].feature or threshold != nodes[node].threshold:\n",
        "        if by > 0 and (feature != nodes[node].feature or threshold != nodes[node].threshold):\n",
    ),
    "extremes stay": ("candidates", "tried.lows == 0 or tried.highs == 0", "tried.lows < 0 or tried.highs < 0"),
    "features that were constant stay out": (
        "update_tree",
        "blocks.skipped[block, word] & scratch.differs[word])",
        "blocks.skipped[block, word] & np.uint64(0))",
    ),
    "features stay out although the row differs in them": (
        "update_tree",
        "known & ~scratch.differs[word] if",
        "known if",
    ),
    "counts of other candidates are kept": ("count_candidates", "if not blocks.tried[old, at - 1].stale:", "if True:"),
    "rows stay on their side": (
        "update_tree",
        "            return False\n    return True",
        "            break\n    return True",
    ),
    "a deleted row leaves by the new split": (
        "update_tree",
        "            if by > 0:  # one that is deleted",
        "            if True:  # one that is deleted",
    ),
    "a row is compared with those where it would have gone": (
        "update_tree",
        "                if below != before:",
        "                if False:",
    ),
    "a byte counts any number of rows": ("count_candidates", "FITS = 255 // STEP * STEP", "FITS = 1 << 20"),
    "what fills the last step is a value": ("count_candidates", "values[i] = np.nan", "values[i] = values[0]"),
    "categories are counted like thresholds": (
        "count_candidates",
        "                if not category:\n                    before",
        "                if True:\n                    before",
    ),
    "a feature is constant if its last row is like its first": (
        "build",
        "            differs |= x != first",
        "            differs = x != first",
    ),
    "memberships in the order of arrival": (
        "trees",
        "        memberships(self.seeds, np.ascontiguousarray(ids, dtype=np.int64),",
        "        came, self.__dict__['came'] = self.__dict__.get('came', 0), self.__dict__.get('came', 0) + len(ids)\n"
        "        memberships(self.seeds, np.arange(came, came + len(ids)),",
    ),
    "what lies beside a path stays closed": (
        "build",
        "    node = np.int64(scratch.stack[place])\n    if may_split(",
        "    node = np.int64(scratch.stack[place])\n    if place == 1 and may_split(",
    ),
    "a feature is taken for constant that is not": (
        "build",
        "constant[0, word] = constant[1, word]",
        "constant[0, word] |= constant[1, word] << np.uint64(1)",
    ),
    "equal votes go to the class that came first": (
        "model",
        "    order = order[order < votes.shape[1]]\n",
        "    order = np.arange(votes.shape[1])\n",
    ),
    "classes are digested by their codes": (
        "coordinator",
        "        live = live[counts[live] > 0]\n",
        "        live = np.flatnonzero(counts)\n",
    ),
    "classes without examples are digested": ("coordinator", "        live = live[counts[live] > 0]\n", ""),
    "the lower word of a number with a weight stays": (
        "weighted_labels",
        "    sums[2] += by * (y & _LOWER)",
        "    sums[2] += max(by, 0) * (y & _LOWER)",
    ),
    "whether labels are crowded goes by rows": (
        "label_scale",
        "            by = weight if what == ADD else -weight\n",
        "            by = 1 if what == ADD else -1\n",
    ),
    "leaves that may be split stay": ("update_tree", "if same or forest.nodes", "if same or by > 0 or forest.nodes"),
}


def run(tree: Path, sequences: int) -> int:
    """Exit code of the known cases and the sequences under the sources in ``tree``: 0 equal, 7 a digest differs."""
    code = (
        "import sys, numpy as np\n"
        "from tests.property.test_forest_twin import KNOWN, WAYS, Run\n"
        "try:\n"
        "    for known in KNOWN:\n"
        "        known()\n"
        "except AssertionError:\n"
        "    sys.exit(7)\n"
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


@pytest.mark.nightly  # each compiles all kernels
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, tmp_path: Path) -> None:
    module, old, new = MUTANTS[name]
    for folder in ("tests", "examples", "pipelines", "actors"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    shutil.copytree(ROOT / "raydt", tmp_path / "raydt")
    path = tmp_path / "raydt" / "learners" / "forest" / f"{module}.py"
    text = path.read_text()
    assert text.count(old) == 1, "the text to replace is not there"
    path.write_text(text.replace(old, new))
    assert run(tmp_path, 2000) == 7  # most within 100, features taken for constant after 1,260
