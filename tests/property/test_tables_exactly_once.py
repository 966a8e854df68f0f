"""However often a run is cut, its tables hold each update once and without a gap: those of a run that was not.

The learner is the real one, in process; what is lost, or dies with the whole run, is a process that this very thread
pretends to be. Checkpoints are taken at drawn distances, some are damaged before they are needed, and rows are read
ahead as on Ray.
"""

from __future__ import annotations

import tempfile
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

import pipelines
import pipelines.running.loop as run
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.intake import Intake
from raydt.errors import ProcessLostError
from raydt.exchange.messages import injected
from raydt.folders.arrays import MANIFEST
from raydt.folders.folder import Folder
from raydt.streams.base import Stream
from tests.volume import examples

N = 160
TABLES = ("metrics", "events", "predictions", "quarantine")
COSTS = {"seconds", "rounds", "bytes_exchanged", "place"}
STREAMS: dict[str, dict[str, Any]] = {
    "changelog": {"model": "changelog"},
    "sliding_window": {"model": "sliding_window", "window": 40, "warmup": 10},
    "random_updates": {"model": "random_updates", "insert_probability": 0.6},
}


#: Where the driver may die in the end, when the stream has been applied: in this thread, not in the one that writes.
ENDS = ("run.before_compaction", "checkpoint.before_manifest", "checkpoint.after_manifest", "run.before_summary")


class Died(BaseException):
    """The driver is gone."""


@dataclass(frozen=True)
class Cut:
    """One incarnation is lost after so many batches, once the newest ``damaged`` checkpoints are.

    With ``driver`` it is the driver that dies, and the run is resumed. ``every_updates`` is where the next incarnation
    takes checkpoints.
    """

    batches: int
    damaged: int
    every_updates: int
    driver: bool


@dataclass(frozen=True)
class Case:
    stream: str
    batch_size: int
    ahead: int
    every_updates: int
    keep: int
    cuts: tuple[Cut, ...]
    end: str | None = None


