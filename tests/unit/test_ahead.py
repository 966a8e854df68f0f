"""Work begun ahead: order, bounds, errors and ends; an interrupted reader leaves no thread at work and no open file."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config import load_config
from pipelines.running.replay import replay
from raydt import parallel as ahead_module
from raydt.errors import InputError
from raydt.learners import learners
from raydt.parallel import ahead, in_order, limited
from raydt.sessions.session import ONE_MODEL, InProcessSession, compile_missing
from raydt.sources import file_source
from raydt.sources.divided import open_source
from raydt.sources.files import csv
from raydt.sources.options import CsvFiles, ParquetFiles
from raydt.streams.windows import Incremental
from tests.nets.test_interrupts import at_bytecode

ROWS = 4000


@given(n=st.integers(0, 30), at_once=st.integers(1, 5), waiting=st.integers(1, 8))
def test_results_come_in_the_order_of_the_tasks(n: int, at_once: int, waiting: int) -> None:
    lock, under_way, most = threading.Lock(), 0, 0

    def work(i: int) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.0001 * (i % 3))
        with lock:
            under_way -= 1
        return i * i

    tasks: Iterator[Callable[[], int]] = (lambda i=i: work(i) for i in range(n))  # type: ignore[misc]
    assert list(in_order(tasks, at_once, waiting)) == [i * i for i in range(n)]
    assert most <= min(at_once, waiting)


def test_no_more_is_begun_than_may_wait() -> None:
    begun: list[int] = []
    tasks: Iterator[Callable[[], Any]] = (lambda i=i: begun.append(i) for i in range(100))  # type: ignore[misc]
    results = in_order(tasks, 2, 5)
    next(results)
    results.close()
    assert len(begun) <= 6


def test_several_tasks_are_under_way() -> None:
    meeting = threading.Barrier(3)
    assert sorted(in_order(iter([lambda: meeting.wait(20)] * 3), 3, 3)) == [0, 1, 2]


def test_an_error_comes_after_the_results_before_it_and_ends_the_work() -> None:
    def items() -> Generator[int, None, None]:
        yield from range(3)
        raise ValueError("no more")

    found = []
    with pytest.raises(ValueError, match="no more"):
        found += [found.append(item) for item in ahead(items())]  # type: ignore[func-returns-value]
    assert found == [0, 1, 2]


def test_items_are_made_in_another_thread_one_ahead() -> None:
    made: list[int] = []
    idents = set()

    def items() -> Generator[int, None, None]:
        for i in range(10):
            made.append(i)
            idents.add(threading.get_ident())
            yield i

    rest = ahead(items())
    assert next(rest) == 0
    until = time.monotonic() + 20
    while len(made) < 2 and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(0.02)
    assert made == [0, 1]
    assert list(rest) == list(range(1, 10))
    assert idents - {threading.get_ident()}


def test_without_threads_the_caller_makes_the_items(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ahead_module, "submit", refuse)
    assert list(ahead(i for i in range(5))) == list(range(5))


@pytest.mark.parametrize("times", [1, 3])
def test_an_interrupt_waits_for_what_is_under_way(times: int) -> None:
    """Also several interrupts: when the iteration has ended, nobody works."""
    at_work = threading.Event()
    main = threading.main_thread().ident or 0

    def work() -> None:
        at_work.set()
        for _ in range(times):
            signal.pthread_kill(main, signal.SIGINT)
            time.sleep(0.05)
        at_work.clear()

    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(in_order(iter([work] * 3), 2, 3))
    finally:
        signal.signal(signal.SIGINT, former)
    assert not at_work.is_set()


@pytest.mark.turns(1)
@pytest.mark.parametrize("at_once", [1, 3])
def test_a_strike_before_any_bytecode_leaves_nobody_at_work_and_all_threads_free(at_once: int) -> None:
    begun, ended, met = list[int](), list[int](), threading.Barrier(3)

    def work() -> None:
        begun.append(0)
        time.sleep(1e-4)
        ended.append(0)

    with at_bytecode(-1) as strike:
        list(in_order(iter([work] * 4), at_once, 3))
    for at in range(strike.moment + 60):
        with contextlib.suppress(KeyboardInterrupt), at_bytecode(at):
            list(in_order(iter([work] * 4), at_once, 3))
        # A task of the calling thread may have been struck before its first or after its last step.
        assert len(begun) == len(ended)
        if at % 8 == 7:
            assert sorted(in_order(iter([lambda: met.wait(20)] * 3), 3, 3)) == [0, 1, 2]


@pytest.fixture(params=["csv", "parquet"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is read in many rounds."""
    monkeypatch.setattr(csv, "_BLOCK", 2000)
    monkeypatch.setattr(file_source, "CHUNK_ROWS", (1, 50))
    monkeypatch.setattr(file_source, "ROUND_CELLS", 200)
    x = np.round(np.random.default_rng(1).normal(size=(ROWS, 3)), 2)
    table = pa.table({"y": (x[:, 0] > 0).astype(int), **{f"x{j}": x[:, j] for j in range(3)}})
    path = tmp_path / f"rows.{request.param}"
    (pacsv.write_csv if request.param == "csv" else pq.write_table)(table, str(path))
    return path


