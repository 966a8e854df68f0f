"""Copies of examples, the memory of models, and training runs."""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from pipelines.cli import cli
from pipelines.config import load_config
from pipelines.operation import CheckpointOptions
from pipelines.run_folder import RunFolder
from pipelines.running.checkpoint import Checkpointer
from pipelines.running.ending import read_summary
from pipelines.training import training_config
from raydt.arrays import blocks as memory
from raydt.arrays.blocks import empty, extended, grown
from raydt.errors import ConfigError, DeadlineMissedError, InputError
from raydt.exchange.messages import GroupSnapshot, Snapshot
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore, Copies, read_checkpoint
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.messages import message
from raydt.sessions.session import SmallModel, most_cells, next_segment, ones_of, small_stream
from raydt.sources.base import Rows
from raydt.streams.windows import ALL_ROWS, Training, places
from raydt.trees.records import MEMBER
from tests.refusals import refused
from tests.small_tables import examples as examples_training
from tests.unit.small_checkpoints import META, alive
from tests.unit.small_checkpoints import snapshot as snapshot_after
from tests.unit.updatable import JOB
from tests.volume import examples

# -- copies ----------------------------------------------------------------------------------------------------------
# How long checkpoints hold a deleted example: never longer than ``checkpoint.max_age``, or the run says so.

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


# -- small model -----------------------------------------------------------------------------------------------------
# When a model stays with the coordinator, and what stays the same when it does not.


def small(kind: str, plan: WorkPlan, sparse: bool = False) -> SmallModel:
    """A model over three dense features."""
    learner = learners()[kind]
    case = next(case for case in learner.cases() if case.dense and case.sparse == sparse)
    options = learner.Options.model_validate({**case.options, "kind": kind})
    most = most_cells(learner.traits(options).divided, plan)
    return SmallModel(learner, options, small_stream(case)[0], most)


@pytest.mark.parametrize(
    ("plan", "rows", "stays"),
    [
        (WorkPlan(90), 29, True),
        (WorkPlan(90), 30, False),
        (WorkPlan(0), 0, False),
        (WorkPlan(10**9, 720), 29, True),
        (WorkPlan(10**9, 720), 30, False),
        (WorkPlan(10**9, 0), 0, False),
    ],
)
def test_limits_of_a_learner_with_large_work(plan: WorkPlan, rows: int, stays: bool) -> None:
    assert small("fudyadt", plan).holds(rows, 0) == stays


def test_a_learner_without_large_work_leaves_only_for_memory() -> None:
    assert small("confidence_tree", WorkPlan(90)).holds(10**9, 0)
    assert not small("confidence_tree", WorkPlan(90, 720)).holds(30, 0)
    assert not small("confidence_tree", WorkPlan(0)).holds(1, 0)


def test_ones_in_sparse_features_count_as_cells() -> None:
    model = small("gbdt", WorkPlan(90, 720))
    assert model.holds(10, 59)
    assert not model.holds(10, 60)


def test_live_rows_and_those_of_the_batch_count() -> None:
    """Of the live rows the ones are estimated by those of all rows."""
    learner = learners()["gbdt"]
    case = next(case for case in learner.cases() if case.dense and case.sparse)
    features, batch = small_stream(case)
    assert batch.sparse is not None
    cells = len(batch.X) * 3 + len(batch.sparse.indices)
    options = learner.Options.model_validate({**case.options, "kind": "gbdt"})
    for limit in (cells, cells + 1):
        model = SmallModel(learner, options, features, limit)
        assert model.holds_with(batch) == (cells < limit)
    model.session.apply(batch)
    later = replace(batch, start=batch.stop)
    assert not model.holds_with(later)


def test_a_restored_model_counts_its_ones() -> None:
    learner = learners()["gbdt"]
    case = next(case for case in learner.cases() if case.dense and case.sparse)
    features, batch = small_stream(case)
    options = learner.Options.model_validate({**case.options, "kind": "gbdt"})
    first, second = (SmallModel(learner, options, features, 10**9) for _ in range(2))
    first.session.apply(batch)
    state, groups = first.session.state()
    assert ones_of(groups) == len(state["id"])  # each row of the stream has one
    second.restore(state, groups)
    assert second.session.digest() == first.session.digest()
    assert np.array_equal(second.session.coordinator.in_order_of_birth(), np.arange(len(state["id"])))


