"""Options of the GBDT that follow from the stream, and what they say of a run."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from raydt.examples.targets import MOST_CLASSES
from raydt.learners import learners
from raydt.learners.gbdt.options import GBDTOptions


@pytest.mark.parametrize(("warmup", "every"), [(0, 100), (30, 20), (400, 20), (4000, 200)])
def test_the_size_of_a_batch_follows_the_warmup(warmup: int, every: int) -> None:
    assert GBDTOptions().every(warmup) == every
    assert GBDTOptions(update_every=7).every(warmup) == 7


def test_a_truth_value_is_not_a_number() -> None:
    with pytest.raises(ValidationError, match="max_iter"):
        GBDTOptions(max_iter=True)
    assert GBDTOptions(early_stopping=True).early_stopping


@pytest.mark.parametrize(
    ("options", "warmup", "expected"),
    [
        ({}, 4000, "of 200 updates changes 100 iterations in place; one batch in 3 or more (after 500 inserts"),
        ({"retrain": "never"}, 4000, "the trees are never trained again"),
        ({"retrain": "always"}, 4000, "each batch of 200 updates trains all trees again, on about 4,000 rows"),
        ({"update_every": 5000}, 4000, "each batch of 5,000 updates trains all trees again"),
        ({"update_every": 500}, 4000, "each batch of 500 updates trains all trees again"),  # an eighth of the rows
        ({"update_every": 499}, 4000, "one batch in 2 or more"),
        ({"update_every": 800, "retrain": "never"}, 4000, "a batch of 800 updates changes 100 iterations in place"),
    ],
)
def test_the_outlook(options: dict[str, object], warmup: int, expected: str) -> None:
    assert expected in learners()["gbdt"].outlook(GBDTOptions(**options), warmup)


def test_a_binary_objective_is_of_two_classes() -> None:
    """With a third class it would be multiclass, which is not what was asked for."""
    reading = learners()["gbdt"].traits(GBDTOptions(objective="binary")).reading
    assert (reading.classes, reading.sparse_classes, reading.with_classes) == (2, 2, "objective: multiclass")
    for objective in ("auto", "multiclass"):
        assert learners()["gbdt"].traits(GBDTOptions(objective=objective)).reading.classes == MOST_CLASSES


def test_keys_without_effect_are_named() -> None:
    """A sweep does not list them beside settings that they do not belong to."""
    stopping = ("validation_fraction", "n_iter_no_change", "tol")
    assert GBDTOptions().unused == stopping
    assert GBDTOptions(derivatives="never", early_stopping=True).unused == ("derivative_tolerance",)
