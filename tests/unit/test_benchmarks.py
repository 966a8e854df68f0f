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


@pytest.fixture
def _kit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def request_of(kit: str, name: str, **given: Any) -> tuple[Any, Any]:
    """The module of a command, and a request for it."""
    command = importlib.import_module(f"{kit}.command")
    return importlib.import_module(f"{kit}.{command.COMMANDS[name][0]}"), command.Request(name, **given)


@pytest.mark.nightly
@pytest.mark.usefixtures("_kit")
@pytest.mark.parametrize("kit", ["sparse", "ctree", "gbdt"])
def test_a_command_prints_its_tables(kit: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    commands = importlib.import_module(f"{kit}.command").COMMANDS
    assert all(callable(importlib.import_module(f"{kit}.{module}").run) for module, _ in commands.values())
    if kit == "sparse":
        module, request = request_of(kit, "points", seeds=1)
        for name, value in {"ROWS": 60, "FEATURES": 40, "PARTS": 3}.items():
            monkeypatch.setattr(module, name, value)
    elif kit == "ctree":
        module, request = request_of(kit, "figure2", trees=2, examples=5_000, settings=2)
    else:
        module, request = request_of(kit, "backdoor", data=("pendigits",), derivatives=("never",), seeds=1)
        data, draws = importlib.import_module("gbdt.data"), np.random.default_rng(3)
        X = draws.normal(size=(300, 4))
        split = data.Split("tiny", X[:240], (X[:240, 0] > 0).astype(int), X[240:], (X[240:, 0] > 0).astype(int), False)
        monkeypatch.setitem(data.SETS, "pendigits", lambda: split)
    module.run(request)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) >= 3


@pytest.mark.nightly
@pytest.mark.usefixtures("_kit")
def test_a_measurement_of_the_paper_lasts(tmp_path: Path) -> None:
    bench, sets = importlib.import_module("paper.bench"), importlib.import_module("paper.datasets")
    draws = np.random.default_rng(5)
    y = np.repeat(draws.integers(0, 2, 60), 5)
    columns = {"a": y + draws.normal(0, 0.7, 300), "b": draws.normal(size=300), "y": np.where(y, "yes", "no")}
    pq.write_table(pa.table(columns), tmp_path / "small.parquet")
    data = sets.DataSet("Small", "small", "yes", 300, "Electricity", True)
    measured = bench.Bench(tmp_path / "out", sets.Folder(tmp_path)).ours(data, 0.1, 5, "sliding_window", 100)
    assert (measured.scored, measured.updates) == (200, 500)
    assert bench.Bench(tmp_path / "out").ours(data, 0.1, 5, "sliding_window", 100) == measured
