"""Options of the GBDT that follow from the stream, and what they say of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from raydt import OnlineGradientBoostingClassifier, load_model
from raydt.errors import ModelFileError
from raydt.examples.updates import MOST_CLASSES
from raydt.learners import learners
from raydt.learners.gbdt.options import GBDTOptions
from tests.fuzz.reseal import with_arrays


@pytest.mark.parametrize(
    ("rows", "warmup", "every"), [(0, 0, 100), (4000, 0, 200), (30, 30, 20), (30, 400, 20), (4000, 30, 200)]
)
def test_the_size_of_a_batch_follows_the_rows_in_the_model(rows: int, warmup: int, every: int) -> None:
    assert GBDTOptions().every(rows, warmup) == every
    assert GBDTOptions(update_every=7).every(rows, warmup) == 7


def test_a_state_of_an_earlier_version_continues_its_batch() -> None:
    """It does not say where the batch began; all batches are of one size, and none has begun that is in the trees."""
    rows = {"born": np.array([1240, 1255]), "pending": np.array([0, 1])}
    state = {"seq": np.array([1299]), "warmup": np.array([1000]), **rows}
    assert [GBDTOptions().begun(state), GBDTOptions(update_every=70).begun(state)] == [1250, 1280]
    assert GBDTOptions().begun(state | {"pending": np.array([0, 0])}) == 1256, "the run had ended after an insertion"
    early = {"seq": np.array([999]), "warmup": np.array([1000]), "born": np.array([998]), "pending": np.array([1])}
    assert GBDTOptions().begun(early) == 0
    assert GBDTOptions().begun(state | {"begun": np.array([1260])}) == 1260


def test_a_truth_value_is_not_a_number() -> None:
    with pytest.raises(ValidationError, match="max_iter"):
        GBDTOptions(max_iter=True)
    assert GBDTOptions(early_stopping=True).early_stopping


@pytest.mark.parametrize(
    ("options", "expected", "parameters"),
    [
        ({}, "sometimes_trained", {"updates": "200 updates", "batches": 3, "after": 500}),
        ({"retrain": "never"}, "never_trained", {"updates": "200 updates"}),
        ({"retrain": "always"}, "always_trained", {"updates": "200 updates", "rows": 4000}),
        ({"update_every": 5000}, "always_trained", {"updates": "5,000 updates"}),
        ({"update_every": 500}, "always_trained", {"updates": "500 updates"}),  # an eighth of the rows
        ({"update_every": 499}, "sometimes_trained", {"batches": 2}),
        (
            {"update_every": 800, "retrain": "never"},
            "never_trained",
            {"updates": "800 updates", "iterations": "100 iterations"},
        ),
    ],
)
def test_the_outlook(options: dict[str, object], expected: str, parameters: dict[str, object]) -> None:
    outlook = learners()["gbdt"].outlook(GBDTOptions(**options), 4000)
    assert outlook.id == f"learners.{expected}"
    assert outlook.parameters.items() >= parameters.items()


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


def test_a_state_of_this_format_says_where_its_batch_began(tmp_path: Path) -> None:
    X = np.arange(60.0).reshape(30, 2)
    model = OnlineGradientBoostingClassifier(max_iter=2, max_leaf_nodes=3).fit(X, np.arange(30) % 2)
    folder = tmp_path / "model"
    model.save(folder, with_examples=True)

    def without(components: dict[str, dict[str, Any]]) -> None:
        next(arrays for arrays in components.values() if "begun" in arrays).pop("begun")

    contents = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    for name, content in with_arrays(contents, without).items():
        (folder / name).write_bytes(content)
    with pytest.raises(ModelFileError, match="begun"):
        load_model(folder)
