"""The in-process driver: delivers a coordinator's messages to shards by direct calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from raydt.exchange.messages import Exchange
from raydt.exchange.shard import FeatureShard

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
        replies: list[Any] = []
        try:
            request = next(exchange)
            while True:
                replies = []
                for index, shard in enumerate(self.shards):
                    payload = request.for_shard(index)
                    reply = shard.receive(shard.epoch, shard.seq + 1, request.method, payload)
                    self.traffic.count(payload, reply)
                    replies.append(reply)
                self.traffic.rounds += 1
                request = exchange.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result
