"""Follow a table of a database through its inserts, updates and deletes.

    python examples/change_log.py

The log is Debezium's: each event has the row before and after. The model is at every moment that of the rows that are
in the table; an update of a row is a deletion and an insertion in one step.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raydt import jobs


def events(n: int) -> list[dict[str, Any]]:
    """Orders that are placed, changed and removed; large ones to far places come late."""
    rng = random.Random(7)
    rows: dict[int, dict[str, Any]] = {}
    found = []
    for moment in range(n):
        op = rng.choice("cccud") if rows else "c"
        key = len(found) if op == "c" else rng.choice(list(rows))
        before = None if op == "c" else rows.pop(key)
        after = None
        if op != "d":
            items, distance = rng.randint(1, 20), rng.uniform(0, 1000)
            late = "late" if items * distance > 5000 else "in time"
            after = rows[key] = {"id": key, "items": items, "distance": distance, "arrives": late}
        found.append({"op": op, "before": before, "after": after, "ts_ms": 1000 * moment})
    return found


def main() -> None:
    """Write a log and run it."""
    with tempfile.TemporaryDirectory() as folder:
        log = events(4_000)
        pq.write_table(pa.Table.from_pylist(log), f"{folder}/orders.parquet")
        config = {
            "source": {
                "kind": "parquet",
                "path": f"{folder}/orders.parquet",
                "envelope": "debezium",
                "id": "id",
                "label": "arrives",
                "ts": "ts_ms",
            },
            "stream": {"model": "changelog"},
            "learner": {"kind": "fudyadt", "max_depth": 8},
        }
        run = jobs.replay(config, Path(folder) / "run")
        summary = run.summary
        words = {"c": "inserts", "u": "updates", "d": "deletes"}
        print(", ".join(f"{sum(event['op'] == op for event in log):,} {word}" for op, word in words.items()))
        print(f"{summary['active']:,} rows are in the table, and in the model")
        print(f"accuracy {summary['metrics']['accuracy']:.3f}, majority {summary['baselines']['majority']:.3f}")


if __name__ == "__main__":
    main()
