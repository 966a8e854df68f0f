"""Shards that own rows write their own parts of a checkpoint, and any number of shards reads them back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors import shard as actor
from actors.liveness import Peer
from actors.session import ShardParts
from raydt.batches import rows_on_shards as owning_shard
from raydt.errors import ModelFileError, NotWrittenError, ProcessLostError
from raydt.examples import owned_rows
from raydt.examples.row_owners import RowOwners, are_in
from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, INSERT, UNIT, UpdateBatch
from raydt.exchange.messages import Buckets, Snapshot, injected
from raydt.folders import arrays
from raydt.folders import segments as stored_rows
from raydt.folders.arrays import save_folder
from raydt.folders.checkpoint import CheckpointContent, CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.fudyadt import coordinator as owned_coordinator
from raydt.learners.fudyadt import dynamic_tree
from raydt.learners.fudyadt import shard as fudyadt_shard
from raydt.sessions.saved_model import SavedModel, model_meta, read_parts, state_components, understood
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.options import Hyperplane
from raydt.streams.windows import SlidingWindow
from tests import volume
from tests.crews import Handle, Waiting

SOURCE = Hyperplane(n=450, n_features=6)
DIVIDED = WorkPlan(local_work_limit=0, row_cache_bytes=0, shared_store=False)
#: Updates of a batch; and of the checkpoints, in the warm-up and within and at the end of a D'.
SIZE, AT = 50, (150, 250, 350)


#: Options of each learner whose shards own rows.
FIXED: dict[str, dict[str, Any]] = {
    "gbdt": {"max_iter": 3, "max_bins": 16, "update_every": 100, "retrain": "never"},
    "fudyadt": {"alpha": 0.01, "beta": 0.05, "max_depth": 6},
}


class Case:
    """A learner with some options, and its stream."""

    def __init__(self, kind: str = "gbdt", **others: Any) -> None:
        self.learner = learners()[kind]
        self.options = self.learner.Options.model_validate({"kind": kind, **FIXED[kind], "feature_groups": 6, **others})
        self.regression = self.learner.traits(self.options).reading.regression
        self.features = replace(open_source(SOURCE).features, groups=6)
        self.meta = model_meta(self.options, self.features, [] if self.regression else [0, 1], {})
        self.meta |= {"config_hash": None, "source_fingerprint": None, "next_id": 10_000}

    def batches(self) -> Iterator[UpdateBatch]:
        """Batches of a window in which every row is deleted again."""
        for batch in SlidingWindow(warmup=200, window=220).make(open_source(SOURCE)).batches(SIZE):
            if self.options.class_weight is not None and batch.start >= 250:  # after two checkpoints without weights
                new = batch.id[CARRIES_ROW[batch.op]]
                batch = replace(batch, weight=((1 + new % 3) * UNIT // 2).astype(np.uint32))
            # A number that depends on the row, so that leaves and ledger do.
            yield replace(batch, y=batch.y + batch.X[:, 0], n_classes=0) if self.regression else batch

    def session(self, shards: int) -> InProcessSession:
        """A session whose shards own the rows; 0: one process that has them all."""
        return InProcessSession(
            self.learner, self.options, self.features, max(1, shards), DIVIDED if shards else WorkPlan()
        )

    def write(self, store: CheckpointStore, updates: int, snapshot: Snapshot) -> int:
        """Write a checkpoint; returns its bytes."""
        return store.write(CheckpointContent(updates, self.meta | {"offset": updates}, snapshot, {}))


@pytest.fixture(scope="module", autouse=True)
def windows() -> Iterator[None]:
    """Owners and coordinator send leaves, labels, births and columns in several windows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owned_coordinator, "_SENT", 3)
        patch.setattr(fudyadt_shard, "_TOLD", 3)
        patch.setattr(owned_rows, "_WINDOW", 40)
        patch.setattr(dynamic_tree, "PLACED_ROWS", 3)
        patch.setattr(dynamic_tree, "FETCHED", 50)
        patch.setattr(fudyadt_shard, "FETCHED", 50)
        patch.setattr(dynamic_tree, "FETCHED_ROWS", 5)
        yield


def actors_of(session: InProcessSession, shards_of_each: int) -> list[Any]:
    """Processes of some shards each, as on Ray."""
    found = []
    for begin in range(0, len(session.shards), shards_of_each):
        one = actor.FeatureShard()
        one._shards = session.shards[begin : begin + shards_of_each]
        found.append(one)
    return found


