"""Benchmarks use names that exist, and one command of each kit prints its tables at a tiny size."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "benchmarks").rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_a_benchmark_imports_of_raydt_is_there(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("raydt", "actors", "pipelines"):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


def names_of(file: Path) -> set[str]:
    """The names at the top level of a file, imported ones included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_a_benchmark_imports_of_another_is_there(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            other = (ROOT / "benchmarks" / node.module.replace(".", "/")).with_suffix(".py")
            if other in FILES:
                assert {alias.name for alias in node.names} <= names_of(other)


@pytest.fixture
def _kit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def table_of(folder: str, name: str) -> Any:
    """The function that prints a table."""
    module, _, function = importlib.import_module(f"{folder}.run").TABLES[name].partition(":")
    return getattr(importlib.import_module(module), function)


@pytest.mark.usefixtures("_kit")
@pytest.mark.parametrize("folder", ["sparse", "ctree", "gbdt"])
def test_every_table_has_its_function(folder: str) -> None:
    assert all(callable(table_of(folder, name)) for name in importlib.import_module(f"{folder}.run").TABLES)


@pytest.mark.nightly
@pytest.mark.usefixtures("_kit")
@pytest.mark.parametrize("folder", ["sparse", "ctree", "gbdt"])
def test_a_command_prints_its_tables(folder: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    request = importlib.import_module("harness").Request
    if folder == "sparse":
        for name, value in {"ROWS": 60, "FEATURES": 40, "PARTS": 3}.items():
            monkeypatch.setattr(importlib.import_module("sparse.figures"), name, value)
        table_of(folder, "points")(request(seeds=1))
    elif folder == "ctree":
        table_of(folder, "figure2")(request(trees=2, examples=5_000, settings=2, jobs=1))
    else:
        data, draws = importlib.import_module("gbdt.data"), np.random.default_rng(3)
        X = draws.normal(size=(300, 4))
        split = data.Split("tiny", X[:240], (X[:240, 0] > 0).astype(int), X[240:], (X[240:, 0] > 0).astype(int), False)
        monkeypatch.setitem(data.SETS, "pendigits", lambda: split)
        table_of(folder, "backdoor")(request(data=["pendigits"], derivatives=["never"], seeds=1))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) >= 3


@pytest.mark.nightly
@pytest.mark.usefixtures("_kit")
def test_a_measurement_of_the_paper_lasts(tmp_path: Path) -> None:
    bench = sets = importlib.import_module("paper.bench")
    draws = np.random.default_rng(5)
    y = np.repeat(draws.integers(0, 2, 60), 5)
    columns = {"a": y + draws.normal(0, 0.7, 300), "b": draws.normal(size=300), "y": np.where(y, "yes", "no")}
    pq.write_table(pa.table(columns), tmp_path / "small.parquet")
    data = sets.DataSet("Small", "small", "yes", 300, "Electricity", True)
    measured = bench.Bench(tmp_path / "out", sets.Folder(tmp_path)).ours(data, 0.1, 5, "sliding_window", 100)
    assert (measured.scored, measured.updates) == (200, 500)
    assert bench.Bench(tmp_path / "out").ours(data, 0.1, 5, "sliding_window", 100) == measured


@pytest.mark.usefixtures("_kit")
def test_the_critical_path_has_the_slowest_shard_of_each_step() -> None:
    scaling = importlib.import_module("scaling")
    shards = [[([1.0, 0.25, 2.0], 100), ([0.5], 0)], [([3.0, 0.125, 1.0], 50), ([0.75], 0)]]
    path = scaling.path_of(shards, 0.5, 9.0, 1, scaling.Latency(call=0.25, swap=0.125))
    assert path.path == 0.5 + (3.0 + 0.25 + 2.0) + 0.75 + 3 * 0.25 + 0.125
    assert (path.waits, path.megabytes) == (4, 100 / 1e6)


@pytest.mark.usefixtures("_kit")
@pytest.mark.parametrize(
    ("two", "costs"),
    [(2.6, ["4", "none up to 4", "no peer"]), (2.2, ["none up to 2", "none up to 2", "no peer"])],
    ids=["a path that predicts two shards", "a path that does not"],
)
def test_cost_is_the_fewest_shards_that_win(two: float, costs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = importlib.import_module("scaling")
    monkeypatch.setattr(scaling, "CORES", 2)
    contest = scaling.Contest("gbdt", scaling.WORKS["gbdt"])
    contest.walls = {"one thread": [2.0], "all threads": [1.0], "1 shards": [3.0], "2 shards": [2.5]}
    contest.paths = {n: [scaling.Path(0, path, 0, 0, 0)] for n, path in {1: 3.1, 2: two, 4: 1.5}.items()}
    assert [contest.cost(name) for name in ("one thread", "all threads", "peer")] == costs
