"""The sequence of updates against plain loops, whatever the batches, the chunks, and the place of a resume."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.encoding.labels import IGNORED
from raydt.errors import InputError
from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.sources.divided import open_file
from raydt.sources.file_source import FileSource
from raydt.sources.files.datafile import find_files
from raydt.sources.options import ArrowFiles
from raydt.streams.deletion_log import Changelog, DeletionLog, RandomUpdates
from raydt.streams.options import make_stream
from raydt.streams.windows import Batches, Incremental, SlidingWindow, TimeWindow
from tests.oracles import streams as twin
from tests.oracles.streams import Event, MemorySource, Row
from tests.volume import examples

SIZES = st.lists(st.integers(1, 9) | st.just(100), min_size=1, max_size=6)
SKIP = st.booleans()
SHARE = st.sampled_from([0.05, 0.5, 0.75, 1.0])
STEPS = st.lists(st.integers(0, 30), min_size=1, max_size=7) | st.lists(SHARE | st.integers(2, 30), min_size=1)


def rows(ops: tuple[int, ...] = (INSERT,), max_size: int = 24) -> st.SearchStrategy[list[Row]]:
    row = st.builds(
        Row,
        id=st.integers(0, 9),
        label=st.integers(0, 3),
        bad=st.integers(0, 7).map(lambda n: n == 0),
        op=st.sampled_from(ops),
        x=st.integers(-3, 3).map(float),
    )
    return st.lists(row, max_size=max_size)


@st.composite
def timed_rows(draw: st.DrawFn) -> list[Row]:
    """Rows whose times mostly go forward: by nothing, a little, or far; or back."""
    data, now, out = draw(rows(max_size=30)), draw(st.sampled_from([0, -5, 2**62 - 60, -(2**62) + 20])), []
    for row in data:
        now += draw(st.sampled_from([0, 0, 1, 1, 2, 5, 20, -1, -2, -6]))
        ts = now + draw(st.sampled_from([-30, 30])) if row.bad else now  # that of a bad row is not to matter
        out.append(replace(row, ts=min(max(ts, -(2**62)), 2**62)))
    return out


def events(batches: list[UpdateBatch], known: int = 0) -> list[Event]:
    """The updates of batches one by one, with a check of their rows and classes (``known`` before them)."""
    found = []
    for batch in batches:
        carried = iter(zip(batch.X, batch.y, strict=True))
        for op, id_, row in zip(batch.op.tolist(), batch.id.tolist(), batch.row.tolist(), strict=True):
            x, y = next(carried) if CARRIES_ROW[op] else (None, None)
            found.append(Event(op, id_, row, None if x is None else float(x[0]), None if y is None else int(y)))
        assert next(carried, None) is None
        known = max([known, *(int(y) + 1 for y in batch.y)])
        assert batch.n_classes == known
    return found


def run(stream: Any, sizes: list[int]) -> tuple[list[UpdateBatch], list[int], InputError | None]:
    """Take everything, in batches of changing sizes; the batches, the rows skipped and the error at the end."""
    batches: list[UpdateBatch] = []
    skipped: list[int] = []
    while True:
        size = sizes[len(batches) % len(sizes)]
        try:
            batch = next(stream.batches(size), None)
        except InputError as error:
            return batches, skipped, error
        skipped += [entry.row for entry in stream.take_skipped()]
        if batch is None:
            return batches, skipped, None
        assert 1 <= len(batch) <= size
        batches.append(batch)


def same(a: Any, b: Any) -> bool:
    """Whether two states are equal, arrays included."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def check(make: Any, expected: list[Event], data: list[Row], skip: bool, sizes: list[int], warmup: int = 0) -> None:
    """``make()`` gives a fresh stream each time."""
    bad = [number for number, row in enumerate(data) if row.bad]
    check_events(make, expected, bad if skip else [], bool(bad and not skip), sizes, warmup)


