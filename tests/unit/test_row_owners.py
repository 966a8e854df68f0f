"""Shards that own rows, who reads rows, and actors of several shards."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import shard as actor
from actors.liveness import Peer
from actors.session import RayDriver
from pipelines.config import Config
from pipelines.running.plans import features_of
from pipelines.saved_runs import open_stream
from pipelines.validation import divide, look_at, place
from raydt.examples import owned_rows
from raydt.examples.digest import BucketDigest, joined_root
from raydt.examples.owned_rows import NEVER, OwnedStore, slots_in_order
from raydt.examples.row_owners import (
    RowOwners,
    are_in,
    buckets_of,
    joined_buckets,
    joined_by_birth,
    parts_for,
    whole_nodes,
)
from raydt.examples.store import ExampleStore
from raydt.examples.updates import (
    CARRIES_ROW,
    CODES,
    DELETE,
    DELETE_VALUE,
    INSERT,
    QUERY,
    UPDATE,
    UpdateBatch,
    nothing_admitted,
)
from raydt.exchange.links import side_by_side
from raydt.exchange.messages import BUCKETS, Buckets, buckets_in, component_of
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.gbdt.shard import PendingRows
from raydt.learners.gbdt.update import NOT_PENDING, TO_DELETE, TO_INSERT, PendingUpdates
from raydt.messages import Message, message, text
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import DividedReading, Opening, open_source
from raydt.sources.options import Hyperplane
from raydt.streams.windows import SlidingWindow
from tests.crews import Handle, Waiting
from tests.oracles.digests import key_of, row_root
from tests.volume import examples

# -- row owners ------------------------------------------------------------------------------------------------------
# Rows by owner: admission and digests are those of one store and one tree, for any number of owners.

OWNERS = (1, 2, 3, 5, 8, 16, 300)
#: More than there have been buckets, and than there are.
MANY = (257, 1_000, 5_000)


@pytest.mark.parametrize("shards", OWNERS)
def test_owners_and_slots(shards: int) -> None:
    owners, ids = RowOwners(shards), np.arange(5_000, dtype=np.int64) * 7
    assert buckets_of(ids).tolist() == [key_of(number) >> 52 for number in ids.tolist()]
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


@pytest.mark.parametrize("shards", [*OWNERS, *MANY])
def test_as_many_shards_as_there_are_buckets_own_rows_and_about_as_many(shards: int) -> None:
    sizes = [len(buckets) for buckets in RowOwners(shards).of_all()]
    assert max(sizes) - min(sizes) <= 1
    assert sum(size > 0 for size in sizes) == min(shards, BUCKETS)
    owner, n = RowOwners(shards).of(np.arange(100_000, dtype=np.int64)), min(shards, BUCKETS)
    assert len(np.unique(owner)) == n


@given(st.integers(0, BUCKETS), st.integers(0, BUCKETS))
def test_buckets_are_those_of_whole_nodes(begin: int, end: int) -> None:
    own = Buckets(min(begin, end), max(begin, end))
    nodes = whole_nodes(own)
    assert [b for first, depth in nodes for b in range(first, first + 16 ** (3 - depth))] == list(own)
    assert all(first % 16 ** (3 - depth) == 0 for first, depth in nodes)
    assert len(nodes) <= 2 * 3 * 15
    assert whole_nodes(Buckets(0, BUCKETS)) == [(0, 0)]
    assert whole_nodes(Buckets(15, 34)) == [(15, 3), (16, 2), (32, 3), (33, 3)]


#: Updates of few ids, so that many are refused.
UPDATES = st.lists(
    st.tuples(st.sampled_from([INSERT, INSERT, DELETE, UPDATE, QUERY, DELETE_VALUE]), st.integers(0, 11)), max_size=40
)


class One:
    """One store of all rows, and its updates that wait."""

    def __init__(self) -> None:
        self.store, self.pending = ExampleStore(0, None, CODES), PendingUpdates()

    def admit(self, batch: UpdateBatch, begin: int, skip: bool, admitted: Any) -> int:
        store = self.store
        store.reserve(len(batch))
        changes, stop = store.changes, store.admit(batch.op, batch.id, begin, skip, admitted)
        assert (admitted.old[begin:stop] < 0).all() or store.changes > changes
        added = begin + np.flatnonzero(admitted.new[begin:stop] >= 0)
        slots = admitted.new[added]
        store.born[slots], store.y[slots] = batch.start + added, batch.y[admitted.row[added]]
        old = admitted.old[begin:stop]
        self.pending.add(slots, old[old >= 0])
        return stop

    def delete_oldest(self) -> int:
        live = self.store.in_order_of_birth()
        if len(live):
            self.store.discard(int(live[0]))
            self.pending.add(live[:0], live[:1])
        return int(live[0]) if len(live) else -1

    def of(self, slots: np.ndarray) -> list[Any]:
        return [column[slots].tolist() for column in (self.store.id, self.store.y, self.store.born)]

    def find(self, ids: np.ndarray) -> list[int]:
        """Births, -1 of none."""
        return [int(self.store.born[slot]) if slot >= 0 else -1 for slot in self.store.find(ids).tolist()]

    def end(self) -> list[Any]:
        """What waits, by birth; all rows of a state; and the end of the batch."""
        pending, live = self.pending, self.store.in_order_of_birth()
        waiting = [sorted(self.store.born[slots].tolist()) for slots in (pending.inserts, pending.deletes)]
        slots = np.concatenate([live, pending.deletes])
        slots = slots[np.argsort(self.store.born[slots])]
        told = [self.store.live, waiting, self.of(slots), pending.status(slots).tolist()]
        self.store.release(pending.freed)
        self.pending = PendingUpdates()
        return told


def slots_of_all(owners: list[PendingRows], gone: list[int]) -> np.ndarray:
    """Slots of all rows in the order of births, as all shards find them; -1 of births that are ``gone``."""
    halves = []
    for rows in owners:
        local, own = rows.in_order_of_birth(), np.array(gone[rows.index :: len(owners)], dtype=np.int64)
        halves.append(slots_in_order(rows.store.born[local], rows.slots(local), own, len(owners)))
    first, *others = side_by_side(halves)
    assert all(np.array_equal(first, other) for other in others)
    return first


class Owned:
    """As :class:`One`, by owner."""

    def __init__(self, shards: int) -> None:
        self.store = OwnedStore(PendingRows, shards)
        self.rows = [PendingRows(self.store.owners, shard, CODES) for shard in range(shards)]

    def run(self, exchange: Any) -> Any:
        """Deliver the requests of the coordinator's half."""
        try:
            request = next(exchange)
            while True:
                assert request.method in PendingRows.ANSWERS
                replies = [
                    getattr(rows, request.method)(**request.for_shard(shard)) for shard, rows in enumerate(self.rows)
                ]
                request = exchange.send(replies)
        except StopIteration as end:
            return end.value

    def admit(self, batch: UpdateBatch, begin: int, skip: bool, admitted: Any) -> int:
        changes, stop = self.store.changes, self.run(self.store.admit(batch, slice(begin, len(batch)), skip, admitted))
        assert ((admitted.old[begin:stop] >= 0) | (admitted.new[begin:stop] >= 0)).any() <= (
            self.store.changes > changes
        )
        return int(stop)

    def delete_oldest(self) -> int:
        found = [
            (born, shard, slot)
            for shard, rows in enumerate(self.rows)
            for label in range(3)
            for slot, born in [rows.equal(label, [np.empty(0, np.uint8)])]
            if born < NEVER
        ]
        if not found:
            return -1
        _, shard, slot = min(found)
        self.rows[shard].delete(slot)
        self.store.take([rows.counts() for rows in self.rows])
        return int(self.rows[shard].slots(np.array([slot]))[0])

    def of(self, slots: np.ndarray) -> list[Any]:
        owners = self.store.owners
        where = [(self.rows[owners.shard_of(slot)].store, owners.local(slot)) for slot in slots.astype(np.int32)]
        return [[getattr(store, name)[slot].item() for store, slot in where] for name in ("id", "y", "born")]

    def find(self, ids: np.ndarray) -> list[int]:
        stores = [self.rows[owner].store for owner in self.store.owners.of(ids).tolist()]
        slots = [int(store.find(ids[i : i + 1])[0]) for i, store in enumerate(stores)]
        return [int(store.born[slot]) if slot >= 0 else -1 for store, slot in zip(stores, slots, strict=True)]

    def end(self) -> list[Any]:
        all_rows = joined_by_birth(
            {
                rows.owners.buckets(rows.index): rows.columns(local) | {"pending": rows.pending.status(local)}
                for rows in self.rows
                for local in [rows.in_order_of_birth()]
                if len(rows.owners.buckets(rows.index))
            }
        )
        slots = slots_of_all(self.rows, [])
        waiting = [all_rows["born"][all_rows["pending"] == kind].tolist() for kind in (TO_INSERT, TO_DELETE)]
        assert [self.store.inserts, self.store.deletes] == [len(births) for births in waiting]
        assert self.of(slots) == [all_rows[name].tolist() for name in ("id", "y", "born")]
        told = [self.store.live, waiting, self.of(slots), all_rows["pending"].tolist()]
        self.run(self.store.end_batch())
        return told


