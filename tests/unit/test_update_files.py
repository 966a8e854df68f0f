"""``update``: which files it takes, and how it refuses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from updatable import ids_file, table

from pipelines.updating import update
from raydt.errors import InputError, UpdateError
from raydt.messages import message
from tests.refusals import refused

LINES = "key,a,colour,y\n"
CORRECT = message("updates.correct")
#: Text of the rows or ids, the message, its place, and its remedy.
ADVICE: dict[str, tuple[str | None, str | None, str, dict[str, Any], str]] = {
    "infinite": (LINES + "n,inf,red,no\n", None, "rows.infinite", {"row": 0, "column": "a"}, CORRECT),
    "all ids lost": (LINES + ",1,red,no\n,2,red,no\n", None, "rows.no_id", {"row": 0, "column": "key"}, CORRECT),
    "a text": (
        LINES + "n,1,red,no\nm,2,red,no\nl,x,red,no\n",
        None,
        "rows.not_number",
        {"row": 2, "column": "a", "value": "'x'"},
        CORRECT,
    ),
    "no id": (None, "id,foo\n,3\n", "streams.no_id", {"row": 0, "column": "id"}, "Correct the list of ids"),
    "no column": (None, "ids\n3\n", "streams.no_id_column", {"column": "id", "what": "list of ids"}, "Its columns"),
}


@pytest.mark.parametrize("name", list(ADVICE))
def test_no_message_speaks_of_a_config(shared: Path, tmp_path: Path, name: str) -> None:
    rows, ids, said, parameters, remedy = ADVICE[name]
    (tmp_path / "new.csv").write_text(rows or "")
    (tmp_path / "gone.csv").write_text(ids or "")
    files = {"insert": tmp_path / "new.csv"} if rows else {"delete": tmp_path / "gone.csv"}
    with refused(said, InputError, **parameters) as caught:
        update(shared / "run", dry_run=True, **files)
    assert remedy in str(caught.value)
    assert not any(word in str(caught.value) for word in ("source", "stream.", "deletion log"))


def test_a_column_cannot_be_feature_and_label(shared: Path, tmp_path: Path) -> None:
    pq.write_table(table(200, 202), tmp_path / "new.parquet")
    with refused("updates.feature_column", column="a"):
        update(shared / "run", insert=tmp_path / "new.parquet", label="a", dry_run=True)


@pytest.mark.parametrize("kind", ["csv", "arrow"])
def test_rows_of_other_formats(shared: Path, tmp_path: Path, kind: str) -> None:
    rows = table(200, 230).set_column(0, "key", pa.array([f"{i:05d}" for i in range(30)]))  # ids that look like numbers
    pq.write_table(rows, tmp_path / "new.parquet")
    file = tmp_path / f"new.{kind}"
    if kind == "csv":
        pacsv.write_csv(rows, file)
    else:
        feather.write_feather(rows, file, compression="uncompressed")
    receipts = [update(shared / "run", insert=insert, dry_run=True) for insert in (tmp_path / "new.parquet", file)]
    assert receipts[0].as_dict() == receipts[1].as_dict()


@pytest.mark.parametrize("name", ["new.csv.gz", "new.tsv", "new.tsv.gz", "new.arrows", "new.parq"])
def test_every_name_that_a_source_takes(shared: Path, tmp_path: Path, name: str) -> None:
    rows, file = table(200, 203), tmp_path / name
    options = pacsv.WriteOptions(delimiter="\t" if ".tsv" in name.lower() else ",")
    if "sv" in name.lower():
        with pa.CompressedOutputStream(file, "gzip") if name.lower().endswith("gz") else file.open("wb") as sink:
            pacsv.write_csv(rows, sink, options)
    elif name == "new.parq":
        pq.write_table(rows, file)
    else:
        with pa.ipc.new_stream(file, rows.schema) as writer:
            writer.write_table(rows)
    receipt = update(shared / "run", insert=file, dry_run=True)
    assert receipt.inserted.tolist() == ["k0200", "k0201", "k0202"]


def test_a_name_that_says_no_kind(shared: Path, tmp_path: Path) -> None:
    pacsv.write_csv(table(200, 203), tmp_path / "new.txt")
    with refused("files.not_kind", InputError, file=str(tmp_path / "new.txt")) as caught:
        update(shared / "run", insert=tmp_path / "new.txt", dry_run=True)
    assert caught.value.remedy == str(message("files.assumed", kind="parquet"))
    assert len(update(shared / "run", insert=tmp_path / "new.txt", kind="csv", dry_run=True).inserted) == 3


def test_a_file_of_no_ids_is_refused(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "gone.csv").write_text("id\n")
    with refused("updates.no_ids", file=str(tmp_path / "gone.csv")):
        update(shared / "run", delete=tmp_path / "gone.csv", out=tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_file_without_rows_changes_nothing(shared: Path, tmp_path: Path) -> None:
    pq.write_table(table(0, 0).cast(table(0, 1).schema), tmp_path / "new.parquet")
    receipt = update(shared / "run", insert=tmp_path / "new.parquet", dry_run=True)
    assert receipt.digest_before == receipt.digest_after
    assert (len(receipt.ids), len(receipt.inserted), receipt.active, receipt.copies) == (0, 0, 200, ())


def test_rows_in_several_files(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    for part in range(3):
        pq.write_table(table(200 + 10 * part, 210 + 10 * part), tmp_path / "new" / f"{part}.parquet")
    receipt = update(shared / "run", insert=tmp_path / "new", dry_run=True)
    assert receipt.inserted.tolist() == [f"k{i:04d}" for i in range(200, 230)]
    pq.write_table(table(205, 206), tmp_path / "new" / "3.parquet")
    file = str(tmp_path / "new" / "3.parquet")
    with refused("updates.repeated_id", UpdateError, file=file, row=0, column="key", id="'k0205'"):
        update(shared / "run", insert=tmp_path / "new", kind="parquet", dry_run=True)
    ids_file(tmp_path / "new" / "a.csv", ["k0001"])
    with pytest.raises(InputError, match=r"new: .*, such as .*/0.parquet and .*/a.csv"):
        update(shared / "run", insert=tmp_path / "new", dry_run=True)
    ids_file(tmp_path / "new" / "b.csv", ["k0002"])
    with refused("streams.many_logs", files=2, what="list of ids"):
        update(shared / "run", delete=f"{tmp_path}/new/*.csv", dry_run=True)
