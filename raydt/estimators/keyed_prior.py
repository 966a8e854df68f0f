"""What stands for keys without a model: the labels of the live rows of all keys, by weight.

Invariant: it follows from the live rows alone, not from the order in which they came or how they were divided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydt.arrays.types import AnyArray, Floats
from raydt.examples.weights import UNIT


@dataclass(frozen=True)
class Prior:
    """Weights of the rows, in units of 2**-16: of each class, or of all rows with the sum of their numbers."""

    labels: list[Any]
    counts: list[int]
    total: float = 0.0
    saved: bool = False  #: Whether it came with models that have no examples.

    @property
    def mean(self) -> float:
        """Mean of the numbers; 0 without rows, as regressors predict then."""
        weight = sum(self.counts)
        return self.total / (weight / UNIT) if weight else 0.0

    def shares(self, classes: AnyArray) -> Floats:
        """Return the share of each class, shape (classes,); equal ones without rows."""
        counts = dict(zip(self.labels, self.counts, strict=True))
        found = np.array([counts.get(label, 0) for label in classes.tolist()], dtype=np.float64)
        return found / found.sum() if found.any() else np.full(len(classes), 1 / len(classes))

    def as_json(self) -> dict[str, Any]:
        """Return what a manifest says of it."""
        return {"labels": self.labels, "counts": self.counts, "total": self.total}


def prior_of(models: Iterable[Any], classes: AnyArray | None) -> Prior:
    """Return the prior of models with their examples; ``classes`` are None where labels are numbers. O(rows)."""
    counts = dict.fromkeys([None] if classes is None else classes.tolist(), 0)
    numbers: list[float] = []
    for model in models:
        store = model._store()
        slots = store.slots()
        y, given = store.y[slots], store.weights(slots)
        weights = np.full(len(y), UNIT, dtype=np.int64) if given is None else given.astype(np.int64)
        if classes is None:
            counts[None] += int(weights.sum())
            numbers += (y * (weights / UNIT)).tolist()
            continue
        sums = np.zeros(len(model.classes_), dtype=np.int64)
        np.add.at(sums, y, weights)
        for label, weight in zip(model.classes_.tolist(), sums.tolist(), strict=True):
            counts[label] += weight
    return Prior([] if classes is None else list(counts), list(counts.values()), math.fsum(numbers))
