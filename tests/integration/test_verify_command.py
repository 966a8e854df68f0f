"""``raydt verify``: trained from nothing on the examples that remain, the model has the same digest, or it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pipelines
from pipelines.cli import cli
from pipelines.verifying import verify_run
from raydt.errors import InputError
from tests.cases import CASES

VERIFIED = [trial for trial in CASES if trial.learner.traits(trial.options).retrained]


def raydt(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], standalone_mode=False)
    return result.return_value, result.output


@pytest.mark.parametrize("trial", VERIFIED, ids=lambda trial: trial.name)
def test_a_run_and_its_states_are_what_remains_gives(trial: Any, tmp_path: Path) -> None:
    run = pipelines.replay(trial.config(tmp_path), tmp_path / "run")
    assert run.summary["deletes"] > 20
    code, out = raydt("verify", run.path, "--json")
    found = json.loads(out)
    assert (code, found["equal"], found["digest"]) == (0, True, run.digest)
    assert found["examples"] < found["inserted"]
    state = max((Path(run.path) / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    code, out = raydt("verify", state)
    assert code == 0, out
    assert "the one trained from nothing" in out


def test_another_digest_is_told(tmp_path: Path) -> None:
    run = pipelines.replay(VERIFIED[0].config(tmp_path), tmp_path / "run")
    summary = Path(run.path) / "summary.json"
    summary.write_text(summary.read_text().replace(run.digest, "sha256:" + "0" * 64))
    code, out = raydt("verify", run.path)
    assert code == 3, out
    assert "different" in out


def test_a_model_with_a_past_cannot_be_verified(tmp_path: Path) -> None:
    trial = next(trial for trial in CASES if trial.shipped and not trial.learner.traits(trial.options).retrained)
    run = pipelines.replay(trial.config(tmp_path), tmp_path / "run")
    with pytest.raises(InputError, match="depends on the order of the updates"):
        verify_run(run.path)
