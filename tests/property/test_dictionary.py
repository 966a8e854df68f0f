"""The codes of values are those of a plain loop: first appearances, rows passed over, cuts, and restored values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from raydt.encoding.columns import Dictionary

VALUES = st.sampled_from([None, "a", "b", "c", "d", "e"])
BLOCKS = st.lists(st.lists(st.tuples(VALUES, st.booleans()), max_size=6), max_size=5)


@given(BLOCKS, st.lists(st.sampled_from("abcde"), unique=True, max_size=3), st.booleans(), st.integers(0, 5))
def test_codes_are_those_of_a_loop(blocks: list, known: list[str], encoded: bool, cut: int) -> None:
    dictionary, values, first = Dictionary(known), list(known), [-1] * len(known)
    row = 10
    for block in blocks:
        column = pa.array([value for value, _ in block], pa.string())
        keep = np.array([kept for _, kept in block], dtype=np.bool_)
        expected = []
        for i, (value, kept) in enumerate(block):
            if kept and value is not None and value not in values:
                values.append(value)
                first.append(row + i)
            expected.append(values.index(value) if kept and value is not None else -1)
        assert dictionary.encode(column.dictionary_encode() if encoded else column, row, keep).tolist() == expected
        row += len(block)
    assert (dictionary.values, dictionary.known()) == (values, len(values))
    for at in range(row + 2):
        assert dictionary.known(at) == sum(begin < at for begin in first)
    dictionary.cut(min(cut, len(values)))
    assert (dictionary.values, dictionary.find(pa.array(list("abcde"))).tolist()) == (
        values[:cut],
        [values[:cut].index(value) if value in values[:cut] else -1 for value in "abcde"],
    )
