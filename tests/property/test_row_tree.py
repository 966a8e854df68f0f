"""The root of a tree over rows follows any inserts, deletes and changes, and is that of its slow twin.

It does not depend on the order in which rows came, on those that were there before, or on ids that share their keys'
first bits; and any other row, label, or number of rows gives another root.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raydt.examples.row_digest import RowTree
from raydt.examples.row_owners import CHILDREN, keys_of
from tests.oracles.digests import key_of, row_root
from tests.volume import examples


def id_of(key: int) -> int:
    """The id that has a key."""
    z = key ^ key >> 31 ^ key >> 62
    z = z * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    z ^= z >> 27 ^ z >> 54
    z = z * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    z ^= z >> 30 ^ z >> 60
    return z - (z >> 63 << 64)


#: Ids whose keys differ in their last bits only, so that paths are as long as they can be, and others.
CLOSE = [id_of(key) for key in range(1 << 40, (1 << 40) + 80)]
IDS = st.one_of(st.sampled_from(CLOSE), st.integers(-(2**63), 2**63 - 1), st.integers(0, 200))
#: Rows to insert, to change or to delete, by a value; None deletes.
STEPS = st.lists(st.dictionaries(IDS, st.one_of(st.none(), st.integers(0, 3)), max_size=90), max_size=6)


class Table:
    """Rows by slot; a row keeps its slot until it is changed."""

    def __init__(self, values: dict[int, int]) -> None:
        self.ids, self.values = list(values), list(values.values())

    def tree(self) -> RowTree:
        return RowTree(np.array(self.ids, dtype=np.int64), np.arange(len(self.ids), dtype=np.int32))

    def change(self, step: dict[int, int | None]) -> tuple[np.ndarray, np.ndarray]:
        """New slots for the rows that a step inserts or changes; returns its ids and where they are."""
        slots = []
        for number, value in step.items():
            slots.append(-1 if value is None else len(self.ids))
            if value is not None:
                self.ids.append(number)
                self.values.append(value)
        return np.array(list(step), dtype=np.int64), np.array(slots, dtype=np.int32)

    def records(self, ids: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """The records of rows: id and value."""
        assert [self.ids[slot] for slot in slots.tolist()] == ids.tolist()
        rows = [(number, self.values[slot]) for number, slot in zip(ids.tolist(), slots.tolist(), strict=True)]
        return np.array(rows, dtype=[("id", "<i8"), ("value", "<i8")])


def slow_root(values: dict[int, int]) -> bytes:
    return row_root({number: np.array([number, value], dtype="<i8").tobytes() for number, value in values.items()})


def root(values: dict[int, int]) -> bytes:
    table = Table(values)
    return table.tree().root(table.records)


@given(STEPS)
@examples(120)
def test_the_root_is_that_of_the_slow_twin(steps):
    table, live = Table({}), {}
    tree = table.tree()
    for step in steps:
        live = {number: value for number, value in {**live, **step}.items() if value is not None}
        tree.change(*table.change(step))
        assert tree.root(table.records) == root(dict(reversed(live.items()))) == slow_root(live)
        assert len(tree) == len(live)


@given(st.dictionaries(IDS, st.integers(0, 3), min_size=1, max_size=90), st.data())
@examples(60)
def test_every_difference_shows(live, data):
    number = data.draw(st.sampled_from(sorted(live)))
    before = slow_root(live)
    other = data.draw(IDS.filter(lambda one: one not in live))
    without = {one: value for one, value in live.items() if one != number}
    for rows in ({**live, number: live[number] + 1}, without, {**live, other: 0}, {**without, other: live[number]}):
        assert root(rows) == slow_root(rows) != before


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True))
def test_keys_are_a_bijection(ids):
    array = np.array(ids, dtype=np.int64)
    assert keys_of(array).tolist() == [key_of(number) for number in ids]
    assert [id_of(key) for key in keys_of(array).tolist()] == ids


@given(STEPS)
@examples(60)
def test_each_row_has_room_for_less_than_four(steps):
    table = Table({})
    tree = table.tree()
    for step in steps:
        tree.change(*table.change(step))
        trie = tree._trie
        _, _, places, *free = trie.reg.tolist()
        nodes = [0]
        for node in nodes:  # which grows
            nodes += range(trie.child[node], trie.child[node] + CHILDREN) if trie.child[node] >= 0 else ()
        leaves = [node for node in nodes if trie.child[node] < 0]
        rooms = [(int(trie.begin[leaf]), int(trie.room[leaf])) for leaf in leaves if trie.room[leaf]]
        assert all(0 <= trie.rows[leaf] <= trie.room[leaf] <= max(4, 4 * trie.rows[leaf] - 1) for leaf in leaves)
        for size, begin in zip((4, 8, 16, 32), free, strict=True):
            while begin >= 0:
                rooms.append((begin, size))
                begin = int(trie.ids[begin])
        assert sum(room for _, room in rooms) == places, "no place is lost"
        assert [begin for begin, _ in sorted(rooms)[1:]] == [sum(one) for one in sorted(rooms)[:-1]], "and none has two"
