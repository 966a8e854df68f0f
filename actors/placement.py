"""The place of the work of a run, and how many shards a cluster has room for: an actor lies on one node as a whole.

The rule is Ray's for bundles that are spread (:meth:`actors.cluster.Cluster.reserve`), so that a job asks for what Ray
will find: the largest bundle first, each on the node of which most is left, and on a node that has one already only if
no other has room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from actors.cluster import Bundle
from raydt.learners.base import WorkPlan


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of the work of a run: its processes, and why there are so many."""

    shards: int | None  #: number of shards; None until it is known what the cluster has free
    where: str  #: who does the work, and why, in one sentence
    advice: str = ""  #: what to set instead; empty if nothing
    plan: WorkPlan = field(default_factory=WorkPlan)  #: from which size on shards do it
    divided: bool = False  #: whether shards may do some of it, as far as is known before

    def in_words(self) -> str:
        """Return the sentence, with the advice if there is some."""
        return f"{self.where}. {self.advice}" if self.advice else self.where


def shards_with_room(nodes: Sequence[Bundle], coordinator: Bundle, shard: Bundle, most: int) -> int:
    """Return how many shards, at most ``most``, the free ``nodes`` have room for beside a coordinator."""
    fitting = (count for count in range(most, 0, -1) if have_room(nodes, [coordinator] + [shard] * count))
    return next(fitting, 0)


def have_room(nodes: Sequence[Bundle], requested: Sequence[Bundle]) -> bool:
    """Return True if all bundles find a node. O(bundles x nodes)."""
    left, used = [dict(node) for node in nodes], set[int]()
    names = sorted({name for bundle in requested for name in bundle}, key=_rank)
    for bundle in sorted(requested, key=lambda bundle: [bundle.get(name, 0) for name in names], reverse=True):
        asked = {name: amount for name, amount in bundle.items() if amount}
        chosen = _emptiest(left, set(range(len(left))) - used, asked)
        if chosen is None:
            chosen = _emptiest(left, used, asked)
        if chosen is None:
            return False
        used.add(chosen)
        for name, amount in asked.items():
            left[chosen][name] -= amount
    return True


def _rank(name: str) -> tuple[bool, bool, bool, str]:
    """Return the order in which resources decide which bundle is larger: GPUs, others by name, memory, CPUs."""
    return name == "CPU", name == "memory", name != "GPU", name


def _emptiest(left: Sequence[Bundle], among: Iterable[int], asked: Bundle) -> int | None:
    """The node that keeps the largest share of what is asked of it; None if none has enough."""
    shares = {
        node: sum((left[node][name] - amount) / left[node][name] for name, amount in asked.items())
        for node in sorted(among)
        if all(left[node].get(name, 0) >= amount for name, amount in asked.items())
    }
    return max(shares, key=shares.__getitem__, default=None)
