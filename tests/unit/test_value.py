"""The command ``value``: the values of a state are those of the estimator, by row and by subject."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.report.page import is_page
from pipelines.saved_runs import find_state
from pipelines.valuing import value_rows
from raydt import load_model
from raydt.attribution import leave_one_out
from raydt.errors import ConfigError, InputError
from tests.refusals import refused


def table(n: int, seed: int, numbers: bool = False) -> pa.Table:
    """Rows of two features, the second a category, and text ids; one label in ten is wrong."""
    draws = np.random.default_rng(seed)
    age, colour = draws.integers(18, 90, n), draws.integers(0, 3, n)
    is_old = (age > 50) ^ (draws.random(n) < 0.1)
    columns = {
        "key": [f"k{seed}-{i}" for i in range(n)],
        "whose": [f"p{i // 3}" for i in range(n)],
        "age": age,
        "colour": np.array(["red", "green", "blue"])[colour],
        "y": age * 0.5 + is_old if numbers else np.where(is_old, "old", "young"),
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with validation rows, and trained runs: of classes, of two sides of a label, and of numbers."""
    place = tmp_path_factory.mktemp("value")
    for name, numbers, more in (
        ("classes", False, {}),
        ("sides", False, {"positive": "old"}),
        ("numbers", True, {}),
        ("private", False, {}),
    ):
        pq.write_table(table(60, 1, numbers), place / f"{name}.parquet")
        pq.write_table(table(40, 2, numbers), place / f"{name}-valid.parquet")
        source = {
            "kind": "parquet",
            "path": str(place / f"{name}.parquet"),
            "id": "key",
            "subject": "whose",
            "label": "y",
        }
        learner = {"kind": "forest", "n_estimators": 6, "min_samples_split": 2}
        config = {
            "source": {**source, **more},
            "stream": {"holdout": 0},
            "learner": learner | ({"criterion": "squared_error"} if numbers else {}),
            "output": {"report": False, "quote_values": name != "private"},
        }
        pipelines.train(config, place / name)
    return place


@pytest.mark.parametrize("name", ["classes", "sides", "numbers"])
@pytest.mark.parametrize("by", ["row", "subject"])
def test_values_of_a_run_are_those_of_its_estimator(folder: Path, tmp_path: Path, name: str, by: Any) -> None:
    valid = pq.read_table(folder / f"{name}-valid.parquet")
    y: Any = valid["y"].to_numpy()
    place = find_state(folder / name).folder.location
    model = load_model(place)
    expected = leave_one_out(model, valid.select(["age", "colour"]), y, subjects="all" if by == "subject" else None)
    found = value_rows(folder / name, folder / f"{name}-valid.parquet", tmp_path / "values.parquet", by=by)
    written = pq.read_table(tmp_path / "values.parquet")
    heading = "subject" if by == "subject" else "id"
    assert written[heading].to_pylist() == expected.ids.tolist()
    assert written["value"].to_pylist() == expected.values.tolist()
    assert (found["rows"], found["score"]) == (len(expected.ids), expected.score)
    assert found["harmful"] == int((expected.values < 0).sum())
    if by == "row":
        train = pq.read_table(folder / f"{name}.parquet")
        labels = dict(zip(train["key"].to_pylist(), train["y"].to_pylist(), strict=True))
        assert written["label"].to_pylist() == [labels[one] for one in written["id"].to_pylist()]
    assert is_page(Path(found["page"]))
    most = str(expected.ids[np.abs(expected.values).argmax()])
    assert f">{most}<" in Path(found["page"]).read_text()
    assert load_model(place).digest() == model.digest()


@pytest.mark.parametrize("scoring", ["roc_auc", "f1_macro"])
def test_scorers_see_the_classes_in_order_and_labels_that_no_row_has(
    folder: Path, tmp_path: Path, scoring: str
) -> None:
    pytest.importorskip("sklearn")
    from sklearn.metrics import f1_score, roc_auc_score

    rows = pq.read_table(folder / "classes-valid.parquet")
    y: Any = rows["y"].to_numpy(zero_copy_only=False).copy()
    model: Any = load_model(find_state(folder / "classes").folder.location)
    features = rows.select(["age", "colour"])
    if scoring == "roc_auc":
        young = model.predict_proba(features)[:, model.classes_.tolist().index("young")]
        expected = roc_auc_score(y == "young", young)
        assert expected > 0.7
    else:
        y[:20] = "unknown"
        expected = f1_score(y, model.predict(features), average="macro")
    pq.write_table(rows.set_column(rows.column_names.index("y"), "y", pa.array(y)), tmp_path / "valid.parquet")
    found = value_rows(folder / "classes", tmp_path / "valid.parquet", tmp_path / "values.parquet", scoring=scoring)
    assert found["score"] == pytest.approx(expected, abs=1e-12)


def test_the_command_prints_what_it_wrote(folder: Path, tmp_path: Path, raydt: Any) -> None:
    arguments = ("value", folder / "classes", folder / "classes-valid.parquet", "--out", tmp_path / "values.parquet")
    code, out, _ = raydt(*arguments, "--scoring", "neg_log_loss", "--json")
    assert code == 0
    assert json.loads(out)["rows"] == 60
    code, _, err = raydt(*arguments)
    assert code == 2
    assert "values.parquet" in err
    code, out, _ = raydt(*arguments, "--overwrite")
    assert code == 0
    assert "60 rows" in out


def test_a_page_of_a_run_that_does_not_quote_has_no_id(folder: Path, tmp_path: Path) -> None:
    found = value_rows(folder / "private", folder / "private-valid.parquet", tmp_path / "values.parquet")
    assert "k1-" not in Path(found["page"]).read_text()


def test_what_is_wrong_is_said_and_nothing_is_written(folder: Path, tmp_path: Path) -> None:
    run, valid, out = folder / "classes", folder / "classes-valid.parquet", tmp_path / "values.parquet"
    with refused("attribution.scoring", ConfigError):
        value_rows(run, valid, out, scoring="nonsense")
    with refused("attribution.unfit", ConfigError):
        value_rows(run, valid, out, scoring="neg_mean_squared_error")
    with pytest.raises(InputError):
        value_rows(run, valid, out, label="other")
    pq.write_table(pq.read_table(valid).slice(0, 0), tmp_path / "none.parquet")
    with refused("attribution.no_rows", InputError):
        value_rows(run, tmp_path / "none.parquet", out)
    with pytest.raises(ConfigError):
        value_rows(run, valid, valid, overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["none.parquet"]
