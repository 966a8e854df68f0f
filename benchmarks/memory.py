"""Memory by process: bytes of a live row in one process, and in coordinator and shards on Ray.

In process: the slope of the resident size over 1,000,000 rows that are inserted with int64 ids (FuDyADT). On Ray:
peaks of private memory (RssAnon, looked at every 10 ms) for the first model of half the rows and of all of them. The
difference gives bytes of a row; by them the last columns are calculated for 10^9 rows and 64 shards. Pages of Ray's
object store, through which messages go, count at every process that has read them, up to the size of the store: they
are a column of their own. The rows are sent; shards that read for themselves keep the same. Linux only.

Run: python benchmarks/memory.py [--features 10] [--work fudyadt] [--rows 1000000] [--shards 2]
"""

import gc
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil
from harness import arguments, peak_mb, print_machine, progress, resident_mib, session, show
from works import ALL_TO_SHARDS, WORKS, Work, run

from raydt.examples.updates import INSERT, UpdateBatch
from raydt.learners import learners
from raydt.sessions.session import compile_kernels

#: What is calculated from the measured bytes of a row.
MANY_ROWS, MANY_SHARDS = 10**9, 64


def in_process(d: int, rows: int = 1_000_000, m: int = 10_000) -> list[str]:
    compile_kernels(learners()["fudyadt"])
    running = session("fudyadt", d, epsilon=0.5, alpha=0, beta=0, max_depth=10)
    draw, rss = np.random.default_rng(0), []
    for begin in range(0, rows, m):
        X = draw.random((m, d))
        y = (X[:, 0] + X[:, 1] + 0.3 * draw.random(m) > 1.1).astype(np.int32)
        ids = draw.integers(0, 2**40, m) * 2**20 + np.arange(begin, begin + m)  # any int64 ids
        running.apply(UpdateBatch(begin, np.full(m, INSERT, dtype=np.int8), ids, X, y, 2, np.full(m, -1)))
        del X, y, ids
        gc.collect()
        rss.append(psutil.Process().memory_info().rss)
    slope = float(np.polyfit(np.arange(m, rows + 1, m), rss, 1)[0])
    return [f"{d}", f"{slope:.0f} = 8 d + {slope - 8 * d:.0f}", f"{rss[-1] / 2**20:.0f}", f"{peak_mb():.0f}"]


class Peaks(threading.Thread):
    """Largest private size of some processes while it runs, and what of the object store each has read, in bytes."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self._pids, self._over = pids, threading.Event()
        self.private, self.shared = ([0.0] * len(pids) for _ in range(2))

    def run(self) -> None:
        while not self._over.wait(0.01):
            for peaks, field in ((self.private, "RssAnon"), (self.shared, "RssShmem")):
                for i, pid in enumerate(self._pids):
                    peaks[i] = max(peaks[i], resident_mib(pid, field) * 2**20)

    def end(self) -> None:
        self._over.set()
        self.join()


def on_ray(cluster: Any, work: Work, shards: int) -> list[tuple[float, float]]:
    """Peak bytes of the coordinator, and of the largest shard: private ones, and those of the object store."""
    from actors.session import RaySession

    session = RaySession(
        cluster, learners()[work.kind], work.settings, work.features, shards=shards, plan=ALL_TO_SHARDS, patience=120.0
    )
    peaks = Peaks([peer.pid for peer in session._peers if peer.pid])  # the coordinator comes first
    peaks.start()
    try:
        run(session, work)
    finally:
        peaks.end()
        session.close()
    found = [(of[0], max(of[1:])) for of in (peaks.private, peaks.shared)]
    progress(f"{work.title}: {found[0][0] / 1e6:,.0f} and {found[0][1] / 1e6:,.0f} MB, load {os.getloadavg()[0]:.1f}")
    return list(zip(*found, strict=True))


if __name__ == "__main__":
    asked = arguments(__doc__, features=10, work={"choices": WORKS, "action": "append"}, rows=200_000, shards=2)
    from actors.cluster import bundles, connect

    print_machine("ray")
    header = ["d", "bytes of a row", "MiB after 1,000,000 rows", "MiB at the peak, during a BUILD"]
    show("In process: FuDyADT, d numbers", header, [in_process(asked.features)])
    cluster, table = connect("local", bundles(asked.shards)), []
    for name in asked.work or ("fudyadt", "gbdt"):
        rows = asked.rows
        half, whole = (on_ray(cluster, WORKS[name].of(n), asked.shards) for n in (rows // 2, rows))
        for role, part, (before, _), (after, shared) in zip(
            ("coordinator", "shard"), (1, MANY_SHARDS / asked.shards), half, whole, strict=True
        ):
            a_row = max(0.0, (after - before) / (rows - rows // 2))
            many = before + a_row * (MANY_ROWS / part - rows // 2)
            columns = f"{rows:,} x {WORKS[name].columns}"
            sizes = f"{after / 1e6:,.0f}", f"{shared / 1e6:,.0f}", f"{a_row:.0f}", f"{many / 1e9:,.1f}"
            table.append([f"{name}, {columns}", role, *sizes])
    cluster.close()
    header = [
        "work", "process", "MB, peak", "MB of the object store", "bytes of a row",
        f"GB at 10^9 rows, {MANY_SHARDS} shards, calculated",
    ]  # fmt: skip
    show(f"On Ray, {asked.shards} shards", header, table)
    print(f"\nLoad {os.getloadavg()[0]:.1f} at the end, of {os.cpu_count()} cores.")
