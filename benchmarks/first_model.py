"""From a Parquet file to the first model: one thread in process, all threads, and actors that read for themselves.

Wall seconds from opening the file to the result of the last row of the warm-up. Each side is in new processes, which
have been started and have loaded their kernels. Sides take turns, medians are printed, digests must be equal. With
--sent the driver also reads all columns and sends the rows to the same actors, as it does where shards cannot read.
Run: python benchmarks/first_model.py [--learner gbdt] [--rows N] [--features D] [--actors S] [--rounds R] [--sent]
"""

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from harness import arguments, print_machine, progress, show
from works import ALL_TO_SHARDS, GBDT, Work

from actors.cluster import bundles, connect
from actors.session import RaySession
from pipelines.running.intake import Intake
from pipelines.validation import WARMUP_ROWS
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED
from raydt.parallel import limited
from raydt.sessions.session import InProcessSession, Session
from raydt.sources.divided import Opening, open_source
from raydt.sources.options import ParquetFiles
from raydt.streams.windows import Incremental

OPTIONS: dict[str, dict[str, Any]] = {
    "fudyadt": {"epsilon": 0.5, "max_depth": 10},
    "gbdt": {**GBDT, "max_leaf_nodes": 20},
    "forest": {"n_estimators": 20},
}


def write(path: str, rows: int, d: int) -> None:
    with pq.ParquetWriter(path, pa.schema([*((f"x{j}", pa.float64()) for j in range(d)), ("y", pa.int64())])) as file:
        for _, X, _, y in Work("gbdt", rows, d).parts(100_000):
            file.write_table(pa.table([*X.T.copy(), y.astype(np.int64)], names=[*(f"x{j}" for j in range(d)), "y"]))


#: Wall seconds, digest, and processor seconds of the driver and of each actor.
Measured = tuple[float, str, list[float]]


def processor_seconds(pids: list[int]) -> list[float]:
    return [sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids]


class Job:
    def __init__(self, kind: str, path: str, rows: int) -> None:
        self.learner = learners()[kind]
        self.options = self.learner.Options.model_validate({"kind": kind, **OPTIONS[kind]})
        self.reading = self.learner.traits(self.options).reading
        self.file, self.rows = ParquetFiles(path=path), rows

    def first_model(self, open_session: Callable[[Any], Session], read_apart: bool) -> Measured:
        """Seconds to the first model, its digest, and processor seconds: driver, coordinator and shards."""
        session = open_session(open_source(self.file, reading=self.reading).features)
        pids = [os.getpid()]
        pids += [peer.pid for peer in session._peers if peer.pid] if isinstance(session, RaySession) else []
        try:
            busy, began = processor_seconds(pids), time.perf_counter()
            source: Any = open_source(self.file, reading=self.reading)
            stream = Incremental(warmup=self.rows).make(source)
            large = 0
            if read_apart and isinstance(session, RaySession):
                fingerprint = source.identity().fingerprint
                opening = Opening(self.file, ".", self.reading, source.places, fingerprint)
                divided = session.divide(source, opening, self.rows)
                assert not isinstance(divided, str)
                stream.begin_with(divided.rows())
                large = WARMUP_ROWS
            ahead = 3 if isinstance(session, RaySession) else 0
            intake = Intake(stream, 4096, 4096, ahead, large=large, warmup=self.rows)
            done = sum(result.applied for _, result in session.process(intake))
            assert intake.error is None, intake.error
            assert done == self.rows, done
            seconds = time.perf_counter() - began
            return seconds, session.digest(), [b - a for a, b in zip(busy, processor_seconds(pids), strict=True)]
        finally:
            session.close()


def in_new_process(kind: str, threads: int, job: Job) -> Measured:
    """Measure a job in a process of its own, as actors are: memory that is touched for the first time takes long."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_alone, kind, threads, job.file.path, job.rows).result()


def _alone(kind: str, threads: int, path: str, rows: int) -> Measured:
    small = str(Path(path).with_name("20000.parquet"))
    pa.set_cpu_count(threads or os.cpu_count() or 1)
    with limited(threads or None):
        for each, most in ((small, 20_000), (path, rows)):
            job = Job(kind, each, most)
            found = job.first_model(
                lambda features, job=job: InProcessSession(job.learner, job.options, features, 1, NOTHING_DIVIDED),
                False,
            )
    return found


if __name__ == "__main__":
    learner = {"default": "gbdt", "choices": OPTIONS}
    given = arguments(__doc__, learner=learner, rows=1_000_000, features=50, actors=2, rounds=3, sent=False)
    print_machine("ray", "pyarrow")
    cluster = connect("local", bundles(given.actors))

    def here(job: Job, threads: int) -> Callable[[], Measured]:
        return lambda: in_new_process(given.learner, threads, job)

    def there(job: Job, read_apart: bool) -> Callable[[], Measured]:
        return lambda: job.first_model(
            lambda f: RaySession(cluster, job.learner, job.options, f, shards=given.actors, plan=ALL_TO_SHARDS),
            read_apart,
        )

    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        times: dict[str, list[float]] = {}
        work: dict[str, list[float]] = {}  # processor seconds of the busiest process
        digests: set[str] = set()
        for rows, rounds in ((20_000, 1), (given.rows, given.rounds)):
            path = f"{folder}/{rows}.parquet"
            write(path, rows, given.features)
            job = Job(given.learner, path, rows)
            sides = {"one thread": here(job, 1), "all threads": here(job, 0)}
            sides[f"{given.actors} actors"] = there(job, True)
            if given.sent:
                sides[f"{given.actors} actors, rows sent"] = there(job, False)
            times, work, digests = {name: [] for name in sides}, {name: [] for name in sides}, set()
            for _ in range(rounds):
                for name, side in sides.items():
                    seconds, digest, busy = side()
                    times[name].append(seconds)
                    digests.add(digest)
                    told = " ".join(f"{one:.2f}" for one in busy)
                    progress(f"{rows:,} rows, {name}: {seconds:.2f} s, processor seconds {told}")
                    work[name].append(max(busy))

            assert len(digests) == 1, "the models differ"
    cluster.close()
    one = statistics.median(times["one thread"])
    lines = []
    for name, found in times.items():
        median, busiest = statistics.median(found), statistics.median(work[name])
        lines.append([name, f"{median:.2f}", f"{one / median:.2f}", f"{busiest:.2f}"])
    title = f"{given.learner}, {given.rows:,} x {given.features}, medians of {given.rounds}, digests equal"
    show(title, ["", "seconds", "times", "processor seconds of the busiest process"], lines)
