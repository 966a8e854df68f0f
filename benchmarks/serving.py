"""Served answers: throughput and p99 for one row and for 1,000, swaps under load, and the same model in FastAPI.

A GBDT of 100 trees over ten numbers, of a replay that leaves its checkpoints behind, is served by ``raydt serve`` and,
exported to a scikit-learn pipeline, by FastAPI on uvicorn (pydantic checks the rows, as its users write it). Both
servers run on one core, in turn, request by request; the client runs on the others. ``--swaps`` checkpoints then come
while requests go on: every answer is compared with the predictions of the digest that it names.

Run: python benchmarks/serving.py [--requests 3000] [--swaps 100] [--trees 100]     (pip install '.[bench]' fastapi
uvicorn; without FastAPI its rows are left out)
"""

import contextlib
import importlib.util
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from harness import ROOT, arguments, print_machine, show

import pipelines
from pipelines.prediction import export_model
from pipelines.serving.application import Application, SnapshotReader

ROWS, FEATURES, STATES = 20_000, 10, 8
WARM_UP_SECONDS = 3.0
NAMES = [f"x{j}" for j in range(FEATURES)]

#: The peer, as its users write it.
PEER = """
import sys
import numpy as np
import skops.io
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, create_model

path, port = sys.argv[1:]
model = skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
names = {names}
Row = create_model("Row", **{{name: (float, ...) for name in names}})

class Rows(BaseModel):
    rows: list[Row]

app = FastAPI()

def answered(rows):
    X = np.array([[getattr(row, name) for name in names] for row in rows])
    shares = model.predict_proba(X)
    return {{"predictions": model.classes_[shares.argmax(axis=1)].tolist(), "probabilities": shares.tolist()}}

@app.post("/predict")
async def predict(row: Row):
    return answered([row])

@app.post("/many")
async def many(rows: Rows):
    return answered(rows.rows)

print("listening", flush=True)
uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error", access_log=False)
"""


