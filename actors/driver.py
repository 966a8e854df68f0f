"""The Ray driver of the exchange: one round is one call to every process of shards and one reply from each.

On a pass (``Combine``) processes meet over a channel of their own, which is opened before the first one.

Invariant: one message is outstanding at each shard. A ``Tell`` is not waited for when it is sent, but before the
next message is. Messages are numbered within an epoch; nothing is ever sent twice, and Ray retries nothing.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import ray

from actors.liveness import Peer, Watch
from actors.writable import own
from raydt.exchange.driver import Traffic
from raydt.exchange.messages import Ask, Combine, Ended, Exchange, Payload, Tell

T = TypeVar("T")

#: From this size on, what several shards receive alike is put into the object store once.
PUT_BYTES = 1_000_000

#: Length of the secret by which shards of one session know each other.
SECRET_BYTES = 32


class RayDriver:
    """Runs generators against shard actors that have begun ``epoch``, one message to each, in shard order."""

    def __init__(self, shards: Sequence[Peer], epoch: int, watch: Watch) -> None:
        self.shards = list(shards)
        self.traffic = Traffic()
        self._epoch, self._seq = epoch, 0
        self._watch = watch
        self._unanswered: list[Any] = []
        self._connected = False  # the shards have a channel

    def run(self, exchange: Exchange[T]) -> T:
        """Drive ``exchange`` to its end; after an error of it or a shard the model is at no defined position."""
        try:
            request = next(exchange)
            while True:
                self.acknowledge()
                calls = self._send(request)
                self.traffic.rounds += 1
                replies: list[Any] = []
                if isinstance(request, Tell):
                    self._unanswered = calls
                else:
                    found = [own(of_process) for of_process in self._watch.collect(calls, self.shards)]
                    self.traffic.count(found)
                    of_each = self._ended(found) if isinstance(request, Combine) else found
                    replies = [reply for of_process in of_each for reply in of_process]
                del calls  # a reference kept over the next round keeps its payload in the object store
                request = exchange.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result

    def acknowledge(self) -> None:
        """Wait until every shard has done the last request."""
        unanswered, self._unanswered = self._unanswered, []
        if unanswered:
            self._watch.collect(unanswered, self.shards)

    def _ended(self, found: list[tuple[list[Ended], int]]) -> list[list[Ended]]:
        """Count what processes have sent each other on a pass, a round for each meeting; returns how it ended."""
        ended = [of_process for of_process, _ in found]
        self.traffic.rounds += ended[0][0].met
        self.traffic.bytes += sum(sent for _, sent in found)
        return ended

    def _connect(self) -> None:
        """Have the processes open channels to each other. Nobody else gets to know their secret."""
        loopback = all(shard.pid is not None for shard in self.shards)
        listening = [shard.handle.listen.remote(loopback) for shard in self.shards]
        addresses, secret = self._watch.collect(listening, self.shards), secrets.token_bytes(SECRET_BYTES)
        self._watch.collect([shard.handle.connect.remote(addresses, secret) for shard in self.shards], self.shards)
        self._connected = True

    def _send(self, request: Ask) -> list[Any]:
        if isinstance(request, Combine) and not self._connected:
            self._connect()
        self._seq += 1
        shared: Any = request.payload
        if len(self.shards) > 1 and _size(shared) >= PUT_BYTES:
            shared = ray.put(dict(request.payload))
        calls, payloads = [], iter(request.each) if request.each is not None else itertools.repeat({})
        for shard in self.shards:
            each: list[Payload] = list(itertools.islice(payloads, shard.shards))
            self.traffic.count(request.payload, each)
            method = shard.handle.combine if isinstance(request, Combine) else shard.handle.receive
            calls.append(method.remote(self._epoch, self._seq, request.method, shared, each))
        return calls


def _size(payload: Mapping[str, Any]) -> int:
    traffic = Traffic()
    traffic.count(payload)
    return traffic.bytes
