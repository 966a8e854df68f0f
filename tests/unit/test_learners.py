"""Learners are found by folder and by entry point, in every process that has their package."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from raydt.errors import ConfigError
from raydt.learners import learners
from tests.refusals import refused

PLUGIN = """\
from raydt.learners import learners
from raydt.learners.fudyadt.learner import FuDyADT
from raydt.learners.fudyadt.options import FuDyADTOptions
from typing import Literal


class Options(FuDyADTOptions):
    kind: Literal["plugin"] = "plugin"


class Plugin(FuDyADT):
    kind = "plugin"
    Options = Options


LEARNER = Plugin()
"""
CONFIG = """\
source: {kind: synthetic, generator: sea, n: 300}
stream: {model: incremental}
learner: {kind: plugin, max_depth: 3}
cluster: {backend: in_process}
output: {report: false}
"""


def install(folder: Path, entry: str, module: str = PLUGIN) -> Path:
    """A package of one module beside its metadata, as an installer leaves them."""
    info = folder / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[raydt.learners]\n{entry}\n")
    (folder / "plugin_learner.py").write_text(module)
    assert PathDistribution(info).entry_points
    return folder


def test_a_learner_of_another_package_is_found_in_a_child_process(tmp_path: Path) -> None:
    place = install(tmp_path, "plugin = plugin_learner:LEARNER")
    (tmp_path / "job.yaml").write_text(CONFIG)
    path = os.pathsep.join([str(place), str(Path(__file__).parents[2])])
    command = [
        sys.executable,
        "-m",
        "pipelines.cli",
        "replay",
        str(tmp_path / "job.yaml"),
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = "from tests.cases import CASES; print(sorted({t.learner.kind for t in CASES}))"
    cases = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True
    )
    assert "'plugin'" in cases.stdout


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("plugin = plugin_learner:MISSING", "learners.broken_entry"),
        ("other = plugin_learner:LEARNER", "learners.other_entry"),
        ("fudyadt = plugin_learner:TWIN", "learners.repeated_entry"),
        ("plugin = plugin_learner:PLAIN", "learners.other_entry"),
    ],
)
def test_what_is_no_learner_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, problem: str
) -> None:
    module = f"{PLUGIN}\nPLAIN = object()\nTWIN = FuDyADT()\n"
    monkeypatch.syspath_prepend(install(tmp_path, entry, module))
    monkeypatch.delitem(sys.modules, "plugin_learner", raising=False)
    name, value = entry.split(" = ")
    with refused(problem, ConfigError, name=name, value=value):
        dict(learners.__wrapped__())


def test_a_learner_that_is_found_by_its_folder() -> None:
    assert {"fudyadt", "gbdt"} <= learners().keys()
    assert all(learner.kind == kind for kind, learner in learners().items())
