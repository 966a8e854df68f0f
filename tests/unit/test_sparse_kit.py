"""Benchmarks of the sparse best splits (benchmarks/sparse): each at a tiny size, and what they rest on."""

from __future__ import annotations

import importlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
TINY = {
    "speed": {"ROWS": 60, "FEATURES": 40, "WINDOWS": (20,), "GROUPS": (1, 3)},
    "dimension": {"DIMENSIONS": (50, 100), "ROWS": {"structure": 10, "scan": 5}},
    "alpha": {"ALPHAS": (0.1, 2.0), "ROWS": 60, "FEATURES": 40},
    "points": {"ROWS": 60, "FEATURES": 40, "PARTS": 3},
    "density": {"DIMENSIONS": (50, 100), "ROWS": 60},
    "datasets": {"PARTS": 3},
    "memory": {"FEATURES": 1000, "SEEN": (0, 50, 100)},
    "tree": {"WINDOW": 40, "WARM": 5, "FREQUENT": 4, "BATCH": 32},
}


@pytest.fixture(autouse=True)
def _kit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def _tiny(n: int = 120, seed: int = 0):
    from sparse.data import sparse

    return sparse(n, 5, 30, 0.1, seed), 35


def test_every_command_has_its_module():
    from sparse.command import COMMANDS

    assert COMMANDS.keys() == TINY.keys()
    for module, what in COMMANDS.values():
        assert what
        assert callable(importlib.import_module(f"sparse.{module}").run)


@pytest.mark.parametrize("name", TINY)
def test_a_command_prints_its_tables(monkeypatch, capsys, tmp_path, name):
    import kit
    from sparse.command import COMMANDS, Request

    module = importlib.import_module(f"sparse.{COMMANDS[name][0]}")
    for constant, value in TINY[name].items():
        monkeypatch.setattr(module, constant, value)
    if name in ("datasets", "tree"):
        monkeypatch.setattr(module, "real", lambda name: _tiny())
    if name == "tree":
        pytest.importorskip("river", reason="a peer of the benchmarks: pip install -e '.[bench]'")
    monkeypatch.setattr(kit, "svg", lambda grid, styles: str(len(grid)))
    monkeypatch.setattr(kit, "PICTURES", tmp_path)
    module.run(Request(name, ("reuters",) if name in ("datasets", "tree") else (), seeds=1, plot=True))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) >= 3
    headers = [i + 1 for i, line in enumerate(lines[1:]) if set(line) <= set("| -:")]
    for i, (line, after) in enumerate(pairwise(lines)):
        assert line.count("|") == after.count("|") or i + 2 in headers
    assert "nan" not in " ".join(lines)
    assert len(list(tmp_path.rglob("*.svg"))) == (name not in ("speed", "memory", "tree"))


def test_the_family_of_the_paper():
    from sparse.data import sparse

    rows = sparse(4000, 3, 50, 0.04, seed=5)
    X = np.zeros((4000, 53), dtype=bool)
    X[np.repeat(np.arange(4000), np.diff(rows.indptr)), rows.feature] = True
    assert X.sum() == len(rows.feature)
    assert abs(X[:, 3:].mean() - 0.04) < 0.002
    assert abs(rows.label.mean() - 0.5) < 0.03
    wrong = np.random.default_rng(5).random(3)
    assert np.abs((X[:, :3] != rows.label[:, None]).mean(axis=0) - wrong).max() < 0.03


def test_a_window_lets_the_oldest_go():
    from sparse.data import window

    rows, _ = _tiny(10)
    steps = window(rows, 4)
    assert len(steps) == 16
    assert steps.sign.tolist() == [1] * 5 + [-1, 1] * 5 + [-1]
    n, c1 = steps.totals()
    assert n[4:].max() == 5
    assert n[-1] == 4
    assert c1[-1] == rows.label[-4:].sum()
    assert np.array_equal(steps.part(5, 6).feature, rows.part(0, 1).feature)


def test_answers_are_compared_with_the_optimum():
    from sparse.contestants import CONTESTANTS, OPPONENT, compare, in_turns, scores

    rows, _ = _tiny(300)
    taken = in_turns(rows, 1, alpha=2.0, groups=2)
    for who, (_, entropy) in CONTESTANTS.items():
        assert np.isfinite(scores(taken[who].answers, rows, entropy)).all()
    for who in OPPONENT:
        found = compare(who, taken, rows)
        assert 1 <= found.worst <= 3
        assert found.steps == 300
    worse = taken["UPDGINI"].answers.copy()
    worse[-1, :, 1:] = [[1, 0], [1, 0]]
    with_worse = {**taken, "UPDGINI": taken["UPDGINI"]._replace(answers=worse)}
    found = compare("UPDGINI", with_worse, rows)
    assert found.suboptimal > compare("UPDGINI", taken, rows).suboptimal


def test_batches_of_a_window():
    from sparse.tree import batches

    from raydt.examples.updates import DELETE, INSERT

    rows, d = _tiny(70)
    stream = list(batches(rows, d, 20, np.empty((70, 0))))
    op, ids = (np.concatenate([getattr(batch, name) for batch in stream]) for name in ("op", "id"))
    assert ids[op == INSERT].tolist() == list(range(70))
    assert ids[op == DELETE].tolist() == list(range(50))
    assert (np.flatnonzero(op == DELETE)[0], ids[op == DELETE][0]) == (21, 0)
    assert np.concatenate([batch.sparse.indices for batch in stream]).tolist() == rows.feature.tolist()


def test_f1():
    from sparse.tree import f1

    truth = np.array([0, 1, 1, 0])
    assert f1(truth, np.array([1, 1, 0, 0])) == 0.5
    assert f1(truth, np.zeros(4, dtype=int)) == 0.0