def fed(store: Any, batch: UpdateBatch, skip: bool, ends: bool) -> list[Any]:
    """Apply updates as a coordinator does; returns what is decided of each, slots replaced by what is in them."""
    admitted, begin = nothing_admitted(batch.op), 0
    while begin < len(batch):
        stop = store.admit(batch, begin, skip, admitted)
        if stop < len(batch) and not admitted.fault[stop]:
            assert batch.op[stop] == DELETE_VALUE
            admitted.old[stop] = store.delete_oldest()
        elif stop < len(batch) and not skip:
            begin = stop
            break
        begin = stop + 1
    told = [begin, admitted.fault.tolist(), [(slots >= 0).tolist() for slots in (admitted.old, admitted.new)]]
    told += [store.of(slots[slots >= 0]) for slots in (admitted.old, admitted.new)]
    return [*told, store.find(batch.id), store.end() if ends else None]


@given(st.lists(st.tuples(UPDATES, st.booleans(), st.booleans()), max_size=4), st.sampled_from(OWNERS))
@examples(150)
def test_every_update_is_decided_as_by_one_store(batches: Any, shards: int) -> None:
    """Also where one is refused by one owner and others have admitted what comes after it."""
    one, many, seq = One(), Owned(shards), 0
    for updates, skip, ends in batches:
        op, ids = (np.array(column) for column in zip(*updates, strict=True)) if updates else (np.empty(0),) * 2
        op, carries = op.astype(np.int8), CARRIES_ROW[op.astype(np.int8)]
        y = ((seq + np.flatnonzero(carries)) % 3).astype(CODES)
        batch = UpdateBatch(seq, op, ids.astype(np.int64), np.empty((len(y), 0)), y, 3, np.full(len(op), -1))
        assert fed(many, batch, skip, ends) == fed(one, batch, skip, ends)
        seq += len(op)
    assert many.end() == one.end()


