"""How the compiled kernels are compiled: one decorator, so that every kernel follows the same rules.

A kernel is a private function of plain arrays (and named tuples of arrays). It allocates nothing: scratch is
passed in. That allows compilation without Numba's reference counts, whose atomic increments otherwise cost more
than the work in short loops (measured: 194 ns against 1.3 ns for linking one row into a leaf's list).
Kernels release the GIL, are cached on disk (:mod:`raydt.arrays.kernel_cache`), and divide like NumPy.

Numba is imported by the first kernel that runs, not by the modules that define kernels: to import it takes longer than
to read a config and look at its data.
"""

from __future__ import annotations

import functools
import logging  # noqa: F401
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numpy.ma  # noqa: F401 - which numpy.unique imports when it is first called: a fork does not wait for imports

F = TypeVar("F", bound=Callable[..., Any])


def _compiled(function: Callable[..., Any], rules: Mapping[str, Any], cached: bool) -> Any:
    """Return what Numba makes of a kernel; one that only kernels call is not cached but as a part of them."""
    from numba import njit

    from raydt.arrays.compiler import InnerCompiler, KernelCache

    if not cached:
        return njit(function, pipeline_class=InnerCompiler, **rules)
    made = njit(function, **rules)
    made._cache = KernelCache(function)
    return made


def load() -> None:
    """Import Numba, as the first kernel does otherwise: 0.3 s, for processes that will surely run kernels."""
    with _MAKING:
        from numba import njit  # noqa: F401


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
