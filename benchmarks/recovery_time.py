"""From kill -9 of a shard, and of the coordinator, to the first new result: 1,000,000 live rows, Ray, 2 shards.

One replay of a sliding window over a generated hyperplane with 10 features, with one checkpoint, taken when the window
is full. Then processes are killed in mid-stream, shards and coordinators in turn, while batches are under way. Each
line is one recovery, in seconds of wall time:

noticed     from the kill until the driver knows
closed      completing a checkpoint that is being written, ending the other actors
actors      starting three processes, which import and load compiled kernels, and opening the learner
read        the checkpoint, with the SHA-256 of every file
checked     what kernels rely on
tables      source, stream and tables put back
restored    rows and tree sent to the actors and put in place
first       the coordinator gathers its row cache, the first batch after the checkpoint, and its result
total       from the kill to that result: the goal is below 15 s
replayed    from there until the updates that were recorded before the kill are done again; so many updates. It takes
            as long as they took the first time, at most the time since the last checkpoint (60 s by default)
cpu         processor seconds of driver and new actors, from the kill to the first result

Run: python benchmarks/recovery_time.py [live rows] [kills of each]; kills at most 2, more spend the restart budget.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from measure import machine

import pipelines
import pipelines.running.checkpoint as restoring
import pipelines.running.loop as running
from actors.session import RaySession
from pipelines.running.records import Recorder

FEATURES = 10
PHASES = ("noticed", "closed", "actors", "read", "checked", "tables", "restored", "first")
ACTORS = ("FeatureShard", "Coordinator")


def actors_here(names: tuple[str, ...] = ACTORS) -> list[psutil.Process]:
    """Processes of the actors that this process has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[0].startswith(tuple(f"ray::{name}" for name in names)):
                found.append(process)
        except (psutil.Error, IndexError):
            pass
    return found


def cpu_of(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.Error:
            pass
    return total


class Watching:
    """Kills processes at positions of the stream, and takes the time of what follows.

    Parameters
    ----------
    folder : Path
        The run folder.
    kills : list of (int, str)
        Update after which an actor of this class is killed.
    """

    def __init__(self, folder: Path, kills: list[tuple[int, str]]) -> None:
        self.folder, self.kills = folder, kills
        self.recoveries: list[dict[str, Any]] = []
        self.spent: Counter[str] = Counter()
        self.killed_at = self.opened_at = 0.0
        self.cpu_before = 0.0
        self.recovering = False

    def timed(self, owner: Any, name: str, phase: str) -> None:
        """Count the time in ``owner.name`` as part of ``phase``, less what is counted inside of it."""
        call: Callable[..., Any] = getattr(owner, name)

        def timing(*arguments: Any, **options: Any) -> Any:
            began, inside = time.perf_counter(), self.spent.total()
            try:
                return call(*arguments, **options)
            finally:
                self.spent[phase] += time.perf_counter() - began - (self.spent.total() - inside)

        setattr(owner, name, timing)

    def watch(self) -> None:
        """Take the time of every step from now on."""
        for owner, name, phase in (
            (running.Run, "_recover_from", "closed"),
            (RaySession, "close", "closed"),
            (RaySession, "__init__", "actors"),
            (restoring, "read_checkpoint", "read"),
            (restoring, "understood", "checked"),
            (RaySession, "restore", "restored"),
            (running, "newest_restorable", "tables"),
        ):
            self.timed(owner, name, phase)
        recover, open_, record = running.Run._recover_from, running.Run._open, Recorder.record

        def noticed(run: Any, lost: Any) -> None:
            self.spent.clear()
            self.spent["noticed"] = time.perf_counter() - self.killed_at
            recover(run, lost)

        def opened(run: Any, restoring: bool) -> None:
            open_(run, restoring)
            self.opened_at = time.perf_counter()

        def recorded(recorder: Any, batch: Any, result: Any, seconds: float) -> None:
            record(recorder, batch, result, seconds)
            self.recorded(recorder.updates)

        running.Run._recover_from, running.Run._open, Recorder.record = noticed, opened, recorded  # type: ignore[method-assign]

    def recorded(self, updates: int) -> None:
        """A batch is in the tables."""
        now = time.perf_counter()
        last = self.recoveries[-1] if self.recoveries else {}
        if self.recovering and self.spent["noticed"]:
            self.recovering = False
            self.spent["first"] = now - self.opened_at
            last |= {phase: self.spent[phase] for phase in PHASES} | {"total": now - self.killed_at, "from": updates}
            last["cpu"] = time.process_time() - self.cpu_before + cpu_of(actors_here())
            last["at"] = now
        if "at" in last and "replayed" not in last and updates > last["kill"]:
            last["replayed"], last["updates"] = now - last["at"], updates - last["from"]
        ready = not self.recovering and ("replayed" in last or not last)
        if ready and self.kills and updates >= self.kills[0][0] and self.has_checkpoint():
            self.kill(updates, self.kills.pop(0)[1])

    def has_checkpoint(self) -> bool:
        return any((self.folder / "checkpoints").glob("*/manifest.json"))

    def kill(self, updates: int, name: str) -> None:
        victim = actors_here((name,))[-1]
        self.recovering = True
        self.spent.clear()
        self.recoveries.append({"what": name, "kill": updates})
        self.cpu_before = time.process_time()
        self.killed_at = time.perf_counter()
        os.kill(victim.pid, signal.SIGKILL)


def settings(live: int, updates: int) -> dict[str, Any]:
    return {
        "source": {"kind": "synthetic", "generator": "hyperplane", "n_features": FEATURES, "n": live + updates // 2},
        "stream": {"model": "sliding_window", "window": live, "warmup": live},
        "learner": {"kind": "fudyadt", "epsilon": 0.5, "alpha": 0.0, "beta": 0.0, "max_depth": 10},
        "cluster": {"backend": "ray", "shards": 2},
        "checkpoint": {"every_seconds": None, "every_updates": live},
        "output": {"report": False},
    }


def main(live: int, of_each: int) -> None:
    print(machine("ray"))
    apart = max(20_000, live // 20)
    kills = [(live + apart * (i + 1), ACTORS[i % 2]) for i in range(2 * of_each)]
    with tempfile.TemporaryDirectory() as scratch:
        watching = Watching(Path(scratch) / "run", list(kills))
        watching.watch()
        began = time.perf_counter()
        result = pipelines.replay(settings(live, apart * (len(kills) + 2)), out=watching.folder)
        summary = result.summary
        print(
            f"{live:,} live rows, {FEATURES} features; checkpoint of "
            f"{summary['checkpoints']['bytes'] / summary['checkpoints']['written'] / 2**20:.0f} MiB; "
            f"{time.perf_counter() - began:.0f} s in all, {summary['restarts']} restarts"
        )
    columns = (*PHASES, "total", "replayed", "cpu")
    print(f"{'killed':<13}" + "".join(f"{name:>9}" for name in columns) + f"{'updates':>10}")
    for row in watching.recoveries:
        print(f"{row['what']:<13}" + "".join(f"{row[name]:9.2f}" for name in columns) + f"{row['updates']:10,}")
    totals = [row["total"] for row in watching.recoveries]
    print(f"kill to first new result: median {statistics.median(totals):.2f} s, longest {max(totals):.2f} s; goal 15 s")
    said = ", ".join(f"{entry['seconds']:.2f}" for entry in summary["recoveries"])
    print(f"the run's own figures (loss noticed to first result): {said} s")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [1_000_000, 2][len(given) :]))
