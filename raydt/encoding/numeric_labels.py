"""Labels that are numbers, the targets of a regression, behind the interface of ``raydt.encoding.labels.Labels``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raydt.encoding.columns import inexact, infinite, missing, numbers
from raydt.encoding.faults import Faults, Mask
from raydt.examples.targets import NUMBERS, OUT_OF_RANGE, out_of_range


class NumericLabels:
    """Labels as they are; nothing is coded, and nothing has to be remembered."""

    dtype = NUMBERS
    positive: ClassVar[None] = None

    def classes(self, row: int) -> list[Any]:
        """Numbers have no classes."""
        return []

    def values(self) -> list[Any]:
        """Numbers have no codes."""
        return []

    def read(
        self, column: pa.Array, name: str, row: int, wanted: Mask | None, needed: Mask | None, faults: Faults
    ) -> npt.NDArray[np.float64]:
        """Return float64 labels, shape (n,), -0.0 as 0.0 and NaN for none; arguments as of ``Labels.read``."""
        faults.mark("infinite_label", name, infinite(column), wanted)
        faults.mark("inexact_label", name, inexact(column), wanted)
        faults.mark("no_label", name, missing(column), needed)
        values = numbers(column) + 0.0
        faults.mark("label_range", name, out_of_range(values), wanted, range=OUT_OF_RANGE)
        keep = faults.keep(wanted)
        return values if keep is None else np.where(keep, values, np.nan)

    def forget(self, row: int) -> None:
        """Nothing to forget."""

    def state(self, row: int | None) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing."""
