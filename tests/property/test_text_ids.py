"""Text ids of every stream model, here and divided among shards."""

from __future__ import annotations

import random
import tempfile
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from actors import shard as actor
from actors.liveness import Peer
from actors.session import IdsOnShards
from pipelines.config import StreamOptions
from raydt.errors import ModelFileError
from raydt.examples.row_owners import RowOwners
from raydt.examples.updates import DELETE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.exchange.messages import Buckets, Snapshot
from raydt.folders.arrays import SavedIds, apart, bucket_of, packed, parts_in, read_manifest, unpacked
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.sources.divided import open_source
from raydt.sources.file_source import StoredSource
from raydt.sources.options import ArrowFiles
from raydt.streams.base import Stream
from raydt.streams.id_dictionary import DividedIds, IdPart, TextIds
from tests.crews import Handle, Waiting
from tests.small_tables import examples, random_changes, table_of, written
from tests.volume import examples as examples_divided

# -- text ids --------------------------------------------------------------------------------------------------------
# Codes of text ids follow from the updates alone, and what is kept of ids follows the live ones, in every stream.

#: Rows for which an id is remembered here, so that few rows forget many ids.
FEW = 4
MODELS: dict[str, dict[str, Any]] = {
    "incremental": {},
    "sliding_window": {"window": 5},
    "random_updates": {"insert_probability": 0.6},
    "batches": {"steps": [9, 2, 20, 0, 15], "removal_order": "random"},
    "time_window": {"duration": 60, "lateness": 20},
    "changelog": {},
    "changelog, delayed": {"delayed_labels": True},
    "deletion_log": {},
}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextIds, "remembered", FEW)


def opener(folder: Path, model: str, draw: random.Random) -> Any:
    """What opens a stream over few ids that come again and again; with ``True`` over stored rows."""
    n, kind = 60, model.partition(",")[0]
    options = {"model": kind, "on_error": "skip", **MODELS[model]}
    rows = examples(n, draw.randrange(99))
    if kind == "changelog":
        rows = [{**row, "id": f"e{int(row['id'][1:]) % 12}"} for row in random_changes(draw, n)]
    elif kind != "batches":  # which reads rows again
        for row in rows:
            row |= {"id": f"e{draw.randrange(14)}", "ts": row["ts"] + draw.randrange(30)}
    if kind == "deletion_log":
        lines = (f"e{draw.randrange(16)},{after}" for after in sorted(draw.choices(range(n + 5), k=45)))
        (folder / "log.csv").write_text("\n".join(["id,after", *lines]))
        options |= {"deletion_log": str(folder / "log.csv")}
    path = written(folder / "rows.arrow", table_of(rows))
    changes = {"op": "op"} if kind == "changelog" else {}
    source = ArrowFiles(path=str(path), id="id", ts="ts", features=["a", "d"], **changes)
    adapter: TypeAdapter[Any] = TypeAdapter(StreamOptions)

    def opened(stored: bool = False) -> Stream:
        fresh = open_source(source)
        stream: Stream = adapter.validate_python(options).make(fresh)
        return adapter.validate_python(options).make(StoredSource(stream.source)) if stored else stream

    return opened