def test_one_round_decides_unless_an_update_is_refused() -> None:
    ids = np.arange(40, dtype=np.int64)
    y, none = np.zeros(40, dtype=CODES), np.empty((40, 0))
    for shards, twice in itertools.product((1, 3), (False, True)):
        many, requests = Owned(shards), []
        op, key = np.full(40, INSERT, dtype=np.int8), ids.copy()
        key[5] = 3 if twice else 5
        batch = UpdateBatch(0, op, key, none, y, 1, np.full(40, -1))
        exchange = many.store.admit(batch, slice(0, 40), False, nothing_admitted(op))

        def listening(exchange: Any = exchange, requests: list[str] = requests) -> Any:
            request = next(exchange)
            while True:
                requests.append(request.method)
                try:
                    request = exchange.send((yield request))
                except StopIteration as end:
                    return end.value

        assert many.run(listening()) == (5 if twice else 40)
        assert requests == ["admit", *["retract"] * (twice and shards > 1)]
        assert many.store.live == sum(rows.store.live for rows in many.rows) == (5 if twice else 40)


@pytest.mark.parametrize("ends_in", ["reserve", "_wait"])
@pytest.mark.parametrize("shards", [1, 3])
def test_where_the_memory_of_an_owner_ends_nobody_has_admitted(shards: int, ends_in: str) -> None:
    """What was tried can be done again, or something else, as if nothing had been tried."""
    one, many, refused = One(), Owned(shards), iter([True])
    op = np.array([INSERT] * 30 + [DELETE, UPDATE] * 5 + [INSERT] * 30, dtype=np.int8)
    ids = np.concatenate([np.arange(30), np.arange(10), np.arange(30, 60)])
    y, none = (np.arange(65) % 3).astype(CODES), np.empty((65, 0))
    first = UpdateBatch(0, op[:30], ids[:30], none[:30], y[:30], 3, np.full(30, -1))
    then = UpdateBatch(30, op[30:], ids[30:], none[30:], y[30:], 3, np.full(40, -1))
    assert fed(many, first, False, False) == fed(one, first, False, False)
    last = many.rows[many.store.owners.of(ids[-1:])[0]]
    whole = last.store if ends_in == "reserve" else last
    works = getattr(whole, ends_in)

    def fails(*given: Any) -> None:
        if next(refused, False):
            raise MemoryError
        works(*given)

    before, changes = many.find(ids), many.store.changes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole, ends_in, fails)
        with pytest.raises(MemoryError):
            fed(many, then, False, False)
    assert (many.find(ids), many.store.changes, many.store.live) == (before, changes, 30)
    assert fed(many, then, False, True) == fed(one, then, False, True)


