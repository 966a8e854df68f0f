"""How the compiled kernels are compiled: one decorator, so that every kernel follows the same rules.

A kernel is a private function of plain arrays (and named tuples of arrays). It allocates nothing: scratch is
passed in. That allows compilation without Numba's reference counts, whose atomic increments otherwise cost more
than the work in short loops (measured: 194 ns against 1.3 ns for linking one row into a leaf's list).
Kernels release the GIL, are cached on disk, and divide like NumPy.

Numba's cache knows the file of a kernel but not those of the kernels it calls, and it keeps the kernels of each folder
of sources apart. Ours lies in folders named by the hash of everything that a kernel is compiled from: an upgrade or an
edit never meets code compiled from something else, and copies of the same sources (a clone, an installed wheel, the
folder Ray unpacks for a job) compile once between them.

A kernel is compiled from the files that define kernels and the two that say how (this one and ``compiler``), from the
constants that these files import, and from the named tuples that it receives: of the files, those in the folder of its
own method and outside the folders of all methods; of the named tuples, all. Any other edit keeps the compiled code.
Record dtypes need no hash: they are part of a kernel's signature.

Numba is imported by the first kernel that runs, not by the modules that define kernels: to import it takes longer than
to read a config and look at its data.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging  # noqa: F401
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy.ma  # noqa: F401 - which numpy.unique imports when it is first called: a fork does not wait for imports

F = TypeVar("F", bound=Callable[..., Any])

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


def _compiled(function: Callable[..., Any], rules: Mapping[str, Any], cached: bool) -> Any:
    """Return what Numba makes of a kernel; one that only kernels call is not cached but as a part of them."""
    from numba import njit

    from raydt.arrays.compiler import InnerCompiler, KernelCache

    if not cached:
        return njit(function, pipeline_class=InnerCompiler, **rules)
    made = njit(function, **rules)
    made._cache = KernelCache(function)
    return made


class Preparation:
    """The time in which this process compiles or loads kernels, which is none of its work.

    Numba does either while it holds a lock, in one thread at a time; what a kernel calls is a part of it.
    """

    def __init__(self) -> None:
        self.compiled = 0  #: kernels
        self.heard: Callable[[], None] = lambda: None  #: called whenever a function begins to compile
        self._past, self._since, self._depth = 0.0, 0.0, 0

    @property
    def seconds(self) -> float:
        """Seconds since the process began."""
        return self._past + (time.perf_counter() - self._since if self._depth else 0.0)

    def begin(self) -> None:
        """Note that a function begins to compile or to load."""
        if not self._depth:
            self._since = time.perf_counter()
        self._depth += 1

    def end(self) -> None:
        """Note that a function is there."""
        past, self._depth = self.seconds, self._depth - 1
        if not self._depth:
            self._past = past


#: Of this process.
PREPARATION = Preparation()


def work_seconds() -> float:
    """Return ``time.perf_counter`` without the time in which kernels were compiled or loaded."""
    return time.perf_counter() - PREPARATION.seconds


def load() -> None:
    """Import Numba, as the first kernel does otherwise: 0.3 s, for processes that will surely run kernels."""
    with _MAKING:
        from numba import njit  # noqa: F401


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


#: Held while Numba is imported and a kernel is made: threads that meet one for the first time share what is compiled.
_MAKING = threading.RLock()


class _Forks:
    """Has a fork wait for kernels that other threads import, compile or load.

    A forked child has none of these threads: what they hold a lock of would stay locked, and half made, for ever.
    """

    def __init__(self) -> None:
        self._held: list[Any] = []

    def before(self) -> None:
        """Take both locks. A thread may wait for either of them while it holds the other: none is kept for long."""
        while True:
            with _MAKING:
                numba = sys.modules.get("numba.core.compiler_lock")
            first = [] if numba is None else [numba.global_compiler_lock]
            for lock in first:
                lock.acquire()
            if _MAKING.acquire(blocking=False):
                if first or "numba.core.compiler_lock" not in sys.modules:
                    self._held += [*first, _MAKING]
                    return
                _MAKING.release()  # Numba has been imported meanwhile
            for lock in first:
                lock.release()

    def after(self) -> None:
        """Release the locks, in the parent and in the child, whose only thread is the one that took them."""
        while self._held:
            self._held.pop().release()


_FORKS = _Forks()
if hasattr(os, "register_at_fork"):  # not on Windows
    # After ``logging``, whose lock an import of Numba takes: what is registered last is called first before a fork.
    os.register_at_fork(before=_FORKS.before, after_in_parent=_FORKS.after, after_in_child=_FORKS.after)


class _Kernel:
    """A kernel that Numba learns of when Python calls it, or when a kernel is compiled that calls it."""

    def __init__(self, function: Callable[..., Any], rules: Mapping[str, Any], cached: bool = False) -> None:
        functools.update_wrapper(self, function)
        self._rules, self._cached, self._made = rules, cached, None

    @property
    def _dispatcher(self) -> Any:
        if self._made is None:
            with _MAKING:
                if self._made is None:
                    self._made = _compiled(vars(self)["__wrapped__"], self._rules, self._cached)
        return self._made

    @property
    def _numba_type_(self) -> Any:
        """The type by which Numba compiles calls of it."""
        return self._dispatcher._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        made = self._made  # once it is made, without the detour: some kernels take less than a microsecond
        return (self._dispatcher if made is None else made)(*arguments)

    def __reduce__(self) -> str:
        """A kernel is copied by its name, like a function."""
        name: str = vars(self)["__qualname__"]
        return name

    def of_types(self, *arguments: Any) -> Callable[..., Any]:
        """Return what is called for arguments of the types of these; of others it reads memory that is not theirs."""
        from numba import typeof

        entry: Callable[..., Any] = self._dispatcher.compile(tuple(map(typeof, arguments)))
        return entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)


class Repeated:
    """A kernel for calls whose arguments always have the types of the first ones: after some, Numba looks no more.

    A look at the types takes .2 us for each array of each argument: most of the time of a call for one example.
    Whoever replaces an array that may have another type makes another one of these.
    """

    #: Calls before the types are taken as known: that takes as long as ten looks.
    _LOOKS = 10

    def __init__(self, called: Callable[..., Any]) -> None:
        self._kernel = self._called = called
        self._left = self._LOOKS

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy looks at the types again."""
        return Repeated, (self._kernel,)

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel."""
        if self._left:
            self._left -= 1
            if not self._left:
                self._called = cast(Any, self._kernel).of_types(*arguments)
        return self._called(*arguments)


#: The wrapper for calls from C is never used, and takes as long to compile as a small kernel.
_RULES: Any = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
_NOT_FROM_PYTHON: Any = {"no_cpython_wrapper": True}


def inner_kernel(function: F) -> F:
    """Compile a function that only kernels call: it is cached as a part of them, and Python cannot call it."""
    return cast(F, _Kernel(function, {**_RULES, **_NOT_FROM_PYTHON}))


def inlined_kernel(function: F) -> F:
    """An inner kernel whose code is put wherever it is called.

    For functions of many arrays that are called often: a named tuple is passed array by array, seven words each.
    """
    return cast(F, _Kernel(function, {"forceinline": True, **_RULES, **_NOT_FROM_PYTHON}))


class _Emitted:
    """Code that Numba learns of when a kernel is compiled that uses it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__, self.__module__, self.__doc__ = function.__name__, function.__module__, function.__doc__

    @functools.cached_property
    def _numba_type_(self) -> Any:
        """The type by which Numba compiles calls of it."""
        from numba.core import types
        from numba.core.typing import templates

        make = cast(Any, templates).make_intrinsic_template
        return types.Function(make(self, self._function, self.__name__))


def emitted_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Code that kernels call and that Numba cannot make of Python: ``function`` emits it, as for Numba's ``intrinsic``.

    It takes the typing context and the types of the arguments, and returns the signature and a function that emits LLVM
    instructions; None if the types do not fit.
    """
    return cast(Callable[..., Any], _Emitted(function))


def kernel(function: F) -> F:
    """Compile a function that Python calls, by the rules above, at its first call."""
    return cast(F, _Kernel(function, _RULES, cached=True))


def task_kernel(function: F) -> F:
    """Compile a function that Python calls for a task of a thread, and whose code is put wherever a kernel calls it.

    The undivided work calls it in its loop, where it has to cost what an inlined kernel costs.
    """
    return cast(F, _Kernel(function, {"forceinline": True, **_RULES}, cached=True))
