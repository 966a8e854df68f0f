"""Sequences of streams, and keys that are followed."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from raydt.encoding.labels import IGNORED
from raydt.errors import InputError
from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.keyed.members import KeyedJob
from raydt.keyed.session import KeyedSession
from raydt.keyed.source import SharedSource, TableKeys, told_apart
from raydt.keyed.stream import KeyedStream
from raydt.learners import learners
from raydt.sessions import adaptive_window
from raydt.sessions.adaptive_window import AdaptiveWindow
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_file, open_source
from raydt.sources.file_source import FileSource
from raydt.sources.files.datafile import find_files
from raydt.sources.live.followed import FollowedSource
from raydt.sources.options import ArrowFiles
from raydt.streams.deletion_log import Changelog, DeletionLog, RandomUpdates
from raydt.streams.windows import Batches, Incremental, SlidingWindow, TimeWindow
from tests.oracles import streams as twin
from tests.oracles.streams import Event, MemorySource, Row
from tests.small_tables import ChangingTable, Told
from tests.volume import examples

# -- streams sequence ------------------------------------------------------------------------------------------------
# The sequence of updates against plain loops, whatever the batches, the chunks, and the place of a resume.

SIZES = st.lists(st.integers(1, 9) | st.just(100), min_size=1, max_size=6)
SKIP = st.booleans()
#: So many labels of the rows before are features.
PREVIOUS = st.sampled_from([0, 0, 1, 2, 8])
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
            if not CARRIES_ROW[op]:
                found.append(Event(op, id_, row))
                continue
            (x, *before), y = next(carried)
            found.append(Event(op, id_, row, float(x), int(y), tuple(map(int, before))))
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
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f") if isinstance(a, np.ndarray) else a == b


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


@given(rows(), SKIP, SIZES, SIZES, st.integers(0, 5), PREVIOUS)
def test_incremental(data, skip, sizes, chunks, warmup, k):
    options = Incremental(on_error="skip" if skip else "error", warmup=warmup, previous_labels=k)
    make = lambda: options.make(MemorySource(data, chunks, previous=k))  # noqa: E731
    check(make, twin.with_previous(twin.incremental(data, skip), k), data, skip, sizes, warmup)


@given(rows(), SKIP, SIZES, SIZES, st.integers(1, 6), st.data(), PREVIOUS)
def test_sliding_window(data, skip, sizes, chunks, window, draw, k):
    warmup = draw.draw(st.integers(0, window))
    options = SlidingWindow(on_error="skip" if skip else "error", window=window, warmup=warmup, previous_labels=k)
    make = lambda: options.make(MemorySource(data, chunks, previous=k))  # noqa: E731
    expected, *rest = twin.sliding_window(data, skip, window)
    check_events(make, twin.with_previous(expected, k), *rest, sizes, warmup)


def stretches() -> st.SearchStrategy[list[Row]]:
    """Rows whose labels persist, so that the last rows tell more than those before; an id comes again at times."""
    stretch = st.tuples(st.integers(0, 2), st.integers(2, 7), st.integers(0, 9))
    return st.tuples(st.lists(stretch, min_size=3, max_size=5), st.sampled_from([7, 12, 40])).map(
        lambda drawn: [
            Row(id=(7 * part + i) % drawn[1], label=label, bad=bad == i)
            for part, (label, length, bad) in enumerate(drawn[0])
            for i in range(length)
        ]
    )


@examples(60)
@given(stretches() | rows(max_size=13), SKIP, SIZES, SIZES, st.integers(0, 4), st.integers(1, 3), PREVIOUS)
def test_adaptive_window(data, skip, sizes, chunks, warmup, clock, k):
    """With scouts over 1, 3 and 6 rows, of which one leads that was right once more than the present one."""
    horizons, z, margin = (1, 3, 6), (0.5, 0.3), 0.1
    settings = {"HORIZONS": horizons, "CLOCK": clock, "_MARGIN": margin, "_SHORTER": z[0], "_LONGER": z[1]}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setattr(adaptive_window, name, value)
        options = AdaptiveWindow(on_error="skip" if skip else "error", warmup=warmup, previous_labels=k)
        make = lambda: options.make(MemorySource(data, chunks, previous=k))  # noqa: E731
        learner, features = adaptive_window.scout(), MemorySource(data, previous=k).features
        sessions = [InProcessSession(learner, learner.Options(), features) for _ in horizons]
        watchers = [twin.Watcher(*one, k + 1) for one in zip(sessions, horizons, strict=True)]
        expected = twin.adaptive_window(data, skip, warmup, watchers, clock, z, margin, k)
        event("rows are deleted" if any(one.op == DELETE for one in expected[0]) else "no row is deleted")
        check_events(make, *expected, sizes, warmup)


@given(
    rows(),
    SKIP,
    SIZES,
    SIZES,
    st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
    st.integers(0, 3),
    st.integers(0, 5),
    PREVIOUS,
)
def test_random_updates(data, skip, sizes, chunks, p, seed, warmup, k):
    on_error = "skip" if skip else "error"
    options = RandomUpdates(on_error=on_error, insert_probability=p, seed=seed, warmup=warmup, previous_labels=k)
    make = lambda: options.make(MemorySource(data, chunks, previous=k))  # noqa: E731
    expected, *rest = twin.random_updates(data, skip, p, seed, warmup)
    check_events(make, twin.with_previous(expected, k), *rest, sizes, warmup)


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
    make = lambda: options.make(MemorySource(data, chunks))  # noqa: E731
    check_events(make, expected, met, stops, sizes, options.warmup)


@given(timed_rows(), SKIP, SIZES, SIZES, st.integers(1, 12) | st.just(2**62), st.data(), PREVIOUS)
def test_time_window(data, skip, sizes, chunks, duration, draw, k):
    lateness = draw.draw(st.integers(0, min(duration - 1, 6)) | st.just(duration - 1))
    expected, met, stops = twin.time_window(data, skip, duration, lateness)
    expected = twin.with_previous(expected, k)
    inserts = next((n for n, event in enumerate(expected) if event.op == DELETE), len(expected))
    warmup = draw.draw(st.integers(0, inserts))
    options = TimeWindow(
        on_error="skip" if skip else "error", duration=duration, lateness=lateness, warmup=warmup, previous_labels=k
    )
    make = lambda: options.make(MemorySource(data, chunks, previous=k))  # noqa: E731
    check_events(make, expected, met, stops, sizes, warmup)


@given(rows((INSERT, DELETE, UPDATE, IGNORED, QUERY, DELETE_VALUE)), SKIP, SIZES, SIZES)
def test_changelog(data, skip, sizes, chunks):
    options = Changelog(on_error="skip" if skip else "error")
    make = lambda: options.make(MemorySource(data, chunks, changelog=True))  # noqa: E731
    check(make, twin.changelog(data, skip), data, skip, sizes)


@given(
    rows((INSERT, DELETE, UPDATE, IGNORED, QUERY), 40), SKIP, SIZES, SIZES, st.sampled_from([1, 2, 8]), st.booleans()
)
def test_a_row_of_a_changelog_has_the_labels_that_were_known_when_it_was_asked_for(
    data, skip, sizes, chunks, k, delayed
):
    options = Changelog(on_error="skip" if skip else "error", previous_labels=k, delayed_labels=delayed)
    make = lambda: options.make(MemorySource(data, chunks, changelog=True, previous=k))  # noqa: E731
    check(make, twin.with_previous(twin.changelog(data, skip), k, delayed), data, skip, sizes)


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
        make = lambda: options.make(MemorySource(data, chunks), folder)  # noqa: E731
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
    stream = options.make(source, folder)
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
@given(
    SIZES,
    st.sampled_from([1, 2, 7, 64]),
    st.sampled_from(["window", "adaptive", "log", "batches", "time"]),
    st.integers(0, 80),
)
def test_dictionaries_do_not_show_chunks_or_reading_ahead(text_files, sizes, chunk_rows, model, place):
    options = {
        "window": SlidingWindow(window=5, on_error="skip"),
        "adaptive": AdaptiveWindow(on_error="skip"),
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


# -- followed keys ---------------------------------------------------------------------------------------------------
# A table that is followed with a model for each key: every key is a run of what the table has done to its rows.
#
# Deletions name no key, updates move rows between keys, rows are bad and good again; the reader stops and goes on
# anywhere. The twin (:mod:`tests.small_tables`) writes what each key is to get into a file with all keys named.

LEARNERS: dict[str, dict[str, Any]] = {
    "fudyadt": {"epsilon": 0.2},
    "forest": {"n_estimators": 3},
    "confidence_tree": {},
    "gbdt": {"max_iter": 3, "update_every": 5},
}


class Work:
    """A session of models by key, and the stream of a source; what was deleted on request, and passed over."""

    def __init__(self, source: Any, kind: str, warmup: int = 0) -> None:
        learner = learners()[kind]
        options = learner.Options(kind=kind, **LEARNERS[kind])
        model = Changelog(on_error="skip", warmup=warmup)
        self.stream = KeyedStream(source, skip_bad=True)
        shared = SharedSource(source, learner.traits(options).reading)
        self.session = KeyedSession(KeyedJob(shared, learner, options, source.features, model, every=10))
        self.requested: list[Any] = []
        self.skipped = 0

    def go_on(self, size: int) -> bool:
        """Apply a block of at most so many rows; False at the end."""
        batch = next(self.stream.batches(size), None)
        self.skipped += len(self.stream.take_skipped())
        if batch is None:
            return False
        result = self.session.apply(batch)
        self.skipped += len(result.tables.get("quarantine", {}).get("key", ()))
        if batch.told is not None:
            missing = {refusal.position for refusal in result.refused}
            asked = [at for at in np.flatnonzero(batch.op == DELETE).tolist() if at not in missing]
            self.requested += [batch.name(at) for at in asked]
        return True

    def live(self) -> set[tuple[Any, Any]]:
        """Keys and ids of the live examples."""
        members: Any = self.session.members.by_key
        codes = {key: one.session.state()[0]["id"] for key, one in members.items()}
        return {(key, id) for key, ids in codes.items() for id in members[key].stream.names_of(ids)}

    def state(self) -> tuple[Any, Any]:
        parts = self.session.snapshot().parts[0]
        return self.stream.state(), {group: one.state for group, one in parts.items()}


def followed(table: ChangingTable, kind: str, together: int, warmup: int) -> Work:
    live = Told(table, together)
    options: Any = learners()[kind].Options(kind=kind, **LEARNERS[kind])
    return Work(FollowedSource(live.options, live, learners()[kind].traits(options).reading), kind, warmup)


def one_table(folder: Path, seed: int, kind: str = "fudyadt") -> None:
    draw = random.Random(seed)
    table = ChangingTable(draw, draw.randrange(30, 90), text=draw.random() < 0.5)
    together = draw.choice([1, 5, 16, 1000])
    warmup = draw.choice((2, 6, 1000) if kind in ("confidence_tree", "gbdt") else (0, 0, 2, 6, 1000))
    work = followed(table, kind, together, warmup)
    requested, skipped = list[Any](), 0
    while work.go_on(draw.randrange(1, 9)):
        if draw.random() < 0.15:  # a process ends, another goes on from the state
            requested, skipped = requested + work.requested, skipped + work.skipped
            (stream, groups), work = work.state(), followed(table, kind, together, warmup)
            work.stream.restore(stream)
            work.session.restore({}, groups)
            assert repr(work.stream.state()) == repr(stream)
    assert requested + work.requested == table.requested
    assert skipped + work.skipped == table.skipped

    options = ArrowFiles(path=str(table.file(folder / "log.arrow")), op="op", **table.options())
    learner = learners()[kind]
    given: Any = learner.Options(kind=kind, **LEARNERS[kind])
    twin = Work(open_source(options, reading=learner.traits(given).reading), kind, warmup)
    while twin.go_on(1000):
        pass
    work.session.finish()
    twin.session.finish()
    assert work.live() == twin.live() == {(row["shop"], id) for id, row in table.live.items()}
    if not (table.text and table.skipped):  # deletions of what is not there use up codes of text ids, which are hashed
        assert work.session.digests_of_groups() == twin.session.digests_of_groups()


@pytest.mark.turns(5)
@pytest.mark.parametrize("seed", range(12))
def test_each_key_is_a_run_of_what_the_table_does_to_its_rows(tmp_path: Path, seed: int) -> None:
    """Also where its rows change before a warm-up is complete."""
    one_table(tmp_path, seed, [*LEARNERS][seed % 4 if seed % 3 == 0 else 0])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", LEARNERS)
@pytest.mark.parametrize("seed", range(100, 200))
def test_each_key_of_any_table(tmp_path: Path, seed: int, kind: str) -> None:
    one_table(tmp_path, seed, kind)


def test_the_stream_ends_before_what_the_table_cannot_have() -> None:
    table = ChangingTable(random.Random(1), 40, bad=0.0)
    row, end = next(iter(table.live.values())), len(table.log)
    other = "north" if row["shop"] != "north" else "south"
    for wrong, problem in (({"op": "d", "id": 10**6}, "no live"), ({**row, "op": "c", "shop": other}, "another key")):
        table.log[end:] = [wrong]
        live = Told(table, 7)
        stream = KeyedStream(FollowedSource(live.options, live), skip_bad=False)
        with pytest.raises(InputError, match=problem) as raised:
            for _ in stream.batches(4):
                pass
        assert (raised.value.row, stream.state()["row"]) == (end % 7, end)


def test_what_was_erased_before_is_deleted_once() -> None:
    table = ChangingTable(random.Random(1), 0)
    row = {"id": 7, "shop": "north", "a": 0.5, "s": "p", "y": "no"}
    table.log += [{"op": "c", **row}, {"op": "d", "id": 7}, {"op": "d", "id": 7}]
    live, erased = Told(table), {7}
    stream = KeyedStream(FollowedSource(live.options, live), skip_bad=False)
    assert stream.table is not None
    stream.table.erased = lambda id: id in erased and not erased.discard(id)  # as of a chain of receipts
    with pytest.raises(InputError, match="no live"):
        for _ in stream.batches(4):
            pass
    assert stream.state()["row"] == 2


def test_a_plan_without_rows_is_not_asked_for_again() -> None:
    """What it names may be gone by then, as versions of a table that only changed its files."""
    table = ChangingTable(random.Random(3), 10, bad=0.0)
    live = Told(table)
    given, log = FollowedSource(live.options, live), len(table.log)

    def plan(after: Any) -> Any:
        begin = 0 if after is None else after["to"]["0"]
        return {"from": {"0": begin}, "to": {"0": begin + log}} if begin <= log else None

    live.plan = plan  # type: ignore[method-assign]
    assert sum(len(rows) for rows in given.rows()) == log
    state = given.state()
    assert (state["step"]["number"], state["step"]["row"], state["step"]["rows"]) == (1, log, 0)
    assert given.state(log - 1)["step"]["number"] == 0
    again = FollowedSource(live.options, live)
    again.restore(state)
    assert list(again.rows(log)) == []
    assert again.last is not None
    assert again.last.number == 1


def test_what_an_update_from_elsewhere_does_is_taken_in() -> None:
    table = ChangingTable(random.Random(2), 60, bad=0.0)
    live = Told(table)
    source = FollowedSource(live.options, live)
    keys = TableKeys(source)
    for rows in source.rows():
        told_apart(keys.settle(rows, strict=True)[0])
    (id, code), *_ = zip(*keys.state().values(), strict=True)
    keys.follow_update(source.keys[code], [int(id)], [])
    keys.follow_update("another", [int(id)], [10**6])
    assert source.keys[keys.state()["table_keys"].tolist()[-1]] == "another"
    ids = keys.state()["table_ids"].tolist()
    assert id not in ids
    assert 10**6 in ids
