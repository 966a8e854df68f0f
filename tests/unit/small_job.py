"""A job that takes no time, for tests of the commands."""

from __future__ import annotations

JOB = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 500},
    "stream": {"model": "incremental"},
    "learner": {"kind": "fudyadt", "max_depth": 3},
    "cluster": {"backend": "in_process"},
    "output": {"report": False},
}
