"""Every case of the corpus through the real job: what is said, what is kept, what is passed over."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines import replay
from pipelines.auditing import audit_run
from pipelines.prediction import predict_file
from raydt.errors import RaydtError
from tests.corpus.cases import CONFIGS, FILES, cases, config_of, load

ROOT = Path(__file__).parents[2]
CASES = cases()
SKIPPING = [case for case in CASES if case.skipped]
#: One for each way in which a run stops: a bad row, a damaged file, a refused update, a refused deletion.
AUDITED = ("short-row.csv", "damaged-batch.arrow", "duplicate-id.csv", "delete-unknown.csv", "log-unknown-id.csv")
STREAMS = {
    "clean.csv": ({}, {}),
    "changelog.csv": ({"op": "op"}, {"model": "changelog"}),
    "log.csv": ({}, {"model": "deletion_log", "deletion_log": "log.csv"}),
}


def attempt(config, out):
    """The error of a run, with placeholders for folders, and its summary; None where there is none."""
    message = summary = None
    try:
        replay(config, out)
    except RaydtError as error:
        message = str(error).replace(str(FILES), "{files}").replace(str(CONFIGS), "{configs}")
        message += "" if error.exit_code == 2 else f" (exit code {error.exit_code})"
    if Path(out).exists():
        summary = json.loads((Path(out) / "summary.json").read_text())
    return message, summary


def matches(message, wanted):
    """Whether a message is the expected one, whatever stands for ``{...}``."""
    if message is None or wanted is None:
        return message is wanted
    return re.fullmatch(re.escape(wanted).replace(r"\{\.\.\.\}", ".+"), message) is not None


@pytest.fixture(scope="module")
def digest_of(tmp_path_factory):
    """Digest of the model of the first ``n`` rows of good data, or of all."""

    @functools.cache
    def digest(good, n=None):
        source, stream = STREAMS[good]
        file = "clean.csv" if good == "log.csv" else good
        config = config_of(file, {**source, **({"limit": n} if n else {})}, stream)
        return replay(config, tmp_path_factory.mktemp("good") / "run").digest

    return digest


def test_the_corpus_is_whole():
    names = [case.case for case in CASES]
    assert len(set(names)) == len(names) >= 110
    named = {name for case in CASES for name in ([case.file] if isinstance(case.file, str) else case.file)}
    named |= {case.stream["deletion_log"] for case in CASES if "deletion_log" in case.stream}
    assert {file.name for file in FILES.iterdir()} <= named, "a file without a case"
    assert max(file.stat().st_size for folder in (FILES, CONFIGS) for file in folder.iterdir()) < 50_000
    assert {file.stem for file in CONFIGS.iterdir()} == {entry["case"] for entry in load("configs.yaml")}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_said_and_kept(case, tmp_path, digest_of):
    message, summary = attempt(case.config(), tmp_path / "run")
    assert matches(message, case.message), f"{message}\n  wanted: {case.message}"
    if case.kept is None:
        assert summary is None, "nothing was to be kept, but there is a run folder"
        return
    assert summary["updates"] == case.kept
    assert (summary["status"], summary["error"] is None) == (("failed", False) if message else ("completed", True)), (
        summary["status"]
    )
    if case.good and not message:
        assert summary["model_digest"] == digest_of(case.good)
    elif case.good in ("clean.csv", "changelog.csv") and case.kept:
        assert summary["model_digest"] == digest_of(case.good, case.kept)
    assert (tmp_path / "run" / "checkpoints" / str(case.kept) / "manifest.json").exists()
    if case.case in AUDITED:
        assert audit_run(tmp_path / "run").conformance == "holds"
        wanted = FILES / "clean.parquet"
        assert predict_file(tmp_path / "run", wanted, tmp_path / "out.parquet")["rows"] == 16


@pytest.mark.parametrize("case", SKIPPING, ids=str)
def test_what_is_passed_over(case, tmp_path, digest_of):
    message, summary = attempt(case.config(on_error="skip"), tmp_path / "run")
    assert message is None
    assert summary["skipped"] + summary["refused"] == case.skipped
    if case.good:
        assert summary["model_digest"] == digest_of(case.good)
    rows = pq.read_table(tmp_path / "run" / "quarantine").to_pylist()
    assert len(rows) == case.skipped
    # The first one is what the run would have stopped at: "file, row n[, column c][: update u]: problem. remedy".
    first = min(rows, key=lambda row: row["source_row"])
    assert first["file"].removeprefix(str(FILES) + "/") in case.message
    assert f"row {first['source_row']}" in case.message
    reason = first["reason"].replace(str(FILES), "{files}")
    assert reason.split(". ")[0] in case.message
    assert not any("on_error" in row["reason"] for row in rows), "it is skipped already"
    if case.case in AUDITED:
        assert audit_run(tmp_path / "run").conformance == "holds"


@pytest.mark.parametrize("entry", load("configs.yaml"), ids=lambda entry: entry["case"])
def test_configs(entry, tmp_path):
    message, summary = attempt(CONFIGS / f"{entry['case']}.yaml", tmp_path / "run")
    assert matches(message, entry.get("message")), message
    assert (summary is None) == ("message" in entry)


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("config", "changes", "wanted"),
    [
        ("bom", [], 0),
        pytest.param("alias-bomb", [], 2, marks=pytest.mark.nightly),
        pytest.param("small-number", ["stream.model=changelog"], 2, marks=pytest.mark.nightly),
        ("label-null", ["source.label=y", "source.path=../files/infinite.csv", "source.limit=12"], 2),
    ],
)
def test_the_command_line_ends_with_the_code(config, changes, wanted, tmp_path):
    command = [sys.executable, "-m", "pipelines.cli", "replay", str(CONFIGS / f"{config}.yaml")]
    options = [option for change in changes for option in ("--set", change)]
    done = subprocess.run(
        [*command, *options, "--out", str(tmp_path / "run")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == wanted, done.stderr
    assert "Traceback" not in done.stderr
    assert ("error: " in done.stderr) == bool(wanted)
