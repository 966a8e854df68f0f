"""A key's model, scores and stream are those of a run over the rows of its key alone, however rows arrive."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from raydt.keyed.groups import GROUPS, digest_of, digest_of_groups, group_of
from raydt.keyed.members import KeyedJob, Members
from raydt.keyed.packing import packed, unpacked
from raydt.keyed.source import SharedSource
from raydt.learners.base import NOTHING_DIVIDED
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles
from raydt.streams.base import Tally
from raydt.streams.deletion_log import Changelog, RandomUpdates
from raydt.streams.windows import Incremental, SlidingWindow, TimeWindow
from tests.cases import CASES, Trial, change_log, net, one_of_each, place_of
from tests.small_tables import table_of, written
from tests.volume import nightly

KEYS = ["north", "", "7", "two\nlines", "long" * 50]


def models(warmup: int) -> dict[str, Any]:
    return {
        "changelog": Changelog(warmup=warmup, on_error="skip"),
        "incremental": Incremental(warmup=warmup, on_error="skip"),
        "sliding_window": SlidingWindow(warmup=warmup, window=max(12, warmup), on_error="skip"),
        "random_updates": RandomUpdates(warmup=warmup, on_error="skip"),
        "time_window": TimeWindow(duration=15, lateness=4, on_error="skip", warmup=0),
    }


def rows_of(trial: Trial, changes: bool, seed: int) -> list[dict[str, Any]]:
    """Rows of several keys among each other; the first ones of each key are inserts."""
    draw = random.Random(seed)
    logs = {}
    for place, key in enumerate(KEYS):
        log = change_log(90 if nightly else 40, trial.case.warmup, seed * 100 + place)
        if not changes:
            log = [{**row, "id": f"e{i}"} for i, row in enumerate(log) if row["op"] == "insert"]
        logs[key] = [{**row, "key": key, "ts": 2 * i + draw.randrange(6)} for i, row in enumerate(log)]
    mixed = []
    while any(logs.values()):
        key = draw.choice([key for key, log in logs.items() if log])
        mixed.append(logs[key].pop(0))
    return mixed


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    table = table_of(rows)
    keys = pa.array([row["key"] for row in rows], pa.string())
    return str(written(path, table.append_column("key", keys)))


def options(trial: Trial, path: str, changes: bool) -> ArrowFiles:
    columns = {**trial.columns, "op": "op"} if changes else {**trial.columns, "ts": "ts"}
    return ArrowFiles.model_validate({"kind": "arrow", "path": path, "key": "key", **columns})


def alone(trial: Trial, model: Any, source_options: ArrowFiles, size: int) -> dict[str, Any]:
    """Outcome of the rows of one key in a file of their own."""
    source = open_source(source_options, reading=trial.reading)
    stream = model.make(source)
    session = InProcessSession(trial.learner, trial.options, trial.features(source), 1, NOTHING_DIVIDED)
    tally = Tally(stream)
    for batch in stream.batches(size):
        tally.record(batch, session.apply(batch, skip_refused=True), 0.0)
        tally.record_skipped(stream.take_skipped())
    tally.record_skipped(stream.take_skipped())
    session.finish()
    return outcome(session, stream, tally)


def outcome(session: InProcessSession, stream: Any, tally: Tally) -> dict[str, Any]:
    state = stream.state()
    state["source"] = {name: value for name, value in state["source"].items() if name != "keys"}
    counts = tally.state()
    for name in ("seconds", "statistics"):
        counts.pop(name)
    traffic = ("rounds", "bytes_exchanged")
    statistics = {name: count for name, count in session.statistics().items() if name not in traffic}
    return {"digest": session.digest(), "stream": repr(state), "tally": repr(counts), "statistics": statistics}


@net(
    "models by key",
    "trial, name",
    product(CASES, models(0)),
    lambda trial, name: one_of_each(trial) and (place_of(trial) - list(models(0)).index(name)) % 5 == 0,
)
def test_a_key_is_a_run_of_its_own(trial: Trial, name: str, tmp_path: Path) -> None:
    """Also if all keys are saved and restored on the way, whatever the blocks in which rows are read."""
    if trial.needs_warmup and name == "time_window":
        pytest.skip("the learner needs a warm-up")
    changes, model = name == "changelog", models(trial.case.warmup)[name]
    rows = rows_of(trial, changes, seed=3)
    whole = options(trial, write(tmp_path / "all.arrow", rows), changes)
    expected = {}
    for place, key in enumerate(KEYS):
        own = [row for row in rows if row["key"] == key]
        path = write(tmp_path / f"{place}.arrow", own)
        expected[key] = alone(trial, model, whole.model_copy(update={"path": path, "key": None}), 7)

    source = open_source(whole, reading=trial.reading)
    source._chunk_rows = 13  # type: ignore[attr-defined]
    job = KeyedJob(
        SharedSource(source, trial.reading),  # type: ignore[arg-type]
        trial.learner,
        trial.options,
        trial.features(source),
        model,
        size=5,
    )
    members, blocks, changed = Members(job), 0, set[int]()
    for block in source.rows():
        members.learn(job.shared.split(block))
        blocks += 1
        if blocks % 4 == 0:
            changed.update(members.take_changed())
            held = packed({key: member.state() for key, member in members.by_key.items()})
            members = Members(replace(job))
            members.restore(unpacked(held))
    members.finish()
    assert blocks > 4
    found = {key: outcome(one.session, one.stream, one.tally) for key, one in members.by_key.items()}
    assert found == expected
    digests = {key: entry["digest"] for key, entry in expected.items()}
    assert digest_of(digests) == digest_of_groups(members.digest_of_groups(range(GROUPS)))
    assert changed.union(members.take_changed()) == {group_of(key) for key in KEYS}
