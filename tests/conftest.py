"""What all tests share: the hypothesis profiles and the folder of real data sets."""

from __future__ import annotations

import gc
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests import volume

# Every run draws the same examples, so that a failure on any machine is the failure on every machine; few where a test
# names no number. Nightly runs draw fresh ones, all that a test names (``tests.volume``), and print how to repeat a
# failure.
settings.register_profile("default", max_examples=8, derandomize=True, print_blob=True, deadline=None)
settings.register_profile("nightly", print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

#: Tests of the Ray that a process starts once (``tests/integration/conftest.py``), by day.
ON_RAY = re.compile(r"/test_(keyed_)?ray(_audit|_channel)?\.py::|::TestOnRay::")

#: Seconds that each file has taken in this run.
SECONDS: Counter[str] = Counter()

# Hundreds of processes import the same modules. What one has compiled is kept, also where the shell says otherwise.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests work with one thread each unless they ask for more: several processes share the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"

#: A file system in memory, and the free bytes without which it is left alone: Ray's object stores are there too.
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 4 * 2**30


def pytest_configure(config: pytest.Config) -> None:
    """Leave the order of the files as it is made below: xdist would sort them by their number of tests.

    Temporary files are kept in memory. Thousands of small files are written over, which a journalled disk flushes
    one by one whether it is asked to or not; the tests would wait for it most of their time. ``TMPDIR`` goes first.

    Garbage is looked for more rarely than Python does it by itself: it would go through all tests and modules again
    and again, a fifth of the time in which the tests are collected.
    """
    config.option.loadscopereorder = False
    if config.option.markexpr == "nightly":
        volume.nightly = True
        settings.load_profile("nightly")
    gc.set_threshold(10_000, 20, 50)
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < MEMORY_BYTES:
        # A process of xdist inherits the variable. Two clusters of Ray at once would note their addresses in one file.
        number = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
        if number and os.environ.get("TMPDIR", "").startswith(str(MEMORY / "raydt-")):
            os.environ["TMPDIR"] = tempfile.tempdir = os.path.join(os.environ["TMPDIR"], number)
            os.makedirs(tempfile.tempdir, exist_ok=True)
        return
    # A short name: sockets lie some levels below, and their paths may have 107 bytes.
    folder = tempfile.mkdtemp(prefix="raydt-", dir=MEMORY)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    # At the exit of this process, and after the folder of multiprocessing in it, which goes at -100.
    Finalize(None, shutil.rmtree, [folder], {"ignore_errors": True}, exitpriority=-200)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels once before several processes need them all at the same time."""
    if session.config.getoption("numprocesses", None) and not hasattr(session.config, "workerinput"):
        from tests.kernels import compile_all

        compile_all()


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Leave to nightly runs what a daily one takes in turn; by day, make no items of nightly cases.

    They are three of five, and every process would make and drop them all.

    One case of each test is left, which its mark deselects: a test without cases would be one that has no parameters.
    """
    yield
    config, calls = metafunc.config, metafunc._calls
    turns = next(metafunc.definition.iter_markers("turns"), None)
    if turns and (volume.nightly or not config.option.keyword):  # who asks for a test by name gets it
        daily = [call for call in calls if all(mark.name != "nightly" for mark in call.marks)]
        for call, taken in zip(daily, volume.in_turn(metafunc.function.__name__, daily, *turns.args), strict=True):
            if not taken:
                call.marks.append(pytest.mark.nightly.mark)
    by_name = any("::" in argument for argument in config.args)  # pytest says "not found" of a case that was not made
    if config.option.markexpr.startswith("not nightly") and " or " not in config.option.markexpr and not by_name:
        every = next(metafunc.definition.iter_markers("nightly"), None)
        daily = [call for call in calls if not every and all(mark.name != "nightly" for mark in call.marks)]
        calls[:] = daily or calls[:1]


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest files; a nightly run also takes tests of which other runs take a share, in full.

    How long files take is known from the last run. Begun late, a long one would keep one process busy alone. In the
    first run of a clone the files are in the order of their names: the unit tests, which are short, are the last.
    """
    if volume.nightly:
        for item in items:
            if is_hypothesis_test(getattr(item, "obj", None)) or item.get_closest_marker("share"):
                item.add_marker(pytest.mark.nightly)
    seconds = last_seconds(config)
    items.sort(key=lambda item: -seconds.get(file_of(item.nodeid), 0.0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give one process the few tests of a daily run that share a Ray: others would start one of their own."""
    if volume.nightly or config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneRay(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "Ray" if ON_RAY.search(nodeid) else super()._split_scope(nodeid)

    return OneRay(config, log)


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


def cache_key() -> str:
    """Return the key of pytest's cache for the seconds of files: nightly runs take other tests of a file."""
    return f"seconds/{'nightly' if volume.nightly else 'default'}"


def last_seconds(config: pytest.Config) -> dict[str, float]:
    """Return the seconds that each file took when it ran last; none if pytest has no cache."""
    cache = getattr(config, "cache", None)
    return cache.get(cache_key(), {}) if cache else {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of a test, of which set-up and tear-down are reported on their own."""
    SECONDS[file_of(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what the files of a whole suite have taken; processes of xdist report to this one."""
    config = session.config
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    if whole and not hasattr(config, "workerinput") and getattr(config, "cache", None):
        found = {file: round(seconds, 2) for file, seconds in SECONDS.items()}
        config.cache.set(cache_key(), last_seconds(config) | found)


def pytest_collection_finish() -> None:
    """What is there now stays until the end: searches for garbage pass over it."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _quick_disk() -> Iterator[None]:
    """No power fails while tests run, and disks are slow; commands in processes of their own do flush.

    What is flushed when: ``tests/storage_faults.py``.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real data sets, beside the repository; tests that need it are marked ``data``."""
    if not DATA.is_dir():
        pytest.skip("the real data sets are not here: no folder ../shared/data beside the repository")
    return DATA


@pytest.fixture
def steady_checkpoints() -> Iterator[None]:
    """Checkpoints are waited for."""
    from tests.storage_faults import checkpoints_waited_for

    with checkpoints_waited_for():
        yield


@pytest.fixture
def in_step(steady_checkpoints: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Ray, checkpoints are at the same updates however fast the machine, so that a recovery has one to go back to.

    Nothing is read ahead, and the driver takes the next result only when a checkpoint is written. What is due while one
    is under way is left out, so that there are updates to repeat: of batches of 250 or 500, the third after one with a
    checkpoint is then the next with one.
    """
    from pipelines.running.checkpoint import Checkpointer

    barrier = Checkpointer.barrier

    def seldom(checkpointer: Checkpointer, stream: Any, updates: int) -> Any:
        return None if checkpointer._busy else barrier(checkpointer, stream, updates)

    monkeypatch.setattr(Checkpointer, "barrier", seldom)
    monkeypatch.setattr("pipelines.running.loop.READ_AHEAD", 0)
    monkeypatch.setattr("actors.session.TOGETHER", 1)
