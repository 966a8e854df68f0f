"""Speculation: a window of steps is processed as if none of them changed the model, then rolled back where one did.

Only the shards can tell whether a step changes the model. One round of messages serves all steps of a window: the
replies show the first step that does, and the steps after it whose path the change alters are rolled back and processed
again. What is counted is integers, so a result is that of one step at a time. A window should reach about as far as the
next change: what lies behind it is work for nothing, and each window costs a round.
"""

from __future__ import annotations


class WindowLength:
    """Number of steps of the next window: halved by a change, doubled without one."""

    def __init__(self, shortest: int, longest: int, first: int) -> None:
        self._shortest, self._longest = shortest, longest
        self.steps = first

    def adapt(self, *, changed: bool) -> None:
        """Choose the length of the next window by whether the last one changed the model."""
        self.steps = max(self._shortest, self.steps // 2) if changed else min(self._longest, 2 * self.steps)
