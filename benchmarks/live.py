"""Costs of following a live table: processor time of a topic or a table applied to one tree, of an idle run, chapters.

    python benchmarks/live.py [--rows 200000] [--idle 20] [--only chapters]

Figures are of processor time of the process that follows, with a FuDyADT tree of 10 numbers. The topic lies at the
broker that the Kafka library brings with it, in another process, which keeps about 70,000 of these events.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import arguments

from pipelines.following import follow
from pipelines.running.replay import replay

NAMES = [f"x{j}" for j in range(10)]


def rows(n: int, first: int = 0) -> pa.Table:
    X = np.random.default_rng(first).random((n, 10)).round(6)
    y = (X[:, 0] + X[:, 1] > 1).astype(np.int64)
    return pa.table({"id": np.arange(first, first + n), **dict(zip(NAMES, X.T, strict=True)), "y": y})


def job(source: dict[str, Any], warmup: int) -> dict[str, Any]:
    return {
        "source": {"id": "id", "label": "y", **source},
        "stream": {"warmup": warmup},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "threads": 1},
        "checkpoint": {"every_seconds": None},
        "output": {"report": False},
    }


def timed(name: str, config: dict[str, Any], out: Path) -> None:
    """Replay what is there, and print rows a second of processor time."""
    began = time.process_time()
    result = replay(config, out)
    seconds = time.process_time() - began
    n = result.summary["updates"]
    print(f"{name:28} {n:>9,} updates {seconds:7.2f} s processor {n / seconds:>10,.0f}/s")


def chapters(folder: Path, n: int, every: int) -> None:
    """A window of n / 10 rows that moves over n, in turns as one run and in chapters, reports and digests included."""
    from deltalake import DeltaTable, write_deltalake

    path, step = str(folder / "moving"), n // 10
    write_deltalake(path, rows(step), configuration={"delta.enableChangeDataFeed": "true"})
    for first in range(step, n, step // 5):
        write_deltalake(path, rows(step // 5, first), mode="append")
        DeltaTable(path).delete(f"id < {first + step // 5 - step}")
    config = job({"kind": "delta", "path": path, "version": 0}, step)
    config |= {"checkpoint": {"every_seconds": 60}, "output": {"report": True}}
    found: dict[str, list[tuple[float, float]]] = {}
    kept = {"chapter_updates": every, "keep": 5}
    for turn in range(3):
        for name, follow_section in (("one run", {}), ("chapters", kept)):
            out = folder / f"{name} {turn}"
            began = time.process_time(), time.perf_counter()
            result = replay({**config, "follow": follow_section}, out)
            spent = time.process_time() - began[0], time.perf_counter() - began[1]
            found.setdefault(name, []).extend([spent] if turn else [])  # the first turn compiles
    updates, closed = result.summary["updates"], result.summary["updates"] // every
    files = sum(file.is_file() for file in out.rglob("*"))
    for clock, kind in enumerate(("processor", "elapsed")):
        one, many = (min(spent[clock] for spent in found[name]) for name in ("one run", "chapters"))
        print(
            f"{kind:10} one run {one:.2f} s, {closed} closed chapters {many:.2f} s: {many / one - 1:+.1%}, "
            f"{1000 * (many - one) / closed:.0f} ms for each of {every:,} updates"
        )
    kept_chapters = len(list(out.glob("chapters/*")))
    print(f"{updates:,} updates, {step:,} live, {files} files in the folder of {kept_chapters} chapters")


def delta(folder: Path, n: int) -> dict[str, Any]:
    """A table of n rows, of which a tenth is then updated, and a tenth deleted."""
    from deltalake import DeltaTable, write_deltalake

    path = str(folder / "table")
    write_deltalake(path, rows(n), configuration={"delta.enableChangeDataFeed": "true"})
    write_deltalake(path, rows(n, n), mode="append")
    DeltaTable(path).update(predicate="id % 10 = 1", updates={"x0": "1 - x0"})
    DeltaTable(path).delete("id % 10 = 2")
    return {"kind": "delta", "path": path, "version": 0}


def broker(pipe: Any, n: int) -> None:
    """Serve a topic of n events in Debezium's envelope, in a process of its own."""
    from confluent_kafka import Producer

    settings = {"test.mock.num.brokers": 1, "log_level": 0, "queue.buffering.max.messages": 10 * n}
    producer = Producer({**settings, "compression.type": "lz4"})  # the broker keeps 5 MB of a partition
    servers = ",".join(f"{one.host}:{one.port}" for one in producer.list_topics(timeout=5).brokers.values())
    for at, row in enumerate(rows(n).to_pylist()):
        producer.produce("events", json.dumps({"before": None, "after": row, "op": "c"}).encode(), partition=at % 4)
        if not at % 10_000:
            producer.poll(0)
    producer.flush(60)
    pipe.send(servers)
    pipe.recv()


def kafka(n: int) -> tuple[dict[str, Any], Any, Any]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=broker, args=(there, n))
    process.start()
    path = f"kafka://{here.recv()}/events"
    return {"kind": "kafka", "path": path, "features": NAMES, "envelope": "debezium"}, here, process


def idle(name: str, run: Path, seconds: float) -> None:
    """Go on with a run whose source does not change any more; its second half counts."""
    begins: list[float] = []
    timer = threading.Timer(seconds / 2, lambda: begins.append(time.process_time()))
    timer.start()
    follow(run, until_idle=seconds)
    print(f"{name:28} {100 * (time.process_time() - begins[0]) / (seconds / 2):.2f} % of a core")


def main() -> None:
    given = arguments(__doc__, rows=200_000, idle=20.0, every=100_000, only={"choices": ["chapters"]})
    if given.only == "chapters":
        with tempfile.TemporaryDirectory() as name:
            chapters(Path(name), given.rows, given.every)
        return
    with tempfile.TemporaryDirectory() as name:
        folder, n = Path(name), given.rows
        replay(job(delta(folder / "small", 1000), 1000), folder / "compile")
        table = delta(folder, n)
        timed("delta", job(table, n), folder / "delta")
        topic, pipe, process = kafka(n)
        timed("kafka, Debezium", job(topic, 10_000), folder / "kafka")
        chapters(folder, n, given.every)
        idle("idle, delta", folder / "delta", given.idle)
        idle("idle, kafka", folder / "kafka", given.idle)
        pipe.send("end")
        process.join()


if __name__ == "__main__":
    main()
