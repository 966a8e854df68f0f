"""Every estimator has the defaults that YAML has."""

from __future__ import annotations

import inspect

import pytest

import raydt
from raydt.estimators.parameters import Parameters
from raydt.learners import learners

PUBLIC = [getattr(raydt, name) for name in raydt.__all__]
ESTIMATORS = [public for public in PUBLIC if inspect.isclass(public) and issubclass(public, Parameters)]


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
def test_a_parameter_shows_the_default_of_its_option(estimator: type[Parameters]) -> None:
    options = estimator()._options()
    for name, parameter in inspect.signature(estimator.__init__).parameters.items():
        if name in type(options).model_fields:
            assert parameter.default == getattr(options, name), name
