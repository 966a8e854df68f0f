"""Resident memory per live row: the slope of RSS over 1,000,000 inserted rows with int64 ids.

Run: python benchmarks/memory.py [features]
"""

from __future__ import annotations

import gc
import resource
import sys

import numpy as np
import psutil
from measure import machine

from raydt.examples.features import Features
from raydt.examples.updates import INSERT, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sessions.warmup import compile_kernels

d = int(sys.argv[1]) if len(sys.argv) > 1 else 10
LEARNER = learners()["fudyadt"]
OPTIONS = LEARNER.Options(kind="fudyadt", epsilon=0.5, alpha=0.0, beta=0.0, max_depth=10)
print(machine(), f"features {d}")
compile_kernels(LEARNER)
session = InProcessSession(
    LEARNER, OPTIONS, Features(tuple(f"x{j}" for j in range(d)), (False,) * d), 1, WorkPlan(2**62)
)
rng = np.random.default_rng(0)
live, rss = [], []
m = 10_000
for begin in range(0, 1_000_000, m):
    X = rng.random((m, d))
    y = (X[:, 0] + X[:, 1] + 0.3 * rng.random(m) > 1.1).astype(np.int32)
    ids = rng.integers(0, 2**40, m) * 2**20 + np.arange(begin, begin + m)  # any int64 ids
    session.apply(UpdateBatch(begin, np.full(m, INSERT, dtype=np.int8), ids, X, y, 2, np.full(m, -1)))
    del X, y, ids
    gc.collect()
    live.append(begin + m)
    rss.append(psutil.Process().memory_info().rss)
slope = np.polyfit(live, rss, 1)[0]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(f"slope {slope:.1f} bytes/row = 8 d + {slope - 8 * d:.1f}; goal at most 8 d + 64 = {8 * d + 64}")
print(f"RSS after {live[-1]:,} rows {rss[-1] / 2**20:.0f} MiB; peak, during a BUILD, {peak / 2**20:.0f} MiB")
