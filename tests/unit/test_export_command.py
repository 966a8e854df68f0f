"""``raydt export`` and ``raydt predict --explain``, of models and states that were saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import replay
from pipelines.cli import main
from pipelines.prediction import explain_row, export_model
from raydt import ConfidenceTreeClassifier, ExactForestRegressor, FullyDynamicTreeClassifier
from raydt.errors import ConfigError, InputError
from tests.exported import largest_difference, outputs_of
from tests.refusals import refused

DRAW = np.random.default_rng(3)
FRAME = pd.DataFrame({"age": DRAW.integers(18, 90, 200).astype(float), "pet": DRAW.choice(["cat", "dog"], 200)})
LABELS = np.where((FRAME["age"] > 40) & (FRAME["pet"] == "dog"), "yes", "no")


def classifier() -> Any:
    return FullyDynamicTreeClassifier().fit(FRAME, LABELS)


@pytest.mark.parametrize("with_examples", [False, True])
def test_a_saved_model_or_state_is_exported(with_examples: bool, tmp_path: Path, capsys: Any) -> None:
    onnx = pytest.importorskip("onnx")
    model, out = classifier(), tmp_path / "model.onnx"
    model.save(tmp_path / "saved", with_examples=with_examples)
    with pytest.raises(SystemExit) as ended:
        main(["export", str(tmp_path / "saved"), "--to", "onnx", "--out", str(out), "--json"])
    assert ended.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["trees"], told["outputs"]) == ("onnx", 1, ["no", "yes"])
    interface = json.loads(Path(told["interface"]).read_text())
    numbers = dict(interface["columns"][1]["values"])
    table = np.column_stack([FRAME["age"], FRAME["pet"].map(numbers)]).astype(float)
    found = outputs_of("onnx", onnx.load(out), table, model.tree_sum())
    assert largest_difference(model.predict_proba(FRAME), found) == 0.0


def test_what_cannot_be_exported_is_one_error(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    classifier().save(tmp_path / "saved")
    for out, said in (("model.txt", "outputs.other_name"), ("s3://b/m.onnx", "outputs.not_local")):
        with refused(said):
            export_model(tmp_path / "saved", "onnx", out if "://" in out else tmp_path / out)
    with pytest.raises(ConfigError, match="--out"):
        export_model(tmp_path / "saved", "onnx", tmp_path / "saved" / "model.onnx")
    export_model(tmp_path / "saved", "onnx", tmp_path / "model.onnx")
    with refused("outputs.exists", file=str(tmp_path / "model.onnx")):
        export_model(tmp_path / "saved", "onnx", tmp_path / "model.onnx")
    export_model(tmp_path / "saved", "onnx", tmp_path / "model.onnx", overwrite=True)
    naive = ConfidenceTreeClassifier(leaf_prediction="naive_bayes").fit(FRAME, LABELS)
    naive.save(tmp_path / "naive", with_examples=True)
    with refused("learners.naive_leaves", InputError):
        export_model(tmp_path / "naive", "onnx", tmp_path / "naive.onnx")
    assert not (tmp_path / "naive.onnx").exists()


def test_one_row_is_explained_in_words_and_numbers(tmp_path: Path, capsys: Any) -> None:
    model = classifier()
    model.save(tmp_path / "saved")
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(tmp_path / "saved"), str(tmp_path / "rows.csv"), "--explain", "7"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(sentence in text for sentence in model.explain_path(FRAME[7:8])[0])
    found = explain_row(tmp_path / "saved", tmp_path / "rows.csv", 7)
    assert found["output"] == model.predict_proba(FRAME[7:8])[0].tolist()
    added = np.array(found["base"]) + np.sum([values for _, values in found["values"]], axis=0)
    np.testing.assert_allclose(added, found["output"], atol=1e-12)
    with refused("predictions.no_row", row=200):
        explain_row(tmp_path / "saved", tmp_path / "rows.csv", 200)


def test_a_state_of_numbers_is_explained_too(tmp_path: Path) -> None:
    model = ExactForestRegressor(n_estimators=4, sample_share=1.0).fit(FRAME, FRAME["age"] * 2)
    model.save(tmp_path / "saved", with_examples=True)
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    found = explain_row(tmp_path / "saved", tmp_path / "rows.csv", 0, tree=3)
    assert (found["trees"], found["outputs"], found["meaning"]) == (4, ["prediction"], "the predicted number")
    assert found["output"] == model.predict(FRAME[:1]).tolist()


def test_tokens_are_named_in_the_second_file_and_in_explanations(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    words = [["free", "now"], ["tea"], ["free", "tea"], ["now"]] * 10
    table = pa.table({"w": words, "y": ["spam" if "free" in row else "ham" for row in words]})
    pq.write_table(table, tmp_path / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet")},
        "stream": {"model": "incremental"},
        "learner": {"kind": "sparse_tree"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    replay(config, tmp_path / "run")
    export_model(tmp_path / "run", "onnx", tmp_path / "model.onnx")
    (column,) = json.loads((tmp_path / "model.onnx.json").read_text())["columns"]
    assert (column["name"], column["kind"], column["tokens"]) == ("w", "sparse", ["free", "now", "tea"])
    found = explain_row(tmp_path / "run", tmp_path / "rows.parquet", 0)
    assert found["path"][0] == "free is 1"
    assert found["values"][0][0] == "free"
