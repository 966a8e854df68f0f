"""The sources and the places of compiled kernels, and the time it takes to have them.

Numba's cache knows the file of a kernel but not those of the kernels it calls, and it keeps the kernels of each folder
of sources apart. Ours lies in folders named by the hash of everything that a kernel is compiled from: an upgrade or an
edit never meets code compiled from something else, and copies of the same sources (a clone, an installed wheel, the
folder Ray unpacks for a job) compile once between them.

A kernel is compiled from the files that define kernels and the two that say how (``kernel`` and ``compiler``), from the
constants that these files import, and from the named tuples that it receives: of the files, those in the folder of its
own method and outside the folders of all methods; of the named tuples, all. Any other edit keeps the compiled code.
Record dtypes need no hash: they are part of a kernel's signature.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]
_KERNEL = re.compile(r"^@(?:inner_|inlined_|emitted_|task_)?kernel\b", re.M)
_IMPORTS = re.compile(r"^from [\w.]+ import (\([^)]*\)|.*)", re.M)
_NAME = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
_CONSTANT = re.compile(r"^([A-Z][A-Z0-9_]*(?:, [A-Z][A-Z0-9_]*)*)(?:: [^=\n]+)? = .*(?:\n[ )\]}].*)*", re.M)
_RECORD = re.compile(r"^class \w+\(NamedTuple\):\n(?:(?: {4}.*)?\n)+", re.M)
_FIELD = re.compile(r"^(?:class|    \w+:) .*", re.M)


#: What says how all kernels are compiled.
_RULES_OF_ALL = ("arrays/compiler.py", "arrays/kernel.py")


def kernel_sources(package: Path) -> dict[str, str]:
    """Find what kernels in a folder are compiled from, by module: files that define kernels, parts of others."""
    texts = {
        path.relative_to(package).as_posix(): path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))
    }
    found = {p: text for p, text in texts.items() if p in _RULES_OF_ALL or ("kernel" in text and _KERNEL.search(text))}
    wanted = {name for text in found.values() for names in _IMPORTS.findall(text) for name in _NAME.findall(names)}
    others = {path: text for path, text in texts.items() if path not in found}
    constants = {path: list(_CONSTANT.finditer(text)) for path, text in others.items()}
    size = -1
    while size < len(wanted):  # a constant may be made of others
        size = len(wanted)
        for match in chain.from_iterable(constants.values()):
            if wanted & set(match[1].split(", ")):
                wanted |= set(_NAME.findall(match[0]))
    for path, text in others.items():
        parts = [match[0] for match in constants[path] if wanted & set(match[1].split(", "))]
        parts = [*parts, *filter(None, [_records(text)])]
        if parts:
            found[path] = "\n".join(parts)
    return found


def _records(text: str) -> str:
    """Names and fields of the named tuples in a text."""
    if "(NamedTuple):" not in text:
        return ""
    return "\n".join(line for match in _RECORD.finditer(text) for line in _FIELD.findall(match[0]))


def _method(path: str) -> str:
    """The method whose folder a module lies in; empty for a shared module."""
    parts = path.split("/")
    return parts[1] if parts[0] == "learners" and len(parts) > 2 else ""


def stamp(sources: Mapping[str, str], method: str) -> str:
    """Hash of what the kernels of a method's folder, or the shared ones, are compiled from.

    Shared kernels receive named tuples of all methods, and Numba's key of a signature has their types but not the names
    of their fields: the fields of all are part of every hash.
    """
    digest = hashlib.sha256()
    for path, text in sources.items():
        part = text if _method(path) in ("", method) else _records(text)
        digest.update(f"{path}\n{len(part)}\n{part}".encode())
    return digest.hexdigest()[:16]


@functools.cache
def _sources() -> dict[str, str]:
    return kernel_sources(_PACKAGE)


@functools.cache
def _stamp(method: str) -> str:
    return stamp(_sources(), method)


def _stamp_of_other(path: str) -> str:
    """Hash of what a kernel of another package is compiled from: its file, and any kernel of ours."""
    digest = hashlib.sha256(Path(path).read_bytes())
    for item in _sources().items():
        digest.update(repr(item).encode())
    return digest.hexdigest()[:16]


#: Compiled kernels that a wheel brings (``.ci/wheel``), and the level of x86-64 processors they are compiled for.
SHIPPED, LEVEL = _PACKAGE / "kernels", "x86-64-v3"
#: What processors of that level can do, beside what all of them can, as LLVM calls it.
_ABILITIES = ("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2", "ssse3")


@functools.cache
def runs_shipped() -> bool:
    """Return True if there are compiled kernels with this package, and this processor can run them."""
    if not SHIPPED.is_dir():
        return False
    from llvmlite.binding import get_host_cpu_features  # Numba itself takes ten times as long to import

    found = get_host_cpu_features()
    return all(found.get(ability, False) for ability in _ABILITIES)


def _cache_folder() -> Path:
    """``NUMBA_CACHE_DIR``, or the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("NUMBA_CACHE_DIR") or Path(cache) / "raydt" / "numba")


