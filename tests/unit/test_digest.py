"""Digests, the hash that they use, and random numbers."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from raydt import FullyDynamicTreeClassifier, FullyDynamicTreeRegressor
from raydt.arrays import elementary as rng
from raydt.examples.digest import BLOCK, SIZE, RowDigest, Words, digest, hash_all, room_for, start
from raydt.examples.row_owners import MOST
from raydt.examples.store import ExampleStore
from raydt.trees.records import preorder
from tests.oracles.digests import node_root, row_parts
from tests.refusals import refused

# -- digest ----------------------------------------------------------------------------------------------------------
# The digest sees names, order, dtypes, shapes and values, and nothing of how they lie in memory.

PARTS = [("a", np.arange(6, dtype=np.int64).reshape(2, 3)), ("b", np.array([0.5, -1.0]))]


def changed(index, name, array):
    parts = list(PARTS)
    parts[index] = (name, array)
    return parts


def test_canonical_bytes():
    # A change here is a change of the format: every published digest changes with it.
    written = (
        b"raydt-digest-2\n"
        b"1:a<i8(2,3)\n" + b"".join(value.to_bytes(8, "little") for value in range(6)) +
        b"1:b<f8(2)\n" + struct.pack("<2d", 0.5, -1.0)
    )  # fmt: skip
    assert digest(PARTS) == "sha256:" + hashlib.sha256(written).hexdigest()


@pytest.mark.parametrize(
    "parts",
    [
        PARTS[::-1],
        PARTS[:1],
        changed(0, "c", PARTS[0][1]),
        changed(0, "a", PARTS[0][1].T),
        changed(0, "a", PARTS[0][1].ravel()),
        changed(0, "a", PARTS[0][1].astype(np.int32)),
        changed(0, "a", PARTS[0][1].astype(np.uint64)),
        changed(1, "b", np.array([0.5, np.nextafter(-1.0, 0)])),
        [*PARTS, ("c", np.empty(0))],
    ],
    ids=["order", "missing", "name", "transposed", "shape", "dtype", "unsigned", "last bit", "empty part"],
)
def test_every_difference_shows(parts):
    assert digest(parts) != digest(PARTS)


def test_zero_has_a_sign():
    assert digest([("x", np.array([0.0]))]) != digest([("x", np.array([-0.0]))])


def test_names_cannot_imitate_data():
    empty = np.empty(0, np.int8)
    assert digest([("a", empty), ("b", empty)]) != digest([("a|i1(0)\n1:b", empty)])


def test_layout_and_byte_order_do_not_matter():
    a, b = PARTS[0][1], PARTS[1][1]
    wide = np.zeros((4, 6), np.int64)
    wide[::2, ::2] = a
    read_only = b.copy()
    read_only.flags.writeable = False
    same = [("a", wide[::2, ::2]), ("b", read_only.astype(">f8"))]
    assert digest(same) == digest(PARTS)
    assert digest([("a", np.asfortranarray(a)), ("b", b)]) == digest(PARTS)


def test_empty_and_scalar_arrays():
    assert digest([("x", np.empty((0, 3)))]) != digest([("x", np.empty((3, 0)))])
    assert digest([("x", np.array(7))]) != digest([("x", np.array([7]))])


@pytest.mark.parametrize("bad", [np.array(["a"]), np.array([None]), np.array([1j]), np.array(["2020"], "M8[Y]")])
def test_other_types_are_refused(bad):
    with refused("states.digest", TypeError, part="x"):
        digest([("x", bad)])


# -- row digest ------------------------------------------------------------------------------------------------------
# The digest of few rows, which have no tree, is that of their tree: bit for bit, whatever their slots and weights.


@pytest.mark.parametrize("weighted", [False, True])
def test_few_rows_have_the_digest_of_their_tree(weighted: bool) -> None:
    random = np.random.default_rng(5)
    for n in (0, 1, 2, MOST - 1, MOST, MOST + 1):
        ids = np.unique(random.integers(-(2**63), 2**63 - 1, 200))
        ids = random.permutation(np.append(random.choice(ids, max(0, n - 2), replace=False), [-1, 0][:n]))
        y, weights = random.integers(0, 3, n).astype(np.int32), random.integers(1, 9, n)
        store = ExampleStore(1)
        listed = np.append(np.ones(n, np.bool_), False)  # and a slot without an example
        store.fill(
            np.append(ids, 7), np.append(y, np.int32(0)), np.arange(n + 1), listed,
            np.append(weights, 1) if weighted else None,
        )  # fmt: skip

        def columns(slots: Any, store: ExampleStore = store) -> Mapping[str, Any]:
            return {"y": store.y[slots]}

        few = RowDigest(store).part(columns, weighted)
        made = RowDigest(store)
        made._records(columns, weighted)
        made._followed()  # a tree, whatever the number of rows
        tree = made.part(columns, weighted)
        assert few[0] == tree[0]
        assert few[1].tobytes() == tree[1].tobytes()
        if not weighted:
            assert digest([few]) == digest(row_parts(ids, y=y))


# -- blake2b ---------------------------------------------------------------------------------------------------------
# The compiled BLAKE2b is the one of ``hashlib``, of any length, with any personalisation, at any place.

#: Neighbours take as many blocks, or not: four of them are hashed side by side.
LENGTHS = [*range(3 * BLOCK + 2), 1000, 0, 4096, 1, *range(2 * BLOCK, 0, -43)]


def hashes_of(person: bytes, parts: list[bytes]) -> list[bytes]:
    """Hashes of byte strings, which lie one after the other, the last first in the result."""
    jobs, room = room_for(len(parts) + 1)  # one more than is used
    lengths = [len(part) for part in parts]
    jobs.end[: len(parts)] = np.cumsum(lengths)
    jobs.begin[: len(parts)] = jobs.end[: len(parts)] - lengths
    jobs.to[: len(parts)] = np.arange(len(parts))[::-1]
    room[:] = 2**64 - 1
    hashes: Words = np.zeros((len(parts) + 1, SIZE // 8), dtype="<u8")
    data = np.frombuffer(b"".join(parts), dtype=np.uint8)
    hash_all(start(person), data, jobs, len(parts), room, hashes)
    assert not hashes[-1].any()
    return [row.tobytes() for row in hashes[-2::-1]]


@pytest.mark.parametrize("person", [b"", b"raydt-rows-leaf", bytes(range(200, 216))])
def test_it_is_that_of_hashlib(person: bytes) -> None:
    rng = np.random.default_rng(3)
    for lengths in (LENGTHS, LENGTHS[:1], LENGTHS[200:206]):
        parts = [rng.bytes(length) for length in lengths]
        expected = [hashlib.blake2b(part, digest_size=SIZE, person=person).digest() for part in parts]
        assert hashes_of(person, parts) == expected


# -- rng -------------------------------------------------------------------------------------------------------------


COUNTERS = np.concatenate([np.arange(2000), np.array([2**31, 2**32 + 1, 2**53 + 1, 2**62])])


def test_numbers_are_those_of_splitmix64():
    # First outputs for seed 0 of the reference program by Sebastiano Vigna (splitmix64.c).
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert rng.bits(np.uint64(0), np.arange(3)).tolist() == expected


def test_keys_are_stable():
    assert int(rng.stream_key(7, "sea")) == 0xE97971277BD46B92
    assert len({int(rng.stream_key(s, p)) for s in (-1, 0, 1, 10**30) for p in ("", "a", "b")}) == 12


@pytest.mark.parametrize("seed", [0, 1, -5, 2**70])
def test_scalar_twins_give_identical_values(seed):
    key = rng.stream_key(seed, "twin")
    assert [int(rng.bits_at(key, c)) for c in COUNTERS] == rng.bits(key, COUNTERS).tolist()
    assert [rng.uniform_at(key, c) for c in COUNTERS] == rng.uniform(key, COUNTERS).tolist()
    for n in (1, 2, 3, 1000, 2**40 + 1):
        assert [rng.below_at(key, c, n) for c in COUNTERS] == rng.below(key, COUNTERS, n).tolist()


def test_a_value_depends_on_its_counter_only():
    key = rng.stream_key(3, "place")
    together = rng.uniform(key, np.arange(100).reshape(20, 5))
    assert together.shape == (20, 5)
    assert together[7, 3] == rng.uniform(key, np.array([38]))[0]
    assert rng.uniform(rng.stream_key(4, "place"), np.array([38]))[0] != together[7, 3]


def test_counters_are_not_changed():
    counter = np.arange(5, dtype=np.uint64)
    rng.uniform(rng.stream_key(0, "x"), counter)
    assert counter.tolist() == [0, 1, 2, 3, 4]


def test_below_is_in_range_even_for_the_largest_uniform():
    n = np.array([1, 2, 3, 5, 2**31 - 1, 2**31 + 1, 2**52 - 1], dtype=np.int64)
    largest = 1.0 - 2.0**-53
    assert ((largest * n).astype(np.int64) == n - 1).all()
    drawn = rng.below(rng.stream_key(2, "below"), np.arange(7000), 7)
    assert np.bincount(drawn, minlength=7).min() > 850
    assert set(drawn.tolist()) == set(range(7))


# -- outline ---------------------------------------------------------------------------------------------------------
# The outline of a fully dynamic tree follows its changes: places, depth and hash are those of the whole tree.

CASES = {
    "scheduled": (FullyDynamicTreeClassifier, {"schedule": "published", "epsilon": 0.3, "alpha": 0.0}),
    "three classes": (FullyDynamicTreeClassifier, {"schedule": "published", "epsilon": 0.0}),
    "certificates": (FullyDynamicTreeClassifier, {"schedule": "certificate"}),
    "numbers": (FullyDynamicTreeRegressor, {"schedule": "published"}),
    "numbers, certificates": (FullyDynamicTreeRegressor, {"schedule": "certificate"}),
}


def values(name: str, rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=n) if "numbers" in name else rng.integers(0, 3 if name == "three classes" else 2, size=n)


@pytest.mark.parametrize("name", CASES)
def test_it_is_that_of_the_whole_tree_after_every_call(name: str) -> None:
    estimator, options = CASES[name]
    rng = np.random.default_rng(7)
    tree = estimator(**options).fit(rng.normal(size=(60, 3)), values(name, rng, 60))
    live = list(range(60))
    for step in range(40):
        if step % 3 and len(live) > 20:
            most = 4 if step % 5 else 20  # nodes side by side change, and along one path
            gone = rng.choice(live, size=min(int(rng.integers(1, most)), len(live) - 10), replace=False).tolist()
            tree.forget(gone, digests=step % 2 == 0)
            live = [one for one in live if one not in gone]
        else:
            n = int(rng.integers(1, 5))
            tree.partial_fit(rng.normal(size=(n, 3)), values(name, rng, n))
            live += tree.row_ids_.tolist()
        coordinator = tree.session_.coordinator
        state, live_tree = tree.session_.state()[0], coordinator.live.tree
        names = ["feature", "threshold", "s", "c"] + (["m0", "gone"] if coordinator.live.rules.certified else [])
        sums = {f"sum {i}": column for i, column in enumerate(state.get("sums", np.empty((0, 0))).T)}
        assert bytes(coordinator._outline.root(live_tree)) == bytes(node_root({**state, **sums}, [*names, *sums])), step
        order, position, deepest = preorder(live_tree)
        assert coordinator._outline.depth == deepest == coordinator.statistics()["depth"]
        assert coordinator._outline.places(live_tree, order).tolist() == position[order].tolist()
