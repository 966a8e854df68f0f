"""The work of a shard: its trees, the rows in them, and its columns of all rows.

A shard owns the feature groups that every learner's shards own, of which it writes the columns to checkpoints, and
trees that the coordinator deals, as many as any other shard. It keeps all rows in full.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.blocks import as_slice, block, blocks, equal_rows
from raydt.arrays.elementary import Bools, Floats, Ints, Slots
from raydt.examples.store import ExampleStore
from raydt.examples.updates import Features
from raydt.exchange.links import Meeting, Steps
from raydt.exchange.meetings import AllGather
from raydt.exchange.messages import MET, FeatureReader, Payload
from raydt.learners.batch_coordinator import ADD, REMOVE
from raydt.learners.forest.labels import NO_LABELS, Scale, in_units
from raydt.learners.forest.model import Counted
from raydt.learners.forest.nodes import DEPTH, NODES, NOWHERE, ROWS, SUBTREES, ForestSteps
from raydt.learners.forest.options import ForestOptions
from raydt.learners.forest.trees import ExactTrees

#: Rows whose columns shards tell each other at once.
TOLD_ROWS = 1 << 16


def dealt(trees: int, shards: int) -> list[Ints]:
    """Numbers of the trees of each shard, contiguous and in order."""
    return [np.arange(s * trees // shards, (s + 1) * trees // shards) for s in range(shards)]


class StepsMessage(NamedTuple):
    """The message with the steps of a part of a batch."""

    kind: Any  #: ``kind``, ``slot``, ``row``, ``place``: Shape (steps,): as in :class:`ForestSteps`.
    slot: Any
    row: Any
    place: Any
    new: Any  #: ``new``, ``ids``, ``y``: Slots, ids and labels of the rows that come, the first rows of ``X``.
    ids: Any
    y: Any
    weight: Any  #: Weights of these rows, in units; None: no row has had another weight than 1.
    reweigh: Any  #: Slots and weights of all live rows, which count by these from the end of the warm-up on; or None.
    X: Any  #: All rows, in full.
    order: Any  #: Class codes in ascending order of their labels.
    warm: int  #: Steps that belong to the warm-up: their rows wait for its end.
    warming: bool  #: Whether the warm-up continues after these steps.
    scales: Any  #: Shape (changes, 3): steps after which numeric labels have another exponent and bits.
    anew: bool  #: Whether the trees are built once from the rows that the steps leave; then nobody wants votes.
    settle: bool  #: Whether nothing may stay open.


class ForestStore(ExampleStore):
    """The coordinator's ids, labels and births; shards in the same process let it look at their trees."""

    def __init__(self, target_dtype: np.dtype[Any], shares: list[Ints]) -> None:
        super().__init__(0, 0, target_dtype)
        self.shares = shares  #: Numbers of the trees of each shard.
        self.parts: list[ExactTrees] = []  #: Those of the shards in this process, in the order of their trees.

    def resolve(self) -> None:
        """Have what is still open built."""
        for part in self.parts:
            part.resolve()


