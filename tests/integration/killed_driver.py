"""A driver that is killed for real, quickly: a process forked from one that has everything loaded and compiled.

Its checkpoints are waited for, so that the place of its death does not depend on how fast the machine is.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import pipelines
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.replay import replay
from raydt.exchange.messages import Plan, injected
from raydt.learners import learners
from raydt.sessions.session import compile_kernels
from raydt.streams.deletion_log import warmup

assert pipelines is not None
if "pytest" not in sys.modules:  # in the server that drivers are forked from, not where tests are collected
    compile_kernels(learners()["fudyadt"])
    warmup()
    pa.array([0])  # the first array has pyarrow import pandas, which takes as long as a short replay


def killed_replay(config: dict[str, Any], out: Path, faults: str) -> None:
    """Replay in another process, which the faults kill; it is an error if they do not."""
    _killed(_replay, config, str(out), faults)


def write_and_wait(checkpointer: Checkpointer, *arguments: Any) -> None:
    """Write a checkpoint as always, but go on only when it is written."""
    _write(checkpointer, *arguments)
    checkpointer.settle()


_write = Checkpointer.write


def _killed(target: Any, *arguments: Any) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=target, args=arguments)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL, process.exitcode


def _replay(config: dict[str, Any], out: str, faults: str) -> None:
    Checkpointer.write = write_and_wait  # type: ignore[method-assign]
    with injected(Plan(faults)):
        replay(config, out)
