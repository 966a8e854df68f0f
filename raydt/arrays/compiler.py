"""The compiler and the cache of kernels: each function is optimised and emitted once, with the kernel that calls it.

Numba optimises every function that a kernel calls, emits machine code of it, and does both once more in each kernel
that inlines the function. Of an inner kernel alone no machine code ever runs: here it is typed and lowered to LLVM's
instructions only. The code of a kernel stays the same (measured: to compile a first training takes 19 processor seconds
instead of 60).

The cache has one file for each kernel and each types of arguments, named by what it was compiled from. Numba's own has
an index, which imports whatever types any of the entries needs, and in which two processes that compile at a time
choose one name for two codes. A file that is damaged is compiled again. Numba's environments of functions that are
called are left out: they hold the constants of object mode, and to load one imports the module of the function. What
the user's cache does not have may be in the package (``.ci/wheel``), compiled for a level that most processors have.

This module imports Numba; :mod:`raydt.arrays.kernel` imports it when the first kernel runs.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from typing import Any, cast

from llvmlite.binding import parse_bitcode
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CR_FIELDS, CompilerBase, CompileResult, DefaultPassBuilder
from numba.core.event import Listener, register

from raydt.arrays.kernel_cache import LEVEL, SHIPPED, BySources, runs_shipped
from raydt.parallel import PREPARATION

_SUM_BYTES = 16


class _WithoutEnvironments:
    """A code generator in which no function has an address that an environment could be written to."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        """Write no environment."""


class _InnerLibrary(JITCodeLibrary):
    """LLVM's instructions of an inner kernel, for the kernels that it becomes a part of."""

    codegen = property(lambda self: _WithoutEnvironments(self._codegen))

    def _optimize_final_module(self) -> None:
        """Leave the optimisation to the kernel."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, by which Numba knows a function without machine code."""
        self._ensure_finalized()
        return 0


class InnerCompiler(CompilerBase):
    """Numba's compiler, for functions that only kernels call."""

    def define_pipelines(self) -> list[Any]:
        """Return Numba's passes, which put what they make into the library that is there."""
        state = self.state
        if state.library is None:
            state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
        passes = DefaultPassBuilder.define_nopython_pipeline(state)
        passes.finalize()
        return [passes]


class _LoadedLibrary(JITCodeLibrary):
    """Machine code from the cache. Its instructions are parsed if a kernel is compiled that calls this one."""

    _bitcode = b""

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = parse_bitcode(self._bitcode)
        return self._shared_module


class _CompiledKernels(CompileResultCacheImpl):
    """The part of a compiled kernel that the cache keeps."""

    _locator_classes = cast(Any, (BySources, *CompileResultCacheImpl._locator_classes))

    def reduce(self, result: Any) -> Any:
        """Return what a file holds of a compiled kernel."""
        (name, _, (code, bitcode)), *rest, _ = super().reduce(result)
        module = result.library._get_module_for_linking()
        values = (*module.functions, *module.global_variables)
        return (name, code, bitcode, [value.name for value in values if not value.is_declaration]), *rest

    def rebuild(self, context: Any, payload: Any) -> Any:
        """Return the compiled kernel of what :meth:`reduce` kept, as Numba does."""
        (name, code, bitcode, symbols), description, environment, signature, objectmode, lifted, told, reload = payload
        codegen = context.codegen()
        library: Any = _LoadedLibrary(codegen, name)
        library.enable_object_caching()
        library._set_compiled_object(code)
        library._bitcode = bitcode
        library._finalize_final_module()
        codegen._engine._defined_symbols |= set(symbols)
        fields = dict.fromkeys(CR_FIELDS) | {
            "target_context": context,
            "typing_context": context.typing_context,
            "library": library,
            "environment": environment,
            "entry_point": context.get_executable(library, description, environment),
            "fndesc": description,
            "type_annotation": told,
            "signature": signature,
            "objectmode": objectmode,
            "lifted": lifted,
            "reload_init": reload,
            "referenced_envs": (),
        }
        return CompileResult(**fields)


class _Files:
    """The files of a kernel in the cache: one for each types of arguments, with the sum of its bytes after them."""

    def __init__(self, numbas: Any) -> None:
        self._numbas = numbas

    def _name(self, *key: Any) -> str:
        """Return the name of the file of a signature, processor and code, all of which is told by its text."""
        text = repr((self._numbas._version, self._numbas._source_stamp, *key)).encode()
        return f"{self._numbas._index_name.removesuffix('nbi')}{_sum(text).hex()}.nbc"

    def load(self, key: Any) -> Any:
        """Return what a file holds; None, after which the kernel is compiled, if there is none or it is damaged."""
        paths = [self._numbas._data_path(self._name(*key))]
        if runs_shipped():
            signature, (triple, *_), code = key
            name = self._name(signature, (triple, LEVEL, ""), code)
            paths.append(str(SHIPPED / self._numbas._source_stamp / name))
        for path in paths:
            with contextlib.suppress(OSError), open(path, "rb") as file:
                data = file.read()
                if _sum(data[:-_SUM_BYTES]) == data[-_SUM_BYTES:]:
                    return self._numbas._load_data(path)
        return None

    def save(self, key: Any, data: Any) -> None:
        """Write a file; another process finds the whole file or none."""
        written = self._numbas._dump(data)
        with self._numbas._open_for_write(self._numbas._data_path(self._name(*key))) as file:
            file.write(written + _sum(written))


def _sum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_SUM_BYTES).digest()


class KernelCache(FunctionCache):
    """Numba's cache of a kernel, where :class:`BySources` says, and without what Numba needs only to compile.

    Before Numba loads compiled code, it imports the implementations of every function it can compile, and starts its
    run time for reference counts: a third of a short command. Kernels need neither: they allocate nothing, and a kernel
    that has to be compiled makes Numba do both itself.
    """

    _impl_class = _CompiledKernels
    _cache_file: Any

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Files(self._cache_file)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a kernel from the cache, None if it has to be compiled."""
        PREPARATION.begin()
        try:
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        finally:
            PREPARATION.end()

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel that was compiled; where nothing can be written, each process compiles it."""
        PREPARATION.compiled += 1
        with contextlib.suppress(OSError):
            self._save_overload(sig, data)


class _Listener(Listener):
    """Hears when Numba begins and ends to compile a function, also one that a kernel calls."""

    def on_start(self, event: Any) -> None:
        """Begin, and say so."""
        PREPARATION.begin()
        PREPARATION.heard()

    def on_end(self, event: Any) -> None:
        """End, also after an error."""
        PREPARATION.end()


register("numba:compile", _Listener())
