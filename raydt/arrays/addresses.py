"""Arrays by their addresses: how one compiled call works on the arrays of thousands of objects.

A kernel takes arrays as arguments, a number that is fixed when it is compiled. :class:`Addresses` lists where the
arrays of one object are; a kernel that is given the lists of many takes one array after another from them
(:func:`array_at`).

Invariant: a list holds its arrays, so that memory it names is never freed; whether they are still those of the object
is for whoever keeps the list to check. A copy of a list is none: addresses do not move with what is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from raydt.arrays.elementary import AnyArray
from raydt.arrays.kernel import emitted_kernel

#: Words of an array in a list: its address, and its length in each of up to three dimensions.
WORDS = 4


@emitted_kernel
def array_at(typing_context: Any, like: Any, words: Any, number: Any) -> Any:
    """Array ``number`` of a list, or all from there on as a tuple; they have the types of ``like``. O(arrays).

    Arrays are in C order, of at most three dimensions; tuples may be in a tuple. Nothing is checked: ``words`` is
    :attr:`Addresses.words`, made of arrays of these types.
    """
    from llvmlite import ir
    from numba.core import types
    from numba.np import arrayobj

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(64)
        given = context.make_array(words)(context, builder, value=arguments[1])
        place = builder.mul(context.cast(builder, arguments[2], number, types.int64), ir.Constant(wide, WORDS))
        begin = builder.gep(builder.bitcast(given.data, wide.as_pointer()), [place])
        tuples: Any = types.BaseTuple
        passed = 0

        def one(kind: Any) -> Any:
            nonlocal passed
            if isinstance(kind, tuples):
                return context.make_tuple(builder, kind, [one(member) for member in kind])
            first = builder.gep(begin, [ir.Constant(wide, WORDS * passed)])
            passed += 1
            address, *shape = (builder.load(builder.gep(first, [ir.Constant(wide, i)])) for i in range(1 + kind.ndim))
            item = context.get_data_type(kind.dtype)
            size = context.get_constant(types.intp, context.get_abi_sizeof(item))
            strides: list[Any] = []
            step = size
            for length in reversed(shape):
                strides.insert(0, step)
                step = builder.mul(step, length)
            made = context.make_array(kind)(context, builder)
            pointer = builder.inttoptr(address, item.as_pointer())
            populate: Any = arrayobj.populate_array
            populate(made, pointer, shape, strides, size, None)
            return made._getvalue()

        return one(like)

    return like(like, words, number), emit


#: An array, or a tuple of these.
Nested = Any


def flat(nested: Nested) -> list[AnyArray]:
    """Return the arrays of tuples within tuples, in their order."""
    return [array for one in nested for array in flat(one)] if isinstance(nested, tuple) else [nested]


class Addresses:
    """The addresses of some arrays, for kernels; ``more`` numbers come after them.

    Attributes
    ----------
    words : ndarray of int64
        Entry ``WORDS * i`` is the address of array i, the next ones are its lengths.
    """

    def __init__(self, arrays: Nested = (), more: Sequence[int] = ()) -> None:
        self._arrays = flat(arrays)
        listed = [(array.ctypes.data, *array.shape, 0, 0, 0)[:WORDS] for array in self._arrays]
        self.words = np.array([word for words in listed for word in words] + list(more), dtype=np.int64)
        #: The address of the words themselves, and their number.
        self.entry = (self.words.ctypes.data, len(self.words), 0, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy lists nothing."""
        return type(self), ()


def fit(arrays: Nested, like: Nested) -> bool:
    """Return whether kernels may take arrays for others ``like`` them: of the same types, in C order."""
    return all(
        array.dtype == other.dtype and array.ndim == other.ndim and array.flags.c_contiguous
        for array, other in zip(flat(arrays), flat(like), strict=True)
    )
