"""Updates by subject and by key, and examples that replace others."""

from __future__ import annotations

import inspect
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix

import pipelines
import raydt
from pipelines.auditing import audit_run, verify_receipts, verify_run
from pipelines.display import receipts_lines
from pipelines.receipts import ReceiptFile, roll_back
from pipelines.reporting import receipt_of
from pipelines.saved_runs import load_model
from pipelines.updating import apply_changes, update
from pipelines.updating.changes import StateNames
from pipelines.updating.lists import Lists, examples_of, open_deletions
from raydt import FullyDynamicTreeClassifier
from raydt.errors import ConfigError, InputError, ModelFileError, RaydtError, UpdateError
from raydt.estimators.base import Estimator
from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.folders.arrays import OF_THE_FOLDER, load_folder, open_folder, save_folder
from raydt.learners import learners
from raydt.messages import message
from raydt.presentation.charts import moment
from raydt.sessions.receipt_chain import Key, read_chain
from raydt.sources.divided import open_source
from raydt.sources.files.datafile import TableInMemory
from raydt.sources.options import ArrowFiles, CsvFiles, ParquetFiles
from tests.keyed_runs import of_keys
from tests.refusals import refused
from tests.unit.updatable import ids_file

# -- update subjects -------------------------------------------------------------------------------------------------
# Deletion by person: sources, lists of persons, deletion logs, receipts, runs that continue.

N = 120


def visits(n: int = N, *, text: bool = True) -> pa.Table:
    """Visits of twenty persons."""
    rng = np.random.default_rng(5)
    age, day, person = rng.integers(0, 90, N), rng.integers(0, 7, N), rng.integers(0, 20, N)
    columns = {
        "visit": [f"v{i}" for i in range(N)],
        "person": [f"p{i}" for i in person] if text else person,
        "age": age,
        "day": day,
        "y": np.where((age > 40) ^ (rng.random(N) < 0.2), "yes", "no"),
    }
    return pa.table({name: pa.array(list(values)[:n]) for name, values in columns.items()})


def config(folder: Path, table: pa.Table, **stream: Any) -> dict[str, Any]:
    pq.write_table(table, folder / "visits.parquet")
    path = str(folder / "visits.parquet")
    return {
        "source": {"kind": "parquet", "path": path, "label": "y", "id": "visit", "subject": "person"},
        "stream": {"model": "incremental", **stream},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "checkpoint": {"every_updates": 25, "every_seconds": None, "keep": 100},
        "output": {"report": False},
    }


def rows_of(person: Any, table: pa.Table) -> list[str]:
    return table.filter(pa.compute.equal(table["person"], person))["visit"].to_pylist()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    return Path(pipelines.replay(config(folder, visits()), folder / "run").path)


@pytest.mark.parametrize("name", ["subject", "person"])
def test_a_list_of_persons_deletes_their_rows(run: Path, tmp_path: Path, name: str, raydt: Any) -> None:
    gone = ids_file(tmp_path / "gone.csv", ["p3", "p7", "p3"], name)
    receipt = update(run, delete=gone, out=tmp_path / "second")
    assert sorted(receipt.ids) == sorted(rows_of("p3", visits()) + rows_of("p7", visits()))
    assert receipt.subjects == ("p3", "p7")
    assert receipt.as_dict()["deletions"]["subject"] == receipt.deletions["subject"].tolist()
    assert not any(b"p7" in file.read_bytes() for file in (tmp_path / "second").glob("stream*"))
    with refused("updates.unknown_subjects", UpdateError, count=2, subjects="'p3', 'p7'", row=0, column=name):
        update(tmp_path / "second", delete=gone, dry_run=True)
    code, out, err = raydt("update", tmp_path / "second", "--delete", gone, "--missing", "skip", "--dry-run")
    assert (code, err) == (0, "")
    assert "2 without a live row, passed over: p3, p7" in out
    code, out, err = raydt("update", run, "--delete", gone, "--dry-run")
    assert code == 0
    assert "2, all of whose rows are deleted" in out


