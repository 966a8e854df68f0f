"""Work that is divided among threads, and the threads of commands."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.shard import Pulse
from pipelines import replay, resume, sweep, update
from pipelines.auditing import audit_run, audit_state, verify_receipts, verify_run
from pipelines.config import load_config
from pipelines.operation import load_yaml
from pipelines.prediction import explain_row, export_model, predict_file
from pipelines.purging import purge
from pipelines.receipts import ReceiptFile
from pipelines.validation import look_at
from raydt import parallel as cpus
from raydt import parallel as threads
from raydt.errors import ConfigError
from raydt.parallel import in_order, limited, ranges, run, threads_of
from tests.crews import crew
from tests.nets.test_interrupts import PACKAGE, at_bytecode

# -- parallel --------------------------------------------------------------------------------------------------------
# Work divided among threads: the same results in the same order, errors, interrupts, forks, and how many CPUs.

NUMBERS = (1, 2, 3, 5)

#: Files whose bytecodes take locks in a divided call: of Python itself, too, where a signal may arrive.
LOCKS = (PACKAGE, threading.__file__, str(Path(futures.__file__).parent))


@pytest.mark.parametrize("n", NUMBERS)
def test_results_come_in_order(n: int) -> None:
    with limited(n):
        assert run([lambda i=i: i * i for i in range(40)]) == [i * i for i in range(40)]
        assert run([]) == []


def test_several_threads_work_at_the_same_time() -> None:
    meeting = threading.Barrier(3)
    with limited(3):
        assert sorted(run([lambda: meeting.wait(20)] * 3)) == [0, 1, 2]


@pytest.mark.parametrize("n", NUMBERS)
def test_the_first_error_is_raised_when_nobody_works(n: int) -> None:
    at_work: list[int] = []

    def task(i: int) -> None:
        at_work.append(i)
        try:
            if i == 2:
                raise ValueError(i)
            time.sleep(0.002)
        finally:
            at_work.remove(i)

    with limited(n), pytest.raises(ValueError, match="2"):
        run([lambda i=i: task(i) for i in range(50)])
    assert not at_work


def test_an_interrupt_waits_for_the_tasks_that_have_begun() -> None:
    ended = threading.Event()
    meeting = threading.Barrier(2)  # each of the two threads has a task
    main = threading.get_ident()

    def task() -> None:
        meeting.wait(20)
        if threading.get_ident() == main:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.3)
        ended.set()

    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    try:
        with limited(2), pytest.raises(KeyboardInterrupt):
            run([task, task])
    finally:
        signal.signal(signal.SIGINT, former)
    assert ended.is_set()


def test_an_interrupt_counts_more_than_an_error() -> None:
    met = threading.Barrier(2)

    def task(error: BaseException) -> None:
        met.wait(20)
        raise error

    with limited(2), pytest.raises(KeyboardInterrupt):
        run([partial(task, ValueError()), partial(task, KeyboardInterrupt())])


def test_no_thread_is_started_when_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calling thread does the work then."""
    monkeypatch.setattr(threads, "_ending", [True])
    with limited(3):
        assert run([lambda i=i: i for i in range(5)]) == list(range(5))
        assert list(in_order(iter([lambda i=i: i for i in range(5)]), 3, 3)) == list(range(5))


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_after_an_error_no_task_is_begun(kind: type[BaseException]) -> None:
    """Those that other threads had begun end before the error is raised."""
    begun, ended = list[int](), list[int]()

    def task(i: int) -> None:
        begun.append(i)
        if i == 3:
            raise kind
        time.sleep(0.02)
        ended.append(i)

    with limited(3), pytest.raises(kind):
        run([partial(task, i) for i in range(50)])
    assert sorted(begun) == list(range(len(begun)))
    assert len(begun) <= 3 + 1 + 2
    assert sorted(begun) == sorted([*ended, 3])
    time.sleep(0.1)
    assert len(begun) <= 3 + 1 + 2


