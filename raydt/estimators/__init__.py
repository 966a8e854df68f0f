"""Estimators: learners behind scikit-learn's interface, in this process. Those of a kind are in the module named so."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raydt.learners.base import LearnerOptions

__all__ = ["estimator_of", "load_model"]


def load_model(path: Any) -> Any:
    """Load the estimator that ``save`` or a run has written to a folder.

    Parameters
    ----------
    path : path or URI
        Of a model, a state, or the folder of a finished run.

    Raises
    ------
    ModelFileError
        No model is there, or it is damaged, of another format, or of a learner this version does not have.
    """
    from raydt.keyed.packing import open_keys
    from raydt.sessions.saved_model import find_model, open_model

    place = find_model(path)
    keys = open_keys(place)
    if keys is not None:
        from raydt.estimators.keyed_base import load_keyed

        return load_keyed(keys, estimator_of)
    saved = open_model(place)
    return estimator_of(saved.options).from_saved(saved)


def estimator_of(options: LearnerOptions) -> Any:
    """Return the class of the estimator for models with these options; ``NotImplementedError`` if there is none."""
    from raydt.estimators.base import Classifier, Regressor
    from raydt.learners import traits_of

    base = Regressor if traits_of(options).reading.regression else Classifier
    name = f"{__name__}.{options.kind}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise NotImplementedError(f"learner.kind: {options.kind} has no estimator") from None
    defined = (found for found in vars(module).values() if isinstance(found, type) and found.__module__ == name)
    return next(found for found in defined if issubclass(found, base))
