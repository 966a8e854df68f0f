"""Style and types of the whole project, so that one test command says all."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Lines from which on a file is named.
LONG = 400


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


@pytest.mark.filterwarnings("default:these files")
def test_long_files_are_named() -> None:
    """A long file deserves a second look, which may find that its parts belong together: a warning, no failure."""
    sources = [
        p for folder in ("raydt", "actors", "pipelines", "tests", "benchmarks") for p in (ROOT / folder).rglob("*.py")
    ]
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in sources}
    long = {name: n for name, n in lengths.items() if n > LONG}
    if long:
        warnings.warn(f"these files have more than {LONG} lines: {long}", stacklevel=1)
