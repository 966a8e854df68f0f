"""Arrays that are kept compressed: of a model that may not be used for long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from raydt.arrays.types import AnyArray

_CODEC = "zstd"


class Compressed(Mapping[str, AnyArray]):
    """Arrays by name, bit for bit those that were given; each access makes a new one. O(bytes) to make and to read."""

    def __init__(self, arrays: Mapping[str, AnyArray]) -> None:
        self._parts = {
            name: (pa.compress(np.ascontiguousarray(one), _CODEC, asbytes=True), one.dtype, one.shape)
            for name, one in arrays.items()
        }

    def __getitem__(self, name: str) -> AnyArray:
        part, dtype, shape = self._parts[name]
        array = np.empty(shape, dtype=dtype)
        if array.nbytes:
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(
                pa.decompress(part, array.nbytes, _CODEC, asbytes=True), dtype=np.uint8
            )
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)
