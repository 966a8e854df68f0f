"""A table that is followed with a model for each key: every key is a run of what the table has done to its rows.

Deletions name no key, updates move rows between keys, rows are bad and good again; the reader stops and goes on
anywhere. The twin (:mod:`tests.changing_table`) writes what each key is to get into a file with all keys named.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt.errors import InputError
from raydt.examples.updates import DELETE
from raydt.keyed.members import KeyedJob
from raydt.keyed.session import KeyedSession, NewTableRows
from raydt.keyed.source import SharedSource, TableKeys, told_apart
from raydt.keyed.stream import KeyedStream
from raydt.learners import learners
from raydt.sources.divided import open_source
from raydt.sources.live.followed import FollowedSource
from raydt.sources.options import ArrowFiles
from raydt.streams.deletion_log import Changelog
from tests.changing_table import ChangingTable, Told

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
        self.session = KeyedSession(
            KeyedJob(shared, learner, options, source.features, model), NewTableRows(10, predicting=False)
        )
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
@pytest.mark.parametrize("seed", range(100, 300))
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
