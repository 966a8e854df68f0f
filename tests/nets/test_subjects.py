"""Deleting subjects is deleting all their rows, bit for bit, for every case; and no byte of their names is left."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import pipelines
from pipelines.purging import purge
from pipelines.saved_runs import open_state
from pipelines.updating import update
from pipelines.updating.changes import StateNames
from raydt import load_model
from raydt.errors import UpdateError
from raydt.folders.arrays import load_folder
from tests.cases import Trial, every_case, one_of_each
from tests.refusals import refused
from tests.small_tables import written

#: Whose rows they are: names that appear nowhere else, with everything in them that a name may have.
PEOPLE = ("canary Zoë 'one'", "canary\ttwo\n", "0123 canary", "", "canary " + "long" * 300, "canary \U0001f9ea\u202e")


#: Whose only row is deleted in the stream.
GHOST = "canary of a ghost"


def run_of_people(trial: Trial, folder: Path) -> Path:
    """A finished run over a change log whose rows have persons.

    In the end each of them gets a row that lives, and another one comes and goes with its only row.
    """
    draw = random.Random(trial.name)
    config = trial.config(folder, 90, source={"subject": "person"})
    path = Path(config["source"]["path"])
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    rows = [{**row, "person": draw.choice(PEOPLE)} for row in table.to_pylist()]
    rows += [{**rows[0], "op": "insert", "id": f"of {k}", "person": person} for k, person in enumerate(PEOPLE)]
    ghost = {**rows[0], "id": "of a ghost", "person": GHOST}
    rows += [{**ghost, "op": "insert"}, {**ghost, "op": "delete"}]
    written(path, pa.Table.from_pylist(rows, table.schema.append(pa.field("person", pa.string()))))
    return Path(pipelines.replay(config, folder / "run").path)


def same(one: Path, other: Path) -> None:
    """Require that two states are equal, bit for bit, but for what they were made from."""
    (meta, components), (other_meta, other_components) = load_folder(one), load_folder(other)
    assert {**meta, "lineage": 0} == {**other_meta, "lineage": 0}
    assert components.keys() == other_components.keys()
    for name, values in components.items():
        for key, value in values.items():
            if isinstance(value, np.ndarray):
                assert value.tobytes() == other_components[name][key].tobytes(), (name, key)
            else:
                assert value == other_components[name][key], (name, key)


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


@every_case("deletion by subject", one_of_each)
def test_forgetting_subjects_is_forgetting_their_rows(trial: Trial, tmp_path: Path) -> None:
    run = run_of_people(trial, tmp_path)
    gone: list[Any] = [PEOPLE[0], PEOPLE[3], PEOPLE[0], PEOPLE[4]]
    receipt = update(run, delete={"subject": gone}, out=tmp_path / "by_subject")
    assert receipt.subjects == (PEOPLE[0], PEOPLE[3], PEOPLE[4])
    assert set(receipt.deletions["subject"]) == set(gone)
    by_id = update(run, delete=receipt.ids.tolist(), out=tmp_path / "by_id")
    assert (by_id.digest_after, by_id.subjects) == (receipt.digest_after, ())
    assert by_id.deletions["subject"].tolist() == receipt.deletions["subject"].tolist()
    same(tmp_path / "by_subject", tmp_path / "by_id")

    with refused("updates.unknown_subjects", UpdateError, count=2):
        update(tmp_path / "by_id", delete={"person": gone[:2]}, dry_run=True)
    again = update(tmp_path / "by_subject", delete={"person": gone[:2]}, missing="skip", out=tmp_path / "again")
    assert (again.missing, again.subjects, len(again.ids)) == ((PEOPLE[0], PEOPLE[3]), (), 0)
    assert again.digest_after == receipt.digest_after
    same(tmp_path / "by_subject", tmp_path / "again")

    purge(run)
    left = load_folder(tmp_path / "by_subject")[1]["stream"]["subjects"]
    live = StateNames.of(open_state(run)[0]).subjects.known
    for folder, names in ((tmp_path / "by_subject", left), (tmp_path / "again", left), (run, live)):
        content = bytes_of(folder)
        assert not any(name.encode() in content for name in (*PEOPLE, GHOST) if name and name not in names)
        assert GHOST not in names

    if trial.shipped:
        held, other = load_model(tmp_path / "again"), load_model(tmp_path / "again")
        whose = held.forget(subjects=left[:2])
        assert whose.subjects == tuple(left[:2])
        rows = other.forget(ids=whose.ids, digests=True)
        assert whose.digest_after == rows.digest_after == held.digest()
        assert held.forget(subjects=left[:2], missing="skip").digest_after == rows.digest_after
        assert held.live_ids_.tolist() == other.live_ids_.tolist()
        held.save(tmp_path / "held", with_examples=True)
        other.save(tmp_path / "other", with_examples=True)
        same(tmp_path / "held", tmp_path / "other")
        assert not any(name.encode("utf-8") in bytes_of(tmp_path / "held") for name in left[:2] if name)
        assert load_model(tmp_path / "held").forget(subjects=left[2:3]).subjects == tuple(left[2:3])
