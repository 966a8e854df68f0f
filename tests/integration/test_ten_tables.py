"""Tables from a file to an audited model with a config of at most eight lines (``benchmarks/ten_tables.py``)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("ten_tables")
    finally:
        sys.path.remove(str(BENCHMARKS))


def walked(program: ModuleType, name: str, rows: int | None, folder: Path) -> list[str]:
    """The cells of a table, taken all the way."""
    table = program.table_of(name, program.DATA, rows)
    if table is None:
        pytest.skip(f"{name} is not in {program.DATA}")
    cells: list[str] = program.walk(name, table, folder)
    return cells


@pytest.mark.parametrize("name", ["noshow", "clinic", "accounts", "sensors"])
def test_a_table_with_times_persons_and_holes(program: ModuleType, name: str, tmp_path: Path) -> None:
    cells = walked(program, name, 600, tmp_path)
    assert cells[-1] == "proven"
    assert ("persons" in cells[-2]) == (program.TRIALS[name].delete == "subject")


@pytest.mark.nightly
def test_all_tables(program: ModuleType, tmp_path: Path) -> None:
    assert len(program.TRIALS) == 10
    for name in program.TRIALS:
        if program.table_of(name, program.DATA, 10) is not None:
            (tmp_path / name).mkdir()
            walked(program, name, None, tmp_path / name)


def test_configs_are_short(program: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    program.main(["--configs"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    assert max(trial.config.count("\n") for trial in program.TRIALS.values()) <= 8
