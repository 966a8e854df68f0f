"""How the compiled kernels are compiled: one decorator, so that every kernel follows the same rules.

A kernel is a private function of plain arrays (and named tuples of arrays). It allocates nothing: scratch is
passed in. That allows compilation without Numba's reference counts, whose atomic increments otherwise cost more
than the work in short loops (measured: 194 ns against 1.3 ns for linking one row into a leaf's list).
Kernels release the GIL, are cached on disk, and divide like NumPy.

Numba's cache knows the file of a kernel but not those of the kernels it calls. Ours lies in a folder named by the
hash of all sources of this package, so that an upgrade or an edit never meets code compiled from something else.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit

F = TypeVar("F", bound=Callable[..., Any])


def _hash_of_sources() -> str:
    package = Path(__file__).parent
    sources = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        sources.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return sources.hexdigest()[:16]


def _cache_folder() -> str:
    """``NUMBA_CACHE_DIR``, or the user's cache, and in it a folder for these sources."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    base = os.environ.get("NUMBA_CACHE_DIR") or Path(cache) / "raydt" / "numba"
    return str(Path(base) / SOURCES)


#: What this package is: the hash of all its sources.
SOURCES = _hash_of_sources()
_CACHE_FOLDER = _cache_folder()
#: The wrapper for calls from C is never used, and takes as long to compile as a small kernel.
_RULES: Any = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
_NOT_FROM_PYTHON: Any = {"no_cpython_wrapper": True}


def inner_kernel(function: F) -> F:
    """Compile a function that only kernels call: it is cached as a part of them, and Python cannot call it."""
    return cast(F, njit(**_RULES, **_NOT_FROM_PYTHON)(function))


def kernel(function: F) -> F:
    """Compile a function that Python calls, by the rules above, at its first call."""
    theirs = getattr(config, "CACHE_DIR")  # noqa: B009 (set by numba at run time)
    setattr(config, "CACHE_DIR", _CACHE_FOLDER)  # noqa: B010
    try:
        return cast(F, njit(cache=True, **_RULES)(function))
    finally:
        setattr(config, "CACHE_DIR", theirs)  # noqa: B010
