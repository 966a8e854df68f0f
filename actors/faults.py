"""Ray's errors as one sentence each: which actor, and what happened to it.

An error that our own code raised inside an actor arrives as itself, with its message and exit code. A process that
was lost is a :class:`~raydt.errors.ProcessLostError`, after which another incarnation may do better; one that cannot
be started is not.
"""

from __future__ import annotations

from typing import Any

from ray import exceptions

from raydt.errors import ProcessLostError, RaydtError, message_of
from raydt.messages import message


def translate(error: exceptions.RayError, name: str) -> RaydtError:
    """The error to raise for a call to actor ``name`` that ended in ``error``."""
    if isinstance(error, exceptions.RayTaskError):
        cause: Any = error.cause
        if isinstance(cause, RaydtError):
            return cause
        return RaydtError(message("cluster.defect", name=name, error=type(cause).__name__, problem=message_of(cause)))
    # Before ActorDiedError, and no kind of it: the memory monitor ended the process.
    if isinstance(error, exceptions.OutOfMemoryError):
        return lost("cluster.no_memory", name=name)
    if isinstance(error, exceptions.ActorDiedError):
        if "creation task" in str(error):  # nothing else tells them apart
            return RaydtError(message("cluster.no_start", name=name, reason=_lines(error)[-1]))
        return lost("cluster.died", name=name)
    if isinstance(error, exceptions.ActorUnavailableError):
        return lost("cluster.unreachable", name=name)
    if isinstance(error, exceptions.RuntimeEnvSetupError):
        return RaydtError(message("cluster.no_start", name=name, reason=" ".join(_lines(error))).alone())
    return lost("cluster.no_answer", name=name, error=type(error).__name__, reason=_lines(error)[0])


def lost(id: str, **parameters: Any) -> ProcessLostError:
    """Return the error of a lost process; the remedy of its message is the advice for when the job cannot recover."""
    said = message(id, **parameters)
    return ProcessLostError(said.alone(), said.remedy)


def _lines(error: Exception) -> list[str]:
    """The lines of Ray's message, at least one."""
    return [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()] or ["no reason given"]