def remote_parts(session: InProcessSession, snapshot: Snapshot, here: bool) -> ShardParts:
    """The parts of a snapshot as they are on Ray, of processes with two shards; ``here``: they see the folder."""
    peers = [Peer(f"shard {i}", Handle(one)) for i, one in enumerate(actors_of(session, 2))]
    return ShardParts(snapshot.aside, peers, Waiting(), here)  # type: ignore[arg-type]


def snapshot_of(session: InProcessSession, store: CheckpointStore) -> Snapshot:
    """A snapshot whose parts are not taken yet."""
    from raydt.sessions.session import take_snapshot

    return session.driver.run(take_snapshot(session.coordinator, store.segments))


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def saved_in(folder: Folder, *, apart: bool) -> SavedModel:
    found = read_checkpoint(folder, apart=apart)
    return understood(found.meta, found.components, folder.location)


def restored_from(session: InProcessSession, folder: Folder) -> None:
    """Have a session restored whose processes of two shards read their own parts."""
    owners, begin = RowOwners(len(session.shards)).of_all(), 0
    for one in actors_of(session, 2):
        one.restore_from(folder, owners[begin : begin + 2])
        begin += 2
    session.coordinator.restore(saved_in(folder, apart=True).arrays)


def outcome(session: InProcessSession, batch: UpdateBatch) -> tuple[str, str]:
    """Predictions of a batch, NaN before there is a number, and the digest after it."""
    return repr(session.apply(batch).predictions.tolist()), session.digest()


def expected_of(case: Case) -> dict[int, Any]:
    """Predictions and digest after each batch, by one process."""
    session, found = case.session(0), {}
    for batch in case.batches():
        found[batch.stop] = outcome(session, batch)
    return found


OPTIONS: tuple[dict[str, Any], ...] = (
    {"early_stopping": True},
    {"class_weight": "balanced"},
    {},
    {"objective": "squared_error"},
    {"kind": "fudyadt", "class_weight": "balanced"},
    {"kind": "fudyadt", "epsilon": 0.3, "alpha": 0.0, "beta": 0.0},
    {"kind": "fudyadt", "criterion": "squared_error"},
)
WAYS = ((1, (2,)), (3, (1,)), (3, (1, 2)), (5, (3,)), (2, (2, 5)))
#: Options, shards that write and those that read, and bytes of a part of what a shard has, if there are several.
MOVES = list(product(OPTIONS, WAYS, (100, None)))
DAILY = [(OPTIONS[1], WAYS[1], 100), (OPTIONS[4], WAYS[2], None)]


