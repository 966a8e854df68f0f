"""The programs beside the tests: sittings of the nightly suite, and benchmarks."""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

# -- nightly ---------------------------------------------------------------------------------------------------------
# The nightly suite over several sittings: nothing is run twice or left out, however a sitting ends.

ROOT = Path(__file__).parents[2]

FILES = {
    "pytest.ini": "[pytest]\nmarkers =\n    nightly: at night\naddopts = -m 'not nightly'\n",
    "checks/test_plain.py": """
import pytest

def test_by_day():
    raise AssertionError

@pytest.mark.nightly
@pytest.mark.parametrize("n", range(3))
def test_numbers(n):
    open("ran", "a").write(f"{n}\\n")
""",
    "checks/test_wrong.py": """
import os
import pytest

pytestmark = pytest.mark.nightly

def test_before():
    open("ran", "a").write("before\\n")

def test_that_fails():
    print("seen before the failure")
    raise ValueError("not as it should be")

def test_that_takes_its_process_with_it():
    os._exit(7)

def test_after():
    open("ran", "a").write("after\\n")

def test_skipped():
    pytest.skip("not here")
""",
    "checks/test_slow.py": """
import os
import time
import pytest

@pytest.mark.nightly
@pytest.mark.parametrize("n", [0, 1])
def test_slow(n):
    open("ran", "a").write(f"{n} begins\\n")
    try:
        while n and not os.path.exists("go"):
            time.sleep(0.02)
    except KeyboardInterrupt:
        raise AssertionError from None  # as a run that ends in order
    open("ran", "a").write(f"{n} ends\\n")
""",
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "checks"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


@contextlib.contextmanager
def sitting(here: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.nightly", "--processes", "1", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(command, cwd=here, env=environment, stdout=subprocess.PIPE, text=True) as process:
        yield process


def printed(here: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a sitting, and what it prints."""
    with sitting(here, *arguments) as process:
        text = process.communicate(timeout=120)[0]
    return process.returncode, text


def ran(here: Path) -> str:
    """Return the notes of the tests."""
    return (here / "ran").read_text() if (here / "ran").exists() else ""


def wait_until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end
        time.sleep(0.02)


def passed(here: Path) -> list[str]:
    """The tests that the newest record says have passed."""
    newest = max((here / ".nightly").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    entries = [json.loads(line) for line in newest.read_text().splitlines() if line]
    return [entry["test"] for entry in entries if entry["outcome"] == "passed"]


def test_failures_and_crashes_are_kept_and_not_run_again(here: Path) -> None:
    for _ in range(2):
        code, text = printed(here, "checks/test_plain.py", "checks/test_wrong.py")
        assert "Whole, RED: 5 passed, 1 skipped, 2 failed, on commit " in text
        assert "crashed: checks/test_wrong.py::test_that_takes_its_process_with_it" in text
        assert code == 1
    assert sorted(ran(here).split()) == ["0", "1", "2", "after", "before"]
    failures = next((here / ".nightly").glob("*.failures.log")).read_text()
    for kept in ("not as it should be", "seen before the failure", "exit code 7"):
        assert kept in failures


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.nightly)])
def test_a_sitting_that_is_killed_is_continued(here: Path, number: signal.Signals) -> None:
    paths = ["checks/test_plain.py", "checks/test_slow.py"]
    with sitting(here, *paths) as process:
        wait_until(lambda: "1 begins" in ran(here))
        process.send_signal(number)
        if number == signal.SIGTERM:
            text = process.communicate(timeout=60)[0]
            assert re.search(r"Stopped \(SIGTERM\)\. Left: \d of 5 tests in \d of 2 files, .* 1 more sittings", text)
    assert process.returncode == (3 if number == signal.SIGTERM else -number)
    before = set(passed(here))
    assert "checks/test_slow.py::test_slow[0]" in before
    (here / "go").touch()
    if number == signal.SIGKILL:  # the process of the tests ends with the test under way
        wait_until(lambda: "checks/test_slow.py::test_slow[1]" in passed(here))
    code, text = printed(here, *paths)
    assert re.search(r"Whole, green: 5 passed, 0 skipped, 0 failed, on commit \w{12}\.", text)
    assert code == 0
    assert len(passed(here)) == len(set(passed(here))) == 5
    assert [ran(here).count(line) for line in ("0\n", "1\n", "2\n", "0 ends", "1 ends")] == [1] * 5


@pytest.mark.nightly
def test_the_time_ends_a_sitting_and_another_commit_begins_anew(here: Path) -> None:
    code, text = printed(here, "--minutes", "0.0001")
    assert "Stopped (the time is over). Left: " in text
    assert code == 3
    (here / "go").touch()
    (here / "checks" / "test_wrong.py").unlink()
    code, text = printed(here)
    assert re.search(r"5 of 5 tests are left on commit \w{12}\+\w{8}\.", text)
    assert code == 0
    assert len(passed(here)) == 5


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        (["-m", "not nightly"], "1/2 tests collected (1 deselected)"),
        (["-m", "nightly"], "3/4 tests collected (1 deselected)"),
        (["-m", ""], "4 tests collected"),
        (["-m", "not nightly or nightly"], "4 tests collected"),
        (["checks/test_plain.py::test_numbers[2]"], "no tests collected (1 deselected)"),
    ],
)
def test_items_of_nightly_cases_are_made_at_night_only(arguments: list[str], last: str, here: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.conftest"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    paths = [] if "::" in arguments[0] else ["checks/test_plain.py"]
    done = subprocess.run([*command, *arguments, *paths], cwd=here, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].startswith(last), done.stdout + done.stderr


# -- benchmarks ------------------------------------------------------------------------------------------------------
# Benchmarks use names that exist, and one command of each kit prints its tables at a tiny size.

FILES_BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))


@pytest.mark.parametrize("file", FILES_BENCHMARKS, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_a_benchmark_imports_of_raydt_is_there(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("raydt", "actors", "pipelines"):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


def names_of(file: Path) -> set[str]:
    """The names at the top level of a file, imported ones included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names


@pytest.mark.parametrize("file", FILES_BENCHMARKS, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_a_benchmark_imports_of_another_is_there(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            other = (ROOT / "benchmarks" / node.module.replace(".", "/")).with_suffix(".py")
            if other in FILES_BENCHMARKS:
                assert {alias.name for alias in node.names} <= names_of(other)


@pytest.fixture
def _kit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def table_of(folder: str, name: str) -> Any:
    """The function that prints a table."""
    module, _, function = importlib.import_module(f"{folder}.run").TABLES[name].partition(":")
    return getattr(importlib.import_module(module), function)


@pytest.mark.usefixtures("_kit")
@pytest.mark.parametrize("folder", ["sparse", "ctree", "gbdt"])
def test_every_table_has_its_function(folder: str) -> None:
    assert all(callable(table_of(folder, name)) for name in importlib.import_module(f"{folder}.run").TABLES)


@pytest.mark.nightly
@pytest.mark.usefixtures("_kit")
@pytest.mark.parametrize("folder", ["sparse", "ctree", "gbdt"])
def test_a_command_prints_its_tables(folder: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    request = importlib.import_module("harness").Request
    if folder == "sparse":
        for name, value in {"ROWS": 60, "FEATURES": 40, "PARTS": 3}.items():
            monkeypatch.setattr(importlib.import_module("sparse.figures"), name, value)
        table_of(folder, "points")(request(seeds=1))
    elif folder == "ctree":
        table_of(folder, "figure2")(request(trees=2, examples=5_000, settings=2, jobs=1))
    else:
        data, draws = importlib.import_module("gbdt.data"), np.random.default_rng(3)
        X = draws.normal(size=(300, 4))
        split = data.Split("tiny", X[:240], (X[:240, 0] > 0).astype(int), X[240:], (X[240:, 0] > 0).astype(int), False)
        monkeypatch.setitem(data.SETS, "pendigits", lambda: split)
        table_of(folder, "backdoor")(request(data=["pendigits"], derivatives=["never"], seeds=1))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) >= 3


@pytest.mark.nightly
@pytest.mark.usefixtures("_kit")
def test_a_measurement_of_the_paper_lasts(tmp_path: Path) -> None:
    bench = sets = importlib.import_module("paper.bench")
    draws = np.random.default_rng(5)
    y = np.repeat(draws.integers(0, 2, 60), 5)
    columns = {"a": y + draws.normal(0, 0.7, 300), "b": draws.normal(size=300), "y": np.where(y, "yes", "no")}
    pq.write_table(pa.table(columns), tmp_path / "small.parquet")
    data = sets.DataSet("Small", "small", "yes", 300, "Electricity", True)
    measured = bench.Bench(tmp_path / "out", sets.Folder(tmp_path)).ours(data, 0.1, 5, "sliding_window", 100)
    assert (measured.scored, measured.updates) == (200, 500)
    assert bench.Bench(tmp_path / "out").ours(data, 0.1, 5, "sliding_window", 100) == measured


@pytest.mark.usefixtures("_kit")
def test_the_critical_path_has_the_slowest_shard_of_each_step() -> None:
    scaling = importlib.import_module("scaling")
    shards = [[([1.0, 0.25, 2.0], 100), ([0.5], 0)], [([3.0, 0.125, 1.0], 50), ([0.75], 0)]]
    path = scaling.path_of(shards, 0.5, 9.0, 1, scaling.Latency(call=0.25, swap=0.125))
    assert path.path == 0.5 + (3.0 + 0.25 + 2.0) + 0.75 + 3 * 0.25 + 0.125
    assert (path.waits, path.megabytes) == (4, 100 / 1e6)


@pytest.mark.usefixtures("_kit")
@pytest.mark.parametrize(
    ("two", "costs"),
    [(2.6, ["4", "none up to 4", "no peer"]), (2.2, ["none up to 2", "none up to 2", "no peer"])],
    ids=["a path that predicts two shards", "a path that does not"],
)
def test_cost_is_the_fewest_shards_that_win(two: float, costs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = importlib.import_module("scaling")
    monkeypatch.setattr(scaling, "CORES", 2)
    contest = scaling.Contest("gbdt", scaling.WORKS["gbdt"])
    contest.walls = {"one thread": [2.0], "all threads": [1.0], "1 shards": [3.0], "2 shards": [2.5]}
    contest.paths = {n: [scaling.Path(0, path, 0, 0, 0)] for n, path in {1: 3.1, 2: two, 4: 1.5}.items()}
    assert [contest.cost(name) for name in ("one thread", "all threads", "peer")] == costs
