"""All estimators: scikit-learn's checks, the options and defaults of YAML, bad values.

Adapters for river have the parameters and defaults of their estimator.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_estimator

import raydt
from raydt.errors import ConfigError
from raydt.estimators.arguments import Parameters
from raydt.estimators.river import RiverClassifier
from raydt.learners import learners, traits_of

PUBLIC = [getattr(raydt, name) for name in raydt.__all__]
ESTIMATORS = [public for public in PUBLIC if inspect.isclass(public) and issubclass(public, Parameters)]
ADAPTERS = [public for public in PUBLIC if inspect.isclass(public) and issubclass(public, RiverClassifier)]
#: Parameters that fit the small data of scikit-learn's checks, of the learners that take dense rows alone.
FOR_SMALL_DATA: dict[str, dict[str, Any]] = {
    "confidence_tree": {"grace_period": 20, "c": 0.05},
    "forest": {"n_estimators": 12, "sample_share": 1.0, "max_depth": 8, "min_samples_split": 4},
    "fudyadt": {},
    "gbdt": {"max_iter": 30},
}
#: Options that are fixed by the kind of labels, of which an estimator takes one.
OF_LABELS = {"class_weight", "criterion", "objective", "label_range", "smoothing"}
#: Parameters of an estimator that its adapter does not have.
NOT_FOR_RIVER = {"class_weight", "n_features", "feature_groups", "n_jobs"}
#: Options of the learner that only the adapter has: a call of the estimator is a batch.
FOR_RIVER = {"update_every"}
#: Defaults of adapters that differ, for streams whose old examples are forgotten.
OF_RIVER = {
    "RiverConfidenceTreeClassifier": {},
    "RiverGradientBoostingClassifier": {"update_every": "auto"},
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
    assert set(given) - fields <= set(estimator.described)
    assert {name: given[name] for name in fields & set(given)} == {
        name: getattr(options, name) for name in fields & set(given)
    }


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)
def test_an_adapter_has_the_parameters_and_defaults_of_its_estimator(adapter: type[RiverClassifier]) -> None:
    mine, other = defaults_of(adapter), defaults_of(adapter.estimator)
    assert set(mine) - FOR_RIVER == set(other) - NOT_FOR_RIVER
    assert mine == {name: other[name] for name in mine if name in other} | OF_RIVER[adapter.__name__]


@pytest.mark.parametrize("public", [*ESTIMATORS, *ADAPTERS], ids=lambda public: public.__name__)
def test_every_parameter_is_described(public: type) -> None:
    assert set(re.findall(r"^    (\w+) : .*\n        [A-Z]", str(public.__doc__), re.MULTILINE)) == {
        *defaults_of(public)
    }


def a_bad_parameter(public: type) -> dict[str, float]:
    """The first number among the parameters, below what is allowed."""
    return {next(name for name, value in defaults_of(public).items() if type(value) in (int, float)): -1}


@pytest.mark.parametrize("public", [*ESTIMATORS, *ADAPTERS], ids=lambda public: public.__name__)
def test_a_bad_parameter_is_named_with_its_value(public: Any) -> None:
    bad = a_bad_parameter(public)
    with pytest.raises(ConfigError, match=f"{next(iter(bad))}=-1"):
        public(**bad).learn_one({"a": 1}, True) if public in ADAPTERS else public(**bad).fit([[1], [2]], [0, 1])


#: What scikit-learn checks of estimators with ``sample_weight``.
OF_WEIGHTS = (
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
    "check_all_zero_sample_weights_error",
)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    "estimator",
    [estimator for estimator in ESTIMATORS if estimator.kind in FOR_SMALL_DATA],
    ids=lambda estimator: estimator.__name__,
)
@pytest.mark.filterwarnings(r"ignore:Estimator \w+ does not inherit:UserWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_accepts_it(estimator: Any) -> None:
    model = estimator(**FOR_SMALL_DATA[estimator.kind])
    refused = {} if traits_of(model._options()).reading.weights else dict.fromkeys(OF_WEIGHTS, "refused")
    refused |= {"check_class_weight_classifiers": "a leaf may have rows of a light class only"}
    if estimator.kind == "gbdt":  # as of scikit-learn's own histogram gradient boosting
        refused |= {"check_sample_weight_equivalence_on_dense_data": "bins are made of rows of weight 0, too"}
    if estimator.kind == "confidence_tree":
        refused |= {"check_sample_weight_equivalence_on_dense_data": "what leaves predict by is chosen row by row"}
    done = check_estimator(model, expected_failed_checks=refused)
    assert sum(check["status"] == "passed" for check in done) > 40
    others = {check["check_name"] for check in done if check["status"] != "passed"}
    assert others <= {"check_array_api_input", *refused}
