"""The forest: its estimator, its limits, and mutants that the twin must find."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt import ExactForestClassifier
from raydt.errors import InputError
from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.forest import coordinator
from raydt.learners.forest.model import leaf_votes
from raydt.sessions.session import InProcessSession
from tests.refusals import refused

# -- forest estimator ------------------------------------------------------------------------------------------------
#
# The estimators of the exact forest: classes and categories by value, lazy trees, importances.

LEARNER = learners()["forest"]
SMALL = {"n_estimators": 12, "sample_share": 0.5, "max_depth": 8, "min_samples_split": 4}


def data(n: int = 300, seed: int = 0) -> tuple[Any, Any]:
    draws = np.random.default_rng(seed)
    X = np.round(draws.normal(size=(n, 4)), 2)
    X[:, 3] = draws.integers(0, 3, n)
    X[::17, 1] = np.nan
    return X, (X[:, 0] + X[:, 3] > 1).astype(int)


def letters(n: int = 300) -> tuple[Any, Any]:
    X, _ = data(n)
    return X, np.array(["c", "a", "d", "b"])[np.floor(X[:, 0] * 2).astype(int) % 4]


def test_no_order_of_classes_shows() -> None:
    X, y = letters()
    whole = ExactForestClassifier(**SMALL).fit(X, y)
    parts = np.concatenate([np.flatnonzero(y == label) for label in "dbca"])
    other = ExactForestClassifier(**SMALL).fit(X[parts[:1]], y[parts[:1]], ids=parts[:1])
    for part in np.array_split(parts[1:], 9):
        other.partial_fit(X[part], y[part], ids=part)
    assert other.classes_.tolist() != whole.classes_.tolist()
    assert other.digest() == whole.digest()
    assert other.predict(X).tolist() == whole.predict(X).tolist()
    assert other.audit().ok


def test_lazy_trees_are_rebuilt_when_somebody_looks() -> None:
    X, y = data()
    forest = ExactForestClassifier(**SMALL, rebuild="lazy").fit(X, y)
    nodes = forest.session_.statistics()["nodes"]
    forest.forget(np.arange(200), digests=False)
    few = forest.session_.statistics()["nodes"]
    forest.predict(X[:1])
    assert few < nodes
    assert forest.digest() == ExactForestClassifier(**SMALL).fit(X[200:], y[200:], ids=range(200, 300)).digest()


def test_features_that_tell_nothing_are_not_important() -> None:
    X, y = data()
    forest = ExactForestClassifier(**SMALL).fit(X, y)
    shares = forest.feature_importances_
    assert shares.sum() == pytest.approx(1.0)
    assert min(shares[0], shares[3]) > max(shares[1], shares[2])
    assert ExactForestClassifier(**SMALL).fit(X, np.ones(300)).feature_importances_.tolist() == [0.0] * 4


def colours() -> tuple[Any, Any]:
    pd = pytest.importorskip("pandas")
    draws = np.random.default_rng(3)
    words = draws.choice(["red", "green", "blue", "black", "white", None], 200)
    frame = pd.DataFrame({"colour": words, "x": draws.random(200).round(1)})
    return frame, np.isin(words, ["red", "black"]).astype(int)


def test_categories_count_by_value_and_not_by_the_order_of_their_appearance() -> None:
    frame, y = colours()
    forward = ExactForestClassifier(**SMALL).fit(frame, y, ids=np.arange(200))
    backward = ExactForestClassifier(**SMALL).fit(frame[::-1], y[::-1], ids=np.arange(200)[::-1])
    assert forward.digest() == backward.digest()
    assert forward.score(frame, y) > 0.95
    other = type(frame)({"colour": ["violet", None], "x": [0.5, 0.5]})
    assert forward.predict(other).tolist() == backward.predict(other).tolist()
    rare = ExactForestClassifier(**SMALL).fit(frame[10:], y[10:], ids=np.arange(10, 200))
    forward.forget(np.arange(10))
    assert forward.digest() == rare.digest()


def test_codes_instead_of_values_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, y = colours()
    true = type(LEARNER).traits
    monkeypatch.setattr(type(LEARNER), "traits", lambda self, options: with_codes(true(self, options)))
    forward = ExactForestClassifier(**SMALL).fit(frame, y, ids=np.arange(200))
    backward = ExactForestClassifier(**SMALL).fit(frame[::-1], y[::-1], ids=np.arange(200)[::-1])
    assert forward.digest() != backward.digest()


def with_codes(traits: Any) -> Any:
    return replace(traits, reading=replace(traits.reading, by_value=False))


# -- forest limits ---------------------------------------------------------------------------------------------------
#
# The exact forest at its limits: large leaves, entries beyond 32 bits, trees that stay with their shards.


@pytest.mark.parametrize("rows", [2**23 - 1, 2**23, 9_000_000, 2**31 - 1])
def test_votes_of_large_leaves_are_exact(rows: int) -> None:
    totals = np.array([[rows - 5, 5], [rows, 0]])
    assert leaf_votes(totals, False).tolist() == [[(rows - 5 << 40) // rows, (5 << 40) // rows], [1 << 40, 0]]


def session(**options: object) -> InProcessSession:
    chosen = LEARNER.Options(**{"n_estimators": 1, "sample_share": 1.0, "min_samples_split": 2, **options})
    return InProcessSession(LEARNER, chosen, Features(("x",), (False,), 1), 1)


def test_more_entries_than_are_numbered_are_refused_before_anything_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "MOST_ENTRIES", 25)
    forest = session(n_estimators=5)
    X, y = np.arange(5.0)[:, None], np.array([0, 1, 0, 1, 0], dtype=np.int32)
    op = np.full(5, INSERT, dtype=np.int8)
    forest.apply(UpdateBatch(0, op, np.arange(5), X, y, 2, np.full(5, -1)))
    with refused("learners.examples", InputError, examples=6, what="each in 5 trees", most=5):
        forest.apply(UpdateBatch(5, op[:1], np.array([5]), X[:1], y[:1], 2, np.array([-1])))
    assert forest.statistics()["active"] == 5


def test_trees_leave_their_shards_only_when_they_are_wanted() -> None:
    """Bytes of a batch do not grow with the trees; the second digest without an update fetches nothing."""
    options = LEARNER.Options(n_estimators=8, sample_share=1.0, min_samples_split=2)
    forest = InProcessSession(LEARNER, options, Features(("x",), (False,), 1), 4, WorkPlan(shared_store=False))
    draws = np.random.default_rng(0)
    op, none, sent = np.full(50, INSERT, dtype=np.int8), np.full(50, -1), []
    for start in range(0, 500, 50):
        before = forest.statistics()["bytes_exchanged"]
        X, y = draws.random((50, 1)), draws.integers(0, 2, 50).astype(np.int32)
        forest.apply(UpdateBatch(start, op, np.arange(start, start + 50), X, y, 2, none))
        sent.append(forest.statistics()["bytes_exchanged"] - before)
    assert forest.statistics()["nodes"] > 500
    assert max(sent) == min(sent)
    digest, rounds = forest.digest(), forest.statistics()["rounds"]
    assert forest.digest() == digest
    assert forest.statistics()["rounds"] == rounds
    one = InProcessSession(LEARNER, options, Features(("x",), (False,), 1))
    one.restore(*forest.state())
    assert one.digest() == digest


# -- forest mutants --------------------------------------------------------------------------------------------------
#
# Forests that remember: each mutant breaks one rule of exactness, and the twin's digest shows it.
#
# A mutant is the learner with one function replaced before its kernels are compiled, so each runs in its own process.

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
