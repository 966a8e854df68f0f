"""States of scores that earlier versions wrote, in today's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from raydt.evaluation.adwin import new_adwin
from raydt.evaluation.ranking import no_ranks


def former_prequential(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state that has the confusion, the hits of the baselines and the last label only, of a classification."""
    confusion, inserted = np.array(state["confusion"]), np.array(state["inserted"])
    hits = np.array([confusion.sum(), np.trace(confusion), state["no_change"], state["majority"]], dtype=np.int64)
    return {
        "confusion": confusion,
        "hits": hits,
        "classes": np.array([confusion.sum(axis=1), confusion.sum(axis=0), np.diag(confusion)]),
        "faded": np.zeros(4),
        "faded_classes": np.zeros((2, len(confusion))),
        "ranks": no_ranks(),
        "inserted": inserted,
        "registers": np.array([state["last"], inserted.argmax() if len(inserted) else 0], dtype=np.int64),
        "alarms": 0,
        **{f"adwin_{name}": array for name, array in new_adwin()._asdict().items()},
    }


def former_errors(state: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Return a state that has other registers (last, first, total, and two sums of spread), of a regression.

    ``width`` is the number of sums.
    """
    last, first, total, spread, spread_squared = state["registers"].tolist()
    return {
        "sums": np.array([float(state["scored"]), *state["sums"].tolist(), spread, spread_squared]),
        "registers": np.array([float(state["inserted"]), last, first, total]),
        "window": np.zeros(width),
        "faded": np.zeros(width),
    }