def test_new_rows_have_a_subject(run: Path, tmp_path: Path) -> None:
    new = pd.DataFrame({"visit": ["w1", "w2"], "person": ["new", "p3"], "age": 5, "day": [1, 2], "y": "no"})
    with refused("updates.no_column", InputError, column="person"):
        update(run, insert=new.drop(columns="person"), dry_run=True)
    with refused("rows.no_subject", InputError, column="person", row=1):
        update(run, insert=new.assign(person=["new", None]), dry_run=True)
    with refused("updates.other_subjects", InputError, column="person", found="integers", wanted="text"):
        update(run, insert=new.assign(person=[1, 2]), dry_run=True)
    update(run, insert=new.set_index("visit"), delete=["v0", "v0"], out=tmp_path / "second")
    receipt = update(tmp_path / "second", delete=pd.DataFrame({"person": ["p3", "new"]}), dry_run=True)
    assert {"w1", "w2"} < set(receipt.ids)
    assert update(tmp_path / "second", delete=pd.Series(["new"], name="person"), dry_run=True).ids.tolist() == ["w1"]
    assert update(tmp_path / "second", delete=pd.Series(["w2"], name="else"), dry_run=True).ids.tolist() == ["w2"]
    with refused("updates.no_table", InputError, name="insert", type="list"):
        update(run, insert=[1], dry_run=True)


def test_lists_that_cannot_be_meant(run: Path, tmp_path: Path) -> None:
    with refused("streams.ids_and_subjects", InputError, column="person"):
        update(run, delete={"visit": ["v1"], "person": ["p1"]}, dry_run=True)
    with refused("streams.no_id_column", InputError):
        update(run, delete={"who": ["v1"]}, dry_run=True)
    with refused("streams.no_id", InputError, column="person", row=1):
        update(run, delete={"person": ["p1", None]}, dry_run=True)
    with refused("streams.other_ids", InputError, column="subject"):
        update(run, delete={"subject": [1]}, dry_run=True)
    FullyDynamicTreeClassifier().fit([[1.0], [2.0]], [0, 1]).save(tmp_path / "state", with_examples=True)
    with refused("streams.no_subjects", InputError, column="subject"):
        update(tmp_path / "state", delete={"subject": [1]}, dry_run=True)


