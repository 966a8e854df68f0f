"""With ``output.quote_values: false`` no message quotes a value: not the error, the log, the quarantine or the report.

Every row is wrong in its own way, with a canary where a message would quote it; with ``true`` each is quoted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pipelines
from pipelines.cli import main
from pipelines.config import load_config
from pipelines.sweeping.job import sweep
from pipelines.validation import look_at
from raydt.errors import RaydtError
from raydt.redaction import quotes, quoting
from raydt.sources.files.damage import without_flaws
from tests.canaries import TEXT, contents

Files = dict[str, str]
GOOD = "id,a,y\n" + "".join(f"{i},{i}.5,{'yes' if i % 3 else 'no'}\n" for i in range(200))


def csv(rows: str, **source: Any) -> tuple[dict[str, Any], Files]:
    return {"kind": "csv", "path": "data.csv", "label": "y", "id": "id", **source}, {"data.csv": GOOD + rows}


#: Source and stream of a job, and its files, by what is wrong.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Files]] = {}
for _name, (_source, _files) in {
    "number": csv(f"900,{TEXT},no\n"),
    "length": csv(f"900,1.5,no,{TEXT}\n"),
}.items():
    CASES[_name] = _source, {}, _files
_OPERATIONS = {"kind": "csv", "path": "data.csv", "label": "y", "id": "id", "op": "op"}
_CHANGES = "id,a,y,op\n" + "".join(f"n{i},{i}.5,{'yes' if i % 3 else 'no'},insert\n" for i in range(200))
_ROWS = "id,a,y\n" + "".join(f"n{i},{i}.5,{'yes' if i % 3 else 'no'}\n" for i in range(200))
CASES |= {
    "operation": (_OPERATIONS, {"model": "changelog"}, {"data.csv": f"{_CHANGES}n900,1.5,no,{TEXT}\n"}),
    "unknown id": (_OPERATIONS, {"model": "changelog"}, {"data.csv": f"{_CHANGES}{TEXT},1.5,no,delete\n"}),
    "live id": (_OPERATIONS, {"model": "changelog"}, {"data.csv": f"{_CHANGES}{2 * f'{TEXT},1.5,no,insert{chr(10)}'}"}),
    "duplicate id": (
        {"kind": "csv", "path": "data.csv", "label": "y", "id": "id"},
        {"model": "random_updates", "insert_probability": 1.0},
        {"data.csv": _ROWS + 2 * f"{TEXT},1.5,no\n"},
    ),
    "late": (
        {"kind": "csv", "path": "data.csv", "label": "y", "ts": "t"},
        {"model": "time_window", "duration": 10**6},
        {"data.csv": "t,a,y\n" + "".join(f"{i},{i}.5,{i % 2}\n" for i in range(200)) + "503659,1.5,0\n200,1.5,0\n"},
    ),
    "pair": (
        {"kind": "libsvm", "path": "data.svm"},
        {},
        {"data.svm": "".join(f"{i % 2} {i % 5}:1\n" for i in range(200)) + f"1 {TEXT}:1\n"},
    ),
    "label of pairs": (
        {"kind": "libsvm", "path": "data.svm"},
        {},
        {"data.svm": "".join(f"{i % 2} {i % 5}:1\n" for i in range(200)) + f"{TEXT} 3:1\n"},
    ),
}
#: What is no bad row: the run cannot begin, whatever ``on_error`` says.
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], Files]] = {
    "deletion log": (
        csv("")[0],
        {"model": "deletion_log", "deletion_log": "gone.csv"},
        {"data.csv": GOOD, "gone.csv": f"id,after\n3,100\n{TEXT},150\n"},
    ),
    "deletion in the warm-up": (
        csv("")[0],
        {"model": "deletion_log", "deletion_log": "gone.csv", "warmup": 600_000},
        {"data.csv": GOOD, "gone.csv": "id,after\n3,503459\n"},
    ),
    "decimal comma": (csv("")[0], {}, {"data.csv": "id,a,y\n" + f'1,"1,{int(TEXT[:4], 16)}999",no\n' * 50}),
    "first pair": ({"kind": "libsvm", "path": "data.svm"}, {}, {"data.svm": f"{TEXT} 3:1\n"}),
}
NEEDLES = (TEXT[:24].encode(), b"50345999", b"503459")


def config_of(folder: Path, case: tuple[dict[str, Any], dict[str, Any], Files], on_error: str, quote: bool) -> Any:
    source, stream, files = case
    for name, text in files.items():
        (folder / name).write_text(text)
    kind = "sparse_tree" if source["kind"] == "libsvm" else "fudyadt"
    paths = {"path": str(folder / source["path"])}
    log = {"deletion_log": str(folder / stream["deletion_log"])} if "deletion_log" in stream else {}
    return {
        "source": {**source, **paths},
        "stream": {"model": "incremental", "on_error": on_error, **stream, **log},
        "learner": {"kind": kind},
        "cluster": {"backend": "in_process"},
        "checkpoint": {"every_seconds": None},
        "output": {"quote_values": quote},
    }


def quoting_files(run: Path) -> set[str]:
    """Files of a run, but for its checkpoints and model, that hold a canary."""
    files = [file for file in run.rglob("*") if file.is_file() and file.relative_to(run).parts[0] not in DATA]
    return {file.name for file in files if any(one in part for one in NEEDLES for part in contents(file))}


DATA = {"checkpoints", "model", "config.yaml"}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("quote", [True, False])
def test_what_a_run_that_skips_writes(name: str, quote: bool, tmp_path: Path) -> None:
    run = Path(pipelines.replay(config_of(tmp_path, CASES[name], "skip", quote), tmp_path / "run").path)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["refused"] + summary["skipped"] >= 1
    assert ("part-00000.parquet" in quoting_files(run)) is quote
    assert quote or quoting_files(run) == set()


@pytest.mark.parametrize("name", [*CASES, *REFUSED])
@pytest.mark.parametrize("quote", [True, False])
def test_what_an_error_says(name: str, quote: bool, tmp_path: Path) -> None:
    config = config_of(tmp_path, {**CASES, **REFUSED}[name], "error", quote)
    with pytest.raises(RaydtError) as caught:
        pipelines.replay(config, tmp_path / "run")
    assert any(one in str(caught.value).encode() for one in NEEDLES) is quote, caught.value
    assert quote or ("(a value)" in str(caught.value) and quoting_files(tmp_path / "run") == set())
    if (tmp_path / "run" / "log.jsonl").exists():
        assert ("log.jsonl" in quoting_files(tmp_path / "run")) is quote
    assert quotes()


def test_validate_and_sweep_obey(tmp_path: Path) -> None:
    config = config_of(tmp_path, CASES["number"], "skip", False)
    assert "(a value)" in str(look_at(load_config(config))["bad_rows"])
    assert TEXT not in str(look_at(load_config(config))["bad_rows"])
    config = config_of(tmp_path, CASES["unknown id"], "error", False)
    sweep(config, ["learner.max_depth=2,3"], tmp_path / "sweep")
    written = [
        file.read_text() for file in (tmp_path / "sweep").rglob("*") if file.suffix in (".json", ".jsonl", ".html")
    ]
    assert any("(a value)" in text for text in written)
    assert not any(TEXT in text for text in written)


#: A run whose checkpoints, stream and report fail with errors of other packages, which say a value.
UNEXPECTED = f"""
import pipelines.running.loop.run as run
import pipelines.running.outcome.outcome as outcome
from pipelines.cli import main
from raydt.folders.checkpoint import CheckpointStore