def test_rows_of_a_state_are_taken_by_their_owners() -> None:
    ids = np.array([5, 3, 5, 8], dtype=np.int64)
    pending = np.array([TO_DELETE, NOT_PENDING, TO_INSERT, TO_INSERT], dtype=np.int8)
    y, born = np.array([0, 1, 2, 0], dtype=CODES), np.array([1, 4, 6, 9], dtype=np.int64)
    for shards in OWNERS:
        many = Owned(shards)
        many.store.take([[*PendingRows.counts_of({"pending": pending}), 0, 0]])
        for shard, rows in enumerate(many.rows):
            own, columns = rows.owners.of(ids) == shard, {"id": ids, "y": y, "born": born, "pending": pending}
            rows.fill({name: column[own] for name, column in columns.items()})
        assert many.of(many.store.owners.first_slots(ids)) == [ids.tolist(), y.tolist(), born.tolist()]
        assert many.find(np.array([5, 3, 8, 9])) == [6, 4, 9, -1]
        assert many.end() == [3, [[6, 9], [1]], [ids.tolist(), y.tolist(), born.tolist()], pending.tolist()]


class Shards:
    """Rows by owner, and their hashes."""

    def __init__(self, shards: int) -> None:
        self.owners, self.stores = RowOwners(shards), [ExampleStore(0, None, CODES) for _ in range(shards)]
        self.digests = [BucketDigest(store) for store in self.stores]

    def change(self, rows: dict[int, int | None]) -> None:
        """Insert, change (in another slot) or delete rows."""
        for number, value in rows.items():
            ids = np.array([number])
            shard = int(self.owners.of(ids)[0])
            store, former = self.stores[shard], self.stores[shard].find(ids)
            self.digests[shard].note(ids)
            op = np.array([DELETE] * int(former[0] >= 0) + [INSERT] * (value is not None), dtype=np.int8)
            admitted = nothing_admitted(op)
            store.reserve(1)
            assert store.admit(op, np.repeat(ids, len(op)), 0, False, admitted) == len(op)
            if value is not None:
                store.enter(admitted.new[-1:], np.array([value]), ids, None)
            store.release(former[former >= 0])

    def root(self) -> bytes:
        parts = []
        for shard, (store, digest) in enumerate(zip(self.stores, self.digests, strict=True)):
            columns = lambda slots, store=store: {"value": store.y[slots].astype(np.int64)}  # noqa: E731
            parts.append(digest.hashes(self.owners.buckets(shard), columns, False))
        return joined_root(parts, 16)


