"""An hour of following: memory, open files, files of the run folder and lag of ``raydt follow`` on a topic.

    python benchmarks/following.py [--minutes 60] [--rate 5000] [--live 50000] [--chapter 1000000]

A producer sends events in Debezium's envelope at an even rate to the broker that the Kafka library brings with it: half
insert a row of 10 numbers, half delete the oldest, so that the model holds ``--live`` rows. A FuDyADT tree follows in a
process of its own, in chapters of which five are kept. Every half second the lag is read that ``status.json`` tells,
and in each twentieth of the time the rest. The last lines show processor time, beside that of a client which only
decodes the same messages.
"""

import json
import multiprocessing
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from harness import arguments, print_machine
from live import NAMES, job

from pipelines.operation import dump_yaml

TICK = 0.05


def produce(pipe: Any, rate: int, live: int) -> None:
    """Send events until a message comes through the pipe; returns through it how many."""
    from confluent_kafka import Producer

    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0, "queue.buffering.max.messages": 10 * live})
    pipe.send(",".join(f"{one.host}:{one.port}" for one in producer.list_topics(timeout=5).brokers.values()))
    draw, sent, began = np.random.default_rng(0), 0, time.perf_counter()
    first = True
    while not pipe.poll():
        due = live if first else live + int((time.perf_counter() - began) * rate / 2)
        if first:
            began = time.perf_counter()
        first = False
        X = draw.random((due - sent, len(NAMES))).round(6)
        for number, row in zip(range(sent, due), X.tolist(), strict=True):
            fields = dict(zip(NAMES, row, strict=True))
            new = {"id": number, **fields, "y": int(row[0] + row[1] > 1)}
            events = [{"before": None, "after": new, "op": "c"}]
            if number >= live:
                events.append({"before": {"id": number - live}, "after": None, "op": "d"})
            for event in events:
                producer.produce("events", json.dumps(event).encode(), partition=number % live % 3)
        sent = due
        producer.poll(0)
        time.sleep(TICK)
    producer.flush(60)
    pipe.send(2 * sent - live)


def cost_of_client(servers: str, seconds: float) -> tuple[int, float]:
    """Messages that a client without raydt decodes in some seconds, and its processor seconds."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "peer", "auto.offset.reset": "latest"})
    consumer.subscribe(["events"])
    until, taken, began = time.perf_counter() + seconds, 0, time.process_time()
    while time.perf_counter() < until:
        for event in consumer.consume(4096, 0.1):
            if event.error() is None:
                json.loads(event.value())
                taken += 1
    consumer.close()
    return taken, time.process_time() - began


def told(run: Path) -> dict[str, Any]:
    """Return the content of the newest ``status.json``; an empty one before there is a file."""
    found = [*run.glob("status.json"), *run.glob("chapters/*/status.json")]
    try:
        newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
        return {} if newest is None else dict(json.loads(newest.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


if __name__ == "__main__":
    given = arguments(__doc__, minutes=60.0, rate=5000, live=50_000, chapter=1_000_000)
    print_machine("confluent_kafka")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        here, there = multiprocessing.Pipe()
        producer = multiprocessing.get_context("spawn").Process(target=produce, args=(there, given.rate, given.live))
        producer.start()
        servers = here.recv()
        source = {"kind": "kafka", "path": f"kafka://{servers}/events", "features": NAMES, "envelope": "debezium"}
        config = job(source, 1000) | {"follow": {"chapter_updates": given.chapter, "keep": 5}}
        config |= {"checkpoint": {"every_seconds": 30}, "output": {"report": False}}
        (folder / "job.yaml").write_text(dump_yaml(config), encoding="utf-8")
        command = "-m", "pipelines.cli", "follow", str(folder / "job.yaml"), "--out", str(folder / "run")
        with (folder / "output").open("w", encoding="utf-8") as output:
            follower = psutil.Popen([sys.executable, *command], stdout=output, stderr=output)
        began, lags, steady = time.perf_counter(), list[float](), list[float]()
        names = ["minute", "updates", "resident MB", "open files", "files of the run", "closed chapters kept"]
        print("|", " | ".join([*names, "lag p50, p99, most s"]), "|\n" + "|---:" * 7 + "|", flush=True)
        for part in range(1, 21):
            until = began + given.minutes * 60 * part / 20
            while time.perf_counter() < until and follower.is_running() and follower.status() != psutil.STATUS_ZOMBIE:
                lags += [float(status["seconds"])] if (status := told(folder / "run")) else []
                time.sleep(0.5)
            if follower.poll() is not None:
                sys.exit((folder / "output").read_text(encoding="utf-8")[-3000:])
            files = sum(file.is_file() for file in (folder / "run").rglob("*"))
            closed = len([*(folder / "run" / "chapters").glob("*")]) - 1
            p50, p99, most = np.quantile(lags or [np.nan], [0.5, 0.99, 1.0])
            minute, updates = (time.perf_counter() - began) / 60, told(folder / "run").get("updates", 0)
            memory = f"{follower.memory_info().rss / 1e6:.0f} | {follower.num_fds()} | {files} | {closed}"
            print(f"| {minute:.0f} | {updates:,} | {memory} | {p50:.2f}, {p99:.2f}, {most:.2f} |", flush=True)
            steady += lags if part > 4 else []  # what came before is not steady
            lags = []
        spent = sum(follower.cpu_times()[:2])
        taken, alone = cost_of_client(servers, 20.0)
        here.send("end")
        sent = here.recv()
        follower.send_signal(signal.SIGTERM)
        ended = time.perf_counter()
        follower.wait(60)
        print(f"SIGTERM ended it after {time.perf_counter() - ended:.1f} s; {sent:,} messages sent in all")
        p50, p99, most = np.quantile(steady, [0.5, 0.99, 1.0])
        print(f"lag after the first fifth of the time: p50 {p50:.2f}, p99 {p99:.2f}, most {most:.2f} s")
        ours = 1e6 * spent / max(1, updates)
        theirs = 1e6 * alone / max(1, taken)
        print(f"processor us a message: {ours:.1f}; of a client that only decodes them: {theirs:.1f}")
        print((folder / "output").read_text(encoding="utf-8")[-600:])
        producer.join()
