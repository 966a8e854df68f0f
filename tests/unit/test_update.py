"""``update``: what it writes, what it refuses, and that a refusal leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from updatable import COLUMNS, ids_file, replayed, table

from pipelines.auditing import audit_state
from pipelines.prediction import predict_file
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import load_state
from pipelines.updating import update
from raydt import FullyDynamicTreeClassifier, load_model
from raydt.errors import ConfigError, InputError, RaydtError, UpdateError
from raydt.folders.arrays import load_folder
from raydt.messages import message
from tests.refusals import refused


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_new_state_predicts_updates_and_can_be_audited(shared: Path, tmp_path: Path) -> None:
    before = contents(shared)
    pq.write_table(table(200, 260), tmp_path / "new.parquet")
    ids_file(tmp_path / "gone.csv", ["k0003", "k0150"])
    receipt = update(
        shared / "run", insert=tmp_path / "new.parquet", delete=tmp_path / "gone.csv", out=tmp_path / "second"
    )
    assert contents(shared) == before
    assert (receipt.active_before, receipt.active) == (200, 258)
    assert receipt.ids.tolist() == ["k0003", "k0150"]
    assert receipt.inserted.tolist()[:2] == ["k0200", "k0201"]
    assert receipt.deletions["label"].tolist() == ["yes" if y == "yes" else "not yes" for y in labels(3, 150)]
    tree = load_model(tmp_path / "second")
    assert tree.digest() == receipt.digest_after
    assert predict_file(tmp_path / "second", tmp_path / "new.parquet", tmp_path / "p.parquet")["rows"] == 60
    assert audit_state(tmp_path / "second").feasibility == "proven"

    ids_file(tmp_path / "more.csv", ["k0200"])
    third = update(tmp_path / "second", delete=tmp_path / "more.csv", out=tmp_path / "third")
    assert third.digest_before == receipt.digest_after
    assert any(str(tmp_path / "second") in place for place in third.copies)
    assert any(str(shared / "run" / "checkpoints" / "200") in place for place in third.copies)
    for said in (message("updates.copy_rows", path=str(tmp_path / "new.parquet")), message("updates.copy_origin")):
        assert said in third.copies
    with refused("updates.unknown_id", UpdateError):
        update(tmp_path / "third", delete=tmp_path / "more.csv", dry_run=True)


def labels(*rows: int) -> list[str]:
    return [table(row, row + 1)["y"][0].as_py() for row in rows]


def test_the_new_state_says_what_it_is_and_holds_no_deleted_id(shared: Path, tmp_path: Path) -> None:
    ids_file(tmp_path / "gone.csv", ["k0005"])
    receipt = update(shared / "run", delete=tmp_path / "gone.csv", out=tmp_path / "second")
    again = update(tmp_path / "second", delete=ids_file(tmp_path / "b.csv", ["k0006"]), out=tmp_path / "third")
    meta, _ = load_folder(tmp_path / "third")
    assert (meta["config_hash"], meta["source_fingerprint"], meta["offset"]) == (None, None, 202)
    run_meta, _ = load_state(RunFolder(shared / "run" / "checkpoints"))
    assert meta["lineage"][0]["config_hash"] == run_meta["config_hash"]
    assert [step["digest_after"] for step in meta["lineage"]] == [receipt.digest_after, again.digest_after]
    assert [step["offset"] for step in meta["lineage"]] == [200, 201]
    everything = b"".join(contents(tmp_path / "third").values())
    assert b"k0007" in everything
    assert b"k0005" not in everything
    assert b"k0006" not in everything
    pq.write_table(table(5, 6), tmp_path / "back.parquet")
    assert update(tmp_path / "third", insert=tmp_path / "back.parquet", dry_run=True).active == 199


def test_a_dry_run_says_the_same_and_writes_nothing(shared: Path, tmp_path: Path) -> None:
    gone = ids_file(tmp_path / "gone.csv", ["k0005"])
    told = update(shared / "run", delete=gone, dry_run=True).as_dict()
    assert update(shared / "run", delete=gone, out=tmp_path / "x", dry_run=True).as_dict() == told
    assert [file.name for file in tmp_path.iterdir()] == ["gone.csv"]
    assert update(shared / "run", delete=gone, out=tmp_path / "x").as_dict() == told


@pytest.mark.parametrize("where", ["run", "run/checkpoints/200"])
def test_copies_are_named(shared: Path, tmp_path: Path, where: str) -> None:
    gone = ids_file(tmp_path / "gone.csv", ["k0005"])
    copies = "\n".join(update(shared / where, delete=gone, dry_run=True).copies)
    for place in ("train.parquet", "run/checkpoints", "run/predictions", "run/model"):
        assert str(shared / place) in copies
    assert str(gone) in copies


def changed(column: str, values: list[Any]) -> pa.Table:
    new = table(200, 200 + len(values))
    return new.set_column(COLUMNS.index(column), column, pa.array(values))


REFUSED: dict[str, tuple[pa.Table | None, list[str] | None, str, dict[str, Any]]] = {
    "unknown id": (None, ["k0001", "nobody"], "updates.unknown_id", {"row": 1, "column": "id", "id": "'nobody'"}),
    "unknown ids": (
        None,
        ["k0001", "me", "k0001", "you", "me"],
        "updates.unknown_ids",
        {"row": 1, "column": "id", "count": 2, "ids": "'me', 'you'"},
    ),
    "live id": (changed("key", ["a", "k0100"]), ["k0001"], "updates.live_id", {"row": 1, "column": "key"}),
    "insert twice": (changed("key", ["a", "b", "a"]), None, "updates.repeated_id", {"row": 2, "column": "key"}),
    "infinity": (changed("a", [0.0, float("inf")]), None, "rows.infinite", {"row": 1, "column": "a"}),
    "null id": (changed("key", ["n", None]), None, "rows.no_id", {"row": 1, "column": "key"}),
    "no label": (changed("y", ["no", None]), None, "rows.no_label", {"row": 1, "column": "y"}),
    "label": (changed("y", ["no", "ja"]), None, "rows.other_label", {"row": 1, "column": "y", "value": "'ja'"}),
    "column": (table(200, 202).drop_columns(["a"]), None, "updates.no_feature", {"column": "a"}),
    "label column": (table(200, 202).drop_columns(["y"]), None, "updates.no_column", {"column": "y"}),
    "id column": (table(200, 202).drop_columns(["key"]), None, "updates.no_column", {"column": "key"}),
    "ids": (changed("key", [7, 8]), None, "updates.other_ids", {"column": "key", "found": "integers"}),
    "text": (changed("a", ["x", "y"]), None, "updates.other_column", {"column": "a", "found": "text"}),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_refusal_names_file_and_row_and_writes_nothing(shared: Path, tmp_path: Path, name: str) -> None:
    rows, ids, said, parameters = REFUSED[name]
    files: dict[str, Any] = {}
    if rows is not None:
        files["insert"] = tmp_path / "new.parquet"
        pq.write_table(rows, files["insert"])
    if ids is not None:
        files["delete"] = ids_file(tmp_path / "gone.csv", ids)
    there = contents(tmp_path)
    with refused(said, InputError, **parameters) as caught:
        update(shared / "run", out=tmp_path / "second", **files)
    assert caught.value.file == str(files["delete" if rows is None else "insert"])
    assert contents(tmp_path) == there
    assert not (tmp_path / "second").exists()


def test_a_log_with_positions_is_refused(shared: Path, tmp_path: Path) -> None:
    pacsv.write_csv(pa.table({"id": ["k0001"], "after": [3]}), tmp_path / "gone.csv")
    with refused("updates.positions", column="after"):
        update(shared / "run", delete=tmp_path / "gone.csv", dry_run=True)


def test_places_that_cannot_be_used(shared: Path, tmp_path: Path) -> None:
    gone = ids_file(tmp_path / "gone.csv", ["k0001"])
    run = shared / "run"
    for out, problem in (("", "around_input"), ("checkpoints/300", "within_input"), ("checkpoints/200", "same")):
        with refused(f"outputs.{problem}", ConfigError, name="what is updated"):
            update(run / "checkpoints" / "200", delete=gone, out=run / out)
    with refused("updates.full_folder", ConfigError):
        update(run, delete=gone, out=tmp_path)
    with pytest.raises(RaydtError, match="cannot be"):
        update(run, delete=gone, out=gone)
    with refused("updates.no_target", ConfigError):
        update(run, delete=gone)
    with refused("updates.nothing", ConfigError):
        update(run, dry_run=True)
    with refused("runs.model_only", InputError):
        update(run / "model", delete=gone, dry_run=True)
    with refused("runs.no_state", InputError):
        update(tmp_path, delete=gone, dry_run=True)


def test_a_state_that_cannot_be_written_leaves_nothing(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: RunFolder, *_: Any, **__: Any) -> None:
        half = Path(folder.path("manifest.json"))
        half.parent.mkdir(exist_ok=True)
        half.write_text("")
        raise OSError("disk full")

    monkeypatch.setattr("pipelines.updating.new_state.save_folder", full)
    gone = ids_file(tmp_path / "gone.csv", ["k0001"])
    with pytest.raises(OSError, match="disk full"):
        update(shared / "run", delete=gone, out=tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_new_categories_and_classes_get_the_next_codes(tmp_path: Path) -> None:
    run = replayed(tmp_path, text_ids=False)
    rows = table(200, 203, text_ids=False).set_column(2, "colour", pa.array(["mauve", "red", "teal"]))
    pq.write_table(rows.set_column(3, "y", pa.array(["maybe", "no", "yes"])), tmp_path / "new.parquet")
    update(run, insert=tmp_path / "new.parquet", out=tmp_path / "second")
    first, second = (load_model(place) for place in (run, tmp_path / "second"))
    assert second.classes_.tolist() == [*first.classes_.tolist(), "maybe"]
    colours = [tree._encoder.dictionaries["colour"].values for tree in (first, second)]
    assert colours[1] == [*colours[0], "mauve", "teal"]
    assert sorted(second.row_ids_)[-3:] == [200, 201, 202]


def test_states_of_a_run_that_lie_elsewhere_are_not_added_to(tmp_path: Path) -> None:
    replayed(tmp_path, checkpoint={"path": str(tmp_path / "states")})
    gone = ids_file(tmp_path / "gone.csv", ["k0001"])
    with refused("outputs.within_input", ConfigError, name="what is updated"):
        update(tmp_path / "run", delete=gone, out=tmp_path / "states" / "201")
    assert str(tmp_path / "states") in "\n".join(update(tmp_path / "run", delete=gone, dry_run=True).copies)


def test_text_for_ids_and_numbers_for_a_class_of_text_are_refused(tmp_path: Path) -> None:
    run = replayed(tmp_path, text_ids=False)
    pq.write_table(table(200, 202), tmp_path / "new.parquet")
    with refused("updates.other_ids", found="text", wanted="integers"):
        update(run, insert=tmp_path / "new.parquet", dry_run=True)
    pq.write_table(table(200, 202, text_ids=False).set_column(3, "y", pa.array([0, 1])), tmp_path / "new.parquet")
    with refused("updates.other_label", UpdateError, row=0, column="y", label="0"):
        update(run, insert=tmp_path / "new.parquet", dry_run=True)


@pytest.mark.parametrize(
    ("known", "values", "expected"),
    [
        ([3, 7], {"csv": "7\n9\n"}, [3, 7, 9]),
        ([3, 7], {"csv": "7\nmauve\n"}, "'mauve'"),
        ([3, 7], {"csv": "7\n09\n"}, "'09'"),
        (["3", "7"], {"csv": "7\n9\n"}, ["3", "7", "9"]),
        (["3", "7"], {"parquet": [7, 9]}, ["3", "7", "9"]),
        (["3", "x"], {"parquet": [3, 9]}, "3"),
        (["b", "a"], {"parquet": ["a", "c"]}, ["b", "a", "c"]),
    ],
)
def test_categories_are_written_as_the_model_has_them(
    tmp_path: Path, known: list[Any], values: dict[str, Any], expected: Any
) -> None:
    frame = pa.table({"c": known})
    FullyDynamicTreeClassifier(categorical_features=["c"]).fit(frame, [0, 1]).save(tmp_path / "s", with_examples=True)
    ((kind, column),) = values.items()
    file = tmp_path / f"new.{kind}"
    if kind == "csv":
        file.write_text("y,c\n" + "".join(f"1,{value}\n" for value in column.split()))
    else:
        pq.write_table(pa.table({"y": [1, 1], "c": column}), file)
    if isinstance(expected, str):
        with refused("updates.other_category", column="c", category=expected, known=str(known)):
            update(tmp_path / "s", insert=file, dry_run=True)
        return
    update(tmp_path / "s", insert=file, out=tmp_path / "t")
    assert load_model(tmp_path / "t")._encoder.dictionaries["c"].values == expected


def test_the_command_line(shared: Path, tmp_path: Path, raydt: Any) -> None:
    gone = ids_file(tmp_path / "gone.csv", [f"k{i:04d}" for i in range(30)])
    code, out, err = raydt("update", shared / "run", "--delete", gone, "--out", tmp_path / "second")
    assert (code, err) == (0, "")
    copies = message("commands.copies")
    for said in ("30 deleted, 0 inserted", "170 examples, 200 before", "k0009", "and 20 more", copies):
        assert said in out
    code, out, _ = raydt("update", shared / "run", "--delete", gone, "--dry-run", "--json")
    told = json.loads(out)
    assert (code, told["out"], len(told["deletions"]["path"])) == (0, None, 30)
    assert told["digest_after"] == load_model(tmp_path / "second").digest()
    code, out, _ = raydt("audit", tmp_path / "second", "--json")
    assert (code, json.loads(out)["run"], json.loads(out)["feasibility"]) == (0, None, "proven")
    code, out, err = raydt("update", tmp_path / "second", "--delete", gone, "--out", tmp_path / "third")
    assert (code, out) == (2, "")
    assert "gone.csv, row 0, column 'id': 30 ids have no live example: 'k0000', 'k0001', " in err
    assert "'k0029'. " in err
    skip = ("update", tmp_path / "second", "--delete", gone, "--missing", "skip", "--dry-run")
    code, out, err = raydt(*skip)
    assert (code, err) == (0, "")
    assert "30 without a live row, passed over: k0000, " in out
    code, out, _ = raydt(*skip, "--json")
    assert (code, json.loads(out)["deletes"], len(json.loads(out)["missing"])) == (0, 0, 30)
