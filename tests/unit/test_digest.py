"""The digest sees names, order, dtypes, shapes and values, and nothing of how they lie in memory."""

import hashlib
import struct

import numpy as np
import pytest

from raydt.arrays.digest import digest
from tests.refusals import refused

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