class ForestShard:
    """Owner of whole trees.

    With the coordinator's store the coordinator looks at the trees itself, and gets no copies of them.
    """

    def __init__(
        self, options: ForestOptions, features: Features, groups: Ints, store: ForestStore | None = None
    ) -> None:
        self._features, self.groups = features, groups
        self.columns = features.columns_of(groups)
        self.trees = ExactTrees(options, features)
        self._numeric, self._eager = options.numeric, options.rebuild == "eager"
        self._numbers = np.empty(0)  # numeric labels by slot
        self._scale = NO_LABELS
        self._shared = store is not None
        self._meeting = Meeting()
        self.reader: FeatureReader | None = None
        if store is not None:
            self.trees.deal(store.shares[len(store.parts)])
            store.parts.append(self.trees)

    def trim(self) -> None:
        """Give up what the next builds make again."""
        self.trees.trim()
        if not self.trees.pools:  # asleep: the coordinator sends labels before the next batch
            self._numbers = np.empty(0)

    def handle(self, method: str, payload: Payload) -> Any:
        """Answer one request: each is a method ``_on_...``; ``numbers`` are those of this shard's trees."""
        if method == MET:
            return self._meeting.receive(**payload)
        payload = dict(payload)
        if (numbers := payload.pop("numbers", None)) is not None:
            self.trees.deal(np.array(numbers))
        answer: Any = getattr(self, f"_on_{method}")(**payload)
        return self._meeting.begin(answer) if isinstance(answer, Generator) else answer

    # ---------------------------------------------------------------- a batch

    def _on_steps(self, **message: Any) -> dict[str, Any]:
        """Take the steps of a part of a batch (``StepsMessage``); answer with the votes and what was done.

        Nothing is done in steps of the warm-up.
        """
        if blocks := message.pop("blocks", ()):  # this shard has read the rows in full
            assert self.reader is not None
            message["X"] = self.reader.take(message.pop("rows"), blocks)[0]
        sent = StepsMessage(**message)
        rows = np.ascontiguousarray(sent.X)
        self.trees.know(np.array(sent.order))
        columns = (sent.kind, sent.slot, sent.row, sent.place)
        kinds, slots, at, places = (np.ascontiguousarray(column, dtype=np.int32) for column in columns)
        self._put(np.asarray(sent.new), sent.ids, rows[: len(sent.new)], sent.y, sent.weight)
        width = 2 if self._numeric else self.trees.width
        done = np.zeros((len(kinds), 5), dtype=np.int64)
        done[sent.warm :, DEPTH] = NOWHERE  # of the others nobody hears, so that they cost no memory
        votes = np.zeros((int((places >= 0).sum()), width), dtype=np.int64)
        work = ForestSteps(kinds, slots, at, places, rows, votes, done)
        waits = len(kinds) if sent.anew else sent.warm
        if sent.anew:
            self.trees.open_all(self.trees.examples.y)
        begin = 0
        for last, exponent, bits in np.asarray(sent.scales).tolist():
            self._advance(work, begin, last + 1, waits)
            begin = last + 1
            self._rescale(Scale(exponent, bits), None if begin <= waits else work.done[last])
        self._advance(work, begin, len(kinds), waits)
        self._reweigh(sent.reweigh)
        if sent.settle and not sent.warming:
            self.trees.resolve()
        if sent.anew and self._eager:
            self._note_all(work.done[-1])
        self._erase(slots[kinds == REMOVE])
        return {"votes": work.votes, "done": done[sent.warm :], "shape": self._shape()}

    def _advance(self, work: ForestSteps, begin: int, end: int, warm: int) -> None:
        middle = min(max(begin, warm), end)
        if begin < middle:
            self.trees.collect(work.kind[begin:middle], work.slot[begin:middle])
        if middle < end:
            if self._eager:
                self.trees.resolve()
            self.trees.take(work, middle, end)

    def _put(self, new: Slots, ids: Any, X: Floats, y: Any, weight: Any) -> None:
        """Keep new rows."""
        if not len(new):
            return
        if weight is not None:
            self.trees.weigh()
            weight = np.asarray(weight)
        self.trees.reserve(int(new.max(initial=-1)) + 1)
        if self._numeric:
            if len(self._numbers) < len(self.trees.examples.y):
                numbers = np.zeros(len(self.trees.examples.y))
                numbers[: len(self._numbers)] = self._numbers
                self._numbers = numbers
            self._numbers[new] = y
            y = in_units(np.asarray(y), self._scale)
        self.trees.put(new, np.asarray(ids), X, np.asarray(y), weight)

    def _erase(self, slots: Slots) -> None:
        """Leave nothing of deleted rows in their slots, which may stay empty."""
        self.trees.erase(slots)
        if self._numeric:
            self._numbers[slots] = 0.0

    def _rescale(self, scale: Scale, done: Ints | None) -> None:
        """Count numeric labels in other units: every tree is built again."""
        self._scale = scale
        self.trees.open_all(in_units(self._numbers, scale))
        if done is not None and self._eager:
            self.trees.resolve()
            self._note_all(done)

    def _note_all(self, done: Ints) -> None:
        """Note that all trees were built."""
        rows, nodes = self.trees.sizes()
        done[SUBTREES] += int((rows > 0).sum())
        done[ROWS] += int(rows.sum())
        done[NODES] += int(nodes[rows > 0].sum())
        if rows.any():
            done[DEPTH] = 0

    def _shape(self) -> Ints | None:
        """Return the sizes of the trees, unless the coordinator sees them itself."""
        return None if self._shared else np.array(self.trees.shape(), dtype=np.int64)

    def _reweigh(self, weights: Any) -> None:
        """Count rows, which all wait, by other weights; nothing without any."""
        if weights is not None:
            slots, units = weights
            self.trees.reweigh(np.asarray(slots), np.asarray(units))

    def _on_close(self, reweigh: Any) -> dict[str, Any]:
        """End the warm-up: build the trees."""
        self._reweigh(reweigh)
        self.trees.resolve()
        return {"shape": self._shape()}

    def _on_fetch(self) -> dict[str, Any]:
        """The trees that have changed since they were fetched last."""
        places = self.trees.touched()
        changed = {"changed": self.trees.numbers[places], "trees": tuple(self.trees.arrays(places))}
        self.trees.taken()
        return changed

    def _on_root_totals(self) -> Ints:
        """Return the totals of the roots, shape (trees, K)."""
        return self.trees.root_totals()

    def _on_hash(self, codes: Any, scale: Any, per_row: int) -> Any:
        """Return the hash of each tree, shape (trees, 32), by what is counted (``Counted``)."""
        return self.trees.roots(Counted(np.asarray(codes), None if scale is None else Scale(*scale), per_row))

    # ---------------------------------------------------------------- rows

    def _on_equal(self, slots: Any, X: Any) -> Bools:
        """Return, for each of some rows, True if it equals a row in this shard's columns; NaN equals NaN."""
        slots, row = np.asarray(slots), np.asarray(X)
        self.trees.reserve(int(slots.max(initial=-1)) + 1)
        mine = block(self.trees.examples.X, slots, self.columns)
        return equal_rows(mine, row[self.columns])

    def _on_recall(
        self, slots: Any, ids: Any, y: Any, weight: Any, order: Any, scale: Any, warming: bool, shards: int
    ) -> Steps[dict[str, Any]]:
        """Take ids and labels of all rows, whose features are known, and build the trees.

        ``slots`` are ascending; None: 0, 1, ..., as after a restore. Shards tell each other the columns that they have
        read, some rows at a time. What a pass that was broken off has done is made again.
        """
        slots = np.arange(len(ids), dtype=np.int32) if slots is None else np.asarray(slots)
        self._scale = Scale(*scale)
        self.trees.wake()
        n = int(slots.max(initial=-1)) + 1
        self.trees.reserve(n)
        X = self.trees.examples.X
        columns = [self._features.columns_of(groups) for groups in self._features.assign(shards)]
        for begin in range(0, n, TOLD_ROWS):
            some = X[begin : min(begin + TOLD_ROWS, n)]
            for theirs, part in zip(columns, (yield AllGather(some[:, self.columns], shards)), strict=True):
                some[:, theirs] = part
        self.trees.know(np.array(order))
        self._put(slots, ids, X[as_slice(slots)], y, weight)
        self.trees.collect(np.full(len(slots), ADD, dtype=np.int32), slots)
        if not warming:
            self.trees.resolve()
        return {"shape": self._shape()}

    def rows(self, slots: Slots) -> dict[int, dict[str, Any]]:
        """Columns ``X`` of some rows, by group."""
        groups = self.groups.tolist()
        parts = blocks(self.trees.examples.X, slots, [self._features.group_columns(g) for g in groups])
        return {g: {"X": part} for g, part in zip(groups, parts, strict=True)}

    def state(self, slots: Slots) -> dict[int, dict[str, Any]]:
        """Nothing: the trees follow from the rows."""
        return {g: {} for g in self.groups.tolist()}

    def restore(self, state: Mapping[int, dict[str, Any]]) -> None:
        """Rows of the state take slots 0, 1, ...; the coordinator sends ids and labels before the next batch."""
        self.trees.clear()
        self._numbers, self._meeting = np.empty(0), Meeting()
        for g in self.groups.tolist():
            X = state[g]["X"]
            self.trees.reserve(len(X))
            self.trees.examples.X[: len(X), self._features.group_columns(g)] = X
