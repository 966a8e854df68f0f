"""Decision trees that stay correct while training examples are inserted and deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raydt.estimators import load_model
    from raydt.estimators.river import RiverTreeClassifier
    from raydt.learners.fudyadt.estimator import FullyDynamicTreeClassifier

__version__ = "0.1.0"
__all__ = ["FullyDynamicTreeClassifier", "RiverTreeClassifier", "__version__", "load_model"]


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: reading a config needs no compiled kernels."""
    if name == "FullyDynamicTreeClassifier":
        from raydt.learners.fudyadt.estimator import FullyDynamicTreeClassifier

        return FullyDynamicTreeClassifier
    if name == "RiverTreeClassifier":
        from raydt.estimators.river import RiverTreeClassifier

        return RiverTreeClassifier
    if name == "load_model":
        from raydt.estimators import load_model

        return load_model
    raise AttributeError(f"module 'raydt' has no attribute {name!r}")
