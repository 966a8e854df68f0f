"""Every program of ``examples`` ends well, within a minute of processor time."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Those that start a Ray.
WITH_RAY = {"two_shards.py"}


def program(name: str) -> object:
    return pytest.param(name, marks=[pytest.mark.nightly, pytest.mark.ray] if name in WITH_RAY else [])


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", [program(path.name) for path in sorted(EXAMPLES.glob("*.py"))])
def test_an_example_ends_well(name: str, tmp_path: Path) -> None:
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not list(tmp_path.iterdir())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime < 60
