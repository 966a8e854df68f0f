"""Prequential metrics of classification and regression."""

import numpy as np

from raydt.evaluation.classification import Prequential
from raydt.evaluation.regression import PrequentialErrors


def warmup() -> None:
    """Compile the kernels once, so that processes started later load them from Numba's cache."""
    classes, numbers, labels = Prequential(), PrequentialErrors(), np.zeros(1, dtype=np.int32)
    classes.update(labels, labels, np.zeros(1, dtype=np.uint16))
    numbers.update(np.zeros(1), np.zeros(1))
    classes.mark()