def check_events(
    make: Any, expected: list[Event], met: list[int], stops: bool, sizes: list[int], warmup: int = 0
) -> None:
    """``met`` are the bad rows that are to be skipped, ``stops`` says whether one ends the stream."""
    batches, skipped, error = run(make(), sizes)
    assert events(batches) == expected
    assert [batch.start for batch in batches] == [sum(map(len, batches[:i])) for i in range(len(batches))]
    assert all(batch.warmup == warmup for batch in batches)
    assert (error is not None) == stops
    assert skipped == met

    states = {}
    stream = make()
    for batch in batches:
        next(stream.batches(len(batch)))
        states[batch.stop] = stream.state()

    stream, before = make(), []
    for seq in range(len(expected) + 1):
        state = stream.state()
        assert state["seq"] == seq
        assert seq not in states or same(state, states[seq])  # a function of the updates, not of the batches
        resumed = make()
        resumed.restore(state)
        rest, later, again = run(resumed, sizes)
        assert events(rest, state["n_classes"]) == expected[seq:]
        assert type(again) is type(error)
        assert before + later == skipped
        if seq < len(expected):
            next(stream.batches(1))
            before += [entry.row for entry in stream.take_skipped()]
    if not stops:
        assert next(stream.batches(1), None) is None
        ended = make()
        ended.restore(stream.state())
        assert run(ended, sizes) == ([], [], None)  # nothing is passed over a second time


@given(rows(), SKIP, SIZES, SIZES, st.integers(0, 5))
def test_incremental(data, skip, sizes, chunks, warmup):
    options = Incremental(on_error="skip" if skip else "error", warmup=warmup)
    make = lambda: make_stream(options, MemorySource(data, chunks))  # noqa: E731
    check(make, twin.incremental(data, skip), data, skip, sizes, warmup)


@given(rows(), SKIP, SIZES, SIZES, st.integers(1, 6), st.data())
def test_sliding_window(data, skip, sizes, chunks, window, draw):
    warmup = draw.draw(st.integers(0, window))
    options = SlidingWindow(on_error="skip" if skip else "error", window=window, warmup=warmup)
    make = lambda: make_stream(options, MemorySource(data, chunks))  # noqa: E731
    check_events(make, *twin.sliding_window(data, skip, window), sizes, warmup)


@given(rows(), SKIP, SIZES, SIZES, st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]), st.integers(0, 3), st.integers(0, 5))
def test_random_updates(data, skip, sizes, chunks, p, seed, warmup):
    options = RandomUpdates(on_error="skip" if skip else "error", insert_probability=p, seed=seed, warmup=warmup)
    make = lambda: make_stream(options, MemorySource(data, chunks))  # noqa: E731
    check_events(make, *twin.random_updates(data, skip, p, seed, warmup), sizes, warmup)


@given(
    rows(),
    SKIP,
    SIZES,
    SIZES,
    STEPS,
    st.sampled_from(["fifo", "lifo", "random"]),
    st.integers(0, 3),
)
def test_batches(data, skip, sizes, chunks, steps, order, seed):
    options = Batches(on_error="skip" if skip else "error", steps=steps, removal_order=order, seed=seed)
    expected, met, stops = twin.batches(data, skip, steps, order, seed)
    inserts = next((n for n, event in enumerate(expected) if event.op == DELETE), len(expected))
    first = round(steps[0] * len(data)) if isinstance(steps[0], float) else steps[0]
    options = options.model_copy(update={"warmup": min(inserts, first) // 2})
    make = lambda: make_stream(options, MemorySource(data, chunks))  # noqa: E731
    check_events(make, expected, met, stops, sizes, options.warmup)


@given(timed_rows(), SKIP, SIZES, SIZES, st.integers(1, 12) | st.just(2**62), st.data())
def test_time_window(data, skip, sizes, chunks, duration, draw):
    lateness = draw.draw(st.integers(0, min(duration - 1, 6)) | st.just(duration - 1))
    expected, met, stops = twin.time_window(data, skip, duration, lateness)
    inserts = next((n for n, event in enumerate(expected) if event.op == DELETE), len(expected))
    warmup = draw.draw(st.integers(0, inserts))
    options = TimeWindow(on_error="skip" if skip else "error", duration=duration, lateness=lateness, warmup=warmup)
    make = lambda: make_stream(options, MemorySource(data, chunks))  # noqa: E731
    check_events(make, expected, met, stops, sizes, warmup)


@given(rows((INSERT, DELETE, UPDATE, IGNORED, QUERY, DELETE_VALUE)), SKIP, SIZES, SIZES)
def test_changelog(data, skip, sizes, chunks):
    options = Changelog(on_error="skip" if skip else "error")
    make = lambda: make_stream(options, MemorySource(data, chunks, changelog=True))  # noqa: E731
    check(make, twin.changelog(data, skip), data, skip, sizes)


@examples(60)
@given(
    rows(),
    SKIP,
    SIZES,
    SIZES,
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 30)), max_size=12),
)
def test_deletion_log(data, skip, sizes, chunks, log):
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{id_},{'' if after is None else after}\n" for id_, after in log]
        Path(folder, "log.csv").write_text("id,after\n" + "".join(lines))
        options = DeletionLog(on_error="skip" if skip else "error", deletion_log="log.csv")
        make = lambda: make_stream(options, MemorySource(data, chunks), folder)  # noqa: E731
        check(make, twin.deletion_log(data, skip, log), data, skip, sizes)


