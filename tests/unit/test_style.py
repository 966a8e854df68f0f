"""Style and types of the whole project, so that one test command says all."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 400


@pytest.mark.parametrize(
    "command",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)],
    ids=" ".join,
)
def test_tool_is_content(command: tuple[str, ...]) -> None:
    tool = Path(sys.executable).with_name(command[0])
    program = str(tool) if tool.exists() else shutil.which(command[0])
    assert program, f"{command[0]} is not installed: pip install -e '.[dev]'"
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_too_long() -> None:
    sources = [
        p for folder in ("raydt", "actors", "pipelines", "tests", "benchmarks") for p in (ROOT / folder).rglob("*.py")
    ]
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in sources}
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}
    assert sorted(lengths.values())[len(lengths) // 2] < 200
