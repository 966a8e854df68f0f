"""What an earlier version wrote: runs that it left unfinished, their checkpoints, and configs in its spelling."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipelines import load_config, replay, resume
from pipelines.auditing import audit_run
from pipelines.config import Config
from raydt import FullyDynamicTreeClassifier, SparseDynamicTreeClassifier, load_model
from raydt.errors import ConfigError
from tests.former import make

DIGESTS = json.loads((make.HERE / "digests.json").read_text())
RUNS = pytest.mark.parametrize(
    ("name", "kind", "estimator"),
    [
        ("updgini", "sparse_tree", SparseDynamicTreeClassifier),
        ("exact", "fudyadt", FullyDynamicTreeClassifier),
    ],
)


def unpacked(name: str, folder: Path) -> Path:
    shutil.unpack_archive(make.HERE / f"{name}.zip", folder / name)
    return folder / name


@RUNS
def test_a_run_goes_on_to_the_model_that_the_earlier_version_would_have_made(
    name: str, kind: str, estimator: type[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = unpacked(name, tmp_path)
    with caplog.at_level(logging.WARNING):
        result = resume(run)
    assert not caplog.records, "nobody can change how a run wrote its config"
    assert result.summary["model_digest"] == DIGESTS[name]
    assert [entry["kind"] for entry in result.summary["recoveries"]] == ["resumed"]
    assert result.summary["learner"] == kind
    assert audit_run(run).ok
    assert type(load_model(run)) is estimator


@RUNS
def test_a_checkpoint_is_a_model_with_its_examples(name: str, kind: str, estimator: type[Any], tmp_path: Path) -> None:
    (state,) = (folder for folder in (unpacked(name, tmp_path) / "checkpoints").iterdir() if folder.name.isdecimal())
    model = load_model(state)
    assert type(model) is estimator
    model.forget(model.row_ids_[:5])
    assert model.audit().conformance == "holds"
    model.save(tmp_path / "again", with_examples=True)
    assert json.loads((tmp_path / "again" / "manifest.json").read_text())["meta"]["learner"]["kind"] == kind
    assert load_model(tmp_path / "again").digest() == model.digest()


@RUNS
def test_another_config_is_still_refused(name: str, kind: str, estimator: type[Any], tmp_path: Path) -> None:
    run = unpacked(name, tmp_path)
    with pytest.raises(
        ConfigError,
        match=r"cannot resume with a different model config:\n(.*\n)*  learner\.max_depth = 4 here, 3 in the run\n",
    ):
        resume(run, overrides=["learner.max_depth=4"])
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("max_depth: 3", "max_depth: 4"))
    with pytest.raises(
        ConfigError,
        match=r"cannot resume with a different model config:\n(.*\n)*  learner\.max_depth = 4 here, 3 in the run\n",
    ):
        resume(run)


def test_the_old_spelling_is_read_with_one_line_that_names_the_new_one(caplog: pytest.LogCaptureFixture) -> None:
    config = load_config(make.job("updgini"))
    (record,) = caplog.records
    assert record.getMessage() == (
        "config: learner: kind: fudyadt with finder: updgini is now a learner of its own. Write kind: sparse_tree, and "
        "keep the other keys; a later version will refuse the old spelling"
    )
    learner = make.job("updgini")["learner"] | {"kind": "sparse_tree"}
    assert (
        config == load_config({**make.job("updgini"), "learner": learner}) == Config.model_validate(config.resolved())
    )
    assert len(caplog.records) == 1


def test_finder_exact_is_read_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    job = make.job("exact")
    for former in ({"finder": "exact"}, {"finder": "exact", "finder_alpha": 0.1}, {"finder_alpha": 0.1}):
        assert load_config({**job, "learner": job["learner"] | former}) == load_config(job)
    assert not caplog.records


@pytest.mark.parametrize("former", [{"finder": "exact", "finder_alpha": 0.5}, {"finder": "best"}, {"finder": None}])
def test_what_the_earlier_version_refused_is_refused(former: dict[str, Any]) -> None:
    job = make.job("exact")
    with pytest.raises(ConfigError, match=r"config: learner\.finder"):
        load_config({**job, "learner": job["learner"] | former})


def test_a_new_run_in_the_old_spelling_has_the_same_digest(tmp_path: Path) -> None:
    assert replay(make.job("updgini"), tmp_path / "run").summary["model_digest"] == DIGESTS["updgini"]
    assert "kind: sparse_tree" in (tmp_path / "run" / "config.yaml").read_text()
