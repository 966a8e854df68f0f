"""Imports run one way: pipelines -> actors -> raydt, and raydt knows no ray."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    "raydt": {"ray", "actors", "pipelines", "tests"},
    "actors": {"pipelines", "tests"},
    "pipelines": {"tests"},
}
NEVER = {"pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve"}
FILES = [path for package in FORBIDDEN for path in sorted((ROOT / package).rglob("*.py"))]


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way_and_nothing_pickles(path: Path) -> None:
    roots = {name.split(".")[0] for name in imported(path)}
    package = path.relative_to(ROOT).parts[0]
    assert not roots & FORBIDDEN[package], f"{path} reaches upward"
    assert not roots & NEVER, f"{path} uses pickle"
    assert "ray.data" not in imported(path)
    assert "allow_pickle=True" not in path.read_text()
