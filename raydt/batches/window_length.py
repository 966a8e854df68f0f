"""Speculation: a window of steps is processed as if none of them changed the model, then rolled back where one did.

One step may change a model (a split, a rebuild, a tree to be retrained) so that later steps take another path, and only
the shards can tell. To ask them step by step would take a round of messages for each. Instead:

1. The coordinator *processes a window* of steps through the model as it is, and in one round so do the shards.
2. Their replies show the *first change*: the first step after which the model has to change.
3. Coordinator and shards *roll back* every step after it whose path the change alters. The coordinator does so at once,
   the shards with their next message. What is counted is integers, so that counting out is exact.
4. The model changes, and a later window *processes again* what was rolled back.

A result is therefore that of one step at a time, whatever the windows are. A *window* should reach about as far as the
next change: what lies behind it is work for nothing, and each window costs a round.

The learners differ in what they roll back: all later steps, those at the changed leaf only, or, where an update passes
through many trees, all later iterations.
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
