"""The steps of a batch against their definition, in NumPy: an update that takes effect is one, an UPDATE two."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from raydt.evaluation.scoring import NO_LEVEL
from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, QUERY, UPDATE, UpdateBatch, nothing_admitted
from raydt.learners.batch_coordinator import ADD, LOOK, REMOVE, steps_of


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(0, 2**31), st.data())
def test_steps_are_those_of_the_definition(ops: list[int], start: int, data: st.DataObject) -> None:
    op, draw = np.array(ops, dtype=np.int8), np.random.default_rng(len(ops))
    m, carried = len(op), int(CARRIES_ROW[op].sum())
    batch = UpdateBatch(start, op, np.arange(m), np.zeros((carried, 1)), np.zeros(carried, np.int32), 2, np.arange(m))
    admitted = nothing_admitted(op)
    admitted.old[:], admitted.new[:] = draw.integers(-1, 9, m), draw.integers(-1, 9, m)
    admitted.fault[:] = draw.random(m) < 0.2
    begin = data.draw(st.integers(0, m))
    part = slice(begin, data.draw(st.integers(begin, m)))
    steps, position = steps_of(batch, part, admitted)

    times = np.where(admitted.fault[part] != 0, 0, np.where(op[part] == UPDATE, 2, 1))
    expected = np.repeat(np.arange(part.start, part.stop), times)
    of = op[expected]
    second = np.zeros(len(expected), dtype=bool)
    second[1:] = (of[1:] == UPDATE) & (expected[1:] == expected[:-1])
    first = (of == UPDATE) & ~second
    removes = (of == DELETE) | (of == DELETE_VALUE) | first
    assert_array_equal(position, expected)
    assert_array_equal(steps["kind"], np.where(removes, REMOVE, np.where(of == QUERY, LOOK, ADD)))
    assert_array_equal(steps["stamp"], 2 * (start + expected) + 1 - first)
    assert_array_equal(steps["slot"], np.where(removes, admitted.old[expected], admitted.new[expected]))
    assert_array_equal(steps["row"], admitted.row[expected])
    for name, value in (("prediction", -1), ("path", 0), ("level", NO_LEVEL)):
        assert (steps[name] == value).all()
