"""The canonical batch of updates, and what a coordinator answers to it.

An update is numbered by its place in the stream (``seq``, from 0). The numbering, and so every result, is
independent of how the stream is cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import LARGEST_WIDTH, SparseRows, hashed_groups, merged
from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints
from raydt.errors import InputError
from raydt.exchange.messages import Block
from raydt.messages import message

# The two kinds of target: class codes (int32, -1 where there is none) and numbers (float64, NaN where there is none).
#
# Invariant: the dtype of an array says which kind it holds, so that code can serve both kinds without a flag.
# Predictions are arrays of the same two kinds.

#: Class codes or numbers, shape (n,).
Targets = AnyArray

CODES = np.dtype(np.int32)
NUMBERS = np.dtype(np.float64)

#: Most classes of any learner. A tree counts every class at every node, so that time and memory are O(nodes x classes):
#: where each label is its own class, as ids are, that is quadratic in the rows and a rebuild cubic.
MOST_CLASSES = 1000

#: Least and largest absolute value of a number other than 0. Squares of such numbers and of their differences, and sums
#: of these squares, are normal float64; learners, metrics and audits rely on it.
NUMBERS_FROM, NUMBERS_TO = 1e-140, 1e140
OUT_OF_RANGE = message("examples.label_range", least=NUMBERS_FROM, most=NUMBERS_TO)


def out_of_range_targets(numbers: Floats) -> Bools:
    """Mask of the numbers that no learner takes, shape (n,); NaN is not among them."""
    size = np.abs(numbers)
    mask: Bools = (size > NUMBERS_TO) | ((size < NUMBERS_FROM) & (size > 0.0))
    return mask


def dtype_of(regression: bool) -> np.dtype[Any]:
    """The dtype of what a learner is taught."""
    return NUMBERS if regression else CODES


def no_targets(n: int, dtype: np.dtype[Any]) -> Targets:
    """``n`` targets, none of which is there."""
    return np.full(n, np.nan if dtype == NUMBERS else -1, dtype=dtype)


def there(targets: Targets) -> Bools:
    """Mask of the targets that are there, shape (n,)."""
    mask: Bools = ~np.isnan(targets) if targets.dtype == NUMBERS else targets >= 0
    return mask


def in_order(labels: Sequence[Any], positive: bool = False) -> Ints:
    """Class codes in ascending order of their labels, shape (classes,), where ``labels`` are those of codes 0, 1, ...

    Numbers and truth values ascend by size, strings by code points. Under ``positive`` class 0 is the rest whatever it
    is called, and comes first. O(K log K).
    """
    codes = range(len(labels))
    return np.array(codes if positive else sorted(codes, key=labels.__getitem__), dtype=np.int64)


def classes_in(targets: Targets) -> int:
    """The largest class code + 1; 0 where there is none, and of numbers. O(n)."""
    return 0 if targets.dtype == NUMBERS else int(targets.max(initial=-1)) + 1


if TYPE_CHECKING:
    from raydt.arrays.blocks import SparseRows
    from raydt.exchange.messages import Barrier, Snapshot

#: Operation codes of :attr:`UpdateBatch.op`.
INSERT, DELETE, QUERY, DELETE_VALUE, UPDATE = 0, 1, 2, 3, 4

#: A learner's own record of what it did, see :attr:`BatchResult.log`.
Log = dict[str, AnyArray]

#: Which operations carry a row of features, indexed by operation code.
CARRIES_ROW = np.array([True, False, True, True, True])
#: Which operations insert an example, and which delete one, indexed by operation code.
ADDS_EXAMPLE, ENDS_EXAMPLE = np.zeros((2, len(CARRIES_ROW)), dtype=np.bool_)
ADDS_EXAMPLE[[INSERT, UPDATE]] = ENDS_EXAMPLE[[DELETE, DELETE_VALUE, UPDATE]] = True
#: Which operations name an example, indexed by operation code; a query may.
WITH_ID = np.array([True, True, False, False, True])

#: Names of the operation codes, in their order.
OP_NAMES = ("insert", "delete", "query", "delete_value", "update")

#: Why an update was refused (:attr:`Refusal.reason`): the problem and the remedy.
UNKNOWN_ID, DUPLICATE_ID, UNKNOWN_VALUE, TARGET_TOO_FAR = 1, 2, 3, 4
REFUSALS = {
    reason: (said.alone(), said.remedy)
    for reason, said in (
        (UNKNOWN_ID, message("examples.unknown_id")),
        (DUPLICATE_ID, message("examples.live_id")),
        (UNKNOWN_VALUE, message("examples.unknown_value")),
        (TARGET_TOO_FAR, message("examples.far_target")),
    )
}


def running_ids(next_id: int, n: int, file: str | None = None) -> Ints:
    """Return the next ids for ``n`` rows without ids of their own; InputError, about ``file``, beyond 64 bits."""
    if next_id + n > np.iinfo(np.int64).max:
        raise InputError(message("examples.no_numbers"), file=file)
    return np.arange(next_id, next_id + n, dtype=np.int64)


def refuse_numbered(ranges: Sequence[Sequence[int]], ids: Ints, file: str | None = None) -> None:
    """Refuse to delete by running ids the rows of data frames whose index has a name: the index may be meant.

    ``ranges`` has the first of such ids and the one after the last; an id in one of them is an InputError.
    """
    for first, stop in ranges:
        bad = np.flatnonzero((ids >= first) & (ids < stop))
        if len(bad):
            raise InputError(message("examples.numbered", id=int(ids[bad[0]])), file=file, row=int(bad[0]))


@dataclass(frozen=True, slots=True)
class UpdateBatch:
    """Consecutive updates of one stream."""

    start: int  #: Sequence number of the first update.
    op: npt.NDArray[np.int8]  #: Shape (m,): operation codes.
    id: Ints  #: Shape (m,): stable id of the example; ignored for QUERY and DELETE_VALUE.
    #: Shape (r, d): the d dense features of each update that carries any, in order. Finite, but NaN where a number is
    #: missing and the learner takes that; -0.0 is stored as 0.0. A categorical feature holds its integer code, -1 if
    #: missing.
    X: Floats
    #: Shape (r,): class code of each row of ``X``; -1 where a query has none. Of a regression float64, the targets; NaN
    #: where a query has none.
    y: Targets
    n_classes: int  #: Classes known once the last row of this batch has been read; 0 of a regression.
    #: Shape (m,): row of the source each update came from, for messages; -1 where there is none, -2 - r for a deletion
    #: ordered by row r of a deletion log. ``Stream.where`` reads it.
    row: Ints
    #: How many leading updates of the *stream* are warm-up inserts, as far as is known: less than the batches before
    #: said where the first that is no insert begins this one.
    warmup: int = 0
    barrier: Barrier | None = None  #: A snapshot is wanted once this batch is applied in full.
    sparse: SparseRows | None = None  #: The sparse features of each row of ``X``; None where there are none.
    #: Shape (n_classes,): class codes in ascending order of their labels (:func:`raydt.examples.updates.in_order`):
    #: codes are given in order of appearance, which is history. None: the codes ascend as the labels do.
    class_order: Ints | None = None
    #: The statistics are wanted at each multiple of this within the batch, too (:attr:`BatchResult.within`); 0 if not.
    #: Only learners that say so in their traits give them.
    every: int = 0
    #: Whether predictions before the updates are wanted. Without them a learner may take all updates at once.
    answers: bool = True
    #: Text ids, None of an update without one. For whoever takes the result; a learner has ``id``.
    names: list[str | None] | None = None
    digest: bool = False  #: The digest of the model before this batch is wanted (:attr:`BatchResult.digest`).
    #: Shape (r,): event times of the rows of ``X``, ``raydt.encoding.columns.NO_TIME`` of one without; None of a source
    #: without times. For whoever takes the result; no learner knows the time.
    time: Ints | None = None
    #: Shape (r,): weight of each row of ``X`` (``raydt.examples.updates``); None where all are 1.
    weight: Weights | None = None
    #: Without features, because the shards have read those of these rows, which are all of the warm-up: the blocks of
    #: the source in which the rows lie.
    blocks: tuple[Block, ...] = ()
    #: Shape (m,): deletions that it is no fault to refuse because their example is not live; None where there are none.
    tolerated: Bools | None = None

    def __len__(self) -> int:
        return len(self.op)

    def name(self, position: int) -> Any:
        """The id of an update as the user knows it."""
        return int(self.id[position]) if self.names is None else self.names[position]

    def faults(self, refused: Sequence[Refusal]) -> list[Refusal]:
        """Return the refusals that are faults of the updates."""
        quiet = self.tolerated
        return [*refused] if quiet is None else [one for one in refused if not quiet[one.position]]

    def tolerates(self, position: int) -> bool:
        """Return True if it is no fault to refuse an update."""
        return self.tolerated is not None and bool(self.tolerated[position])

    @property
    def ends_warmup(self) -> bool:
        """True if the warm-up, if there is one, is over just before this batch."""
        return 0 < self.start == self.warmup

    def early_warmup(self, planned: int) -> dict[str, Any] | None:
        """Return how a warm-up that was to have ``planned`` updates ended just before this batch; None if it did not.

        That is its ``updates``, the planned ones (``warmup``), and the name of the operation that ended it (``op``).
        """
        if not self.ends_warmup or self.warmup >= planned:
            return None
        return {"updates": self.warmup, "warmup": planned, "op": OP_NAMES[self.op[0]]}

    @property
    def lacks_features(self) -> bool:
        """True if the shards have read the features of the rows that updates carry."""
        return len(self.X) > 0 and not self.X.shape[1] and self.sparse is None

    @property
    def stop(self) -> int:
        """Sequence number after the last update."""
        return self.start + len(self.op)


def cut_at(batch: UpdateBatch, places: Sequence[int]) -> Iterator[UpdateBatch]:
    """Yield a batch in pieces that begin at ascending places within it, which share its arrays; whole without places.

    A barrier stays with the last piece.
    """
    if not places:
        yield batch
        return
    rows_before = np.concatenate(([0], np.cumsum(CARRIES_ROW[batch.op])))
    edges = [0, *places, len(batch)]
    for begin, end in pairwise(edges):
        rows = slice(rows_before[begin], rows_before[end])
        yield replace(
            batch,
            start=batch.start + begin,
            op=batch.op[begin:end],
            id=batch.id[begin:end],
            X=batch.X[rows],
            sparse=None if batch.sparse is None else batch.sparse[rows],
            y=batch.y[rows],
            time=None if batch.time is None else batch.time[rows],
            weight=None if batch.weight is None else batch.weight[rows],
            row=batch.row[begin:end],
            names=None if batch.names is None else batch.names[begin:end],
            tolerated=None if batch.tolerated is None else batch.tolerated[begin:end],
            barrier=batch.barrier if end == len(batch) else None,
            digest=batch.digest and begin == 0,
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """One update that was refused and had no effect: its position in the batch and the reason code."""

    position: int
    reason: int


def joined(logs: Sequence[Log]) -> Log:
    """Logs of one learner, one after another."""
    full = [log for log in logs if log]
    return {name: np.concatenate([log[name] for log in full]) for name in full[0]} if full else {}


@dataclass(slots=True)
class BatchResult:
    """Reply of a coordinator to one batch."""

    #: Updates taken from the front of the batch, refused ones included; less than the batch's length only if the policy
    #: is to stop at a bad update.
    applied: int
    #: Shape (m,): for inserts and queries the class predicted just before the update took effect; for an UPDATE that
    #: between its deletion and its insertion. A learner that changes its model every so many updates predicts by its
    #: last model. -1 for deletions, for warm-up inserts and for refused updates. Of a regression float64, the number
    #: predicted; NaN for the same.
    predictions: Targets
    refused: list[Refusal] = field(default_factory=list)  #: In order of position.
    inserts: int = 0  #: ``inserts``, ``deletes``: How many took effect.
    deletes: int = 0
    #: The learner's own record of the batch (of a tree one entry per rebuild), all arrays of one length; ``seq`` (of
    #: the update that caused it) among them, and ``rows``, ``nodes`` and ``depth`` if it is of rebuilds.
    log: Log = field(default_factory=dict)
    #: Shape (m,): nodes whose class counts each update changed: those from the root to the leaf of its example, as the
    #: model was just then; the two of an UPDATE are added up. 0 for queries and refused updates.
    path: Int32s = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    #: The coordinator's statistics after the batch: ``active``, ``nodes``, ``leaves``, ``depth``, ``rebuilds``,
    #: ``rebuilt_rows``, ``rounds``, ``bytes_exchanged``.
    statistics: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0  #: Wall time the coordinator spent on the batch. Never read by a decision.
    digest: str | None = None  #: Of the model before a batch that wants it.
    snapshot: Snapshot | None = None  #: Of the model after a batch with a barrier, if it was applied in full.
    #: Shape (m,): of a learner that gives scores: that of class 1 for each prediction, as a level
    #: (:mod:`raydt.evaluation.scoring`).
    levels: npt.NDArray[np.uint16] | None = None
    #: Of a batch with ``every``: what the statistics of the model (all but ``active`` and the traffic) were when so
    #: many updates of the stream had been applied, for each multiple of ``every`` inside the part that was applied.
    within: list[dict[str, int]] = field(default_factory=list)

    def give_levels(self, position: Ints, levels: AnyArray) -> None:
        """Enter the scores of the predictions at these positions; those of the others are not known."""
        if self.levels is None:
            self.levels = np.full(len(self.predictions), np.iinfo(np.uint16).max, dtype=np.uint16)
        self.levels[position] = levels


# Weights of examples in fixed point, and how those of classes are found and multiplied with them.
#
# A weight is a whole number of units of ``2**-16``, so that 1 is :data:`UNIT`. Products and sums of them are integers:
# a sum does not depend on the order, and a deletion takes away what the insertion has added.
#
# Invariant: where no example has another weight than 1, there is no array of weights.

#: Bits after the binary point, and a weight of 1.
BITS = 16
UNIT = 1 << BITS
#: Least and largest weight in units (0 counts like no row at all), and the largest sum of the weights of live examples:
#: sums of derivatives, of which an example has less than 2**30 times its weight, stay within 63 bits.
LEAST, MOST, LARGEST_SUM = 0, 2**32 - 1, 2**48

#: Weights in units, shape (n,).
Weights = npt.NDArray[np.uint32]
DTYPE = np.dtype(np.uint32)
#: No array: all weights are 1.
NO_WEIGHTS: Weights = np.empty(0, dtype=DTYPE)


def out_of_range(weights: Floats) -> Bools:
    """Mask of the numbers that are no weights, shape (n,); NaN is among them."""
    inside: Bools = (weights == 0.0) | ((weights >= 1.0 / UNIT) & (weights <= MOST / UNIT))
    return ~inside


def fixed(weights: Floats) -> Weights:
    """Round weights to whole units: those in range that are not 0 are at least one."""
    return np.rint(weights * UNIT).astype(DTYPE)


def filled(weights: Weights | None, n: int) -> Weights:
    """Return weights of n examples as an array, if they are None, too."""
    return np.full(n, UNIT, dtype=DTYPE) if weights is None else weights


def unless_equal(weights: Weights | None) -> Weights | None:
    """Return None for weights that are all 1."""
    return None if weights is None or (weights == UNIT).all() else weights


def of_codes(factors: Ints, codes: AnyArray) -> Ints:
    """Return the factors of some classes; 1 of those that came later."""
    found: Ints = np.append(factors, UNIT)[np.minimum(codes, len(factors))]
    return found


def counting(rows: AnyArray, weights: Weights | None) -> AnyArray:
    """Return those of some rows that count: all but the ones of weight 0."""
    return rows if weights is None else rows[weights > 0]


def products(weights: Weights | int, factors: AnyArray) -> Weights:
    """Multiply weights, rounded to the nearest unit and kept within range."""
    whole = np.asarray(weights, dtype=np.uint64) * factors.astype(np.uint64)
    scaled = (whole + np.uint64(UNIT // 2)) >> np.uint64(BITS)
    found: Weights = np.clip(scaled, LEAST, MOST).astype(DTYPE)
    return found


def _text(label: Any) -> str:
    """Return a label as a config writes it: whole numbers without a fraction, truth values in small letters."""
    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label).lower() if isinstance(label, bool) else str(label)


def by_label(class_weight: Mapping[Any, float]) -> tuple[tuple[str, float], ...]:
    """Return weights of classes with labels as text, in ascending order: the same for ``1`` and ``"1"``."""
    return tuple(sorted((_text(label), float(weight)) for label, weight in class_weight.items()))


def of_labels(class_weight: Sequence[tuple[str, float]], labels: Sequence[Any]) -> Weights:
    """Return the weight of each of some labels, in units; 1 of one without."""
    known = dict(class_weight)
    return fixed(np.array([known.get(_text(label), 1.0) for label in labels], dtype=np.float64))


def unknown_labels(class_weight: Sequence[tuple[str, float]], labels: Sequence[Any]) -> list[str]:
    """Return the labels with a weight that are none of ``labels``."""
    known = set(map(_text, labels))
    return [label for label, _ in class_weight if label not in known]


def sums_by_class(weights: Weights | None, y: Targets, classes: int = 0) -> Ints:
    """Add up the weights of each class, in units; None: all are 1. As long as ``classes``, or as the classes need."""
    if weights is None:
        return np.bincount(y, minlength=classes) * UNIT
    return np.bincount(y, weights, minlength=classes).astype(np.int64)  # exact: LARGEST_SUM is far below 2**53


def balanced(sums: Ints) -> Ints:
    """Return the factor of each class, in units: all classes come to weigh the same, and all examples what they did.

    That is n / (K n_c), with the sums of weights (:func:`sums_by_class`) for n and n_c and the number of classes that
    occur for K; 1 of a class that does not occur.
    """
    weighed = sums.tolist()
    total, occurring = sum(weighed), sum(one > 0 for one in weighed)
    factors = [UNIT if not one else round_half_up(UNIT * total, occurring * one) for one in weighed]
    return np.array([min(factor, MOST) for factor in factors], dtype=np.int64)


def round_half_up(numerator: int, denominator: int) -> int:
    """Round a fraction of whole numbers."""
    return (2 * numerator + denominator) // (2 * denominator)


def sum_of(weights: Weights | None, n: int) -> int:
    """Add up the weights of n examples, in units; None: all are 1."""
    return n * UNIT if weights is None else int(weights.sum(dtype=np.int64))


# The features, and how they are divided into the fixed groups that shards own.
#
# Groups do not depend on the number of shards, so no result changes with it. *Dense* features are the columns of a
# matrix ``X``. *Sparse* ones are binary and follow the dense ones in number; a row gives the indices of those that are
# 1 (``raydt.arrays.blocks``). There may be millions: nothing here holds one of them by itself.

NUMERIC, CATEGORICAL = 0, 1


def sparse_name(column: str, index: int, tokens: Sequence[str] = ()) -> str:
    """Name of a sparse feature: its token, or its column and index where there is none, or none to be seen."""
    token = tokens[index] if index < len(tokens) else ""
    return token if token.strip() else f"{column}[{index}]"


@dataclass(frozen=True)
class Features:
    """Names and kinds of the features: first the d dense ones in column order, then the sparse ones."""

    names: tuple[str, ...]  #: Of the dense features.
    categorical: tuple[bool, ...]  #: Same length; True where the column holds category codes.
    groups: int = 16  #: G, the number of feature groups, between 1 and the number of features.
    sparse: int = 0  #: How many sparse features there are; that of index i is feature ``len(names) + i``.
    sparse_column: str = "indices"  #: The column their indices come from, after which they are called.

    def __post_init__(self) -> None:
        if len(self) > LARGEST_WIDTH:
            said = {"dense": len(self.names), "sparse": self.sparse, "largest": LARGEST_WIDTH}
            raise InputError(message("examples.many_features", **said))
        object.__setattr__(self, "groups", max(1, min(self.groups, len(self))))

    def __len__(self) -> int:
        return len(self.names) + self.sparse

    def name(self, feature: int, tokens: Sequence[str] = ()) -> str:
        """Name of a feature by its number; ``tokens`` are those that indices stand for, if there are any."""
        dense = len(self.names)
        return self.names[feature] if feature < dense else sparse_name(self.sparse_column, feature - dense, tokens)

    @property
    def categorical_names(self) -> list[str]:
        """Names of the dense features that are categorical."""
        return [name for name, is_category in zip(self.names, self.categorical, strict=True) if is_category]

    @property
    def kinds(self) -> npt.NDArray[np.int8]:
        """NUMERIC or CATEGORICAL of each dense feature, int8, shape (d,)."""
        return np.array(self.categorical, dtype=np.int8)

    def describe(self) -> list[dict[str, Any]]:
        """Name and kind of each dense feature, as plain values, then one entry for all sparse ones if there are any."""
        kinds = ("categorical" if categorical else "numeric" for categorical in self.categorical)
        dense: list[dict[str, Any]] = [{"name": n, "kind": k} for n, k in zip(self.names, kinds, strict=True)]
        return (
            [*dense, {"name": self.sparse_column, "kind": "sparse", "features": self.sparse}] if self.sparse else dense
        )

    def group_columns(self, group: int) -> Ints:
        """Columns of ``X`` in one group: a contiguous range, sizes differing by at most one."""
        return self._columns_by_group[group]

    @cached_property
    def _columns_by_group(self) -> list[Ints]:
        d, g = len(self.names), self.groups
        return [np.arange(group * d // g, (group + 1) * d // g) for group in range(g)]

    def columns_of(self, groups: Ints) -> Ints:
        """Columns of ``X`` in several groups, in the order of the groups."""
        return np.concatenate([np.empty(0, dtype=np.int64), *(self.group_columns(int(g)) for g in groups)])

    def groups_of(self, indices: AnyArray) -> Ints:
        """Group of each of some sparse features, given by index: a fixed hash (``raydt.arrays.blocks``)."""
        return hashed_groups(indices, self.groups)

    def assign(self, shards: int) -> list[Ints]:
        """Groups of each of ``shards`` shards, contiguous and in order; a shard beyond G owns none."""
        g = self.groups
        return [np.arange(s * g // shards, (s + 1) * g // shards) for s in range(shards)]


@dataclass(frozen=True)
class CountedOnes:
    """Sparse features at nodes, ascending by node and feature: rows with a 1, and those of class 1 among them."""

    node: Ints
    feature: Ints
    n1: Ints
    c11: Ints

    @classmethod
    def of(cls, ones: SparseRows, node: Ints, y: AnyArray, mass: Ints) -> CountedOnes:
        """Count rows that are at nodes, each as its ``mass``: sums are exact up to 2**53, as float64 adds them."""
        width = max(1, ones.n_features)
        key, at = np.unique(np.repeat(node, ones.lengths) * width + ones.indices, return_inverse=True)
        added = (np.bincount(at, np.repeat(of_row, ones.lengths), len(key)) for of_row in (mass, mass * (y == 1)))
        n1, c11 = (counts.astype(np.int64) for counts in added)
        seen = n1 > 0  # a row that weighs 0 counts nowhere
        return cls(*np.divmod(key, width), n1, c11)[seen]

    def __getitem__(self, chosen: AnyArray) -> CountedOnes:
        return CountedOnes(self.node[chosen], self.feature[chosen], self.n1[chosen], self.c11[chosen])

    def named(self, names: Sequence[str]) -> Iterator[tuple[str, Ints]]:
        """Return the last columns under these names."""
        return zip(names, (self.node, self.feature, self.n1, self.c11)[-len(names) :], strict=True)


# The raw history that an audit works from: every example ever inserted, and when it was live.


@dataclass(frozen=True, slots=True)
class History:
    """Every example ever inserted, with the interval of updates during which it was live."""

    id: Ints  #: Shape (n,).
    X: Floats  #: Shape (n, d).
    y: Targets  #: Shape (n,).
    inserted: Ints  #: Shape (n,): sequence number of the insertion.
    deleted: Ints  #: Shape (n,): sequence number of the deletion, or the largest int64 while live.
    warmup: int = 0  #: Leading inserts that built the model at once.
    #: False if only the live examples are known (an estimator's store): what needs the past is not checked.
    complete: bool = True
    sparse: SparseRows | None = None  #: The sparse features, if there are some.
    weight: Weights | None = None  #: Shape (n,): the weights, unless all are 1.


def history_of_live(
    state: Mapping[str, AnyArray], groups: Mapping[int, Mapping[str, AnyArray]], features: Features
) -> History:
    """Return the history in a state: its live examples, from ``X`` and the sparse rows of all groups."""
    X = np.concatenate([groups[g]["X"] for g in sorted(groups)], axis=1)
    sparse = None
    if features.sparse:
        sparse = merged([SparseRows.of_arrays(groups[g], features.sparse) for g in sorted(groups)])
    live = np.full(len(X), np.iinfo(np.int64).max)
    weight = state.get("weight")
    return History(state["id"], X, state["y"], state["born"], live, complete=False, sparse=sparse, weight=weight)


# Admission: decides about the updates of a batch before anything of it is applied.


class Admission(NamedTuple):
    """Decisions of admission by update: slots emptied (``old``) and filled (``new``), -1: none, and faults."""

    old: Int32s
    new: Int32s
    fault: npt.NDArray[np.int8]
    row: Int32s


def nothing_admitted(op: npt.NDArray[np.int8]) -> Admission:
    """Before admission."""
    m = len(op)
    row = (np.cumsum(CARRIES_ROW[op]) - 1).astype(np.int32)
    return Admission(np.full(m, -1, dtype=np.int32), np.full(m, -1, dtype=np.int32), np.zeros(m, dtype=np.int8), row)


# How a learner wants the rows of a source to be read.

#: Newest rules by which rows of files are read (``source.rules``). A change of which rows are bad, or of what a row
#: means, is a new number; the code that reads keeps the former rules, by which a run that began with them continues and
#: is audited. 1: text ids of deleted rows are never forgotten, and some learners (``Reading.missing_since``) take no
#: missing values. 2: deleted ids are forgotten. 3: all learners take missing values. 4: in text, 007 and 7 are two ids,
#: subjects, keys and classes, unless the column is declared one of integers, and an integer that float64 would round is
#: bad. 5: in columns of numbers, ``source.null_values`` are missing.
NEWEST_RULES = 5


def rules_of_format(number: int) -> int:
    """Return the rules of a run that has none on record, by the format of its states."""
    return min(number, 3)


@dataclass(frozen=True, slots=True)
class Reading:
    """Inputs and targets that a learner takes."""

    regression: bool = False  #: Labels are numbers, not names of classes.
    missing: bool = False  #: A row may lack values of features. Otherwise it is bad.
    missing_since: int = 1  #: First rules of reading (``source.rules``) under which it may.
    sparse: bool = False  #: There may be sparse features. Otherwise a column of lists is refused.
    needs_sparse: bool = False  #: There must be some.
    dense: bool = True  #: There may be others.
    #: ``classes``, ``sparse_classes``: How many classes there may be without sparse features, and with some: a row with
    #: the label of one more is bad.
    classes: int = MOST_CLASSES
    sparse_classes: int = MOST_CLASSES
    #: Categories are read as numbers that follow from their values (``raydt.encoding.columns.number_of``), and
    #: not as codes in the order of their appearance, which is history.
    by_value: bool = False
    weights: bool = False  #: Rows may have weights.
    #: Labels of the rows before (:func:`previous_names`), which a source adds to each row as features: the same for
    #: all rows it predicts, all None where the stream enters those of each row.
    previous: tuple[str | int | float | bool | None, ...] = ()
    #: Weights of classes by label as text (``raydt.examples.updates.by_label``), which multiply those of the rows.
    class_weight: tuple[tuple[str, float], ...] = ()
    #: ``without_sparse``, ``with_dense``, ``with_numbers``, ``with_classes``: Options of the same learner that take
    #: what these options do not: rows without sparse features, rows with others, labels that are numbers, and more
    #: classes (without sparse features). Empty if there are none.
    without_sparse: str = ""
    with_dense: str = ""
    with_numbers: str = ""
    with_classes: str = ""

    def under(self, rules: int) -> Reading:
        """Return what the learner took under earlier rules of reading (``source.rules``)."""
        return self if rules >= self.missing_since else replace(self, missing=False)

    def most_classes(self, *, sparse: bool) -> int:
        """Return the largest number of classes, with sparse features or without."""
        return self.sparse_classes if sparse else self.classes


#: Rows as most learners want them: complete, with classes.
CLASSES = Reading()

#: So many labels of the rows before may be features.
MOST_PREVIOUS = 8


def previous_names(k: int) -> tuple[str, ...]:
    """Return the names of the features that are the labels of the k rows before, that of the last row first."""
    return tuple(f"previous_label_{lag}" for lag in range(1, k + 1))