def slow_root(rows: dict[int, int]) -> bytes:
    return row_root({number: np.array([number, value], dtype="<i8").tobytes() for number, value in rows.items()})


@pytest.mark.turns(12)
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
        assert [buckets_in(component_of(part, "ids"), "ids") for part in parts] == list(parts)
    others = ("group-001", "coordinator", "buckets", "buckets-000", "buckets-5-", "buckets--5", "buckets-000-0256")
    assert [buckets_in(name) for name in (*others, "ids-0000-4096")] == [None] * (1 + len(others))
    whole = Buckets(0, BUCKETS)
    right = {"id": ids, "leaf": leaf}
    for wrong in (
        {Buckets(0, BUCKETS - 1): right},
        {whole: right | {"leaf": leaf[1:]}},
        {whole: right | {"id": ids[::-1]}},
        parts | {whole: right},
    ):
        with pytest.raises(ValueError, match="must have an entry for each"):
            joined_buckets(ids, wrong)


def test_former_buckets_are_sixteen_each() -> None:
    """A component of 256 buckets, by the first eight bits of keys, has the rows of these by the first twelve."""
    ids = np.arange(3_000, dtype=np.int64)
    former = np.array([key_of(number) >> 56 for number in ids.tolist()])
    for begin, end in (0, 256), (0, 128), (128, 256), (85, 170), (7, 8), (3, 3):
        now = buckets_in(f"buckets-{begin:03d}-{end:03d}")
        assert now == buckets_in(f"ids-{begin:03d}-{end:03d}", "ids") == Buckets(16 * begin, 16 * end)
        assert (are_in(ids, now) == ((former >= begin) & (former < end))).all()


@pytest.mark.parametrize(("window", "births"), [(1, 7), (3, 21), (1 << 10, 61)])  # at most seven windows
@examples(100)
@given(born=st.lists(st.integers(0, 60), unique=True), gone=st.sets(st.integers(0, 60)), shards=st.sampled_from(OWNERS))
def test_all_shards_find_the_slots_of_all_rows_in_the_order_of_births(
    window: int, births: int, born: list[int], gone: set[int], shards: int
) -> None:
    """However few births they look at at once, and whoever tells of those that are gone."""
    born, gone = list(dict.fromkeys(b % births for b in born)), {b % births for b in gone}
    owners, of = RowOwners(shards), {born: number for number, born in enumerate(born)}
    rows = [PendingRows(owners, shard, CODES) for shard in range(shards)]
    gone -= set(born)
    for one in rows:
        own = [b for b in born if owners.of(np.array([of[b]]))[0] == one.index]
        ids, none = np.array([of[b] for b in own], dtype=np.int64), np.full(len(own), NOT_PENDING, dtype=np.int8)
        one.fill({"id": ids, "y": np.zeros(len(own), np.int32), "born": np.array(own, np.int64), "pending": none})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owned_rows, "_WINDOW", window)
        found = slots_of_all(rows, sorted(gone)).tolist()
    wanted = [of.get(b, -1) for b in sorted({*born, *gone})]
    for slot, number in zip(found, wanted, strict=True):
        if number < 0:
            assert slot == -1
        else:
            one = rows[owners.shard_of(np.array([slot]))[0]]
            assert one.store.id[owners.local(np.array([slot]))[0]] == number


# -- who reads -------------------------------------------------------------------------------------------------------
# Who reads the rows of the warm-up: the line of ``validate``, and what a run does where a node has other files.

