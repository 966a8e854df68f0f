"""Sliding windows on Electricity: CPU time per update of an in-process session, batches of 1,000.

The first W rows build the tree; then every step deletes the oldest example and inserts one (two updates), each
inserted example being predicted first. The peer in the same run is this project's own twin without incremental
work: the same stream with epsilon 0, that is a rebuild after every update.
Run: python benchmarks/electricity_window.py [folder of the data]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from harness import DATA, cpu_seconds, electricity, machine

from raydt.examples.updates import Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession

X, y = electricity(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA)
LEARNER = learners()["fudyadt"]
print(machine())


def batches(window: int, stop: int, size: int = 1000) -> list[UpdateBatch]:
    steps = stop - window
    pairs = np.column_stack([np.arange(steps), np.arange(window, stop)]).ravel()
    op = np.concatenate([np.zeros(window), np.tile([1, 0], steps)]).astype(np.int8)
    key = np.concatenate([np.arange(window), pairs])
    out = []
    for begin in range(0, len(op), size):
        ops, ids = op[begin : begin + size], key[begin : begin + size]
        rows = ids[ops == 0]
        out.append(UpdateBatch(begin, ops, ids, X[rows], y[rows], 2, np.full(len(ops), -1), window))
    return out


def accuracy_of(stream: list[UpdateBatch], epsilon: float) -> float:
    options = LEARNER.Options(kind="fudyadt", epsilon=epsilon, alpha=0, beta=0, max_depth=10)
    session = InProcessSession(LEARNER, options, Features(tuple("abcdefgh"), (False,) * 8), 1, WorkPlan(2**62))
    right = scored = 0
    for batch, result in session.process(stream):
        inserted = batch.op == 0
        prediction = result.predictions[inserted]
        scored += int((prediction >= 0).sum())
        right += int(((prediction == batch.y) & (prediction >= 0)).sum())
    return right / scored


no_change = float(np.mean(y[1:] == y[:-1]))
for window in (1000, 100):
    stream = batches(window, len(y))
    updates = sum(map(len, stream))
    short = batches(window, window + 1500)
    each = cpu_seconds(lambda s=short: accuracy_of(s, 0.0), 1) / sum(map(len, short))
    for epsilon in (0.1, 0.5, 1.0):
        seconds = cpu_seconds(lambda s=stream, e=epsilon: accuracy_of(s, e)) / updates
        accuracy = accuracy_of(stream, epsilon)
        print(
            f"window {window:5d}  epsilon {epsilon:.1f}  {seconds * 1e6:6.2f} us/update  accuracy {accuracy:.4f} "
            f"(no-change {no_change:.4f})  rebuild at every update: {each * 1e6:7.1f} us/update, {each / seconds:.1f}x"
        )
