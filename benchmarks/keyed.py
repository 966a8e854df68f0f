"""Models by key: one job beside a training for each key and day, and very many keys.

Works:
  window   hours of many keys, a window of days by event time; the peer trains LightGBM anew for each key and day on the
           rows in the window (a sample of keys and days, of which the mean is multiplied by the number of trainings).
           Processor time of both; the digests of the sampled keys are compared with runs of these keys alone.
  many     very many keys of few rows: throughput, memory, processor time of the whole run, the checkpoint's time and
           size; with another checkout, in turn with it.

Run: python benchmarks/keyed.py --work window [--keys 2000] [--days 90] [--window 60] [--learner fudyadt]
    [--sample KEYS] [--every DAYS] [--rows OF_A_KEY] [--before CHECKOUT] [--repeats 3] [--actors 0]

The rows of ``window`` and ``many`` are drawn: ten standard normal numbers, and the label tells on which side of a
plane of the key's own a row is, blurred by noise of half a standard deviation.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from harness import ROOT, arguments, print_machine, show

import pipelines

HOURS, FEATURES = 24, 10
#: Options of learners beside their kind.
OPTIONS: dict[str, dict[str, Any]] = {
    "fudyadt": {}, "confidence_tree": {}, "forest": {"n_estimators": 10}, "gbdt": {"max_iter": 20},
}  # fmt: skip
WARMUP = {"confidence_tree": 200, "gbdt": 200}


def processor() -> float:
    """Return the seconds of processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def hours(path: Path, keys: int, days: int) -> None:
    rng = np.random.default_rng(0)
    planes = np.random.default_rng(1).normal(size=(keys, FEATURES))
    schema = pa.schema(
        [("store", pa.int32()), ("time", pa.timestamp("us")), ("y", pa.int8())]
        + [(f"x{j}", pa.float64()) for j in range(FEATURES)]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for day in range(days):
            x = rng.normal(size=(keys * HOURS, FEATURES))
            k = np.tile(np.arange(keys), HOURS)
            y = ((x * planes[k]).sum(axis=1) + rng.normal(size=len(x)) * 0.5 > 0).astype(np.int8)
            t = np.datetime64("2026-01-01") + np.repeat(np.arange(day * HOURS, (day + 1) * HOURS), keys).astype("m8[h]")
            columns = [k.astype(np.int32), t.astype("M8[us]"), y, *x.T]
            writer.write_table(pa.table(dict(zip(schema.names, map(pa.array, columns), strict=True)), schema))


def config(path: Path, given: argparse.Namespace, **sections: Any) -> dict[str, Any]:
    kind = given.learner
    return {
        "source": {"kind": "parquet", "path": str(path), "label": "y", "key": "store", "ts": "time"},
        "stream": {"model": "time_window", "duration": f"{given.window}d", "warmup": WARMUP.get(kind, 0)},
        "learner": {"kind": kind, **OPTIONS[kind]}, "cluster": {"backend": "in_process"},
        "checkpoint": {"every_seconds": None}, "output": {"report": False}, **sections,
    }  # fmt: skip


def window(given: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Any]]:
    import lightgbm

    path = folder / "hours.parquet"
    hours(path, given.keys, given.days)
    before, began = processor(), time.perf_counter()
    run = pipelines.replay(config(path, given), folder / "run")
    ours, wall = processor() - before, time.perf_counter() - began
    yield "updates", run.summary["updates"]
    yield "ours: processor seconds, wall seconds", (round(ours, 1), round(wall, 1))
    yield "accuracy over all keys", run.summary["metrics"]["accuracy"]
    yield "digest", run.digest
    rows_of_keys = ds.dataset(Path(run.path) / "keys").to_table().to_pylist()
    found, table = {row["key"]: row for row in rows_of_keys}, pq.read_table(path)
    sample = np.random.default_rng(2).choice(given.keys, given.sample, replace=False).tolist()
    equal, scores, trained, right, tested = 0, [], 0, 0, 0
    seconds = 0.0
    for key in sample:
        rows = table.filter(pc.equal(table["store"], key))
        own = folder / f"{key}.parquet"
        pq.write_table(rows.drop_columns(["store"]), own)
        given_alone = config(own, given)
        del given_alone["source"]["key"]
        alone = pipelines.replay(given_alone, folder / f"alone {key}")
        equal += alone.digest == found[key]["digest"]
        scores.append(found[key]["accuracy"])
        x = np.column_stack([rows[f"x{j}"].to_numpy() for j in range(FEATURES)])
        y = rows["y"].to_numpy()
        for day in range(2, given.days, given.every):
            first, end = max(0, day - given.window) * HOURS, day * HOURS
            start = processor()
            model = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1).fit(x[first:end], y[first:end])
            seconds += processor() - start
            trained += 1
            right += int(np.count_nonzero(model.predict(x[end : end + HOURS]) == y[end : end + HOURS]))
            tested += len(y[end : end + HOURS])
    yield "digests equal to runs of a key alone", f"{equal} of {len(sample)}"
    each, trainings = seconds / trained, given.keys * (given.days - 2)
    yield "LightGBM, 20 trees: processor ms a training", round(1e3 * each, 2)
    yield "LightGBM for each key and day: processor seconds", round(each * trainings, 1)
    yield "ours / LightGBM", round(ours / (each * trainings), 3)
    yield "accuracy of the sampled keys: ours, LightGBM", (round(statistics.mean(scores), 4), round(right / tested, 4))


