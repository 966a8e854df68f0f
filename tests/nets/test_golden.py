"""Every case, and every shipped config with few rows, gives the committed digest, here and on every other machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.operation import load_yaml
from tests.cases import Trial, every_case, first_cases
from tests.golden.small import CONFIGS, FILE, SMALL, of_case, of_config, of_keys

GOLDEN = json.loads(FILE.read_text())


@every_case("golden digest")
def test_a_case(trial: Trial, tmp_path: Path) -> None:
    golden = GOLDEN["cases"] if trial.shipped else {trial.name: of_case(trial.config(tmp_path), tmp_path / "first")}
    assert trial.name in golden, "python -m tests.golden.small > tests/golden/small.json adds it"
    assert of_case(trial.config(tmp_path), tmp_path) == golden[trial.name]


@every_case("golden digest by key", among=first_cases())
def test_a_case_by_key(trial: Trial, tmp_path: Path) -> None:
    digest = of_keys(trial, tmp_path)
    assert digest == GOLDEN["keys"].get(trial.name, digest if not trial.shipped else "")


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", SMALL)
def test_a_shipped_config(name: str, tmp_path: Path) -> None:
    assert of_config(name, tmp_path) == GOLDEN["configs"][name]


def test_every_config_that_draws_its_rows_is_there() -> None:
    drawn = {
        file.stem for file in CONFIGS.glob("*.yaml") if load_yaml(file.read_text())["source"]["kind"] == "synthetic"
    }
    assert drawn == SMALL.keys() == GOLDEN["configs"].keys()
