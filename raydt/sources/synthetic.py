"""Generated sources: SEA concepts and the rotating hyperplane; sparse rows are in ``sparse``.

Invariant: row r is a pure function of the options and r (with ``permutation``, what comes at place r is the row drawn
for it, which keeps its number as its id), so any start and any chunking give identical rows. Only
integer operations, additions, multiplications and one division are used, in a fixed order, so the values are the same
bits on every platform.

Sources: SEA from W. N. Street, Y. Kim, "A streaming ensemble algorithm (SEA) for large-scale classification", KDD
2001; the hyperplane from G. Hulten, L. Spencer, P. Domingos, "Mining time-changing data streams", KDD 2001, with its
weights on a closed-form path instead of a random walk, so that any row can be computed alone.
"""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints, permutation, stream_key, uniform, uniform_at
from raydt.arrays.kernel import kernel
from raydt.encoding.columns import TimeColumn
from raydt.errors import ConfigError
from raydt.examples.updates import CLASSES, CODES, NEWEST_RULES, Features, Weights
from raydt.messages import message
from raydt.sources.base import Rows, SourceIdentity, hashed

if TYPE_CHECKING:
    from raydt.sources.options import Hyperplane, Sea, SyntheticOptions

#: Random numbers drawn at once; they should stay in the processor's cache.
CHUNK_DRAWS = 1 << 16

#: Concepts of SEA: the threshold of x0 + x1.
SEA_THRESHOLDS = (8.0, 9.0, 7.0, 9.5)


class SyntheticSource(ABC):
    """Base of the generators; satisfies :class:`raydt.sources.base.Source`."""

    rules, reading = NEWEST_RULES, CLASSES
    id_kind: Literal["row", "integer", "text"] = "row"
    subject_column: str | None = None
    subject_kind: Literal["integer", "text"] | None = None
    id_column: str | None = None
    is_changelog = False
    complete = True
    has_labels = True
    known_classes = 2
    target_dtype = CODES
    positive: ClassVar[None] = None
    purpose: ClassVar[str]
    seekable = True
    places: ClassVar[list[tuple[str, int, int | None]]] = []
    #: Weights of the classes in units, shape (2,); None: all are 1.
    class_weight: Weights | None = None

    def __init__(self, options: SyntheticOptions, features: Features) -> None:
        self._options = options
        self._noise = options.noise
        self.n_rows = options.n if options.limit is None else min(options.n, options.limit)
        self.features = features
        self._key = stream_key(options.seed, self.purpose)
        self._order = (
            None
            if options.permutation is None
            else permutation(stream_key(options.permutation, "source permutation"), self.n_rows)
        )

    @property
    def classes(self) -> list[Any]:
        """The labels 0 and 1."""
        return [0, 1]

    def count_rows(self) -> int:
        """Number of rows."""
        return self.n_rows

    def _weights(self, y: AnyArray) -> Weights | None:
        return None if self.class_weight is None else self.class_weight[y]

    def times(self) -> TimeColumn | None:
        """None: generated rows have no times."""
        return None

    def require_ts(self) -> TimeColumn:
        """Refused: generated rows have no times."""
        raise ConfigError(message("sources.generated_times"))

    def identity(self) -> SourceIdentity:
        """The generator's settings."""
        options = self._options.model_dump()
        return SourceIdentity(hashed(json.dumps(options, sort_keys=True)), options)

    @abstractmethod
    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[Rows]:
        """Chunks of rows from row ``start`` on, up to before row ``stop`` if there is one."""

    @abstractmethod
    def part(self, names: Sequence[str], *, keys: bool) -> SyntheticSource:
        """Return a source of the same rows with some of the features only; ``keys`` makes no difference."""

    def block(self, start: int, stop: int) -> Iterator[Rows]:
        """Return the rows from ``start`` up to before ``stop``, in chunks."""
        return self.rows(start, stop)

    def hand_out(self, row: int) -> None:  # noqa: B027 (all classes are known)
        """Nothing to note."""

    def forget_labels(self, row: int) -> None:  # noqa: B027 (all classes are known)
        """Nothing to forget."""

    def categories(self) -> dict[str, Any]:
        """No feature is categorical."""
        return {}

    def _numbers(self, begin: int, rows: int) -> Ints:
        """The rows drawn for so many places from ``begin`` on, as far as there are."""
        places = np.arange(begin, min(begin + rows, self.n_rows), dtype=np.int64)
        return places if self._order is None else self._order[places]

    def where(self, row: int) -> tuple[str, int]:
        """The generator's name and the row."""
        return f"synthetic {self.purpose}", row if self._order is None else int(self._order[row])

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027 (rows depend on nothing that was read)
        """Nothing to restore."""


