"""Write the run folders beside this file, with an earlier version: small runs, each killed after its first checkpoint.

::

    git worktree add ../before 62c1f18
    PYTHONPATH=../before python tests/former/make.py

``receipts-1.jsonl`` is a chain that 60156d2 wrote: deletions, insertions and purges, signed and not, under the key
``bytes(range(32))``. ``digests.json`` has the digest of each model if nothing interrupts its run, in the present format
of digests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: The commit before the sparse tree was a learner of its own: ``kind: fudyadt`` with a ``finder``.
COMMIT = "62c1f18"
LEARNERS: dict[str, dict[str, Any]] = {
    "updgini": {"finder": "updgini", "alpha": 0.0, "beta": 0.01, "finder_alpha": 0.2},
    "exact": {"epsilon": 0.2},
}
SPARSE = {"generator": "sparse", "irrelevant": 12, "drift": 3, "noise": 0.2}


def job(name: str) -> dict[str, Any]:
    """The config of a run, as the earlier version takes it."""
    generator = {"generator": "sea"} if name == "exact" else SPARSE
    return {
        "source": {"kind": "synthetic", "n": 150, "seed": 7, **generator},
        "stream": {"model": "sliding_window", "window": 40, "warmup": 20},
        "learner": {"kind": "fudyadt", "max_depth": 3, "feature_groups": 2, **LEARNERS[name]},
        "cluster": {"backend": "in_process", "shards": 1, "batch_size": 40},
        "checkpoint": {"every_updates": 70, "every_seconds": None, "keep": 1},
        "output": {"report": False},
    }


def replay(config: Path, out: Path, faults: str) -> None:
    """Run the command in a process of its own."""
    subprocess.run(
        [sys.executable, "-m", "pipelines.cli", "replay", config, "--out", out],
        env={**os.environ, "RAYDT_FAULTS": faults},
        check=not faults,
    )


def make(name: str, folder: Path) -> str:
    """Write one run folder, and return the digest of the run if it is not killed."""
    config = folder / "job.yaml"
    config.write_text(json.dumps(job(name)))
    replay(config, folder / "whole", "")
    replay(config, folder / name, "checkpoint.after_manifest@1#0=kill")
    for file in (".lock", "log.jsonl"):  # they name the machine, and folders of it
        (folder / name / file).unlink()
    shutil.make_archive(str(HERE / name), "zip", folder / name)
    digest: str = json.loads((folder / "whole" / "summary.json").read_text())["model_digest"]
    return digest


def main() -> None:
    """Write all of them."""
    digests = {}
    for name in LEARNERS:
        with tempfile.TemporaryDirectory() as folder:
            digests[name] = make(name, Path(folder))
    (HERE / "digests.json").write_text(json.dumps(digests, indent=2) + "\n")


if __name__ == "__main__":
    main()
