"""Frames that estimators cannot take as they are, and what differs between the frames of training and prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.prediction import predict_file
from raydt import FullyDynamicTreeClassifier, KeyedClassifier, load_model
from raydt.errors import InputError
from tests.cases import Trial, every_case
from tests.nets.test_owners import Life, forms_of
from tests.refusals import refused, warned

Y = [0, 1, 0]
GOOD = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]})
WIDE = pl.DataFrame({"a": [1, 2, 3], "b": pl.Series([1, 2, 3], dtype=pl.Int128)})
SPARSE = pd.DataFrame({"a": [1, 2, 3], "b": pd.arrays.SparseArray([0, 0, 1])})


@pytest.mark.parametrize(
    ("X", "id", "parameters"),
    [
        (pd.DataFrame([[1.0, 2.0]] * 3, columns=["b", "b"]), "repeated_column", {"column": "b"}),
        (pd.DataFrame([[1.0, 2.0]] * 3, columns=[1, "1"]), "repeated_column", {"column": "1"}),
        (pa.table([pa.array([1.0, 2.0, 3.0])] * 2, names=["b", "b"]), "repeated_column", {"column": "b"}),
        (WIDE, "frame", {"column": "b", "kind": "Int128"}),
        (WIDE.lazy(), "lazy", {}),
        (SPARSE, "frame", {"column": "b", "kind": "Sparse[int64, 0]"}),
        (pd.DataFrame({"a": [1, 2, 3], "b": [1j, 2, 3]}), "frame", {"column": "b", "kind": "complex128"}),
        (pd.DataFrame({"a": [1, 2, 3], "b": [1, "x", 3]}), "frame", {"column": "b", "kind": "object"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_frame_that_cannot_be_taken_names_column_and_remedy(X: Any, id: str, parameters: dict[str, Any]) -> None:
    fitted, keyed = FullyDynamicTreeClassifier().fit(GOOD, Y), KeyedClassifier(FullyDynamicTreeClassifier())
    keyed.fit(GOOD, Y, keys=[1, 1, 1])
    calls = (
        lambda: FullyDynamicTreeClassifier().fit(X, Y),
        lambda: fitted.partial_fit(X, Y),
        lambda: fitted.predict(X),
        lambda: keyed.predict(X, keys=[1, 1, 1]),
    )
    for call in calls:
        with refused(f"estimators.{id}", InputError, **parameters):
            call()


def test_the_remedies_work() -> None:
    tree = FullyDynamicTreeClassifier().fit(GOOD, Y)
    for X in (WIDE.cast({"b": pl.Int64}), WIDE.lazy().cast({"b": pl.Int64}).collect()):
        assert len(tree.predict(X)) == 3
    assert len(tree.predict(SPARSE.assign(b=SPARSE["b"].sparse.to_dense()))) == 3


@every_case("names of a frame")
def test_names_of_columns_are_checked_as_scikit_learn_does(trial: Trial) -> None:
    """An array given to a model that was fitted on a frame, and a frame to one that was fitted on an array, warn."""
    if not trial.shipped or "matrix" not in forms_of(trial):
        pytest.skip("no estimator of arrays")
    life = Life(trial, "matrix", 1, keyed=False)
    frame, y = life.plain_rows(life.first), life.values("fit", "y", life.first)
    array = np.stack([column.to_numpy() for column in frame.columns], axis=1)
    named, unnamed = life.estimator().fit(frame, y), life.estimator().fit(array, y)
    with warned("estimators.names_lost"):
        found = named.predict(array).tolist()
    assert found == named.predict(frame).tolist()
    with warned("estimators.names_new"):
        assert unnamed.predict(frame).tolist() == found
    assert unnamed.predict(pd.DataFrame(array)).tolist() == found  # without names of its own
    life.keyed, keys = True, {"keys": [1] * len(array)}
    with refused("estimators.other_form", InputError):
        life.estimator().fit(frame, y, **keys).predict(array, **keys)
    with refused("estimators.other_form", InputError):
        life.estimator().fit(array, y, **keys).predict(frame, **keys)


def test_a_column_of_text_that_pandas_reads_as_numbers(tmp_path: Path) -> None:
    """A run reads a column as text. The remedy of the error gives its predictions; what Python writes does not."""
    draw = np.random.default_rng(0)
    codes = draw.integers(0, 9, 300)
    texts = ["" if draw.random() < 0.1 else str(code) for code in codes]
    rows = pd.DataFrame({"code": texts, "a": draw.normal(size=300), "y": np.where(codes % 2, "yes", "no")})
    served = tmp_path / "served.csv"
    rows[1:].to_csv(served, index=False)
    rows.loc[rows.index % 5 > 1, "code"] = "other"  # fewer, and the column would be one of numbers
    rows.to_csv(tmp_path / "rows.csv", index=False)
    config = {
        "source": {"kind": "csv", "path": str(tmp_path / "rows.csv"), "features": ["code", "a"], "label": "y"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    run = pipelines.replay(config, tmp_path / "run").path
    predict_file(run, served, out=tmp_path / "out.parquet")
    expected = pq.read_table(tmp_path / "out.parquet")["prediction"].to_pylist()
    model, read = load_model(run), pd.read_csv(served)
    with refused("estimators.was_text", InputError, column="code", kind="floating-point numbers"):
        model.predict(read)
    written = read.assign(code=[None if value != value else str(value) for value in read["code"]])
    with warned("estimators.unseen", name="code", rows=int(read["code"].notna().sum())):
        model.predict(written)
    assert model.predict(pd.read_csv(served, dtype={"code": str})).tolist() == expected
    assert model.predict(pl.read_csv(served, schema_overrides={"code": pl.String})).tolist() == expected
