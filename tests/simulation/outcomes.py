"""What must not depend on faults, shards or batches."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from raydt.learners.base import LearnerOptions
from raydt.learners.confidence_tree.naive_bayes import INHERITED


def outcome(
    digest: str, record: Any, state: tuple[dict[str, Any], dict[int, dict[str, Any]]], options: LearnerOptions
) -> dict[str, Any]:
    """What must be the same whatever happens."""
    coordinator, groups = by_node(*state, inherits=getattr(options, "leaf_prediction", None) == INHERITED)
    columns = {group: exactly(groups[group]) for group in sorted(groups)}
    return {"digest": digest, **asdict(record), "state": exactly(coordinator), "groups": columns}


def exactly(arrays: dict[str, Any]) -> dict[str, Any]:
    """Arrays as values that are equal if all bits are: NaN is not equal to itself."""
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def by_node(
    state: dict[str, Any], groups: dict[int, dict[str, Any]], *, inherits: bool = False
) -> tuple[dict[str, Any], dict[int, Any]]:
    """The same state with statistics in the order of the nodes and trials that gather them, where there are places.

    Which place a node has depends on how the stream was cut; the digest leaves it out. If leaves count what they
    have inherited (``inherits``), it is at the place after theirs.
    """
    if "place" not in state:
        return state, groups
    names = [name for name in ("place", "trial_place") if name in state]
    places = np.concatenate([state[name] for name in names])
    if inherits:
        places = np.concatenate([places, np.where(state["place"] >= 0, state["place"] + 1, -1)])
    old = places[places >= 0]
    order = np.full(places.max(initial=-1) + 1, -1)
    order[old] = np.arange(len(old))
    ordered = {}
    for number, arrays in groups.items():
        ordered[number] = dict(arrays)
        for name in {"totals", "bins"} & arrays.keys():
            counted = np.zeros((len(old), *arrays[name].shape[1:]), arrays[name].dtype)
            here = old < len(arrays[name])
            counted[here] = arrays[name][old[here]]
            assert counted.sum() == arrays[name].sum(), f"{name} counts examples where no node does"
            ordered[number][name] = counted
        if "place" in arrays:
            nodes = order[arrays["place"]]
            rank = np.lexsort((arrays["feature"], nodes))
            ordered[number] |= {name: arrays[name][rank] for name in ("feature", "n1", "c11")}
            ordered[number]["place"] = nodes[rank]
    return state | {name: np.where(state[name] >= 0, order[state[name]], -1) for name in names}, ordered
