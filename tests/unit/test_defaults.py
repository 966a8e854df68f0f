"""Every estimator has the options and defaults that YAML has, and every adapter for river those of its estimator."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import raydt
from raydt.estimators.parameters import Parameters
from raydt.estimators.river import RiverClassifier
from raydt.learners import learners

PUBLIC = [getattr(raydt, name) for name in raydt.__all__]
ESTIMATORS = [public for public in PUBLIC if inspect.isclass(public) and issubclass(public, Parameters)]
ADAPTERS = [public for public in PUBLIC if inspect.isclass(public) and issubclass(public, RiverClassifier)]
#: Options that are fixed by the kind of labels, of which an estimator takes one.
OF_LABELS = {"criterion", "objective", "label_range", "smoothing"}
#: Parameters of an estimator that its adapter does not have: of sparse rows, and deprecated ones.
NOT_FOR_RIVER = {"n_features", "feature_groups", "finder", "finder_alpha"}
#: Defaults of adapters that differ, for streams whose old examples are forgotten.
OF_RIVER = {
    "RiverConfidenceTreeClassifier": {},
    "RiverTreeClassifier": {"smoothing": 0.0},
    "RiverForestClassifier": {
        "n_estimators": 10,
        "sample_share": 1.0,
        "max_features": "sqrt",
        "thresholds": 2,
        "max_depth": 15,
        "min_samples_split": 4,
        "rebuild": "lazy",
    },
}


def defaults_of(public: type) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in inspect.signature(public).parameters.items()}


def test_estimators_are_found() -> None:
    assert {estimator.kind for estimator in ESTIMATORS} == {
        kind for kind, learner in learners().items() if type(learner).__module__.startswith("raydt.")
    }


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_an_estimator_without_arguments_is_a_learner_without_options(estimator: type[Parameters]) -> None:
    """Options that an estimator fixes are set in both."""
    found = estimator()._options()
    assert found == learners()[estimator.kind].Options.model_validate({"kind": estimator.kind, **estimator._fixed})


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_parameters_are_the_options_with_their_defaults(estimator: type[Parameters]) -> None:
    options, given = estimator()._options(), defaults_of(estimator)
    fields = set(type(options).model_fields) - {"kind", *estimator._fixed}
    assert fields - set(given) <= OF_LABELS
    assert set(given) - fields - set(estimator._own) <= {"finder", "finder_alpha"}
    assert {name: given[name] for name in fields & set(given)} == {
        name: getattr(options, name) for name in fields & set(given)
    }


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)
def test_an_adapter_has_the_parameters_and_defaults_of_its_estimator(adapter: type[RiverClassifier]) -> None:
    mine, other = defaults_of(adapter), defaults_of(adapter.estimator)
    assert set(mine) == set(other) - NOT_FOR_RIVER
    assert mine == {name: other[name] for name in mine} | OF_RIVER[adapter.__name__]
