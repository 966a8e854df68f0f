"""Memory and seconds of driver, coordinator and shards of a job on Ray, step by step.

The steps: the first model, from a Parquet file that the shards read; a digest; a checkpoint; deletions in place; digest
and checkpoint after them; the model; and reading the checkpoint back into new processes. For each step and process the
largest resident size within the step is printed (VmHWM, reset before each), with what is shared through Ray's object
store, and of that the private part at the end (RssAnon). Linux only. Sparse learners read a LIBSVM file of 20 ones a
row. With --sent the driver reads all rows and sends them, as it does where shards cannot read.
Run: python benchmarks/memory_by_process.py [--learner gbdt] [--rows N] [--features D] [--iterations T] [--actors S]
    [--sent]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from first_model import OPTIONS, write
from harness import machine, resident_mib
from works import ALL_TO_SHARDS, WIDTH, Work

from actors.cluster import Cluster, bundles, connect
from actors.session import RaySession
from pipelines.running.intake import Intake
from pipelines.validation import WARMUP_ROWS
from raydt.examples.updates import DELETE, UpdateBatch
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.sessions.saved_model import model_meta, understood
from raydt.sources.divided import Opening, open_source
from raydt.sources.options import LibsvmFiles, ParquetFiles
from raydt.streams.options import make_stream
from raydt.streams.windows import Incremental

MIB = 2**20
SPARSE: dict[str, dict[str, Any]] = {"sparse_tree": {"max_depth": 10}, "best_split": {"finder": "updgini"}}


def write_libsvm(path: str, rows: int) -> None:
    """A file of the sparse rows of a piece of work."""
    with open(path, "w", encoding="ascii") as file:
        for _, _, sparse, y in Work("sparse_tree", rows, 0).parts(100_000):
            assert sparse is not None
            for label, row in zip(y.tolist(), np.split(sparse.indices, sparse.indptr[1:-1]), strict=True):
                file.write(f"{label} {' '.join(f'{one}:1' for one in row.tolist())}\n")


class Table:
    """Peaks of the processes of one session, a row for each step."""

    def __init__(self) -> None:
        self._rows: list[str] = []

    @contextmanager
    def step(self, name: str, session: RaySession) -> Iterator[None]:
        """Measure what the processes need within."""
        pids = [os.getpid(), *(peer.pid for peer in session._peers if peer.pid)]
        for pid in pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        cells = [f"{resident_mib(pid, 'VmHWM'):.0f} ({resident_mib(pid, 'RssAnon'):.0f})" for pid in pids]
        self._rows.append(f"| {name} | {seconds:.2f} | {' | '.join(cells)} |")
        print(self._rows[-1], flush=True)

    def show(self, shards: int) -> None:
        """Print all rows."""
        names = ["step", "seconds", "driver", "coordinator", *(f"shard {i}" for i in range(shards))]
        print(f"\n| {' | '.join(names)} |\n|---|{'---:|' * (len(names) - 1)}")
        print("\n".join(self._rows))


def deletions(start: int, ids: np.ndarray, d: int) -> UpdateBatch:
    """A batch that deletes some rows."""
    none = np.empty(0, dtype=np.int32)
    op = np.full(len(ids), DELETE, dtype=np.int8)
    return UpdateBatch(start, op, ids, np.empty((0, d)), none, 2, np.full(len(ids), -1))


def main() -> None:
    """Measure, and print a table in MiB: largest resident size (private at the end)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learner", default="gbdt", choices=[*OPTIONS, *SPARSE])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--sent", action="store_true")
    given = parser.parse_args()
    print(machine("ray", "pyarrow"), f"load {os.getloadavg()[0]:.1f}")
    learner = learners()[given.learner]
    chosen = {"kind": given.learner, **(OPTIONS | SPARSE)[given.learner]}
    if given.learner == "gbdt":
        chosen |= {"max_iter": given.iterations, "retrain": "never", "update_every": 10_000}
    options = learner.Options.model_validate(chosen)
    cluster, table = connect("local", bundles(given.actors)), Table()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").exists() else None) as folder:
        file: Any = ParquetFiles(path=f"{folder}/rows.parquet")
        if given.learner in SPARSE:
            file = LibsvmFiles(path=f"{folder}/rows.libsvm", n_features=WIDTH)
            write_libsvm(file.path, given.rows)
        else:
            write(file.path, given.rows, given.features)
        case = Case(cluster, learner, options, file, given.rows, given.actors, given.sent)
        _measure(case, table, Folder(f"{folder}/run"))
    cluster.close()
    print(f"\n{given.learner}, {given.rows:,} x {given.features}; MiB: peak (private at the end)")
    table.show(given.actors)


class Case:
    """What is run."""

    def __init__(
        self, cluster: Cluster, learner: Any, options: Any, file: Any, rows: int, actors: int, sent: bool
    ) -> None:
        self.learner, self.options, self.rows, self.sent = learner, options, rows, sent
        self.reading, self.file = learner.traits(options).reading, file
        self.features = open_source(self.file, reading=self.reading).features
        self.open: Callable[[], RaySession] = lambda: RaySession(
            cluster, learner, options, self.features, shards=actors, plan=ALL_TO_SHARDS, patience=3000.0
        )


def _measure(case: Case, table: Table, folder: Folder) -> None:
    session, store = case.open(), CheckpointStore(folder, 2)
    source: Any = open_source(case.file, reading=case.reading)
    meta = model_meta(case.options, case.features, [0, 1], {}) | {"next_id": case.rows, "numbered": []}

    def checkpoint(updates: int) -> None:
        content = {"offset": updates, "config_hash": None, "source_fingerprint": None}
        store.write(CheckpointContent(updates, meta | content, session.snapshot(store.segments), {}))

    with table.step("first model", session):
        stream = make_stream(Incremental(warmup=case.rows), source)
        opening = Opening(case.file, ".", case.reading, source.places, source.identity().fingerprint)
        if not case.sent:
            divided = session.divide(source, opening, case.rows)
            assert not isinstance(divided, str), divided
            stream.begin_with(divided.rows())
        intake = Intake(stream, 4096, 4096, 3, large=0 if case.sent else WARMUP_ROWS, warmup=case.rows)
        done = sum(result.applied for _, result in session.process(intake))
        assert intake.error is None, intake.error
        assert done == case.rows, done
    with table.step("digest", session):
        session.digest()
    with table.step("checkpoint", session):
        checkpoint(case.rows)
    with table.step("deletions", session):
        gone = np.arange(0, case.rows, max(1, case.rows // 10_000), dtype=np.int64)[:10_000]
        batch = deletions(case.rows, gone, len(case.features.names))
        assert all(result.applied == len(batch) for _, result in session.process([batch]))
    with table.step("digest again", session):
        digest = session.digest()
    with table.step("checkpoint again", session):
        checkpoint(case.rows + len(batch))
    with table.step("model", session):
        session.model()
    session.close()
    session = case.open()
    with table.step("restore", session):
        place = folder.inside(str(case.rows + len(batch)))
        found = read_checkpoint(place, apart=True)
        saved = understood(found.meta, found.components, folder.location)
        session.restore(saved.arrays, saved.groups, saved.buckets, place)
    del found, saved
    with table.step("finish", session):
        session.finish()
    with table.step("its digest", session):
        assert session.digest() == digest
    session.close()


if __name__ == "__main__":
    main()
