"""Shards that meet over links, as processes do: frames between two arrive in order, all else happens in any order."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from raydt.exchange.links import Frame, InProcessDriver, Links, NumberedShard
from raydt.exchange.messages import MET, Ask, Combine, EndOfPass


def met(
    links: Sequence[Links],
    meetings: Sequence[Sequence[Any]],
    draw: random.Random,
    note: Callable[[int, int, Frame], None] = lambda *_: None,
) -> list[list[Any]]:
    """Return what each shard receives at each meeting; ``note`` hears of each frame, with its sender and receiver.

    A shard begins the next meeting at any time after the end of the one before, whether others are there or not.
    """
    received: list[list[Any]] = [[None] * len(links) for _ in meetings]
    under_way: dict[tuple[int, int], deque[Frame]] = defaultdict(deque)
    place, happens = [0] * len(links), [(-1, index) for index in range(len(links) if meetings else 0)]
    while happens:
        at = draw.randrange(len(happens))
        happens[at], happens[-1] = happens[-1], happens[at]
        sender, index = happens.pop()
        if sender < 0:
            frames = links[index].begin(meetings[place[index]][index])
        else:
            assert links[index].receive(sender, under_way[sender, index].popleft())
            frames = links[index].proceed()
        for to, frame in frames:
            note(index, to, frame)
            under_way[index, to].append(frame)
            happens.append((index, to))
        if (parts := links[index].complete()) is not None:
            received[place[index]][index] = parts
            place[index] += 1
            if place[index] < len(meetings):
                happens.append((-1, index))
    assert place == [len(meetings)] * len(links), "some shards wait for ever"
    return received


class LadderDriver(InProcessDriver):
    """Delivers requests by calls, and has shards meet over links."""

    def __init__(self, shards: Sequence[NumberedShard], seed: int) -> None:
        super().__init__(shards)
        self.links = [Links(index, len(shards), 1) for index in range(len(shards))]
        self._draw = random.Random(seed)

    def _met(self, request: Ask) -> list[Any]:
        replies = self._ask(request)
        while isinstance(request, Combine) and not isinstance(replies[0], EndOfPass):
            (received,) = met(self.links, [replies], self._draw)
            replies = self._ask(Ask(MET, {}, [{"parts": parts} for parts in received]))
        return replies
