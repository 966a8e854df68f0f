"""What checkpoints cost: the same replay with those of the default (one a minute) and without any.

A sliding window of 1,000,000 rows with 10 features moves over a generated hyperplane, so that at one checkpoint a
minute nearly every row is new to each of them: nothing is saved by segments that are shared. In process, and on a
private Ray with 2 shards, four replays each: without, with, with, without, in processes of their own, so that what
else the machine does is shared by both sides. Each is stopped after a quarter of ``--minutes``, at least half of which
is measured: what comes after the window is full.

lost        of the throughput: how much longer the same updates take, from the full window to the update that all four
            replays reach, as a share of the time with checkpoints
cpu         the same of processor seconds per update, over all processes of the replay: robust on a busy machine, blind
            to waiting
per minute  both, for one checkpoint every 60 s (a short replay has more of them, or fewer)
stands      how much longer the batch with the barrier takes than the median batch: the snapshot, its way to the driver,
            and the parts of the tables that are closed
longest     batch of all: rebuilds of large subtrees are among them
writing     in the background, per checkpoint, and its bytes
peak        resident memory, summed over driver and actors

Run: python benchmarks/checkpoint_cost.py [--minutes 10] [--every 60] [--window 1000000] [--backend ray|in_process]
--minutes are of one backend, both sides. Ten times the default load, in short: --minutes 4 --every 6
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from measure import machine

import pipelines
import pipelines.running.loop as running

FEATURES = 10
PER_MINUTE = 60.0
NEVER = 1 << 40  # rows: more than any replay reads


def settings(backend: str, window: int, every: float | None) -> dict[str, Any]:
    return {
        "source": {"kind": "synthetic", "generator": "hyperplane", "n_features": FEATURES, "n": NEVER},
        "stream": {"model": "sliding_window", "window": window, "warmup": window},
        "learner": {"kind": "fudyadt", "epsilon": 0.5, "alpha": 0.0, "beta": 0.0, "max_depth": 10},
        "cluster": {"backend": backend, "shards": 2},
        "checkpoint": {"every_seconds": every},
        "output": {"report": False},
    }


def processes() -> list[psutil.Process]:
    """This one, and those of a private Ray."""
    return [psutil.Process(), *psutil.Process().children(recursive=True)]


def cpu_seconds() -> float:
    total = 0.0
    for process in processes():
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.Error:  # it has ended meanwhile
            pass
    return total


def peak_bytes() -> int:
    """Peaks of driver and actors, summed."""
    total = 0
    for process in processes():
        try:
            if process.pid == psutil.Process().pid or process.cmdline()[0].startswith(("ray::Coord", "ray::Feature")):
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                total += 1024 * int(status.partition("VmHWM:")[2].split()[0])
        except (psutil.Error, OSError, IndexError):
            pass
    return total


def one_replay(backend: str, window: int, every: float | None, seconds: float) -> dict[str, Any]:
    """Replay for ``seconds``, and at least for half of them with a full window, in this process."""
    times: list[tuple[int, float, bool]] = []
    seen: dict[str, Any] = {}
    feed = running.feed

    def watched(config: Any, session: Any, intake: Any, recorder: Any, recorded: Any, *others: Any) -> None:
        began = time.perf_counter()

        def note(batch: Any, result: Any) -> None:
            recorded(batch, result)
            if recorder.updates <= window:
                return
            now = time.perf_counter()
            times.append((recorder.updates, now, result.snapshot is not None))
            if len(times) == 1:
                seen["cpu"] = -cpu_seconds()
            elif now - began >= seconds and now - times[0][1] >= seconds / 2 and not intake.stopped:
                seen["cpu"] += cpu_seconds()
                seen["cpu_updates"], seen["peak"] = recorder.updates - times[0][0], peak_bytes()
                intake.stop()

        feed(config, session, intake, recorder, note, *others)

    running.feed = watched
    with tempfile.TemporaryDirectory() as folder:
        result = pipelines.replay(settings(backend, window, every), out=Path(folder) / "run")
    updates, at, barrier = (np.array(column) for column in zip(*times, strict=True))
    gaps = np.diff(at)
    stands = gaps[barrier[1:]] - np.median(gaps)
    written = result.summary["checkpoints"]
    in_time = int(barrier[1:].sum())
    return {
        "updates": updates.tolist(),
        "at": (at - at[0]).tolist(),
        "cpu": seen["cpu"] / seen["cpu_updates"],
        "peak": seen["peak"],
        "checkpoints": in_time,
        "stands": stands.tolist(),
        "longest": float(gaps.max()),
        "longest_without": float(gaps[~barrier[1:]].max()),
        "seconds": written["seconds"] / written["written"],
        "bytes": written["bytes"] / written["written"],
        "failed": written["failed"],
    }


def in_a_process(backend: str, window: int, every: float | None, seconds: float) -> dict[str, Any]:
    arguments = json.dumps([backend, window, every, seconds])
    done = subprocess.run(
        [sys.executable, __file__, "--one", arguments], stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True
    )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def compare(backend: str, window: int, every: float, minutes: float) -> None:
    sides: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for saving in (False, True, True, False):
        replay = in_a_process(backend, window, every if saving else None, 15 * minutes)
        sides[saving].append(replay)
        rate = (replay["updates"][-1] - replay["updates"][0]) / replay["at"][-1]
        print(
            f"{backend}, {'with' if saving else 'without':<8}{rate:10,.0f} updates/s {1e6 * replay['cpu']:7.3f} us cpu"
            f" an update, {replay['checkpoints']} checkpoints, peak {replay['peak'] / 2**20:,.0f} MiB, longest batch"
            f" {replay['longest']:.3f} s",
            flush=True,
        )
    end = min(replay["updates"][-1] for replays in sides.values() for replay in replays)
    took = {
        saving: sum(float(np.interp(end, replay["updates"], replay["at"])) for replay in replays)
        for saving, replays in sides.items()
    }
    cpu = {saving: statistics.mean(replay["cpu"] for replay in replays) for saving, replays in sides.items()}
    lost, cpu_lost = 1 - took[False] / took[True], 1 - cpu[False] / cpu[True]
    on = sides[True]
    checkpoints = sum(replay["checkpoints"] for replay in on)
    share = sum(replay["at"][-1] for replay in on) / PER_MINUTE / max(1, checkpoints)
    stands = [seconds for replay in on for seconds in replay["stands"]]
    peaks = [max(replay["peak"] for replay in sides[saving]) / 2**20 for saving in (False, True)]
    print(
        f"{backend}: lost {lost:.2%}, cpu {cpu_lost:.2%}; "
        f"per minute lost {lost * share:.2%}, cpu {cpu_lost * share:.2%}; goal below 5 %"
    )
    print(
        f"{backend}: {checkpoints} checkpoints; the stream stands still {statistics.median(stands or [0]):.3f} s "
        f"(median), {max(stands, default=0.0):.3f} s (longest); longest batch without a barrier "
        f"{max(replay['longest_without'] for replay in on):.3f} s"
    )
    print(
        f"{backend}: writing {statistics.mean(replay['seconds'] for replay in on):.2f} s and "
        f"{statistics.mean(replay['bytes'] for replay in on) / 2**20:.0f} MiB a checkpoint; peak {peaks[0]:,.0f} MiB "
        f"without, {peaks[1]:,.0f} MiB with; {sum(replay['failed'] for replay in on)} failed",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every", type=float, default=PER_MINUTE)
    parser.add_argument("--window", type=int, default=1_000_000)
    parser.add_argument("--backend", choices=["in_process", "ray"])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one_replay(*json.loads(given.one))))
        return
    print(machine("ray"))
    print(f"window of {given.window:,} rows, {FEATURES} features, a checkpoint every {given.every:g} s", flush=True)
    for backend in [given.backend] if given.backend else ["in_process", "ray"]:
        compare(backend, given.window, given.every, given.minutes)


if __name__ == "__main__":
    main()
