"""Arrays that arrive in a process become its own.

What Ray delivers is read-only and may be shared memory. Numba compiles a kernel once more for a read-only array,
and a view of ten elements keeps a whole message alive; a copy on arrival rules out both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def own(value: T) -> T:
    """``value`` with every read-only array in it, at any depth of mappings, lists and dataclasses, copied."""
    result: Any = value
    if isinstance(value, np.ndarray):
        result = value if value.flags.writeable else value.copy(order="K")
    elif isinstance(value, Mapping):
        result = {key: own(item) for key, item in value.items()}
    elif isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple takes its fields one by one
        result = type(value)(*map(own, value))
    elif isinstance(value, list | tuple):
        result = type(value)(own(item) for item in value)
    elif is_dataclass(value) and not isinstance(value, type):
        result = type(value)(**{field.name: own(getattr(value, field.name)) for field in fields(value)})
    owned: T = result
    return owned
