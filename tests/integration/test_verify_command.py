"""``raydt verify``: the model is the one that the remaining examples give, or verify says what is not."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import pipelines
from pipelines.auditing import verify_run
from pipelines.cli import cli
from tests import volume
from tests.cases import CASES
from tests.fuzz.reseal import with_arrays
from tests.refusals import refused

#: The docs promise it of ``fudyadt`` with ``epsilon: 0``, whatever the labels, and a range that the warm-up has found.
WITHOUT_A_PAST = [
    replace(trial, case=replace(trial.case, name=f"{trial.case.name}, epsilon 0", options=options))
    for trial in CASES
    if trial.learner.kind == "fudyadt"
    for options in [{**trial.case.options, "epsilon": 0.0}]
]
VERIFIED = [trial for trial in CASES if trial.learner.traits(trial.options).retrained] + WITHOUT_A_PAST


def raydt(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], standalone_mode=False)
    return result.return_value, result.output


def different(place: Any) -> list[str]:
    """Ids of what differs from the model trained from nothing."""
    return [said.id for said in verify_run(place)["different"]]


@pytest.mark.share
@pytest.mark.parametrize("trial", volume.spread(VERIFIED, 6), ids=lambda trial: trial.name)
def test_a_run_and_its_states_are_what_remains_gives(trial: Any, tmp_path: Path) -> None:
    run = pipelines.replay(trial.config(tmp_path), tmp_path / "run")
    assert run.summary["deletes"] > 20
    code, out = raydt("verify", run.path, "--json")
    found = json.loads(out)
    assert (code, found["equal"], found["digest"]) == (0, True, run.digest)
    assert found["examples"] < found["inserted"]
    state = max((Path(run.path) / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    assert raydt("verify", state)[0] == 0


@pytest.mark.share
@pytest.mark.parametrize("trial", volume.spread(VERIFIED, 6), ids=lambda trial: trial.name)
def test_what_is_not_of_this_run_is_found(trial: Any, tmp_path: Path) -> None:
    """The saved model of a run without most deletions; the last state with other thresholds, resealed; a digest."""
    run = pipelines.replay(trial.config(tmp_path), tmp_path / "run")
    (tmp_path / "fewer").mkdir()
    other = pipelines.replay(trial.config(tmp_path / "fewer", updates=60), tmp_path / "other")
    shutil.rmtree(Path(run.path) / "model")
    shutil.copytree(Path(other.path) / "model", Path(run.path) / "model")
    assert different(run.path) == ["verdicts.model"]
    state = max((Path(run.path) / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    names = {entry["name"] for entry in json.loads((state / "manifest.json").read_text())["files"]} | {"manifest.json"}

    def change(components: dict[str, Any]) -> None:
        arrays = components["coordinator"]
        arrays["threshold"] = np.where(arrays["feature"] >= 0, arrays["threshold"] + 0.25, arrays["threshold"])

    if trial is VERIFIED[0]:
        for name, content in with_arrays({name: (state / name).read_bytes() for name in names}, change).items():
            (state / name).write_bytes(content)
        assert different(run.path) == ["verdicts.run_state"]
        assert different(state) == ["verdicts.state"]
    summary = Path(run.path) / "summary.json"
    summary.write_text(summary.read_text().replace(run.digest, "sha256:" + "0" * 64))
    assert different(run.path)[0] == "verdicts.digest"
    assert raydt("verify", run.path)[0] == 3


def test_a_model_with_a_past_cannot_be_verified(tmp_path: Path) -> None:
    trial = next(trial for trial in CASES if trial.shipped and not trial.learner.traits(trial.options).retrained)
    run = pipelines.replay(trial.config(tmp_path), tmp_path / "run")
    with refused("verdicts.order", kind=trial.learner.kind):
        verify_run(run.path)