@pytest.mark.turns(1)
@pytest.mark.share
@pytest.mark.parametrize(
    ("options", "ways", "pieces_of"),
    [pytest.param(*move, marks=[] if move in DAILY else pytest.mark.nightly) for move in MOVES],
    ids=str,
)
def test_any_number_of_shards_goes_on(
    options: dict[str, Any],
    ways: tuple[int, tuple[int, ...]],
    pieces_of: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one part of each shard, or with many."""
    shards, others = ways
    moments = volume.spread(AT, 2)
    if pieces_of is not None:
        monkeypatch.setattr(owning_shard, "_PIECE", pieces_of)
    case = Case(**options)
    expected, session = expected_of(case), case.session(shards)
    folders = {name: tmp_path / name for name in ("shards", "driver", "arrays")}
    stores = {name: CheckpointStore(Folder(folder), 9) for name, folder in folders.items()}
    for batch in case.batches():
        assert outcome(session, batch) == expected[batch.stop]
        if batch.stop in moments:
            for name, store in stores.items():
                snapshot = snapshot_of(session, store)
                if name == "arrays":
                    snapshot.parts = [shard.take_aside(snapshot.aside) for shard in session.shards]
                else:
                    snapshot.parts = remote_parts(session, snapshot, here=name == "shards")
                assert case.write(store, batch.stop, snapshot) > 0
    assert files_of(folders["shards"]) == files_of(folders["driver"]) == files_of(folders["arrays"])
    for at in moments:
        folder = Folder(folders["shards"]).inside(str(at))
        whole, apart = saved_in(folder, apart=False), saved_in(folder, apart=True)
        trained = at >= 200 or case.learner.kind == "fudyadt"  # its leaves are with the rows
        assert ("leaf" in whole.arrays, "leaf" in apart.arrays) == (trained, False)
        assert not {"id", "y", "born", "pending"} & apart.arrays.keys()
        assert len(apart.buckets) == shards if pieces_of is None else len(apart.buckets) > 4 * shards
        reference = case.session(0)
        for batch in case.batches():
            if batch.stop <= at:
                reference.apply(batch)
        state, _ = reference.state()
        for name, array in state.items():
            np.testing.assert_array_equal(whole.arrays[name], array, name)
        assert ("weight" in whole.arrays) == (case.options.class_weight is not None and at > 250)
        for way in (0, *others):
            resumed = case.session(way)
            if way == 0:
                resumed.restore(apart.arrays, apart.groups, apart.buckets)
            elif way == others[0]:
                restored_from(resumed, folder)
            else:  # parts that were sent
                resumed.coordinator.restore(apart.arrays)
                for one in actors_of(resumed, 1):
                    one._groups = [shard.worker.groups for shard in one._shards]
                    one.restore(dict(read_parts(folder).items()))
            assert resumed.digest() == expected[at][1]
            again, _ = resumed.state()
            for name, array in state.items():
                np.testing.assert_array_equal(again[name], array, name)
            for batch in case.batches():
                if batch.start >= at:
                    assert outcome(resumed, batch) == expected[batch.stop]


def test_the_model_counts_rows_as_one_process_does() -> None:
    case = Case()
    one, many = case.session(0), case.session(3)
    for batch in case.batches():
        one.apply(batch)
        many.apply(batch)
    for name, array in one.model().items():
        np.testing.assert_array_equal(many.model()[name], array, name)


def test_a_part_that_cannot_be_written_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one shard of several: the files of the others go again."""
    case, folder = Case(), tmp_path / "checkpoints"
    session, store = case.session(4), CheckpointStore(Folder(folder), 9)
    for batch in case.batches():
        session.apply(batch)
        if batch.stop == 250:
            snapshot = snapshot_of(session, store)
            snapshot.parts = remote_parts(session, snapshot, here=True)
            case.write(store, 250, snapshot)
            before = files_of(folder)
    publish = Folder.publish

    def full(self: Folder, name: str, data: Any) -> None:
        if name.startswith("buckets-2048"):
            raise OSError(28, "No space left on device")
        publish(self, name, data)

    monkeypatch.setattr(Folder, "publish", full)
    snapshot = snapshot_of(session, store)
    snapshot.parts = remote_parts(session, snapshot, here=True)
    with pytest.raises(NotWrittenError, match="No space left"):
        case.write(store, 450, snapshot)
    assert files_of(folder) == before


@pytest.mark.turns(2)
@pytest.mark.parametrize("point", ["shard.before_parts", "shard.between_parts", "shard.after_parts"])
@pytest.mark.parametrize("n", [1, 2])
def test_a_shard_that_is_lost_while_it_writes_leaves_what_was_there(point: str, n: int, tmp_path: Path) -> None:
    """At the n-th pass through the point, one of two processes; the files of the other one go, too."""
    case, folder = Case(), tmp_path / "checkpoints"
    expected, session, store = expected_of(case), case.session(4), CheckpointStore(Folder(folder), 9)
    for batch in case.batches():
        if batch.stop > 350:
            break
        session.apply(batch)
        if batch.stop == 250:
            snapshot = snapshot_of(session, store)
            snapshot.parts = remote_parts(session, snapshot, here=True)
            case.write(store, 250, snapshot)
            before = files_of(folder)
    written: list[int] = []
    passes = iter(range(1, 100))

    def lose(passed: str) -> None:
        if passed == point and next(passes) == n:
            written.append(len(files_of(folder)))
            raise ProcessLostError("shard 1 is lost")

    snapshot = snapshot_of(session, store)
    snapshot.parts = remote_parts(session, snapshot, here=True)
    with injected(lose), pytest.raises(ProcessLostError):
        case.write(store, 350, snapshot)
    first = (point, n) == ("shard.before_parts", 1)
    assert written[0] > len(before) or first, "nothing was written"
    assert files_of(folder) == before
    (number,) = store.numbers()
    apart = saved_in(Folder(folder).inside(str(number)), apart=True)
    resumed = case.session(3)
    resumed.restore(apart.arrays, apart.groups, apart.buckets)
    assert {b.stop: outcome(resumed, b) for b in case.batches() if b.start >= number} == {
        stop: one for stop, one in expected.items() if stop > number
    }


@pytest.mark.parametrize(
    ("kind", "array"),
    [("gbdt", name) for name in ("id", "y", "born", "pending", "leaf", "ledger", "drift", "missing")]
    + [("fudyadt", name) for name in ("id", "y", "born", "leaf", "missing")],
)
def test_parts_that_cannot_be_are_refused(kind: str, array: str, tmp_path: Path) -> None:
    case = Case(kind)
    session, store = case.session(3), CheckpointStore(Folder(tmp_path), 9)
    for batch in case.batches():
        if batch.stop <= 250:
            session.apply(batch)
    snapshot = snapshot_of(session, store)
    parts: list[Any] = [shard.take_aside(snapshot.aside) for shard in session.shards]
    (of_rows,) = (part for part in parts[1] if not isinstance(part, int))
    if array == "missing":
        del parts[1][of_rows]
    else:
        own = parts[1][of_rows]._asdict()["rows" if array in ("id", "y") else "state"]
        own[array] = (
            own[array][::-1].copy() if array == "born" else own[array][1:] if array == "drift" else own[array] + 1
        )
    snapshot.parts = parts
    case.write(store, 250, snapshot)
    if array == "ledger":  # any number may have been added; an audit finds it
        saved_in(Folder(tmp_path).inside("250"), apart=True)
        return
    with pytest.raises(ModelFileError):
        saved_in(Folder(tmp_path).inside("250"), apart=False)
    with pytest.raises(ModelFileError):
        restored_from(case.session(2), Folder(tmp_path).inside("250"))
    if array != "missing":  # then the driver notices, too
        apart = saved_in(Folder(tmp_path).inside("250"), apart=True)
        with pytest.raises(ModelFileError):
            case.session(2).restore(apart.arrays, apart.groups, apart.buckets)


@pytest.mark.nightly
def test_the_driver_reads_no_part_of_the_rows_and_each_shard_finds_damage_in_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is changed but the learner."""
    monkeypatch.setattr(owning_shard, "_PIECE", 100)
    monkeypatch.setattr(stored_rows, "KEEP_BYTES", 0)
    case, store = Case(), CheckpointStore(Folder(tmp_path), 9)
    session = case.session(2)
    for batch in case.batches():
        session.apply(batch)
        if batch.stop == AT[-1]:
            break
    snapshot = snapshot_of(session, store)
    snapshot.parts = [shard.take_aside(snapshot.aside) for shard in session.shards]
    case.write(store, AT[-1], snapshot)
    folder = store.folder.inside(str(AT[-1]))
    parts = [path for place in (str(AT[-1]), "rows") for path in (tmp_path / place).glob("*-*.npz")]
    assert len([path for path in parts if "buckets" in path.name]) > 40
    read, real = list[str](), arrays.read_entry
    monkeypatch.setattr(arrays, "read_entry", lambda place, entry: read.append(entry.name) or real(place, entry))
    saved_in(folder, apart=True)
    assert not [name for name in read if "buckets" in name or "group" in name]
    restored_from(case.session(2), folder)
    assert {Path(name).name for name in read} >= {path.name for path in parts}
    for path in parts[::7]:
        sound = path.read_bytes()
        path.write_bytes(sound[:-9] + bytes([sound[-9] ^ 1]) + sound[-8:])
        with pytest.raises(ModelFileError, match=path.name):
            restored_from(case.session(2), folder)
        path.write_bytes(sound)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_state_whose_coordinator_has_the_rows_goes_on(shards: int, tmp_path: Path) -> None:
    """As earlier builds wrote it: owners only have leaves, ledger and drift, by id; of 256 buckets."""
    case = Case()
    expected, session, at = expected_of(case), case.session(2), AT[-1]
    for batch in case.batches():
        if batch.stop <= at:
            session.apply(batch)
    state, groups = session.state()
    by_row = {name: state.pop(name) for name in ("leaf", "ledger", "drift")}
    components = state_components(state, groups)
    for name, part in ("buckets-000-100", Buckets(0, 1600)), ("buckets-100-256", Buckets(1600, 4096)):
        own = are_in(state["id"], part)
        components[name] = {column: array[own] for column, array in {"id": state["id"], **by_row}.items()}
    save_folder(tmp_path, "state", case.meta | {"offset": at}, components)
    for apart in (True, False):
        saved, resumed = saved_in(Folder(tmp_path), apart=apart), case.session(shards)
        if apart:
            restored_from(resumed, Folder(tmp_path))
        else:
            resumed.restore(saved.arrays, saved.groups, saved.buckets)
        assert resumed.digest() == expected[at][1]
        for batch in case.batches():
            if batch.start >= at:
                assert outcome(resumed, batch) == expected[batch.stop]


@pytest.mark.turns(1)
@pytest.mark.parametrize(("kind", "owner"), [*((kind, True) for kind in FIXED), ("fudyadt", False)])
def test_a_session_goes_on_where_memory_ended(kind: str, owner: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At an owner, or at a coordinator with leaves by slot, which knows the slots once owners have admitted."""
    case = Case(kind)
    session, other = case.session(3), case.session(3)
    for count, batch in enumerate(case.batches()):
        if count in (1, 5):  # in the warm-up, and once there is a model
            before = session.digest()
            with monkeypatch.context() as patch:
                if owner:
                    patch.setattr(session.shards[1].worker.rows_here.store, "reserve", out_of_memory)
                else:
                    patch.setattr(session.coordinator.live, "make_room_for", out_of_memory)
                with pytest.raises(MemoryError):
                    session.apply(batch)
            assert session.digest() == before
        session.apply(batch)
        other.apply(batch)
    assert session.digest() == other.digest()


def test_a_slot_is_not_used_again_in_the_batch_that_empties_it() -> None:
    """Here by value, before the first request that releases slots of the batch before; then rows have other weights."""
    case, X = Case("fudyadt"), np.arange(30.0).reshape(5, 6)
    given = [  # operation, row, weight
        [(INSERT, 0, 1), (INSERT, 1, 1), (INSERT, 2, 1)],
        [(DELETE, 0, 1)],
        [(DELETE_VALUE, 1, 1), (INSERT, 3, 1), (INSERT, 4, 2)],
    ]
    one, others, start = case.session(0), [case.session(1), case.session(2)], 0
    for updates in given:
        op, row, weight = map(np.array, zip(*updates, strict=True))
        rows = row[CARRIES_ROW[op]]
        batch = UpdateBatch(start, op.astype(np.int8), row, X[rows], (rows % 2).astype(np.int32), 2, row)
        batch = replace(batch, weight=(UNIT * weight[CARRIES_ROW[op]]).astype(np.uint32))
        start = batch.stop
        for session in (one, *others):
            session.apply(batch)
            assert session.digest() == one.digest()


def test_more_classes_than_a_byte_holds_come_later() -> None:
    """Before and after them, and with a state of them, the coordinator's labels are those of the rows."""
    case, X = Case("fudyadt"), np.arange(4800.0).reshape(800, 6) % 47
    given = [  # operation, rows, classes
        (INSERT, np.arange(60), 3),
        (INSERT, np.arange(60, 600), 300),
        (DELETE, np.arange(0, 600, 2), 300),
        (DELETE_VALUE, np.arange(299, 400, 2), 300),
        (INSERT, np.arange(600, 700), 300),
    ]
    one, others, start = case.session(0), [case.session(1), case.session(3)], 0
    for number, (op, row, classes) in enumerate(given):
        rows = row[CARRIES_ROW[[op] * len(row)]]
        y = np.where(rows < 60, rows % 3, rows % 300).astype(np.int32)
        batch = UpdateBatch(start, np.full(len(row), op, np.int8), row, X[rows], y, classes, row, 0 if start else 60)
        start = batch.stop
        expected = outcome(one, batch)
        for session in others:
            assert outcome(session, batch) == expected
            assert session.coordinator.store.y.dtype == (np.uint8 if classes == 3 else np.int32)
        if number in (0, 2):
            saved = others[1].state()
            others = [case.session(1), case.session(2)]
            for session in others:
                session.restore(*saved)
                assert session.digest() == expected[1]


def test_leaves_that_are_not_those_of_the_tree_are_refused() -> None:
    """Each is a leaf, so that the parts are sound one by one."""
    case = Case("fudyadt")
    session = case.session(2)
    for batch in case.batches():
        session.apply(batch)
    state, groups = session.state()
    leaves = np.unique(state["leaf"])
    state["leaf"] = np.where(state["leaf"] == leaves[0], leaves[1], state["leaf"]).astype(np.int32)
    resumed = case.session(2)
    resumed.restore(state, groups)
    with pytest.raises(ValueError, match="counts"):
        resumed.digest()


def out_of_memory(updates: int) -> None:
    """Make no room."""
    raise MemoryError
