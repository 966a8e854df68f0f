"""Predictions before the first training: from the labels of the examples that are live just then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from raydt.examples.admission import Admission
from raydt.examples.updates import BatchResult
from raydt.learners.gbdt.model import constant_of

if TYPE_CHECKING:
    from raydt.examples.store import ExampleStore


def before_the_model(
    store: ExampleStore, start: int, stop: int, asked: Any, admitted: Admission, result: BatchResult
) -> None:
    """Predict the updates ``asked``, positions in a batch that begins with update ``start``.

    The updates before ``stop`` have been admitted. O(live log(live)) for each.
    """
    after = store.slots()
    positions: Iterable[int] = asked.tolist()
    for i in positions:
        deleted_later = admitted.old[i + 1 : stop]
        slots = np.concatenate([after, deleted_later[deleted_later >= 0]])
        result.predictions[i] = constant_of(store.y[slots[store.born[slots] < start + i]])
