"""Parts of a matrix are what NumPy picks out one number at a time, also where they have memory of their own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from raydt.arrays.blocks import HUGE, LARGE, block, blocks, empty, grown, taken, turned_block
from raydt.parallel import limited
from tests.refusals import refused


@given(st.data())
def test_a_block_is_what_numpy_picks(data: st.DataObject) -> None:
    n, d = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 9))
    rows = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=30) if n else st.just([])), dtype=np.int64)
    first = data.draw(st.integers(0, d))
    columns = np.arange(first, data.draw(st.integers(first, d)))
    X = np.asarray(np.random.default_rng(n).normal(size=(n, d)), order=data.draw(st.sampled_from("CF")))
    wanted = X[np.ix_(rows, columns)]
    part, turned = block(X, rows, columns), turned_block(X, rows, columns)
    assert_array_equal(part, wanted)
    assert_array_equal(turned, wanted.T)
    assert part.flags.c_contiguous
    assert turned.flags.c_contiguous


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_threads_pick_the_same(n: int) -> None:
    draw = np.random.default_rng(n)
    X, rows = draw.normal(size=(60_000, 6)), draw.permutation(60_000).astype(np.int32)
    at = draw.integers(0, 3, size=300_001)
    with limited(n):
        for part, columns in zip(
            blocks(X, rows, np.split(np.arange(6), [1, 3])), ([0], [1, 2], [3, 4, 5]), strict=True
        ):
            assert_array_equal(part, X[np.ix_(rows, columns)])
        for values in (np.array(["no", "yes", "maybe"]), np.arange(3, dtype=np.int32), X[:3]):
            assert_array_equal(taken(values, at), values[at])
            assert taken(values, at).dtype == values.dtype


@pytest.mark.parametrize(("rows", "columns"), [([3], [0]), ([-1], [0]), ([0], [2]), ([0], [-1, 0]), ([0], [1, 0])])
def test_nothing_outside_the_matrix_is_read(rows: list[int], columns: list[int]) -> None:
    for part in (block, turned_block):
        with refused("states.outside", IndexError, shape=(3, 2)):
            part(np.zeros((3, 2)), np.array(rows), np.array(columns))


@pytest.mark.parametrize("size", [LARGE - 8, LARGE, HUGE, HUGE + 8])
def test_large_arrays_are_writable_and_grow(size: int) -> None:
    array = empty(size // 8, np.int64)
    array[:] = np.arange(len(array))
    longer = grown(array, 2 * len(array))
    longer[len(array) :] = -1
    assert_array_equal(longer[: len(array)], np.arange(len(array)))
    assert_array_equal(array, np.arange(len(array)))  # memory of its own


@pytest.mark.parametrize("at", [[0, 3], [-1, 0], [5]])
def test_a_place_that_there_is_not_is_an_error(at: list[int]) -> None:
    with pytest.raises(IndexError, match="of 3"):
        taken(np.arange(3.0), np.array(at))