def run_of(folder: Path, trees: int) -> Path:
    draw = np.random.default_rng(7)
    X = draw.standard_normal((ROWS, FEATURES))
    y = np.where(X @ draw.standard_normal(FEATURES) + draw.standard_normal(ROWS) > 0, "yes", "no")
    pq.write_table(pa.table({**{name: X[:, j] for j, name in enumerate(NAMES)}, "y": y}), folder / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(folder / "rows.parquet"), "label": "y"},
        "stream": {"model": "incremental", "warmup": ROWS // 2},
        "learner": {"kind": "gbdt", "max_iter": trees},
        "cluster": {"backend": "in_process"},
        "checkpoint": {"every_updates": ROWS // 2 // STATES, "every_seconds": None, "keep": STATES + 2},
        "output": {"report": False},
    }
    return Path(pipelines.replay(config, folder / "run").path)


class Client:
    def __init__(self, port: int) -> None:
        for _ in range(300):
            with contextlib.suppress(OSError):
                self._socket = socket.create_connection(("127.0.0.1", port))
                break
            time.sleep(0.1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, path: str, body: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        self._socket.sendall(head.encode() + b"\r\n\r\n" + body)
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._socket.recv(1 << 16)
        top, _, rest = received.partition(b"\r\n\r\n")
        assert b" 200 " in top.split(b"\r\n")[0], received
        length = next(int(line.split(b":")[1]) for line in top.lower().split(b"\r\n") if b"content-length" in line)
        while len(rest) < length:
            rest += self._socket.recv(1 << 20)
        return rest

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def server(command: Sequence[str], port: int) -> Iterator[psutil.Process]:
    pinned = ["taskset", "-c", "0", *command] if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else command
    with subprocess.Popen(pinned, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            Client(port).close()
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


def measured(client: Client, process: psutil.Process, path: str, bodies: Sequence[bytes], n: int) -> list[str]:
    """Requests a second of processor time and of wall time, and percentiles of one connection."""
    began = time.perf_counter()
    for body in itertools.cycle(bodies):  # also what the server has begun beside itself is up then
        client.ask(path, body)
        if time.perf_counter() - began > WARM_UP_SECONDS:
            break
    used, began, times = sum(process.cpu_times()[:2]), time.perf_counter(), []
    for number in range(n):
        start = time.perf_counter()
        client.ask(path, bodies[number % len(bodies)])
        times.append(time.perf_counter() - start)
    wall, used = time.perf_counter() - began, sum(process.cpu_times()[:2]) - used
    return [f"{n / used:,.0f}", f"{n / wall:,.0f}", *(f"{np.percentile(times, q) * 1e6:,.0f}" for q in (50, 99))]


def under_swaps(run: Path, folder: Path, bodies: Sequence[bytes], port: int, swaps: int) -> str:
    """Have checkpoints come while one client asks; say how answers and latencies were."""
    states = sorted((run / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    known = {}
    for state in states:
        reader = SnapshotReader(state)
        reader.look()
        answers = [json.loads(Application(reader).respond("POST", "/predict", None, body).body) for body in bodies]
        known[answers[0]["digest"]] = [answer["probabilities"] for answer in answers]
    growing = folder / "growing"  # which has all files but the manifests: to come is to get one
    shutil.copytree(run, growing, ignore=lambda _, names: [n for n in names if n in ("model", "manifest.json")])

    def come(state: Path) -> None:
        target = growing / "checkpoints" / state.name
        (target / "manifest.new").write_bytes((state / "manifest.json").read_bytes())
        for other in (growing / "checkpoints").glob("[0-9]*/manifest.json"):
            other.unlink()
        (target / "manifest.new").rename(target / "manifest.json")

    come(states[0])
    command = [sys.executable, "-m", "pipelines.cli", "serve", str(growing), "--port", str(port), "--every", "0.1"]
    wrong, seen, digest, changes = 0, set[str](), "", 0
    times: tuple[list[float], list[float]] = ([], [])  # without and with swaps
    with server(command, port):
        client, place = Client(port), 0
        for swapping, took in enumerate(times):
            for number in range(1, swaps + 1):
                if swapping:
                    come(states[number % len(states)])
                until = time.perf_counter() + 0.25
                while time.perf_counter() < until:
                    place = (place + 1) % len(bodies)
                    start = time.perf_counter()
                    answer: dict[str, Any] = json.loads(client.ask("/predict", bodies[place]))
                    took.append(time.perf_counter() - start)
                    wrong += answer["probabilities"] != known[answer["digest"]][place]
                    changes += answer["digest"] != digest
                    digest = answer["digest"]
                    seen.add(digest)
        client.close()
    before, during = (np.percentile(took, 99) * 1e6 for took in times)
    return (
        f"{changes - 1} swaps of {len(seen)} models seen in {len(times[1]):,} answers, {wrong} wrong; "
        f"p99 {before:,.0f} us without swaps, {during:,.0f} us with them ({during / before:.2f} times)"
    )


def tables(asked: Any, folder: Path) -> None:
    draw = np.random.default_rng(11)
    rows = [dict(zip(NAMES, row, strict=True)) for row in draw.standard_normal((200, FEATURES)).tolist()]
    one = [json.dumps(row).encode() for row in rows]
    many = [json.dumps({"rows": rows * 5}).encode()]
    run, lines = run_of(folder, asked.trees), []
    ours = [sys.executable, "-m", "pipelines.cli", "serve", str(run), "--port", str(asked.port)]
    servers = {"raydt serve": (ours, "/predict")}
    if all(importlib.util.find_spec(name) for name in ("fastapi", "uvicorn", "skops")):
        export_model(str(run), "sklearn", str(folder / "model.skops"))
        (folder / "peer.py").write_text(PEER.format(names=NAMES), encoding="utf-8")
        peer = [sys.executable, str(folder / "peer.py"), str(folder / "model.skops"), str(asked.port + 1)]
        servers["FastAPI, scikit-learn pipeline"] = (peer, "/many")
    for number, (name, (command, path)) in enumerate(servers.items()):
        with server(command, asked.port + number) as process:
            client = Client(asked.port + number)
            lines.append([name, "1", *measured(client, process, "/predict", one, asked.requests)])
            lines.append([name, "1,000", *measured(client, process, path, many, max(20, asked.requests // 50))])
            client.close()
    head = ["Server", "Rows", "Requests per s of processor time", "per s of wall time", "Median, us", "p99, us"]
    note = under_swaps(run, folder, one[:50], asked.port + 2, asked.swaps) if asked.swaps else ""
    show("Requests", head, lines, note)


if __name__ == "__main__":
    given = arguments(__doc__, requests=3000, swaps=100, trees=100, port=18080)
    print_machine("scikit-learn", "fastapi")
    with tempfile.TemporaryDirectory() as place:
        tables(given, Path(place))