class NumericSource(SyntheticSource):
    """Base of the generators of numeric features: a row has a uniform number for each, and one for the noise."""

    _kept: list[int] | None  #: Columns of a part; None: all.

    def __init__(self, options: SyntheticOptions, names: tuple[str, ...]) -> None:
        super().__init__(options, Features(names, (False,) * len(names)))
        self._drawn, self._kept = len(names), None

    def part(self, names: Sequence[str], *, keys: bool) -> NumericSource:
        """Return a source of the same rows; see :meth:`SyntheticSource.part`."""
        part = copy.copy(self)
        part._kept = [self.features.names.index(name) for name in names]
        return part

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[Rows]:
        """Chunks of rows; see :meth:`SyntheticSource.rows`."""
        d = self._drawn
        step = max(64, CHUNK_DRAWS // (d + 1))
        end = self.n_rows if stop is None else min(stop, self.n_rows)
        for begin in range(start, end, step):
            row = self._numbers(begin, min(step, end - begin))
            draws = uniform(self._key, row[:, None] * (d + 1) + np.arange(d + 1))
            X = np.ascontiguousarray(draws[:, :d])
            y = self._label(X, row)
            y ^= draws[:, d] < self._noise
            X = X if self._kept is None else np.ascontiguousarray(X[:, self._kept])
            codes = y.astype(np.int32)
            yield Rows(np.arange(begin, begin + len(row)), X, codes, row, weight=self._weights(codes))

    @abstractmethod
    def _label(self, X: Floats, row: Ints) -> Bools:
        """Labels without noise; ``X`` comes uniform in [0, 1) and may be scaled in place."""


class SeaSource(NumericSource):
    """Features x0, x1, x2 uniform in [0, 10); class 0 where x0 + x1 <= threshold; x2 is irrelevant.

    The stream is cut into ``drift`` + 1 equal parts; the thresholds 8, 9, 7, 9.5 take turns.
    """

    purpose = "sea"

    def __init__(self, options: Sea) -> None:
        super().__init__(options, ("x0", "x1", "x2"))
        self._n, self._parts = options.n, options.drift + 1
        self._thresholds = np.array(SEA_THRESHOLDS)

    def _label(self, X: Floats, row: Ints) -> Bools:
        X *= 10.0
        threshold = self._thresholds[row * self._parts // self._n % len(SEA_THRESHOLDS)]
        return X[:, 0] + X[:, 1] > threshold


class HyperplaneSource(NumericSource):
    """Features uniform in [0, 1); class 1 on one side of a hyperplane through the centre of the cube.

    The weights start at a random point of [-1, 1)^d and move on straight lines, at even speed over the stream, through
    ``drift`` further random points.
    """

    purpose = "hyperplane"

    def __init__(self, options: Hyperplane) -> None:
        d = options.n_features
        super().__init__(options, tuple(f"x{j}" for j in range(d)))
        self._n, self._drift = options.n, options.drift
        key = stream_key(options.seed, "hyperplane weights")
        self._points = 2.0 * uniform(key, np.arange((options.drift + 2) * d)).reshape(-1, d) - 1.0

    def _label(self, X: Floats, row: Ints) -> Bools:
        part, rest = np.divmod(row * self._drift, self._n)
        share = rest / self._n
        side = np.zeros(len(row))
        for j in range(X.shape[1]):  # column by column: a matrix product may add in another order
            points = self._points[:, j]
            side += (points[part] * (1.0 - share) + points[part + 1] * share) * (X[:, j] - 0.5)
        return side > 0.0


# Generated sparse rows: sparse(n, d1, d2, q), few features that have to do with the label among many that do not.
#
# Source: N. Tatti, "Approximating splits for decision trees quickly in sparse data streams", section 6.
#
# Invariant: that of ``raydt.sources.synthetic``. The time of a row follows its ones: from one of them to the
# next is one draw and O(log d2) multiplications.

if TYPE_CHECKING:
    from raydt.sources.options import SparseSynthetic

#: Irrelevant ones of a row, on average, where no density is given.
_MEAN_ONES = 10
#: A row's draws before those of its features: its label, and whether that is flipped.
_LEAD = 2


class Law(NamedTuple):
    """The options by which rows are drawn."""

    key: Any
    width: int  #: Features of a row.
    #: Shape (parts, informative features): probability in each part of the stream that an informative feature is not
    #: the label.
    flips: Floats
    #: ``powers[p]`` is the probability that ``2**p`` irrelevant features in a row are 0.
    powers: Floats
    noise: float


@kernel
def _draw(law: Any, row: Any, part: Any, y: Any, indptr: Any, ones: Any) -> int:
    """Draw rows until one has no room in ``ones``; fills the beginnings of ``y``, ``indptr`` and ``ones``.

    ``part`` is that of each row. Returns how many rows are drawn.
    """
    key, width, flips, powers, noise = law
    informative, at = flips.shape[1], 0
    indptr[0] = 0
    for i in range(len(row)):
        first = row[i] * (_LEAD + width + 1)
        label = uniform_at(key, first) < 0.5
        y[i] = label != (uniform_at(key, first + 1) < noise)
        for j in range(informative):
            if label != (uniform_at(key, first + _LEAD + j) < flips[part[i], j]):
                if at == len(ones):
                    return i
                ones[at] = j
                at += 1
        counter, index = first + _LEAD + informative, informative
        while True:
            # How many zeros come first: the largest number whose probability is above u, by its binary digits. This
            # is the inverse of the geometric distribution without a logarithm, whose last bit depends on the library.
            u, probability = uniform_at(key, counter), 1.0
            for p in range(len(powers) - 1, -1, -1):
                if probability * powers[p] > u:
                    probability *= powers[p]
                    index += 1 << p
            if index >= width:
                break
            if at == len(ones):
                return i
            ones[at] = index
            at += 1
            index += 1
            counter += 1
        indptr[i + 1] = at
    return len(row)


class SparseSyntheticSource(SyntheticSource):
    """Labels 0 and 1 evenly; feature j < d1 is the label, flipped with probability theta_j; d2 more are 1 at random.

    theta_j is uniform in [0, 1). The stream is cut into ``drift`` + 1 equal parts, each with its own theta.
    """

    purpose = "sparse"
    _gives_ones = True  #: Not of a part without features.

    def __init__(self, options: SparseSynthetic) -> None:
        super().__init__(options, Features((), (), sparse=options.informative + options.irrelevant))
        q = min(1.0, _MEAN_ONES / options.irrelevant) if options.density is None else options.density
        self._n, self._parts = options.n, options.drift + 1
        theta = uniform(stream_key(options.seed, "sparse flips"), np.arange(self._parts * options.informative))
        self._flips = theta.reshape(self._parts, options.informative)
        powers = [1.0 - q]
        while len(powers) < options.irrelevant.bit_length():
            powers.append(powers[-1] * powers[-1])
        self._powers = np.array(powers)
        self._draws = _LEAD + options.informative + int(options.irrelevant * q) + 1

    def part(self, names: Sequence[str], *, keys: bool) -> SparseSyntheticSource:
        """Return a source of the same rows; see :meth:`SyntheticSource.part`."""
        part = copy.copy(self)
        part._gives_ones = bool(names)
        return part

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[Rows]:
        """Chunks of rows; see :meth:`SyntheticSource.rows`."""
        width, end = self.features.sparse, self.n_rows if stop is None else min(stop, self.n_rows)
        law = Law(self._key, width, self._flips, self._powers, self._noise)
        step = max(64, CHUNK_DRAWS // self._draws)
        ones = np.empty(step * self._draws, dtype=np.int32)
        begin = start
        while begin < end:
            row = self._numbers(begin, min(step, end - begin))
            y, indptr = np.empty(len(row), dtype=np.int32), np.empty(len(row) + 1, dtype=np.int64)
            part = row * self._parts // self._n
            drawn = _draw(law, row, part, y, indptr, ones)
            if not drawn:  # a row of very many ones
                ones = np.empty(2 * len(ones), dtype=np.int32)
                continue
            indptr = indptr[: drawn + 1]
            sparse = SparseRows(indptr, ones[: indptr[-1]].copy(), width) if self._gives_ones else None
            numbers = np.arange(begin, begin + drawn)
            weight = self._weights(y[:drawn])
            yield Rows(numbers, np.empty((drawn, 0)), y[:drawn], row[:drawn], sparse=sparse, weight=weight)
            begin += drawn


# Generated rows of random binary trees: RandCBT.
#
# Source: R. De Rosa, N. Cesa-Bianchi, "Splitting with confidence in decision trees with application to stream mining",
# IJCNN 2015, Algorithm 2 and section VI-A.
#
# Invariant: that of ``raydt.sources.synthetic``. What a row needs beside its own draws, the trees and which
# leaf each row falls into, is drawn once, from the options alone.

if TYPE_CHECKING:
    from raydt.sources.options import RandCbt

#: Draws of a split: the share of leaves on the left, the attribute, the threshold.
_DRAWS = 3


class Leaves(NamedTuple):
    """Leaves of a random tree, from left to right."""

    low: Floats  #: ``low``, ``high``: Shape (n, d): bounds of each one's region: low <= x < high.
    high: Floats
    left: Bools  #: Shape (n,): whether it is the left child of its parent.


def random_tree(key: np.uint64, first: int, leaves: int, d: int) -> Leaves:
    """Draw RandCBT (Algorithm 2) with ``leaves`` (at least 2) on the cube [0, 1)^d, without recursion. O(leaves * d).

    Draws 3 * (``leaves`` - 1) numbers from number ``first`` on, three for each split, parents before their children and
    left before right. A split sends x < threshold to the left. ``max(1, floor(leaves * x))`` as printed gives the left
    side a leaf; the right one has at least one since x < 1.
    """
    draws = uniform(key, first + np.arange(_DRAWS * (leaves - 1))).reshape(-1, _DRAWS)
    low, high, left = np.zeros((leaves, d)), np.ones((leaves, d)), np.zeros(leaves, dtype=bool)
    waiting, split = [(0, leaves)], 0
    while waiting:
        begin, stop = waiting.pop()
        share, attribute, place = draws[split]
        split += 1
        middle = begin + min(max(1, int((stop - begin) * share)), stop - begin - 1)
        j = int(attribute * d)
        threshold = low[begin, j] + (high[begin, j] - low[begin, j]) * place
        high[begin:middle, j] = threshold
        low[middle:stop, j] = threshold
        left[begin:middle], left[middle:stop] = True, False  # the last split on the way to a leaf has the last word
        waiting += [(a, b) for a, b in ((middle, stop), (begin, middle)) if b - a > 1]
    return Leaves(low, high, left)


class RandCbtSource(NumericSource):
    """Rows uniform in the regions of a random tree's leaves, as many in each; label 1 in left leaves, 0 in right ones.

    ``noise`` flips labels, so that P(Y = 1) is 1 - noise in a left leaf and noise in a right one. The stream is cut
    into ``drift`` + 1 equal parts, each of a tree of its own and shuffled by itself; of leaves that cannot have the
    same number of rows, the first have one more.
    """

    purpose = "randcbt"

    def __init__(self, options: RandCbt) -> None:
        d = options.n_features
        super().__init__(options, tuple(f"x{j}" for j in range(d)))
        self._leaves, self._parts = options.leaves, options.drift + 1
        self._n, self._seed = options.n, options.seed
        key, draws = stream_key(options.seed, "randcbt trees"), _DRAWS * (options.leaves - 1)
        #: Of each part.
        self.trees = tuple(random_tree(key, part * draws, options.leaves, d) for part in range(self._parts))
        low, high, left = (np.concatenate(values) for values in zip(*self.trees, strict=True))
        self._low, self._width, self._left = low, high - low, left
        # A product may round up to the bound itself.
        self._last = np.maximum(np.nextafter(high, -np.inf), low)

    @cached_property
    def _leaf(self) -> Int32s:
        """Number of each row's leaf over all trees."""
        edges = -(-np.arange(self._parts + 1) * self._n // self._parts)  # where row * parts // n goes up
        leaf = np.empty(self._n, dtype=np.int32)
        for part, (begin, stop) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
            order = permutation(stream_key(self._seed, f"randcbt rows {part}"), stop - begin)
            leaf[begin:stop] = part * self._leaves + order % self._leaves
        return leaf

    def _label(self, X: Floats, row: Ints) -> Bools:
        leaf = self._leaf[row]
        X *= self._width[leaf]
        X += self._low[leaf]
        np.minimum(X, self._last[leaf], out=X)
        return self._left[leaf]


# Synthetic examples: row r is a pure function of the options and r.
