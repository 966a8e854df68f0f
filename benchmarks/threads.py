"""Wall time with one thread and with several, of raydt and of its peers: ``python benchmarks/threads.py``.

``--threads 1 2 16`` on a machine of 16 cores. Contestants take turns in one process; the figure is the median of the
rounds after one that is not counted: five, or as many as end within 30 seconds. Results are compared in every round:
whatever the number of threads, digests, predictions and explanations of raydt are equal, or the program ends.

All lines take about a quarter of an hour on two free cores (added up from single lines; the program prints what it
took). ``--only WORD`` takes the lines that have a word in name or contestant, such as ``fit``, ``predict``, ``gbdt`` or
``csv``, and prepares no data or model of the others: less than five minutes for any of these. ``--scale .01`` is a
trial run.

``--beside 1`` has another process keep a core busy meanwhile, ``--beside 2`` two of them. Then several threads may take
at most 15 % more time than one, or the program ends with the lines that do.

The column "16, calculated" is not measured: it is Amdahl's law with the serial part that the first two columns show,
and threads of which each does half as much as the first, since they share the memory.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from harness import arguments, print_machine, table
from threaded_work import GROUPS, Row

#: Most time of several threads beside a busy neighbour, in times of one thread's.
DEAREST = 1.15
#: Seconds after which a line has no more rounds.
LONGEST = 30.0
#: Who divides work, but for readers of files.
OURS = ("fudyadt", "confidence_tree", "gbdt", "forest")


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    cores = sorted(os.sched_getaffinity(0))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        for process, core in zip(busy, cores, strict=False):
            os.sched_setaffinity(process.pid, [core])
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def speed(row: Row, threads: list[int], rounds: int) -> tuple[list[str], float]:
    """Measure one line; returns its cells, and the most time of several threads, in times of one thread's.

    SystemExit if results differ.
    """
    used, began, work = threads[:1] if row.alone else threads, time.monotonic(), row.prepare()
    seconds: dict[int, list[float]] = {n: [] for n in used}
    results = set()
    for done in range(rounds + 1):
        if done > 1 and time.monotonic() - began > LONGEST:
            break
        for n in used:
            taken, result = work(n)
            seconds[n].append(taken)
            results.add(result)
    if len(results) > 1:
        raise SystemExit(f"{row.name}, {row.who}: results differ between numbers of threads: {results}")
    median = [statistics.median(seconds[n][1:]) for n in used]
    cells = [f"{taken:.3f}" for taken in median] + ["-"] * (len(threads) - len(used))
    cells += [f"{median[0] / taken:.2f}" for taken in median[1:]] + ["-"] * (len(threads) - len(used))
    calculated = "-"
    if len(used) > 1:
        serial = min(1.0, max(0.0, (median[1] * used[1] / median[0] - 1) / (used[1] - 1)))
        calculated = f"{1 / (serial + (1 - serial) / 8):.1f}"
    return [row.name, row.who, *cells, calculated, f"{os.getloadavg()[0]:.1f}"], max(median) / median[0]


def main() -> None:
    asked = arguments(__doc__, threads=[1, 2], rounds=5, scale=1.0, only=[], beside=0)
    print_machine("lightgbm", "scikit-learn")
    times = [f"{n}, s" for n in asked.threads]
    header = ["work", "by", *times, *(f"{n}, times" for n in asked.threads[1:]), "16, calculated", "load"]
    lines, dear, began = [], [], time.monotonic()
    for group in GROUPS:
        for row in group(lambda n: max(200, int(n * asked.scale))):
            if not asked.only or any(word in f"{row.name} {row.who}" for word in asked.only):
                with neighbours(asked.beside):
                    line, most = speed(row, asked.threads, asked.rounds)
                lines.append(line)
                print(" | ".join(line), flush=True)
                if most > DEAREST and row.who in OURS:
                    dear.append(f"{row.name}, {row.who}: {most:.2f}")
    print(*table(header, lines), f"\n{time.monotonic() - began:.0f} s", sep="\n")
    if asked.beside and dear:
        raise SystemExit("several threads take more than 15 % longer than one: " + "; ".join(dear))


if __name__ == "__main__":
    main()
