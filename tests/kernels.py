"""Compile the kernels of all learners before the tests, if they are not compiled yet, in two processes at a time.

Otherwise every process of the tests and every actor on Ray that meets a kernel at the same time compiles it for itself.

``python -m tests.kernels KIND...`` compiles the kernels of some learners.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from raydt.arrays.kernel_cache import _cache_folder, _stamp, compile_once
from raydt.learners import learners
from raydt.sessions.session import compile_kernels

ROOT = Path(__file__).parents[1]

#: The learners whose kernels take longest to compile: begun with, so that both processes end together.
LONGEST = ("forest", "gbdt", "confidence_tree", "fudyadt")


def cold() -> list[str]:
    """The learners that come with raydt and whose kernels :func:`main` has not compiled, by kind."""
    kinds = [kind for kind, learner in learners().items() if type(learner).__module__.startswith("raydt.")]
    return sorted(kind for kind in kinds if not any((_cache_folder() / _stamp(kind)).glob(f"{_done(kind)}-*.done")))


def _done(kind: str) -> str:
    """What the cache calls it that all kernels of a learner are compiled; some may be, by a run that was ended."""
    return f"{kind}-all"


def compile_all() -> None:
    """Compile what is not compiled; a learner that fails is left to its tests, which say more."""
    kinds = sorted(cold(), key=lambda kind: LONGEST.index(kind) if kind in LONGEST else len(LONGEST))
    with ThreadPoolExecutor(2) as pool:
        for kind in kinds:
            pool.submit(
                subprocess.run, [sys.executable, "-m", "tests.kernels", kind], cwd=ROOT, stderr=subprocess.DEVNULL
            )


def main() -> None:
    """Compile the kernels of the learners that the arguments name."""
    for kind in sys.argv[1:]:
        learner = learners()[kind]
        compile_once(_done(kind), type(learner).__module__, partial(compile_kernels, learner))


if __name__ == "__main__":
    main()
