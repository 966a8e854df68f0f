"""Rows in blocks, dictionaries, trees of digests, and packed trees."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from raydt.arrays.blocks import HUGE, LARGE, SparseRows, block, blocks, empty, grown, taken, turned_block
from raydt.batches.rows_on_shards import HeldRows
from raydt.encoding.columns import Dictionary
from raydt.errors import HalfAppliedError
from raydt.examples.digest import RowTree
from raydt.examples.row_owners import CHILDREN, keys_of
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, QUERY, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.confidence_tree import LEARNER
from raydt.learners.confidence_tree.coordinator import SingleRows
from raydt.learners.forest import trees
from raydt.learners.gbdt import model
from raydt.parallel import limited
from raydt.sessions.session import InProcessSession
from raydt.trees import packed_trees
from raydt.trees.packed_trees import add_values, add_votes, leaves, packed
from raydt.trees.shapley import TreeSum
from tests.cases import Trial, first_cases
from tests.nets.test_identity import result
from tests.oracles.digests import gbdt_digest, key_of, row_root
from tests.oracles.forest import Forest, Rules
from tests.refusals import refused
from tests.volume import examples

# -- row tree --------------------------------------------------------------------------------------------------------
# The root of a tree over rows follows any inserts, deletes and changes, and is that of its slow twin.
#
# It does not depend on the order in which rows came, on those that were there before, or on ids that share their
# keys' first bits; and any other row, label, or number of rows gives another root.


def id_of(key: int) -> int:
    """The id that has a key."""
    z = key ^ key >> 31 ^ key >> 62
    z = z * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    z ^= z >> 27 ^ z >> 54
    z = z * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    z ^= z >> 30 ^ z >> 60
    return z - (z >> 63 << 64)


#: Ids whose keys differ in their last bits only, so that paths are as long as they can be, and others.
CLOSE = [id_of(key) for key in range(1 << 40, (1 << 40) + 80)]
IDS = st.one_of(st.sampled_from(CLOSE), st.integers(-(2**63), 2**63 - 1), st.integers(0, 200))
#: Rows to insert, to change or to delete, by a value; None deletes.
STEPS = st.lists(st.dictionaries(IDS, st.one_of(st.none(), st.integers(0, 3)), max_size=90), max_size=6)


class Table:
    """Rows by slot; a row keeps its slot until it is changed."""

    def __init__(self, values: dict[int, int]) -> None:
        self.ids, self.values = list(values), list(values.values())

    def tree(self) -> RowTree:
        return RowTree(np.array(self.ids, dtype=np.int64), np.arange(len(self.ids), dtype=np.int32))

    def change(self, step: dict[int, int | None]) -> tuple[np.ndarray, np.ndarray]:
        """New slots for the rows that a step inserts or changes; returns its ids and where they are."""
        slots = []
        for number, value in step.items():
            slots.append(-1 if value is None else len(self.ids))
            if value is not None:
                self.ids.append(number)
                self.values.append(value)
        return np.array(list(step), dtype=np.int64), np.array(slots, dtype=np.int32)

    def records(self, ids: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """The records of rows: id and value."""
        assert [self.ids[slot] for slot in slots.tolist()] == ids.tolist()
        rows = [(number, self.values[slot]) for number, slot in zip(ids.tolist(), slots.tolist(), strict=True)]
        return np.array(rows, dtype=[("id", "<i8"), ("value", "<i8")])


def slow_root(values: dict[int, int]) -> bytes:
    return row_root({number: np.array([number, value], dtype="<i8").tobytes() for number, value in values.items()})


def root(values: dict[int, int]) -> bytes:
    table = Table(values)
    return table.tree().root(table.records)


@given(STEPS)
@examples(120)
def test_the_root_is_that_of_the_slow_twin(steps):
    table, live = Table({}), {}
    tree = table.tree()
    for step in steps:
        live = {number: value for number, value in {**live, **step}.items() if value is not None}
        tree.change(*table.change(step))
        assert tree.root(table.records) == root(dict(reversed(live.items()))) == slow_root(live)
        assert len(tree) == len(live)


@given(st.dictionaries(IDS, st.integers(0, 3), min_size=1, max_size=90), st.data())
@examples(60)
def test_every_difference_shows(live, data):
    number = data.draw(st.sampled_from(sorted(live)))
    before = slow_root(live)
    other = data.draw(IDS.filter(lambda one: one not in live))
    without = {one: value for one, value in live.items() if one != number}
    for rows in ({**live, number: live[number] + 1}, without, {**live, other: 0}, {**without, other: live[number]}):
        assert root(rows) == slow_root(rows) != before


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True))
def test_keys_are_a_bijection(ids):
    array = np.array(ids, dtype=np.int64)
    assert keys_of(array).tolist() == [key_of(number) for number in ids]
    assert [id_of(key) for key in keys_of(array).tolist()] == ids


@given(STEPS)
@examples(60)
def test_each_row_has_room_for_less_than_four(steps):
    table = Table({})
    tree = table.tree()
    for step in steps:
        tree.change(*table.change(step))
        trie = tree._trie
        _, _, places, *free = trie.reg.tolist()
        nodes = [0]
        for node in nodes:  # which grows
            nodes += range(trie.child[node], trie.child[node] + CHILDREN) if trie.child[node] >= 0 else ()
        leaves = [node for node in nodes if trie.child[node] < 0]
        rooms = [(int(trie.begin[leaf]), int(trie.room[leaf])) for leaf in leaves if trie.room[leaf]]
        assert all(0 <= trie.rows[leaf] <= trie.room[leaf] <= max(4, 4 * trie.rows[leaf] - 1) for leaf in leaves)
        for size, begin in zip((4, 8, 16, 32), free, strict=True):
            while begin >= 0:
                rooms.append((begin, size))
                begin = int(trie.ids[begin])
        assert sum(room for _, room in rooms) == places, "no place is lost"
        assert [begin for begin, _ in sorted(rooms)[1:]] == [sum(one) for one in sorted(rooms)[:-1]], "and none has two"


# -- blocks ----------------------------------------------------------------------------------------------------------
# Parts of a matrix are what NumPy picks out one number at a time, also where they have memory of their own.


@given(st.data())
def test_a_block_is_what_numpy_picks(data: st.DataObject) -> None:
    n, d = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 9))
    rows = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=30) if n else st.just([])), dtype=np.int64)
    first = data.draw(st.integers(0, d))
    columns = np.arange(first, data.draw(st.integers(first, d)))
    X = np.asarray(np.random.default_rng(n).normal(size=(n, d)), order=data.draw(st.sampled_from("CF")))
    wanted = X[np.ix_(rows, columns)]
    part, turned = block(X, rows, columns), turned_block(X, rows, columns)
    assert_array_equal(part, wanted)
    assert_array_equal(turned, wanted.T)
    assert part.flags.c_contiguous
    assert turned.flags.c_contiguous


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_threads_pick_the_same(n: int) -> None:
    draw = np.random.default_rng(n)
    X, rows = draw.normal(size=(60_000, 6)), draw.permutation(60_000).astype(np.int32)
    at = draw.integers(0, 3, size=300_001)
    with limited(n):
        for part, columns in zip(
            blocks(X, rows, np.split(np.arange(6), [1, 3])), ([0], [1, 2], [3, 4, 5]), strict=True
        ):
            assert_array_equal(part, X[np.ix_(rows, columns)])
        for values in (np.array(["no", "yes", "maybe"]), np.arange(3, dtype=np.int32), X[:3]):
            assert_array_equal(taken(values, at), values[at])
            assert taken(values, at).dtype == values.dtype


@pytest.mark.parametrize(("rows", "columns"), [([3], [0]), ([-1], [0]), ([0], [2]), ([0], [-1, 0]), ([0], [1, 0])])
def test_nothing_outside_the_matrix_is_read(rows: list[int], columns: list[int]) -> None:
    for part in (block, turned_block):
        with refused("states.outside", IndexError, shape=(3, 2)):
            part(np.zeros((3, 2)), np.array(rows), np.array(columns))


@pytest.mark.parametrize("size", [LARGE - 8, LARGE, HUGE, HUGE + 8])
def test_large_arrays_are_writable_and_grow(size: int) -> None:
    array = empty(size // 8, np.int64)
    array[:] = np.arange(len(array))
    longer = grown(array, 2 * len(array))
    longer[len(array) :] = -1
    assert_array_equal(longer[: len(array)], np.arange(len(array)))
    assert_array_equal(array, np.arange(len(array)))  # memory of its own


@pytest.mark.parametrize("at", [[0, 3], [-1, 0], [5]])
def test_a_place_that_there_is_not_is_an_error(at: list[int]) -> None:
    with pytest.raises(IndexError, match="of 3"):
        taken(np.arange(3.0), np.array(at))


# -- dictionary ------------------------------------------------------------------------------------------------------
# The codes of values are those of a plain loop: first appearances, rows passed over, cuts, and restored values.

VALUES = st.sampled_from([None, "a", "b", "c", "d", "e"])
BLOCKS = st.lists(st.lists(st.tuples(VALUES, st.booleans()), max_size=6), max_size=5)


@given(BLOCKS, st.lists(st.sampled_from("abcde"), unique=True, max_size=3), st.booleans(), st.integers(0, 5))
def test_codes_are_those_of_a_loop(blocks: list, known: list[str], encoded: bool, cut: int) -> None:
    dictionary, values, first = Dictionary(known), list(known), [-1] * len(known)
    row = 10
    for cells in blocks:
        column = pa.array([value for value, _ in cells], pa.string())
        keep = np.array([kept for _, kept in cells], dtype=np.bool_)
        expected = []
        for i, (value, kept) in enumerate(cells):
            if kept and value is not None and value not in values:
                values.append(value)
                first.append(row + i)
            expected.append(values.index(value) if kept and value is not None else -1)
        assert dictionary.encode(column.dictionary_encode() if encoded else column, row, keep).tolist() == expected
        row += len(cells)
    assert (dictionary.values, dictionary.known()) == (values, len(values))
    for at in range(row + 2):
        assert dictionary.known(at) == sum(begin < at for begin in first)
    dictionary.cut(min(cut, len(values)))
    assert (dictionary.values, dictionary.find(pa.array(list("abcde"))).tolist()) == (
        values[:cut],
        [values[:cut].index(value) if value in values[:cut] else -1 for value in "abcde"],
    )


# -- rows on shards --------------------------------------------------------------------------------------------------
# Gathered rows may be views of what a shard keeps: no learner looks at one after the shard has taken other rows.


@pytest.mark.turns(3)
@pytest.mark.parametrize("trial", first_cases(), ids=lambda trial: trial.name)
def test_no_view_is_seen_to_change(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were handed out become NaN as soon as a slot is written."""
    ways = [(1, WorkPlan()), (3, trial.case.plan)]
    expected = [result(trial, tmp_path, shards, 16, plan) for shards, plan in ways]
    out: dict[int, list[Any]] = {}
    gather, put, restore = HeldRows.gather, HeldRows.put, HeldRows.restore

    def copied(self: HeldRows, slots: Any) -> dict[str, Any]:
        rows = gather(self, slots)
        rows["X"] = rows["X"].copy()
        out.setdefault(id(self), []).append(rows["X"])
        return rows

    def spoil(self: HeldRows) -> None:
        for X in out.pop(id(self), []):
            X[:] = np.nan

    def written(self: HeldRows, *rows: Any, **named: Any) -> None:
        spoil(self)
        put(self, *rows, **named)

    def restored(self: HeldRows, state: Any) -> None:
        spoil(self)
        restore(self, state)

    monkeypatch.setattr(HeldRows, "gather", copied)
    monkeypatch.setattr(HeldRows, "put", written)
    monkeypatch.setattr(HeldRows, "restore", restored)
    assert [result(trial, tmp_path, shards, 16, plan) for shards, plan in ways] == expected


