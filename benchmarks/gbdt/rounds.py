"""Exchanges with shards per update: 2 shards in process, and 2 Ray actors; wall time, bytes, retrained subtrees.

One exchange is a request to all shards and their answers. Beside what was counted stands the number of exchanges of a
tree-by-tree update, M x K.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from gbdt.command import Request
from gbdt.contestants import BINS, ITERATIONS, SIZES, options_of, size_of
from gbdt.data import Split, load
from kit import progress, show

from raydt.examples.features import Features
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession

SHARDS, D_PRIMES = 2, 5


class Updates:
    """A session fed with one D' at a time."""

    def __init__(self, session: Any, split: Split) -> None:
        self.session, self.split, self.seq, self.warmup = session, split, 0, len(split)
        self.apply(INSERT, np.arange(len(split)))

    def apply(self, op: int, rows: Any) -> dict[str, float]:
        """One D'; exchanges, bytes, retrained subtrees and wall seconds."""
        taken = rows if op == INSERT else rows[:0]
        X, y = np.ascontiguousarray(self.split.X[taken]), self.split.y[taken]
        y = y if self.split.regression else y.astype(np.int32)
        n = len(rows)
        codes, none = np.full(n, op, dtype=np.int8), np.full(n, -1, dtype=np.int64)
        batch = UpdateBatch(self.seq, codes, rows, X, y, self.split.classes, none, self.warmup)
        self.seq = batch.stop
        before, began = self.session.statistics(), time.perf_counter()
        for _ in self.session.process([batch]):
            pass
        self.session.finish()
        seconds = time.perf_counter() - began
        after = self.session.statistics()
        counted = {name: float(after[name] - before[name]) for name in ("rounds", "bytes_exchanged", "rebuilds")}
        return {**counted, "seconds": seconds}


def open_session(split: Split, mode: str, cluster: Any = None, **options: Any) -> Any:
    """Two shards, in this process or on Ray, whose D' ends only where it is told to."""
    learner = learners()["gbdt"]
    settings = {"max_bins": BINS, "update_every": 2**40, **options_of(mode), **options}
    if split.regression:
        settings["objective"] = "squared_error"
    fixed = learner.Options(kind="gbdt", **settings)
    d = split.X.shape[1]
    features = Features(tuple(f"x{j}" for j in range(d)), (False,) * d)
    plan = WorkPlan(local_work_limit=0, shared_store=False)
    if cluster is None:
        return InProcessSession(learner, fixed, features, SHARDS, plan)
    from actors.session import RaySession

    return RaySession(cluster, learner, fixed, features, shards=SHARDS, plan=plan)


def measure(split: Split, session: Any, seed: int = 0) -> dict[tuple[str, str], dict[str, float]]:
    """Medians over a few D', by operation and size, and the fewest rounds of one."""
    rng = np.random.default_rng(seed)
    updates = Updates(session, split)
    found = {}
    for size, share in SIZES.items():
        parts: dict[str, list[dict[str, float]]] = {"delete": [], "add": []}
        for _ in range(D_PRIMES):
            rows = rng.choice(len(split), size_of(share, len(split)), replace=False)
            parts["delete"].append(updates.apply(DELETE, rows))
            parts["add"].append(updates.apply(INSERT, rows))
        for operation, several in parts.items():
            medians = {key: float(np.median([one[key] for one in several])) for key in several[0]}
            found[operation, size] = {**medians, "fewest": min(one["rounds"] for one in several)}
    return found


def run(request: Request) -> None:
    """Print the table."""
    from actors.cluster import bundles, connect

    cluster = connect("local", bundles(SHARDS))
    rows = []
    for name in request.sets("adult", "pendigits"):
        split = load(name)
        trees = ITERATIONS * (split.classes if split.classes > 2 else 1)
        for mode in request.modes("bounded", "never", "retrained"):
            for where, place in (("in process", None), ("Ray", cluster)):
                session = open_session(split, mode, place)
                for (operation, size), one in measure(split, session).items():
                    counted = [f"{one[key]:.0f}" for key in ("rounds", "fewest", "rebuilds", "bytes_exchanged")]
                    cells = [*counted, f"{1e3 * one['seconds']:.0f}", str(trees)]
                    rows.append([split.title, mode, where, f"{operation} {size}", *cells])
                    progress(*rows[-1])
                session.close()
    header = ["data", "derivatives", "shards", "D'", "exchanges", "fewest", "subtrees retrained", "bytes", "wall ms"]
    note = f"Medians of {D_PRIMES} D' each, {SHARDS} shards; retrain: never, only updates."
    show("Exchanges per update", [*header, "exchanges, tree by tree"], rows, note)
