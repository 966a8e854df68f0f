"""A purge: what it erases, and in which places it looks."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow.dataset import dataset

import pipelines
from pipelines.auditing import audit_state, verify_receipts
from pipelines.cli import cli
from pipelines.purging import erasure, purge, runs
from pipelines.purging.erasure import Erasure
from pipelines.purging.runs import RunPurge, StatePurge, Work
from pipelines.receipts import ReceiptFile
from pipelines.run_folder import RunFolder
from pipelines.running.records import Parts
from pipelines.updating import update
from raydt import FullyDynamicTreeClassifier, load_model
from raydt.errors import ConfigError, InputError, UpdateError
from raydt.folders import folder as lock
from raydt.folders.folder import Folder
from raydt.messages import message
from tests import canaries as strangers
from tests.canaries import canary, hits
from tests.refusals import refused
from tests.small_tables import SCHEMA, derived, examples, written
from tests.unit.updatable import JOB

# -- purge -----------------------------------------------------------------------------------------------------------
# What purge does with each kind of file: one that leaves it is caught by the search for canaries.


@pytest.fixture
def run(tmp_path: Path, steady_checkpoints: None) -> Path:
    """A finished run with canaries in every kind of file; checkpoints are waited for, so that none is left out."""
    rows = [{**derived(one), **one} for one in examples(60)]
    row = {**rows[0], **canary()}
    words = [*rows[:40], row, *rows[40:], row, {**row, "op": "delete"}]
    written(tmp_path / "changes.arrow", pa.Table.from_pylist(words, SCHEMA))
    config: dict[str, Any] = {
        "source": {
            "kind": "arrow",
            "path": str(tmp_path / "changes.arrow"),
            "op": "op",
            "id": "id",
            "label": "y_of_three",
        }
        | {"features": ["a", "b", "c", "d"]},
        "stream": {"model": "changelog", "on_error": "skip"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "batch_size": 8},  # a checkpoint between insertion and deletion
        "checkpoint": {"every_updates": 8, "every_seconds": None},
        "output": {"predictions": True},
    }
    folder = Path(pipelines.replay(config, tmp_path / "run").path)
    with (folder / "log.jsonl").open("a") as log:
        log.write(json.dumps({"level": "WARNING", "event": None, "message": f"refused {row['id']}"}) + "\n")
    (folder / "metrics" / ".part-00009.parquet").write_bytes(row["id"].encode())
    return folder


def kinds(run: Path) -> set[str]:
    return {name.split("/")[0] for name in hits(run)}


def test_every_kind_of_file_holds_one_before_and_none_after(run: Path) -> None:
    everywhere = {
        "checkpoints",
        "predictions",
        "quarantine",
        "model",
        "summary.json",
        "report.html",
        "log.jsonl",
        "metrics",
    }
    assert kinds(run) == everywhere
    before = contents(run)
    plan = purge(run, dry_run=True)
    assert contents(run) == before
    done = purge(run)
    assert hits(run) == {}
    after = contents(run)
    assert done == {**plan, "dry_run": False}
    assert done["replaced"] == sorted(before.keys() - after.keys())
    assert done["rewritten"] == sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    assert {name.split("/")[0] for name in (*plan["replaced"], *plan["rewritten"])} == everywhere
    assert done["digest"] == json.loads((run / "summary.json").read_text())["model_digest"]
    assert (run / "report.html").exists()
    assert not (run / "quarantine").exists()
    written = receipt(run)[-1]
    assert (written["status"], written["digest"], written["ids"]) == ("completed", done["digest"], None)
    assert (written["replaced"], written["rewritten"]) == (done["replaced"], done["rewritten"])
    assert len(written["out_of_reach"]) == 6


def test_a_purge_names_states_beside_the_run_in_which_its_examples_are_deleted(run: Path) -> None:
    """Of a chain of updates, those that the run has not taken in are counted."""
    place, live = run.parent, dataset(run.parent / "changes.arrow", format="arrow").to_table()["id"].to_pylist()[:3]
    for one, (of, out) in zip(live, (("run", "a"), ("a", "b"), ("b", "c")), strict=True):
        (place / "gone.csv").write_text(f"id\n{one}\n")
        update(place / of, delete=place / "gone.csv", out=place / out)
    FullyDynamicTreeClassifier().fit([[0.0], [1.0]], [0, 1]).save(place / "of another", with_examples=True)

    for told, taken in (({"a": 1, "b": 2, "c": 3}, "a"), ({"b": 1, "c": 2}, "b")):
        counts = {name: f"{n} deletion{'s' * (n > 1)}" for name, n in told.items()}
        said = [
            message("purges.deleted_in_state", state=str(place / name), run=str(run), deletions=one)
            for name, one in counts.items()
        ]
        found = [str(one) for one in purge(run, dry_run=True)["out_of_reach"] if str(place / "run") in str(one)]
        assert found == [str(one) for one in said]
        pipelines.resume(run, state=place / taken)


def contents(run: Path) -> dict[str, bytes]:
    """All files of a run but for the receipt, by name."""
    files = {file.relative_to(run).as_posix(): file.read_bytes() for file in run.rglob("*") if file.is_file()}
    return {name: data for name, data in files.items() if name != "purge.json"}


def test_a_second_purge_has_nothing_to_do_and_says_so(run: Path, tmp_path: Path) -> None:
    purge(run)
    before, entries = contents(run), receipt(run)
    assert "nothing to do" in CliRunner().invoke(cli, ["purge", str(run)]).output
    (tmp_path / "ids.csv").write_text(f"id\n{canary()['id']}\n")
    result = CliRunner().invoke(cli, ["purge", str(run), "--ids", str(tmp_path / "ids.csv"), "--dry-run"])
    assert message("commands.no_ids") in result.output
    assert (contents(run), receipt(run)) == (before, entries)
    # What has come since is found, alone.
    (run / "report.html").write_text(canary()["id"])
    assert (purge(run)["replaced"], purge(run)["rewritten"]) == ([], [])
    assert receipt(run)[-1]["rewritten"] == ["report.html"]
    assert contents(run) == before


def with_a_log(folder: Path, labels: list[Any], **sections: Any) -> Path:
    """A run over 20 rows whose deletion log names two of them."""
    rows = {"id": list(range(20)), "a": [float(i % 7) for i in range(20)], "y": labels * 10}
    written(folder / "rows.arrow", pa.table(rows))
    (folder / "gone.csv").write_text("id,after\n3,9\n8,12\n")
    config: dict[str, Any] = {
        "source": {"kind": "arrow", "path": str(folder / "rows.arrow"), "id": "id", "label": "y"},
        "stream": {"model": "deletion_log", "deletion_log": str(folder / "gone.csv")},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "batch_size": 4},
        "output": {"predictions": True, "report": False},
    }
    return Path(pipelines.replay(config | sections, folder / "run").path)


def test_checkpoints_elsewhere_are_named_by_their_place(tmp_path: Path) -> None:
    place = {"every_updates": 4, "every_seconds": None, "path": str(tmp_path / "states")}
    run = with_a_log(tmp_path, ["n", "p"], checkpoint=place)
    before = contents(tmp_path / "states")
    plan, done = purge(run, dry_run=True), purge(run)
    after = contents(tmp_path / "states")
    assert done == {**plan, "dry_run": False}
    gone = [str(tmp_path / "states" / name) for name in sorted(before.keys() - after.keys())]
    assert gone
    assert [name for name in done["replaced"] if name.startswith("/")] == gone
    assert purge(run)["replaced"] == []


def receipt(folder: Path) -> list[dict[str, Any]]:
    """Entries of the receipt in a folder."""
    entries: list[dict[str, Any]] = json.loads((folder / "purge.json").read_text())["purges"]
    return entries


def leave(*_: Any, **__: Any) -> None:
    """Do nothing."""


ERASED_STREAM = erasure.erased_stream  # the name in the module is replaced below


#: One thing that a purge does, and what is done in its place.
Change = tuple[Any, str, Any]


def kept(left: Callable[[str], bool]) -> list[Change]:
    """Leave the files of some names where they are removed."""
    remove = Folder.delete
    return [(Folder, "delete", lambda self, name, **options: None if left(name) else remove(self, name, **options))]


def rewritten_but(table: str) -> Change:
    """Leave the rows of a table where tables are rewritten."""
    real = Parts.rewrite
    return Parts, "rewrite", lambda self, choose: None if self.location.endswith(table) else real(self, choose)


def all_text_ids(saved: Any, stream: Any, scope: Any) -> Any:
    """Leave the text ids, and only these."""
    ids = {name: stream[name] for name in ("ids", "id_codes", "id_died")}
    return {**ERASED_STREAM(saved, stream, scope), **ids}


#: What is left, and how names of files begin that then hold a canary.
MUTANTS: dict[str, tuple[list[Change], set[str]]] = {
    "dictionaries": ([(erasure, "erased_stream", lambda saved, stream, scope: stream)], {"checkpoints/"}),
    "text ids": ([(erasure, "erased_stream", all_text_ids)], {"checkpoints/"}),
    "labels": ([(erasure, "_erased_labels", lambda saved, labels: labels)], {"checkpoints/"}),
    "categories": ([(erasure, "erased_categories", lambda saved, values: values)], {"checkpoints/", "model/"}),
    "classes": ([(erasure, "erased_classes", lambda saved: saved.classes)], {"checkpoints/", "model/", "summary.json"}),
    "values of live codes": ([(erasure, "live_categories", lambda saved: {"d": set(range(9))})], {"checkpoints/"}),
    "predictions": ([(Erasure, "predictions", lambda self, batch: batch)], {"predictions/"}),
    "quarantine": (
        [(RunFolder, "discard_table", leave), rewritten_but("quarantine")],
        {"quarantine/", "report.html"},
    ),
    "model": ([(RunPurge, "_write_model", leave)], {"model/"}),
    "texts": ([(RunPurge, "_write_texts", leave)], {"summary.json", "report.html", "log.jsonl"}),
    "messages": ([(runs, "_says_nothing", lambda line: True)], {"log.jsonl"}),
    "report": ([*kept(lambda name: name == "report.html"), (runs, "report_of", leave)], {"report.html"}),
    "temporary files": ([(RunPurge, "_sweep", leave)], {"metrics/."}),
    "checkpoints": (kept(lambda name: name.endswith("/manifest.json")), {"checkpoints/"}),
    "segments": (kept(lambda name: name.startswith("rows/")), {"checkpoints/rows/"}),
}


def changed(changes: list[Change], monkeypatch: pytest.MonkeyPatch) -> None:
    for change in changes:
        monkeypatch.setattr(*change)


@pytest.mark.turns(5)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_purge_that_leaves_a_kind_of_file_is_caught(run: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, left = MUTANTS[name]
    with monkeypatch.context() as patched:
        changed(changes, patched)
        purge(run)
    assert {one for one in left if any(file.startswith(one) for file in hits(run))} == left
    purge(run)
    assert hits(run) == {}


#: The same of a state on its own.
STATE_MUTANTS: dict[str, tuple[list[Change], str]] = {
    "dictionaries": ([(erasure, "erased_stream", lambda saved, stream, scope: stream)], "stream."),
    "categories": ([(erasure, "erased_categories", lambda saved, values: values)], "manifest.json"),
    "classes": ([(erasure, "erased_classes", lambda saved: saved.classes)], "manifest.json"),
    "temporary files": (kept(lambda name: name.startswith(".")), ".coordinator"),
}


@pytest.mark.parametrize("name", STATE_MUTANTS)
def test_a_purge_of_a_state_that_leaves_something_is_caught(
    run: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone.csv").write_text(f"id\n{examples(60)[3]['id']}\n")
    state = tmp_path / "state"
    pipelines.update(run, delete=tmp_path / "gone.csv", out=state)
    (state / f".coordinator.{7:016x}.npz.{7:032x}").write_bytes(canary()["id"].encode())
    changes, left = STATE_MUTANTS[name]
    with monkeypatch.context() as patched:
        changed(changes, patched)
        purge(state)
    assert [file for file in hits(state) if file.startswith(left)]
    purge(state)
    assert hits(state) == {}


def test_a_run_that_is_not_complete_is_refused(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "status": "failed"}))
    with refused("purges.not_completed", status="failed"):
        purge(run)
    (run / "summary.json").write_text(json.dumps({**summary, "model_digest": "sha256:0"}))
    with refused("purges.other_digest"):
        purge(run)


def test_a_purge_that_was_killed_leaves_a_receipt_that_is_only_begun(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = RunPurge._write_texts

    def killed(self: Any, folder: Any) -> None:
        if folder is self.folder:
            raise KeyboardInterrupt
        write(self, folder)

    with monkeypatch.context() as patched:
        patched.setattr(RunPurge, "_write_texts", killed)
        with pytest.raises(KeyboardInterrupt):
            purge(run)
    (begun,) = receipt(run)
    assert begun["status"] == "begun"
    # It is completed whatever the age, and names what the first attempt has removed.
    done = purge(run, older_than="7d")
    (completed,) = receipt(run)
    assert hits(run) == {}
    assert completed["status"] == "completed"
    assert set(begun["replaced"]) <= set(completed["replaced"]) | set(completed["rewritten"])
    assert done["young"] is False


def test_only_the_ids_given_are_erased(run: Path, tmp_path: Path) -> None:
    """A second deleted example keeps its prediction and its place in the dictionary."""
    (tmp_path / "live.csv").write_text(f"id\n{canary()['id']}\n{examples(60)[3]['id']}\n")
    with refused("purges.live_id", UpdateError, file=str(tmp_path / "live.csv"), row=1, column="id"):
        purge(run, ids=tmp_path / "live.csv")
    (tmp_path / "nobody.csv").write_text("id\nnobody\n")
    purge(run, ids=tmp_path / "nobody.csv")
    assert {"checkpoints", "predictions"} <= kinds(run)
    (tmp_path / "ids.csv").write_text(f"id\n{canary()['id']}\n")
    assert purge(run, ids=tmp_path / "ids.csv")["ids"] == 1
    assert hits(run) == {}
    assert [entry["ids"] for entry in receipt(run)] == [1, 1]


def test_a_purge_is_an_entry_of_the_chain(run: Path, tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("0f" * 32)
    (tmp_path / "ids.csv").write_text(f"id\n{canary()['id']}\n")
    chain = tmp_path / "receipts.jsonl"
    done = purge(run, ids=tmp_path / "ids.csv", receipts=ReceiptFile(str(chain), str(tmp_path / "key.txt")))
    found = verify_receipts(chain, run, key=str(tmp_path / "key.txt"))
    assert (found["ok"], found["receipts"], found["purges"], found["gaps"]) == (True, 1, 1, [])
    (entry,) = map(json.loads, chain.read_text().splitlines())
    assert entry["digest_before"] == entry["digest_after"] == done["digest"]
    assert entry["purged"]["replaced"] == done["replaced"]
    assert [len(one) for one in entry["purged"]["ids"]] == [64]
    assert canary()["id"] not in chain.read_text()


def test_a_purge_of_the_run_that_was_updated_leaves_the_chain_whole(run: Path, tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("0f" * 32)
    file = ReceiptFile(str(tmp_path / "receipts.jsonl"), str(tmp_path / "key.txt"))
    for place, gone in enumerate((3, 5)):
        (tmp_path / "gone.csv").write_text(f"id\n{examples(60)[gone]['id']}\n")
        before = tmp_path / str(place - 1) if place else run
        pipelines.update(before, delete=tmp_path / "gone.csv", out=tmp_path / str(place), receipts=file)
    purge(run, receipts=file)
    purge(tmp_path / "0", receipts=file)
    found = verify_receipts(file.path, tmp_path / "1", key=file.key)
    assert (found["ok"], found["receipts"], found["gaps"], found["equal"]) == (True, 4, [], True)
    assert not verify_receipts(file.path, run)["ok"]


def test_a_state_on_its_own_is_purged(run: Path, tmp_path: Path) -> None:
    (tmp_path / "gone.csv").write_text(f"id\n{examples(60)[3]['id']}\n")
    state = tmp_path / "state"
    digest = pipelines.update(run, delete=tmp_path / "gone.csv", out=state).digest_after
    stream = next(state.glob("stream.*.json")).read_text()
    assert canary()["id"] not in stream  # which the run has deleted, not the update
    assert examples(60)[5]["id"] in stream
    (state / f".coordinator.{7:016x}.npz.{7:032x}").write_bytes(canary()["id"].encode())
    assert hits(state)
    done = purge(state)
    assert hits(state) == {}
    assert done["digest"] == digest
    assert audit_state(state).ok
    assert receipt(state)[-1]["rewritten"] == ["manifest.json"]
    (tmp_path / "next.csv").write_text(f"id\n{examples(60)[5]['id']}\n")
    assert pipelines.update(state, delete=tmp_path / "next.csv", out=tmp_path / "third").digest_before == done["digest"]
    with refused("purges.checkpoint"):
        purge(max((run / "checkpoints").glob("[0-9]*")))
    with pytest.raises(InputError, match="without training rows"):
        purge(run / "model")


def test_an_id_that_an_unfinished_warm_up_has_inserted_is_purged_once_an_update_has_deleted_it(tmp_path: Path) -> None:
    row = {**derived(examples(1)[0]), **examples(1)[0], **canary()}
    words = [row, *({**derived(one), **one} for one in examples(20)[1:])]
    path = written(tmp_path / "changes.arrow", pa.Table.from_pylist(words, SCHEMA))
    source = {"kind": "arrow", "path": str(path), "op": "op", "id": "id", "label": "y_of_three", "features": ["a", "b"]}
    config: dict[str, Any] = {
        "source": source,
        "stream": {"model": "changelog", "on_error": "skip", "warmup": 50},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    run = Path(pipelines.replay(config, tmp_path / "run").path)
    (tmp_path / "ids.csv").write_text(f"id\n{row['id']}\n")
    update(run, delete=str(tmp_path / "ids.csv"), out=tmp_path / "state")
    pipelines.resume(run, state=tmp_path / "state")
    purge(run)
    assert not hits(run)


def test_the_state_of_an_estimator_is_purged(tmp_path: Path) -> None:
    X = pa.table({"colour": ["red", "green", canary()["d"], "red"], "size": [1.0, 2.0, 3.0, 4.0]})
    model = FullyDynamicTreeClassifier()
    model.fit(X, ["a", "b", canary()["y_of_three"], "b"], ids=[1, 2, 3, 4])
    model.forget([3])
    model.save(tmp_path / "state", with_examples=True)
    assert hits(tmp_path / "state")
    assert purge(tmp_path / "state")["digest"] == model.digest()
    assert hits(tmp_path / "state") == {}
    again = load_model(tmp_path / "state")
    assert again.predict(X.slice(3)).tolist() == model.predict(X.slice(3)).tolist()
    again.partial_fit(pa.table({"colour": ["blue"], "size": [4.0]}), ["a"], ids=[9])


@pytest.mark.parametrize("labels", [[True, False], [1, 2], [0.5, 2.0]], ids=["bool", "int", "float"])
def test_labels_that_are_no_text_stay(labels: list[Any], tmp_path: Path) -> None:
    """Predictions and summary hold labels as text: those that live examples have are not touched."""
    run = with_a_log(tmp_path, labels)
    before = json.loads((run / "summary.json").read_text())
    purge(run)
    assert json.loads((run / "summary.json").read_text())["classes"] == before["classes"] == [*map(str, labels)]
    kept = dataset(run / "predictions").to_table().to_pylist()
    assert {row["id"]: row["truth"] for row in kept} == {i: str(labels[i % 2]) for i in range(20) if i not in (3, 8)}


# -- purge places ----------------------------------------------------------------------------------------------------
# Purges of folders that are not as raydt has left them: links, files of others, disks and clocks; and siblings.


def replayed(folder: Path, **checkpoint: Any) -> Path:
    """A run whose window deletes."""
    stream = {"model": "sliding_window", "window": 100}
    config = {**JOB, "stream": stream, "checkpoint": {"every_updates": 200, "every_seconds": None, **checkpoint}}
    return Path(pipelines.replay({**config, "output": {"predictions": True, "report": False}}, folder).path)


def state(folder: Path) -> Path:
    """A state of a model that has deleted an example."""
    model = FullyDynamicTreeClassifier().fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    model.forget([1])
    model.save(folder, with_examples=True)
    return folder


def contents_places(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name", ["checkpoints", "predictions", "model", "summary.json", "log.jsonl", ".merging.parquet"]
)
def test_a_link_in_the_place_of_what_a_run_has_is_refused(name: str, tmp_path: Path) -> None:
    run = replayed(tmp_path / "run")
    place = run / "predictions" / name if name.startswith(".") else run / name
    away = tmp_path / "away"
    if place.exists():
        place.rename(away)
    else:
        away.touch()
    place.symlink_to(away)
    before = contents_places(tmp_path)
    with refused("purges.link", InputError) as caught:
        purge(run)
    assert Path(caught.value.file).name == name
    assert contents_places(tmp_path) == before


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    run = replayed(tmp_path / "run")
    (tmp_path / "latest").symlink_to(run)
    assert purge(tmp_path / "latest")["rewritten"]


def test_files_of_others_beside_checkpoints_elsewhere_and_in_a_state_are_left_alone(tmp_path: Path) -> None:
    run, saved = replayed(tmp_path / "run", path=str(tmp_path / "states")), state(tmp_path / "state")
    for place, folder in ((run, tmp_path / "states"), (saved, saved)):
        foreign = strangers.put(folder, tmp_path / f"outside {folder.name}", random.Random(str(folder)))
        before = strangers.seen(folder, foreign)
        names = foreign if place == folder else [str(folder / name) for name in foreign]
        assert purge(place)["left_alone"] == sorted(names)
        assert strangers.seen(folder, foreign) == before
    shown = CliRunner().invoke(cli, ["purge", str(saved)]).output
    assert message("commands.left_alone") in shown
    assert CliRunner().invoke(cli, ["purge", str(saved), "--json"], standalone_mode=False).return_value == 0


def test_a_run_takes_away_nothing_of_others(tmp_path: Path) -> None:
    """Not with its checkpoints, not at a resume, and not where it is replaced."""
    run = replayed(tmp_path / "run", keep=1)
    (run / "summary.json").unlink()  # as if it had been killed at the end
    foreign = strangers.put(run, tmp_path / "outside", random.Random(1))
    before = strangers.seen(run, foreign), contents_places(tmp_path / "outside")
    pipelines.resume(run)
    assert strangers.seen(run, foreign) == before[0]
    RunFolder.create(run, overwrite=True)
    assert (strangers.seen(run, foreign), contents_places(tmp_path / "outside")) == before
    assert sorted(Folder(run).files()) == foreign


def of_storage(*_: Any, **__: Any) -> None:
    """A disk that is mounted read-only."""
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


@pytest.mark.parametrize("make", [replayed, state])
def test_a_dry_run_needs_no_disk_to_write_to(
    make: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "it")
    plan = purge(folder, dry_run=True)
    with monkeypatch.context() as patch:
        for name in ("_open_to_write", "_rename", "_delete_file", "_delete_folder", "_make"):
            patch.setattr(Folder, name, of_storage)
        patch.setattr(lock.FileLock, "acquire", of_storage)
        patch.setattr(lock.Path, "write_text", of_storage)
        assert purge(folder, dry_run=True) == plan
        with pytest.raises(Exception, match="Read-only file system"):
            purge(folder)


def set_clock(folder: Path, time: datetime) -> None:
    """Have a run or a state be as old as if it had been written at a time."""
    if (folder / "summary.json").exists():
        summary = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps({**summary, "ended": time.isoformat()}))
    else:
        os.utime(folder / "manifest.json", (time.timestamp(), time.timestamp()))


@pytest.mark.parametrize(("make", "work"), [(replayed, RunPurge), (state, StatePurge)])
def test_a_time_in_the_future_is_told(make: Callable[[Path], Path], work: type[Work], tmp_path: Path) -> None:
    folder = make(tmp_path / "it")
    (folder / ".summary.json.0").touch()
    now = datetime.now(timezone.utc)
    set_clock(folder, now + timedelta(days=400))
    before = contents_places(folder)
    for dry_run in (True, False):
        with refused("purges.clocks", clock=work.clock):
            purge(folder, older_than="7d", dry_run=dry_run)
    assert contents_places(folder) == before
    set_clock(folder, now + timedelta(seconds=120))  # by which clocks of two machines differ
    before = contents_places(folder)
    assert purge(folder, older_than="7d")["young"]
    assert contents_places(folder) == before
    set_clock(folder, now - timedelta(days=8))
    assert not purge(folder, older_than="7d")["young"]
    set_clock(folder, now + timedelta(days=400))
    assert not purge(folder)["young"]
    with refused("purges.older_than", ConfigError, given="soon", problem=message("streams.time_or_number")):
        purge(folder, older_than="soon")


def test_an_end_that_is_no_time_is_one_error(tmp_path: Path) -> None:
    run = replayed(tmp_path / "run")
    for ended in (None, 7, "yesterday"):
        summary = json.loads((run / "summary.json").read_text())
        (run / "summary.json").write_text(json.dumps({**summary, "ended": ended}))
        with refused("runs.damaged_summary", InputError):
            purge(run)