class BySources:
    """Tells Numba where the compiled code of a kernel is: by the content of its sources and its name, not by its path.

    It has the methods of Numba's own locators, the first of which to return itself for a function is taken. A kernel of
    another package may call any of ours.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename  # for Numba's warnings
        self._name = f"{function.__module__}-{function.__code__.co_firstlineno}"
        package, _, module = function.__module__.partition(".")
        ours = package == _PACKAGE.name
        self._stamp = _stamp(_method(module.replace(".", "/"))) if ours else _stamp_of_other(self._py_file)
        self._folder = _cache_folder() / self._stamp

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> BySources | None:
        """Return the locator of a kernel; None for one that is in no file, or where nothing can be written."""
        if not os.path.exists(py_file):
            return None
        # Made when the first kernel is compiled (``ensure_cache_path``): importing this package leaves nothing behind.
        locator = cls(py_func)
        existing = next(folder for folder in (locator._folder, *locator._folder.parents) if folder.exists())
        return locator if existing.is_dir() and os.access(existing, os.W_OK) else None

    def ensure_cache_path(self) -> None:
        """Make the folder again, should somebody have removed it."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        """Folder of the compiled code."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """Hash of the sources that the kernel was compiled from."""
        return self._stamp

    def get_disambiguator(self) -> str:
        """Name that tells kernels in one folder apart."""
        return self._name


@functools.cache
def _compiler() -> str:
    """Return the name of the compiler: Python and Numba."""
    from importlib.metadata import version

    return f"{sys.implementation.cache_tag}-{version('numba')}"


def _processor() -> str:
    """Return the processor that kernels are compiled for: ``NUMBA_CPU_NAME``, or this one."""
    from llvmlite.binding import get_host_cpu_name

    name: str = os.environ.get("NUMBA_CPU_NAME") or get_host_cpu_name()
    return name


def compile_once(name: str, module: str, run: Callable[[], object]) -> None:
    """Call ``run``, which compiles kernels, unless it has ended before with the same kernels, Numba and processor.

    To load a kernel that is not needed costs 10 ms. With a warm cache each kernel is therefore loaded when it is first
    called; ``run`` only keeps compiling out of the work. An empty file of this ``name`` in the cache records that it
    has ended. ``module`` is that of the learner; kernels outside this package are not known: ``run`` is called.
    """
    package, _, rest = module.partition(".")
    if package != _PACKAGE.name:
        run()
        return
    stamped, marked = _stamp(_method(rest.replace(".", "/"))), f"{name}-{_compiler()}"
    folder = _cache_folder() / stamped
    done = folder / f"{marked}-{_processor()}.done"
    if done.exists() or (runs_shipped() and (SHIPPED / stamped / f"{marked}-{LEVEL}.done").exists()):
        return
    run()
    with contextlib.suppress(OSError):  # where nothing can be written, Numba keeps no compiled kernel either
        folder.mkdir(parents=True, exist_ok=True)
        done.touch()
