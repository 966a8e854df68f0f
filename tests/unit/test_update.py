"""Updates of runs, models and states from files."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run, audit_state, verify_receipts
from pipelines.cli import main
from pipelines.prediction import predict_file
from pipelines.receipts import ReceiptFile
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import last_state
from pipelines.updating import apply_changes, update
from raydt import FullyDynamicTreeClassifier, load_model
from raydt.errors import ConfigError, InputError, ModelFileError, RaydtError, UpdateError
from raydt.examples.updates import UNIT
from raydt.exchange.messages import injected
from raydt.folders.arrays import load_folder, read_manifest, save_folder
from raydt.messages import message
from tests.refusals import refused
from tests.storage_faults import Gone, at, cut
from tests.unit.updatable import COLUMNS, ids_file, live_names, replayed, table

# -- update ----------------------------------------------------------------------------------------------------------
# ``update``: what it writes, what it refuses, and that a refusal leaves nothing behind.


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
    run_meta = read_manifest(last_state(RunFolder(shared / "run" / "checkpoints"))).meta
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


@pytest.mark.parametrize("public", [update, apply_changes], ids=lambda public: public.__name__)
def test_the_signature_names_all_options(public: Any, tmp_path: Path) -> None:
    """``help`` shows them, and a misspelled one is refused by name before anything is read."""
    given = inspect.signature(public).parameters
    assert {"out", "dry_run", "label", "id_column", "kind", "receipts", "note", "keep"} <= given.keys()
    with pytest.raises(TypeError, match=rf"{public.__name__}.*'delte'"):
        public(tmp_path, *[tmp_path] * (public is apply_changes), delte=[1])


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
    with refused("runs.no_state", InputError):  # before the place of a new one
        update(tmp_path, delete=gone)
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

    monkeypatch.setattr("pipelines.updating.states.save_folder", full)
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


# -- update continued ------------------------------------------------------------------------------------------------
# ``resume --from``: which streams continue from an update, and which states are refused.

WINDOW = {"model": "sliding_window", "window": 60}


def stopped(folder: Path, stream: dict[str, Any], after: int | None = 4, keep: int = 3, **source: Any) -> Path:
    """A run over 200 examples that is broken off after some batches of 30; not, if ``after`` is None."""
    text_ids = source.pop("text_ids", True)
    rows = table(0, 200, text_ids=text_ids).append_column("ts", pa.array(range(0, 2000, 10)))
    pq.write_table(rows, folder / "train.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(folder / "train.parquet"), "id": "key", "features": ["a", "colour"]}
        | source,
        "stream": stream,
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "batch_size": 30},
        "checkpoint": {"every_updates": 1, "every_seconds": None, "keep": keep},
        "output": {"predictions": True, "report": False},
    }
    if after is None:
        return Path(pipelines.replay(config, folder / "run").path)
    return cut(config, folder / "run", after)


def written(path: Path, rows: pa.Table) -> Path:
    pq.write_table(rows, path)
    return path


STREAMS = {
    "incremental": {"model": "incremental"},
    "window": WINDOW,
    "random": {"model": "random_updates", "insert_probability": 0.7},
    "time": {"model": "time_window", "duration": 600},
}


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", list(STREAMS))
def test_a_stream_that_chooses_its_deletions_forgets_what_an_update_deleted(tmp_path: Path, name: str) -> None:
    run = stopped(tmp_path, STREAMS[name], **({"ts": "ts"} if name == "time" else {}))
    gone = sorted(live_names(run / "checkpoints"))[:5]
    new = table(0, 3).set_column(0, "key", pa.array(["new a", gone[0], "k0199"]))
    new = new.set_column(3, "y", pa.array(["a new class", "yes", "no"]))
    update(
        run / "checkpoints",
        delete=ids_file(tmp_path / "gone.csv", gone),
        insert=written(tmp_path / "new.parquet", new),
        out=tmp_path / "state",
    )
    with pytest.raises(InputError, match="k0199"):  # comes in the stream, too, and is live
        pipelines.resume(run, state=tmp_path / "state")
    update(run, delete=ids_file(tmp_path / "last.csv", ["k0199"]), out=tmp_path / "again")
    ended = pipelines.resume(run, state=tmp_path / "again")
    assert ended.summary["refused"] == 0
    assert live_names(run) >= {"new a", gone[0], "k0199"}
    assert not set(gone[1:]) & live_names(run)
    assert "a new class" in ended.summary["classes"]
    assert audit_run(run).ok
    if name == "window":
        assert ended.summary["active"] == 60 + 2  # rows of an update are outside of the window
    assert [step["deletes"] for step in ended.summary["lineage"]] == [5, 1]
    seq = pq.read_table(run / "predictions")["seq"].to_pylist()
    assert len(set(seq)) == len(seq)


@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_a_later_deletion_of_a_deleted_example_is_refused(tmp_path: Path, on_error: str) -> None:
    pq.write_table(pa.table({"id": ["k0003", "k0004"], "after": [190, 190]}), tmp_path / "log.parquet")
    log = {"model": "deletion_log", "deletion_log": str(tmp_path / "log.parquet"), "on_error": on_error}
    run = stopped(tmp_path, log)
    update(run / "checkpoints", delete=ids_file(tmp_path / "gone.csv", ["k0003"]), out=tmp_path / "state")
    if on_error == "error":
        with pytest.raises(UpdateError, match=r"log.parquet, row 0.*k0003"):
            pipelines.resume(run, state=tmp_path / "state")
        update(run, insert=written(tmp_path / "new.parquet", table(3, 4)), out=tmp_path / "again")
        pipelines.resume(run, state=tmp_path / "again")  # where it had stopped: the id is live once more
    else:
        assert pipelines.resume(run, state=tmp_path / "state").summary["refused"] == 1
    assert not {"k0003", "k0004"} & live_names(run)
    assert audit_run(run).ok


def test_a_completed_run_takes_an_update_in(tmp_path: Path) -> None:
    run = stopped(tmp_path, {"model": "incremental"}, None)
    key = tmp_path / "key"
    key.write_text("0f" * 32)
    receipt = update(
        run,
        delete=ids_file(tmp_path / "gone.csv", ["k0003"]),
        out=tmp_path / "state",
        receipts=ReceiptFile(str(tmp_path / "receipts.jsonl"), str(key)),
    )
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(run), "--from", str(tmp_path / "state"), "--json"])
    assert not ended.value.code
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["updates"], summary["active"]) == ("completed", 201, 199)
    assert summary["model_digest"] == receipt.digest_after
    assert verify_receipts(tmp_path / "receipts.jsonl", run, key=str(key))["ok"]
    assert audit_run(run).ok
    assert "k0003" not in live_names(run)
    assert [path.name for path in (run / "checkpoints").iterdir() if path.name.isdecimal()] == ["201"]
    assert pipelines.resume(run).digest == receipt.digest_after


def test_a_checkpoint_without_the_update_is_refused(tmp_path: Path) -> None:
    """Whoever put it there, or if all are gone, and also if nothing but the log tells of the update."""
    run = stopped(tmp_path, {"model": "incremental"})
    shutil.copytree(run / "checkpoints", tmp_path / "before")
    update(run / "checkpoints", delete=ids_file(tmp_path / "gone.csv", ["k0003"]), out=tmp_path / "state")
    with injected(at(1)), pytest.raises(Gone):
        pipelines.resume(run, state=tmp_path / "state")
    shutil.rmtree(run / "checkpoints")
    for there in (False, True):
        if there:
            shutil.copytree(tmp_path / "before", run / "checkpoints")
        with refused("runs.updated_since", ConfigError):
            pipelines.resume(run)
    pipelines.resume(run, state=tmp_path / "state")
    assert "k0003" not in live_names(run)


def row_numbers(folder: Path, run: Path) -> Path:
    update(run / "checkpoints", insert=written(folder / "new.parquet", table(0, 1)), out=folder / "state")
    return folder / "state"


def deleted(folder: Path, run: Path) -> Path:
    gone = ids_file(folder / "gone.csv", sorted(live_names(run / "checkpoints"))[:1])
    update(run / "checkpoints", delete=gone, out=folder / "state")
    return folder / "state"


def of_an_estimator(folder: Path, run: Path) -> Path:
    tree = FullyDynamicTreeClassifier().fit([[0.0], [1.0]], [0, 1])
    tree.save(folder / "saved", with_examples=True)
    update(folder / "saved", delete=ids_file(folder / "gone.csv", [0]), out=folder / "state")
    return folder / "state"


REFUSED_CONTINUED = {
    "batches": ({"model": "batches", "steps": [90, 50, 100]}, {}, deleted, "streams.batches_after_update"),
    "row numbers": ({"model": "incremental"}, {"id": None}, row_numbers, "runs.running_numbers"),
    "no update": ({"model": "incremental"}, {}, lambda folder, run: run / "checkpoints", "runs.not_updated"),
    "another model": ({"model": "incremental"}, {}, of_an_estimator, "runs.unknown_state"),
}


@pytest.mark.parametrize("name", list(REFUSED_CONTINUED))
def test_states_that_a_run_cannot_take_in(tmp_path: Path, name: str) -> None:
    stream, source, made, problem = REFUSED_CONTINUED[name]
    run = stopped(tmp_path, stream, **source)
    state = made(tmp_path, run)
    there = {path: path.read_bytes() for path in run.rglob("*.json")}
    with refused(problem, RaydtError):
        pipelines.resume(run, state=state)
    assert {path: path.read_bytes() for path in run.rglob("*.json")} == there


def test_a_run_that_has_been_resumed_since_refuses(tmp_path: Path) -> None:
    run = stopped(tmp_path, {"model": "incremental"}, keep=20)  # with the checkpoint that the state is made from
    state = deleted(tmp_path, run)
    pipelines.resume(run)
    with refused("runs.later_tables", InputError, run=str(run)):
        pipelines.resume(run, state=state)


# -- update files ----------------------------------------------------------------------------------------------------
# ``update``: which files it takes, and how it refuses them.

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


def test_a_feature_may_be_missing_in_every_row_of_a_file(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("key,a,colour,y\nk0900,,,yes\n")
    (tmp_path / "new.jsonl").write_text('{"key": "k0900", "a": null, "colour": null, "y": "yes"}\n')
    rows = pa.table({"key": ["k0900"], "a": pa.nulls(1), "colour": pa.nulls(1), "y": ["yes"]})
    pq.write_table(rows, tmp_path / "new.parquet")
    files = [tmp_path / f"new.{kind}" for kind in ("csv", "jsonl", "parquet")]
    receipts = [update(shared / "run", insert=insert, dry_run=True) for insert in (*files, rows)]
    assert len({receipt.digest_after for receipt in receipts}) == 1
    pq.write_table(rows.append_column("op", pa.array(["insert"])), tmp_path / "log.parquet")
    logged = apply_changes(shared / "run", tmp_path / "log.parquet", dry_run=True).receipt
    assert logged is not None
    assert logged.digest_after == receipts[0].digest_after
    answers = []
    for file in files:
        predict_file(shared / "run", file, f"{file}.out.parquet")
        answers.append(pq.read_table(f"{file}.out.parquet"))
    assert answers[0].equals(answers[1])
    assert answers[0].equals(answers[2])


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


# -- update ids ------------------------------------------------------------------------------------------------------
# ``update`` and estimators on a state: ids, and that none is given twice.


@pytest.fixture
def saved(tmp_path: Path) -> tuple[FullyDynamicTreeClassifier, Path]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 2))
    tree = FullyDynamicTreeClassifier().partial_fit(pa.table({"u": X[:, 0], "v": X[:, 1]}), (X[:, 0] > 0) + 0, [0, 1])
    tree.save(tmp_path / "state", with_examples=True)
    return tree, tmp_path


def test_without_an_id_column_rows_go_on_being_numbered(tmp_path: Path) -> None:
    run = replayed(tmp_path, text_ids=False, id=None, features=["a", "colour"])
    pq.write_table(table(200, 203), tmp_path / "new.parquet")
    gone = ids_file(tmp_path / "gone.csv", [199])
    update(run, delete=gone, out=tmp_path / "second")
    receipt = update(tmp_path / "second", insert=tmp_path / "new.parquet", dry_run=True)
    assert receipt.inserted.tolist() == [200, 201, 202]


@pytest.mark.parametrize("permutation", [None, 3])
@pytest.mark.parametrize("key", [None, "key"])
@pytest.mark.parametrize("order", ["lifo", "fifo"])
def test_no_id_is_given_twice(tmp_path: Path, key: str | None, order: str, permutation: int | None) -> None:
    """Ids of examples deleted in the run are not given again, by ``update`` or by an estimator."""
    stream = {"model": "batches", "steps": [200, 20], "removal_order": order}
    source = {"id": key, "features": ["a", "colour"], "permutation": permutation}
    run = replayed(tmp_path, stream=stream, text_ids=False, **source)
    tree = load_model(run / "checkpoints" / "380")
    rows = table(200, 203).select(["a", "colour"])
    tree.partial_fit(rows, ["yes"] * 3)
    assert tree.row_ids_.tolist() == [200, 201, 202]
    tree.forget(tree.row_ids_)
    tree.save(tmp_path / "own", with_examples=True)
    assert load_folder(tmp_path / "own")[0]["columns"] == load_folder(run / "checkpoints" / "380")[0]["columns"]
    assert load_model(tmp_path / "own").partial_fit(rows, ["yes"] * 3).row_ids_.tolist() == [203, 204, 205]
    if key is None:
        pq.write_table(table(200, 203), tmp_path / "new.parquet")
        for state, first in ((run, 200), (tmp_path / "own", 203)):
            receipt = update(state, insert=tmp_path / "new.parquet", dry_run=True)
            assert receipt.inserted.tolist() == [first, first + 1, first + 2]


@pytest.mark.parametrize("next_id", [None, 119, -1, "200"])
def test_a_state_that_cannot_number_new_rows_is_refused(tmp_path: Path, next_id: Any) -> None:
    FullyDynamicTreeClassifier().fit(np.arange(240.0).reshape(120, 2), [0, 1] * 60).save(tmp_path / "s", True)
    meta, components = load_folder(tmp_path / "s")
    assert meta["next_id"] == 120
    kept = {key: value for key, value in meta.items() if key not in ("kind", "next_id")}
    save_folder(tmp_path / "t", "state", kept if next_id is None else {**kept, "next_id": next_id}, components)
    with refused("models.unfit", ModelFileError, kind="state"):
        load_model(tmp_path / "t")


def test_an_estimator_knows_the_text_ids_of_a_run(shared: Path, tmp_path: Path) -> None:
    tree = load_model(shared / "run" / "checkpoints" / "200")
    assert tree.row_ids_.tolist() == tree.live_ids_.tolist() == [f"k{i:04d}" for i in range(200)]
    with refused("estimators.other_type", InputError, value="7", known="text"):
        tree.forget([7])  # is the number of a text id, not the id itself
    assert tree.forget(["k0007", "k0007"]).ids.tolist() == ["k0007"]
    rows = table(200, 202)
    tree.partial_fit(rows.select(["a", "colour"]), ["yes", "not yes"], ids=rows["key"])
    tree.save(tmp_path / "own", with_examples=True)
    gone = ids_file(tmp_path / "gone.csv", ["k0200", "k0009"])
    receipt = update(tmp_path / "own", delete=gone, out=tmp_path / "second")
    assert receipt.digest_after == tree.forget(["k0200", "k0009"]).digest_after
    assert load_model(tmp_path / "second").live_ids_.tolist() == tree.live_ids_.tolist()
    assert b"k0007" not in b"".join(file.read_bytes() for file in (tmp_path / "own").rglob("*") if file.is_file())
    tree.save(tmp_path / "model")
    tree.fit(table(0, 20).select(["a", "colour"]), ["yes", "no"] * 10).save(tmp_path / "new", with_examples=True)
    assert load_model(tmp_path / "new").row_ids_.tolist() == list(range(20))


def test_an_estimators_state_takes_running_ids(saved: tuple[FullyDynamicTreeClassifier, Path]) -> None:
    tree, folder = saved
    new = pa.table({"target": [1, 0], "u": [0.5, -0.5], "v": [0.0, 1.0]})
    pq.write_table(new, folder / "new.parquet")
    gone = ids_file(folder / "gone.csv", [119, 4])
    with refused("updates.no_column", column="y"):
        update(folder / "state", insert=folder / "new.parquet", dry_run=True)
    receipt = update(
        folder / "state", insert=folder / "new.parquet", delete=gone, out=folder / "second", label="target"
    )
    assert receipt.inserted.tolist() == [120, 121]
    tree.forget([119, 4])
    tree.partial_fit(new.select(["u", "v"]), [1, 0])
    assert receipt.digest_after == tree.digest() == load_model(folder / "second").digest()
    # the state remembers the label column, and which numbers were used
    assert update(folder / "second", insert=folder / "new.parquet", dry_run=True).inserted.tolist() == [122, 123]
    pq.write_table(new.set_column(0, "target", pa.array([1, 2])), folder / "new.parquet")
    with refused("updates.unknown_label", UpdateError, row=1, column="target", label="2"):
        update(folder / "second", insert=folder / "new.parquet", dry_run=True)


def test_ids_of_another_kind_than_the_states(saved: tuple[FullyDynamicTreeClassifier, Path]) -> None:
    _, folder = saved
    for text, name, parameters in (
        ("id\n1.5\n", "not_integer", {"value": "'1.5'", "owner": "state", "row": 0, "column": "id"}),
        ("id\ntrue\n", "other_ids", {"found": "truth values", "wanted": "integers", "column": "id"}),
        ("id\nx\n", "not_integer", {"value": "'x'", "owner": "state", "row": 0, "column": "id"}),
        ("id,foo\n,3\n", "no_id", {"row": 0, "column": "id"}),
    ):
        (folder / "gone.csv").write_text(text)
        with refused(f"streams.{name}", InputError, **parameters) as caught:
            update(folder / "state", delete=folder / "gone.csv", dry_run=True)
        assert caught.value.remedy == "Correct the list of ids"


def test_ids_beyond_64_bits_are_refused(saved: tuple[FullyDynamicTreeClassifier, Path]) -> None:
    _, folder = saved
    pq.write_table(pa.table({"id": pa.array([1, 2**64 - 1], pa.uint64())}), folder / "gone.parquet")
    with refused("streams.wide_id", row=1, column="id"):
        update(folder / "state", delete=folder / "gone.parquet", dry_run=True)


def test_a_state_of_an_estimator_knows_the_names_of_the_series(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(40.0), "who": [f"p{i % 8}" for i in range(40)], "w": 1.0 + np.arange(40) % 3})
    frame["sold"] = np.where(frame["a"] > 20, "yes", "no")
    frame.index = pd.Index([f"k{i}" for i in range(40)], name="key")
    model = FullyDynamicTreeClassifier()
    model.fit(frame[["a"]], frame["sold"], frame["w"], subjects=frame["who"]).save(tmp_path / "one", with_examples=True)
    new = frame.iloc[:3].assign(w=7.0).rename(index=lambda key: f"{key}b")
    receipt = update(tmp_path / "one", delete={"who": ["p3"]}, insert=new, out=tmp_path / "two")
    assert receipt.ids.tolist() == ["k3", "k11", "k19", "k27", "k35"]
    (tmp_path / "log.csv").write_text("op,key,a,who,w,sold\nupdate,k5,5,p5,2.5,no\n")
    apply_changes(tmp_path / "two", tmp_path / "log.csv", out=tmp_path / "states")
    again = load_model(tmp_path / "states" / "49")
    weight = dict(zip(again.live_ids_.tolist(), again._store().weight[again._store().in_order_of_birth()], strict=True))
    assert [weight[key] / UNIT for key in ("k0", "k1", "k1b", "k5")] == [1.0, 2.0, 7.0, 2.5]
    assert again.forget(subjects=["p1"]).ids.tolist() == ["k1", "k9", "k17", "k25", "k33", "k1b"]


def test_a_series_that_is_called_as_a_feature_names_no_column(tmp_path: Path) -> None:
    X, y = np.arange(20.0)[:, None], pd.Series(np.arange(20) % 2, name="x0")
    FullyDynamicTreeClassifier().fit(X, y).save(tmp_path / "one", with_examples=True)
    new = pd.DataFrame({"x0": [3.0], "y": [1]})
    assert update(tmp_path / "one", insert=new, dry_run=True).active == 21
