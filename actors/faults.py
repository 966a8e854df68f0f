"""Ray's errors as one sentence each: which actor, and what happened to it.

An error that our own code raised inside an actor arrives as itself, with its message and exit code. A process that
was lost is a :class:`~raydt.errors.ProcessLostError`, after which another incarnation may do better; one that cannot
be started is not.
"""

from __future__ import annotations

from typing import Any

from ray import exceptions

from raydt.errors import ProcessLostError, RaydtError, message_of


def translate(error: exceptions.RayError, name: str) -> RaydtError:
    """The error to raise for a call to actor ``name`` that ended in ``error``."""
    if isinstance(error, exceptions.RayTaskError):
        cause: Any = error.cause
        if isinstance(cause, RaydtError):
            return cause
        what = f"{name} failed with {type(cause).__name__}: {message_of(cause)}"
        return RaydtError(f"{what}. This is a defect of raydt; please report it")
    # Before ActorDiedError, and no kind of it: the memory monitor ended the process.
    if isinstance(error, exceptions.OutOfMemoryError):
        return ProcessLostError(
            f"{name} was killed because its node ran out of memory",
            "Use more shards or larger nodes, or lower cluster.memory_limit",
        )
    if isinstance(error, exceptions.ActorDiedError):
        if "creation task" in str(error):  # nothing else tells them apart
            return RaydtError(
                f"{name} could not start: {_lines(error)[-1]}. Install raydt on every node, or submit the job with its "
                "working directory"
            )
        return ProcessLostError(f"{name} died", "Ray's logs of the processes show the cause")
    if isinstance(error, exceptions.ActorUnavailableError):
        return ProcessLostError(f"{name} cannot be reached: its node or the network failed")
    if isinstance(error, exceptions.RuntimeEnvSetupError):
        return RaydtError(f"{name} could not start: {' '.join(_lines(error))}")
    return ProcessLostError(f"{name} did not answer: {type(error).__name__}: {_lines(error)[0]}")


def _lines(error: Exception) -> list[str]:
    """The lines of Ray's message, at least one."""
    return [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()] or ["no reason given"]
