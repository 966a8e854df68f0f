"""Faults of rows: what makes them bad, as codes with a column and a value; the sentences are in ``phrases``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]


class Fault(NamedTuple):
    """Why a row is bad."""

    code: str  #: Names the sentence in ``raydt.encoding.phrases``.
    column: str
    value: Any = None  #: The value at fault, if the sentence shows it.
    more: Mapping[str, Any] = MappingProxyType({})  #: Further parameters of the sentence.


class Faults(dict[int, Fault]):
    """The first fault of each bad row of one chunk, by position.

    Parameters
    ----------
    length : int
        Rows of the chunk.
    bad : iterable of int
        Positions of rows that are bad already, for reasons that are kept elsewhere.
    """

    def __init__(self, length: int, bad: Iterable[int] = ()) -> None:
        super().__init__()
        self.good = np.ones(length, dtype=np.bool_)
        self.good[list(bad)] = False

    def mark(
        self, code: str, column: str, mask: Mask | None, needed: Mask | None = None, values: Any = None, **more: Any
    ) -> None:
        """Note a fault of the rows where both masks, shape (n,), are true and that have none yet.

        Parameters
        ----------
        code, column : str
        mask : ndarray of bool or None
            None for no row.
        needed : ndarray of bool, optional
            None for all rows.
        values : pa.Array or ndarray, shape (n,), optional
            Values that the sentence shows.
        **more
            Further parameters of the sentence.
        """
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
