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
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from raydt.arrays.rng import permutation, stream_key, uniform
from raydt.arrays.types import AnyArray, Bools, Floats, Ints
from raydt.encoding.times import TimeColumn
from raydt.errors import ConfigError
from raydt.examples.features import Features
from raydt.examples.reading import NEWEST_RULES
from raydt.examples.targets import CODES
from raydt.examples.weights import Weights
from raydt.messages import message
from raydt.sources.base import Rows
from raydt.sources.identity import Identity, hashed

if TYPE_CHECKING:
    from raydt.sources.options import Hyperplane, Sea, SyntheticOptions

#: Random numbers drawn at once; they should stay in the processor's cache.
CHUNK_DRAWS = 1 << 16

#: Concepts of SEA: the threshold of x0 + x1.
SEA_THRESHOLDS = (8.0, 9.0, 7.0, 9.5)


class SyntheticSource(ABC):
    """Base of the generators; satisfies :class:`raydt.sources.base.Source`."""

    rules = NEWEST_RULES
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

    def identity(self) -> Identity:
        """The generator's settings."""
        options = self._options.model_dump()
        return Identity(hashed(json.dumps(options, sort_keys=True)), options)

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
