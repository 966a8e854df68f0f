"""Faults of rows: what makes them bad, as codes with a column and a value, and the errors of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raydt.arrays.types import Bools
from raydt.errors import InputError
from raydt.messages import message
from raydt.messages.rows import IN_MEMORY
from raydt.redaction import quoted

Mask = Bools


class Fault(NamedTuple):
    """Why a row is bad."""

    code: str  #: Names the sentence in ``raydt.messages.rows``.
    column: str
    value: Any = None  #: The value at fault, if the sentence shows it.
    more: Mapping[str, Any] = MappingProxyType({})  #: Further parameters of the sentence.


class Faults(dict[int, Fault]):
    """The first fault of each row of a chunk, by position, but of those that are ``bad`` already."""

    def __init__(self, length: int, bad: Iterable[int] = ()) -> None:
        super().__init__()
        self.good = np.ones(length, dtype=np.bool_)
        self.good[list(bad)] = False

    def mark(
        self, code: str, column: str, mask: Mask | None, needed: Mask | None = None, values: Any = None, **more: Any
    ) -> None:
        """Note a fault of the rows in ``mask`` and ``needed`` (None: all) that have none yet, for a sentence."""
        if mask is None:
            return
        new = mask & self.good if needed is None else mask & needed & self.good
        for position in np.flatnonzero(new).tolist():
            value = None if values is None else values[position]
            if isinstance(value, pa.Scalar | np.generic):
                value = value.as_py() if isinstance(value, pa.Scalar) else value.item()
            self[position] = Fault(code, column, value, more)
        self.good &= ~new

    def keep(self, needed: Mask | None) -> Mask | None:
        """Return the mask of the rows that are needed and good; None for all."""
        kept = self.good if needed is None else self.good & needed
        return None if kept.all() else kept


def error_of(
    fault: Fault, *, file: str | None = None, row: int | None = None, stored: Mapping[str, str] | None = None
) -> InputError:
    """Return the error of a fault in a row of a file or of data in memory; ``stored`` has other names of columns."""
    shown = {"value": quoted(fault.value, 40), **fault.more}
    if fault.code == "many_classes":
        from raydt.learners import for_numbers  # needed for messages only: compiled kernels are imported with it

        shown["numeric"] = for_numbers()
    said = message(f"rows.{fault.code}", **shown)
    column = (stored or {}).get(fault.column, fault.column)
    if file is None:
        return InputError(said.alone(), row=row, column=column, remedy=IN_MEMORY.get(fault.code))
    return InputError(said, file=file, row=row, column=column)
