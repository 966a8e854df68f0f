"""Text ids on Ray, in the driver or at the shards: bytes of a live id in the driver, and updates per second.

Rows of 10 numbers with ids such as user-000123456 come from a Parquet file that the shards read: three quarters are the
warm-up, the others are inserted. Each case is a process of its own: half of the rows and all of them, with the
dictionary in the driver and, from 131,072 ids on, divided, one after the other. Bytes of an id are the difference of
the peaks of private memory (RssAnon, looked at every 10 ms), updates per second those of a run, and us are of the
driver's processor time for each update. Digests of both sides are equal. Linux only.

Run: python benchmarks/text_ids.py [--rows 1000000] [--work gbdt] [--shards 2] [--repeats 3]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import arguments, print_machine, progress, show
from memory import Peaks

LEARNERS: dict[str, dict[str, Any]] = {
    "gbdt": {"kind": "gbdt", "max_iter": 10, "update_every": 10_000, "retrain": "never"},
    "fudyadt": {"kind": "fudyadt", "epsilon": 0.5, "max_depth": 8},
}
#: Where ids are; rows of a run that is not measured.
PLACES, WARM = ("driver", "shards"), 20_000


def write(path: str, rows: int) -> None:
    """A file of rows in which the first columns decide the label."""
    draw = np.random.default_rng(5)
    columns: dict[str, Any] = {f"x{j}": draw.random(rows) for j in range(10)}
    columns["y"] = (columns["x0"] + columns["x1"] > 1).astype(np.int64)
    columns["id"] = [f"user-{i:09d}" for i in draw.permutation(rows).tolist()]
    pq.write_table(pa.table(columns), path, row_group_size=1 << 16)


def one(path: str, rows: int, work: str, shards: int, place: str) -> dict[str, Any]:
    from pipelines import replay
    from raydt.streams.id_dictionary import TextIds

    TextIds.most_here = 1 << (62 if place == "driver" else 17)
    peaks, began = Peaks([os.getpid()]), time.process_time()
    peaks.start()
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "source": {"kind": "parquet", "path": path, "id": "id"},
            "stream": {"model": "incremental", "warmup": rows * 3 // 4}, "learner": LEARNERS[work],
            "cluster": {"backend": "ray", "shards": shards, "memory_limit": 0, "patience_seconds": 600},
            "checkpoint": {"every_seconds": None}, "output": {"report": False, "predictions": False},
        }  # fmt: skip
        run = replay(config, f"{folder}/run")
        seconds = json.loads(Path(f"{folder}/run/summary.json").read_text(encoding="utf-8"))["seconds"]
    peaks.end()
    used = 1e6 * (time.process_time() - began) / rows
    return {"digest": run.digest, "peak": peaks.private[0], "rate": rows / seconds, "us": used}


def main() -> None:
    asked = arguments(
        __doc__, rows=1_000_000, work={"choices": LEARNERS, "default": "gbdt"}, shards=2, repeats=3, case={"nargs": 3}
    )
    if asked.case is not None:
        path, rows, place = asked.case
        print(json.dumps(one(path, int(rows), asked.work, asked.shards, place)))
        return
    print_machine("ray", "pyarrow")
    sizes, found = (asked.rows // 2, asked.rows), dict[tuple[int, str], list[dict[str, Any]]]()
    with tempfile.TemporaryDirectory() as folder:
        for rows in (WARM, *sizes):
            write(f"{folder}/{rows}.parquet", rows)
        one(f"{folder}/{WARM}.parquet", WARM, asked.work, asked.shards, "shards")  # compiles what is missing
        for _ in range(asked.repeats):
            for rows in sizes:
                for place in PLACES:
                    command = [sys.executable, __file__, "--work", asked.work, "--shards", str(asked.shards)]
                    command += ["--case", f"{folder}/{rows}.parquet", str(rows), place]
                    out = subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout
                    case = json.loads(out.splitlines()[-1])
                    found.setdefault((rows, place), []).append(case)
                    progress(f"{rows:,} rows, ids in {place}: {case['peak'] / 1e6:.0f} MB")
    table = []
    for place in PLACES:
        half, whole = ([case["peak"] for case in found[rows, place]] for rows in sizes)
        an_id = (statistics.median(whole) - statistics.median(half)) / (sizes[1] - sizes[0])
        rate, used = (statistics.median(case[name] for case in found[sizes[1], place]) for name in ("rate", "us"))
        peak = f"{statistics.median(whole) / 1e6:,.0f}"
        table.append([place, peak, f"{an_id:.0f}", f"{rate:,.0f}", f"{used:.1f}"])
    for rows in sizes:
        assert len({case["digest"] for place in PLACES for case in found[rows, place]}) == 1, "digests differ"
    title = f"{asked.work}, {asked.rows:,} x 10, {asked.shards} shards, text ids in the driver or at the shards"
    show(title, ["ids in", "MB of the driver", "bytes of a row there", "updates/s", "us of the driver"], table)


if __name__ == "__main__":
    main()