def fails(*given, **named):
    raise ValueError("{TEXT}")

def feeds_and_fails(*given, feed=run.feed):
    feed(*given)
    fails()

CheckpointStore.write = outcome.publish_report = fails
run.feed = feeds_and_fails
main()
"""


@pytest.mark.parametrize("verbose", [True, False])
@pytest.mark.parametrize("quote", [True, False])
def test_what_unexpected_errors_say(verbose: bool, quote: bool, tmp_path: Path) -> None:
    """They are named, with the place, and their text is in no file and not on the terminal."""
    config = config_of(tmp_path, (csv("")[0], {}, {"data.csv": GOOD}), "error", quote)
    config |= {"checkpoint": {"every_updates": 50}}
    config["cluster"] |= {"batch_size": 10}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    words = [*["-v"] * verbose, "replay", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "run")]
    ended = subprocess.run([sys.executable, "-c", UNEXPECTED, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert (TEXT in ended.stderr) is quote, ended.stderr
    assert ("log.jsonl, if the run got to it, names the place" in ended.stderr) is not quote
    assert quoting_files(tmp_path / "run") == ({"log.jsonl", "summary.json"} if quote else set())
    records = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert {"run_failed", "checkpoint_failed", "report_failed"} <= {record["event"] for record in records}
    (failed,) = [record for record in records if record["event"] == "run_failed"]
    assert "ValueError" in failed["traceback"]
    assert ", in feeds_and_fails" in failed["traceback"]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["error"] == (TEXT if quote else "ValueError")
    if not quote:
        words = [*["-v"] * verbose, "resume", str(tmp_path / "run")]
        ended = subprocess.run([sys.executable, "-c", UNEXPECTED, *words], capture_output=True, text=True, check=False)
        assert ended.returncode == 1
        assert TEXT not in ended.stderr
        assert "error: unexpected ValueError; log.jsonl" in ended.stderr
        assert quoting_files(tmp_path / "run") == set()


def test_a_word_for_no_label_and_a_code_are_values(tmp_path: Path) -> None:
    rows = "id,a,y\n" + "".join(f"{i},{i}.5,{i % 2}\n" for i in range(200)) + "900,1.5,NA\n"
    config = config_of(tmp_path, (csv("")[0], {}, {"data.csv": rows}), "skip", False)
    (said,) = look_at(load_config(config))["bad_rows"]
    assert "no label ((a value) among" in said
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 50345999]), pa.array(["a"]), safe=False)
    with quoting(False):
        _, flaws = without_flaws(pa.RecordBatch.from_arrays([coded], names=["a"]))
    assert "(a value) is beyond its dictionary" in str(flaws)


def test_one_run_that_forbids_is_enough() -> None:
    with quoting(True), quoting(False):
        with quoting(True):
            assert not quotes()
        assert not quotes()
    assert quotes()


def test_validate_says_what_a_deadline_does_not_bound(tmp_path: Path) -> None:
    config = config_of(tmp_path, CASES["number"], "skip", True)
    config |= {"checkpoint": {"every_seconds": 60, "max_age": "1h"}, "erasure": {"deadline": "2h"}}
    config["output"]["predictions"] = True
    (warning,) = look_at(load_config(config))["warnings"]
    assert "predictions/, quarantine/, log.jsonl stay until raydt purge" in warning
    config["output"] = {"quote_values": False}
    assert look_at(load_config(config))["warnings"] == []
    config |= {"checkpoint": {}, "erasure": {}, "output": {"predictions": True}}
    assert look_at(load_config(config))["warnings"] == []


#: Rows from which a CSV file is known to have numbers in column a.
_NEW = "id,a,y\n" + "".join(f"{1000 + i},{i}.5,no\n" for i in range(200))
#: What is wrong with what a command is given: its words, the file and its text.
COMMANDS = {
    "row to insert": (["update", "RUN", "--dry-run", "--insert", "FILE"], f"{_NEW}900,{TEXT},no\n"),
    "id to insert": (["update", "RUN", "--dry-run", "--insert", "FILE"], "id,a,y\n503459,1.5,no\n503459,1.5,no\n"),
    "id to delete": (["update", "RUN", "--dry-run", "--delete", "FILE"], "id\n503459\n"),
    "id deleted twice": (["update", "RUN", "--dry-run", "--delete", "FILE"], "id\n5\n5\n"),
    "row to predict": (["predict", "RUN", "FILE", "--out", "OUT"], f"{_NEW}1,{TEXT},no\n"),
    "predictions skipped": (
        ["predict", "RUN", "FILE", "--out", "OUT", "--on-error", "skip"],
        f"{_NEW}1,{TEXT},no\n2,1,no\n",
    ),
    "row to explain": (["explain", "RUN", "FILE", "--row", "200"], f"{_NEW}1,{TEXT},no\n"),
    "id to purge": (["purge", "RUN", "--dry-run", "--ids", "FILE"], "id\n5\n"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """A run that quotes values, and one that does not."""
    found = {}
    for quote in (True, False):
        folder = tmp_path_factory.mktemp("run")
        config = config_of(folder, (csv("")[0], {}, {"data.csv": GOOD}), "error", quote)
        found[quote] = Path(pipelines.replay(config, folder / "run").path)
    return found


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(("quote", "flag"), [(True, False), (True, True), (False, False)])
def test_what_commands_about_a_run_say(
    name: str, quote: bool, flag: bool, runs: dict[bool, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They obey the config of the run, and the option ``--no-quote-values``."""
    words, text = COMMANDS[name]
    (tmp_path / "given.csv").write_text(text)
    meant = {"RUN": str(runs[quote]), "FILE": str(tmp_path / "given.csv"), "OUT": str(tmp_path / "out.parquet")}
    with pytest.raises(SystemExit) as ended:
        main([*["--no-quote-values"] * flag, *(meant.get(word, word) for word in words)])
    said = capsys.readouterr().err
    assert ended.value.code == (0 if "skip" in words else 2), said
    value = "id 5" if text == "id\n5\n" or "5\n5" in text else "503459" if "503459" in text else TEXT
    assert (value in said) is (quote and not flag), said
    assert ("(a value)" in said) is not (quote and not flag), said
    assert quotes()


def test_an_unexpected_error_is_only_named(
    runs: dict[bool, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*given: Any, **named: Any) -> None:
        raise ValueError(TEXT)

    monkeypatch.setattr("pipelines.updating.job.open_state", fails)
    words = ["update", str(runs[True]), "--dry-run", "--delete", "gone.csv"]
    with pytest.raises(ValueError, match=TEXT):
        main(words)
    with pytest.raises(SystemExit):
        main(["--no-quote-values", *words])
    said = capsys.readouterr().err
    assert "error: unexpected ValueError; without --no-quote-values its traceback is shown" in said
    assert TEXT not in said