# -- single rows -----------------------------------------------------------------------------------------------------
# What updates of one example keep from one to the next, in a confidence tree, is what would be made anew.

WARMUP, CLASSES, FEATURES = 8, 4, Features(("a", "b"), (False, True))
KINDS = ("majority", "naive_bayes", "adaptive", "adaptive_normal", "adaptive_inherited")


class Rows:
    """A session of one shard, and rows that it takes one by one or in batches; more classes come with time."""

    def __init__(self, options: dict[str, Any], seed: int) -> None:
        self.session = InProcessSession(LEARNER, LEARNER.Options(**options), FEATURES)
        self.draw, self.seq, self.classes, self.live = random.Random(seed), 0, 2, list[tuple[list[float], int]]()

    def drawn(self) -> tuple[list[float], int]:
        """An example of the classes known."""
        code = self.draw.randrange(self.classes)
        return [code + round(self.draw.random() * 2, 1), float(self.draw.randrange(3))], code

    def take(self, count: int) -> None:
        """Insert examples by one batch."""
        drawn = [self.drawn() for _ in range(count)]
        self.apply(INSERT, np.array([x for x, _ in drawn]), [code for _, code in drawn])
        self.live += drawn

    def apply(self, op: int, X: Any, codes: list[int]) -> None:
        ids = np.arange(self.seq, self.seq + len(X))
        ops, none = np.full(len(X), op, dtype=np.int8), np.full(len(X), -1)
        batch = UpdateBatch(self.seq, ops, ids, X, np.array(codes, np.int32), self.classes, none, WARMUP)
        assert self.session.apply(batch).applied == len(X)
        self.seq += len(X)

    def update(self) -> None:
        """Insert one example, or delete one by its values; by a batch only if that is needed."""
        inserts = len(self.live) < 10 or self.draw.random() < 0.7
        x, code = self.drawn() if inserts else self.live.pop(self.draw.randrange(len(self.live)))
        op, row = INSERT if inserts else DELETE_VALUE, np.array([x])
        if self.session.take_row(op, self.seq, row, code) is None:
            self.apply(op, row, [code])
        else:
            self.seq += 1
        if inserts:
            self.live.append((x, code))

    def require_current(self, what: str) -> None:
        """Require that no argument is an array that was replaced, and that all have room."""
        coordinator: Any = self.session.coordinator
        worker = self.session.shards[0].worker
        kept = coordinator._single._held(worker)
        anew = SingleRows(coordinator.live, coordinator._logs, 1)._held(worker)
        assert told(kept) == told(anew), what
        assert coordinator.predict_row(np.array([self.drawn()[0]]), worker) is not None