@pytest.fixture(scope="module")
def text_files(tmp_path_factory):
    """Rows full of dictionaries: categories, labels and string ids, some bad; and a log that names ids too early."""
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(11)
    n = 60
    table = pa.table(
        {
            "c": [None if r < 0.1 else f"c{int(r * 30)}" for r in rng.random(n)],
            "x": rng.normal(size=n),
            "y": [f"label {int(v)}" for v in np.sort(rng.integers(0, 5, n))[::-1]],
            "id": [f"id{v % 50}" for v in rng.permutation(n)],  # ten of them twice
            "t": np.arange(n) // 2 - rng.integers(0, 4, n),
        }
    )
    with pa.ipc.new_file(str(folder / "t.arrow"), table.schema) as writer:
        for batch in table.to_batches(max_chunksize=17):
            writer.write_batch(batch)
    with pa.ipc.new_file(str(folder / "log.arrow"), pa.schema([("id", pa.string()), ("after", pa.int64())])) as writer:
        ids = [f"id{v}" for v in rng.integers(0, n + 5, 40)]
        writer.write_table(pa.table({"id": ids, "after": rng.integers(0, n, 40)}))
    return folder


def read_text(folder: Path, options: Any, sizes: list[int], chunk_rows: int, state: Any = None) -> list[Any]:
    files = ArrowFiles(path="t.arrow", id="id", ts="t")
    source = FileSource(files, [open_file(files, p) for p in find_files("t.arrow", folder, ())], chunk_rows)
    stream = make_stream(options, source, folder)
    if state is not None:
        stream.restore(state)
    out: list[Any] = []
    for number in range(10_000):
        batch = next(stream.batches(sizes[number % len(sizes)]), None)
        if batch is None:
            break
        carried = iter(zip(batch.X.tolist(), batch.y.tolist(), strict=True))
        out += [(op, i, next(carried) if CARRIES_ROW[op] else None) for op, i in zip(batch.op, batch.id, strict=True)]
        out.append(stream.state())
    return out


@examples(30)
@given(SIZES, st.sampled_from([1, 2, 7, 64]), st.sampled_from(["window", "log", "batches", "time"]), st.integers(0, 80))
def test_dictionaries_do_not_show_chunks_or_reading_ahead(text_files, sizes, chunk_rows, model, place):
    options = {
        "window": SlidingWindow(window=5, on_error="skip"),
        "log": DeletionLog(deletion_log="log.arrow", on_error="skip"),
        "batches": Batches(steps=[30, 10, 0.5, 3, 1.0], removal_order="random", on_error="skip"),
        "time": TimeWindow(duration=6, lateness=2, on_error="skip"),
    }[model]
    single = read_text(text_files, options, [1], 1)
    updates = [entry for entry in single if isinstance(entry, tuple)]
    states = {entry["seq"]: entry for entry in single if isinstance(entry, dict)}
    found = read_text(text_files, options, sizes, chunk_rows)
    assert [entry for entry in found if isinstance(entry, tuple)] == updates
    assert all(same(entry, states[entry["seq"]]) for entry in found if isinstance(entry, dict))
    place = 1 + place % len(states)
    resumed = read_text(text_files, options, sizes, chunk_rows, states[place])
    assert [entry for entry in resumed if isinstance(entry, tuple)] == updates[place:]
    assert same(resumed[-1] if resumed else states[place], states[len(states)])
