"""The in-process driver: delivers messages to shards by direct calls, to all at once in as many threads as may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from raydt.exchange.messages import Ask, Exchange, in_requests
from raydt.exchange.shard import FeatureShard
from raydt.parallel.threads import run

T = TypeVar("T")


class Traffic:
    """Counts of a driver: rounds with the shards and payload bytes both ways."""

    def __init__(self) -> None:
        self.rounds = 0
        self.bytes = 0

    def count(self, *values: Any) -> None:
        """Add the array bytes found in ``values``."""
        for value in values:
            if isinstance(value, np.ndarray):  # most are, and to ask for a Mapping takes longer than a small update
                self.bytes += value.nbytes
            elif isinstance(value, (list, tuple)):
                self.count(*value)
            elif isinstance(value, Mapping):
                self.count(*value.values())
            else:
                self.bytes += int(getattr(value, "nbytes", 0))


class InProcessDriver:
    """Runs a coordinator's generators against shards in the same process, by direct calls."""

    def __init__(self, shards: Sequence[FeatureShard]) -> None:
        self.shards = list(shards)
        self.traffic = Traffic()

    def run(self, exchange: Exchange[T]) -> T:
        """Drive ``exchange`` to its end and return its result."""
        exchange = in_requests(exchange)
        try:
            request = next(exchange)
            while True:
                request = exchange.send(self._ask(request))
        except StopIteration as end:
            result: T = end.value
            return result

    def _ask(self, request: Ask) -> list[Any]:
        """Deliver a request to all shards; returns the replies in shard order."""
        payloads = [request.for_shard(index) for index in range(len(self.shards))]
        replies = run(
            [
                partial(shard.receive, shard.epoch, shard.seq + 1, request.method, payload)
                for shard, payload in zip(self.shards, payloads, strict=True)
            ]
        )
        self.traffic.count(payloads, replies)
        self.traffic.rounds += 1
        return replies
