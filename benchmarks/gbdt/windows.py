"""Small windows by the clock on the wall: ours with one thread and with all, beside LightGBM trained at each step.

A step predicts 200 incoming rows, and one call deletes the 200 oldest of 4,000 and inserts the incoming ones; LightGBM
trains on the 4,000, with one thread and with two. 50 trees of 10 leaves, as many for each of several classes. The first
training, and predicting, are not counted. Ours draws other split candidates in each turn. Each contestant has a process
of its own, and they take turns: after a training, threads of OpenMP wait busily on the cores of whoever comes next.

Goal: at most 0.9 times the time of LightGBM's better number of threads, at most 0.3 points less accuracy, and all
threads never slower than one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gbdt.data as kit
import numpy as np
from defaults import load
from gbdt.data import Split
from harness import DATA, Request, parquet, progress, read, replayed, show

WINDOW, STEP = 4000, 200
SHAPE = {"max_iter": 50, "max_leaf_nodes": 10}
PEER_SHAPE = {"iterations": 50, "num_leaves": 10}
#: Rows in the order of the file, by data set, at most.
SETS = {"electricity": 20_000, "adult_train": 12_000, "weather_noaa": 18_000, "covtype_head10k": 10_000}
#: Threads by contestant; None: all.
OURS: dict[str, int | None] = {"ours, 1": 1, "ours, all": None}
PEERS: dict[str, int] = {"LightGBM, 1": 1, "LightGBM, 2": 2}


def slide(split: Split, who: str, seed: int) -> tuple[float, float]:
    """Return the seconds of all steps, and the share of rows predicted right just before they come in."""
    import raydt

    train = partial(kit.lightgbm, split, num_threads=PEERS.get(who), **PEER_SHAPE)
    first = np.arange(WINDOW)
    if who in OURS:
        model: Any = raydt.OnlineGradientBoostingClassifier(random_state=seed, n_jobs=OURS[who], **SHAPE)
        model.partial_fit(split.X[first], split.y[first], np.arange(split.classes), ids=first)
    else:
        model = train(first)
    seconds, right, starts = 0.0, 0, range(WINDOW, len(split) - STEP + 1, STEP)
    for start in starts:
        into = np.arange(start, start + STEP)
        right += int(np.sum(kit.predicted(model, split, split.X[into]) == split.y[into]))
        began = time.perf_counter()
        if who in OURS:
            model.replace_examples(into - WINDOW, split.X[into], split.y[into], new_ids=into)
        else:
            model = train(np.arange(start + STEP - WINDOW, start + STEP))
        seconds += time.perf_counter() - began
    return seconds, right / (len(starts) * STEP)


def measured(name: str, who: str, seed: int) -> list[float]:
    """Return seconds, accuracy and load average of one contestant, in a process of its own."""
    here = f"import sys; sys.path[:0] = {[str(Path(__file__).parents[1])]!r}; from gbdt.windows import alone; alone()"
    done = subprocess.run([sys.executable, "-c", here, name, who, str(seed)], check=True, capture_output=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def alone() -> None:
    """Slide a window twice, the first time over few rows to load all code; print what the second time took."""
    name, who, seed = sys.argv[1:]
    X, y = load(DATA, name)
    X, y = np.ascontiguousarray(X[: SETS[name]]), y[: SETS[name]]
    split = Split(name, X, y, X[:0], y[:0])
    slide(split.take(np.arange(WINDOW + 5 * STEP)), who, int(seed))
    print(json.dumps([*slide(split, who, int(seed)), os.getloadavg()[0]]))


def run(request: Request) -> None:
    rows, met = [], 0
    for name in request.sets(*SETS):
        found: dict[str, list[list[float]]] = {who: [] for who in (*OURS, *PEERS)}
        for seed in range(request.seeds):
            for who, turns in found.items():
                turns.append(measured(name, who, seed))
                progress(name, who, *turns[-1])
        seconds = {who: statistics.median(turn[0] for turn in turns) for who, turns in found.items()}
        right = {who: 100 * statistics.mean(turn[1] for turn in turns) for who, turns in found.items()}
        load_average = statistics.mean(turn[2] for turns in found.values() for turn in turns)
        ratio = seconds["ours, all"] / min(seconds[who] for who in PEERS)
        gap = right["ours, all"] - right["LightGBM, 1"]
        met += ratio <= 0.9 and gap >= -0.3
        cells = [f"{ratio:.2f}", *(f"{seconds[who]:.2f}" for who in found), f"{gap:+.2f}"]
        rows.append([name, *cells, f"{load_average:.1f}"])
    header = ["data set", "all / LightGBM's better", *(f"{who}, s" for who in (*OURS, *PEERS)), "points", "load"]
    show("Windows of 4,000, steps of 200", header, rows, f"Goal met in {met} of {len(rows)}.")


#: Streams by name, and their columns that are no features; sizes of windows; rows that are predicted; and rows after
#: which LightGBM is trained again.
STREAMS: dict[str, list[str]] = {
    "electricity": [], "beijing_pm25": ["time"], "noshow": ["time", "scheduled", "patient"], "weather_noaa": [],
}  # fmt: skip
STREAM_WINDOWS, PREDICTED, AFTER = (1000, 5000), 3000, 25


def sizes(request: Request) -> None:
    """Two sizes of a batch, the exact forest, and LightGBM trained on the window after every 25 rows; CPU seconds."""
    quiet = {"output": {"report": False, "predictions": False}, "checkpoint": {"every_seconds": None}}
    rows: list[list[str]] = []
    for name in request.sets(*STREAMS):
        table = read(name).drop_columns(STREAMS[name])
        split = Split(name, kit.columns(table), kit.labels(table), np.empty((0, 0)), kit.labels(table)[:0])
        for window in STREAM_WINDOWS:
            stream = {"model": "sliding_window", "window": window, "warmup": window}
            source = parquet(name, label="y", limit=window + PREDICTED, exclude=STREAMS[name])
            found = []
            for learner in ({"kind": "gbdt", "update_every": window // 20}, {"kind": "gbdt"}, {"kind": "forest"}):
                replayed(learner, source | {"limit": window + 50}, stream, **quiet)  # loads kernels
                summary, seconds = replayed(learner, source, stream, **quiet)
                found.append((summary["metrics"]["accuracy"], seconds))
            right, began = 0, time.process_time()
            for start in range(window, window + PREDICTED, AFTER):
                model, into = kit.lightgbm(split, np.arange(start - window, start)), np.arange(start, start + AFTER)
                right += int(np.sum(kit.predicted(model, split, split.X[into]) == split.y[into]))
            found.append((right / PREDICTED, time.process_time() - began))
            cells = [f"{100 * accuracy:.2f}" for accuracy, _ in found] + [f"{seconds:.1f}" for _, seconds in found]
            rows.append([name, f"{window:,}", *cells])
            progress(*rows[-1])
    who = ("a twentieth", "auto", "forest", "LightGBM")
    show("Batches of streams", ["stream", "window", *(f"{x}, %" for x in who), *(f"{x}, s" for x in who)], rows)