def test_an_interrupted_caller_leaves_the_tasks_that_nobody_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[int]()
    helps = threading.Event()

    def task(i: int) -> None:
        helps.set()
        begun.append(i)
        time.sleep(0.02)

    def interrupted(work: threads._Work[None]) -> None:
        if threading.current_thread() is threading.main_thread():
            assert helps.wait(20)
            raise KeyboardInterrupt
        former(work)

    former = threads._Work.take
    monkeypatch.setattr(threads._Work, "take", interrupted)
    with limited(2), pytest.raises(KeyboardInterrupt):
        run([partial(task, i) for i in range(500)])
    assert 0 < len(begun) < 400
    before = len(begun)
    time.sleep(0.1)
    assert len(begun) == before


def test_a_strike_before_any_bytecode_leaves_all_threads_free() -> None:
    """Also between the bytecode that takes a lock and the next one, and in Python's own modules."""
    met = threading.Barrier(3)
    tasks = [partial(time.sleep, 1e-4)] * 6
    with limited(3):
        with at_bytecode(-1, LOCKS) as strike:
            run(tasks)
        for at in range(strike.moment + 60):
            with contextlib.suppress(KeyboardInterrupt), at_bytecode(at, LOCKS):
                run(tasks)
            if at % 8 == 7:
                assert sorted(run([lambda: met.wait(20)] * 3)) == [0, 1, 2]


def test_the_pool_has_no_more_threads_than_a_call_may_use() -> None:
    before = len(threads._started)
    with limited(3):
        for _ in range(4000):
            run([int, int, int])
    assert len(threads._started) == max(before, 2)
    assert len(threads.clocks()) <= len(threads._started)


