"""A child process: tries mutations one after another, and says before and after each what it is doing.

``python -m tests.fuzz.child SEED BEGIN END STEP FOLDER [MODELS]``; one JSON object on a line of stdout.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

from raydt.errors import RaydtError

#: Address space that reading may take beyond what the process has at the start.
MEMORY = 2 << 30


def limit_memory() -> None:
    """Let allocations beyond :data:`MEMORY` fail."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def say(**facts: Any) -> None:
    """One line to the parent."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def verdict(target: Any, folder: Path, draw: random.Random) -> tuple[str, str]:
    """``reads``, ``refused`` or ``finding``, and what was said."""
    try:
        target.try_one(folder, draw)
    except RaydtError as error:
        return ("refused", str(error)) if str(error).strip() else ("finding", f"an empty {type(error).__name__}")
    except BaseException:
        return "finding", traceback.format_exc()
    return "reads", ""


def main(seed: int, begin: int, end: int, step: int, folder: Path, models: Path | None) -> None:
    """Try the mutations ``begin``, ``begin + step``, ... before ``end``."""
    from tests.fuzz.targets import all_targets

    warnings.simplefilter("error")
    pa.set_cpu_count(2)
    targets = all_targets(models)
    limit_memory()
    for number in range(begin, end, step):
        target = targets[number % len(targets)]
        say(number=number, target=target.name)
        began = time.perf_counter()
        kind, said = verdict(target, folder, random.Random(f"{seed}:{number}"))
        say(number=number, verdict=kind, said=said, seconds=time.perf_counter() - began)


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:5]]
    main(
        numbers[0],
        numbers[1],
        numbers[2],
        numbers[3],
        Path(sys.argv[5]),
        Path(sys.argv[6]) if len(sys.argv) > 6 else None,
    )
