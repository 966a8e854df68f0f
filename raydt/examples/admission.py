"""Admission: decides about the updates of a batch before anything of it is applied."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import Int32s
from raydt.examples.updates import CARRIES_ROW


class Admission(NamedTuple):
    """Decisions of admission by update: slots emptied (``old``) and filled (``new``), -1: none, and faults."""

    old: Int32s
    new: Int32s
    fault: npt.NDArray[np.int8]
    row: Int32s


def nothing_admitted(op: npt.NDArray[np.int8]) -> Admission:
    """Before admission."""
    m = len(op)
    row = (np.cumsum(CARRIES_ROW[op]) - 1).astype(np.int32)
    return Admission(np.full(m, -1, dtype=np.int32), np.full(m, -1, dtype=np.int32), np.zeros(m, dtype=np.int8), row)