def test_integers_may_be_written_as_text(tmp_path: Path) -> None:
    table = visits(text=False)
    folder = pipelines.replay(config(tmp_path, table), tmp_path / "run").path
    (tmp_path / "gone.csv").write_text('subject\n"3"\n 03\n')
    receipt = update(folder, delete=tmp_path / "gone.csv", dry_run=True)
    assert receipt.subjects == (3,)
    assert sorted(receipt.ids) == sorted(rows_of(3, table))


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_integers_may_be_written_as_floats(tmp_path: Path, form: str) -> None:
    """As pandas does where one is missing."""
    table, frames = visits(text=False), {}
    folder = pipelines.replay(config(tmp_path, table), tmp_path / "run").path
    frames["gone"] = pa.table({"subject": [3.0]})
    frames["bad"] = pa.table({"subject": [3.0, 3.5]})
    frames["lost"] = pa.table({"subject": [3.0, None]})
    for name, frame in frames.items():
        if form == "csv":
            frame.to_pandas().to_csv(tmp_path / f"{name}.{form}", index=False)
        else:
            pq.write_table(frame, tmp_path / f"{name}.{form}")
    receipt = update(folder, delete=tmp_path / f"gone.{form}", dry_run=True)
    assert receipt.subjects == (3,)
    assert sorted(receipt.ids) == sorted(rows_of(3, table))
    for name, said in (("bad", "streams.not_integer"), ("lost", "streams.no_id")):
        with refused(said, RaydtError, row=1, column="subject"):
            update(folder, delete=tmp_path / f"{name}.{form}", dry_run=True)


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_change_files_of_pandas_lack_the_person_of_a_deletion(tmp_path: Path, form: str) -> None:
    """A hole makes the column one of floating-point numbers; the ids are such, too."""
    table = visits(text=False)
    table = table.set_column(0, "visit", pa.array(range(N)))
    folder = pipelines.replay(config(tmp_path, table), tmp_path / "run").path
    row = {"op": "insert", "visit": 500.0, "person": 77.0, "age": 50.0, "day": 3.0, "y": "yes"}
    frame = pd.DataFrame([row, {"op": "delete", "visit": 4.0}, {**row, "op": "update", "visit": 7.0}])
    write = {"parquet": frame.to_parquet, "csv": frame.to_csv, "jsonl": frame.to_json}[form]
    options = {"orient": "records", "lines": True} if form == "jsonl" else {"index": False}
    write(file := tmp_path / f"changes.{form}", **options)
    done = apply_changes(folder, file, out=tmp_path / "states")
    assert (done.counts["inserts"], done.counts["deletes"]) == (2, 2)
    state = max((tmp_path / "states").glob("*/"), key=lambda one: one.stat().st_mtime)
    receipt = update(state, delete={"person": [77]}, dry_run=True)
    assert (sorted(receipt.ids), receipt.subjects) == ([7, 500], (77,))
    frame["visit"] += 0.5
    write(file, **options)
    said = "rows.not_kind" if form == "csv" else "rows.not_whole"
    with refused(said, RaydtError, row=0, column="visit"):
        apply_changes(folder, file, dry_run=True)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([True, False]), "columns.not_subjects"),
        (pa.array([1.0, 2.5]), "rows.not_whole"),
        (pa.array([1.0, 2.0**53]), "rows.not_whole"),
        (pa.array([1.0, np.nan]), "rows.no_subject"),
        (pa.array([1, 2**64 - 1], pa.uint64()), "rows.wide_subject"),
        (pa.array(["a", None]), "rows.no_subject"),
        (pa.array([7, None]), "rows.no_subject"),
    ],
)
def test_rows_without_a_usable_subject_are_bad(tmp_path: Path, column: pa.Array, said: str) -> None:
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": [0, 1], "who": column}), tmp_path / "t.parquet")
    with refused(said, RaydtError, column="who"):
        source = open_source(ParquetFiles(path=str(tmp_path / "t.parquet"), subject="who"))
        for rows in source.rows():
            raise rows.bad[1]
    assert (
        "who"
        not in open_source(
            ParquetFiles(path=str(tmp_path / "t.parquet"), subject="y", label=None, features=["a"])
        ).features.names
    )


