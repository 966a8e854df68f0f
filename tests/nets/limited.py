"""Calls in a process whose memory ends: ``python -m tests.nets.limited CASE TIMES`` prints how the models were then.

The limit is set before each call to what the process has and a little more, drawn at random. The calls are made in a
thread, whose stack is whole from its start: the stack of the first thread grows, and where the limit forbids that the
kernel ends the process with SIGSEGV (setrlimit(2), RLIMIT_AS) before any allocation can fail.
"""

from __future__ import annotations

import copy
import faulthandler
import gc
import json
import random
import resource
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import numpy as np

from tests.cases import CASES
from tests.nets.test_interrupts import Data, after, fingerprint, refuses, require_refusal
from tests.small_tables import examples

#: Rows of the model, and of a call that needs memory.
ROWS, MORE = 1000, 20_000


#: Bytes of the stack of the thread that makes the calls.
STACK = 64 << 20


def main(name: str, times: int, completed: threading.Event) -> None:
    """Make calls without memory, and check the model after each."""
    trial = next(trial for trial in CASES if trial.name == name)
    data, draw = Data(trial), random.Random(name)
    old = [row for row in examples(ROWS, 3) if row["d"] != "r"]
    data.first, data.others = old[:-40], old[-40:]
    start = data.estimator()
    many = data.new * (MORE // len(data.new))
    X, y = data.both(many)
    calls = {
        "partial_fit": lambda e: e.partial_fit(X, y),
        "replace_examples": lambda e: e.replace_examples([1, 2, 5], X, y, digests=False),
        "fit": lambda e: e.fit(X, y),
    }
    found: Counter[str] = Counter()
    for _ in range(times):
        call = draw.choice(list(calls))
        e = copy.deepcopy(start)
        before = repr(fingerprint(copy.deepcopy(e), data))
        gc.collect()
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + draw.randrange(1 << 14, 1 << 24), limit[1]))
        failed = False
        try:
            calls[call](e)
        except Exception as error:
            failed = True
            if not isinstance(error, MemoryError) and "memory" not in str(error).lower():
                raise
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limit)
        if not failed:
            found[f"{call}: after"] += 1
            assert e.audit().ok
        elif refuses(e.digest):
            found[f"{call}: refused"] += 1
            with tempfile.TemporaryDirectory() as folder:
                require_refusal(e, data, start, Path(folder))
        else:
            found[f"{call}: before"] += 1
            assert repr(fingerprint(e, data)) == before, "between"
            after(e, data)
    print(json.dumps(found))
    completed.set()


if __name__ == "__main__":
    faulthandler.enable()
    np.seterr(all="ignore")
    completed = threading.Event()
    threading.stack_size(STACK)
    calls = threading.Thread(target=main, args=(sys.argv[1], int(sys.argv[2]), completed))
    calls.start()
    calls.join()
    sys.exit(not completed.is_set())
