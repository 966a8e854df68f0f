"""Text that looks like numbers or times becomes categories only with a warning: in files of every kind, and frames."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from pipelines.config import load_config
from pipelines.validation import look_at
from raydt import FullyDynamicTreeClassifier
from raydt.encoding.columns import doubt
from raydt.messages import message
from tests.volume import examples

NUMBERS = {
    "decimals": lambda i: str(Decimal(i * 7) / 100),
    "integers": str,
    "exponents": lambda i: f"{i}.5e-3",
    "commas": lambda i: f"{i},25",
    "thousands": lambda i: f"{1000 * i + 999:,}.50",
    "money": lambda i: f"${i}.99",
    "euros": lambda i: f"{i}.99 €",
    "shares": lambda i: f"{i} %",
}
TIMES = {
    "days": lambda i: str(datetime(2024, 1, 1) + timedelta(days=i))[:10],
    "zones": lambda i: f"2024-05-31T12:{i % 60:02}:00Z",
}
NAMES = {
    "words": lambda i: f"w{i}",
    "codes": lambda i: f"A-{i:03}",
    "versions": lambda i: f"{i}.0.1-b",
    "one": lambda i: "x",
}
N = 40


@examples(60)
@given(
    st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=3), min_size=1),
    st.sampled_from(["", "{:+}", "{:,}", "{:E}"]),
)
def test_every_way_to_write_a_number(values: list[Decimal], form: str) -> None:
    texts = [(form or "{}").format(value) for value in values]
    assert doubt(pa.array(texts)), texts


@examples(60)
@given(st.lists(st.text(st.characters(categories=["L"]), min_size=1), min_size=1))
def test_words_are_names(values: list[str]) -> None:
    assert doubt(pa.array(values)) is None


def warnings_of(folder: Path, table: pa.Table, kind: str, **source: object) -> list[str]:
    path = folder / f"data.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        table.to_pandas().to_csv(path, index=False)
    config = {
        "source": {"kind": kind, "path": str(path), **source},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
    }
    if "envelope" in source:
        config["stream"] = {"model": "changelog"}
    return [text for text in look_at(load_config(config))["warnings"] if "looks like" in text or "look like" in text]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
@pytest.mark.parametrize("form", [*NUMBERS, *TIMES, *NAMES])
def test_validate_warns(form: str, kind: str, tmp_path: Path) -> None:
    texts = [({**NUMBERS, **TIMES, **NAMES})[form](i) for i in range(N)]
    table = pa.table({"price": texts, "x": np.arange(N) * 1.5, "y": ["a", "b"] * (N // 2)})
    if kind == "csv" and form in ("decimals", "integers", "exponents", "commas", "days", "zones"):
        return  # which have types there, or are refused
    found = warnings_of(tmp_path, table, kind)
    assert len(found) == (form not in NAMES), found
    if found:
        said = message("columns.like_times" if form in TIMES else "columns.like_numbers")
        assert f"column 'price' {said}" in found[0]
        assert warnings_of(tmp_path, table, kind, categorical=["price"]) == []


def test_replay_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = pa.table({"price": [f"{i}.5" for i in range(N)], "y": ["a", "b"] * (N // 2)})
    pq.write_table(table, tmp_path / "data.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "data.parquet")},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "batch_size": 7},
    }
    pipelines.replay(config, tmp_path / "run")
    (record,) = [one for one in caplog.records if one.levelname == "WARNING"]
    assert f"'price' {message('columns.like_numbers')}" in record.getMessage()


def test_validate_warns_of_debezium_decimals(tmp_path: Path) -> None:
    after = [{"id": i, "price": f"{i}.99", "y": "ab"[i % 2]} for i in range(N)]
    table = pa.table({"before": pa.nulls(N, pa.array(after).type), "after": after, "op": ["c"] * N})
    (warning,) = warnings_of(tmp_path, table, "parquet", envelope="debezium", id="id")
    assert message("columns.like_numbers") in warning


def test_frames_warn() -> None:
    y = np.arange(N) % 2
    for form, make in {**NUMBERS, **TIMES, **NAMES}.items():
        frame = pd.DataFrame({"price": [make(i) for i in range(N)], "x": np.arange(N) * 1.5})
        for X in (frame, pa.Table.from_pandas(frame)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                FullyDynamicTreeClassifier().fit(X, y)
                found = [str(warning.message) for warning in caught if "look like" in str(warning.message)]
                assert len(found) == (form not in NAMES), (form, found)
                assert {warning.filename for warning in caught} <= {__file__}
                caught.clear()
                FullyDynamicTreeClassifier(categorical_features=["price"]).fit(X, y)
                FullyDynamicTreeClassifier().fit(frame.astype({"price": "category"}), y)
                assert not caught, [str(warning.message) for warning in caught]