def test_a_program_ends_when_no_thread_works() -> None:
    """Also one whose reading ahead was neither read to its end nor closed."""
    program = """
import sys, time
from raydt.parallel import ahead
def items():
    yield 1
    time.sleep(0.3)
    print("all", flush=True)
    yield 2
rows = ahead(items())
print(next(rows), flush=True)
sys.modules["kept"] = rows
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout.split(), ended.stderr) == (["1", "all"], "")


def test_what_raised_keeps_nothing_of_the_tasks() -> None:
    held = np.zeros(10)
    kept = weakref.ref(held)

    def task(of: npt.NDArray[np.float64]) -> None:
        raise ValueError(len(of))

    gc.disable()
    try:
        with limited(2), pytest.raises(ValueError, match="10"):
            run([partial(task, held), partial(task, held)])
        del held
        assert kept() is None
    finally:
        gc.enable()


def test_a_task_that_divides_work_does_so_alone() -> None:
    with limited(4):
        assert run([threads.threads] * 8) == [1] * 8
        with limited(8):
            assert threads.threads() == 4
        assert threads.threads() == 4


def test_many_python_threads_divide_work_at_once() -> None:
    def work(seed: int) -> list[int]:
        with limited(3):
            return run([lambda i=i: seed + i for i in range(200)])

    with ThreadPoolExecutor(8) as others:
        assert list(others.map(work, range(32))) == [[seed + i for i in range(200)] for seed in range(32)]


def test_a_forked_child_has_a_pool_of_its_own() -> None:
    """Its threads do work: two tasks meet."""
    with limited(2):
        run([threading.Barrier(2).wait] * 2)
        child = os.fork()
        if child == 0:
            try:
                os._exit(sorted(run([partial(threading.Barrier(2).wait, 20)] * 2)) != [0, 1])
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0


def test_the_time_of_helpers_is_seen() -> None:
    meeting = threading.Barrier(2)
    pulse = Pulse()
    pulse.beat()
    with limited(2):
        idents = run([lambda: (meeting.wait(20), threading.get_ident())[1]] * 2)
        other = next(ident for ident in idents if ident != threading.get_ident())
        assert time.pthread_getcpuclockid(other) in threads.clocks()

        def work() -> None:
            meeting.wait(20)
            if threading.get_ident() != threading.main_thread().ident:
                began = time.thread_time()
                while time.thread_time() - began < 0.1:
                    pass

        before, own = pulse.seconds(), time.thread_time()
        run([work] * 2)
        assert pulse.seconds() - before - (time.thread_time() - own) > 0.09


def test_without_threads_the_caller_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "submit", refuse)
    with limited(4):
        assert run([lambda i=i: i for i in range(5)]) == list(range(5))


def test_tasks_handle_errors_of_numbers_as_the_caller_does() -> None:
    meeting = threading.Barrier(2)

    def divide() -> float:
        meeting.wait(20)
        return float(np.divide(1.0, 0.0))

    with limited(2), np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        run([divide, divide])


@given(st.integers(0, 1000), st.integers(1, 300), st.integers(1, 5), st.integers(1, 7))
def test_ranges_cover_all_items_once(n: int, smallest: int, each: int, most: int) -> None:
    with limited(most):
        parts = ranges(n, smallest, each)
    assert [i for part in parts for i in range(n)[part]] == list(range(n))
    sizes = [part.stop - part.start for part in parts]
    assert len(parts) <= most * each
    assert len(parts) == 1 or (min(sizes) >= smallest and max(sizes) - min(sizes) <= 1)


def test_n_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cpus_here", lambda: 6)
    given = {None: 6, -1: 6, -2: 5, -6: 1, -9: 1, 1: 1, 2: 2, 40: 40}
    assert {n: threads_of(n) for n in given} == given


def test_cpus_of_affinity_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    monkeypatch.setattr(cpus, "_quota", lambda: 8)
    for named, count in {"": 8, "3": 3, "4,2": 4, "64": 8, "0": 8, "many": 8}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", named)
        assert cpus.cpus_here() == count


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"cpu.max": "250000 100000"}, 3),
        ({"cpu.max": "max 100000"}, 1 << 30),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}, 2),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, 1 << 30),
        ({}, 1 << 30),
    ],
)
def test_quota_of_a_control_group(files: dict[str, str], count: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    assert cpus._quota_of(tmp_path) == count


@pytest.mark.parametrize(
    ("group", "files", "count"),
    [
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, 2),
        ("0::/a/b", {"a/b/cpu.max": "300000 100000", "cpu.max": "900000 100000"}, 3),
        ("4:cpu,cpuacct:/a\n3:memory:/b", {"cpu,cpuacct/a/cpu.max": "100000 100000", "memory/b/cpu.max": "1 1"}, 1),
        ("0::/\udce4", {}, 1 << 30),
        ("no group", {}, 1 << 30),
    ],
)
def test_quotas_of_the_groups_above_count(
    group: str, files: dict[str, str], count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "groups").write_text(group + "\n", errors="surrogateescape")
    monkeypatch.setattr(cpus, "_CGROUPS", tmp_path)
    monkeypatch.setattr(cpus, "_GROUPS_OF_THIS_PROCESS", tmp_path / "groups")
    assert cpus._quota.__wrapped__() == count


# -- threads of commands ---------------------------------------------------------------------------------------------
# ``cluster.threads``: in every command the pool uses as many threads as the config says; outcomes are equal.

#: Values of ``cluster.threads``, and what they mean where a process may use four CPUs.
GIVEN = {1: 1, 3: 3, "auto": 4}


def table(n: int, first: int = 0) -> pa.Table:
    """Rows with ids from ``first`` on."""
    X = np.round(np.random.default_rng(first).normal(size=(n, 3)), 1)
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    return pa.table({"id": np.arange(first, first + n), "y": (X[:, 0] > 0).astype(int), **columns})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Path]:
    """A run with each number of threads, over a file of rows that come and go."""
    folder = tmp_path_factory.mktemp("runs")
    pa.csv.write_csv(table(240), folder / "rows.csv")
    config = {
        "source": {"kind": "csv", "path": str(folder / "rows.csv"), "label": "y", "id": "id"},
        "learner": {"kind": "forest", "n_estimators": 4, "sample_share": 0.5},
        "stream": {"model": "sliding_window", "window": 100},
        "output": {"report": False, "predictions": True},
    }
    with crew(None):
        for given in GIVEN:
            replay(config | {"cluster": {"backend": "in_process", "threads": given}}, folder / str(given))
    return {given: folder / str(given) for given in GIVEN}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """Numbers of threads that the pool was asked for; little work is divided, too."""
    numbers, real = set[int](), threads.threads

    def noted() -> int:
        number = real()
        numbers.add(number)
        return number

    monkeypatch.setattr(threads, "cpus_here", lambda: 4)
    monkeypatch.setattr(threads, "threads", noted)
    with crew(None):
        yield numbers


def resumed(run: Path, folder: Path) -> Any:
    """Go on from the last checkpoint but one."""
    shutil.copytree(run, folder / "run")
    (folder / "run" / "summary.json").unlink()
    return resume(folder / "run").digest


def swept(run: Path, folder: Path) -> Any:
    return sweep(run / "config.yaml", {"learner.max_depth": [1, 2, 3, 4]}, folder / "sweep").table["digest"].to_pylist()


def updated(run: Path, folder: Path) -> Any:
    pq.write_table(table(9, 1000), folder / "new.parquet")
    return update(run, insert=folder / "new.parquet", out=folder / "more").digest_after


def predicted(run: Path, folder: Path) -> Any:
    pq.write_table(table(50, 2000), folder / "rows.parquet")
    predict_file(run, folder / "rows.parquet", folder / "found.parquet")
    return pq.read_table(folder / "found.parquet").to_pydict()


def explained(run: Path, folder: Path) -> Any:
    pq.write_table(table(50, 2000), folder / "rows.parquet")
    return explain_row(run, folder / "rows.parquet", 7)


def exported(run: Path, folder: Path) -> Any:
    export_model(run / "checkpoints", "lightgbm", folder / "model.txt")  # whose model is made first
    return (folder / "model.txt").read_text()


def purged(run: Path, folder: Path) -> Any:
    shutil.copytree(run, folder / "run")
    (folder / "key").write_text("0" * 64)
    receipts = ReceiptFile(str(folder / "receipts"), str(folder / "key"))
    found = purge(folder / "run", receipts=receipts)
    return found["digest"], len(found["replaced"]), found["rewritten"]


def verified(run: Path, folder: Path) -> Any:
    purged(run, folder)
    found = verify_receipts(folder / "receipts", folder / "run")
    started = json.loads((run / "log.jsonl").read_text().splitlines()[0])
    assert found["origin"].pop("run") == started["id"]  # which no two runs share
    return {**found, "head": ""}


COMMANDS: dict[str, Callable[[Path, Path], Any]] = {
    "replay": lambda run, folder: replay(run / "config.yaml", folder / "again").digest,
    "resume": resumed,
    "sweep": swept,
    "validate": lambda run, folder: look_at(load_config(run / "config.yaml")),
    "update": updated,
    "purge": purged,
    "predict": predicted,
    "predict --explain": explained,
    "export": exported,
    "audit": lambda run, folder: audit_run(run).as_dict(),
    "audit a state": lambda run, folder: audit_state(run / "checkpoints").as_dict(),
    "verify": lambda run, folder: verify_run(run),
    "verify a state": lambda run, folder: verify_run(run / "checkpoints"),
    "verify receipts": verified,
}


@pytest.mark.turns(5)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_uses_the_threads_of_its_config(
    command: str, runs: dict[Any, Path], asked: set[int], tmp_path: Path
) -> None:
    found = []
    for number, most in GIVEN.items():
        asked.clear()
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(COMMANDS[command](runs[number], folder))
        assert asked - {1} == {most} - {1}, number  # a task divides nothing
        assert asked, number
    assert found == [found[0]] * len(GIVEN)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many"])
def test_what_is_no_number_of_threads_is_refused(wrong: Any, runs: dict[Any, Path]) -> None:
    config = load_yaml((runs["auto"] / "config.yaml").read_text())
    with pytest.raises(ConfigError):
        load_config(config | {"cluster": {"threads": wrong}})
