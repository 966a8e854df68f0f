"""Scores of a key in its state, where tables of ranks are mostly 0; and scores over all keys, from the sums of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from raydt.arrays.types import AnyArray
from raydt.evaluation.counting import LEARNER, MAJORITY, NO_CHANGE, SCORED
from raydt.evaluation.ranking import dense_ranks, ranks_in, sparse_ranks
from raydt.evaluation.regression import PrequentialErrors

#: Tables of ranks in the state of scores.
_RANKS = ("ranks", "window_ranks")


def narrow(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state of scores without its zeros."""
    found = dict(scores)
    for name in [one for one in _RANKS if one in found and found[one].size]:
        places, numbers = sparse_ranks(found.pop(name))
        found |= {f"{name}_places": places, f"{name}_numbers": numbers}
    return found


def whole(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return what :func:`narrow` was given; KeyError or ValueError if it cannot have been a table."""
    found = dict(scores)
    for name in _RANKS:
        ranks = ranks_in(scores, name)
        if ranks is not None:
            del found[f"{name}_places"], found[f"{name}_numbers"]
            found[name] = dense_ranks(ranks)
    return found


def pooled(sums: AnyArray, *, numbers: bool) -> dict[str, float]:
    """Return the scores of sums, and those of the trivial predictors of each key; ``numbers``: labels are numbers."""
    if not len(sums):
        return {}
    if numbers:
        errors = PrequentialErrors()
        errors.add(sums)
        return {**errors.scores(), **errors.baselines()}
    scored = float(sums[SCORED])
    places = {"accuracy": LEARNER, "no_change": NO_CHANGE, "majority": MAJORITY}
    return {name: float(sums[place]) / scored if scored else math.nan for name, place in places.items()}
