"""How long checkpoints hold a deleted example: never longer than ``checkpoint.max_age``, or the run says so."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from pipelines.config import load_config
from pipelines.operation import CheckpointOptions
from pipelines.run_folder import RunFolder
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.ending import read_summary
from raydt.errors import ConfigError, DeadlineMissedError
from raydt.exchange.messages import GroupSnapshot, Snapshot
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore, Copies, read_checkpoint
from raydt.folders.folder import Folder
from raydt.sessions.session import next_segment
from tests.refusals import refused
from tests.unit.small_checkpoints import META, alive
from tests.unit.small_checkpoints import snapshot as snapshot_after
from tests.unit.small_job import JOB
from tests.volume import examples

#: Seconds between two checkpoints, and the oldest that a copy may become.
EVERY, MOST = 10.0, 35.0


class Clock:
    """Seconds that pass when they are told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def births_on_disk(folder: Path) -> set[int]:
    """Births of all examples in the files of rows, live or not."""
    found: set[int] = set()
    for file in (folder / "rows").glob("rows-*.npz") if (folder / "rows").exists() else ():
        with np.load(file) as arrays:
            found |= set(arrays["born"].tolist()) if "born" in arrays else set()
    return found


def take(store: CheckpointStore, number: int, live: set[int], clock: Clock) -> None:
    """Write the checkpoint after ``number`` updates; ``X`` of an example is its birth."""
    segments = store.segments
    born = np.array(sorted(live), dtype=np.int64)
    clock.now += 0.5  # the snapshot comes after it was asked for, and is written later
    since = next_segment(born, segments)
    rows = born[born >= since]
    parts = [{0: GroupSnapshot({"X": rows * 1.0}, {})}]
    snapshot = Snapshot(since, born, {"ids": rows}, {"tree": np.zeros(1)}, aside=0, parts=parts)
    store.write(CheckpointContent(number, {**META, "offset": number}, snapshot, {"stream": {"seq": number}}))


STEPS = st.lists(st.tuples(st.integers(0, 6), st.lists(st.integers(0, 40), max_size=6), st.booleans()), max_size=14)


def longest_copy(folder: Path, steps: list[tuple[int, list[int], bool]], limit: float | None) -> float:
    """Most seconds for which a deleted example was found in files of rows, right after each checkpoint."""
    clock = Clock()
    store = CheckpointStore(Folder(folder), 3, Copies(limit, clock))
    live: set[int] = set()
    deleted: dict[int, float] = {}
    done, longest = 0, 0.0
    for inserts, gone, resumed in steps:
        live |= set(range(done, done + inserts))
        done += inserts
        for example in live & set(gone):
            live.discard(example)
            deleted[example] = clock.now
            done += 1
        done += 1
        if resumed and store.numbers():
            last = read_checkpoint(Folder(folder / str(store.numbers()[-1])))
            store = CheckpointStore(Folder(folder), 3, Copies(limit, clock))
            store.continue_from(last)
        clock.now += EVERY - 0.5
        there = births_on_disk(folder)
        ages = [clock.now + 0.5 - deleted[example] for example in there & deleted.keys()]
        assert max(ages, default=0.0) <= store.copies.age() + 0.5
        longest = max(longest, *ages, 0.0)
        take(store, done, live, clock)
        assert set(read_checkpoint(Folder(folder / str(done))).components["coordinator"]["born"].tolist()) == live
    return longest


@examples(30, deadline=None)
@given(steps=STEPS)
def test_no_copy_is_older_than_allowed(steps: list[tuple[int, list[int], bool]], tmp_path_factory: Any) -> None:
    assert longest_copy(tmp_path_factory.mktemp("run"), steps, MOST - EVERY) <= MOST


def test_without_a_limit_a_copy_stays(tmp_path: Path) -> None:
    """The check above can fail: a shared segment keeps the deleted example for as long as others in it live."""
    steps = [(6, [], False), *[(0, [1], False)] * 12]
    assert longest_copy(tmp_path / "free", steps, None) > 2 * MOST
    assert longest_copy(tmp_path / "bounded", steps, MOST - EVERY) <= MOST


def config(**changes: Any) -> dict[str, Any]:
    job = json.loads(json.dumps(JOB))
    for key, value in changes.items():
        job.setdefault(key, {}).update(value)
    return job


def test_a_finished_run_leaves_rows_of_live_examples_only(tmp_path: Path) -> None:
    window = {"model": "sliding_window", "window": 40}
    often = {"every_updates": 50, "every_seconds": 60}
    digests = set()
    for name, age in (("free", None), ("bounded", "1h")):
        job = config(stream=window, checkpoint={**often, "max_age": age}, cluster={"batch_size": 50})
        run = Path(pipelines.replay(job, tmp_path / name).path)
        digests.add(read_summary(RunFolder(run))["model_digest"])
    assert len(digests) == 1
    assert len(births_on_disk(run / "checkpoints")) == 40
    assert len(list((run / "checkpoints").glob("[0-9]*"))) == 1
    assert pipelines.resume(run).summary["model_digest"] in digests


