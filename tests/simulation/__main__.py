"""Simulated runs in volume: ``python -m tests.simulation --seeds 20000 --jobs 2``.

One line for each seed that fails, with the command that repeats it; a failing seed belongs into
``tests/simulation/scenarios.py``. In the end how often each fault was survived; exit code 1 if a seed failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.scenarios import survives

#: Seeds a process is handed at once.
CHUNK = 20


def run(seeds: range) -> tuple[Counter[str], list[str]]:
    """What has happened in the seeds that ended well, and what the others say."""
    events: Counter[str] = Counter()
    failures = []
    for seed in seeds:
        try:
            events += survives(seed)
        except AssertionError as error:
            failures.append(str(error))
        else:
            events["seeds"] += 1
    return events, failures


def main() -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    stop, began = options.first + options.seeds, time.monotonic()
    chunks = [range(first, min(first + CHUNK, stop)) for first in range(options.first, stop, CHUNK)]
    events: Counter[str] = Counter()
    failed = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for happened, failures in pool.map(run, chunks):
            events += happened
            failed += len(failures)
            for failure in failures:
                print(failure, flush=True)
    survived = ", ".join(f"{kind} {n:,}" for kind, n in sorted(events.items()))
    print(f"survived in {time.monotonic() - began:,.0f} s: {survived}; failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
