"""The oldest Python that raydt says it takes, with the oldest libraries, and the newest one, with the newest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
EXTRAS = ("sign", "treelite", "onnx", "lightgbm", "sklearn")


def required(name: str) -> list[str]:
    """The requirements in one list of ``pyproject.toml`` (Python 3.10 has no reader of TOML)."""
    found = re.search(rf"^{name} = \[(.*?)\]$", PYPROJECT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return re.findall(r'"([^"]+)"', found[1])


def lowest(requirement: str) -> str:
    """The smallest version that a requirement allows."""
    return re.sub(r">=([\d.]+).*", r"==\1", requirement)


def pythons() -> Iterator[tuple[tuple[int, int], str]]:
    """The Pythons of this machine: those on the path, and those of pyenv."""
    folders = [*os.get_exec_path(), *map(str, Path("~/.pyenv/versions").expanduser().glob("*/bin"))]
    for folder in folders:
        for minor in range(10, 30):
            file = shutil.which(f"python3.{minor}", path=folder)
            works = file and subprocess.run([file, "-c", ""], capture_output=True, check=False).returncode == 0
            if file and works:
                yield (3, minor), file


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_every_estimator_and_a_run(end: str, tmp_path: Path) -> None:
    minimum = re.search(r'requires-python = ">=3\.(\d+)"', PYPROJECT)
    assert minimum is not None
    found = dict(pythons())
    version = (3, int(minimum[1])) if end == "oldest" else max(found, default=sys.version_info[:2])
    if version not in found:
        pytest.skip(f"there is no Python {version[0]}.{version[1]} on the path or in ~/.pyenv")
    requirements = [one for name in ("dependencies", *EXTRAS) for one in required(name)]
    if end == "oldest":
        requirements = [lowest(one) for one in requirements]
    subprocess.run([found[version], "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    command = [python, "-m", "pip", "install", "-q", *requirements]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Could not find a version" in installed.stderr:
        pytest.skip(f"Python {version[0]}.{version[1]}: {installed.stderr.strip().splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    (tmp_path / "work").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    command = [python, "-W", "error::DeprecationWarning:raydt", ROOT / "tests" / "smoke.py", tmp_path / "work"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-6000:]
    assert ended.stdout.endswith("all is well\n")
