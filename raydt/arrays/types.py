"""Names of the types of arrays, for annotations: one word for each type of entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Slots = Int32s  #: Positions of examples in memory.
AnyArray = npt.NDArray[Any]
Arrays = dict[str, AnyArray]  #: Arrays by name, such as those of a state.