def many(given: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Any]]:
    rng, n = np.random.default_rng(0), given.keys * given.rows
    planes = np.random.default_rng(1).normal(size=(given.keys, FEATURES))
    k = rng.permutation(np.repeat(np.arange(given.keys), given.rows))
    x = rng.normal(size=(n, FEATURES))
    y = ((x * planes[k]).sum(axis=1) > 0).astype(np.int8)
    path = folder / "many.parquet"
    columns = {"store": k, "y": y, **{f"x{j}": x[:, j] for j in range(FEATURES)}}
    pq.write_table(pa.table(columns), path)
    made = config(path, given, stream={"model": "incremental"})
    del made["source"]["ts"]
    if given.actors:
        made["cluster"] = {"backend": "ray", "shards": given.actors}
    checkouts = ({"before": given.before.resolve()} if given.before else {}) | {"now": ROOT}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
    for turn in range(1 + given.repeats):  # the first one fills the caches
        for name, checkout in checkouts.items():
            one = replayed(checkout, made, folder / f"{name} {turn}")
            found[name] += [one] if turn else []
    for name, runs in found.items():
        yield f"{name}: digest", sorted({one.pop("digest") for one in runs})
        for figure in runs[0]:
            yield f"{name}: {figure}", round(statistics.median(one[figure] for one in runs), 1)


#: Runs a config with a checkout, and prints figures of the run.
REPLAY = """
import json, resource, sys, time
import pipelines
began = time.perf_counter(), time.process_time()
run = pipelines.replay(json.loads(sys.argv[1]), sys.argv[2])
wall, processor = time.perf_counter() - began[0], time.process_time() - began[1]
summary = run.summary
print(json.dumps({
    "file": pipelines.__file__, "digest": run.digest, "wall seconds": wall, "processor seconds": processor,
    "processor us an update": 1e6 * processor / summary["updates"],
    "updates a second of the stream": summary["updates_per_second"], "peak MB": summary["peak_rss_bytes"] / 1e6,
    "checkpoints: seconds": summary["checkpoints"]["seconds"], "checkpoints: MB": summary["checkpoints"]["bytes"] / 1e6,
}))
"""


def replayed(checkout: Path, made: dict[str, Any], folder: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", REPLAY, json.dumps(made), str(folder)]
    called: dict[str, Any] = {"capture_output": True, "text": True, "check": True}
    told = subprocess.run(command, env=environment, cwd=checkout, **called).stdout
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    assert Path(found.pop("file")).is_relative_to(checkout), "another checkout was imported"
    return found


WORKS = {"window": window, "many": many}

if __name__ == "__main__":
    chosen = {"work": {"action": "append", "choices": WORKS, "required": True}}
    chosen |= {"learner": {"choices": OPTIONS, "default": "fudyadt"}}
    sizes = {"keys": 2_000, "days": 90, "window": 60, "rows": 100, "sample": 10, "every": 11, "repeats": 3, "actors": 0}
    sizes |= {"before": Path}
    given = arguments(__doc__, **chosen, **sizes)
    print_machine("lightgbm")
    for work in given.work:
        with tempfile.TemporaryDirectory(prefix="raydt-keyed-") as folder:
            rows = [[what, json.dumps(value)] for what, value in WORKS[work](given, Path(folder))]
        show(work, ["figure", "value"], rows)
