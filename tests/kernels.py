"""Compile the kernels of all learners before the tests, if they are not compiled yet: two processes share the work.

Otherwise every process of the tests and every actor on Ray that meets a kernel at the same time compiles it for itself.

``python -m tests.kernels KIND...`` compiles the kernels of some learners.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from raydt.arrays.kernel import _cache_folder, _stamp
from raydt.learners import learners
from raydt.sessions.warmup import compile_kernels

ROOT = Path(__file__).parents[1]

#: Learners whose kernels one process compiles; the other compiles those of the rest, which takes as long.
FIRST_HALF = {"best_split", "sparse_tree"}


def cold() -> list[str]:
    """The learners that come with raydt and have no compiled kernels, by kind."""
    kinds = [kind for kind, learner in learners().items() if type(learner).__module__.startswith("raydt.")]
    return sorted(kind for kind in kinds if not (_cache_folder() / _stamp(kind)).exists())


def compile_all() -> None:
    """Compile what is not compiled; a learner that fails is left to its tests, which say more."""
    kinds = cold()
    halves = [kind for kind in kinds if kind in FIRST_HALF], [kind for kind in kinds if kind not in FIRST_HALF]
    processes = [
        subprocess.Popen([sys.executable, "-m", "tests.kernels", *half], cwd=ROOT, stderr=subprocess.DEVNULL)
        for half in halves
        if half
    ]
    for process in processes:
        process.wait()


if __name__ == "__main__":
    for named in sys.argv[1:]:
        compile_kernels(learners()[named])
