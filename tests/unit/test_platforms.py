"""What is used of Linux only has another way: a model is trained, changed, saved and loaded without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys, warnings
warnings.simplefilter("ignore")  # of filelock: only a soft lock is there
for name in ("fcntl", "resource"):
    sys.modules[name] = None
del os.sched_getaffinity
import numpy as np
from click.testing import CliRunner
import pipelines.cli, raydt
X = np.arange(60.0).reshape(20, 3)
tree = raydt.FullyDynamicTreeClassifier().fit(X, X[:, 0] > 30, ids=np.arange(20))
assert tree.forget([3]).active == 19
tree.save(sys.argv[1])
assert raydt.load_model(sys.argv[1]).predict(X[:2]).tolist() == [False, False]
assert CliRunner().invoke(pipelines.cli.cli, ["--help"]).exit_code == 0
"""


def test_without_what_only_posix_or_linux_has(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "model"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
