"""The nightly suite over several sittings: nothing is run twice or left out, however a sitting ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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
    while n and not os.path.exists("go"):
        time.sleep(0.02)
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
