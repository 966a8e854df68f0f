"""The compiled BLAKE2b is the one of ``hashlib``, of any length, with any personalisation, at any place."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from raydt.arrays.blake2b import BLOCK, SCRATCH, SIZE, hash_bytes, start
from raydt.arrays.kernel import kernel

LENGTHS = [*range(3 * BLOCK + 2), 1000, 4096]


@kernel
def _hash_all(begun: Any, data: Any, ends: Any, scratch: Any, out: Any) -> None:
    begin = np.int64(0)
    for i in range(len(ends)):
        hash_bytes(begun, data, begin, ends[i], scratch, out, SIZE * i)
        begin = ends[i]


@pytest.mark.parametrize("person", [b"", b"raydt-rows-leaf", bytes(range(200, 216))])
def test_it_is_that_of_hashlib(person: bytes) -> None:
    ends = np.cumsum(LENGTHS)
    data = np.random.default_rng(3).integers(0, 256, ends[-1]).astype(np.uint8)
    out, scratch = np.empty(SIZE * len(ends), dtype=np.uint8), np.full(SCRATCH, 2**64 - 1, dtype=np.uint64)
    _hash_all(start(person), data, ends, scratch, out)
    parts = [data[end - length : end].tobytes() for length, end in zip(LENGTHS, ends.tolist(), strict=True)]
    expected = [hashlib.blake2b(part, digest_size=SIZE, person=person).digest() for part in parts]
    assert out.tobytes() == b"".join(expected)
