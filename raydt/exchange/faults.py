"""Named places at which a test, or an operator's drill, has this very program fail.

A promise about faults is worth what its tests can do to the program, and what happens between two lines of it cannot
be arranged from outside. So the places stay in the product, as in FoundationDB. They are off by default: a pass
through :func:`fault` then costs one comparison with ``None``, and none lies inside a compiled kernel.

Faults are asked for by :func:`injected` in this process, or by the environment variable ``RAYDT_FAULTS``, which is
read once, when this module is imported, and handed on to the actors: a comma-separated list of

    ``point@n#epoch=act``           the n-th pass through the point in a process while it is of that epoch
    ``point/shard@n#epoch=act``     the same, but only in the process of one shard

where ``epoch`` is 0 for the driver's own process, which has none, and the number of the incarnation in an actor. An
act is ``kill`` (SIGKILL to itself), ``stop`` (SIGSTOP to itself), ``hang`` (the thread waits for ever and others work
on, as where a network carries small messages and loses large ones) or ``raise`` (a
:class:`~raydt.errors.RaydtError`).
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from raydt.errors import ConfigError, RaydtError
from raydt.messages import message

VARIABLE = "RAYDT_FAULTS"

#: Every point and when it is passed. Those of ``driver``, ``checkpoint`` and ``run`` are in the driver's process.
POINTS = {
    "coordinator.before_batch": "a batch has arrived at the coordinator and nothing of it has been applied",
    "coordinator.after_batch": "a batch has been applied and its result not yet been sent",
    "coordinator.local_rebuild": "a subtree is about to be rebuilt by the coordinator, outside the compiled loop",
    "coordinator.before_snapshot": "the coordinator's part of a snapshot is complete and not yet been sent",
    "coordinator.before_restore": "a saved state has arrived at the coordinator",
    "coordinator.before_finish": "the coordinator has been asked to complete what waits for more updates",
    "shard.before_answer": "a request has arrived at a shard",
    "shard.after_answer": "a shard has done what was asked and not yet answered",
    "shard.between_meetings": "a shard has what the others have for it in the middle of a pass that they make together",
    "shard.before_block": "a shard has been asked to read rows itself, ahead of the batch that they are in",
    "shard.before_ids": "a shard has been asked for codes of text ids",
    "shard.before_ids_written": "a shard is about to write the text ids that it has, for a checkpoint",
    "shard.before_columns": "the coordinator has asked a shard for columns of rows that it does not keep itself",
    "shard.before_parts": "what a shard has set aside for a snapshot is about to be fetched, or written by it",
    "shard.between_parts": "a shard has written one of the parts it has set aside for a snapshot, and not yet the next",
    "shard.after_parts": "a shard has written what it has set aside for a snapshot, and nothing refers to it yet",
    "shard.before_restore": "a saved state has arrived at a shard",
    "driver.recorded": "the result of a batch is in the tables",
    "checkpoint.before_manifest": "all files of a checkpoint are written but the manifest",
    "checkpoint.after_manifest": "a checkpoint is committed and nothing that it makes superfluous is deleted",
    "follow.planned": "a plan of what is read next from a live source is on the disk, and no row of it has been read",
    "requests.appended": "a receipt of requests of the source is on the disk, and no checkpoint knows of it",
    "chapter.closed": "a chapter is closed, and the next one has not begun",
    "chapter.between_files": "a chapter that expires has lost its config, and not yet its other files",
    "run.before_compaction": "the stream has ended and the parts of the tables are not yet one",
    "run.before_summary": "everything but the summary is written",
    "run.before_report": "the summary is written and the report is not",
}

ACTS = ("kill", "stop", "hang", "raise")

_SPEC = re.compile(r"(?P<point>[a-z_.]+)(?:/(?P<shard>\d{1,6}))?@(?P<n>\d{1,9})#(?P<epoch>\d{1,9})=(?P<act>[a-z]+)")

#: What to do at a point. It may raise.
Handler = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Order:
    """One act that was asked for."""

    point: str
    shard: int | None
    n: int
    epoch: int
    act: str


class Plan:
    """The acts that ``RAYDT_FAULTS`` asks for, as the handler of one process.

    Parameters
    ----------
    spec : str
        See the module.

    Raises
    ------
    ConfigError
        The text is not a list of ``point@n#epoch=act``, or names a point or an act that does not exist.
    """

    def __init__(self, spec: str) -> None:
        self._orders = [_order(part.strip()) for part in spec.split(",") if part.strip()]
        self._passes: Counter[str] = Counter()
        self._epoch, self._shard = 0, -1

    def begin_epoch(self, epoch: int, shard: int | None = None) -> None:
        """Restart counting: this process is an actor of incarnation ``epoch`` from now on."""
        self._passes.clear()
        self._epoch, self._shard = epoch, -1 if shard is None else shard

    def __call__(self, point: str) -> None:
        """Note one pass, and do what was asked for it.

        Raises
        ------
        RaydtError
            The act is ``raise``.
        """
        self._passes[point] += 1
        for order in self._orders:
            if (order.point, order.n, order.epoch) == (point, self._passes[point], self._epoch) and order.shard in (
                None,
                self._shard,
            ):
                _act(order.act, point)


def _order(part: str) -> _Order:
    match = _SPEC.fullmatch(part)
    if match is None or int(match["n"]) < 1:
        raise ConfigError(message("exchange.fault_form", variable=VARIABLE, part=part))
    for name, known in (("point", tuple(POINTS)), ("act", ACTS)):
        if match[name] not in known:
            shown = {"variable": VARIABLE, "part": part, "known": ", ".join(known)}
            raise ConfigError(message("exchange.fault_name", what=name, **shown))
    shard = None if match["shard"] is None else int(match["shard"])
    return _Order(match["point"], shard, int(match["n"]), int(match["epoch"]), match["act"])


def _act(act: str, point: str) -> None:
    if act == "raise":
        raise RaydtError(message("exchange.fault", point=point, variable=VARIABLE))
    if act == "hang":
        threading.Event().wait()
    os.kill(os.getpid(), signal.SIGKILL if act == "kill" else signal.SIGSTOP)


_handler: Handler | None = Plan(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def fault(point: str) -> None:
    """Pass a point of :data:`POINTS`; nothing happens unless somebody asked for it."""
    if _handler is not None:
        _handler(point)


def begin_epoch(epoch: int, shard: int | None = None) -> None:
    """Say that this process is an actor of incarnation ``epoch``: of a shard, or (None) of the coordinator."""
    if isinstance(_handler, Plan):
        _handler.begin_epoch(epoch, shard)


@contextmanager
def injected(handler: Handler) -> Iterator[None]:
    """Call ``handler`` with the name of each point passed in this process, in place of ``RAYDT_FAULTS``."""
    global _handler
    before, _handler = _handler, handler
    try:
        yield
    finally:
        _handler = before