def told(arguments: Any) -> list[Any]:
    """Which objects all arrays are; of those that are written to for one row only, shape and type."""
    codes, _, naive = arguments[3:]
    scratch = (naive.found, naive.found_normal, naive.sums, codes)
    own = [(array.shape, array.dtype) for array in scratch]
    return own + [id(array) for array in flat(arguments) if not any(array is one for one in scratch)]


def flat(parts: Any) -> Iterator[Any]:
    """All that is in tuples, and in tuples in these."""
    for part in parts:
        yield from flat(part) if isinstance(part, tuple) else (part,)


@examples(12)
@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from((0, 5, 60)), st.sampled_from((1, 1008)))
def test_what_is_kept_is_what_would_be_made_anew(seed: int, kind: str, renewal: int, first: int) -> None:
    """Leaves are split and sites added, bins renewed, rows come in batches, classes are new, states are restored.

    After 1,022 examples the table of logarithms grows.
    """
    options = {"c": 0.001, "grace_period": 2, "leaf_prediction": kind, "renew_bins": renewal, "max_bins": 32}
    rows = Rows(options, seed)
    rows.take(WARMUP)
    rows.take(first)
    for i in range(60):
        what = rows.draw.random()
        if what < 0.05:
            rows.take(rows.draw.randrange(1, 20))
        elif what < 0.1:
            rows.classes = min(rows.classes + 1, CLASSES)
            rows.apply(QUERY, np.array([rows.drawn()[0]]), [-1])  # which tells of a class before it comes
        elif what < 0.12:
            rows.session.restore(*rows.session.state())
        else:
            rows.update()
        rows.require_current(f"update {i}")
    state, groups = rows.session.state()
    LEARNER.check(LEARNER.Options(**options), FEATURES, CLASSES, state, groups)
    assert len(state["feature"]) > 1
    digest = rows.session.digest()
    rows.session.restore(state, groups)
    assert rows.session.digest() == digest


