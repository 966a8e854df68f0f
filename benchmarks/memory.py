"""Memory by process: bytes of a live row in one process, and in coordinator and shards on Ray.

In process: the slope of the resident size over 1,000,000 rows that are inserted with int64 ids (FuDyADT). On Ray: peaks
of the first model of half the rows and of all of them. The difference gives bytes of a row; by them the last columns
are calculated for 10^9 rows and 64 shards. The rows are sent; shards that read for themselves keep the same.

Run: python benchmarks/memory.py [--features 10] [--work fudyadt] [--rows 1000000] [--shards 2]
"""

from __future__ import annotations

import argparse
import gc
import os
from typing import Any

import numpy as np
import psutil
from kit import progress, show
from measure import machine, peak_mb
from works import ALL_TO_SHARDS, WORKS, Work, run

from raydt.examples.features import Features
from raydt.examples.updates import INSERT, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sessions.warmup import compile_kernels

#: What is calculated from the measured bytes of a row.
MANY_ROWS, MANY_SHARDS = 10**9, 64


def in_process(d: int, rows: int = 1_000_000, m: int = 10_000) -> list[str]:
    """Rows of one process."""
    learner = learners()["fudyadt"]
    options = learner.Options.model_validate(
        {"kind": "fudyadt", "epsilon": 0.5, "alpha": 0, "beta": 0, "max_depth": 10}
    )
    compile_kernels(learner)
    session = InProcessSession(
        learner, options, Features(tuple(f"x{j}" for j in range(d)), (False,) * d), 1, WorkPlan(2**62)
    )
    draw, rss = np.random.default_rng(0), []
    for begin in range(0, rows, m):
        X = draw.random((m, d))
        y = (X[:, 0] + X[:, 1] + 0.3 * draw.random(m) > 1.1).astype(np.int32)
        ids = draw.integers(0, 2**40, m) * 2**20 + np.arange(begin, begin + m)  # any int64 ids
        session.apply(UpdateBatch(begin, np.full(m, INSERT, dtype=np.int8), ids, X, y, 2, np.full(m, -1)))
        del X, y, ids
        gc.collect()
        rss.append(psutil.Process().memory_info().rss)
    slope = float(np.polyfit(np.arange(m, rows + 1, m), rss, 1)[0])
    return [f"{d}", f"{slope:.0f} = 8 d + {slope - 8 * d:.0f}", f"{rss[-1] / 2**20:.0f}", f"{peak_mb():.0f}"]


def on_ray(cluster: Any, work: Work, shards: int) -> tuple[float, float]:
    """Peak bytes of the coordinator, and of the largest shard."""
    from actors.session import RaySession

    session = RaySession(
        cluster, learners()[work.kind], work.settings, work.features, shards=shards, plan=ALL_TO_SHARDS, patience=120.0
    )
    try:
        run(session, work)
        found = session.statistics()["peak_rss_bytes"], max(one["peak_rss_bytes"] for one in session.work())
    finally:
        session.close()
    progress(f"{work.title}: {found[0] / 1e6:,.0f} and {found[1] / 1e6:,.0f} MB, load {os.getloadavg()[0]:.1f}")
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--work", choices=WORKS, action="append", help="by default fudyadt and gbdt")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--shards", type=int, default=2)
    asked = parser.parse_args()
    from actors.cluster import bundles, connect

    print(machine("ray"))
    header = ["d", "bytes of a row", "MiB after 1,000,000 rows", "MiB at the peak, during a BUILD"]
    show("In process: FuDyADT, d numbers", header, [in_process(asked.features)])
    cluster, table = connect("local", bundles(asked.shards)), []
    for name in asked.work or ("fudyadt", "gbdt"):
        rows = asked.rows
        half, whole = (on_ray(cluster, WORKS[name].of(n), asked.shards) for n in (rows // 2, rows))
        for role, part, before, after in zip(
            ("coordinator", "shard"), (1, MANY_SHARDS / asked.shards), half, whole, strict=True
        ):
            a_row = max(0.0, (after - before) / (rows - rows // 2))
            many = before + a_row * (MANY_ROWS / part - rows // 2)
            columns = f"{rows:,} x {WORKS[name].columns}"
            table.append([f"{name}, {columns}", role, f"{after / 1e6:,.0f}", f"{a_row:.0f}", f"{many / 1e9:,.1f}"])
    cluster.close()
    header = ["work", "process", "MB, peak", "bytes of a row", f"GB at 10^9 rows, {MANY_SHARDS} shards, calculated"]
    show(f"On Ray, {asked.shards} shards", header, table)
    print(f"\nLoad {os.getloadavg()[0]:.1f} at the end, of {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
