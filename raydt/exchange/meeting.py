"""Passes that all shards make together, meeting where they put something together.

A shard's half of a pass is a generator of *steps*. At a meeting it yields a list of parts, one for each shard, and
receives the parts that all shards have made for it. Then it yields one answer and receives the answers of all. All
shards meet equally often: what they decide from answers, they decide alike. The coordinator has no part in it: it only
has the shards begin the pass (:class:`~raydt.exchange.messages.Combine`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from raydt.exchange.messages import COMBINED, GO_ON, Combine, Ended, Exchange, Payload

T = TypeVar("T")

#: A shard's half of a pass: yields parts and answers by turns, receives those of all shards, returns a result.
Steps = Generator[Any, Any, T]

#: A shard's half of a pass as others see it: yields what it has for each shard, receives what each has for it.
Swaps = Generator[list[Any], list[Any], T]


def together(method: str, payload: Payload, each: Sequence[Payload] | None = None) -> Exchange[list[Ended]]:
    """Have all shards make a pass, which they begin on the request ``method``; returns how it ended at each."""
    return (yield Combine(method, payload, each))


def swaps(handle: Callable[[str, Payload], Any], method: str, payload: Payload) -> Swaps[Ended]:
    """Make a pass by the requests that ``handle`` answers for one shard; returns how it ended."""
    parts = handle(method, payload)
    while not isinstance(parts, Ended):
        answer = handle(COMBINED, {"parts": (yield list(parts))})
        parts = handle(GO_ON, {"answers": (yield [answer] * len(parts))})
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

    def receive(self, method: str, payload: Payload) -> Any:
        """Take :data:`COMBINED` and return the answer, or :data:`GO_ON` and return as :meth:`begin`."""
        self._met += method == GO_ON
        return self._step(payload["parts" if method == COMBINED else "answers"])

    def _step(self, received: Any) -> Any:
        assert self._steps is not None
        try:
            return self._steps.send(received)
        except StopIteration as end:
            self._steps = None
            return Ended(end.value, self._met)


def alone(steps: Steps[T]) -> T:
    """Make a pass that no other shard takes part in."""
    try:
        parts = next(steps)
        while True:
            parts = steps.send([steps.send(parts)])
    except StopIteration as end:
        result: T = end.value
        return result
