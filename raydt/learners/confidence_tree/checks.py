"""What is required of arrays from a file before kernels follow the indices and counters in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from raydt.features import Features
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions

Arrays = Mapping[str, npt.NDArray[Any]]


def check_model(arrays: Arrays, features: Features, classes: int) -> None:
    """A tree over these features."""


def check_state(
    arrays: Arrays, groups: Mapping[int, Arrays], options: ConfidenceTreeOptions, features: Features, classes: int
) -> None:
    """A state."""