# -- packed trees ----------------------------------------------------------------------------------------------------
# Packed trees walk as :meth:`TreeSum.apply` does, row by row: any tests and values, any number of threads.

NUMBERS = (-np.inf, -1.5, -0.0, 0.0, 1.0, 2.0, 3.0, np.finfo(np.float64).max, np.inf, np.nan)
DENSE, SPARSE = 4, 5


@st.composite
def sums(draw: st.DrawFn) -> TreeSum:
    """Trees of random shapes, whose tests are of numbers, of one or several categories, and of sparse features.

    Missing numbers go either way.
    """
    left: list[int] = []
    right: list[int] = []
    feature: list[int] = []
    threshold: list[float] = []
    members: list[list[float]] = []
    missing_left: list[bool] = []
    starts = [0]

    def grow(budget: int) -> int:
        node = len(feature)
        for array, nothing in ((left, -1), (right, -1), (feature, -1), (threshold, 0.0)):
            array.append(nothing)  # type: ignore[arg-type]
        members.append([])
        missing_left.append(False)
        if budget and draw(st.integers(0, 3)):
            kind = draw(st.sampled_from(("number", "number", "category", "categories", "sparse")))
            feature[node] = draw(
                st.integers(DENSE, DENSE + SPARSE - 1) if kind == "sparse" else st.integers(0, DENSE - 1)
            )
            threshold[node] = 0.5 if kind == "sparse" else draw(st.sampled_from(NUMBERS[1:-2]))
            if kind.startswith("categor"):
                most = 1 if kind == "category" else 3
                members[node] = sorted(draw(st.sets(st.sampled_from(NUMBERS[3:7]), min_size=most, max_size=most)))
            # Thresholds are below a number, but for the largest one, which parts all numbers from missing ones.
            missing_left[node] = kind == "number" and threshold[node] != NUMBERS[-3] and draw(st.booleans())
            left[node] = grow(budget - 1)
            right[node] = grow(budget - 1)
        return node

    for _ in range(draw(st.integers(1, 4))):
        grow(draw(st.integers(0, 6)))
        starts.append(len(feature))
    first = np.concatenate([[0], np.cumsum([len(some) for some in members])])
    value = np.where(np.array(feature)[:, None] < 0, np.arange(2.0 * len(feature)).reshape(-1, 2) + 0.1, 0.0)
    return TreeSum(
        *(DENSE, SPARSE, np.array(starts), np.array(feature), np.array(threshold), first),
        np.array([x for some in members for x in some], dtype=np.float64),
        *(np.array(left), np.array(right), value, None, np.zeros(2), False, "identity", np.arange(2)),
        np.array(missing_left),
    )


