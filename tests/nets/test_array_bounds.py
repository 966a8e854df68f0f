"""Models of hardly a row, at more shards than rows: the same bits, and every kernel stays within its arrays.

Numba checks no index: a kernel that leaves its arrays gives other bits, or ends the process later, somewhere else. By
night each access is checked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import Trial, change_log, every_case
from tests.nets.test_trained import Learned, first_other
from tests.small_tables import table_of, written


@every_case("a warm-up of hardly a row")
def test_a_warmup_of_hardly_a_row(trial: Trial, tmp_path: Path) -> None:
    for warmup in (1, 2, 4):
        rows = change_log(40, warmup, seed=warmup)
        path = written(tmp_path / f"{warmup}.arrow", table_of(rows))
        source = {"kind": "arrow", "path": str(path), "op": "op", **trial.columns}
        digests = {Learned(trial, source, first_other(rows), shards, shards).digest for shards in (1, 2, 3)}
        assert len(digests) == 1, warmup


@pytest.mark.nightly
@pytest.mark.timeout(3000)  # all kernels are compiled anew
def test_no_kernel_leaves_its_arrays(tmp_path: Path) -> None:
    checked = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--timeout=0",
        "-m",
        "nightly or not nightly",
    ]
    command += [__file__, "-k", test_a_warmup_of_hardly_a_row.__name__]
    run = subprocess.run(command, env=checked, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
