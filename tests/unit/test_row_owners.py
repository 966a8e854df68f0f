"""Rows by owner: admission and digests are those of one store and one tree, for any number of owners."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.examples.admission import nothing_admitted
from raydt.examples.bucket_digest import BucketDigest, joined_root
from raydt.examples.owned_store import OwnedStore
from raydt.examples.row_digest import record_of
from raydt.examples.row_owners import (
    BUCKETS,
    RowOwners,
    buckets_in,
    buckets_of,
    component_of,
    joined_buckets,
    parts_for,
)
from raydt.examples.store import ExampleStore
from raydt.examples.targets import CODES
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE
from raydt.exchange.messages import Buckets
from tests.oracles.digests import key_of, row_root
from tests.volume import examples

OWNERS = (1, 2, 3, 5, 8, 16, 300)


@pytest.mark.parametrize("shards", OWNERS)
def test_owners_and_slots(shards: int) -> None:
    owners, ids = RowOwners(shards), np.arange(5_000, dtype=np.int64) * 7
    assert buckets_of(ids).tolist() == [key_of(number) >> 56 for number in ids.tolist()]
    assert sorted(b for shard in range(shards) for b in owners.buckets(shard)) == list(range(BUCKETS))
    for shard in range(shards):
        for pieces in (0, 1, 3, 400):
            cut = owners.pieces(shard, pieces)
            assert len(cut) == min(max(1, pieces), len(owners.buckets(shard)))
            assert [bucket for piece in cut for bucket in piece] == list(owners.buckets(shard))
        own = ids[owners.of(ids) == shard]
        assert all(b in set(owners.buckets(shard)) for b in buckets_of(own).tolist())
    slots = owners.first_slots(ids)
    assert len(np.unique(slots)) == len(ids)
    assert (owners.shard_of(slots) == owners.of(ids)).all()
    for shard in range(shards):
        own = slots[owners.shard_of(slots) == shard]
        assert owners.local(own).tolist() == list(range(len(own)))
        assert owners.slots(owners.local(own), shard).tolist() == own.tolist()
        assert len(own) <= owners.local_capacity(int(slots.max()) + 1)


#: Updates of few ids, so that many are refused.
UPDATES = st.lists(
    st.tuples(st.sampled_from([INSERT, INSERT, DELETE, UPDATE, QUERY, DELETE_VALUE]), st.integers(0, 11)), max_size=40
)


class Fed:
    """A store and what it was told of each example."""

    def __init__(self, store: Any) -> None:
        self.store, self.seq = store, 0

    def feed(self, op: np.ndarray, ids: np.ndarray, skip: bool) -> list[Any]:
        """Apply updates as a coordinator does; returns what is decided of each, slots replaced by births."""
        store, m = self.store, len(op)
        if isinstance(store, OwnedStore):
            store.reserve_for(ids)
        else:
            store.reserve(m)
        admitted, begin, told = nothing_admitted(op), 0, []
        while begin < m:
            changes = store.changes
            stop = store.admit(op, ids, begin, skip, admitted)
            assert (admitted.old[begin:stop] < 0).all() or store.changes > changes
            added = begin + np.flatnonzero(admitted.new[begin:stop] >= 0)
            store.born[admitted.new[added]] = self.seq + added
            store.y[admitted.new[added]] = (self.seq + added) % 3
            if stop < m and not admitted.fault[stop]:
                assert op[stop] == DELETE_VALUE
                live = store.in_order_of_birth()
                if len(live):
                    admitted.old[stop] = live[0]
                    store.discard(int(live[0]))
            elif stop < m and not skip:
                begin = stop
                break
            begin = stop + 1
        gone = admitted.old[admitted.old >= 0]
        told = [admitted.fault.tolist(), store.born[gone].tolist(), store.id[gone].tolist(), store.y[gone].tolist()]
        store.release(gone)
        self.seq += m
        live = store.in_order_of_birth()
        found = store.find(ids)
        born = np.where(found >= 0, store.born[np.maximum(found, 0)] if len(live) else -1, -1)
        told += [begin, store.live, store.born[live].tolist(), store.id[live].tolist(), store.y[live].tolist()]
        return [*told, born.tolist(), sorted(store.slots().tolist()) == sorted(live.tolist())]


@given(st.lists(st.tuples(UPDATES, st.booleans()), max_size=4), st.sampled_from(OWNERS))
@examples(150)
def test_every_update_is_decided_as_by_one_store(batches: Any, shards: int) -> None:
    one, many = Fed(ExampleStore(0, None, CODES)), Fed(OwnedStore(RowOwners(shards), CODES))
    for updates, skip in batches:
        op, ids = (np.array(column) for column in zip(*updates, strict=True)) if updates else (np.empty(0),) * 2
        given_updates = op.astype(np.int8), ids.astype(np.int64), skip
        assert many.feed(*given_updates) == one.feed(*given_updates)


def test_examples_that_are_filled_in_are_those_of_one_store() -> None:
    ids, listed = np.array([5, 3, 5, 8], dtype=np.int64), np.array([False, True, True, True])
    y, born = np.array([0, 1, 2, 0], dtype=CODES), np.array([1, 4, 6, 9], dtype=np.int64)
    for shards in OWNERS:
        store = OwnedStore(RowOwners(shards), CODES)
        store.fill(ids, y, born, listed)
        slots = store.first_slots(ids)
        assert store.live == 3
        assert [column[slots].tolist() for column in (store.id, store.y, store.born)] == [
            ids.tolist(), y.tolist(), born.tolist()
        ]  # fmt: skip
        assert store.find(np.array([5, 3, 8, 9])).tolist() == [*slots[[2, 1, 3]].tolist(), -1]


class Shards:
    """Rows by owner, and their hashes."""

    def __init__(self, shards: int) -> None:
        self.owners, self.digests = RowOwners(shards), [BucketDigest() for _ in range(shards)]
        self.ids, self.values = [np.empty(0, np.int64)] * shards, [np.empty(0, np.int64)] * shards
        self.live = [np.empty(0, bool)] * shards

    def change(self, rows: dict[int, int | None]) -> None:
        """Insert, change (in another slot) or delete rows."""
        for number, value in rows.items():
            shard = int(self.owners.of(np.array([number]))[0])
            former = np.flatnonzero(self.live[shard] & (self.ids[shard] == number)).astype(np.int32)
            self.digests[shard].note(self.ids[shard][former], former)
            self.live[shard][former] = False
            if value is not None:
                slot = np.array([len(self.ids[shard])], dtype=np.int32)
                self.ids[shard] = np.append(self.ids[shard], number)
                self.values[shard] = np.append(self.values[shard], value)
                self.live[shard] = np.append(self.live[shard], True)
                self.digests[shard].note(self.ids[shard][slot], slot)

    def root(self) -> bytes:
        parts = []
        for shard, digest in enumerate(self.digests):
            records = partial(record_of, lambda slots, shard=shard: {"value": self.values[shard][slots]})
            own = self.owners.buckets(shard)
            parts.append(digest.hashes(own, self.ids[shard], self.live[shard], records))
        return joined_root(parts, 16)


def slow_root(rows: dict[int, int]) -> bytes:
    return row_root({number: np.array([number, value], dtype="<i8").tobytes() for number, value in rows.items()})


@pytest.mark.parametrize("shards", OWNERS)
@pytest.mark.parametrize("most", [0, 1, 33, 40, 300, 700, 6_000])
def test_the_root_is_that_of_one_tree(shards: int, most: int) -> None:
    """Of none, few and many rows, as they change a little and much."""
    rng, fed, live = np.random.default_rng(most), Shards(shards), dict[int, int]()
    for change in (most, most // 50 + 1, most // 2, most // 50 + 1):
        drawn = rng.integers(0, 2 * most + 1, change).tolist()
        step = {int(number): None if rng.random() < 0.3 else int(rng.integers(0, 4)) for number in drawn}
        fed.change(step)
        live = {number: value for number, value in {**live, **step}.items() if value is not None}
        assert fed.root() == slow_root(live)


def test_parts_by_buckets_are_put_together() -> None:
    ids = np.arange(1_000, dtype=np.int64)
    leaf = np.arange(3_000).reshape(1_000, 3)
    for shards in (1, 2, 3, 16, 300):
        owners, parts = RowOwners(shards), {}
        for shard in range(shards):
            own = owners.of(ids) == shard
            if len(owners.buckets(shard)):
                parts[owners.buckets(shard)] = {"id": ids[own], "leaf": leaf[own]}
        assert joined_buckets(ids, parts).keys() == {"leaf"}
        assert (joined_buckets(ids, parts)["leaf"] == leaf).all()
        for other in (1, 2, 5):
            for shard in range(other):
                mine = RowOwners(other).buckets(shard)
                wanted = [part for part in parts if any(bucket in set(part) for bucket in mine)]
                assert parts_for([mine], parts) == wanted
        assert [buckets_in(component_of(part)) for part in parts] == list(parts)
    others = ("group-001", "coordinator", "buckets", "buckets-000", "buckets-5-", "buckets--5", "buckets-000-0256")
    assert [buckets_in(name) for name in others] == [None] * len(others)
    whole = Buckets(0, 256)
    right = {"id": ids, "leaf": leaf}
    for wrong in (
        {Buckets(0, 255): right},
        {whole: right | {"leaf": leaf[1:]}},
        {whole: right | {"id": ids[::-1]}},
        parts | {whole: right},
    ):
        with pytest.raises(ValueError, match="must have an entry for each"):
            joined_buckets(ids, wrong)
