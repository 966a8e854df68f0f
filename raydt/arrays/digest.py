"""One digest for a sequence of named arrays, the same on every machine.

Invariant: two sequences have the same digest exactly if names, order, dtypes, shapes and little-endian bytes are equal
(``docs/reference/formats.md``). Which arrays describe a model is the learner's to say; what is large enters by the root
of a tree of hashes (``raydt.examples.row_digest``, ``raydt.trees.tree_digest``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray
from raydt.messages import message

_MAGIC = b"raydt-digest-2\n"
#: A digest that is not complete: an object of hashlib.
Digest = Any
#: Numbers of a padded array that are made at a time.
_BLOCK = 1 << 16


class Padded(NamedTuple):
    """``head``, then ``rest`` times ``fill``, but 1 at the places ``ones``: an array too long to be made."""

    head: AnyArray
    rest: int
    fill: int
    ones: npt.NDArray[np.integer]

    def blocks(self) -> Iterator[AnyArray]:
        """The array, some numbers at a time."""
        yield self.head
        for begin in range(0, self.rest, _BLOCK):
            block = np.full(min(_BLOCK, self.rest - begin), self.fill, dtype=self.head.dtype)
            first, last = np.searchsorted(self.ones, [begin, begin + len(block)])
            block[self.ones[first:last] - begin] = 1
            yield block


#: A name and an array of booleans, integers or floats.
Part = tuple[str, AnyArray | Padded]


def encoded(parts: Iterable[Part]) -> bytes:
    """Return the bytes of named arrays as :func:`digest` takes them in their place, any number of times."""
    pieces: list[Any] = []
    _add(pieces.append, parts)
    return b"".join(pieces)


def digest(parts: Iterable[Part | bytes], begun: Digest | None = None) -> str:
    """Return ``sha256:`` and 64 hexadecimal digits of named arrays in the order given, whatever their memory layout.

    Floats count by their bits: -0.0 differs from 0.0, and one NaN from another. Arrays of other things than booleans,
    integers and floats are a ``TypeError``. ``begun`` is of the parts before these and stays as it is.
    """
    sha = begin_digest(()) if begun is None else begun.copy()
    _add(sha.update, parts)
    return f"sha256:{sha.hexdigest()}"


def begin_digest(parts: Iterable[Part]) -> Digest:
    """Begin a digest that :func:`digest` goes on with, any number of times."""
    sha = hashlib.sha256(_MAGIC)
    _add(sha.update, parts)
    return sha


def _add(put: Callable[[Any], None], parts: Iterable[Part | bytes]) -> None:
    for part in parts:
        if isinstance(part, bytes):
            put(part)
            continue
        name, values = part
        padded = values if isinstance(values, Padded) else None
        array = np.asarray(values if padded is None else padded.head)
        if array.dtype.kind not in "biuf":
            raise TypeError(message("states.digest", part=name, dtype=array.dtype))
        dtype, label = array.dtype.newbyteorder("<"), name.encode()
        shape = ",".join(map(str, array.shape if padded is None else (len(array) + padded.rest,)))
        put(f"{len(label)}:".encode() + label + f"{dtype.str}({shape})\n".encode())
        for block in (array,) if padded is None else padded.blocks():
            little = block.astype(dtype, order="C", copy=False)
            # A view as bytes, not tobytes(): no copy. Empty arrays of several dimensions have no such view.
            put(little.reshape(-1).view(np.uint8).data if little.size else b"")
