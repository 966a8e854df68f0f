"""The compiled BLAKE2b is the one of ``hashlib``, of any length, with any personalisation, at any place."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from raydt.arrays.digest import BLOCK, SIZE, Words, hash_all, room_for, start

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
