"""Live examples by slot: ids, labels, age and (within a budget) features; the map from id to slot.

Invariant: a slot is either live (its id is in the map) or on the free list; a slot freed by a batch is handed
out again only after :meth:`ExampleStore.release`, when every shard has acknowledged that batch.

The map is open addressing over int32 slots with backward-shift deletion, keys compared in ``id``: 4 to 12
bytes a row where a dictionary of Python integers takes about 100.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import grown, put_rows, trimmed
from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.errors import InputError
from raydt.examples.updates import (
    BITS,
    CODES,
    DELETE,
    DELETE_VALUE,
    DTYPE,
    DUPLICATE_ID,
    INSERT,
    LARGEST_SUM,
    NO_WEIGHTS,
    QUERY,
    UNIT,
    UNKNOWN_ID,
    UPDATE,
    Admission,
    Targets,
    Weights,
    balanced,
    of_codes,
    products,
    sum_of,
    sums_by_class,
    unless_equal,
)
from raydt.messages import message

# Labels, weights and, as far as a budget goes, features of examples, by slot, for kernels.
#
# Who has ids and births, and deals the slots, is another matter: the store of one process
# (:class:`~raydt.examples.store.ExampleStore`), or the shards that own the rows (``owned_columns``).


class SlotColumns:
    """Arrays by slot, growing as needed; those of slots that no example has had are 0.

    ``y`` has an entry for each slot, and so has ``weight``, once an example has had another weight than 1; ``uneven``
    examples have one, of all whose slots are not free. ``X`` has the features, as far as the budget of ``cache_bytes``
    goes: rows in slots beyond it are not kept; None keeps all.
    """

    #: The arrays that have an entry for each slot.
    BY_SLOT: ClassVar[tuple[str, ...]] = ("y",)

    def __init__(self, columns: int, cache_bytes: int | None = None, target_dtype: np.dtype[Any] = CODES) -> None:
        self.columns, self.target_dtype = columns, target_dtype
        self.max_cached = None if cache_bytes is None else cache_bytes // (8 * max(1, columns))
        self._clear()

    def _clear(self) -> None:
        self.capacity = 0
        self.X = np.empty((0, self.columns))
        self.y: Targets = np.empty(0, dtype=self.target_dtype)
        self.weight: Weights | None = None
        self.uneven = 0

    @property
    def used(self) -> int:
        """Slots that have had an example: those before this one."""
        raise NotImplementedError

    def grown(self, array: AnyArray, capacity: int) -> AnyArray:
        """Return an array that has an entry for each slot with room for more; without effect if memory ends."""
        return grown(array, capacity)

    def make_room(self, slots: int) -> None:
        """Make room for so many slots. Amortised O(1) per slot; without effect if memory ends."""
        if slots <= self.capacity:
            return
        capacity = max(slots, self.capacity + self.capacity // 2, 64)
        cached = capacity if self.max_cached is None else min(capacity, self.max_cached)
        for name in self.BY_SLOT:
            setattr(self, name, self.grown(getattr(self, name), capacity))
        self.X = grown(self.X, cached)
        if self.weight is not None:
            self.weight = self.grown(self.weight, capacity)
        self.capacity = capacity  # last: until then the arrays are made again

    def trim(self) -> None:
        """Give up the room beyond the slots that were ever used. O(slots)."""
        used = self.used
        if used < self.capacity:
            columns = {name: trimmed(getattr(self, name), used) for name in ("X", *self.BY_SLOT)}
            if self.weight is not None:
                columns["weight"] = trimmed(self.weight, used)
            self.__dict__.update(columns, capacity=used)  # at once: all have as many slots, wherever a signal arrives

    def label(self, slots: Any, y: Targets, weights: Weights | None) -> None:
        """Record labels and weights (None: all are 1) of examples that were admitted."""
        self.y[slots] = y
        if weights is not None:
            self.weigh()
        if self.weight is not None:
            self.weight[slots] = UNIT if weights is None else weights

    def weigh(self) -> None:
        """Keep weights from now on, by slot; those of all examples there are, are 1."""
        if self.weight is None:
            self.weight = np.full(self.capacity, UNIT, dtype=DTYPE)

    def put(self, slots: Int32s, X: Floats) -> None:
        """Keep the features of rows whose slots lie within the budget."""
        cached = slots < len(self.X)
        if cached.all():
            put_rows(self.X, slots, X)
        else:
            self.X[slots[cached]] = X[cached]

    def weights(self, slots: Any) -> Weights | None:
        """Weights of the examples in some slots, copied; None if all are 1."""
        return None if self.weight is None or not self.uneven else unless_equal(np.array(self.weight[slots]))


#: Registers of the store: next unused slot, head of the free list (-1: none), live examples.
USED, FREE, LIVE = 0, 1, 2
_HASH = np.uint64(0x9E3779B97F4A7C15)


class Index(NamedTuple):
    """The map from id to slot: ``table`` of ``2**bits`` slots (-1: empty), whose keys are in ``ids`` by slot."""

    table: Int32s
    bits: int
    ids: Ints


@inner_kernel
def _home(key: int, bits: int) -> int:
    home: int = np.int64((np.uint64(key) * _HASH) >> np.uint64(64 - bits))
    return home


@kernel
def _find(index: Any, key: int) -> int:
    """Position of ``key`` in the table, or -1 - (the empty position where it belongs)."""
    table, mask = index.table, (1 << index.bits) - 1
    position = _home(key, index.bits)
    while table[position] >= 0:
        if index.ids[table[position]] == key:
            return position
        position = (position + 1) & mask
    return -1 - position


@kernel
def _remove(index: Any, position: int) -> None:
    """Empty a position, moving later entries of the run back so that no tombstone is needed."""
    table, mask = index.table, (1 << index.bits) - 1
    hole = position
    while True:
        position = (position + 1) & mask
        if table[position] < 0:
            break
        home = _home(index.ids[table[position]], index.bits)
        if ((position - home) & mask) >= ((position - hole) & mask):
            table[hole] = table[position]
            hole = position
    table[hole] = -1


@kernel
def _fill(index: Any, slots: Any) -> None:
    for slot in slots:
        index.table[-1 - _find(index, index.ids[slot])] = slot


@kernel
def _lookup(index: Any, keys: Any, out: Any) -> None:
    for i in range(len(keys)):
        position = _find(index, keys[i])
        out[i] = index.table[position] if position >= 0 else -1


@kernel
def admit_updates(op: Any, key: Any, begin: int, skip: bool, index: Any, reg: Any, admitted: Any) -> int:
    """Give slots to the updates from ``begin`` on; stop before a value deletion or, unless ``skip``, a bad update."""
    old, new = admitted.old, admitted.new
    for i in range(begin, len(op)):
        kind = op[i]
        old[i] = new[i] = -1
        if kind == QUERY:
            continue
        if kind == DELETE_VALUE:
            return i
        position = _find(index, key[i])
        if (kind == INSERT) == (position >= 0):
            admitted.fault[i] = DUPLICATE_ID if kind == INSERT else UNKNOWN_ID
            if not skip:
                return i
            continue
        if kind in (DELETE, UPDATE):
            old[i] = index.table[position]
            _remove(index, position)
            reg[LIVE] -= 1
        if kind in (INSERT, UPDATE):
            if reg[FREE] >= 0:
                slot = reg[FREE]
                reg[FREE] = index.ids[slot]
            else:
                slot = reg[USED]
                reg[USED] += 1
            index.ids[slot] = key[i]
            if kind == UPDATE:  # removal moves entries
                position = _find(index, key[i])
            index.table[-1 - position] = slot
            new[i] = slot
            reg[LIVE] += 1
    return len(op)


class ExampleStore(SlotColumns):
    """Slots of live examples, with ``id`` and ``born`` (sequence number of the insertion), and the map from id to slot.

    ``reg`` has the registers, ``table`` the map (:class:`Index`).
    """

    BY_SLOT: ClassVar[tuple[str, ...]] = ("id", "born", "y")

    def __init__(self, columns: int, cache_bytes: int | None = None, target_dtype: np.dtype[Any] = CODES) -> None:
        #: How often all examples were replaced, and how often updates may have changed some.
        self.filled = self.changes = 0
        super().__init__(columns, cache_bytes, target_dtype)

    def _clear(self) -> None:
        super()._clear()
        self.reg = np.array([0, -1, 0], dtype=np.int64)
        self.id = np.empty(0, dtype=np.int64)
        self.born = np.empty(0, dtype=np.int64)
        self._table: Int32s | None = np.full(16, -1, dtype=np.int32)
        self._listed: npt.NDArray[np.uint8] | None = None  # without a table: the live slots as bits

    @property
    def table(self) -> Int32s:
        """The map; made again, in O(n), if :meth:`trim` has given it up."""
        if self._table is None:
            self._table = self._made(self.live)
        return self._table

    def _made(self, examples: int, length: int = 16) -> Int32s:
        """Return the map, of ``length`` entries or of as many as it takes for so many examples."""
        while 3 * examples > 2 * length:
            length *= 2
        table = grown(np.empty(0, dtype=np.int32), length)
        table[:] = -1
        if self.live:
            _fill(Index(table, length.bit_length() - 1, self.id), self.slots())
        return table

    def trim(self) -> None:
        """Give up the map, too, which takes 4 to 12 bytes for each example."""
        super().trim()
        if self._table is not None:
            live = np.zeros(self.used, dtype=np.bool_)
            live[self.slots()] = True
            self._listed, self._table = np.packbits(live), None

    @property
    def _index(self) -> Index:
        return Index(self.table, len(self.table).bit_length() - 1, self.id)

    @property
    def live(self) -> int:
        """Number of live examples."""
        return int(self.reg[LIVE])

    @property
    def used(self) -> int:
        """Slots that have had an example: those before this one."""
        return int(self.reg[USED])

    def reserve(self, extra: int) -> None:
        """Make room for ``extra`` more examples. Amortised O(1) per example; without effect if memory ends."""
        self.make_room(self.used + extra)
        if 3 * (self.live + extra) > 2 * len(self.table):
            self._table = self._made(self.live + extra, len(self.table))

    def admit(
        self,
        op: npt.NDArray[np.int8],
        key: Ints,
        begin: int,
        skip: bool,
        admission: Admission,
        call: Callable[..., int] = admit_updates,
    ) -> int:
        """Admit updates from ``begin`` on, by a ``call`` of :func:`admit_updates`, and return where it stopped."""
        if begin < len(op) and op[begin] != DELETE_VALUE:
            self.changes += 1  # before, so that a change that is broken off is counted
        return int(call(op, key, begin, skip, self._index, self.reg, admission))

    def retract(self, old: Int32s, new: Int32s) -> None:
        """Take back the last updates that were admitted, of which these slots were emptied and filled (-1: none)."""
        for emptied, filled in zip(old[::-1].tolist(), new[::-1].tolist(), strict=True):
            if filled >= 0:
                self.discard(filled)
                self.release(np.array([filled], dtype=np.int32))
            if emptied >= 0:
                _fill(self._index, np.array([emptied], dtype=np.int32))
                self.reg[LIVE] += 1

    def discard(self, slot: int) -> None:
        """Take one slot out of the map (deletion by value); free it later with :meth:`release`."""
        self.changes += 1
        _remove(self._index, _find(self._index, self.id[slot]))
        self.reg[LIVE] -= 1

    def enter(self, slots: Any, y: Targets, born: Ints, weights: Weights | None) -> None:
        """Record labels, births and weights (None: all are 1) of examples that were admitted."""
        self.born[slots] = born
        self.label(slots, y, weights)
        if self.weight is not None:
            self.uneven += np.count_nonzero(self.weight[slots] != UNIT)

    def release(self, slots: Int32s) -> None:
        """Put slots, emptied by a batch that is acknowledged everywhere, on the free list."""
        self.uneven -= self.uneven_of(slots)
        if len(slots):
            self.id[slots[:-1]] = slots[1:]
            self.id[slots[-1]] = self.reg[FREE]
            self.reg[FREE] = slots[0]

    def uneven_of(self, slots: Int32s) -> int:
        """Count the examples in some slots that have another weight than 1."""
        return 0 if self.weight is None or not self.uneven else int(np.count_nonzero(self.weight[slots] != UNIT))

    def find(self, keys: Ints) -> Int32s:
        """Slot of each id, -1 where it is not live."""
        out = np.empty(len(keys), dtype=np.int32)
        _lookup(self._index, np.ascontiguousarray(keys, dtype=np.int64), out)
        return out

    def slots(self) -> Int32s:
        """Live slots in ascending order."""
        if self._table is None:
            assert self._listed is not None
            return np.flatnonzero(np.unpackbits(self._listed, count=self.used)).astype(np.int32)
        return np.sort(self._table[self._table >= 0])

    def in_order_of_birth(self) -> Int32s:
        """Live slots, the oldest example first."""
        slots = self.slots()
        return slots[np.argsort(self.born[slots], kind="stable")]

    def fill(
        self, key: Ints, y: Targets, born: Ints, listed: Bools | None = None, weights: Weights | None = None
    ) -> None:
        """Replace everything by examples in slots 0, 1, ...; features are put separately.

        Only those ``listed`` (by default all) are live: the others have a slot that an id does not lead to.
        """
        n = len(key)
        self.filled += 1
        self._clear()
        self.reserve(n)
        self.id[:n] = key
        self.enter(slice(n), y, born, weights)
        slots = np.arange(n, dtype=np.int32) if listed is None else np.flatnonzero(listed).astype(np.int32)
        self.reg[:] = n, -1, len(slots)
        _fill(self._index, slots)


# Whose rows the live examples are: the subject (a person, an account) of each, for deletions that name a subject.
#
# Invariant: an entry stands for an insertion, by id and number of the update (``born``). Entries of deleted examples,
# and subjects that have no entry left, are dropped before anything is saved, and after as many deletions as there are
# entries at the latest. Codes follow the order of the entries that are left: they tell nothing of the others.
#
# A stream knows an insertion before the learner has taken it, so that it has an entry of a refused insertion, too, and
# of an example deleted by value. Whoever knows which examples live drops these by :meth:`Subjects.keep`.

#: Values as a user gives them, dtype object.
Values = npt.NDArray[np.object_]

#: Deletions are applied together, as soon as there are so many or, if that is more, half as many as entries.
_TOGETHER = 1024


class Subjects:
    """The subject of each live example, in 24 bytes for each entry, and each subject once."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        #: By entry, in order of birth; those from ``_used`` on are room.
        self._id, self._born, self._code = (np.empty(0, dtype=np.int64) for _ in range(3))
        self._used = self._dropped = 0
        self._ended: list[tuple[Ints, Ints]] = []  # ids, and the numbers of the updates that delete them
        self._waiting = 0

    def __len__(self) -> int:
        """Return the number of insertions that were noted, with those whose entries were dropped."""
        return self._dropped + self._used

    def cut(self, n: int) -> None:
        """Forget the insertions after the first ``n``."""
        self._used -= max(0, len(self) - n)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied: nothing of deleted examples."""
        self._drop_ended()
        self._keep(np.ones(self._used, dtype=np.bool_))
        return self.__dict__

    @property
    def known(self) -> list[Any]:
        """Subjects that have an entry, in the order of their first."""
        self._drop_ended()
        self._keep(np.ones(self._used, dtype=np.bool_))
        return list(self._codes)

    def add(self, ids: Ints, born: Ints, subjects: Sequence[Any] | Values) -> None:
        """Note insertions, later than all before. Amortised O(1) for each."""
        n, codes = len(ids), self._codes
        if self._used + n > len(self._id):
            capacity = max(self._used + n, 64, self._used + self._used // 2)
            self._id, self._born, self._code = (grown(one, capacity) for one in (self._id, self._born, self._code))
        new = slice(self._used, self._used + n)
        values = subjects.tolist() if isinstance(subjects, np.ndarray) else subjects
        self._id[new], self._born[new] = ids, born
        self._code[new] = [codes.setdefault(value, len(codes)) for value in values]
        self._used += n

    def end(self, ids: Ints, seq: Ints) -> None:
        """Note that no example with one of the ``ids`` lives that was born before ``seq``, ascending. O(log) each."""
        if len(ids):
            self._ended.append((np.array(ids), np.array(seq)))
            self._waiting += len(ids)
            if self._waiting >= max(_TOGETHER, self._used // 2):
                self._drop_ended()

    def keep(self, ids: Ints, born: Ints) -> None:
        """Drop the entries of all but the examples with these ids and births, shape (n,). O(n log n)."""
        order = np.argsort(born)
        here = np.zeros(self._used, dtype=np.bool_)
        if len(order):
            place = np.searchsorted(born, self._born[: self._used], sorter=order)
            place = order[np.minimum(place, len(order) - 1)]
            here = (born[place] == self._born[: self._used]) & (ids[place] == self._id[: self._used])
        self._ended, self._waiting = [], 0
        self._keep(here)

    def rows_of(self, subjects: Iterable[Any]) -> tuple[Ints, Ints, Values]:
        """Return ids, births and subjects of the entries of some subjects, in order of birth. O(entries)."""
        known = {self._codes[subject]: subject for subject in subjects if subject in self._codes}
        entries = self._without_ended(np.flatnonzero(np.isin(self._code[: self._used], list(known))))
        whose = [known[code] for code in self._code[entries].tolist()]
        return self._id[entries], self._born[entries], objects(whose)

    def of(self, ids: Ints) -> Values:
        """Return the subjects of live examples, shape (n,), None of one without an entry. O(entries)."""
        entries = self._without_ended(np.flatnonzero(np.isin(self._id[: self._used], ids)))
        code = dict(zip(self._id[entries].tolist(), self._code[entries].tolist(), strict=True))
        names = list(self._codes)
        return objects([names[code[one]] if one in code else None for one in ids.tolist()])

    def since(self, born: int) -> dict[int, Any]:
        """Return subjects of insertions from update ``born`` on, by number, before later deletions are noted."""
        first, names = int(np.searchsorted(self._born[: self._used], born)), list(self._codes)
        entries = zip(self._born[first : self._used].tolist(), self._code[first : self._used].tolist(), strict=True)
        return {update: names[code] for update, code in entries}

    def state(self) -> dict[str, Any]:
        """Return what :meth:`restore` needs: plain JSON values and NumPy arrays."""
        names, used = self.known, slice(0, self._used)
        return {
            "subjects": names,
            "subject_ids": self._id[used].copy(),
            "subject_born": self._born[used].copy(),
            "subject_codes": self._code[used].astype(np.int32),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave."""
        self._codes = {name: code for code, name in enumerate(state["subjects"])}
        columns = (state["subject_ids"], state["subject_born"], state["subject_codes"])
        self._id, self._born, self._code = (np.array(column, dtype=np.int64) for column in columns)
        if not len(self._id) == len(self._born) == len(self._code):
            raise ValueError(message("models.unequal_subjects"))
        self._used, self._ended, self._waiting, self._dropped = len(self._id), [], 0, 0

    # ------------------------------------------------------------ inside

    def _without_ended(self, entries: Ints) -> Ints:
        """Return the positions of entries, in order, without those of examples that deletions which wait have ended."""
        if not self._ended or not len(entries):
            return entries
        ids, seq = (np.concatenate(column)[::-1] for column in zip(*self._ended, strict=True))
        gone, last = np.unique(ids, return_index=True)  # of each id the last deletion
        place = np.minimum(np.searchsorted(gone, self._id[entries]), len(gone) - 1)
        left: Ints = entries[(gone[place] != self._id[entries]) | (self._born[entries] >= seq[last][place])]
        return left

    def _drop_ended(self) -> None:
        """Apply the deletions that wait."""
        if self._ended:
            chosen = np.zeros(self._used, dtype=np.bool_)
            chosen[self._without_ended(np.arange(self._used))] = True
            self._ended, self._waiting = [], 0
            self._keep(chosen)

    def _keep(self, chosen: Bools) -> None:
        """Drop all other entries, and the subjects that have none then."""
        used = len(chosen)
        self._id, self._born, code = (one[:used][chosen] for one in (self._id, self._born, self._code))
        codes, first, place = np.unique(code, return_index=True, return_inverse=True)
        order = np.argsort(first)
        new = np.empty(len(order), dtype=np.int64)
        new[order] = np.arange(len(order))
        self._code = new[place.reshape(-1)]
        names = list(self._codes)
        self._codes = {names[old]: place for place, old in enumerate(codes[order].tolist())}
        self._used = len(self._id)
        self._dropped += used - self._used


