"""What is served equals ``raydt predict`` in every bit: of a finished run, and of each of its checkpoints, by case."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.prediction import predict_file
from pipelines.serving.application import Application, Loader, SnapshotReader
from tests.cases import Trial, every_case, one_of_each
from tests.keyed_cases import KEYS, config, files
from tests.small_tables import derived, examples


@functools.cache
def loader() -> Loader:
    """The process that loads, as beside a server; one for all cases."""
    return Loader(quote=True)


def served(place: str | Path) -> Application:
    """What answers for a place."""
    reader = SnapshotReader(place)
    reader._loader = loader()
    assert reader.look()
    return Application(reader)


def asked(application: Application, body: Any, status: int = 200) -> dict[str, Any]:
    """The answer to a body."""
    response = application.respond("POST", "/predict", None, json.dumps(body).encode())
    found: dict[str, Any] = json.loads(response.body)
    assert response.status == status, found
    return found


def rows_of(trial: Trial, n: int = 40) -> list[dict[str, Any]]:
    """Rows for a case; some categories are new."""
    names, draw = trial.columns["features"], random.Random(trial.name)
    rows = [{**derived(row), **row} for row in examples(n, 5)]
    for row in rows:
        if "d" in names and draw.random() < 0.2:
            row["d"] = row["d_or_null"] = draw.choice(["new", "newer"])
    return [{name: row[name] for name in names} for row in rows]


def predicted(place: str | Path, rows: list[dict[str, Any]], folder: Path) -> tuple[list[Any], list[Any]]:
    """Labels and shares that ``raydt predict`` writes."""
    data = folder / "rows.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    out = folder / "predicted.parquet"
    predict_file(place, data, out, overwrite=True)
    table = pq.read_table(out)
    shares = [table[name].to_pylist() for name in table.column_names if name.startswith("p_")]
    return table["prediction"].to_pylist(), [list(row) for row in zip(*shares, strict=True)]


@every_case("served answers", one_of_each)
def test_answers_equal_predictions_of_the_snapshot_they_name(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raydt.folders.arrays._LARGE", 64)  # nearly every array of a coordinator has a file of its own
    run = pipelines.replay(trial.config(tmp_path, checkpoint={"keep": 9}), tmp_path / "run")
    rows = rows_of(trial)
    states = sorted((Path(run.path) / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    for place in (Path(run.path), states[0]):
        labels, shares = predicted(place, rows, tmp_path)
        answers = served(place)
        many = asked(answers, {"rows": rows})
        assert many["predictions"] == labels
        assert many.get("probabilities", []) == shares
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        assert asked(answers, {"columns": columns})["predictions"] == labels
        one = asked(answers, rows[-1])
        assert (one["prediction"], one.get("probabilities", [])) == (labels[-1], shares[-1] if shares else [])
        assert one["digest"] == f"sha256:{json.loads((manifest(place)).read_text())['sha256']}"
        assert one["update"] == json.loads(manifest(place).read_text())["meta"]["offset"]


def manifest(place: Path) -> Path:
    """The manifest of a state, or of the model of a run."""
    return next(path for path in (place / "manifest.json", place / "model" / "manifest.json") if path.is_file())


@every_case("served answers by key", lambda trial: trial.learner.kind == "fudyadt" and one_of_each(trial))
def test_rows_name_the_model_of_their_key(trial: Trial, tmp_path: Path) -> None:
    path, _ = files(trial, tmp_path)
    run = pipelines.replay(config(trial, path, key="key"), tmp_path / "run")
    rows = [{**row, "key": [*KEYS, "nobody"][place % 4]} for place, row in enumerate(rows_of(trial))]
    newest = max((Path(run.path) / "checkpoints").glob("[0-9]*"), key=lambda found: int(found.name))
    for place in (Path(run.path), newest):
        labels, shares = predicted(place, rows, tmp_path)
        found = asked(served(place), {"rows": rows})
        assert found["predictions"] == labels
        assert found.get("probabilities", []) == [None if None in row else row for row in shares] or not shares
        assert found["without_model"] == list(range(3, len(rows), 4))
