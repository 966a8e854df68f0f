"""``update --changes``: spellings, refusals that leave nothing behind, and each file once, whatever is killed."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run, audit_state, verify_receipts
from pipelines.display import changes_lines
from pipelines.purging import purge
from pipelines.receipts import ReceiptFile
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import find_state
from pipelines.updating import apply_changes, update
from raydt import FullyDynamicTreeClassifier
from raydt.errors import ConfigError, InputError, RaydtError
from raydt.folders.folder import locked
from raydt.sessions.receipt_chain import read_chain
from tests.cases import open_state
from tests.refusals import refused
from tests.small_tables import ROW, SPELLINGS, Change
from tests.small_tables import spelled_changelogs as spelled

HERE = Path(__file__).parent


def rows(begin: int, end: int) -> list[dict[str, Any]]:
    """Rows with the columns of :data:`tests.small_tables.ROW`."""
    draw = random.Random(begin)
    found = []
    for i in range(begin, end):
        a = round(draw.random(), 3)
        found.append({"id": i, "a": a, "s": draw.choice("pq"), "y": "high" if a > 0.5 else "low"})
    return found


def changes(seed: int = 0) -> list[Change]:
    """Inserts, updates and deletes of the examples of :func:`trained`."""
    draw, live, found = random.Random(seed), list(range(60)), list[Change]()
    for row in rows(1000, 1040):
        kind = draw.choice("iud")
        key = row["id"] if kind == "i" else draw.choice(live)
        found.append((kind, key, row["a"], row["s"], row["y"]))
        if kind == "i":
            live.append(key)
        elif kind == "d":
            live.remove(key)
    return found


def trained(folder: Path, **learner: Any) -> Path:
    """A training run."""
    pq.write_table(pa.Table.from_pylist(rows(0, 60), pa.schema(list(ROW))), folder / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(folder / "rows.parquet"), "id": "id"},
        "learner": {"kind": "fudyadt", **learner},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    return Path(pipelines.train(config, folder / "run").path)


def json_lines(table: pa.Table, file: Path) -> Path:
    """Write a table as JSON Lines, without the keys that are null; a row without a key is a tombstone."""
    lines = [json.dumps({k: v for k, v in row.items() if v is not None and k != "source"}) for row in table.to_pylist()]
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    trained(folder)
    return folder


def lines(*values: dict[str, Any] | str) -> str:
    return "\n".join(value if isinstance(value, str) else json.dumps(value) for value in values) + "\n"


@pytest.mark.turns(4)
@pytest.mark.parametrize(("spelling", "kind"), [*product(SPELLINGS, ["parquet", "jsonl"]), ("envelope", "wrapped")])
def test_every_spelling_is_read(shared: Path, tmp_path: Path, spelling: str, kind: str) -> None:
    table = spelled(changes(), spelling)
    if kind != "parquet":
        file = json_lines(table, tmp_path / "changes.jsonl")
        if kind == "wrapped":
            wrapped = [{"schema": {"name": "e"}, "payload": json.loads(one)} for one in file.read_text().split("\n")]
            file.write_text(lines(*wrapped))
    else:
        file = tmp_path / "changes.parquet"
        pq.write_table(table, file)
    done = apply_changes(shared / "run", file, out=tmp_path / "states")
    plain = tmp_path / "plain.csv"
    pacsv.write_csv(spelled(changes(), "plain"), plain)
    assert done.receipt.digest_after == apply_changes(shared / "run", plain, dry_run=True).receipt.digest_after
    counted = {k: sum(change[0] == k for change in changes()) for k in "iud"}
    assert done.updates == 40
    assert done.counts["inserts"] == counted["i"] + counted["u"]
    assert (done.counts["deletes"], done.counts["replaced"]) == (counted["d"] + counted["u"], counted["u"])


def test_a_column_that_has_no_values_any_more_is_told(shared: Path, tmp_path: Path, caplog: Any) -> None:
    new = [{"op": "c", **{("a2" if name == "a" else name): one for name, one in row.items()}} for row in rows(200, 300)]
    (tmp_path / "renamed.jsonl").write_text(lines(*new))
    apply_changes(shared / "run", tmp_path / "renamed.jsonl", dry_run=True)
    told = [one for one in caplog.records if getattr(one, "event", "") == "lost_column"]
    assert ["'a'" in one.getMessage() for one in told] == [True]


def test_only_deletions_as_json(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "gone.jsonl").write_text(lines({"op": "d", "id": 3}, {"op": "d", "id": 4}))
    envelope = lines({"op": "d", "before": {"id": 3}, "after": None}, {"op": "d", "before": {"id": 4}})
    (tmp_path / "events.jsonl").write_text(envelope)
    one = apply_changes(shared / "run", tmp_path / "gone.jsonl", dry_run=True).receipt
    assert one.ids.tolist() == [3, 4]
    by_value = [dict(row, op="delete_value") for row in rows(0, 60)[3:5]]
    (tmp_path / "by_value.jsonl").write_text(lines(*by_value))
    for name in ("events.jsonl", "by_value.jsonl"):
        other = apply_changes(shared / "run", tmp_path / name, dry_run=True).receipt
        assert (other.ids.tolist(), other.digest_after) == ([3, 4], one.digest_after)
        assert other.deletions["label"].tolist() == one.deletions["label"].tolist()


REFUSED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "live id": (lines({"op": "c", **rows(7, 8)[0]}), "runs.refused_id", {"row": 0}),
    "unknown id": (lines({"op": "d", "id": 3}, {"op": "d", "id": 999}), "runs.refused_id", {"row": 1}),
    "truncate": (lines({"op": "t", "id": 3}), "rows.truncate", {"row": 0, "column": "op"}),
    "no label": (lines({"op": "c", "id": 99, "a": 1.0, "s": "p"}), "rows.no_label", {"row": 0, "column": "y"}),
    "no JSON": (lines({"op": "d", "id": 3}, "{"), "rows.not_json", {"row": 1}),
    "text": (lines({"op": "d", "id": 3}, {"op": "c", "a": "x", "id": 99, "y": "low"}), "updates.other_column", {}),
    "text ids": (lines({"op": "d", "id": "k3"}), "updates.other_ids", {"column": "id"}),
    "no operation": (lines({"id": 3}), "updates.no_operations", {}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_leaves_nothing_behind(shared: Path, tmp_path: Path, case: str) -> None:
    text, id, parts = REFUSED[case]
    file = tmp_path / "changes.jsonl"
    file.write_text(text)
    with refused(id, RaydtError, file=str(file), **parts) as error:
        apply_changes(shared / "run", file, out=tmp_path / "states")
    assert "stream.on_error" not in str(error.value)
    assert not (tmp_path / "states").exists()


def test_bad_rows_and_refused_updates_are_skipped(shared: Path, tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    file.write_text(lines({"op": "d", "id": 999}, "{", {"op": "d", "id": 3}))
    done = apply_changes(shared / "run", file, out=tmp_path / "states", on_error="skip")
    assert (done.receipt.ids.tolist(), done.counts["refused"], done.counts["skipped"]) == ([3], 1, 1)


def test_a_row_that_is_bad_for_a_while_is_deleted_for_so_long(shared: Path, tmp_path: Path) -> None:
    """From file to file and from state to state: bad, bad again, good, and gone."""
    row, states = rows(3, 4)[0], tmp_path / "states"
    bad, good = {**row, "op": "u", "y": None}, {**row, "op": "u", "a": 0.25}
    expected = [([3], 1), ([], 1), ([], 0), ([3], 0)]
    for number, (line, (deleted, skipped)) in enumerate(
        zip([bad, bad, good, {"op": "d", "id": 3}], expected, strict=True)
    ):
        (tmp_path / f"{number}.jsonl").write_text(lines({"op": "c", **rows(70 + number, 71 + number)[0]}, line))
        place = states if number else shared / "run"
        with contextlib.nullcontext() if not skipped else pytest.raises(InputError):
            apply_changes(place, tmp_path / f"{number}.jsonl", dry_run=True)
        done = apply_changes(place, tmp_path / f"{number}.jsonl", out=states, on_error="skip")
        assert (done.receipt.ids.tolist(), done.counts["skipped"], done.counts["refused"]) == (deleted, skipped, 0)
        assert len(done.receipt.inserted) == (2 if number == 2 else 1)
    assert audit_state(states).ok


@pytest.mark.parametrize("line", ['{"op": "m", "id": 3}', '{"op": "no operation", "id": 3}'])
def test_a_file_may_have_no_update(shared: Path, tmp_path: Path, line: str) -> None:
    (tmp_path / "c.jsonl").write_text(line)
    done = apply_changes(shared / "run", tmp_path / "c.jsonl", out=tmp_path / "states", on_error="skip")
    assert (done.updates, done.receipt.active, done.receipt.ids.tolist()) == (0, 60, [])
    assert done.receipt.digest_before == done.receipt.digest_after
    assert apply_changes(tmp_path / "states", tmp_path / "c.jsonl").receipt is None
    key = tmp_path / "key"
    key.write_text("0f" * 32)
    file, before = ReceiptFile(str(tmp_path / "chain"), str(key)), (tmp_path / "states/60/manifest.json").read_bytes()
    assert update(tmp_path / "states", delete=[999], missing="skip", receipts=file).missing == (999,)
    (tmp_path / "d.jsonl").write_text(line + "\n")
    told = apply_changes(tmp_path / "states", tmp_path / "d.jsonl", on_error="skip", receipts=file)
    assert (told.updates, told.receipt, len(told.files)) == (0, None, 1)  # nothing to tell, however often it is given
    assert "no update in" in changes_lines(told, "states", dry_run=False)
    assert (tmp_path / "states/60/manifest.json").read_bytes() == before  # a complete state is never written again
    assert len(read_chain(file.path).entries) == 1


def test_a_file_counts_once(shared: Path, tmp_path: Path) -> None:
    first, copy, second = tmp_path / "a.jsonl", tmp_path / "copy.jsonl", tmp_path / "b.jsonl"
    for file in (first, copy):
        file.write_text(lines({"op": "d", "id": 3}))
    second.write_text(lines({"op": "d", "id": 4}))
    done = apply_changes(shared / "run", [first, copy], out=tmp_path / "states")
    assert (done.files, done.known) == ([str(first)], [str(copy)])
    again = apply_changes(tmp_path / "states", copy)
    assert (again.receipt, again.state) == (None, done.state)
    both = apply_changes(tmp_path / "states", tmp_path / "*.jsonl")
    assert (both.files, both.receipt.ids.tolist()) == ([str(second)], [4])
    with refused("updates.file_twice", InputError):
        apply_changes(tmp_path / "states", [first, first])
    with refused("updates.other_base", ConfigError):
        apply_changes(shared / "run", second, out=tmp_path / "states")
    with refused("updates.no_target", ConfigError):
        apply_changes(shared / "run", second)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with refused("updates.full_folder", ConfigError):
        apply_changes(shared / "run", second, out=tmp_path / "full")


def test_the_files_of_a_run_of_changes_count(tmp_path: Path) -> None:
    (tmp_path / "first.jsonl").write_text(lines(*({"op": "c", **row} for row in rows(0, 40))))
    config = {
        "source": {"kind": "jsonl", "path": str(tmp_path / "first.jsonl"), "id": "id", "op": "op"},
        "stream": {"model": "changelog"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
    }
    run = pipelines.replay(config, tmp_path / "run").path
    assert apply_changes(run, tmp_path / "first.jsonl", out=tmp_path / "states").receipt is None
    (tmp_path / "second.jsonl").write_text(lines({"op": "d", "id": 3}))
    done = apply_changes(run, tmp_path / "*.jsonl", out=tmp_path / "states")
    assert (done.files, done.receipt.active) == ([str(tmp_path / "second.jsonl")], 39)
    pacsv.write_csv(pa.table({"id": [4]}), tmp_path / "ids.csv")
    update(tmp_path / "states", delete=tmp_path / "ids.csv", out=tmp_path / "plain")
    again = apply_changes(tmp_path / "plain", tmp_path / "*.jsonl", dry_run=True)
    assert (again.receipt, len(again.known)) == (None, 2)  # a state that deletes by id knows them, too


def test_ids_are_deleted_from_successive_states(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines({"op": "c", **rows(70, 71)[0]}))
    (tmp_path / "b.jsonl").write_text(lines({"op": "c", **rows(71, 72)[0]}))
    pacsv.write_csv(pa.table({"id": [4, 5]}), tmp_path / "ids.csv")
    apply_changes(shared / "run", tmp_path / "a.jsonl", out=tmp_path / "states")
    receipt = update(tmp_path / "states", delete=tmp_path / "ids.csv")
    assert (tmp_path / "states" / "latest").read_text() == "63\n"
    with refused("updates.no_target", ConfigError):
        update(shared / "run", delete=tmp_path / "ids.csv")
    last = apply_changes(tmp_path / "states", tmp_path / "*.jsonl")
    assert (len(last.known), last.receipt.digest_before) == (1, receipt.digest_after)
    assert (last.receipt.active, last.scores["accuracy"] is not None) == (60, True)
    page = (tmp_path / "states" / "report.html").read_text()
    assert "ids.csv" in page
    assert audit_state(tmp_path / "states").ok


def test_scores_go_on_and_the_page_shows_them(shared: Path, tmp_path: Path) -> None:
    files = []
    for day in range(3):
        files.append(tmp_path / f"{day}.jsonl")
        files[-1].write_text(lines(*({"op": "c", **row} for row in rows(100 + 30 * day, 130 + 30 * day))))
    apply_changes(shared / "run", files[0], out=tmp_path / "states")
    apply_changes(tmp_path / "states", files[1])
    last = apply_changes(tmp_path / "states", files[2])
    whole = apply_changes(shared / "run", files, dry_run=True)
    names = ("accuracy", "no_change", "majority", "kappa")
    assert {name: last.scores[name] for name in names} == {name: whole.scores[name] for name in names}
    lineage = open_state(tmp_path / "states")[0].meta["lineage"]
    windows = [step["scores"]["window_accuracy"] for step in lineage]
    assert sum(windows) / 3 == pytest.approx(last.scores["accuracy"])
    page = (tmp_path / "states" / "report.html").read_text()
    assert all(file.name in page for file in files)
    assert (tmp_path / "states" / "latest").read_text() == "150\n"


def test_old_states_are_removed(shared: Path, tmp_path: Path, raydt: Any) -> None:
    """The newest N stay, but for those that another process writes; receipts name no state that is gone."""
    states = tmp_path / "states"
    for day in range(4):
        file = tmp_path / f"{day}.jsonl"
        file.write_text(lines({"op": "c", **rows(100 + day, 101 + day)[0]}))
        apply_changes(states if day else shared / "run", file, out=states)
    pacsv.write_csv(pa.table({"id": [4]}), tmp_path / "ids.csv")
    with locked(RunFolder(states / "62")):
        update(states, delete=tmp_path / "ids.csv", keep=2)
        assert sorted(one.name for one in states.iterdir()) == ["62", "64", "65", "latest", "report.html"]
    code, _, err = raydt("update", states, "--changes", tmp_path / "*.jsonl", "--keep", "1")  # with nothing new
    assert (code, err) == (0, "")
    assert sorted(one.name for one in states.iterdir()) == ["65", "latest", "report.html"]
    with refused("purges.successive", newest=str(states / "65"), folder=str(states)):
        purge(states)
    receipt = update(states, delete=[5], dry_run=True)
    assert sum("states/" in place for place in receipt.copies) == 1
    assert sum("jsonl" in place for place in receipt.copies) == 4  # the rows came from these files
    assert audit_state(states).ok
    with refused("updates.nothing_to_keep", ConfigError, keep=1):
        update(shared / "run", delete=[5], out=tmp_path / "other", keep=1)
    with refused("updates.nothing_to_keep", ConfigError, keep=0):
        apply_changes(states, tmp_path / "0.jsonl", keep=0)


def test_a_state_of_an_estimator(tmp_path: Path) -> None:
    model = FullyDynamicTreeClassifier().fit([[0.0], [1.0], [2.0]], ["u", "v", "v"], ids=[1, 2, 3])
    model.save(tmp_path / "model", with_examples=True)
    (tmp_path / "changes.jsonl").write_text(lines({"op": "d", "key": 1}, {"op": "c", "key": 9, "x0": 3.0, "y": "u"}))
    with refused("updates.no_change_ids", InputError):
        apply_changes(tmp_path / "model", tmp_path / "changes.jsonl", dry_run=True)
    done = apply_changes(tmp_path / "model", tmp_path / "changes.jsonl", id_column="key", out=tmp_path / "states")
    assert (done.receipt.active, done.receipt.inserted.tolist()) == (3, [9])


#: Where an update is killed: by day in the state, between chain and state, and once the state is there.
MOMENTS = ("1", "3", "chain", "manifest", "end", "report.html", "latest")


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    "moment",
    [pytest.param(one, marks=[] if one in ("3", "chain", "latest") else pytest.mark.nightly) for one in MOMENTS],
)
def test_a_kill_leaves_each_file_applied_once(shared: Path, tmp_path: Path, moment: str) -> None:
    key = tmp_path / "key.txt"
    key.write_text("0f" * 32)
    file = tmp_path / "changes.jsonl"
    file.write_text(lines({"op": "d", "id": 3}, {"op": "c", **rows(99, 100)[0]}))
    receipts = ["--receipts", str(tmp_path / "chain.jsonl"), "--receipt-key", str(key)]
    command = ["update", str(shared / "run"), "--changes", str(file), "--out", str(tmp_path / "states"), *receipts]
    killed = subprocess.run([sys.executable, str(HERE / "killed_update.py"), moment, *command], check=False)
    assert killed.returncode == -signal.SIGKILL
    expected = apply_changes(shared / "run", file, dry_run=True).receipt.digest_after
    chain = ReceiptFile(str(tmp_path / "chain.jsonl"), str(key))
    base = tmp_path / "states" if moment in ("end", "report.html", "latest") else shared / "run"
    apply_changes(base, file, out=tmp_path / "states", receipts=chain)
    saved, _ = open_state(tmp_path / "states")
    assert saved.session().digest() == expected
    assert [step["updates"] for step in saved.meta["lineage"]] == [2]
    assert (tmp_path / "states" / "latest").read_text() == "62\n"
    assert sorted(path.name for path in (tmp_path / "states").iterdir()) == ["62", "latest", "report.html"]
    found = verify_receipts(tmp_path / "chain.jsonl", tmp_path / "states", key=str(key))
    assert (found["ok"], found["live"]) == (True, 0)


def test_rows_of_changes_have_subjects(tmp_path: Path) -> None:
    """Persons of inserted and replaced rows are known; those of deleted and refused rows are not kept."""
    table = pa.Table.from_pylist(rows(0, 60), pa.schema(list(ROW)))
    pq.write_table(table.append_column("who", pa.array([f"p{i % 6}" for i in range(60)])), tmp_path / "rows.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "id": "id", "subject": "who"}
    config: dict[str, Any] = {"source": source, "learner": {"kind": "fudyadt"}, "cluster": {"backend": "in_process"}}
    config |= {"stream": {"model": "incremental"}, "output": {"report": False}}
    run = pipelines.replay(config, tmp_path / "run").path
    lines = [{"op": op, **row} for op, row in zip("iidi", rows(100, 104), strict=True)]
    for line, who in zip(lines, ["new", "p1", None, "twice"], strict=True):
        line |= {"who": who} if who else {}
    lines[2] = {"op": "d", "id": 7}  # of p1
    lines[3] |= {"id": 100}  # is live
    lines.append({"op": "u", **rows(105, 106)[0], "id": 2, "who": "moved"})
    lines += [{"op": "i", **rows(105, 106)[0], "who": "brief"}, {"op": "d", "id": 105}]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "key").write_text("0f" * 32)
    file = ReceiptFile(str(tmp_path / "receipts.jsonl"), str(tmp_path / "key"))
    given = {"on_error": "skip", "receipts": file, "note": "CASE-3"}
    done = apply_changes(run, tmp_path / "c.jsonl", out=tmp_path / "states", **given)
    assert read_chain(file.path).entries[0]["note"] == "CASE-3"
    whose = done.receipt.deletions["subject"].tolist()
    assert dict(zip(done.receipt.ids.tolist(), whose, strict=True)) == {7: "p1", 2: "p2", 105: "brief"}
    assert done.as_dict()["deletions"]["subject"] == whose
    found = {
        who: update(tmp_path / "states", delete={"who": [who]}, dry_run=True).ids.tolist() for who in ("new", "p1")
    }
    assert found == {"new": [100], "p1": [1, *range(13, 60, 6), 101]}
    assert update(tmp_path / "states", delete={"who": ["moved", "twice"]}, missing="skip", dry_run=True).missing == (
        "twice",
    )
    state = open_state(find_state(tmp_path / "states").folder)[1].location
    pipelines.resume(run, state=state)
    assert audit_run(run).conformance == "holds"


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_a_file_of_deletions_needs_the_ids_alone(form: str, tmp_path: Path) -> None:
    run, file = trained(tmp_path), tmp_path / f"gone.{form}"
    table = pa.table({"op": ["delete", "d"], "id": [3, 41]})
    {"csv": pacsv.write_csv, "parquet": pq.write_table, "jsonl": json_lines}[form](table, file)
    result = apply_changes(run, file, out=tmp_path / "states")
    assert result.counts["deletes"] == 2
    assert audit_state(result.state).conformance == "holds"
    assert not {3, 41} & set(open_state(result.state)[0].arrays["id"].tolist())
    pipelines.resume(run, state=result.state)
    assert audit_run(run).conformance == "holds"  # the file is read again


def test_a_file_of_deletions_cannot_insert(tmp_path: Path) -> None:
    run, file = trained(tmp_path), tmp_path / "more.csv"
    file.write_text("op,id\ndelete,3\ninsert,900\n")
    with pytest.raises(InputError) as refusal:
        apply_changes(run, file, out=tmp_path / "states")
    assert (refusal.value.row, refusal.value.column) == (1, "y")


@pytest.mark.parametrize(("header", "column"), [("op,id,a,s,Y", "y"), ("op,ID,a,s,y", "id"), ("op,id,a,y", "s")])
def test_a_missing_column_is_named_without_advice_about_a_config(header: str, column: str, tmp_path: Path) -> None:
    run, file = trained(tmp_path), tmp_path / "more.csv"
    file.write_text(f"{header}\ninsert,900,0.5,p,low\n")
    with pytest.raises(InputError) as refusal:
        apply_changes(run, file, out=tmp_path / "states")
    assert refusal.value.column == column
    assert "source." not in str(refusal.value)
