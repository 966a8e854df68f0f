"""Rows of tokens through all commands: coded in order of first appearance, and called by their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipelines.cli import cli
from pipelines.prediction import predict_file
from pipelines.running.replay import replay
from pipelines.updating import update
from raydt import load_model
from raydt.errors import InputError
from tests.refusals import refused

N = 400
WORDS = [f"word{i}" for i in range(150)]


def rows(n: int, seed: int) -> tuple[list[list[str]], list[str]]:
    """Rows of few words; ``offer``, later ``prize``, goes with spam."""
    rng = np.random.default_rng(seed)
    lists, labels = [], []
    for i in range(n):
        spam = rng.random() < 0.4
        row = [WORDS[j] for j in rng.integers(0, len(WORDS), rng.integers(0, 6))]
        if spam and rng.random() < 0.9:
            row.append("offer" if i < n // 2 else "prize")
        lists.append(row)
        labels.append("spam" if spam else "ham")
    return lists, labels


def write(path: Path, lists: list[list[str]], labels: list[str]) -> Path:
    pq.write_table(pa.table({"text": pa.array(lists, pa.list_(pa.string())), "y": labels}), path)
    return path


def config(data: Path, **cluster: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "parquet", "path": str(data), "positive": "spam", "n_features": 200},
        "stream": {"model": "sliding_window", "window": 100, "warmup": 30},
        "learner": {"kind": "best_split"},
        "cluster": {"backend": "in_process", "shards": 1, **cluster},
        "checkpoint": {"every_updates": 70, "every_seconds": None},
        "output": {"metrics_every": 50},
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "rows.parquet", *rows(N, 1))


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(replay(config(data), tmp_path_factory.mktemp("runs") / "tokens").path)


def summary_of(run: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return summary


def test_the_best_feature_is_a_word(run: Path, data: Path) -> None:
    summary = summary_of(run)
    seen = list(dict.fromkeys(word for row in rows(N, 1)[0] for word in row))
    assert summary["split"]["name"] == "prize"
    assert seen[summary["split"]["feature"]] == "prize"
    ended = CliRunner().invoke(cli, ["audit", str(run)])
    assert ended.exit_code == 0
    assert "prize" in ended.stdout


def test_predictions_and_updates(run: Path, tmp_path: Path) -> None:
    new = write(tmp_path / "new.parquet", [["never seen", "prize"], ["never"], []], ["spam", "ham", "ham"])
    predict_file(run, new, tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["prediction"].to_pylist() == ["spam", "ham", "ham"]
    receipt = update(run, insert=new, out=tmp_path / "second")
    assert receipt.active == 103
    second = load_model(tmp_path / "second")
    table = pq.read_table(new).select(["text"])
    assert second.predict(table).tolist()[0] == "spam"
    # What came last has names of its own, also after a way through an estimator.
    second.save(tmp_path / "third", with_examples=True)
    tokens = json.loads((tmp_path / "third" / "manifest.json").read_text())["meta"]["categories"]["text"]
    assert tokens[-2:] == ["never seen", "never"]
    with refused("rows.unknown_token", InputError, row=0, column="text", value="'nobody'"):
        second.partial_fit(pa.table({"text": pa.array([["nobody"]], pa.list_(pa.string()))}), ["ham"])
    with refused("rows.unknown_token", InputError, value="'nobody'"):
        second.forget_examples(pa.table({"text": pa.array([["nobody"]], pa.list_(pa.string()))}), ["ham"])


def test_indices_are_not_tokens(run: Path, tmp_path: Path) -> None:
    column = pa.array([[1], []], pa.list_(pa.int32()))
    pq.write_table(pa.table({"text": column, "y": ["ham", "spam"]}), tmp_path / "indices.parquet")
    with pytest.raises(InputError, match="the model knows lists of tokens in this column"):
        predict_file(run, tmp_path / "indices.parquet", tmp_path / "out.parquet")


def test_too_many_tokens_are_one_clear_error(run: Path, data: Path, tmp_path: Path) -> None:
    job = config(data)
    job["source"]["n_features"] = 20
    with refused("rows.token_beyond", InputError, file=str(data), column="text", width=20):
        replay(job, tmp_path / "run")
    lists = [[f"new{i}" for i in range(100)]]
    with refused("rows.token_beyond", InputError, row=0, column="text", width=200):
        update(run, insert=write(tmp_path / "many.parquet", lists, ["ham"]), out=tmp_path / "second")