def test_a_missed_deadline_ends_the_run(tmp_path: Path) -> None:
    clock = Clock()
    store = CheckpointStore(Folder(tmp_path), 3, Copies(20.0, clock))
    options = CheckpointOptions(every_seconds=10, max_age="30s")
    assert options.copies_limit == 20
    checkpointer = Checkpointer(options, store, deadline="40s")
    checkpointer.require_deadline()  # there is no checkpoint, and so no copy
    take(store, 5, {1, 2, 3}, clock)
    clock.now += 39
    checkpointer.require_deadline()
    clock.now += 1
    with refused("runs.deadline_missed", DeadlineMissedError, deadline="40s") as raised:
        checkpointer.require_deadline()
    assert raised.value.exit_code == 1
    take(store, 8, {1, 3}, clock)  # shares the segment of the one before, which may have held the 2 since then
    take(store, 9, {1, 3}, clock)
    assert births_on_disk(tmp_path) == {1, 3}
    checkpointer.require_deadline()
    checkpointer.close()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"checkpoint": {"max_age": "10s"}}, "configs.rare_checkpoints"),
        ({"checkpoint": {"max_age": 7}}, "streams.length_of_time"),
        ({"checkpoint": {"max_age": "0s"}}, "streams.length_of_time"),
        ({"erasure": {"deadline": "7d"}}, "configs.late_checkpoints"),
        ({"checkpoint": {"max_age": "8d"}, "erasure": {"deadline": "7d"}}, "configs.late_checkpoints"),
    ],
)
def test_options_that_cannot_hold_are_refused(changes: dict[str, Any], problem: str) -> None:
    with refused(problem, ConfigError):
        load_config(config(**changes))


def test_options_change_no_model() -> None:
    bounded = config(checkpoint={"max_age": "1h"}, erasure={"deadline": "2h"})
    assert load_config(bounded).model_hash() == load_config(config()).model_hash()


def test_a_clock_that_is_set_while_a_run_works_changes_no_age(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Years forward and back at random moments; what a machine counts since its start goes on evenly."""
    draw, year, passed = random.Random(5), 365 * 86_400.0, 0.0
    monkeypatch.setattr(time, "time", lambda: 1e9 + passed + draw.uniform(-20, 20) * year)
    monkeypatch.setattr(time, "clock_gettime", lambda which: 5e3 + passed)
    store = CheckpointStore(Folder(tmp_path), 3, Copies(MOST))
    options = CheckpointOptions(every_seconds=EVERY, max_age=f"{MOST:g}s")
    checkpointer = Checkpointer(options, store, deadline=f"{MOST + EVERY:g}s")
    live, clock = {*range(20)}, Clock()
    for number in range(1, 30):
        live = {born for born in live if draw.random() < 0.9} | {100 * number}
        take(store, number, live, clock)
        passed += EVERY
        checkpointer.require_deadline()
        assert 0 <= store.copies.age() <= MOST + EVERY
    checkpointer.close()


def test_a_time_in_the_future_is_no_age(tmp_path: Path) -> None:
    """The clock was set back between two processes: nobody knows how old the copies are, so they go."""
    clock = Clock()
    take(CheckpointStore(Folder(tmp_path), 3, Copies(MOST, clock)), 1, {0, 1, 2}, clock)
    clock.now -= 500
    store = CheckpointStore(Folder(tmp_path), 3, Copies(MOST, clock))
    store.continue_from(read_checkpoint(Folder(tmp_path / "1")))
    assert store.segments == []
    assert store.copies.age() == MOST


def test_a_run_that_is_level_gives_up_copies_in_time(tmp_path: Path) -> None:
    """Nothing comes, so no message would have asked for the next checkpoint, nor missed the deadline."""
    clock = Clock()
    store = CheckpointStore(Folder(tmp_path), 3, Copies(MOST - EVERY, clock))
    options = CheckpointOptions(every_seconds=EVERY, max_age=f"{MOST:.0f}s")
    checkpointer, written = Checkpointer(options, store, clock, deadline=f"{MOST:.0f}s"), list[int]()

    def pause(updates: int) -> None:
        def content(_: Any) -> CheckpointContent:
            written.append(updates)
            made = snapshot_after(updates, store)
            return CheckpointContent(updates, {**META, "offset": updates}, made, {"stream": {"seq": updates}})

        checkpointer.write_of_pause(updates, content)
        checkpointer.settle()

    for updates in (100, 110, 120):
        clock.now += 1
        pause(updates)
    assert store.numbers() == [100, 110, 120]
    for _ in range(200):
        clock.now += 1
        pause(120)
    assert store.numbers() == [120]
    assert births_on_disk(tmp_path) == set(alive(120).tolist())
    assert 3 < len(written) < 3 + 200 / (MOST - EVERY) + 1
    clock.now += MOST + 1
    with pytest.raises(DeadlineMissedError):
        pause(120)
    checkpointer.close()
