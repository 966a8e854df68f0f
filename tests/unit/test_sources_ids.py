"""Ids of every type in a deletion log, and ids that a text file shows late."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from pydantic import ValidationError

from raydt.errors import InputError
from raydt.examples.updates import DELETE
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles, CsvFiles
from raydt.streams.deletion_log import DeletionLog
from raydt.streams.options import make_stream
from tests.refusals import refused

UUIDS = [uuid.UUID(int=i) for i in (7, 2**127, 3)]
NUMBERS = pa.array([7, 5, 3])
TEXTS = pa.array(["b", "007", "é"])


def deleted(folder: Path, ids: pa.Array, log: pa.Array) -> list[Any]:
    """Ids that a log deletes from a source, as their user knows them."""
    source = pa.table({"x": [1.0] * len(ids), "y": [0] * len(ids), "key": ids})
    for name, table in (("t", source), ("log", pa.table({"id": log}))):
        feather.write_feather(table, folder / f"{name}.arrow", compression="uncompressed")
    source = open_source(ArrowFiles(path="t.arrow", id="key", features=["x"]), folder)
    stream = make_stream(DeletionLog(deletion_log="log.arrow"), source, folder)
    return [b.name(int(place)) for b in stream.batches(2) for place in np.flatnonzero(b.op == DELETE)]


@pytest.mark.parametrize(
    ("ids", "log"),
    [
        (NUMBERS.cast(pa.int32()), NUMBERS.cast(pa.uint64())),
        (NUMBERS.cast(pa.uint64()), NUMBERS.cast(pa.int8())),
        (NUMBERS, NUMBERS.cast(pa.float64())),
        (NUMBERS.dictionary_encode(), pa.array(["7", " 5", "0003"])),
        (NUMBERS, pa.array(["7", "5", "3"], pa.string_view())),
        *((TEXTS, TEXTS.cast(kind)) for kind in (pa.large_string(), pa.string_view())),
        (TEXTS.dictionary_encode(), TEXTS),
        (pa.array([one.bytes for one in UUIDS], pa.uuid()), pa.array([one.bytes for one in UUIDS], pa.uuid())),
        (pa.array([one.bytes for one in UUIDS], pa.uuid()), pa.array([str(one) for one in UUIDS])),
    ],
    ids=lambda array: str(array.type),
)  # fmt: skip
def test_a_log_names_ids_of_the_source(ids: pa.Array, log: pa.Array, tmp_path: Path) -> None:
    assert deleted(tmp_path, ids, log) == [str(one) if isinstance(one, uuid.UUID) else one for one in ids.to_pylist()]


@pytest.mark.parametrize("text", ["0x5", "5.0", str(2**63), "", None])
def test_a_text_that_is_no_integer_is_no_id_of_a_log(text: str | None, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        deleted(tmp_path, NUMBERS, pa.array(["7", text]))
    assert (caught.value.row, caught.value.column) == (1, "id")


@pytest.mark.parametrize(("ids", "log"), [(NUMBERS, pa.nulls(1)), (TEXTS, NUMBERS)])
def test_a_log_of_ids_of_another_type(ids: pa.Array, log: pa.Array, tmp_path: Path) -> None:
    with refused("streams.other_ids", InputError, owner="source"):
        deleted(tmp_path, ids, log)


@pytest.mark.parametrize(
    ("given", "kind", "ids"),
    [
        ({}, "text", ["007", "7", "0x10"]),
        ({"text": ["key"]}, "text", ["007", "7", "0x10"]),
        ({"integers": ["key"]}, "integer", [7, 7, None]),
        ({"rules": 3}, "integer", [7, 7, 16]),  # of runs that began so
    ],
)
def test_ids_of_csv_are_text_unless_all_are_written_like_integers(
    given: dict[str, Any], kind: str, ids: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("key,y,x\n007,1,1\n7,0,2\n0x10,1,3\n")
    source = open_source(CsvFiles(path="t.csv", id="key", **given), tmp_path)
    rows = next(iter(source.rows()))
    found = [*(rows.id.tolist() if rows.names is None else rows.names)]
    assert (source.id_kind, [None if i in rows.bad else one for i, one in enumerate(found)]) == (kind, ids)
    assert [error.message.id for error in rows.bad.values()] == ["rows.other_spelling"] * ids.count(None)


def test_a_column_is_text_in_all_files_if_it_is_in_one(tmp_path: Path) -> None:
    for name, id in (("a", "7"), ("b", "007")):
        (tmp_path / f"{name}.csv").write_text(f"key,y,x\n{id},1,1\n")
    source = open_source(CsvFiles(path=["a.csv", "b.csv"], id="key"), tmp_path)
    assert [id for rows in source.rows() for id in rows.names] == ["7", "007"]


@pytest.mark.parametrize("given", [{"text": ["x"]}, {"integers": ["y"]}, {"text": ["key"], "integers": ["key"]}])
def test_only_columns_of_names_are_declared(given: dict[str, Any]) -> None:
    with refused("sources.no_such_kind", ValidationError):
        CsvFiles(path="t.csv", id="key", **given)


def test_ids_after_a_block_without_any_are_integers(tmp_path: Path) -> None:
    filler = "\n".join(f",1,{'x' * 60}" for _ in range(20_000))  # longer than the block that types come from
    (tmp_path / "t.csv").write_text(f"key,y,x\n{filler}\n7,0,z\nz,0,z\n")
    last = list(open_source(CsvFiles(path="t.csv", id="key"), tmp_path).rows())[-1]
    assert (last.id[-2], last.bad[0].message.id, last.bad[len(last) - 1].message.id) == (
        7,
        "rows.no_id",
        "rows.not_kind",
    )
    assert len(last) - 2 not in last.bad