def test_a_word_among_numbers_is_a_bad_row_of_a_csv(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,who,y\n1,7,0\n2,x,1\n3,,0\n4,8,1\n")
    (rows,) = open_source(CsvFiles(path=str(tmp_path / "t.csv"), subject="who")).rows()
    assert sorted(rows.bad) in ([1, 2], [2])


def test_a_log_of_persons_resumes_and_is_audited(tmp_path: Path) -> None:
    """The same deletions by id give the same model; a resume from every checkpoint goes on with the same persons."""
    table = visits()
    early, late = (set(table.slice(*part)["person"].to_pylist()) for part in ((0, 40), (40, 60)))
    one, two, three, *_ = sorted(early & late)
    log = pa.table({"person": [one, two, one, three], "after": [40, 60, 100, None]})
    pq.write_table(log, tmp_path / "log.parquet")
    stream = {"model": "deletion_log", "deletion_log": str(tmp_path / "log.parquet")}
    made = config(tmp_path, table, **stream)
    whole = pipelines.replay(made, tmp_path / "whole")
    listed, live = [], []
    for person, after in zip(log["person"].to_pylist(), [40, 60, 100, N], strict=True):
        gone = [row for row in rows_of(person, table.slice(0, after)) if row not in live]
        listed += [(row, after) for row in gone]
        live += gone
    pq.write_table(
        pa.table({"id": [one for one, _ in listed], "after": [at for _, at in listed]}), tmp_path / "i.parquet"
    )
    by_id = config(tmp_path, table, **{**stream, "deletion_log": str(tmp_path / "i.parquet")})
    assert pipelines.replay(by_id, tmp_path / "by_id").summary["model_digest"] == whole.summary["model_digest"]
    assert audit_run(tmp_path / "whole").conformance == "holds"
    left = load_folder(sorted((tmp_path / "whole" / "checkpoints").glob("[0-9]*"), key=lambda f: int(f.name))[-1])
    assert three not in left[1]["stream"]["subjects"]
    with refused("streams.no_subject", InputError, row=1, column="person"):
        pq.write_table(pa.table({"person": [one, one], "after": [50, 50]}), tmp_path / "log.parquet")
        pipelines.replay(made, tmp_path / "twice")
    made["stream"]["on_error"] = "skip"
    assert pipelines.replay(made, tmp_path / "skipped").summary["skipped"] == 1


def test_a_run_continues_without_the_persons(tmp_path: Path) -> None:
    made = config(tmp_path, visits())
    made["stream"] = {"model": "sliding_window", "window": 70}
    path = pipelines.replay(made, tmp_path / "run").path
    gone = ids_file(tmp_path / "gone.csv", ["p5", "p6"], "person")
    receipt = update(path, delete=gone, out=tmp_path / "second")
    pipelines.resume(path, state=tmp_path / "second")
    assert audit_run(path).conformance == "holds"
    again = update(path, delete=gone, missing="skip", dry_run=True)
    assert again.missing == receipt.subjects


def test_a_chain_names_persons_by_hashes_and_verify_finds_their_rows(run: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0f" * 32)
    chain, key = tmp_path / "chain.jsonl", Key.read(tmp_path / "key")
    file = ReceiptFile(chain, str(tmp_path / "key"))
    update(run, delete={"person": ["p3", "gone"]}, missing="skip", out=tmp_path / "second", receipts=file)
    entry = read_chain(chain).entries[0]
    assert (entry["subjects"], entry["missing"]) == ([key.hash("p3")], [key.hash("gone")])
    new = visits(3).to_pandas().assign(visit=["x0", "x1", "x2"], person="p3")
    asked = {"key": str(tmp_path / "key"), "subjects": ["p3", "p4", "gone"], "ids": ["p3"]}
    found = verify_receipts(chain, tmp_path / "second", **asked)
    assert [(one["deleted"], one["receipt"], one["live"]) for one in found["subjects"]] == [
        (True, 1, False),
        (False, None, True),
        (False, None, False),
    ]
    assert [event["what"] for event in found["subjects"][2]["events"]] == ["missing"]
    assert (found["ids"][0]["events"], found["ok"]) == ([], False)  # a subject is no id of the same name
    assert message("commands.id_missing", receipt=1, time=moment(entry["time"])) in receipts_lines(found)
    assert message("commands.id_there", said=message("commands.subject_unknown")) in receipts_lines(found)  # p4
    page = receipt_of(chain, 1)[1]
    assert message("receipts.subjects", subjects=1) in page
    assert message("receipts.missing", names=1)[:20] in page
    update(tmp_path / "second", insert=new, out=tmp_path / "third", receipts=file)
    back = verify_receipts(chain, tmp_path / "third", key=str(tmp_path / "key"), subjects=["p3"])
    assert (back["ok"], back["live"], back["subjects"][0]["returned"]) == (True, 0, True)
    assert "only rows that came later" in receipts_lines(back)
    meta, components = open_folder(tmp_path / "third", "state")
    stream = dict(components["stream"])
    codes = stream["subject_codes"].copy()
    codes[0] = stream["subjects"].index("p3")  # as if a row of the person had been left
    own = {name: value for name, value in meta.items() if name not in OF_THE_FOLDER}
    save_folder(tmp_path / "fourth", "state", own, {**components, "stream": {**stream, "subject_codes": codes}})
    found = verify_receipts(chain, tmp_path / "fourth", key=str(tmp_path / "key"), subjects=["p3"])
    assert (found["live"], found["ok"], found["subjects"][0]["live"]) == (1, False, True)


def test_what_is_given_in_memory_cannot_be_read_again(tmp_path: Path) -> None:
    path = pipelines.replay(config(tmp_path, visits()), tmp_path / "run").path
    update(path, delete={"person": ["p3"]}, out=tmp_path / "second")
    pipelines.resume(path, state=tmp_path / "second")
    with refused("updates.in_memory", InputError):
        audit_run(path)


def test_a_subject_is_no_other_column(tmp_path: Path) -> None:
    table = pa.table({"a": [1.0], "y": [0], "who": ["x"]})
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    for options in ({"id": "who"}, {"features": ["a", "who"]}, {"label": "who"}):
        with refused("columns.two_parts", (InputError, ConfigError)):
            open_source(ArrowFiles(path=str(tmp_path / "t.arrow"), subject="who", **options))


# -- keyed updates ---------------------------------------------------------------------------------------------------
# Which key an update means, what it refuses, and what receipts prove of models by key.

ROWS = [(i, f"s{i % 3}", float(i % 7), "yes" if i % 7 > 3 else "no") for i in range(60)]


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table(dict(zip(("id", "store", "x", "y"), map(list, zip(*rows, strict=True)), strict=True)))


@pytest.fixture(scope="module")
def run_updates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three stores; id 7 lives in two of them."""
    folder = tmp_path_factory.mktemp("stores")
    rows = [*ROWS, (7, "s0", 3.0, "no")]
    pq.write_table(table(rows), folder / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(folder / "rows.parquet"), "id": "id", "key": "store"},
        "stream": {"model": "incremental"},
        "learner": {"kind": "fudyadt", "epsilon": 0.0},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    return Path(pipelines.replay(config, folder / "run").path)


def test_an_id_of_several_keys_needs_its_key(run_updates: Path, tmp_path: Path) -> None:
    with refused("keyed.several_keys", UpdateError, id="7", count=1, keys="'s0', 's1'", column="store"):
        pipelines.update(run_updates, delete=[3, 7], out=tmp_path / "state")
    assert not (tmp_path / "state").exists()
    receipt = pipelines.update(run_updates, delete={"id": [7, 3], "store": ["s1", "s0"]}, out=tmp_path / "state")
    assert {key: one.ids.tolist() for key, one in receipt.by_key.items()} == {"s0": [3], "s1": [7]}
    assert 7 in of_keys(tmp_path / "state").saved("s0").arrays["id"]
    with pytest.raises(UpdateError, match="no live example"):
        pipelines.update(run_updates, delete={"id": [7], "store": ["s2"]}, dry_run=True)
    passed = pipelines.update(
        run_updates, delete={"id": [7, 8], "store": ["nobody", "s2"]}, missing="skip", dry_run=True
    )
    assert (passed.ids.tolist(), passed.missing) == ([8], (7,))


def test_all_keys_are_checked_before_anything_is_written(run_updates: Path, tmp_path: Path) -> None:
    """The last row is refused, and names its place in the file."""
    new = [(100, "s0", 1.0, "no"), (101, "s9", 1.0, "no"), (5, "s2", 1.0, "no")]
    pq.write_table(table(new), tmp_path / "new.parquet")
    with pytest.raises(UpdateError, match=r"new\.parquet, row 2"):
        pipelines.update(run_updates, insert=tmp_path / "new.parquet", out=tmp_path / "state")
    assert not (tmp_path / "state").exists()
    pq.write_table(table(new).drop_columns(["store"]), tmp_path / "new.parquet")
    with pytest.raises(InputError, match="store"):
        pipelines.update(run_updates, insert=tmp_path / "new.parquet", out=tmp_path / "state")


def test_receipts_prove_each_key_and_older_states(run_updates: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("7d" * 32)
    chain = ReceiptFile(str(tmp_path / "receipts"), str(tmp_path / "key"))
    pipelines.update(run_updates, delete=[3, 4, 5], out=tmp_path / "first", receipts=chain)
    pipelines.update(tmp_path / "first", delete={"id": [7], "store": ["s1"]}, out=tmp_path / "second", receipts=chain)
    found = verify_receipts(chain.path, tmp_path / "second", key=chain.key, ids=["3"])
    assert (found["ok"], found["live"], found["rebuilt"], found["gaps"]) == (True, 0, True, [])
    assert not verify_receipts(chain.path, tmp_path / "first", key=chain.key)["ok"]
    elsewhere = verify_receipts(chain.path, tmp_path / "second", key=chain.key, ids=["7"])
    # Deleted of one key, live in another: nothing that is live is reported as deleted.
    assert (elsewhere["live"], elsewhere["ids"][0]["deleted"], elsewhere["ids"][0]["live"]) == (0, False, True)
    roll_back(tmp_path / "first", chain)
    assert verify_receipts(chain.path, tmp_path / "first", key=chain.key)["ok"]
    assert verify_run(run_updates)["equal"]
    assert verify_run(tmp_path / "second")["equal"]


def test_changes_make_successive_states(run_updates: Path, tmp_path: Path) -> None:
    rows = [(200, "s0", 6.0, "yes"), (201, "s8", 1.0, "no"), (6, "s0", 0.0, "no")]
    ops = pa.array(["insert", "insert", "delete"])
    pq.write_table(table(rows).append_column("op", ops), tmp_path / "monday.parquet")
    done = apply_changes(run_updates, tmp_path / "monday.parquet", out=tmp_path / "states")
    assert (done.updates, done.counts["inserts"], done.counts["deletes"]) == (3, 2, 1)
    assert done.receipt is not None
    assert set(done.receipt.by_key) == {"s0", "s8"}
    assert done.scores["window_accuracy"] == 1.0
    assert apply_changes(tmp_path / "states", tmp_path / "monday.parquet").files == []
    assert (tmp_path / "states/report.html").exists()
    pq.write_table(table(rows[:1]).append_column("op", ops[:1]), tmp_path / "tuesday.parquet")
    with pytest.raises(InputError, match=r"tuesday\.parquet, row 0"):
        apply_changes(tmp_path / "states", tmp_path / "tuesday.parquet")


def test_one_model_is_wanted_elsewhere(run_updates: Path) -> None:
    with refused("keyed.folder", ModelFileError):
        load_model(run_updates / "model")
    with refused("keyed.folder", ModelFileError):
        load_model(run_updates / "checkpoints")


@pytest.mark.nightly
def test_a_list_with_keys_takes_time_by_its_length(tmp_path: Path) -> None:
    """A fifth of a second; by the square of its length it took 20."""
    n = 20_000
    pq.write_table(table([(i, "s0", float(i % 7), "no") for i in range(n)]), tmp_path / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "id": "id", "key": "store"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    keys = of_keys(Path(pipelines.replay(config, tmp_path / "run").path))
    common = keys.outline()
    names = StateNames.of(common)
    listed = TableInMemory(pa.table({"id": range(n), "store": ["s0"] * n}), "list")
    began = time.process_time()
    lists = Lists(common, names, "store", "text", partial(examples_of, keys), "error")
    lists.delete(open_deletions(listed, names), keys)
    assert time.process_time() - began < 3
    saved = keys.saved("s0")
    assert len(lists.of("s0", saved, StateNames.of(saved)).read(lambda ids: ids)) == n


def test_a_run_that_took_updates_in_is_audited_with_their_files(tmp_path: Path) -> None:
    """Lists with and without keys, a key that begins, a change log, an update of a state, and again after a resume."""
    rows = [(*row, "insert") for row in ROWS] + [(7, "s0", 3.0, "no", "insert")]
    pq.write_table(changes(rows), tmp_path / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "id": "id", "key": "store", "op": "op"},
        "stream": {"model": "changelog"},
        "learner": {"kind": "fudyadt", "epsilon": 0.0},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    run = Path(pipelines.replay(config, tmp_path / "run").path)
    pq.write_table(pa.table({"id": [3, 10]}), tmp_path / "gone.parquet")
    pq.write_table(pa.table({"id": [7], "store": ["s1"]}), tmp_path / "keyed.parquet")
    pq.write_table(table([(100, "s9", 1.0, "no"), (101, "s0", 6.0, "yes")]), tmp_path / "new.parquet")
    log = [(200, "s8", 6.0, "maybe", "insert"), (100, "s9", 2.0, "yes", "update"), (6, "s0", 0.0, "no", "delete")]
    pq.write_table(changes(log), tmp_path / "log.parquet")
    first = tmp_path / "first"
    pipelines.update(run, delete=tmp_path / "gone.parquet", insert=tmp_path / "new.parquet", out=first)
    second = apply_changes(first, tmp_path / "log.parquet", out=tmp_path / "second").state
    pipelines.resume(run, state=second)
    assert audit_run(run).checked["keys"] == 5
    pipelines.update(run, delete=tmp_path / "keyed.parquet", out=tmp_path / "third")
    digest = pipelines.resume(run, state=tmp_path / "third").digest
    report, found = audit_run(run), verify_run(run)
    assert (report.ok, found["equal"], found["rebuilt"], found["inserted"]) == (True, True, digest, 65), report.failures
    assert audit_run(run, key="s9").ok
    with refused("keyed.unknown", ModelFileError, key="'nobody'"):
        audit_run(run, key="nobody")
    pq.write_table(pa.table({"id": [7], "store": ["s0"]}), tmp_path / "keyed.parquet")
    with refused("updates.changed", InputError, files=str(tmp_path / "keyed.parquet")):
        verify_run(run)


def changes(rows: list[tuple[Any, ...]]) -> pa.Table:
    return table([row[:4] for row in rows]).append_column("op", pa.array([row[4] for row in rows]))


# -- replace examples ------------------------------------------------------------------------------------------------
# ``replace_examples`` of every estimator: one batch that deletes and inserts, all of it or nothing.

PUBLIC = [getattr(raydt, name) for name in raydt.__all__]
ESTIMATORS = [public for public in PUBLIC if inspect.isclass(public) and issubclass(public, Estimator)]


def takes_sparse_rows_only(estimator: Any) -> bool:
    options = estimator()._options()
    reading = learners()[estimator.kind].traits(options).reading
    return bool(reading.needs_sparse)


def data(estimator: Any) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (2 * N, 3)).astype(np.float64)
    y = (X[:, 0] + X[:, 1] + (rng.random(2 * N) < 0.1) > 1).astype(np.int64)
    if takes_sparse_rows_only(estimator):
        return csr_matrix(X), y
    return X, y * 1.5 if "Regressor" in estimator.__name__ else y


def fitted(estimator: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    X, y = data(estimator)
    return estimator().fit(X[:N], y[:N], ids=np.arange(N)), X, y


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_it_is_one_batch(estimator: Any) -> None:
    model, X, y = fitted(estimator)
    twin, _, _ = fitted(estimator)
    before = model.digest()
    receipt = model.replace_examples(np.arange(20), X[N : N + 30], y[N : N + 30], new_ids=np.arange(200, 230) * 10)
    assert (receipt.digest_before, receipt.digest_after) == (before, model.digest())
    assert before != model.digest()
    assert receipt.deletions["id"].tolist() == list(range(20))
    assert receipt.inserted.tolist() == model.row_ids_.tolist() == list(range(2000, 2300, 10))
    assert (receipt.active_before, receipt.active) == (N, N + 10)
    assert model.audit().ok
    if takes_sparse_rows_only(estimator):
        return
    op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), [20, 30])
    ids = np.concatenate([np.arange(20), np.arange(2000, 2300, 10)])
    targets = y[N : N + 30].astype(np.float64 if y.dtype == np.float64 else np.int32)
    classes = 0 if y.dtype == np.float64 else 2
    batch = UpdateBatch(N, op, ids, X[N : N + 30], targets, classes, np.full(50, -1))
    assert not twin.session_.apply(batch).refused
    twin.session_.finish()
    assert twin.digest() == model.digest()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_an_error_leaves_everything(estimator: Any) -> None:
    model, X, y = fitted(estimator)
    before = model.digest()
    for name, parameters, ids, rows, labels, new_ids in (
        ("refused", {"subject": "id 500"}, [500], 1, 1, None),
        ("repeated_id", {"id": 500}, [3, 3], 2, 2, [500, 500]),
        ("refused", {"subject": "id 5"}, [3], 1, 1, [5]),
        ("other_labels", {"rows": 2, "labels": 1}, [3], 2, 1, None),
        ("other_ids", {"rows": 2, "shape": (1,)}, [3], 2, 2, [500]),
    ):
        with refused(f"estimators.{name}", InputError, **parameters):
            model.replace_examples(ids, X[:rows], y[:labels], new_ids=new_ids)
        assert model.digest() == before


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_an_id_may_come_back(estimator: Any) -> None:
    model, X, y = fitted(estimator)
    receipt = model.replace_examples([3], X[N : N + 1], y[N : N + 1], new_ids=[3], digests=False)
    assert (receipt.digest_before, receipt.active) == (None, N)
    assert model.forget([3]).active == N - 1