SEA = {"kind": "synthetic", "generator": "sea", "n": 500}
SPARSE = {"kind": "synthetic", "generator": "sparse", "n": 500, "irrelevant": 20}
CHANGES = {"kind": "parquet", "path": "changes.parquet", "id": "id", "op": "op"}


def config_of(learner: str, source: dict[str, Any], folder: Path, warmup: int = 300, **cluster: Any) -> Config:
    """A config whose shards do all work, unless ``cluster`` says otherwise."""
    if "op" in source:
        table = pa.table({"op": ["insert"] * 9, "id": range(9), "a": [1.0, 2.0, 3.0] * 3, "y": [0, 1, 1] * 3})
        table = table.append_column("k", [["u", "v", "w"] * 3]) if "key" in source else table
        pq.write_table(table, folder / "changes.parquet")
        source = {**source, "path": str(folder / "changes.parquet")}
    model = "changelog" if "op" in source else "incremental"
    return Config.model_validate(
        {
            "source": source,
            "stream": {"model": model, "warmup": warmup},
            "learner": {"kind": learner},
            "cluster": {"backend": "ray", "shards": 2, "memory_limit": 0, **cluster},
        }
    )


def sent(id: str, **parameters: Any) -> Message:
    return message("runs.rows_sent", why=message(id, **parameters))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("gbdt", SEA), message("runs.rows_read", rows="300 rows", what=message("runs.own_columns"))),
        (("fudyadt", SEA, 1000), message("runs.rows_read", rows="500 rows", what=message("runs.own_columns"))),
        (("forest", SEA), message("runs.rows_read", rows="300 rows", what=message("runs.all_columns"))),
        (("confidence_tree", SEA), sent("runs.whole_rows", learner="confidence_tree")),
        (("sparse_tree", SPARSE), message("runs.rows_read", rows="300 rows", what=message("runs.own_columns"))),
        (("best_split", SPARSE, 300, {"memory_limit": None}), None),
        (("best_split", SPARSE, 300, {"memory_limit": 10**9}), sent("runs.unknown_ones")),
        (("gbdt", CHANGES), message("runs.rows_read", rows="9 rows", what=message("runs.own_columns"))),
        (("fudyadt", SEA, 0), None),
        (("gbdt", SEA, 300, {"backend": "in_process"}), None),
        (("gbdt", SEA, 300, {"memory_limit": None}), None),
        (("forest", {**CHANGES, "key": "k"}), None),
    ],
    ids=str,
)
def test_validate_says_who_reads(
    given: Any, expected: Message | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.validation.starts_ray", lambda _: True)  # no Ray counts that other tests have here
    learner, source, *others = given
    warmup, cluster = [*others, *[300, {}][len(others) :]]
    found = look_at(config_of(learner, source, tmp_path, warmup, **cluster))["reading"]
    assert (found and text(found)) == (expected and text(expected))


@pytest.mark.parametrize("lacks", [True, False])
def test_rows_are_sent_if_a_node_has_other_files(lacks: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = config_of("gbdt", SEA, tmp_path)
    source, stream = open_stream(config)
    features = features_of(source, config.learner)
    config = config.placed(place(config, features, source.n_rows))
    begun: list[Any] = []
    session = SimpleNamespace(divide=lambda *_: "shard 1 (pid 5 on b)" if lacks else SimpleNamespace(rows=lambda: "r"))
    told: Any = SimpleNamespace(source=stream.source, begin_with=begun.append)
    with caplog.at_level(logging.INFO, "pipelines.validation"):
        assert divide(config, session, told, features) is not lacks
    assert begun == ([] if lacks else ["r"])
    (record,) = caplog.records
    assert record.event == ("rows_sent" if lacks else "rows_read")  # type: ignore[attr-defined]
    if lacks:
        assert record.getMessage() == str(sent("sources.other_here", name="shard 1 (pid 5 on b)"))


# -- processes of shards ---------------------------------------------------------------------------------------------
# Actors with several shards each, driven as on Ray but here: what comes out is that of as many plain shards.
#
# Only the calls are not Ray's: the driver, the actors and their channels are those of a run.

SOURCE = Hyperplane(n=500, n_features=6)
OPTIONS: dict[str, dict[str, Any]] = {
    "gbdt": {"max_iter": 3, "max_bins": 16, "update_every": 100, "retrain": "never", "feature_groups": 6},
    "fudyadt": {"max_depth": 4, "feature_groups": 6},
}


class Readers:
    """As :class:`actors.session.RaySession` has the shards read."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self._peers = peers

    def check(self, start: int, stop: int, unwanted: Sequence[int]) -> Any:
        reports = [peer.handle.check_block.remote(start, stop, unwanted) for peer in self._peers]
        return lambda: [report for some in reports for report in some.result()]


def batches(source: Any, reading: DividedReading | None = None) -> Iterator[UpdateBatch]:
    stream = SlidingWindow(warmup=200, window=220).make(source)
    if reading is not None:
        stream.begin_with(reading.rows())
    for batch in stream.batches(100):
        without = reading is not None and not batch.X.shape[1]
        yield replace(batch, blocks=reading.blocks_of(batch.row)) if reading is not None and without else batch


def settings() -> Iterator[Any]:
    """All settings; every test run takes half of them: each crew with both learners, one of which reads."""
    for crew, (i, kind), reads in product(((2, 1), (1, 2), (1, 3), (2, 2), (2, 3)), enumerate(OPTIONS), (False, True)):
        by_day = (crew[0] * crew[1] + i + reads) % 2
        yield pytest.param(*crew, kind, reads, marks=[] if by_day else pytest.mark.nightly)


@pytest.mark.turns(3)
@pytest.mark.parametrize(("processes", "cpus", "kind", "reads"), list(settings()))
def test_processes_with_several_shards(
    processes: int, cpus: int, kind: str, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(actor, "compile_missing", lambda *_: None)
    learner, plan = learners()[kind], WorkPlan(local_work_limit=0, row_cache_bytes=0, shared_store=False)
    options = learner.Options.model_validate({"kind": kind, **OPTIONS[kind]})
    source = open_source(SOURCE)
    features = replace(source.features, groups=options.feature_groups)

    session = InProcessSession(learner, options, features, processes * cpus, plan)
    expected = [(session.apply(batch).predictions.tolist(), session.digest()) for batch in batches(open_source(SOURCE))]

    with ExitStack() as stack:
        in_each = actor.shards_of_each(cpus, processes, learner, options, features)
        assert in_each == cpus
        actors = [actor.FeatureShard() for _ in range(processes)]
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in actors]
        handles = [Handle(*pair) for pair in zip(actors, threads, strict=True)]
        peers = [Peer(f"shard {i}", one, pid=1, shard=i, shards=in_each) for i, one in enumerate(handles)]
        for index, (peer, groups) in enumerate(zip(peers, actor.groups_of(features, peers), strict=True)):
            assignment = actor.Assignment(1, learner, options, features)
            peer.handle.open.remote(assignment, index, groups, cpus, False).result()
        driver: Any = RayDriver(peers, 1, Waiting())  # type: ignore[arg-type]
        coordinator = learner.coordinator(options, features, processes * in_each, plan)
        reading = None
        if reads:
            opening = Opening(SOURCE, ".", learner.traits(options).reading, [], source.identity().fingerprint)
            assert all(peer.handle.open_source.remote(opening).result() for peer in peers)
            reading = DividedReading(source, Readers(peers), 200, 64)
        found = []
        for batch in batches(source, reading):
            assert batch.X.shape[1] == (0 if reads and batch.stop <= 200 else 6)
            predictions = driver.run(coordinator.process(batch, skip_refused=False)).predictions.tolist()
            driver.run(coordinator.gather_digest())
            found.append((predictions, coordinator.digest()))
        driver.acknowledge()
        for one in actors:
            if one._channel is not None:
                stack.enter_context(closing(one._channel))
        assert all(one._channel is not None for one in actors)
    assert found == expected
    assert sorted(column for one in actors for column in one.work()["columns"]) == list(range(6))
