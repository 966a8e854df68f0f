"""Runs with a model for each key: predictions, tables, audits and resumes are those of separate runs."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run, audit_state
from pipelines.display import run_lines
from pipelines.prediction import export_model, predict_file
from pipelines.reporting import report_of
from raydt.errors import InputError, ModelFileError, RaydtError
from raydt.folders.arrays import load_folder, save_folder
from raydt.keyed.groups import digest_of, in_order
from raydt.keyed.packing import open_keys, packed, unpacked
from raydt.learners import traits_of
from tests.cases import CASES, Trial, change_log, every_case, one_of_each
from tests.keyed_cases import KEYS, config, files, rows_of
from tests.small_tables import table_of, written


@every_case("runs by key", often=one_of_each)
def test_a_key_is_a_run_of_its_own(trial: Trial, tmp_path: Path) -> None:
    whole, own = files(trial, tmp_path)
    result = pipelines.replay(config(trial, whole, key="key"), tmp_path / "run")
    saved = open_keys(f"{result.path}/model")
    assert saved is not None
    assert str(result.summary["keys"]) in run_lines(result.summary, result.path)
    counts = dict.fromkeys(traits_of(trial.options).counts, 0)
    digests, expected = {}, {}
    for key, path in own.items():
        alone = pipelines.replay(config(trial, path), tmp_path / f"run {key}")
        digests[key] = alone.digest
        counts = {name: n + alone.summary[name] for name, n in counts.items()}
        for table in ("predictions", "quarantine", "metrics"):
            assert repr(rows_of(result.path, table, key)) == repr(rows_of(alone.path, table)), (key, table)
        _, components = load_folder(f"{alone.path}/model")
        held, mine = saved.saved(key).arrays, components["arrays"]
        assert {n: array.tobytes() for n, array in held.items()} == {n: array.tobytes() for n, array in mine.items()}
        expected[key] = predict_file(alone.path, own[key], tmp_path / f"{len(expected)}.parquet", on_error="skip")
    assert result.digest == digest_of(digests)
    assert {name: result.summary[name] for name in counts} == counts
    assert result.summary["updates"] == sum(len(change_log(70, trial.case.warmup, seed)) for seed in range(3))
    assert audit_run(result.path).ok
    assert audit_run(result.path, KEYS[0]).ok
    last = max(Path(result.path, "checkpoints").glob("[0-9]*"), key=lambda one: int(one.name))
    assert audit_state(last).ok

    found = predict_file(result.path, whole, tmp_path / "all.parquet", on_error="skip", id_column="key")
    table = pq.read_table(tmp_path / "all.parquet").to_pylist()
    for place, (key, one) in enumerate(expected.items()):
        alone = pq.read_table(tmp_path / f"{place}.parquet").to_pylist()
        mine = [row for row in table if row["key"] == key]
        assert repr([[row[name] for name in alone[0]] for row in mine]) == repr([list(row.values()) for row in alone])
        assert one["rows"] == len(mine)
    assert found["without_model"] == 0


def test_damage_of_one_key_is_found_and_a_stranger_has_no_prediction(tmp_path: Path) -> None:
    trial = next(one for one in CASES if one.learner.kind == "fudyadt")
    whole, _own = files(trial, tmp_path)
    result = pipelines.replay(config(trial, whole, key="key"), tmp_path / "run")
    strange = pa.ipc.open_file(str(whole)).read_all()
    strange = strange.set_column(strange.schema.get_field_index("key"), "key", pa.array(["nobody"] * len(strange)))
    found = predict_file(
        result.path, written(tmp_path / "new.arrow", strange), tmp_path / "new.parquet", on_error="skip"
    )
    assert found["without_model"] == found["rows"] - found["skipped"]
    assert found["unknown_keys"] == ["nobody"]
    assert pq.read_table(tmp_path / "new.parquet")["prediction"].null_count == found["rows"]
    with pytest.raises(ModelFileError, match="no model for the key"):
        audit_run(result.path, "nobody")
    with pytest.raises(InputError, match="--key"):
        export_model(result.path, "sklearn", tmp_path / "m.skops")

    last = max(Path(result.path, "checkpoints").glob("[0-9]*"), key=lambda one: int(one.name))
    meta, components = load_folder(last)
    name = next(name for name in components if name.startswith("group-"))
    held = unpacked(components[name])
    (key,) = held
    held[key]["coordinator"]["counts"] += 1
    for entry in ("kind", "raydt_version", "format_version"):
        meta.pop(entry)
    save_folder(tmp_path / "damaged", "state", meta, {**components, name: packed(held)})
    report = audit_state(tmp_path / "damaged")
    assert report.conformance == "violated"
    assert f"key {key!r}: " in report.failures[0]


def test_the_report_shows_all_keys_and_one_on_demand(tmp_path: Path) -> None:
    trial = next(one for one in CASES if one.learner.kind == "gbdt")
    whole, _ = files(trial, tmp_path)
    given = config(trial, whole, key="key")
    result = pipelines.replay({**given, "output": {**given["output"], "report": True}}, tmp_path / "run")
    page = Path(result.path, "report.html").read_text()
    rows = ds.dataset(Path(result.path) / "keys").to_table().to_pylist()
    assert [row["key"] for row in rows] == in_order(KEYS)
    assert sum(row["updates"] for row in rows) == result.summary["updates"]
    assert result.digest == digest_of({row["key"]: row["digest"] for row in rows})
    for key in KEYS:
        assert f">{key}</" in page
    where = report_of([result.path], str(tmp_path / "north.html"), "north")
    assert "key north" in Path(where).read_text()
    for arguments in (([result.path], str(tmp_path / "none.html"), "none"), ([result.path], None, "north")):
        with pytest.raises(RaydtError):
            report_of(*arguments)


@every_case("keys with a deletion log", often=lambda trial: trial.learner.kind == "gbdt" and one_of_each(trial))
@pytest.mark.parametrize("seed", range(3))
def test_a_deletion_log_names_no_keys(trial: Trial, seed: int, tmp_path: Path) -> None:
    """Each key has what the log says of its own rows, at the places among these; also resumed on the way."""
    draw = random.Random(seed)
    rows, entries = [], []
    for i, row in enumerate(change_log(260, 260, seed)):
        rows.append({**row, "op": None, "id": f"e{i}", "key": draw.choice(KEYS)})
        if i >= 20 + 6 * trial.case.warmup and draw.random() < 0.5:
            entries.append((draw.randrange(i + 1), i + draw.randrange(4) + 1 if draw.random() < 0.8 else None))
    table = table_of(rows).append_column("key", pa.array([row["key"] for row in rows], pa.string()))
    whole = written(tmp_path / "all.arrow", table)
    log = pa.table({"id": [f"e{one}" for one, _ in entries], "after": pa.array([at for _, at in entries], pa.int64())})
    given = config(trial, whole, key="key")
    del given["source"]["op"]
    given["stream"] |= {"model": "deletion_log", "deletion_log": str(written(tmp_path / "log.arrow", log))}
    result = pipelines.replay(given, tmp_path / "run")
    digests = {}
    for place, key in enumerate(KEYS):
        mine = [i for i, row in enumerate(rows) if row["key"] == key]
        # Of deletions between the same two rows of the key, the first is the one that is due first.
        due = sorted(entries, key=lambda entry: len(rows) if entry[1] is None else entry[1])
        own = [(one, None if at is None else sum(i < at for i in mine)) for one, at in due if one in mine]
        path = written(tmp_path / f"{place}.arrow", table_of([rows[i] for i in mine]))
        after = pa.array([at for _, at in own], pa.int64())
        own_log = written(
            tmp_path / f"log {place}.arrow", pa.table({"id": [f"e{one}" for one, _ in own], "after": after})
        )
        alone = config(trial, path)
        del alone["source"]["op"]
        alone["stream"] |= {"model": "deletion_log", "deletion_log": str(own_log)}
        run = pipelines.replay(alone, tmp_path / f"run {place}")
        digests[key] = run.digest
        for name in ("predictions", "metrics"):
            assert repr(rows_of(result.path, name, key)) == repr(rows_of(run.path, name)), (key, name)
    assert result.digest == digest_of(digests)
    assert result.summary["deletes"] > 0
    assert audit_run(result.path).ok
