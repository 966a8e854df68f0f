"""Run the whole nightly suite over several sittings: ``python -m tests.nightly [--minutes 55] [PATH...]``.

A sitting runs what no sitting at this commit has finished, longest files first, each file in a process of its own, and
ends after ``--minutes``. Every test is recorded when it ends, so a sitting may be killed at any moment: at most the
tests under way are lost. The folder of records (``.nightly``) has

- ``COMMIT.jsonl``, a line for each test that was started and for each that ended, with its outcome and seconds;
- ``COMMIT.failures.log``, the output of each failure, written when the test fails;
- ``logs/``, what pytest printed for files that did not pass.

Changes that are not committed count as a commit of their own. A test is never run twice at a commit, also not if it
failed. The exit code is 0 if the suite is whole and green, 1 if it is whole and has failures, 3 if tests are left.

This module is also the plugin of pytest (``-p tests.nightly``) that writes the records.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from filelock import FileLock, Timeout

#: Seconds assumed for a test of which no sitting knows the time, and seconds in which a process of pytest starts.
UNKNOWN_SECONDS, START_SECONDS = 1.0, 5.0
#: Seconds in which pytest must end once it was interrupted; it ends the Ray of its tests.
PATIENCE_SECONDS = 60.0
PLUGINS = ["-p", "tests.nightly", "-p", "no:cacheprovider"]
LEFT = 3


class Record:
    """The tests that ended at a commit, those under way, and the seconds that each test took when it last ran."""

    def __init__(self, folder: Path, commit: str) -> None:
        self.folder, self.commit, self.at = folder, commit, 0
        self.lines, self.failures = folder / f"{commit}.jsonl", folder / f"{commit}.failures.log"
        self.interrupted = folder / f"{commit}.interrupted"  # there while a sitting ends the processes under way
        self.outcomes: dict[str, str] = {}
        self.under_way: set[str] = set()
        self.seconds: dict[str, float] = {}
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        self.lines.touch()
        for path in sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime):
            self._take(path.read_bytes(), self.outcomes if path == self.lines else {})
        self.at = self.lines.stat().st_size
        self.under_way.clear()  # with the sittings before

    def _take(self, text: bytes, outcomes: dict[str, str]) -> None:
        for line in text.splitlines():
            with contextlib.suppress(ValueError):  # a process that was killed may have written a part of a line
                entry = json.loads(line)
                if entry["outcome"] == "started":
                    self.under_way.add(entry["test"])
                else:
                    self.under_way.discard(entry["test"])
                    outcomes[entry["test"]], self.seconds[entry["test"]] = entry["outcome"], entry["seconds"]

    def refresh(self) -> None:
        """Read what has been written since."""
        with self.lines.open("rb") as file:
            file.seek(self.at)
            text = file.read()
        self.at += len(text)
        self._take(text, self.outcomes)

    def write(self, test: str, outcome: str, seconds: float = 0.0, output: str = "") -> None:
        """Append a line, and the output of a failure before it; several processes append to the same files."""
        if output:
            _append(self.failures, f"{'=' * 100}\n{test} {outcome}, {time.strftime('%F %T')}\n{output}\n")
        line = json.dumps({"test": test, "outcome": outcome, "seconds": round(seconds, 3)})
        _append(self.lines, f"\n{line}\n")  # the first line break ends what a killed process has left

    def left(self, tests: list[str]) -> list[str]:
        """Return the tests that have not ended."""
        return [test for test in tests if test not in self.outcomes]

    def estimate(self, tests: list[str]) -> float:
        """Return the seconds that tests of one file are expected to take."""
        return START_SECONDS + sum(self.seconds.get(test) or UNKNOWN_SECONDS for test in tests)


def _append(path: Path, text: str) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(text.encode(errors="replace"))


# The plugin.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Name the records, or the file for the names of the tests that are collected."""
    parser.addoption("--nightly-record", nargs=2, metavar=("FOLDER", "COMMIT"))
    parser.addoption("--nightly-names", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    """Write records in a process that :func:`main` has started."""
    if record := config.getoption("--nightly-record"):
        config.pluginmanager.register(Recorder(Record(Path(record[0]), record[1])))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the names of the tests that were collected."""
    if path := session.config.getoption("--nightly-names"):
        path.write_text(json.dumps([item.nodeid for item in session.items]))


class Recorder:
    """Records each test of a process as it starts and as it ends."""

    def __init__(self, record: Record) -> None:
        self.record, self.parent = record, os.getppid()
        self.outcome, self.seconds, self.output = "passed", 0.0, ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what has ended before."""
        left = set(self.record.left([item.nodeid for item in items]))
        items[:] = [item for item in items if item.nodeid in left]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record a start; end if nobody waits for this process any more."""
        if os.getppid() != self.parent:
            pytest.exit("the process that started this one was killed")
        self.outcome, self.seconds, self.output = "passed", 0.0, ""
        self.record.write(nodeid, "started")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the worst outcome of a test's phases with its last one."""
        self.seconds += report.duration
        if report.failed:
            self.outcome = "failed"
            self.output += "\n".join([report.longreprtext, *(f"--- {name}\n{text}" for name, text in report.sections)])
        elif report.skipped and self.outcome == "passed":
            self.outcome = "skipped"
        if self.outcome == "failed" and self.record.interrupted.exists():
            pytest.exit("a test that an interrupt makes fail has not ended")
        if report.when == "teardown":
            self.record.write(report.nodeid, self.outcome, self.seconds, self.output)


# The program.


class Sitting:
    """One sitting: the files that are left, and the processes under way."""

    def __init__(self, record: Record, tests: list[str], deadline: float, processes: int) -> None:
        self.record, self.deadline, self.processes = record, deadline, processes
        self.files: dict[str, list[str]] = {}
        for test in tests:
            self.files.setdefault(test.partition("::")[0], []).append(test)
        self.running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        self.stopped = ""

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Stop at the next look, as a signal asks."""
        self.stopped = self.stopped or signal.Signals(number).name

    def run(self) -> None:
        """Run files until none is left, the time is over or a signal comes."""
        waiting = sorted(self.files, key=lambda file: -self.record.estimate(self.record.left(self.files[file])))
        waiting = [file for file in waiting if self.record.left(self.files[file])]
        first = True
        while (waiting or self.running) and not self.stopped:
            room = self.deadline - time.monotonic()
            fits = [f for f in waiting if first or self.record.estimate(self.record.left(self.files[f])) <= room]
            if fits and len(self.running) < self.processes:
                waiting.remove(fits[0])
                self.start(fits[0])
                first = False  # a file that takes longer than a sitting is begun at its start, and goes on in the next
                continue
            if room <= 0:
                self.stopped = "the time is over"
            elif not fits and not self.running:
                break
            time.sleep(0.2)
            for file in [file for file, (process, _) in self.running.items() if process.poll() is not None]:
                waiting[:0] = self.ended(file)
        self.interrupt()

    def start(self, file: str) -> None:
        """Run the tests of a file that are left."""
        command = [sys.executable, "-m", "pytest", "-q", "-m", "nightly", *PLUGINS]
        record = ["--nightly-record", str(self.record.folder), self.record.commit]
        with self.log(file).open("wb") as log:
            process = subprocess.Popen(
                [*command, *record, file], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.running[file] = process, time.monotonic()

    def log(self, file: str) -> Path:
        """Return where the output of a file's process is kept."""
        return self.record.folder / "logs" / (file.replace("/", "__") + ".log")

    def ended(self, file: str) -> list[str]:
        """Take note of a process that has ended by itself; return its file if it is to be started again.

        A test that was started and has no outcome took its process with it. Tests that were not started, although
        their process ended, are lost: their module cannot be imported, or they have other names each time.
        """
        process, begun = self.running.pop(file)
        self.record.refresh()
        left = self.record.left(self.files[file])
        crashed = [test for test in left if test in self.record.under_way]
        if left:
            output = f"exit code {process.returncode}\n{self.log(file).read_text(errors='replace')[-20_000:]}"
            for test in crashed or left:
                self.record.write(test, "crashed" if crashed else "lost", 0.0, output)
                output = f"exit code {process.returncode}, as above"
            self.record.refresh()
        elif process.returncode == 0:
            self.log(file).unlink()
        again = self.record.left(self.files[file])
        self.tell(file, time.monotonic() - begun)
        return [file] if again else []

    def tell(self, file: str, seconds: float) -> None:
        """Print a line of progress."""
        counts = Counter(self.record.outcomes.get(test, "left") for test in self.files[file])
        found = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        done = sum(not self.record.left(tests) for tests in self.files.values())
        print(f"{time.strftime('%T')} {done}/{len(self.files)} {file}: {found}, {seconds:.0f} s", flush=True)

    def interrupt(self) -> None:
        """End the processes under way; what their tests have not finished is left."""
        self.record.interrupted.touch()
        for process, _ in self.running.values():
            process.send_signal(signal.SIGINT)
        patience = time.monotonic() + PATIENCE_SECONDS
        for file, (process, begun) in self.running.items():
            try:
                process.wait(max(0.0, patience - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self.record.refresh()
            self.tell(file, time.monotonic() - begun)
        self.running.clear()
        self.record.interrupted.unlink()

    def summary(self, minutes: float) -> int:
        """Print what is left, or that the suite is whole; return the exit code."""
        tests = [test for file in self.files.values() for test in file]
        left = {file: found for file, every in self.files.items() if (found := self.record.left(every))}
        counts = Counter(outcome for test, outcome in self.record.outcomes.items() if test in set(tests))
        failed = sorted(t for t in tests if self.record.outcomes.get(t) in ("failed", "crashed", "lost"))
        for test in failed:
            print(f"{self.record.outcomes[test]}: {test}")
        if failed:
            print(f"The output of failures is in {self.record.failures}")
        passed = f"{counts['passed']} passed, {counts['skipped']} skipped, {len(failed)} failed"
        if left:
            seconds = sum(self.record.estimate(found) for found in left.values()) / self.processes
            why = f"Stopped ({self.stopped}). " if self.stopped else ""
            sittings = -(-seconds // (60 * minutes))
            print(
                f"{why}Left: {sum(map(len, left.values()))} of {len(tests)} tests in {len(left)} of {len(self.files)} "
                f"files, about {seconds / 60:.0f} min, {sittings:.0f} more sittings of {minutes:g} min; "
                f"so far {passed}, on commit {self.record.commit}."
            )
            return LEFT
        print(f"Whole, {'RED' if failed else 'green'}: {passed}, on commit {self.record.commit}.")
        return int(bool(failed))


def commit_here() -> str:
    """Return the commit of the current folder, with a digest of what has changed since."""
    head, changes = (
        subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout
        for words in (["rev-parse", "--short=12", "HEAD"], ["diff", "HEAD"])
    )
    return head.strip() + (f"+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else "")


def collected(folder: Path, paths: list[str]) -> list[str]:
    """Return the names of the nightly tests of some paths."""
    names = folder / "names.json"
    names.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "nightly", *PLUGINS]
    done = subprocess.run(
        [*command, "--nightly-names", str(names), *paths], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 5):
        raise SystemExit(f"{done.stdout[-5_000:]}\nThe tests cannot be collected.")
    tests: list[str] = json.loads(names.read_text())
    return tests


def main(arguments: list[str] | None = None) -> int:
    """Run one sitting."""
    begun = time.monotonic()
    parser = argparse.ArgumentParser("python -m tests.nightly", description="Run one sitting of the nightly suite.")
    parser.add_argument("paths", nargs="*", help="files or folders; the whole suite if none are given")
    parser.add_argument("--minutes", type=float, default=55, help="how long the sitting takes (%(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="how many files run at a time (%(default)s)")
    parser.add_argument("--record", type=Path, default=Path(".nightly"), help="folder of records (%(default)s)")
    told: Any = parser.parse_args(arguments)
    told.record.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(told.record / "lock", timeout=0):
            record = Record(told.record.resolve(), commit_here())
            record.interrupted.unlink(missing_ok=True)  # of a sitting that was killed
            tests = collected(record.folder, told.paths)
            if Path("tests/kernels.py").exists():
                from tests.kernels import compile_all

                compile_all()
            sitting = Sitting(record, tests, begun + 60 * told.minutes, told.processes)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, sitting.stop)
            print(f"{len(record.left(tests))} of {len(tests)} tests are left on commit {record.commit}.", flush=True)
            sitting.run()
            return sitting.summary(told.minutes)
    except Timeout:
        raise SystemExit(f"Another sitting is under way: {told.record / 'lock'} is locked.") from None


if __name__ == "__main__":
    sys.exit(main())
