"""How the compiled kernels are compiled: one decorator, so that every kernel follows the same rules.

A kernel is a private function of plain arrays (and named tuples of arrays). It allocates nothing: scratch is
passed in. That allows compilation without Numba's reference counts, whose atomic increments otherwise cost more
than the work in short loops (measured: 194 ns against 1.3 ns for linking one row into a leaf's list).
Kernels release the GIL, are cached on disk, and divide like NumPy.

Numba's cache knows the file of a kernel but not those of the kernels it calls, and it keeps the kernels of each folder
of sources apart. Ours lies in a folder named by the hash of all sources of this package: an upgrade or an edit never
meets code compiled from something else, and copies of the same sources (a clone, an installed wheel, the folder Ray
unpacks for a job) compile once between them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import caching

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


class _BySources:
    """Where Numba looks for a kernel of ours: by the content of all sources and the kernel's name, not by its path.

    It has the methods of Numba's own locators, the first of which to return itself for a function is taken.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename  # for Numba's warnings
        self._name = f"{function.__module__}-{function.__code__.co_firstlineno}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _BySources | None:
        """The place of a kernel; None for functions that are not ours, or where nothing can be written."""
        if not py_func.__module__.startswith(f"{__package__}."):
            return None
        # Made when the first kernel is compiled (``ensure_cache_path``): importing this package leaves nothing behind.
        folder = Path(_CACHE_FOLDER)
        there = next(place for place in (folder, *folder.parents) if place.exists())
        return cls(py_func) if there.is_dir() and os.access(there, os.W_OK) else None

    def ensure_cache_path(self) -> None:
        """Make the folder again, should somebody have removed it."""
        os.makedirs(_CACHE_FOLDER, exist_ok=True)

    def get_cache_path(self) -> str:
        """The folder of these sources."""
        return _CACHE_FOLDER

    def get_source_stamp(self) -> str:
        """What the kernel was compiled from."""
        return SOURCES

    def get_disambiguator(self) -> str:
        """What tells kernels of one name apart."""
        return self._name


_numba: Any = caching.CompileResultCacheImpl
_numba._locator_classes.insert(0, _BySources)

#: The wrapper for calls from C is never used, and takes as long to compile as a small kernel.
_RULES: Any = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
_NOT_FROM_PYTHON: Any = {"no_cpython_wrapper": True}


def inner_kernel(function: F) -> F:
    """Compile a function that only kernels call: it is cached as a part of them, and Python cannot call it."""
    return cast(F, njit(**_RULES, **_NOT_FROM_PYTHON)(function))


def inlined_kernel(function: F) -> F:
    """An inner kernel whose code is put wherever it is called.

    For functions of many arrays that are called often: a named tuple is passed array by array, seven words each.
    """
    return cast(F, njit(forceinline=True, **_RULES, **_NOT_FROM_PYTHON)(function))


def kernel(function: F) -> F:
    """Compile a function that Python calls, by the rules above, at its first call."""
    return cast(F, njit(cache=True, **_RULES)(function))
