"""Estimators: learners behind scikit-learn's interface, in this process."""

from __future__ import annotations

from typing import Any

from raydt.saved_model import find_model, open_model

__all__ = ["load_model"]


def load_model(path: Any) -> Any:
    """The estimator saved in a folder by ``save`` or, as its model or a checkpoint, by a run.

    Parameters
    ----------
    path : path or URI
        Of a model, a state, or the folder of a finished run.

    Raises
    ------
    ModelFileError
        No model is there, or it is damaged, of another format, or of a learner this version does not have.
    """
    saved = open_model(find_model(path))
    return saved.learner.estimator(saved.options).from_saved(saved)