def twin(batches: list[UpdateBatch], model: str) -> list[int]:
    """The codes of all updates, from all that has happened before each of them."""
    live: set[str] = set()
    code: dict[str, int] = {}
    ended: dict[str, int] = {}  # by id: rows given before its example was deleted, or it was seen without one
    rows = known = 0
    codes = []
    for batch in batches:
        for place, op in enumerate(batch.op.tolist()):
            name, is_row = batch.name(place), batch.row[place] >= 0
            if name is not None and name not in live and ended.get(name, -FEW) + FEW <= rows and is_row:
                code[name], known, ended[name] = known, known + 1, rows
            there = name in live or ended.get(name, -FEW) + FEW > rows
            codes.append(code[name] if name is not None and there else -1)
            if op == DELETE and name in live:
                live.remove(name)
                ended[name] = rows
            elif op in (INSERT, QUERY) and name is not None:
                live.add(name)
            assert op != UPDATE or name in code
            rows += is_row
    return codes


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(4))
def test_codes_depend_on_the_updates_alone(tmp_path: Path, model: str, seed: int) -> None:
    draw = random.Random(f"{model} {seed}")
    opened = opener(tmp_path, model, draw)
    whole = opened()
    batches = list(whole.batches(10**6))
    expected = [code for batch in batches for code in batch.id.tolist()]
    names = [name for batch in batches for name in batch.names or ()]
    assert expected == twin(batches, model)
    stream = opened(stored=bool(seed % 2))
    found: list[int] = []
    found_names: list[str | None] = []
    while (batch := next(stream.batches(draw.choice((1, 2, 7, 40))), None)) is not None:
        found += batch.id.tolist()
        found_names += batch.names or ()
        state = stream.state()
        if draw.random() < 0.3 and not isinstance(stream.source, StoredSource):
            stream = opened()
            stream.restore(state)
    assert (found, found_names) == (expected, names)
    for name, value in whole.state().items():
        if name.startswith("id"):
            np.testing.assert_array_equal(value, stream.state()[name])


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("model", MODELS)
def test_memory_follows_the_live_ids(tmp_path: Path, model: str) -> None:
    """Beside the live ids, a state has those that were deleted, or not found, a few rows ago at most."""
    stream, live, rows = opener(tmp_path, model, random.Random(model))(), set[str | None](), 0
    seen: dict[str | None, int] = {}
    for batch in stream.batches(3):
        for place, op in enumerate(batch.op.tolist()):
            seen[batch.name(place)] = rows
            if op in (INSERT, QUERY):
                live.add(batch.name(place))
            elif op == DELETE:
                live.discard(batch.name(place))
            rows += int(batch.row[place] >= 0)
        state = stream.state()
        assert len(state["ids"]) == len(state["id_codes"]) == len(state["id_died"])
        assert set(state["ids"]) - live <= {name for name, row in seen.items() if row + FEW > rows}
    assert len(seen) > 2 * (len(state["ids"]) - len(live))


# -- divided ids -----------------------------------------------------------------------------------------------------
# Text ids in several processes have the codes, the names and the states that they have in one.

#: Rows for which an id is remembered here, and ids that stay in one process.
FEW_DIVIDED, MOST = 4, 3
META = {"learner": {}, "features": [], "classes": [], "config_hash": None, "source_fingerprint": None}


@pytest.fixture
def few_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextIds, "remembered", FEW_DIVIDED)
    monkeypatch.setattr(TextIds, "most_here", MOST)


