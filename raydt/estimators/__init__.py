"""Estimators: learners behind scikit-learn's interface, in this process."""

from __future__ import annotations

from typing import Any

from raydt.saved_model import open_model

__all__ = ["load_model"]


def load_model(path: Any) -> Any:
    """The estimator saved in a folder by ``save`` or, as ``model/`` or a checkpoint, by a run.

    Raises
    ------
    ModelFileError
        The folder is damaged, of another format, or of a learner this version does not have.
    """
    saved = open_model(path)
    return saved.learner.estimator().from_saved(saved)
