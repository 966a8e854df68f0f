"""Passes that all shards make together, meeting where they put something together.

A shard's half of a pass is a generator of *steps*. At a meeting it yields a list of parts, one for each shard, and
receives the parts that all shards have made for it. All shards meet equally often: what they decide from the same
parts, they decide alike. The coordinator has no part in it: it only has the shards begin the pass
(:class:`~raydt.exchange.messages.Combine`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

from raydt.exchange.messages import MET, Combine, Ended, Exchange, Payload
from raydt.parallel.threads import run

T = TypeVar("T")

#: A shard's half of a pass: yields what it has for each shard, receives what each has for it, returns a result.
Steps = Generator[list[Any], Sequence[Any], T]

#: Bytes of the parts of all shards from which on threads put them together: to do that takes some 0.1 ms.
_HANDED_OUT = 1 << 18


def together(method: str, payload: Payload, each: Sequence[Payload] | None = None) -> Exchange[list[Ended]]:
    """Have all shards make a pass, which they begin on the request ``method``; returns how it ended at each."""
    return (yield Combine(method, payload, each))


def swaps(handle: Callable[[str, Payload], Any], method: str, payload: Payload) -> Steps[Ended]:
    """Make a pass by the requests that ``handle`` answers for one shard; returns how it ended."""
    parts = handle(method, payload)
    while not isinstance(parts, Ended):
        parts = handle(MET, {"parts": (yield parts)})
    return parts


class Meeting:
    """A shard's place in a pass: which steps it has made. One pass is under way at a time."""

    def __init__(self) -> None:
        self._steps: Steps[Any] | None = None
        self._met = 0

    def begin(self, steps: Steps[Any]) -> Any:
        """Make the steps up to the first meeting; returns the parts for each shard, or :class:`Ended`."""
        self._steps, self._met = steps, 0
        return self._step(None)

    def receive(self, parts: Sequence[Any]) -> Any:
        """Take what :data:`MET` has, and return as :meth:`begin`."""
        self._met += 1
        return self._step(parts)

    def _step(self, received: Any) -> Any:
        assert self._steps is not None
        try:
            return self._steps.send(received)
        except StopIteration as end:
            self._steps = None
            return Ended(end.value, self._met)


def side_by_side(halves: Sequence[Steps[T]]) -> list[T]:
    """Make a pass of shards that are threads of this process, all a step at a time; return their results."""
    received: list[Any] = [None] * len(halves)
    few = False
    while True:
        steps = [partial(advanced, half, given) for half, given in zip(halves, received, strict=True)]
        made: list[Any] = [step() for step in steps] if few else run(steps)
        if isinstance(made[0], StopIteration):
            return [end.value for end in made]
        owned = made[0][0] is not made[0][-1]
        few = owned and sum(getattr(part, "nbytes", 0) for parts in made for part in parts) < _HANDED_OUT
        received = list(zip(*made, strict=True))


def advanced(half: Steps[T], received: Any) -> Any:
    """Make one step; returns what it yields, or at the end of the pass what ended it."""
    try:
        return half.send(received)
    except StopIteration as end:
        return end