distances = st.integers(3, 60)
cases = st.builds(
    Case,
    stream=st.sampled_from(sorted(STREAMS)),
    batch_size=st.integers(1, 30),
    ahead=st.sampled_from([0, 3]),
    every_updates=distances,
    keep=st.integers(1, 3),
    cuts=st.lists(
        st.builds(Cut, st.integers(1, 40), st.integers(0, 3), distances, st.booleans()), min_size=1, max_size=5
    ).map(tuple),
    end=st.sampled_from([None, *ENDS]),
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of which some are bad, and operations of which some must be refused."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 9, N) / 2.0, rng.integers(0, 5, N).astype(float)
    y = np.where((a > 2) ^ (b == 1) ^ (rng.random(N) < 0.1), "up", "down")
    a[[3, 50, 51, 90, N - 1]] = np.inf
    op = rng.choice(["insert", "insert", "insert", "delete", "update", "query"], N)
    op[:10] = "insert"
    table = {"key": [f"id {i}" for i in rng.integers(0, 60, N)], "op": op, "a": a, "b": b, "y": y}
    file = tmp_path_factory.mktemp("source") / "rows.parquet"
    pq.write_table(pa.table(table), file)
    return file


def config_of(source: Path, case: Case) -> dict[str, Any]:
    columns = {"id": "key", "op": "op"} if case.stream == "changelog" else {"features": ["a", "b"]}
    return {
        "source": {"kind": "parquet", "path": str(source), "label": "y", **columns},
        "stream": {**STREAMS[case.stream], "on_error": "skip"},
        "learner": {"kind": "fudyadt", "max_depth": 4, "epsilon": 0.1, "alpha": 0.0, "beta": 0.0},
        "cluster": {"backend": "in_process", "batch_size": case.batch_size},
        "checkpoint": {"every_seconds": None, "every_updates": case.every_updates, "keep": case.keep},
        "output": {"report": False, "predictions": True, "metrics_every": 25},
    }


def tables(folder: Path) -> dict[str, list[str]]:
    """All rows in order; those passed over, whose order follows the batches, sorted. NaN is equal to itself here."""
    read = {}
    for name in TABLES:
        rows = ds.dataset(folder / name).to_table().to_pylist() if (folder / name).exists() else []
        read[name] = [repr({key: value for key, value in row.items() if key not in COSTS}) for row in rows]
    read["quarantine"].sort()
    return read


def damage(folder: Path, count: int) -> None:
    numbers = sorted(int(entry.name) for entry in (folder / "checkpoints").iterdir() if entry.name.isdecimal())
    for number in numbers[1:][-count:] if count else []:  # the oldest stays: with none that is sound a run stops
        manifest = folder / "checkpoints" / str(number) / MANIFEST
        if manifest.exists():
            manifest.write_bytes(manifest.read_bytes()[:-1])


class Undisturbed(dict[str, Any]):
    """Long, and no help in a message."""

    def __repr__(self) -> str:
        return "undisturbed"


class Cutter:
    """Loses a process when enough batches of an incarnation have been recorded, and the driver in the end."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.cuts, self.end, self.batches = folder, list(case.cuts), case.end, 0

    def __call__(self, point: str) -> None:
        if point == self.end and threading.current_thread() is threading.main_thread():
            self.end = None
            raise Died
        if point != "driver.recorded" or not self.cuts:
            return
        self.batches += 1
        if self.batches >= self.cuts[0].batches:
            self.batches, cut = 0, self.cuts.pop(0)
            if (self.folder / "checkpoints").exists():
                damage(self.folder, cut.damaged)
            if cut.driver:
                raise Died
            raise ProcessLostError("the coordinator (pid 1 on here) died")


def replay(source: Path, case: Case, folder: Path) -> pipelines.RunResult:
    distances = iter([case.every_updates, *(cut.every_updates for cut in case.cuts), 10])

    class Uneven(Checkpointer):
        """Each incarnation takes its checkpoints elsewhere, as it does where they are taken by time; none is late."""

        def begin(self, updates: int, last: int | None) -> None:
            super().begin(updates, last)
            self._options = self._options.model_copy(update={"every_updates": next(distances)})

        def write(self, *checkpoint: Any) -> None:
            super().write(*checkpoint)
            self.settle()

    def intake(stream: Stream, size: int, every: int, _: int, barrier: Any, **others: Any) -> Intake:
        return Intake(stream, size, every, case.ahead, barrier, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "Checkpointer", Uneven)
        patch.setattr(run, "Intake", intake)
        patch.setattr(Folder, "_flush", lambda folder, path: None)  # no power fails here, and a disk is slow
        with injected(Cutter(folder, case)):
            act = partial(pipelines.replay, config_of(source, case), folder)
            while True:
                try:
                    return act()
                except Died:
                    act = partial(pipelines.resume, folder)


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Digest, summary metrics and tables of each stream, without checkpoints, in batches that fit no other."""
    whole = Undisturbed()
    for stream in STREAMS:
        folder = tmp_path_factory.mktemp(stream)
        ended = replay(source, Case(stream, 23, 0, 10_000, 1, ()), folder)
        whole[stream] = (ended.digest, ended.metrics, tables(folder))
    return whole


# Not shrunk: that takes longer than it helps, as a case is a few numbers.
@examples(15, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(case=cases)
def test_every_table_is_that_of_an_undisturbed_run(source: Path, undisturbed: dict[str, Any], case: Case) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ended = replay(source, case, folder)
        digest, metrics, expected = undisturbed[case.stream]
        found = tables(folder)
        for name in TABLES:
            assert found[name] == expected[name], name
        assert (ended.digest, ended.metrics) == (digest, metrics)
        parts = [len(list((folder / name).iterdir())) for name in TABLES if (folder / name).exists()]
        assert set(parts) == {1}  # compacted, and nothing hidden is left


def test_the_runs_compared_have_something_in_every_table(undisturbed: dict[str, Any]) -> None:
    _, _, found = undisturbed["changelog"]
    assert all(len(found[name]) > 5 for name in TABLES)
    reasons = " ".join(found["quarantine"])
    assert "'seq': -1" in reasons  # never became an update
    assert "no live example" in reasons  # refused
