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
from pipelines.serving.application import Application
from pipelines.serving.reader import SnapshotReader


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