class Counted(IdsOnShards):
    """Parts in actors of this process, whose rounds are counted."""

    def __init__(self, parts: int, here: bool = True) -> None:
        peers = [Peer(f"shard {i}", Handle(actor.FeatureShard())) for i in range(parts)]
        super().__init__(peers, Waiting(), here)  # type: ignore[arg-type]
        self.rounds = 0

    def call(self, method: str, each: Any) -> list[Any]:
        """Count the round."""
        self.rounds += 1
        return super().call(method, each)

    def ids(self) -> int:
        """Return how many ids are in the parts."""
        return sum(len(shard.handle._actor._ids._codes) for shard in self._shards)

    def remembered(self) -> int:
        """Return how many removed ids the parts keep."""
        return sum(len(shard.handle._actor._ids._gone) for shard in self._shards)


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """States are equal."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


class Both:
    """Text ids in one process and, with the same calls, in several."""

    def __init__(self, folder: str, draw: random.Random) -> None:
        self.draw, self.store = draw, CheckpointStore(Folder(folder), 99)
        self.one, self.parts, self.number = TextIds(), Counted(self.draw.choice((1, 2, 3, 8)), draw.random() < 0.5), 0
        self.several = TextIds()
        self.several.divide(self.parts)
        self.live: set[int] = set()
        self.taken: list[tuple[dict[str, Any], dict[str, Any]]] = []  # the states of both at earlier moments

    def step(self) -> None:
        """Do one thing with both."""
        acts = [self.give] * 6 + [self.choose, self.look, self.ask, self.take, self.write, self.rewind]
        self.draw.choice(acts)()

    def names(self, n: int) -> Any:
        """Ids of which some come again; also None, empty ones and letters of several bytes."""
        every = [None, "", "é", "日本", *(f"id {i}" for i in range(14))]
        return np.array([*(self.draw.choice(every) for _ in range(n)), None], dtype=np.object_)[:-1]

    def give(self) -> None:
        """Rows that insert, delete, update and query, or the entries of a log between rows."""
        n, logged = self.draw.randrange(12), self.draw.random() < 0.3
        op = np.array([self.draw.choice((INSERT, INSERT, DELETE, UPDATE, QUERY)) for _ in range(n)], dtype=np.int8)
        names = self.names(n)
        if self.draw.random() < 0.5:
            np.testing.assert_array_equal(self.one.look(names), self.several.look(names))
        found = self.one.give(names, op, logged=logged)
        np.testing.assert_array_equal(found, self.several.give(names, op, logged=logged))
        assert self.one.names_of(found) == self.several.names_of(found)
        for code, kind in zip(found.tolist(), op.tolist(), strict=True):
            (self.live.discard if kind == DELETE else self.live.add)(code)
        self.live.discard(-1)

    def choose(self) -> None:
        """Deletions that a stream chooses, within rows that were just inserted."""
        names = np.array([f"new {self.draw.randrange(40)}" for _ in range(3)], dtype=np.object_)
        op = np.full(3, INSERT, dtype=np.int8)
        inserted = self.one.give(names, op)
        np.testing.assert_array_equal(inserted, self.several.give(names, op))
        gone = self.draw.sample(sorted(self.live), min(len(self.live), self.draw.randrange(4)))
        deleted = {code: self.draw.randrange(4) for code in gone}
        for ids in (self.one, self.several):
            ids.end(inserted, deleted)
        self.live = (self.live | set(inserted.tolist())) - set(gone)

    def look(self) -> None:
        names = self.names(self.draw.randrange(20))
        np.testing.assert_array_equal(self.one.look(names), self.several.look(names))

    def ask(self) -> None:
        codes = np.array([self.draw.randrange(-1, self.one._next + 1) for _ in range(9)])
        assert self.one.names_of(codes) == self.several.names_of(codes)

    def take(self) -> None:
        """Remember this moment."""
        self.taken.append((deepcopy(self.one.state()), self.several.state()))
        codes = np.arange(-1, self.one._next + 1)
        assert self.one.names_of(codes) == self.several.names_of(codes)

    def rewind(self) -> None:
        """Go back to the last moment that is remembered."""
        if self.taken and isinstance(self.several._ids, DividedIds):
            one, several = self.taken[-1]
            if "dead" in several:
                self.one.restore(one)
                self.several.restore(several)
                self.live = set(one["id_codes"][one["id_died"] < 0].tolist())

    def write(self) -> None:
        """Write the state of a moment, read it whole, and perhaps go on from it with other parts."""
        if not self.taken:
            self.take()
        whole, state = self.taken.pop(self.draw.randrange(len(self.taken)))
        self.number += 1
        none = np.empty(0, dtype=np.int64)
        snapshot = Snapshot(0, none, {}, {"seq": none}, (0, 0))
        content = CheckpointContent(self.number, {**META, "offset": self.number}, snapshot, {"stream": state})
        self.store.write(content)
        place = self.store.folder.inside(str(self.number))
        same(read_checkpoint(place).components["stream"], whole)
        if self.draw.random() < 0.4:
            self.taken.clear()
            self.one.restore(whole)
            self.several = TextIds()
            n = self.draw.choice((0, 1, 2, 3, 8, 300))
            if n:
                self.parts = Counted(n, self.draw.random() < 0.5)
                self.several.divide(self.parts)
            self.several.restore(apart(read_checkpoint(place, apart=True).components, place))
            self.live = set(whole["id_codes"][whole["id_died"] < 0].tolist())
            same(whole, self.one.state())


@pytest.mark.usefixtures("few_divided")
@examples_divided(400)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_divided_ids_are_those_of_one_process(draw: random.Random, steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        both = Both(folder, draw)
        for _ in range(steps):
            both.step()
            assert len(both.one) == len(both.several)
        both.taken.clear()
        both.take()
        both.write()


@pytest.mark.usefixtures("few_divided")
@pytest.mark.turns(10)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_streams_with_divided_ids(tmp_path: Path, model: str, seed: int) -> None:
    draw = random.Random(f"{model} {seed}")
    opened = opener(tmp_path, model, draw)
    whole, stream, several = opened(), opened(), Counted(1 + seed)
    stream.divide_ids(several)
    size = draw.choice((1, 7, 40))
    for expected, found in zip(whole.batches(size), stream.batches(size), strict=True):
        np.testing.assert_array_equal(expected.id, found.id)
        assert expected.names == found.names
    assert several.rounds, "nothing was divided"


@pytest.mark.usefixtures("few_divided")
@pytest.mark.parametrize("model", ["incremental", "changelog", "deletion_log"])
def test_a_batch_takes_one_round(tmp_path: Path, model: str) -> None:
    stream, several = opener(tmp_path, model, random.Random(model))(), Counted(3)
    stream.divide_ids(several)
    rounds = []
    for _ in stream.batches(9):
        rounds.append(several.rounds)
    handed = next(i for i, n in enumerate(rounds) if n)
    assert max(np.diff(rounds[handed:])) == 1


@pytest.mark.usefixtures("few_divided")
def test_memory_here_follows_the_batch_and_elsewhere_the_live_ids() -> None:
    ids, parts = TextIds(), Counted(3)
    ids.divide(parts)

    def insert(begin: int, end: int) -> Any:
        names = np.array([f"id {i}" for i in range(begin, end)], dtype=np.object_)
        return ids.give(names, np.full(end - begin, INSERT, dtype=np.int8))

    for begin in range(0, 3000, 50):
        codes = insert(begin, begin + 50)
        ids.end(codes, dict.fromkeys(codes[::2].tolist(), 50))
    state = ids.state()
    here = ids._ids
    assert isinstance(here, DividedIds)
    assert max(len(here._codes), len(here._names), len(ids._died)) <= 50
    assert not any(here._added + here._removed)  # type: ignore[operator]
    assert len(ids) == parts.ids() == 1500 + len(state["dead"])
    assert not parts.remembered()
    ids.end(codes, dict.fromkeys(codes[1::2].tolist(), 50))
    insert(4000, 4050)
    insert(5000, 5050)
    ids.look(np.array(["other"], dtype=np.object_))
    assert parts.remembered() == 50, "somebody may ask for the moment of the state"
    del state
    for begin in (6000, 7000, 8000):
        codes = insert(begin, begin + 50)
        ids.end(codes, dict.fromkeys(codes.tolist(), 50))
    assert not parts.remembered()


@pytest.mark.usefixtures("few_divided")
@pytest.mark.parametrize("here", [True, False])
def test_damaged_parts_are_refused(tmp_path: Path, here: bool) -> None:
    ids, store = TextIds(), CheckpointStore(Folder(tmp_path), 9)
    ids.divide(Counted(2))
    ids.give(np.array([f"id {i}" for i in range(20)], dtype=np.object_), np.full(20, INSERT, dtype=np.int8))
    none = np.empty(0, dtype=np.int64)
    stream = {"stream": ids.state()}
    store.write(CheckpointContent(7, {**META, "offset": 7}, Snapshot(0, none, {}, {"seq": none}, (0, 0)), stream))
    place = store.folder.inside("7")
    (damaged,) = (file.name for file in read_manifest(place).files if file.component == "ids-2048-4096")
    data = bytearray((tmp_path / "7" / damaged).read_bytes())
    data[-200] ^= 1
    (tmp_path / "7" / damaged).write_bytes(data)
    with pytest.raises(ModelFileError, match="ids-2048-4096"):
        read_checkpoint(place)
    again = TextIds()
    again.divide(Counted(3, here))
    with pytest.raises(ModelFileError, match="ids-2048-4096"):
        again.restore(apart(read_checkpoint(place, apart=True).components, place))


@pytest.mark.usefixtures("few_divided")
def test_parts_that_do_not_fit_are_refused() -> None:
    arrays = packed(np.arange(2), ["a", "é"])
    assert unpacked(arrays)[1] == ["a", "é"]
    for name in arrays:
        with pytest.raises(ValueError, match="entry for each"):
            unpacked({**arrays, name: arrays[name][:-1]})
    saved = SavedIds(Folder("."), {Buckets(0, 4096): "ids-0000-4096"}, {"ids-0000-4096": {}})
    with pytest.raises(ModelFileError):
        IdPart().read(saved, Buckets(0, 128))


def test_ids_of_256_buckets_are_read_by_any_number_of_parts() -> None:
    """As earlier builds wrote them: the bucket of an id is the first byte of its CRC-32."""
    names, bounds = [f"id {i}" for i in range(500)], (0, 85, 85, 256)
    codes = {name: code for code, name in enumerate(names)}
    components: dict[str, Any] = {}
    for begin, end in pairwise(bounds):
        own = [name for name in names if begin <= crc32(name.encode()) >> 24 < end]
        if begin < end:
            components[f"ids-{begin:03d}-{end:03d}"] = packed(np.array([codes[name] for name in own]), own)
    saved = SavedIds(Folder("."), parts_in(components), components)
    for parts in (1, 2, 5, 300):
        found: dict[str, int] = {}
        for buckets in RowOwners(parts).of_all():
            part = IdPart()
            part.read(saved, buckets)
            given, _ = part.exchange(None, names, [])
            mine = [bucket_of(name) in set(buckets) for name in names]
            assert (given >= 0).tolist() == mine
            found |= {name: int(code) for name, code in zip(names, given, strict=True) if code >= 0}
        assert found == codes
