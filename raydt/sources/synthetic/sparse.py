"""Generated sparse rows: sparse(n, d1, d2, q), few features that have to do with the label among many that do not.

Source: N. Tatti, "Approximating splits for decision trees quickly in sparse data streams", section 6.

Invariant: that of ``raydt.sources.synthetic.numeric``. The time of a row follows its ones: from one of them to the
next is one draw and O(log d2) multiplications.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import kernel
from raydt.arrays.rng import stream_key, uniform, uniform_at
from raydt.arrays.sparse import SparseRows
from raydt.arrays.types import Floats
from raydt.examples.features import Features
from raydt.sources.base import Rows
from raydt.sources.synthetic.numeric import CHUNK_DRAWS, SyntheticSource

if TYPE_CHECKING:
    from raydt.sources.options import SparseSynthetic

#: Irrelevant ones of a row, on average, where no density is given.
_MEAN_ONES = 10
#: A row's draws before those of its features: its label, and whether that is flipped.
_LEAD = 2


class Law(NamedTuple):
    """How rows are drawn."""

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
