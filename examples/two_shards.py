"""The same model from one process and from two shards on a local Ray.

    python examples/two_shards.py

``memory_limit: 0`` gives all work to the shards. Without it the coordinator would do all work by itself, because a
model of this size needs no shards.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from raydt import jobs

CONFIG: dict[str, Any] = {
    "source": {"kind": "synthetic", "generator": "hyperplane", "n": 2000, "n_features": 20, "seed": 7},
    "stream": {"model": "sliding_window", "window": 1000, "warmup": 500},
    "learner": {"kind": "fudyadt", "max_depth": 6},
}


def main() -> None:
    """Run the stream twice and compare the digests."""
    with tempfile.TemporaryDirectory() as folder:
        digests = []
        for cluster in ({"backend": "in_process"}, {"backend": "ray", "shards": 2, "memory_limit": 0}):
            run = jobs.replay({**CONFIG, "cluster": cluster}, Path(folder) / cluster["backend"])
            seconds, rounds = run.summary["seconds"], run.summary["rounds"]
            print(f"{cluster['backend']:10}  {rounds:6,} rounds  {seconds:5.1f} s  {run.summary['model_digest']}")
            digests.append(run.summary["model_digest"])
        assert digests[0] == digests[1]


if __name__ == "__main__":
    main()
