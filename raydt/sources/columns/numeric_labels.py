"""Labels that are numbers, the targets of a regression, behind the interface of ``sources.columns.labels.Labels``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raydt.errors import OR_SKIP
from raydt.examples.targets import NUMBERS, OUT_OF_RANGE, out_of_range
from raydt.sources.columns.bad_rows import BadRows, Mask
from raydt.sources.columns.encoding import inexact, infinite, missing, numbers
from raydt.sources.columns.labels import NO_LABEL


class NumericLabels:
    """Labels as they are; nothing is coded, and nothing has to be remembered."""

    dtype = NUMBERS
    positive: ClassVar[None] = None

    @property
    def classes(self) -> list[Any]:
        """Numbers have no classes."""
        return []

    def read(
        self, column: pa.Array, name: str, row: int, wanted: Mask | None, needed: Mask | None, bad: BadRows
    ) -> npt.NDArray[np.float64]:
        """Labels of a column as float64, shape (n,), -0.0 as 0.0; arguments as of ``Labels.read``.

        A row that may have a label, a query with one, must have one that can be used; NaN where there is none.
        """
        scale = "Scale the column, or write it as floating-point numbers"
        bad.add_mask(infinite(column), wanted, name, "an infinite label", NO_LABEL)
        bad.add_mask(inexact(column), wanted, name, "an integer beyond 2**53 has no exact float64", scale + OR_SKIP)
        bad.add_mask(missing(column), needed, name, "no label", NO_LABEL)
        values = numbers(column) + 0.0
        bad.add_mask(out_of_range(values), wanted, name, OUT_OF_RANGE, "Give the label in another unit" + OR_SKIP)
        keep = bad.keep(wanted)
        return values if keep is None else np.where(keep, values, np.nan)

    def state(self, row: int | None) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing."""
