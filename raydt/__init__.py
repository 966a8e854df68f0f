"""Decision trees that stay correct while training examples are inserted and deleted."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raydt.estimators import load_model
    from raydt.estimators.river import RiverTreeClassifier
    from raydt.learners.best_split.estimator import SparseBestSplit
    from raydt.learners.confidence_tree.estimator import ConfidenceTreeClassifier
    from raydt.learners.fudyadt.estimator import FullyDynamicTreeClassifier
    from raydt.learners.gbdt.estimator import OnlineGradientBoostingClassifier, OnlineGradientBoostingRegressor

__version__ = "0.1.0"
__all__ = [
    "ConfidenceTreeClassifier",
    "FullyDynamicTreeClassifier",
    "OnlineGradientBoostingClassifier",
    "OnlineGradientBoostingRegressor",
    "RiverTreeClassifier",
    "SparseBestSplit",
    "__version__",
    "load_model",
]

#: Where the public names are defined.
_HOMES = {
    "ConfidenceTreeClassifier": "raydt.learners.confidence_tree.estimator",
    "FullyDynamicTreeClassifier": "raydt.learners.fudyadt.estimator",
    "OnlineGradientBoostingClassifier": "raydt.learners.gbdt.estimator",
    "OnlineGradientBoostingRegressor": "raydt.learners.gbdt.estimator",
    "RiverTreeClassifier": "raydt.estimators.river",
    "SparseBestSplit": "raydt.learners.best_split.estimator",
    "load_model": "raydt.estimators",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: reading a config needs no compiled kernels."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'raydt' has no attribute {name!r}")
