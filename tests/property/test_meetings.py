"""Whatever shards have for each other, and in whatever order it arrives: each gets its parts, or their sum.

In O(log S) messages, and hardly more bytes than there have to be.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.exchange.links import Frame, Links, packed
from raydt.exchange.meetings import AllGather, ReduceScatter, neighbours, skips_of
from raydt.learners.gbdt.histograms import add_packed, joined_packed
from raydt.learners.gbdt.histograms import pack as pack_kernel
from raydt.learners.gbdt.shard import in_both
from tests.meetings import met
from tests.volume import by_night, examples

KINDS = ("sums", "the same to all", "all to all")


def cut(draw: random.Random, total: int, shards: int) -> list[int]:
    """Cut so many elements into a part for each shard: evenly, or anywhere."""
    if draw.random() < 0.5:
        ends = [total * shard // shards for shard in range(1, shards)]
    else:
        ends = sorted(draw.randint(0, total) for _ in range(shards - 1))
    return [end - begin for begin, end in pairwise([0, *ends, total])]


def made_by_each(kind: str, shards: int, draw: random.Random) -> list[Any]:
    """What each shard has for a meeting: no element, fewer than shards, or more; also arrays by name."""
    rng = np.random.default_rng(draw.randrange(1 << 30))
    most = draw.choice((0, 1, max(0, shards - 1), shards, 3 * shards + 1))
    if kind == "sums":
        sizes = cut(draw, most, shards)
        return [ReduceScatter([rng.integers(-(2**62), 2**62, n) for n in sizes], np.add) for _ in range(shards)]

    def part() -> Any:
        numbers = rng.integers(0, 9, draw.randint(0, 3))
        if draw.random() < 0.8:
            return numbers
        return {"a": numbers.astype(np.float64).reshape(-1, 1), "b c": np.array(draw.random() < 0.5)}

    if kind == "the same to all":
        return [AllGather(part(), shards) for _ in range(shards)]
    return [[part() for _ in range(shards)] for _ in range(shards)]


def exactly(part: Any) -> Any:
    if isinstance(part, np.ndarray):
        return part.dtype.str, part.shape, part.tolist()
    return {name: exactly(array) for name, array in part.items()}


@examples(120, least=12)
@given(st.one_of(st.integers(1, 20), st.integers(1, 300)), st.lists(st.sampled_from(KINDS), max_size=4), st.randoms())
def test_each_shard_gets_its_parts_or_their_sum(shards: int, kinds: list[str], draw: Any) -> None:
    if shards > 64:
        kinds = kinds[:2]
    meetings = [made_by_each(kind, shards, draw) for kind in kinds]
    sent: Counter[int] = Counter()
    links = [Links(index, shards, 3) for index in range(shards)]
    received = met(links, meetings, draw, lambda sender, *_: sent.update([sender]))
    rounds = math.ceil(math.log2(shards)) if shards > 1 else 0
    assert sent == Counter(dict.fromkeys(range(shards), rounds * len(kinds)) if rounds and kinds else {})
    for kind, made, got in zip(kinds, meetings, received, strict=True):
        for index in range(shards):
            wanted = [parts[index] for parts in made]
            if kind == "sums":
                (found,) = got[index]
                assert found.tolist() == np.sum(wanted, axis=0, dtype=np.int64).tolist()
            else:
                assert [*map(exactly, got[index])] == [*map(exactly, wanted)]


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 100, 255, 256, 257, 1000, 4096])
def test_a_shard_speaks_to_few_others_and_these_to_it(shards: int) -> None:
    rounds = math.ceil(math.log2(shards)) if shards > 1 else 0
    skips = skips_of(shards)
    assert len(skips) == rounds
    assert sum(former - skip for skip, former in skips) == shards - 1
    of_each = [set(neighbours(index, shards)) for index in range(shards)]
    for index, peers in enumerate(of_each):
        assert index not in peers
        assert len(peers) == min(shards - 1, len(peers)) <= 2 * rounds
        assert all(index in of_each[peer] for peer in peers)


@pytest.mark.parametrize("shards", by_night([2, 3, 8, 31], [64, 100, 257]))
def test_a_level_of_a_tree_takes_few_messages_and_hardly_more_bytes_than_there_have_to_be(shards: int) -> None:
    """Histograms of 51,000 segments are added up, and each owner tells all the best of 31 nodes."""
    rng, ends = np.random.default_rng(0), [2 * 51_000 * shard // shards for shard in range(shards + 1)]
    of_each = [rng.integers(0, 1 << 40, ends[-1]) for _ in range(shards)]
    parts = [[own[begin:end] for begin, end in pairwise(ends)] for own in of_each]
    best = [rng.integers(0, 1 << 40, 31 * 8) for _ in range(shards)]
    meetings: list[list[Any]] = [
        [ReduceScatter(own, np.add) for own in parts],
        [AllGather(own, shards) for own in best],
    ]
    messages: Counter[int] = Counter()
    sent: Counter[int] = Counter()

    def note(sender: int, to: int, frame: Frame) -> None:
        messages[sender] += 1
        sent[sender] += sum(map(len, packed(frame)))

    links = [Links(index, shards, 3) for index in range(shards)]
    received = met(links, meetings, random.Random(shards), note)
    assert [sums[0].tolist() for sums in received[0]] == [
        total.tolist() for total in np.split(np.sum(of_each, axis=0), ends[1:-1])
    ]
    assert all(np.array_equal(np.stack(found), np.stack(best)) for found in received[1])
    assert set(messages.values()) == {2 * math.ceil(math.log2(shards))}
    least = 8 * ends[-1] * (shards - 1) / shards + (shards - 1) * best[0].nbytes
    assert max(sent.values()) <= 1.2 * least


# -- what is added on its way ----------------------------------------------------------------------------------------


def packed_by(rng: np.random.Generator, nodes: int, width: int, head: int) -> Any:
    """What one shard sends an owner of so many segments: of some of the nodes, in any order."""
    which = rng.permutation(nodes)[: rng.integers(0, nodes + 1)]
    sums, out = rng.integers(-(2**40), 2**40, (nodes, width, 2)), np.empty(head + 1 + len(which) * (1 + 2 * width), int)
    pack_kernel(rng.integers(-9, 9, head), which, which, sums, np.array([0, width]), out)
    return out


@examples(120, least=20)
@given(st.integers(1, 7), st.integers(0, 4), st.integers(0, 3), st.sampled_from((0, 2, 5)), st.integers(0, 1 << 30))
def test_histograms_may_be_added_on_their_way(shards: int, nodes: int, width: int, head: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [packed_by(rng, nodes, width, head) for _ in range(shards)]

    def added(packed: Any) -> tuple[Any, Any]:
        sums, into = np.empty(head, dtype=np.int64), np.zeros((nodes, width, 2), dtype=np.int64)
        add_packed(packed, sums, into, 0, width)
        return sums.tolist(), into.tolist()

    before = [part.copy() for part in parts]
    joined = reduce(partial(joined_packed, head=head), [parts[i] for i in rng.permutation(shards)])
    assert added(joined) == added(np.concatenate(parts))
    assert all(np.array_equal(part, former) for part, former in zip(parts, before, strict=True))
    same = parts[0][head + 1 : head + 1 + parts[0][head]]
    twice = joined_packed(parts[0], parts[0], head)
    assert len(twice) == len(parts[0])
    assert twice[head + 1 : head + 1 + len(same)].tolist() == same.tolist()


@given(st.lists(st.one_of(st.just([]), st.lists(st.booleans(), min_size=8, max_size=8)), min_size=1, max_size=5))
def test_masks_may_be_put_together_on_their_way(masks: list[list[bool]]) -> None:
    wanted = [all(mask[i] for mask in masks if mask) for i in range(8)]
    found = reduce(in_both, [np.packbits(np.array(mask, dtype=np.bool_)) for mask in masks])
    assert np.unpackbits(found).tolist() == (wanted if any(masks) else [])
