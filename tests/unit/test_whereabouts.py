"""Which folders still hold a person: the answer by folder, in the command as in Python."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.purging import purge
from pipelines.updating import apply_changes, update
from pipelines.whereabouts import verify_erasure
from raydt import ExactForestClassifier
from raydt.errors import ConfigError, InputError
from raydt.messages import WITHHELD, message
from tests.refusals import refused
from tests.unit.test_update_subjects import config, rows_of, visits


@pytest.fixture
def run(tmp_path: Path) -> Path:
    job = config(tmp_path, visits())
    return Path(pipelines.replay({**job, "output": {"report": False, "predictions": True}}, tmp_path / "run").path)


def said(found: dict[str, Any]) -> dict[str, tuple[str, int, tuple[str, ...]]]:
    """Status, live rows and copies by name of folder, of the one that was asked."""
    (one,) = found["ids"] + found["subjects"]
    names = (trace["folder"].rpartition("/")[2] for trace in one["folders"])
    return {
        name: (trace["status"], trace["rows"], trace["copies"])
        for name, trace in zip(names, one["folders"], strict=True)
    }


def newest(run: Path) -> str:
    return max((path.name for path in (run / "checkpoints").iterdir() if path.name.isdecimal()), key=int)


def test_a_person_is_followed_through_updates_a_purge_and_a_resume(run: Path, raydt: Any) -> None:
    place, number = run.parent, len(rows_of("p3", visits()))
    update(run, delete={"subject": ["p3"]}, out=place / "second")
    update(place / "second", delete={"subject": ["p4"]}, out=place / "third")
    live = {"run": ("live", 0, ("predictions",)), "120": ("live", number, ()), "model": ("live", 0, ())}
    assert said(verify_erasure(run, subjects=["p3"])) == {
        **live,
        "second": ("deleted", 0, ()),
        "third": ("deleted", 0, ()),
    }
    assert verify_erasure(place / "third", subjects=["p3"])["subjects"][0]["folders"]
    code, out, _ = raydt("verify", run, "--subject", "p3")
    assert code == 3
    assert "subject p3: in 3 places" in out
    pipelines.resume(run, state=place / "third")
    found = verify_erasure(run, subjects=["p3"])
    assert not found["ok"]
    assert said(found)["run"] == ("unclear", 0, ())
    assert said(verify_erasure(run, ids=[rows_of("p3", visits())[0]]))["run"] == ("deleted", 0, ("predictions",))
    purge(run)
    assert said(verify_erasure(run, subjects=["p3"])) == {
        **dict.fromkeys(
            ("run", "124" if (run / "checkpoints/124").exists() else newest(run), "model"), ("purged", 0, ())
        ),
        "second": ("absent", 0, ()),
        "third": ("absent", 0, ()),
    }
    code, out, _ = raydt("verify", place, "--subject", "p3", "--json")
    assert (code, json.loads(out)["ok"]) == (0, True)
    assert raydt("verify", place, "--subject", "p4")[0] == 3


def test_a_purge_of_a_state_names_what_it_was_made_of(run: Path) -> None:
    place = run.parent
    update(run, delete={"subject": ["p3"]}, out=place / "second")
    update(place / "second", delete={"subject": ["p4"]}, out=place / "third")
    named = [message("purges.made_of", state=str(place / name)) for name in ("run", "second")]
    assert purge(place / "third")["out_of_reach"][:2] == named
    assert said(verify_erasure(run, subjects=["p4"]))["third"] == ("purged", 0, ())
    shutil.rmtree(run)
    assert purge(place / "third")["out_of_reach"][:1] == named[1:]
    found = verify_erasure(place / "third", subjects=["p4"])
    assert found["missing"] == [str(run)]
    assert said(found)["second"][0] == "live"


def test_successive_states_models_and_damaged_folders_are_looked_into(run: Path, raydt: Any) -> None:
    place, changes = run.parent, run.parent / "changes.parquet"
    row = {"visit": "w1", "person": "p3", "age": 5, "day": 1, "y": "no", "op": "insert"}
    pq.write_table(pa.Table.from_pylist([row]), changes)
    apply_changes(run, changes, out=place / "states")
    ExactForestClassifier().fit([[0.0], [1.0]], [0, 1], ids=["v1", "w1"]).save(place / "alone", with_examples=True)
    found = verify_erasure([run, place / "alone"], ids=["w1"])
    assert said(found)["121"] == ("live", 1, ())
    assert said(found)["alone"] == ("live", 1, ())
    assert said(verify_erasure(place / "alone", subjects=["p3"])) == {"alone": ("unclear", 0, ())}
    assert said(verify_erasure(run / "model", ids=["v1"])) == {"model": ("unclear", 0, ())}
    assert said(verify_erasure(run / "checkpoints" / "120", ids=["nobody"]))["run"] == ("absent", 0, ())
    for file in (place / "states" / "121").glob("coordinator*"):
        file.write_bytes(b"damaged")
    found = verify_erasure(run, ids=["nobody"])
    assert (said(found)["121"][0], found["ok"]) == ("unclear", False)
    assert raydt("verify", run, place / "states", "--id", "nobody")[0] == 3


def test_a_closed_checkpoint_of_an_integer_and_withheld_names(tmp_path: Path, raydt: Any) -> None:
    job = config(tmp_path, visits(text=False))
    job["output"]["quote_values"] = False
    run = pipelines.replay(job, tmp_path / "run").path
    found = verify_erasure(run, subjects=["3", 4, 999])
    assert [one["erased"] for one in found["subjects"]] == [False, False, True]
    assert {one["subject"] for one in found["subjects"]} == {WITHHELD}
    code, out, err = raydt("verify", run, "--id", "v77", "--subject", "999999")
    assert code == 3
    assert "v77" not in out + err
    assert "999999" not in out + err


def test_what_is_refused(run: Path, raydt: Any) -> None:
    with refused("verdicts.nobody", ConfigError):
        verify_erasure(run)
    (run.parent / "empty").mkdir()
    with refused("verdicts.no_place", InputError):
        verify_erasure(run.parent / "empty", ids=[1])
    assert raydt("verify", run.parent / "empty", "--id", "1")[0] == 2
    assert raydt("verify", run, run, run, "--receipt", "1")[0] == 2


def test_the_name_of_a_key_is_a_trace_of_the_person_until_a_purge(tmp_path: Path) -> None:
    job = config(tmp_path, visits().append_column("who", visits()["person"]))
    job["source"] |= {"key": "who", "features": ["age", "day"]}
    run = Path(pipelines.replay({**job, "learner": {"kind": "forest", "n_estimators": 2}}, tmp_path / "run").path)
    number = len(rows_of("p3", visits()))
    found = verify_erasure(run, subjects=["p3"])
    assert said(found)["120"][:2] == ("live", number)
    assert found["subjects"][0]["folders"][1]["keys"] == 1
    update(run, delete={"subject": ["p3"]}, out=tmp_path / "second")
    assert said(verify_erasure(run, subjects=["p3"]))["second"] == ("deleted", 0, ("key",))
    purge(tmp_path / "second")
    assert said(verify_erasure(tmp_path / "second", subjects=["p3"]))["second"] == ("purged", 0, ())


def test_chapters_and_receipts_of_a_run_that_follows(tmp_path: Path, raydt: Any) -> None:
    pytest.importorskip("deltalake")
    from pipelines.following import follow
    from tests.unit.test_chapters import folders, in_chapters
    from tests.unit.test_follow import changed

    table = changed(tmp_path)
    follow(in_chapters(table, output={"report": False, "predictions": True}), tmp_path / "run", until_idle=0.0)
    run, live = tmp_path / "run", table.live()
    gone = min(set(table.live(0)) - set(live))
    found = verify_erasure(run, ids=[gone, min(live)])
    for one, there in zip(found["ids"], (False, True), strict=True):
        states = [trace for trace in one["folders"] if trace["what"] == "checkpoint"]
        assert len({trace["folder"].rpartition("/checkpoints/")[0] for trace in states}) == len(folders(run))
        assert (states[0]["status"], states[-1]["rows"]) == ("live", int(there))
    assert said(verify_erasure(folders(run)[2], ids=[gone])) == said(verify_erasure(run, ids=[gone]))
    code, out, _ = raydt("verify", run, "--id", gone, "--json")
    answer = json.loads(out)
    assert (code, answer["ok"], answer["erasure"]["ok"]) == (0, True, False)
