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
    """Array ``number`` of a list, which has the type of ``like`` (C order, at most three dimensions). O(1).

    Nothing is checked: ``words`` is :attr:`Addresses.words`, made of arrays of these types.
    """
    from llvmlite import ir
    from numba.core import types
    from numba.np import arrayobj

    if not (isinstance(like, types.Array) and like.layout == "C" and like.ndim < WORDS):
        return None

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(64)
        given = context.make_array(words)(context, builder, value=arguments[1])
        place = builder.mul(context.cast(builder, arguments[2], number, types.int64), ir.Constant(wide, WORDS))
        first = builder.gep(builder.bitcast(given.data, wide.as_pointer()), [place])
        address, *shape = (builder.load(builder.gep(first, [ir.Constant(wide, i)])) for i in range(1 + like.ndim))
        item = context.get_data_type(like.dtype)
        size = context.get_constant(types.intp, context.get_abi_sizeof(item))
        strides: list[Any] = []
        step = size
        for length in reversed(shape):
            strides.insert(0, step)
            step = builder.mul(step, length)
        made = context.make_array(like)(context, builder)
        pointer = builder.inttoptr(address, item.as_pointer())
        populate: Any = arrayobj.populate_array
        populate(made, pointer, shape, strides, size, None)
        return made._getvalue()

    return like(like, words, number), emit


class Addresses:
    """The addresses of some arrays, for kernels; ``more`` numbers come after them.

    Attributes
    ----------
    words : ndarray of int64
        Entry ``WORDS * i`` is the address of array i, the next ones are its lengths.
    """

    def __init__(self, arrays: Sequence[AnyArray] = (), more: Sequence[int] = ()) -> None:
        self._arrays = tuple(arrays)
        listed = [(array.ctypes.data, *array.shape, 0, 0, 0)[:WORDS] for array in self._arrays]
        self.words = np.array([word for words in listed for word in words] + list(more), dtype=np.int64)
        #: The address of the words themselves, and their number.
        self.entry = (self.words.ctypes.data, len(self.words), 0, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy lists nothing."""
        return type(self), ()


def fit(arrays: Sequence[AnyArray], like: Sequence[AnyArray]) -> bool:
    """Return whether kernels may take arrays for others ``like`` them: of the same types, in C order."""
    return all(
        array.dtype == other.dtype and array.ndim == other.ndim and array.flags.c_contiguous
        for array, other in zip(arrays, like, strict=True)
    )
