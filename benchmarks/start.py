"""What a first start costs: importing, compiling all kernels into an empty cache, and loading them from it.

Run: python benchmarks/start.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from measure import machine

CODE = """
import time; began = time.perf_counter()
from raydt.learners import learners
from raydt.sessions.warmup import compile_kernels
imported = time.perf_counter()
compile_kernels(learners()["fudyadt"])
from raydt.streams import warmup; warmup()
print(f"imports {imported - began:.2f} s, kernels {time.perf_counter() - imported:.2f} s")
"""
print(machine())
for run in range(3):
    with tempfile.TemporaryDirectory() as cache:
        for name in ("empty cache", "warm cache"):
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            done = subprocess.run(
                [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True
            )
            print(f"run {run + 1}, {name}: {done.stdout.strip()}")
