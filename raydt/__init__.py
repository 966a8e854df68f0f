"""Decision trees that stay correct while training examples are inserted and deleted."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raydt.estimators import load_model
    from raydt.estimators.best_split import SparseBestSplit
    from raydt.estimators.confidence_tree import ConfidenceTreeClassifier, RiverConfidenceTreeClassifier
    from raydt.estimators.forest import ExactForestClassifier, ExactForestRegressor, RiverForestClassifier
    from raydt.estimators.fudyadt import FullyDynamicTreeClassifier, FullyDynamicTreeRegressor, RiverTreeClassifier
    from raydt.estimators.gbdt import (
        OnlineGradientBoostingClassifier,
        OnlineGradientBoostingRegressor,
        RiverGradientBoostingClassifier,
    )
    from raydt.estimators.keyed_base import KeyedClassifier, KeyedRegressor
    from raydt.estimators.sparse_tree import SparseDynamicTreeClassifier

from raydt.installation import __version__

__all__ = [
    "ConfidenceTreeClassifier",
    "ExactForestClassifier",
    "ExactForestRegressor",
    "FullyDynamicTreeClassifier",
    "FullyDynamicTreeRegressor",
    "KeyedClassifier",
    "KeyedRegressor",
    "OnlineGradientBoostingClassifier",
    "OnlineGradientBoostingRegressor",
    "RiverConfidenceTreeClassifier",
    "RiverForestClassifier",
    "RiverGradientBoostingClassifier",
    "RiverTreeClassifier",
    "SparseBestSplit",
    "SparseDynamicTreeClassifier",
    "__version__",
    "load_model",
]

#: Where the public names are defined.
_HOMES = {
    "ConfidenceTreeClassifier": "raydt.estimators.confidence_tree",
    "ExactForestClassifier": "raydt.estimators.forest",
    "ExactForestRegressor": "raydt.estimators.forest",
    "FullyDynamicTreeClassifier": "raydt.estimators.fudyadt",
    "FullyDynamicTreeRegressor": "raydt.estimators.fudyadt",
    "KeyedClassifier": "raydt.estimators.keyed_base",
    "KeyedRegressor": "raydt.estimators.keyed_base",
    "OnlineGradientBoostingClassifier": "raydt.estimators.gbdt",
    "OnlineGradientBoostingRegressor": "raydt.estimators.gbdt",
    "RiverConfidenceTreeClassifier": "raydt.estimators.confidence_tree",
    "RiverForestClassifier": "raydt.estimators.forest",
    "RiverGradientBoostingClassifier": "raydt.estimators.gbdt",
    "RiverTreeClassifier": "raydt.estimators.fudyadt",
    "SparseBestSplit": "raydt.estimators.best_split",
    "SparseDynamicTreeClassifier": "raydt.estimators.sparse_tree",
    "load_model": "raydt.estimators",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: reading a config needs no compiled kernels."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'raydt' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, also those that were not used yet."""
    return sorted({*globals(), *__all__})
