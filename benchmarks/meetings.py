"""The cost of a meeting of S shards over TCP: messages, connections, bytes and time, by a ladder and by all pairs.

S processes on this machine, which share its cores, meet as shards of a GBDT do in a level of a tree: histograms of KB
kilobytes of each are added up by their owners, and each owner tells all others 248 numbers. Messages, connections and
bytes are of one shard; *least* are the bytes without which there are no sums. Milliseconds are of the median level, of
processes that do nothing else. With ``--before PATH``, a clone of a commit whose shards all speak to each other, both
sides take turns.

Run: python benchmarks/meetings.py [--shards 2 8 16 32 64] [--kilobytes 1632] [--repeats 3] [--before PATH]
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

BEST, LEVELS, WARM = 248, 20, 3


def shard(index: int, shards: int, kilobytes: int, pipe: Any) -> None:
    """One process: connect, and make the levels; send bytes, connections, messages and milliseconds of each level."""
    from actors.channel import Channel

    try:
        from raydt.exchange.meetings import AllGather, ReduceScatter
    except ImportError:  # all pairs
        AllGather, ReduceScatter = (lambda part, n: [part] * n), (lambda parts, add: parts)  # type: ignore[assignment,misc]
    channel = Channel(index, 1, "127.0.0.1")
    pipe.send(channel.address)
    channel.connect(pipe.recv(), b"secret")
    ends = [kilobytes * 125 * s // shards for s in range(shards + 1)]
    sums, best = np.arange(ends[-1]) * (index + 1), np.arange(BEST) + index
    parts, times, sent = [sums[a:b] for a, b in pairwise(ends)], [], 0
    for level in range(LEVELS + WARM):
        began, before = time.perf_counter(), channel.sent
        mine = reduce(np.add, channel.swap(ReduceScatter(parts, np.add)))
        told = channel.swap(AllGather(best, shards))
        times.append(1000 * (time.perf_counter() - began))
        sent = channel.sent - before
        assert np.array_equal(mine, np.arange(ends[index], ends[index + 1]) * (shards * (shards + 1) // 2)), level
        assert all(np.array_equal(one, np.arange(BEST) + s) for s, one in enumerate(told))
    rounds = (shards - 1).bit_length() if hasattr(channel._links, "peers") else shards - 1
    pipe.send((sent, len(channel._peers), 2 * rounds, statistics.median(times[WARM:])))
    pipe.recv()
    channel.close()


def level(shards: int, kilobytes: int) -> dict[str, float]:
    """Have the processes meet, and return the largest of their figures."""
    context = multiprocessing.get_context("fork")
    pairs = [context.Pipe() for _ in range(shards)]
    processes = [
        context.Process(target=shard, args=(index, shards, kilobytes, theirs))
        for index, (_, theirs) in enumerate(pairs)
    ]
    for process in processes:
        process.start()
    addresses = [ours.recv() for ours, _ in pairs]
    for ours, _ in pairs:
        ours.send(addresses)
    found = np.array([ours.recv() for ours, _ in pairs])
    for (ours, _), process in zip(pairs, processes, strict=True):
        ours.send(None)
        process.join()
    return dict(zip(("sent", "links", "messages", "ms"), found.max(axis=0).tolist(), strict=True))


def measured(folder: str, shards: int, kilobytes: int) -> dict[str, float]:
    """Return :func:`level` of the sources in a folder."""
    command = [sys.executable, __file__, "--child", "--shards", str(shards), "--kilobytes", str(kilobytes)]
    environment = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True, encoding="utf-8"
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 8, 16, 32, 64])
    parser.add_argument("--kilobytes", type=int, default=1632)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--before")
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args()
    if given.child:
        print(json.dumps(level(given.shards[0], given.kilobytes)))
        return
    from harness import print_machine, show

    print_machine("numpy")
    folders = {"ladder": str(Path(__file__).resolve().parents[1])}
    if given.before:
        folders["all pairs"] = given.before
    rows = []
    for shards in given.shards:
        least = (shards - 1) * (given.kilobytes / shards + BEST * 8 / 1000)
        of_each: dict[str, list[dict[str, float]]] = {name: [] for name in folders}
        for _ in range(given.repeats):
            for name, folder in folders.items():
                of_each[name].append(measured(folder, shards, given.kilobytes))
        for name, found in of_each.items():
            first, ms = found[0], [one["ms"] for one in found]
            counts = [f"{first[key]:.0f}" for key in ("links", "messages")]
            spread = f"{statistics.median(ms):.2f} ({min(ms):.2f} to {max(ms):.2f})"
            rows.append([str(shards), name, *counts, f"{first['sent'] / 1000:,.0f}", f"{least:,.0f}", spread])
    header = ["Shards", "links", "connections", "messages", "KB sent", "least KB", "ms"]
    show("A level of a tree", header, rows)


if __name__ == "__main__":
    main()
