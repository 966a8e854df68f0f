"""Where the time of a replay goes, stage by stage, and where the rebuild work is: CPU time, one process.

A replay is timed four times, each time with one stage more: the source read, the stream made of it, the updates
applied, everything recorded (metrics, events, predictions). The stages inside a BUILD are timed on the rows of the
stream: the presort alone, then the whole BUILD at each depth limit.
Run: python benchmarks/profile_replay.py [--data FOLDER]
"""

import collections
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import DATA, arguments, cpu_seconds, electricity, parquet, print_machine, show

import pipelines
from pipelines.config import load_config
from pipelines.saved_runs import open_stream
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.fudyadt.build import Listing, build, new_scratch, sort_columns
from raydt.learners.fudyadt.histograms import fill_codes
from raydt.sessions.session import InProcessSession
from raydt.trees.counted_tree import TreeRules, new_tree
from raydt.trees.records import MEMBER

WAYS: dict[str, tuple[dict[str, Any], float]] = {
    "insert-only, epsilon 0.15": ({"model": "incremental"}, 0.15),
    "window 1,000, epsilon 0.1": ({"model": "sliding_window", "window": 1000, "warmup": 1000}, 0.1),
}


def stages(name: str, folder: Path, stream: dict[str, Any], epsilon: float) -> None:
    learner = {"kind": "fudyadt", "epsilon": epsilon, "alpha": 0.0, "beta": 0.0, "max_depth": 10}
    sections = {"source": parquet("electricity", folder, label="y", positive="DOWN"), "stream": stream}
    sections |= {"learner": learner, "cluster": {"backend": "in_process", "shards": 1}}
    config = load_config(sections | {"output": {"report": False, "predictions": True}})
    rows: collections.Counter[int] = collections.Counter()

    def read() -> None:
        for _ in open_stream(config)[0].rows():
            pass

    def made() -> None:
        for _ in open_stream(config)[1].batches(1000):
            pass

    def applied() -> int:
        source, updates = open_stream(config)
        session = InProcessSession(learners()["fudyadt"], config.learner, source.features, 1, WorkPlan(2**50))
        rows.clear()
        done = 0
        for batch in updates.batches(1000):
            log = session.apply(batch).log
            done = batch.stop
            for size in log["rows"][log["place"] > 0].tolist():
                rows[size.bit_length()] += size
        return done

    def recorded() -> None:
        with tempfile.TemporaryDirectory() as folder:
            pipelines.replay(config, out=Path(folder) / "run")

    n = applied()
    steps = {"read and encode the source": read, "make updates of the rows": made, "apply them": applied}
    steps |= {"record, open, save": recorded}
    times = [cpu_seconds(stage, 3) / n * 1e6 for stage in steps.values()]
    lines = [[stage, f"{b - a:.2f}"] for stage, a, b in zip(steps, [0.0, *times], times, strict=False)]
    total = sum(rows.values())
    sizes = ", ".join(f"below {2**bits:,}: {share / total:.0%}" for bits, share in sorted(rows.items()))
    note = f"Rows rebuilt per update: {total / n:.1f}; share by size of the rebuild: {sizes}."
    show(f"{name}: {n:,} updates", ["stage", "us per update"], lines, note)


def inside_a_build(folder: Path) -> None:
    X, y = electricity(folder)
    d, limits, lines = X.shape[1], (1, 2, 4, 6, 8, 10), list[list[str]]()
    for n in (128, 1024, 8192, 32768):
        slots = np.arange(n, dtype=np.int32) + 5000
        labels = y[slots]
        scratch = new_scratch(n, d, 2)
        members = np.zeros(len(X), dtype=MEMBER)

        def grown(h: int) -> float:
            tree = new_tree(2 * n + 2, 2)  # noqa: B023 (called at once)
            tree.counts[0] = np.bincount(labels, minlength=2)  # noqa: B023
            began = time.process_time()
            rules = TreeRules(0.15, 0.0, 2, h)
            listing = Listing(X, np.zeros(d, bool), slots, slots, labels)  # noqa: B023
            build(tree, members, 0, listing, rules, 1, scratch)  # noqa: B023
            return time.process_time() - began

        def sort() -> float:
            began = time.process_time()
            fill_codes(X, slots, 0, n, scratch.E)  # noqa: B023
            sort_columns(Listing(X, np.zeros(d, bool), slots, slots, labels), scratch, 1, 0, d)  # noqa: B023
            return time.process_time() - began

        repeats = max(5, 400_000 // n)
        sort(), grown(1)
        figures = [np.median([sort() for _ in range(repeats)])]
        figures += [np.median([grown(h) for _ in range(repeats)]) for h in limits]
        lines.append([f"{n:,}", *(f"{figure / n / d * 1e9:.1f}" for figure in figures)])
    header = ["n", "presort alone", *(f"h = {h}" for h in limits)]
    show(f"One BUILD of n consecutive rows, ns per cell (row x feature), {d} features", header, lines)


if __name__ == "__main__":
    given = arguments(__doc__, data=DATA)
    print_machine()
    for name, (stream, epsilon) in WAYS.items():
        stages(name, given.data, stream, epsilon)
    inside_a_build(given.data)
