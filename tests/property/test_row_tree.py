"""The root of a tree over rows follows any inserts, deletes and changes, and is that of its slow twin.

It does not depend on the order in which rows came, on those that were there before, or on ids that share their keys'
first bits; and any other row, label, or number of rows gives another root.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raydt.examples.row_tree import RowTree, ids_of_keys, keys_of
from tests.oracles.digests import key_of, row_root
from tests.volume import examples

#: Ids whose keys differ in their last bits only, so that paths are as long as they can be, and others.
CLOSE = ids_of_keys(np.arange(1 << 40, (1 << 40) + 80, dtype=np.uint64)).tolist()
IDS = st.one_of(st.sampled_from(CLOSE), st.integers(-(2**63), 2**63 - 1), st.integers(0, 200))
#: Rows to insert, to change or to delete, by a value; None deletes.
STEPS = st.lists(st.dictionaries(IDS, st.one_of(st.none(), st.integers(0, 3)), max_size=90), max_size=6)


def records(values: dict[int, int]):
    """The records of rows: id and value."""

    def of(ids):
        rows = np.array([[number, values[number]] for number in ids.tolist()], dtype="<i8").reshape(len(ids), 2)
        return rows.view(np.uint8)

    return of


def slow_root(values: dict[int, int]) -> bytes:
    return row_root({number: records(values)(np.array([number]))[0].tobytes() for number in values})


@given(STEPS)
@examples(120)
def test_the_root_is_that_of_the_slow_twin(steps):
    tree, live = RowTree(np.empty(0, dtype=np.int64)), {}
    for step in steps:
        live = {number: value for number, value in {**live, **step}.items() if value is not None}
        ids = np.array(list(step), dtype=np.int64)
        tree.change(ids, np.array([number in live for number in step], dtype=np.bool_))
        anew = RowTree(np.array(list(reversed(live)), dtype=np.int64))
        assert tree.root(records(live)) == anew.root(records(live)) == slow_root(live)
        assert len(tree) == len(live)


@given(st.dictionaries(IDS, st.integers(0, 3), min_size=1, max_size=90), st.data())
@examples(60)
def test_every_difference_shows(live, data):
    number = data.draw(st.sampled_from(sorted(live)))
    root = slow_root(live)
    other = data.draw(IDS.filter(lambda one: one not in live))
    without = {one: value for one, value in live.items() if one != number}
    for rows in ({**live, number: live[number] + 1}, without, {**live, other: 0}, {**without, other: live[number]}):
        tree = RowTree(np.array(list(rows), dtype=np.int64))
        assert tree.root(records(rows)) == slow_root(rows) != root


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True))
def test_keys_are_a_bijection(ids):
    array = np.array(ids, dtype=np.int64)
    assert keys_of(array).tolist() == [key_of(number) for number in ids]
    assert ids_of_keys(keys_of(array)).tolist() == ids
