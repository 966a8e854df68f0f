"""Estimators: learners behind scikit-learn's interface, in this process."""

from __future__ import annotations

from typing import Any

from raydt.errors import ModelFileError
from raydt.learners import learners
from raydt.persistence import load_folder

__all__ = ["load_model"]


def load_model(path: Any) -> Any:
    """The estimator saved in a folder by ``save`` or, as ``model/`` or a checkpoint, by a run.

    Raises
    ------
    ModelFileError
        The folder is damaged, of another format, or of a learner this version does not have.
    """
    meta, components = load_folder(path)
    kind = meta["learner"]["kind"]
    if kind not in learners():
        raise ModelFileError(f"needs the learner {kind!r}, which this version of raydt does not have", file=str(path))
    return learners()[kind].estimator()._load(meta, components)
