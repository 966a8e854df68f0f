"""Bad input: the message for each file of the corpus, and input that no committed file can show."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import load_config, replay
from pipelines.auditing import audit_run
from pipelines.prediction import predict_file
from raydt.errors import ConfigError, InputError, ModelFileError, RaydtError
from tests.corpus.cases import CONFIGS, FILES, cases, config_of, load
from tests.refusals import refused

# -- corpus ----------------------------------------------------------------------------------------------------------
# Every case of the corpus through the real job: what is said, what is kept, what is passed over.

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


# -- corpus places ---------------------------------------------------------------------------------------------------
# Bad input that no committed file can show: places, permissions, sizes, and damaged folders of our own.

needs_permissions = pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of the good rows."""
    return Path(replay(config_of("clean.csv", {}, {}), tmp_path_factory.mktemp("finished") / "run").path)


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it to damage."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def config(path, **source):
    return config_of("clean.csv", {"path": str(path), **source}, {})


def message(config, out):
    with pytest.raises(RaydtError) as caught:
        replay(config, out)
    assert caught.value.exit_code == 2
    return str(caught.value)


class TestPlaces:
    def test_a_folder_called_like_a_file(self, tmp_path):
        (tmp_path / "t.csv").mkdir()
        assert "the folder has no file of a format" in message(config(tmp_path / "t.csv"), tmp_path / "run")

    def test_a_loop_of_links(self, tmp_path):
        (tmp_path / "a.csv").symlink_to(tmp_path / "b.csv")
        (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
        assert f"{tmp_path}/a.csv" in message(config(tmp_path / "a.csv"), tmp_path / "run")
        (tmp_path / "a.yaml").symlink_to(tmp_path / "a.yaml")
        with refused("configs.unreadable", ConfigError):
            load_config(tmp_path / "a.yaml")

    def test_a_config_that_is_a_folder_or_too_large(self, tmp_path):
        with refused("configs.unreadable", ConfigError, reason="Is a directory"):
            load_config(tmp_path)
        (tmp_path / "big.yaml").write_bytes(b"# " + b"x" * (5 << 20))
        with refused("configs.large_file", ConfigError, most=4):
            load_config(tmp_path / "big.yaml")

    @needs_permissions
    def test_a_file_that_may_not_be_read(self, tmp_path):
        shutil.copy(FILES / "clean.csv", tmp_path)
        (tmp_path / "clean.csv").chmod(0)
        assert "Permission denied" in message(config(tmp_path / "clean.csv"), tmp_path / "run")

    @needs_permissions
    def test_a_run_folder_that_may_not_be_written(self, tmp_path):
        (tmp_path / "closed").mkdir(mode=0o555)
        assert "--out" in message(config(FILES / "clean.csv"), tmp_path / "closed" / "run")


class TestRunFolders:
    @pytest.mark.parametrize("inside", ["file", "file/run", "file/deep/run"])
    def test_a_file_in_the_way(self, inside, tmp_path):
        (tmp_path / "file").write_text("mine")
        said = message(config(FILES / "clean.csv"), tmp_path / inside)
        assert said.startswith(f"--out {tmp_path}/{inside}: ")
        assert (tmp_path / "file").read_text() == "mine"

    @pytest.mark.parametrize(
        ("out", "problem"),
        [
            ("s4://bucket/run", r"s4://bucket/run: .*: Unrecognized filesystem type in URI: s4://.*"),
            ("a\0b", r"--out .*/a\\0b: cannot be accessed: Embedded NUL char in path.*"),
            ("x" * 300, r"--out .*/x+: cannot be accessed: .*File name too long"),
        ],
    )
    def test_places_that_cannot_be(self, out, problem, tmp_path):
        place = out if "://" in out else f"{tmp_path}/{out}"
        assert re.fullmatch(problem, message(config(FILES / "clean.csv"), place), re.DOTALL)


class TestSizes:
    """What is very large works, or is refused, within seconds, and no message repeats it."""

    LONG = "x" * 1_000_000

    def test_a_long_string_is_a_category_like_any_other(self, tmp_path):
        table = pa.table({"k": [0, 1], "s": [self.LONG, "u"], "y": ["no", "yes"]})
        pq.write_table(table, tmp_path / "t.parquet")
        assert replay(config(tmp_path / "t.parquet", kind="parquet"), tmp_path / "run").summary["updates"] == 2

    @pytest.mark.parametrize("bad", ["n", "k", "op"])
    def test_a_long_string_does_not_fill_the_message(self, bad, tmp_path):
        text = (FILES / "changelog.csv").read_text().splitlines()
        row = {"op": "delete", "k": "99", "a": "", "n": "", "s": "", "y": ""}
        if bad == "n":
            row |= {"op": "insert", "a": "1.0", "s": "red", "y": "no"}
        row[bad] = self.LONG
        (tmp_path / "t.csv").write_text("\n".join([*text, ",".join(row.values())]) + "\n")
        job = config_of("changelog.csv", {"path": str(tmp_path / "t.csv"), "op": "op"}, {"model": "changelog"})
        said = message(job, tmp_path / "run")
        assert len(said) < 1000
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["updates"] == len(text) - 1

    def test_a_long_column_name_does_not_fill_the_message(self, tmp_path):
        (tmp_path / "t.csv").write_text(f"k,{self.LONG},label\n1,2,no\n")
        assert len(message(config(tmp_path / "t.csv"), tmp_path / "run")) < 1000

    @pytest.mark.nightly
    @pytest.mark.parametrize("kind", [pytest.param("parquet", marks=pytest.mark.nightly), "csv"])
    def test_30_000_columns(self, kind, tmp_path):
        d = 30_000
        names = [f"c{j}" for j in range(d)]
        if kind == "csv":
            lines = [",".join(["y", *names]), ",".join(["no", *["1"] * d]), ",".join(["yes", *["2"] * d])]
            (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
        else:
            columns = {"y": ["no", "yes"], **dict.fromkeys(names, np.array([1, 2], dtype=np.int8))}
            pq.write_table(pa.table(columns), tmp_path / "t.parquet", write_statistics=False, use_dictionary=False)
        began = time.perf_counter()
        job = config(tmp_path / f"t.{kind}", kind=kind, id=None)
        job["learner"]["max_depth"] = 1
        assert replay(job, tmp_path / "run").summary["updates"] == 2
        assert time.perf_counter() - began < 40  # what grows with the square would take longer

    @pytest.mark.nightly
    def test_a_misspelt_name_among_100_000(self, tmp_path):
        (tmp_path / "t.csv").write_text(",".join(["k", *(f"column{j}" for j in range(100_000)), "label"]) + "\n")
        began = time.perf_counter()
        assert len(message(config(tmp_path / "t.csv", features=["colum5"]), tmp_path / "run")) < 1500
        assert time.perf_counter() - began < 60


class TestModels:
    """Folders that ``predict`` and ``audit`` read."""

    def refusal(self, run, tmp_path):
        with pytest.raises(ModelFileError) as caught:
            predict_file(run, FILES / "clean.parquet", tmp_path / "out.parquet")
        assert not (tmp_path / "out.parquet").exists()
        return str(caught.value)

    def test_no_model(self, tmp_path):
        for place in (tmp_path, tmp_path / "absent", FILES / "clean.csv"):
            with refused("models.no_model", ModelFileError):
                predict_file(place, FILES / "clean.parquet", tmp_path / "out.parquet")

    @pytest.mark.parametrize("how", ["empty", "cut", "text", "value", "version", "folder"])
    def test_a_damaged_manifest(self, how, run, tmp_path):
        manifest = run / "model" / "manifest.json"
        text = manifest.read_text()
        changed = {
            "empty": "",
            "cut": text[: len(text) // 2],
            "text": "hello",
            "value": text.replace('"yes"', '"yea"'),
            "version": text.replace('"format_version": ', '"format_version": 9'),
        }
        if how == "folder":
            manifest.unlink()
            manifest.mkdir()
        else:
            manifest.write_text(changed[how])
        said = self.refusal(run, tmp_path)
        assert str(run / "model") in said
        assert ("is of format 9" in said) == (how == "version")

    def test_data_that_do_not_fit_the_model(self, run, tmp_path):
        out = tmp_path / "out.parquet"
        with refused("updates.no_feature", column="n"):
            predict_file(run, FILES / "fewer-columns.parquet", out)
        with refused("updates.other_column", column="n", known="numbers", found="text"):
            predict_file(run, FILES / "other-types.parquet", out)
        with pytest.raises(InputError, match=r"short-row\.csv, row 8: .*--on-error skip"):
            predict_file(run, FILES / "short-row.csv", out)
        assert not out.exists()
        assert predict_file(run, FILES / "short-row.csv", out, on_error="skip")["skipped"] == 1
        assert pq.read_table(out)["prediction"].null_count == 1

    @pytest.mark.parametrize(
        ("file", "content", "problem"),
        [
            ("summary.json", "", "runs.damaged_summary"),
            ("summary.json", "[]", "runs.damaged_summary"),
            ("summary.json", None, "runs.not_ended"),
            ("config.yaml", "source: [", "runs.damaged_config"),
            ("config.yaml", "\0", "runs.damaged_config"),
            ("config.yaml", "just text", "runs.damaged_config"),
            ("config.yaml", None, "runs.damaged_config"),
            ("checkpoints/16/manifest.json", "{}", None),
            ("checkpoints/16/manifest.json", None, "runs.no_states"),
        ],
    )
    def test_an_audit_of_a_damaged_run(self, file, content, problem, run):
        if content is None:
            (run / file).unlink()
        else:
            (run / file).write_text(content)
        with pytest.raises(InputError) as caught:
            audit_run(run)
        assert problem is None or caught.value.message.id == problem
        assert str(caught.value).startswith(str(run if content is None else run / file.removesuffix("/manifest.json")))