@given(sums(), st.integers(0, 700), st.integers(0, 2**32 - 1), st.sampled_from((1, 2, 3, 5)))
def test_rows_reach_the_same_leaves(trees: TreeSum, n: int, seed: int, many: int) -> None:
    draw = np.random.default_rng(seed)
    X = draw.choice(NUMBERS, size=(n, DENSE))
    matrix = draw.random((n, SPARSE)) < 0.4
    ones = SparseRows(
        np.concatenate([[0], np.cumsum(matrix.sum(axis=1))]).astype(np.int64),
        np.nonzero(matrix)[1].astype(np.int32),
        SPARSE,
    )
    expected = trees.apply(X, ones)
    value, votes = trees.value[:, 0].copy(), trees.value.astype(np.int64)
    scores, sums = np.full((n, 2), 0.3), np.zeros((n, 2), dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch, limited(many):
        patch.setattr(packed_trees, "_TASK_NS", 0)  # every work is large enough for threads
        walked = packed(trees)
        assert (leaves(walked, X, ones) == expected).all()
        add_values(walked, value, X, ones, scores)
        add_votes(walked, votes, X, ones, sums)
    twin = np.full((n, 2), 0.3)
    for t in range(trees.trees):
        twin[:, t % 2] += value[expected[:, t]]
    assert (scores == twin).all()
    assert (sums == votes[expected].sum(axis=1)).all()


# -- digests that follow -----------------------------------------------------------------------------------------------
# A digest that follows what changed is that of a slow twin, after rests, copies, saved states and interrupts.


#: Columns, classes, and updates of the warm-up.
WIDTH, CLASSES, WARMUP = 3, 3, 40
OPTIONS = {
    "forest": {"n_estimators": 6, "max_depth": 4, "min_samples_split": 3, "max_features": 2, "thresholds": 2},
    # 70 iterations of three trees each: several parts of the ledger, the last one not full.
    "gbdt": {"max_iter": 70, "max_leaf_nodes": 4},
}


class Model:
    """A session whose digests are those of a twin."""

    def __init__(self, kind: str, seed: int) -> None:
        self.learner, self.draws = learners()[kind], np.random.default_rng(seed)
        self.options = self.learner.Options(**OPTIONS[kind])
        self.features = Features(tuple("abc"), (False,) * WIDTH, 2)
        self.session = self.new()
        self.rows: dict[int, tuple[tuple[float, ...], int]] = {}  # that live, in the order of their births
        self.seq = self.next_id = 0

    def new(self) -> InProcessSession:
        return InProcessSession(self.learner, self.options, self.features, 1)

    def batch(self, n: int) -> UpdateBatch:
        """Draw updates, and count them among the rows."""
        op, ids, X, y = [], [], [], []
        for _ in range(n):
            if self.seq and self.rows and self.draws.random() < 0.5:
                op.append(DELETE)
                ids.append(int(self.draws.choice([*self.rows])))
                del self.rows[ids[-1]]
                continue
            row = tuple(self.draws.integers(0, 6, WIDTH).astype(float).tolist())
            op.append(INSERT)
            ids.append(self.next_id)
            X.append(row)
            y.append(int(row[0] + self.draws.integers(0, 2)) % CLASSES)
            self.rows[ids[-1]], self.next_id = (row, y[-1]), self.next_id + 1
        start, self.seq = self.seq, self.seq + n
        values, codes = np.array(X).reshape(-1, WIDTH), np.array(y, dtype=np.int32)
        return UpdateBatch(
            start, np.array(op, dtype=np.int8), np.array(ids), values, codes, CLASSES, np.full(n, -1), WARMUP
        )

    def expected(self, former: bool) -> str:
        """The twin's digest."""
        if self.learner.kind == "gbdt":
            return gbdt_digest(self.session.state()[0], former)
        rules = Rules((False,) * WIDTH, T=6, max_depth=4, min_samples_split=3)
        return Forest(rules, {number: (row, float(y), Fraction(1)) for number, (row, y) in self.rows.items()}).digest(
            former
        )

    def check(self) -> None:
        for former in (False, self.draws.random() < 0.3):
            assert self.session.digest(former) == self.expected(former), self.seq

    # ---------------------------------------------------------------- what comes between

    def update(self) -> None:
        self.session.apply(self.batch(int(self.draws.integers(1, 9))))

    def rest(self) -> None:
        self.session.rest()

    def trim(self) -> None:
        self.session.coordinator.trim()

    def duplicate(self) -> None:
        self.session = copy.deepcopy(self.session)

    def reload(self) -> None:
        state, groups = self.session.state()
        self.session = self.new()
        self.session.restore(state, groups)

    def broken_digest(self) -> None:
        """Interrupt a digest before, or behind, one of the steps that hash something."""
        places = (
            [(trees, "hashed_roots")]
            if self.learner.kind == "forest"
            else [(model, "_hash_trees"), (model, "_hash_ledger")]
        )
        module, name = places[int(self.draws.integers(len(places)))]
        real, behind = getattr(module, name), self.draws.random() < 0.5

        def broken(*arguments: Any) -> None:
            if behind:
                real(*arguments)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):  # no ledger may have changed
            patch.setattr(module, name, broken)
            self.session.digest()

    def broken_update(self) -> None:
        """Interrupt an update: the model is refused, and goes on from its last state."""
        state, rows, seq, driver = self.session.state(), dict(self.rows), self.seq, self.session.driver

        def broken(exchange: Any) -> None:
            type(driver).run(driver, exchange)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(driver, "run", broken)
            with pytest.raises(KeyboardInterrupt):
                self.session.apply(self.batch(6))
        with pytest.raises(HalfAppliedError):
            self.session.digest()
        self.rows, self.seq, self.session = rows, seq, self.new()
        self.session.restore(*state)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_digest_follows_what_changed(kind: str, seed: int) -> None:
    one = Model(kind, seed)
    one.session.apply(one.batch(WARMUP))
    one.check()
    between = (one.rest, one.trim, one.duplicate, one.reload, one.broken_digest, one.broken_update)
    for step in range(24):
        one.update()
        if one.draws.random() < 0.6:
            between[(step + int(one.draws.integers(len(between)))) % len(between)]()
        if one.draws.random() < 0.8:
            one.check()
    one.session.finish()
    one.check()
