"""Cost of chapters: a live table followed in chapters beside one run, in turns, reports and digests included.

    python benchmarks/live.py [--only chapters] [--rows 200000] [--every 100000]

A window of a tenth of the rows moves over a Delta table of 10 numbers; one FuDyADT tree in this process. Processor and
elapsed time, the smaller of two turns after one that compiles.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import arguments, print_machine, show

from pipelines.running.replay import replay

NAMES = [f"x{j}" for j in range(10)]


def rows(n: int, first: int = 0) -> pa.Table:
    X = np.random.default_rng(first).random((n, 10)).round(6)
    y = (X[:, 0] + X[:, 1] > 1).astype(np.int64)
    return pa.table({"id": np.arange(first, first + n), **dict(zip(NAMES, X.T, strict=True)), "y": y})


def job(source: dict[str, Any], warmup: int) -> dict[str, Any]:
    return {
        "source": {"id": "id", "label": "y", **source}, "stream": {"warmup": warmup}, "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "threads": 1}, "checkpoint": {"every_seconds": 60},
        "output": {"report": True},
    }  # fmt: skip


def chapters(folder: Path, n: int, every: int) -> None:
    from deltalake import DeltaTable, write_deltalake

    path, step = str(folder / "moving"), n // 10
    write_deltalake(path, rows(step), configuration={"delta.enableChangeDataFeed": "true"})
    for first in range(step, n, step // 5):
        write_deltalake(path, rows(step // 5, first), mode="append")
        DeltaTable(path).delete(f"id < {first + step // 5 - step}")
    config = job({"kind": "delta", "path": path, "version": 0}, step)
    found: dict[str, list[tuple[float, float]]] = {"one run": [], "chapters": []}
    for turn in range(3):
        for name, taken in found.items():
            out = folder / f"{name} {turn}"
            began = time.process_time(), time.perf_counter()
            follow = {"chapter_updates": every, "keep": 5} if name == "chapters" else {}
            result = replay({**config, "follow": follow}, out)
            spent = time.process_time() - began[0], time.perf_counter() - began[1]
            taken.extend([spent] if turn else [])  # the first turn compiles
    updates = result.summary["updates"]
    closed, files = updates // every, sum(file.is_file() for file in out.rglob("*"))
    lines = []
    for clock, kind in enumerate(("processor", "elapsed")):
        one, many = (min(spent[clock] for spent in taken) for taken in found.values())
        each = f"{1000 * (many - one) / closed:.0f}"
        lines.append([kind, f"{one:.2f}", f"{many:.2f}", f"{closed}", f"{many / one - 1:+.1%}", each])
    note = f"{updates:,} updates, {step:,} live, {files} files of {len(list(out.glob('chapters/*')))} chapters kept."
    header = ["time", "one run s", "chapters s", "closed", "more", f"ms for each of {every:,} updates"]
    show("Chapters", header, lines, note)


if __name__ == "__main__":
    given = arguments(__doc__, rows=200_000, every=100_000, only={"choices": ["chapters"]})
    print_machine("deltalake")
    with tempfile.TemporaryDirectory() as name:
        chapters(Path(name), given.rows, given.every)