def opened(file: Path) -> Any:
    options: Any = CsvFiles if file.suffix == ".csv" else ParquetFiles
    return open_source(options(path=str(file), label="y"))


def is_open(file: Path) -> bool:
    """Return True if this process has the file open."""
    found = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{entry}"))
        except OSError:
            continue
    return str(file) in found


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Threads that are reading or checking rows."""
    at_work: list[int] = []

    def noted(work: Any) -> Any:
        def call(*arguments: Any) -> Any:
            at_work.append(threading.get_ident())
            try:
                time.sleep(0.002)
                return work(*arguments)
            finally:
                at_work.remove(threading.get_ident())

        return call

    monkeypatch.setattr(file_source, "_read", noted(file_source._read))
    monkeypatch.setattr(file_source, "_checked", noted(file_source._checked))
    return at_work


@pytest.mark.turns(8)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("how", ["closed", "dropped", "the stream is restored", "to the end"])
def test_a_reader_that_is_left_has_no_thread_and_no_open_file(file: Path, n: int, how: str, readers: list[int]) -> None:
    with limited(n):
        source = opened(file)
        if how == "the stream is restored":
            stream = Incremental().make(source)
            beginning = stream.state()
            next(stream.batches(100))
            assert is_open(file)
            stream.restore(beginning)
        else:
            rows = source.rows()
            taken = sum(map(len, islice(rows, None if how == "to the end" else 3)))
            assert taken == ROWS if how == "to the end" else is_open(file)
            if how == "closed":
                rows.close()
            del rows
        assert not readers
        assert not is_open(file)


@pytest.mark.turns(3)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_how_many_rows_there_are_is_known_no_sooner_for_reading_ahead(
    file: Path, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_source, "ROUND_CELLS", 1 << 18)  # the second round comes to the end
    with limited(n):
        source, end = opened(file), None if file.suffix == ".csv" else ROWS
        assert {source.n_rows for _ in islice(source.rows(), 70)} == {end}
        assert (source.n_rows, source.count_rows(), source.n_rows) == (end, ROWS, ROWS)
        source = opened(file)
        assert {source.n_rows for _ in source.rows()} == {end}
        assert source.n_rows == ROWS


@pytest.mark.parametrize("n", [2, 3])
def test_ctrl_c_while_rows_are_awaited_leaves_no_thread_and_no_open_file(
    file: Path, n: int, readers: list[int]
) -> None:
    def interrupt() -> None:
        time.sleep(0.03)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Thread(target=interrupt)
    try:
        with limited(n):
            rows = opened(file).rows()
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                all(time.sleep(0.001) is None for _ in chain(rows, range(1000)))
    finally:
        timer.join()
        signal.signal(signal.SIGINT, former)
    del rows
    gc.collect()
    assert not readers
    assert not is_open(file)


@pytest.mark.turns(3)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_an_interrupted_run_holds_what_it_took_and_no_file(
    file: Path, n: int, tmp_path: Path, readers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal after the fifth batch: as many updates, and the same model, as with one thread."""
    apply, batches = InProcessSession.apply, []

    def applied(session: Any, batch: Any, **named: Any) -> Any:
        batches.append(batch)
        if len(batches) == 5:
            signal.raise_signal(signal.SIGINT)
        return apply(session, batch, **named)

    config = {
        "source": {"kind": file.suffix[1:], "path": str(file), "label": "y"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "threads": n, "batch_size": 64},
        "output": {"report": False},
    }
    compile_missing(learners()["fudyadt"], load_config(config).learner, ONE_MODEL)
    monkeypatch.setattr(InProcessSession, "apply", applied)
    result = replay(config, tmp_path / "run")
    assert (result.status, result.summary["updates"]) == ("interrupted", 320)
    gc.collect()
    assert not readers
    assert not is_open(file)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_a_damaged_file_gives_the_rows_before_the_damage(file: Path, n: int) -> None:
    if file.suffix == ".csv":
        text = file.read_bytes()
        file.write_bytes(text[: len(text) // 2] + b'"' + text[len(text) // 2 :])
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 255
        file.write_bytes(bytes(content))

    def read(threads: int) -> Any:
        found: list[Any] = []
        with limited(threads):
            try:
                for rows in opened(file).rows():
                    found += [rows.row.tolist(), rows.X.tobytes(), {i: str(e) for i, e in rows.bad.items()}]
            except InputError as error:
                found.append(str(error))
        return found

    assert read(n) == read(1)


def test_a_child_forked_while_items_are_read_ahead_closes_them() -> None:
    """The thread that reads is not there."""
    begun, go_on = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 0
        begun.set()
        go_on.wait(20)
        yield 1

    with limited(2):
        rows = ahead(items())
        assert next(rows) == 0
        assert begun.wait(20)
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends the child if it waits
            rows = None  # closes it
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        go_on.set()
        assert list(rows) == [1]