def objects(values: Sequence[Any]) -> Values:
    """Return values as an array of dtype object, shape (n,); tuples stay tuples."""
    return np.fromiter(values, dtype=np.object_, count=len(values))


# Effective weights of the examples of a store: the own weight, times the factor of the class where they balance.


class Weighting:
    """Effective weight of each example of a store: its own times that of its class, where these are balanced."""

    def __init__(self, is_balanced: bool, largest: int = LARGEST_SUM) -> None:
        self._is_balanced = is_balanced
        self._largest = largest  #: Sum of all weights up to which those of the learner are exact.
        #: Of each class, int64 in units, once they are resolved; classes that come later have 1.
        self.factors: Ints | None = None
        self.resolved = 0  #: Updates of the stream before they were.
        #: Factors to take, when they are resolved, in place of those that the examples give.
        self.given: Ints | None = None
        self._by_slot = NO_WEIGHTS
        self._most = self._new = 0  # the sum of all weights is not larger (0: not counted, all are 1); of new ones

    def of(self, weights: Weights | None, y: Targets) -> Weights | None:
        """Return what examples count, by their own weights and labels; None if all count 1."""
        if self.factors is None:
            return weights
        return products(UNIT if weights is None else weights, of_codes(self.factors, y))

    def of_slots(self, store: SlotColumns, slots: Any) -> Weights | None:
        """Return what the examples in some slots count; None if all count 1."""
        return self.of(store.weights(slots), store.y[slots])

    def by_slot(self, store: SlotColumns) -> Weights:
        """Return what all examples count, by slot, for kernels; empty if all count 1. Valid until the next batch."""
        if self.factors is not None:
            return self._by_slot
        return NO_WEIGHTS if store.weight is None else store.weight

    def reserve(self, store: SlotColumns) -> None:
        """Make room for what all slots of a store may count."""
        if self.factors is not None and len(self._by_slot) < store.capacity:
            self._by_slot = grown(self._by_slot, store.capacity)

    def enter(self, store: SlotColumns, slots: Any) -> None:
        """Take note of new examples, whose labels and weights the store has."""
        self.reserve(store)
        if self.factors is not None:
            counts = self.of_slots(store, slots)
            assert counts is not None
            self._by_slot[slots] = counts

    # ---------------------------------------------------------------- sums stay exact

    def sum_of(self, store: ExampleStore) -> int:
        """Add up what the live examples of a store count, in units. O(n)."""
        slots = store.slots()
        return sum_of(self.of_slots(store, slots), len(slots))

    def is_too_much(self, weights: Weights | None, y: Targets) -> bool:
        """Count new examples; True if the sum over all may be beyond the limit, or was not counted before."""
        new = self.of(weights, y)
        if new is None and not self._most:
            return False
        self._new, most = sum_of(new, len(y)), self._most
        self._most = most + self._new
        return not most or self._most > self._largest

    def require(self, live: int) -> None:
        """Raise InputError unless the sum stays exact: what the live examples count, and the new ones just counted."""
        self._most = live + self._new
        if self._most > self._largest:
            self._most = live
            raise InputError(message("examples.heavy", most=self._largest >> BITS))

    # ---------------------------------------------------------------- balanced classes

    @property
    def is_open(self) -> bool:
        """True if factors are wanted and not yet resolved."""
        return self._is_balanced and self.factors is None

    def balance(self, store: SlotColumns, slots: Any, seq: int, classes: int = 0, later: Any = ()) -> bool:
        """Find the factors by the examples in some slots, if they are open, before update ``seq``; True if they were.

        There are as many as ``classes``, or as the examples need. The examples enter by them, ``later`` ones too.
        """
        if not self.is_open:
            return False
        self.resolve(sums_by_class(store.weights(slots), store.y[slots], classes), seq)
        self.enter(store, slots)
        self.enter(store, np.asarray(later, dtype=np.int32))
        return True

    def resolve(self, sums: Ints, seq: int) -> None:
        """Fix the factors by the sums of the own weights of each class, before update ``seq``; once."""
        self.take(balanced(sums) if self.given is None else self.given, seq)

    def take(self, factors: Ints | None, seq: int = 0) -> None:
        """Take factors that were resolved before update ``seq``."""
        self.factors, self.resolved, self._by_slot, self._most = factors, seq, NO_WEIGHTS, 0

    def digested(self) -> dict[str, AnyArray]:
        """Return the factors of classes, which belong to the digest; none before they are resolved."""
        return {} if self.factors is None else {"class_weight": self.factors}

    def state(self) -> dict[str, AnyArray]:
        """Return the arrays of a state beside the own weights: the factors, and when they were resolved."""
        found = self.digested()
        return found | {"weighed": np.array([self.resolved], dtype=np.int64)} if found else found

    def restore(self, state: Mapping[str, AnyArray], store: SlotColumns | None = None) -> None:
        """Continue with what :meth:`state` gave; the examples of a store that has been filled enter."""
        self.take(None)
        if self._is_balanced and "class_weight" in state:
            self.take(np.asarray(state["class_weight"]), int(state["weighed"][0]))
            if store is not None:
                self.enter(store, np.arange(store.used))
