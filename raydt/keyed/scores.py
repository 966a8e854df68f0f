"""Scores of a key in its state: of the tables of ranks, which are mostly 0, what is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raydt.evaluation.ranking import dense_ranks, sparse_ranks

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
    """Return what :func:`narrow` was given."""
    found = dict(scores)
    for name in _RANKS:
        if f"{name}_places" in found:
            found[name] = dense_ranks((found.pop(f"{name}_places"), found.pop(f"{name}_numbers")))
    return found
