"""Served models by key: how a request names its key, and what names none."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.prediction import predict_file
from pipelines.serving.application import Application, SnapshotReader


def served(folder: Path, keys: pa.Array) -> Application:
    """Answer by the models of keys, each of which has two rows of its own label."""
    table = pa.table({"a": [0.0, 1.0] * len(keys), "y": [str(n // 2) for n in range(2 * len(keys))]})
    doubled = pa.array([key for key in keys.to_pylist() for _ in range(2)], keys.type)
    pq.write_table(table.append_column("key", doubled), folder / "rows.parquet")
    run = pipelines.replay(
        {
            "source": {"kind": "parquet", "path": str(folder / "rows.parquet"), "label": "y", "key": "key"},
            "learner": {"kind": "fudyadt"},
            "cluster": {"backend": "in_process"},
            "output": {"report": False},
        },
        folder / "run",
    )
    reader = SnapshotReader(run.path)
    assert reader.look()
    return Application(reader)


@pytest.fixture(scope="module")
def integers(tmp_path_factory: pytest.TempPathFactory) -> Application:
    return served(tmp_path_factory.mktemp("integers"), pa.array([7, -5], pa.int64()))


def asked(application: Application, key: Any) -> dict[str, Any]:
    response = application.respond("POST", "/predict", None, json.dumps({"a": 1, "key": key}).encode())
    assert response.status == HTTPStatus.OK, response
    found: dict[str, Any] = json.loads(response.body)
    return found


@pytest.mark.parametrize(("key", "label"), [(7, "0"), ("7", "0"), (-5, "1"), ("-5", "1")])
def test_a_key_may_be_written_as_text(integers: Application, key: Any, label: str) -> None:
    assert asked(integers, key)["prediction"] == label


@pytest.mark.parametrize(
    "key", ["\u00b2", "--5", "-", "", "9" * 5000, "\u0663", "\x00", "7.0", 8, 2**70], ids=lambda key: repr(key)[:9]
)
def test_what_looks_like_a_key_has_no_model(integers: Application, key: Any) -> None:
    found = asked(integers, key)
    assert (found["prediction"], found["probabilities"], found["without_model"]) == (None, None, [0])


def test_keys_that_look_alike_have_models_of_their_own(tmp_path: Path) -> None:
    keys = ["7", "07", " 7", "\u00b2", "--5", "9" * 5000, "\x00", "", "x" * 5000]
    application = served(tmp_path, pa.array(keys))
    assert [asked(application, key)["prediction"] for key in keys] == [str(n) for n in range(len(keys))]
    assert asked(application, 7)["prediction"] is None, "keys of the source are text"


@pytest.mark.parametrize("keys", [pa.array([7, -5], pa.int64()), pa.array(["7", "-5"])], ids=["integers", "text"])
def test_predict_and_serve_mean_the_same_key(tmp_path: Path, keys: pa.Array) -> None:
    """A text names the integer that it writes, where there is no such text; an integer names no text but in CSV."""
    application = served(tmp_path, keys)
    numbers = pa.types.is_integer(keys.type)
    for form, column in (("text", pa.array(["7", "8"])), ("integer", pa.array([7, 8], pa.int64()))):
        known = "0" if numbers or form == "text" else None
        pq.write_table(pa.table({"a": [1.0, 1.0], "key": column}), tmp_path / "data.parquet")
        told = predict_file(tmp_path / "run", tmp_path / "data.parquet", tmp_path / f"{form}.parquet")
        predicted = pq.read_table(tmp_path / f"{form}.parquet")["prediction"].to_pylist()
        assert predicted == [asked(application, key)["prediction"] for key in column.to_pylist()] == [known, None]
        assert told["without_model"] == predicted.count(None)
    (tmp_path / "data.csv").write_text("a,key\n1,7\n1,8\n")
    predict_file(tmp_path / "run", tmp_path / "data.csv", tmp_path / "csv.parquet")
    assert pq.read_table(tmp_path / "csv.parquet")["prediction"].to_pylist() == ["0", None]
    (tmp_path / "new.csv").write_text("a,y,key\n1,1,7\n")
    changed = pipelines.update(tmp_path / "run", insert=tmp_path / "new.csv", dry_run=True)
    assert list(changed.by_key) == [keys.to_pylist()[0]], "a row of CSV is one of the key that there is"


@pytest.mark.parametrize(("key", "said"), [(None, "no key"), ([7, 8], "list or an object"), ({"is": 7}, "list or an")])
def test_rows_without_a_key_are_told_apart_from_many_rows_as_one(integers: Application, key: Any, said: str) -> None:
    """Who forgets {"columns": ...} sends one row of lists."""
    response = integers.respond("POST", "/predict", None, json.dumps({"a": 1, "key": key}).encode())
    assert response.status == HTTPStatus.BAD_REQUEST
    assert said in response.body.decode()