# -- memory arrays ---------------------------------------------------------------------------------------------------
# Arrays that grow: what they hold, and that a former one gives its pages back.


@pytest.mark.parametrize("grow", [grown, extended])
@pytest.mark.parametrize("length", [0, 5, 3_000, 3_000_000])
def test_new_rows_are_0_behind_the_former_ones(grow: object, length: int) -> None:
    array = grown(np.empty(0, dtype=MEMBER), length)
    array["leaf"] = np.arange(length)
    longer = grow(array, 2 * length + 1)  # type: ignore[operator]
    assert longer["leaf"].tolist() == [*range(length), *[0] * (length + 1)]


def test_an_array_that_was_extended_holds_no_page() -> None:
    array = grown(np.empty(0, dtype=MEMBER), 3_000_000)
    array["leaf"] = 1
    extended(array, 4_000_000)
    assert not array["leaf"].any()


@pytest.mark.parametrize("looks", range(1, 12))
def test_an_array_whose_extension_is_interrupted_is_as_before(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt comes at each line of the loop in turn."""
    monkeypatch.setattr(memory, "_COPIED", 1 << 20)
    array = empty((400_000,), np.dtype(np.int64))
    array[:] = np.arange(len(array))
    left = looks

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code is not extended.__code__:
            return None
        if event == "line" and "copied" in frame.f_locals:
            left -= 1
            if not left:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            extended(array, 500_000)
    finally:
        sys.settrace(None)
    assert np.array_equal(array, np.arange(len(array)))


# -- training --------------------------------------------------------------------------------------------------------
# ``train``: which rows are held out, what a config may say, and what is printed.

SHARE = st.floats(0.0, 0.99)


def rows(ids: Any) -> Rows:
    n, text = len(ids), isinstance(ids[0], str)
    names = np.array([*ids, None], dtype=np.object_)[:-1] if text else None
    numbers = np.full(n, -1) if text else np.array(ids, dtype=np.int64)
    return Rows(np.arange(n), np.empty((n, 0)), np.zeros(n), numbers, names=names)


IDS = st.lists(st.integers(-(2**62), 2**62), min_size=1, unique=True) | st.lists(st.text(max_size=5), min_size=1)


@given(IDS, SHARE, SHARE, st.randoms())
def test_an_id_alone_decides_what_is_held_out(ids, share, other, draw) -> None:
    found = dict(zip(ids, (places(rows(ids)) < share).tolist(), strict=True))
    shuffled = draw.sample(ids, len(ids))
    assert dict(zip(shuffled, (places(rows(shuffled)) < share).tolist(), strict=True)) == found
    more, less = ((places(rows(ids)) < one) for one in (max(share, other), min(share, other)))
    assert not (less & ~more).any()
    assert not (places(rows(ids)) < 0.0).any()


@pytest.mark.parametrize("ids", [list(range(20_000)), [f"k{i}" for i in range(20_000)]], ids=["integers", "text"])
def test_the_share_is_met(ids: list[Any]) -> None:
    assert (places(rows(ids)) < 0.2).mean() == pytest.approx(0.2, abs=0.01)


def config_training(folder: Path, **sections: Any) -> dict[str, Any]:
    columns = {name: [row[name] for row in examples_training(80)] for name in "abcdy"}
    table = pa.table({"id": range(80), **columns, **sections.pop("columns", {})})
    pacsv.write_csv(table, folder / "rows.csv")
    return {
        "source": {"kind": "csv", "path": str(folder / "rows.csv"), "id": "id"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        **sections,
    }


def test_the_config_of_a_training(tmp_path: Path) -> None:
    base = config_training(tmp_path)
    trained = training_config(base)
    assert (trained.stream, trained.stream.warmup) == (Training(), ALL_ROWS)
    assert pipelines.load_config(trained.resolved()).model_hash() == trained.model_hash()
    window = {**base, "stream": {"model": "sliding_window", "window": 10, "on_error": "skip"}}
    assert training_config(window).stream == Training(on_error="skip")
    chosen = {**base, "stream": {"model": "training", "holdout": 0.3}}
    assert training_config(chosen).stream == Training(holdout=0.3)
    assert training_config(chosen, holdout=0.1).stream == Training(holdout=0.1)
    confidence = {**base, "learner": {"kind": "confidence_tree"}}  # which needs a warm-up
    assert training_config(confidence).stream == Training()
    with refused("configs.deleting_stream", ConfigError, model="changelog"):
        training_config({**base, "stream": {"model": "changelog"}})
    with pytest.raises(ConfigError, match=r"stream\.holdout = 1\.0"):
        training_config(base, holdout=1.0)


def test_one_config_for_every_command(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Train says what it passes over; without a stream, replay trains where it has to, and sweeps compare hold-outs."""
    base = config_training(tmp_path, output={"report": False})
    deleting = {**base, "stream": {"model": "deletion_log", "deletion_log": "log.csv", "warmup": 5}}
    assert training_config(deleting).stream == Training()
    assert "log.csv deletes" in caplog.text
    caplog.clear()
    assert training_config({**base, "stream": {"model": "sliding_window", "window": 9}}).stream == Training()
    assert message("configs.unused_stream", keys="stream.model, stream.window") in caplog.text
    for kind in ("gbdt", "confidence_tree"):  # which need a warm-up
        learner = {**base, "learner": {"kind": kind}}
        assert pipelines.load_config(learner).stream == Training()
        with refused("configs.no_warmup", ConfigError):
            pipelines.load_config({**learner, "stream": {"model": "incremental"}})
    swept = pipelines.sweep(base, ["learner.max_depth=1,20"], tmp_path / "swept").table.to_pylist()
    alone = pipelines.train(base, tmp_path / "alone")
    assert (swept[1]["digest"], swept[1]["accuracy"]) == (alone.digest, alone.metrics["accuracy"])


def test_a_bad_row_is_named_and_leaves_no_run(tmp_path: Path) -> None:
    labels = ["u", "v"] * 40
    labels[60] = ""
    bad = config_training(tmp_path, columns={"y": labels})
    with refused("rows.no_label", InputError, row=60, column="y"):
        pipelines.train(bad, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run = pipelines.train(bad, tmp_path / "run", overrides=["stream.on_error=skip"])
    holdout = run.summary["holdout"]
    assert (run.summary["active"], run.summary["skipped"]) == (79, 1)
    assert holdout["rows"] + holdout["trained_on"] == 79


@pytest.mark.parametrize("share", [0.0, 1e-9])
def test_without_a_hold_out_there_is_no_score(tmp_path: Path, share: float) -> None:
    run = pipelines.train(config_training(tmp_path), tmp_path / "run", holdout=share)
    assert (run.metrics, run.summary["baselines"], run.summary["holdout"]["rows"]) == ({}, {}, 0)


def test_what_is_printed_is_what_training_means(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(json.dumps(config_training(tmp_path)))
    for share in ("0.2", "0"):
        out = str(tmp_path / f"run{share}")
        told = CliRunner().invoke(cli, ["train", str(tmp_path / "my.yaml"), "--out", out, "--holdout", share])
        assert told.exit_code == 0, told.output
        names = [line.split("  ")[0] for line in told.output.splitlines()]
        assert {"trained", "digest", "report", "next"} <= set(names)
        assert not {"updates", "live", "speed"} & set(names)
        assert " - " not in told.output
        page = Path(out, "report.html").read_text()
        assert 'id="quality"' in page
        assert 'id="stream"' not in page
        assert "No-change" not in page
    checked = CliRunner().invoke(cli, ["validate", str(tmp_path / "my.yaml"), "--train", "--json"])
    result = json.loads(checked.output)
    assert (result["ok"], result["stream"], result["warnings"]) == (True, "training", [])
