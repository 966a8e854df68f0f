"""Meetings of S shards: the messages of each, O(log S) a meeting, and their receivers; without I/O.

A shard speaks to those that lie a *skip* before and after it in the ring of all S shards; skips are S / 2, S / 4, ...,
1, each rounded up. What a shard has for the one i places further is its block i. In the round of a skip s, whose former
one is s' (at first S), the blocks s to before s' go to the shard s further, where they are 0 to before s' - s. For
six shards:

    skip   blocks sent   then left
       3     3, 4, 5      0, 1, 2
       2           2         0, 1
       1           1            0

So a shard sends S - 1 blocks, which is the least there is, in ceil(log2 S) messages, for any number of shards. Parts
to be added up are one block (:class:`ReduceScatter`); others lie side by side in a block, and go by as many rounds as
their way has skips. To tell all shards the same (:class:`AllGather`), the rounds are taken backwards.

Source: J. L. Träff, Optimal, non-pipelined reduce-scatter and allreduce algorithms, 2024, Algorithm 1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.elementary import AnyArray
from raydt.errors import ExchangeError
from raydt.messages import message

#: An array, or arrays by name.
Content = AnyArray | Mapping[str, AnyArray]


class AllGather(list[Any]):
    """The part of a shard for a meeting, one and the same for all ``shards``."""

    def __init__(self, part: Content, shards: int) -> None:
        super().__init__([part] * shards)


class ReduceScatter(list[Any]):
    """Parts of a shard for a meeting of which each receiver wants the sum only: some are added on their way.

    ``add`` returns the sum of two parts for the same receiver, in new arrays; it commutes, and is associative.
    """

    def __init__(self, parts: Sequence[Content], add: Callable[[Any, Any], Any]) -> None:
        super().__init__(parts)
        self.add = add


class Round(NamedTuple):
    """One round of a meeting: what goes to a shard, and which shard is to be heard before the next round."""

    to: int
    content: Content
    sender: int


#: A shard's half of a meeting: yields rounds, receives the content of each sender, returns the parts for this shard.
Rounds = Generator[Round, Any, list[Any]]


def skips_of(shards: int) -> list[tuple[int, int]]:
    """Return for each round its skip and the one before: of six shards (3, 6), (2, 3) and (1, 2)."""
    found = list[tuple[int, int]]()
    while shards > 1:
        found.append(((shards + 1) // 2, shards))
        shards = found[-1][0]
    return found


def neighbours(index: int, shards: int) -> list[int]:
    """Return the shards to which one speaks, ascending: at most 2 ceil(log2 S)."""
    return sorted({(index + way) % shards for skip, _ in skips_of(shards) for way in (skip, -skip)})


def rounds(index: int, shards: int, parts: Sequence[Any]) -> Rounds:
    """Meet as one of so many shards, with a part for each; returns what the shards have for this one, in their order.

    Of a :class:`ReduceScatter` that is the sum alone.
    """
    if isinstance(parts, AllGather):
        return _gathered(index, shards, parts[index])
    if isinstance(parts, ReduceScatter):
        return _reduced(index, shards, parts)
    return _dealt(index, shards, parts)


def _gathered(index: int, shards: int, mine: Any) -> Rounds:
    blocks = [mine]
    for skip, former in reversed(skips_of(shards)):
        given = yield Round((index - skip) % shards, bundled(blocks[: former - skip]), (index + skip) % shards)
        blocks += unbundled(given, former - skip)
    return [blocks[(shard - index) % shards] for shard in range(shards)]


def _reduced(index: int, shards: int, parts: ReduceScatter) -> Rounds:
    blocks = [parts[(index + i) % shards] for i in range(shards)]
    for skip, former in skips_of(shards):
        given = yield Round((index + skip) % shards, bundled(blocks[skip:]), (index - skip) % shards)
        del blocks[skip:]
        for i, theirs in enumerate(unbundled(given, former - skip)):
            blocks[i] = parts.add(blocks[i], theirs)
    return blocks


def _dealt(index: int, shards: int, parts: Sequence[Any]) -> Rounds:
    # The parts of a block, by how far their makers lie before the shard that has the block: alike at all shards.
    blocks = [{0: parts[(index + i) % shards]} for i in range(shards)]
    for skip, _ in skips_of(shards):
        sent = [part for block in blocks[skip:] for part in block.values()]
        given = yield Round((index + skip) % shards, bundled(sent), (index - skip) % shards)
        theirs = iter(unbundled(given, len(sent)))
        for block, alike in zip(blocks, blocks[skip:], strict=False):
            block.update({way + skip: next(theirs) for way in alike})
        del blocks[skip:]
    return [blocks[0][(index - shard) % shards] for shard in range(shards)]


def swap_together(
    swap: Callable[[Sequence[Content]], Sequence[Content]], made: Sequence[Sequence[Content]]
) -> list[list[Content]]:
    """Meet with what each shard here has for all, by a ``swap`` of processes that have as many; returns what each gets.

    Processes send each other what their shards together have for those of another.
    """
    n, first = len(made), made[0]
    if n == 1:
        return [list(swap(first))]
    begins = range(0, len(first), n)
    if isinstance(first, AllGather):
        given = swap(AllGather(bundled([parts[0] for parts in made]), len(begins)))
        return [[part for bundle in given for part in unbundled(bundle, n)] for _ in made]
    if isinstance(first, ReduceScatter):
        add = first.add
        sums = [reduce(add, of_one) for of_one in zip(*made, strict=True)]

        def together(ours: Content, theirs: Content) -> Content:
            return bundled([*map(add, unbundled(ours, n), unbundled(theirs, n))])

        given = swap(ReduceScatter([bundled(sums[begin : begin + n]) for begin in begins], together))
        return [list(of_one) for of_one in zip(*(unbundled(bundle, n) for bundle in given), strict=True)]
    given = swap([bundled([part for parts in made for part in parts[begin : begin + n]]) for begin in begins])
    dealt = [part for bundle in given for part in unbundled(bundle, n * n)]
    return [dealt[place::n] for place in range(n)]


# Several contents as one: an array for each kind of numbers, which has those of all, and one that describes them.
#
# A frame describes its arrays as text, which would take longer to read than small arrays to send. Most contents are
# arrays that differ in their length only: of these the lengths say all.

#: Stands for the number of arrays of a content that is an array itself, and not some by names.
_BARE = -1
_LENGTHS = "lengths"


def bundled(contents: Sequence[Content]) -> dict[str, AnyArray]:
    """Return contents as one. O(bytes), or without a copy where each kind of numbers is in one array only."""
    some: Sequence[Any] = contents
    first = some[0]
    if isinstance(first, np.ndarray) and all(_differ_in_length_only(first, one) for one in some):
        values = first if len(some) == 1 else np.concatenate(some, dtype=first.dtype)
        return {_LENGTHS: np.array([len(one) for one in some]), "": values}
    names, kinds = dict[str, int](), dict[str, list[AnyArray]]()
    described = list[int]()
    for content in contents:
        bare = isinstance(content, np.ndarray)
        named: Mapping[str, Any] = {"": content} if bare else content  # type: ignore[assignment]
        described.append(_BARE if bare else len(named))
        for name, given in named.items():
            array = np.asarray(given)
            kind = array.dtype.str
            kinds.setdefault(kind, []).append(array.reshape(-1))
            described += names.setdefault(name, len(names)), [*kinds].index(kind), array.ndim, *array.shape
    joined = {kind: one[0] if len(one) == 1 else np.concatenate(one, dtype=kind) for kind, one in kinds.items()}
    return {json.dumps([*names]): np.array(described, dtype=np.int64), **joined}


def _differ_in_length_only(first: AnyArray, one: Any) -> bool:
    return isinstance(one, np.ndarray) and one.ndim > 0 and (one.dtype, one.shape[1:]) == (first.dtype, first.shape[1:])


def unbundled(bundle: Any, count: int) -> list[Any]:
    """Return the ``count`` contents of a bundle, as views; ExchangeError if it is none, or does not have as many."""
    try:
        (text, described), *kinds = bundle.items()
        if text == _LENGTHS:
            ((_, values),), ends = kinds, np.cumsum(described).tolist()
            _require(len(ends) == count and described.min() >= 0 and ends[-1] == len(values))
            return [values[begin:end] for begin, end in pairwise([0, *ends])]
        names, numbers, at = json.loads(text), described.tolist(), 0
        contents, ends = list[Any](), [0] * len(kinds)
        while at < len(numbers):
            arrays, at, named = numbers[at], at + 1, dict[str, AnyArray]()
            for _ in range(abs(arrays)):
                name, kind, dimensions = numbers[at : at + 3]
                shape = numbers[at + 3 : at + 3 + dimensions]
                at += 3 + dimensions
                begin, ends[kind] = ends[kind], ends[kind] + math.prod(shape)
                named[names[name]] = kinds[kind][1][begin : ends[kind]].reshape(shape)
            contents.append(named if arrays != _BARE else named.popitem()[1])
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ExchangeError(message("exchange.no_frame")) from error
    _require(len(contents) == count)
    return contents


def _require(holds: bool) -> None:
    if not holds:
        raise ExchangeError(message("exchange.no_frame"))
