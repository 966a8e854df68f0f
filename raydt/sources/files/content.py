"""The hash of a file's bytes, taken along with a read of the file where there is one.

Invariant: the hash does not depend on who fed which bytes, since only bytes that follow those fed before are taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from threading import RLock
from typing import Any

#: Files up to this size are hashed completely; larger ones in evenly spread blocks.
WHOLE_HASH_BYTES = 256 << 20
_BLOCK = 1 << 20


class ContentHash:
    """SHA-256 of a file of ``size`` bytes: all of them up to 256 MiB, else 256 evenly spread blocks of 1 MiB."""

    def __init__(self, size: int) -> None:
        begins, length, blocks = range(1), size, WHOLE_HASH_BYTES // _BLOCK
        if size > WHOLE_HASH_BYTES:
            begins, length = range(blocks), _BLOCK
        self._ranges = [(at, at + length) for at in (b * (size - length) // max(1, blocks - 1) for b in begins)]
        self._digest = hashlib.sha256()
        self._fed = 0  # bytes of the file, from its beginning, that were fed or are not hashed
        self._lock = RLock()  # Arrow reads ahead in a thread

    def feed(self, data: bytes, at: int) -> None:
        """Take the bytes from ``at`` on, as far as they follow those that were fed before."""
        with self._lock:
            end = at + len(data)
            if not at <= self._fed < end:
                return
            for begin, stop in self._ranges:
                low, high = max(begin, self._fed), min(stop, end)
                if low < high:
                    self._digest.update(memoryview(data)[low - at : high - at])
            self._fed = end

    def hexdigest(self, read_at: Callable[[int, int], bytes]) -> str:
        """Return the hash; ``read_at(n, place)`` gives what was not fed."""
        with self._lock:
            for begin, stop in self._ranges:
                while (at := max(begin, self._fed)) < stop and (data := read_at(min(_BLOCK, stop - at), at)):
                    self._fed = at
                    self.feed(data, at)
            return self._digest.hexdigest()


class HashedStream:
    """A file object over an opened stream that feeds the hash with what is read."""

    def __init__(self, stream: Any, content: ContentHash) -> None:
        self._stream, self._content, self._at = stream, content, 0

    @property
    def closed(self) -> bool:
        """Return True once the stream is closed."""
        return bool(self._stream.closed)

    def read(self, size: int) -> bytes:
        """Read up to so many bytes."""
        data: bytes = self._stream.read(size)
        self._content.feed(data, self._at)
        self._at += len(data)
        return data

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
