"""One digest for a sequence of named arrays, the same on every machine.

Invariant: two sequences have the same digest exactly if names, order, dtypes, shapes and little-endian bytes are
equal. Each array is preceded by a header that fixes its length, so that no two sequences share their bytes.
Which arrays describe a model, and in which order, is the learner's to say. What is large enters by the root of a tree
of hashes that follows its changes (``raydt.examples.row_digest``, ``raydt.learners.outline``).
The format is in ``docs/reference/formats.md``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

_MAGIC = b"raydt-digest-2\n"

#: A name and an array of booleans, integers or floats.
Part = tuple[str, npt.NDArray[Any]]


def digest(parts: Iterable[Part]) -> str:
    """Digest of named arrays in the order given.

    Floats count by their bits: -0.0 differs from 0.0, and one NaN from another.

    Parameters
    ----------
    parts : iterable of (str, ndarray)
        Arrays of booleans, integers or floats, of any shape and memory layout.

    Returns
    -------
    str
        ``sha256:`` and 64 hexadecimal digits.

    Raises
    ------
    TypeError
        An array holds something other than booleans, integers or floats.
    """
    sha = hashlib.sha256(_MAGIC)
    for name, values in parts:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"part {name!r} has dtype {array.dtype}; only booleans, integers and floats have a digest")
        little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        label = name.encode()
        shape = ",".join(map(str, little.shape))
        sha.update(f"{len(label)}:".encode() + label + f"{little.dtype.str}({shape})\n".encode())
        # A view as bytes, not tobytes(): no copy. Empty arrays of several dimensions have no such view.
        sha.update(little.reshape(-1).view(np.uint8).data if little.size else b"")
    return f"sha256:{sha.hexdigest()}"
