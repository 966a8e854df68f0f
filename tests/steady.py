"""Checkpoints that are waited for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from pipelines.running.checkpoint import CheckpointContent, Checkpointer


@contextlib.contextmanager
def checkpoints_waited_for() -> Iterator[None]:
    """Wait for each checkpoint, so that which there are does not depend on how fast the machine is."""
    write = Checkpointer.write

    def write_and_wait(checkpointer: Checkpointer, content: CheckpointContent) -> None:
        write(checkpointer, content)
        checkpointer.settle()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Checkpointer, "write", write_and_wait)
        yield
