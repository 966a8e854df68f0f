"""A tree as a state records it, and the best dense splits of sets of examples, for audits.

Nothing of the fast path is imported. Time runs in half updates, as in the state's ``built``: what update ``seq``
inserts or deletes happens at 2 seq + 1, the deletion half of an UPDATE at 2 seq. S(v) is what is live and routes
to v; S0(v) what was live just after the BUILD that made v, and routes to v.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from raydt.arrays.types import AnyArray, Bools, Floats, Int32s, Ints
from raydt.messages import message
from raydt.parallel.threads import run

T = TypeVar("T")
#: Score and threshold of the best split on one feature at each node, and whether missing numbers go left.
OnFeature: TypeAlias = tuple[Floats, Floats, Bools]
#: Score, feature and threshold of the best split at each node, and whether missing numbers go left.
Best: TypeAlias = tuple[Floats, Ints, Floats, Bools]

FOREVER = np.iinfo(np.int64).max
#: Sides of missing numbers.
LEFT, RIGHT = 1, 2


class MalformedTreeError(Exception):
    """Node arrays that are no tree in preorder."""


@dataclass(frozen=True)
class RecordedTree:
    """The node arrays of a state, shape (n,); ``missing`` is the side of missing numbers, 0 where undecided."""

    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    s: Ints
    c: Ints
    built: Ints
    parent: Ints
    depth: Ints
    missing: Ints

    def __len__(self) -> int:
        return len(self.feature)

    @classmethod
    def read(cls, state: Mapping[str, AnyArray], d: int) -> RecordedTree:
        """Read the tree of a coordinator's state over d features; MalformedTreeError unless it lies in preorder."""
        ints = {name: np.asarray(state[name], np.int64) for name in ("feature", "left", "right", "s", "c", "built")}
        n = len(ints["feature"])
        missing = np.asarray(state.get("missing", np.zeros(n)), np.int64)
        if n == 0 or len(missing) != n or any(len(state[name]) != n for name in (*ints, "threshold", "counts")):
            raise MalformedTreeError(message("states.lengths"))
        feature, left, right = (ints[name].tolist() for name in ("feature", "left", "right"))
        end, parent, depth = [0] * n, [-1] * n, [0] * n
        for v in reversed(range(n)):
            if feature[v] < 0:
                sound, end[v] = left[v] == right[v] == -1, v + 1
            else:
                sound = feature[v] < d and left[v] == v + 1 < n and right[v] == end[v + 1] < n
                end[v] = end[right[v]] if sound else 0
            if not sound:
                shown = {"feature": feature[v], "left": left[v], "right": right[v]}
                raise MalformedTreeError(message("states.node", node=v, **shown))
        if end[0] != n:
            raise MalformedTreeError(message("states.reach", reached=end[0], nodes=n))
        for v in range(n):
            if feature[v] >= 0:
                for child in (left[v], right[v]):
                    parent[child], depth[child] = v, depth[v] + 1
        return cls(
            **ints,
            threshold=np.asarray(state["threshold"], np.float64),
            parent=np.array(parent, np.int64),
            depth=np.array(depth, np.int64),
            missing=missing,
        )


@dataclass(frozen=True)
class RankedColumn:
    """One feature: its distinct values, and the place of each row's value among them; the last one may be NaN."""

    values: Floats
    code: Int32s
    categorical: bool

    def best_splits(self, rows: Ints, y: Ints, node: Ints, counts: Ints) -> OnFeature:
        """Return the best split on this feature at each of m nodes; score -1 where none is.

        Examples have row, class, and node in 0..m-1, shape (r,); ``counts``, shape (m, K), are classes at each node.
        score = (sum over classes of float(D_k)^2) / float(n_left n_right), D_k = left_k n - n_left c_k, which is
        n^2 times the Gini gain. O(r log r + r K).
        """
        return self._with_missing_left(lambda column: column._best_of_classes(rows, y, node, counts))

    def best_splits_of_weights(self, rows: Ints, y: Ints, weight: Ints, node: Ints, counts: Ints) -> OnFeature:
        """As :meth:`best_splits`, of examples that count so many units each, up to 2**43 at a node.

        D_k = float(left_k) float(n_right) - float(n_left) float(right_k), and n_left n_right is a product of floats.
        """
        return self._with_missing_left(lambda column: column._best_of_weights(rows, y, weight, node, counts))

    def best_splits_of_numbers(
        self, rows: Ints, q: Ints, node: Ints, counts: Ints, sums: Ints, weight: Ints | None = None
    ) -> OnFeature:
        """Compare by the gain in variance of whole numbers q; ``counts``, ``sums``: theirs at each node, shape (m,).

        score = float(D)^2 / float(n_left n_right), D = left n - n_left sum. Products may wrap, D itself does not. With
        weights in units, ``sums`` of weight times q up to 2**56 and ``counts`` up to 2**40, it does, and is split.
        """
        return self._with_missing_left(lambda column: column._best_of_numbers(rows, q, node, counts, sums, weight))

    def _with_missing_left(self, search: Callable[[RankedColumn], tuple[Floats, Floats]]) -> OnFeature:
        """Search with missing numbers as the greatest ones and, if there are any, as the least, if that is better."""
        score, threshold = search(self)
        left = np.zeros(len(score), np.bool_)
        if not self.categorical and len(self.values) and np.isnan(self.values[-1]):
            turned = RankedColumn(np.roll(self.values, 1), (self.code + 1) % np.int32(len(self.values)), False)
            other, at = search(turned)
            left = other > score
            score, threshold = np.where(left, other, score), np.where(left, at, threshold)
        return score, threshold, left

    def _best_of_classes(self, rows: Ints, y: Ints, node: Ints, counts: Ints) -> tuple[Floats, Floats]:
        m, K = counts.shape
        if len(rows) == 0:
            return np.full(m, -1.0), np.zeros(m)
        width = (K - 1).bit_length()
        key = ((node << self._bits | self.code[rows]) << width) | y
        key.sort()
        pair, label = key >> width, key & ((1 << width) - 1)
        ends = _ends(pair)
        classes = range(1 if K == 2 else K)  # of two, D is the same but for its sign
        sums = [np.cumsum(label == k)[ends] for k in classes]
        return self._best(pair[ends], ends + 1, sums, counts.sum(axis=1), counts[:, : len(sums)], K == 2)

    def _best_of_numbers(
        self, rows: Ints, q: Ints, node: Ints, counts: Ints, sums: Ints, weight: Ints | None = None
    ) -> tuple[Floats, Floats]:
        if len(rows) == 0:
            return np.full(len(counts), -1.0), np.zeros(len(counts))
        key = node << self._bits | self.code[rows]
        order = np.argsort(key, kind="stable")
        pair = key[order]
        ends = _ends(pair)
        if weight is None:
            return self._best(pair[ends], ends + 1, [np.cumsum(q[order])[ends]], counts, sums[:, None])
        total, n = np.cumsum((weight * q)[order])[ends], np.cumsum(weight[order])[ends]
        return self._best(pair[ends], n, [total], counts, sums[:, None], weighted="numbers")

    def _best_of_weights(self, rows: Ints, y: Ints, weight: Ints, node: Ints, counts: Ints) -> tuple[Floats, Floats]:
        if len(rows) == 0:
            return np.full(len(counts), -1.0), np.zeros(len(counts))
        key = node << self._bits | self.code[rows]
        order = np.argsort(key, kind="stable")
        pair, label, weight = key[order], y[order], weight[order]
        ends = _ends(pair)
        sums = [np.cumsum(np.where(label == k, weight, 0))[ends] for k in range(counts.shape[1])]
        return self._best(pair[ends], np.cumsum(weight)[ends], sums, counts.sum(axis=1), counts, weighted="classes")

    @property
    def _bits(self) -> int:
        """Bits of the number of a value."""
        return len(self.values).bit_length()

    def _best(
        self,
        pair: Ints,
        rows: Ints,
        sums: Sequence[Ints],
        sizes: Ints,
        totals: Ints,
        twice: bool = False,
        weighted: Literal["", "classes", "numbers"] = "",
    ) -> tuple[Floats, Floats]:
        """Return the best splits from ``rows`` and K ``sums``, (p,) each, up to the last row of each value of a node.

        A ``pair`` is the number of a node, and that of a value in its lower bits; m nodes have ``sizes`` and
        ``totals``, (m, K). With ``twice`` each square counts twice; ``weighted`` says how differences are taken.
        """
        score_of, threshold_of = np.full(len(sizes), -1.0), np.zeros(len(sizes))
        v, code = pair >> self._bits, pair & ((1 << self._bits) - 1)
        starts = np.flatnonzero(np.insert(v[1:] != v[:-1], 0, True))  # first value of each node

        def on_the_left(running: Ints, per_node: Ints) -> Ints:
            if self.categorical:
                return np.diff(running, prepend=0)
            left: Ints = running - (np.cumsum(per_node) - per_node)[v]
            return left

        n, n_left = sizes[v], on_the_left(rows, sizes)
        parts = n_left < n
        total = np.zeros(len(v))
        for of_label, whole in zip(sums, totals.T, strict=True):
            of_left = on_the_left(of_label, whole)
            if weighted == "numbers":
                D = _rounded_difference(of_left, n, n_left, whole[v])
            elif weighted:
                D = of_left.astype(np.float64) * (n - n_left) - n_left.astype(np.float64) * (whole[v] - of_left)
            else:
                D = (of_left * n - n_left * whole[v]).astype(np.float64)
            total += D * D
        if twice:
            total += total
        sides = n_left.astype(np.float64) * (n - n_left) if weighted else n_left * (n - n_left)
        score = np.where(parts, total / np.where(parts, sides, 1), -1.0)
        score_of[v[starts]] = np.maximum.reduceat(score, starts)
        best = np.flatnonzero(parts & (score == score_of[v]))
        best = best[np.unique(v[best], return_index=True)[1]]  # of several, the one of the smallest threshold
        a = self.values[code[best]]
        if not self.categorical and len(best):
            b = self.values[code[best + 1]]
            t = 0.5 * a + 0.5 * b
            a = np.where(np.isnan(b), np.inf, np.where((a <= t) & (t < b), t, a))
        threshold_of[v[best]] = a
        return score_of, threshold_of


def _rounded_difference(a: Ints, b: Ints, c: Ints, d: Ints) -> Floats:
    """a b - c d, rounded once, of a and d up to 2**56, b and c up to 2**40: by their digits to the base 2**22."""
    digits = np.zeros((5, len(a)), np.int64)
    for x, y, sign in ((a, b, 1), (c, d, -1)):
        for i in range(3):
            for j in range(3):
                digits[i + j] += sign * (x >> 22 * i & 0x3FFFFF) * (y >> 22 * j & 0x3FFFFF)
    for k in range(4):  # all but the last are from 0 to below the base
        digits[k + 1] += digits[k] >> 22
        digits[k] &= 0x3FFFFF
    low, high = digits[1] << 22 | digits[0], (digits[4] << 44) + (digits[3] << 22) + digits[2]
    rounded: Floats = np.ldexp(high.astype(np.float64), 44) + low  # both are exact: up to 2**52, and below 2**44
    return rounded


def _ends(pair: Ints) -> Ints:
    """Last row of each value at each node."""
    return np.flatnonzero(np.append(pair[1:] != pair[:-1], True))


def best_splits(columns: list[RankedColumn], rows: Ints, y: Ints, node: Ints, counts: Ints) -> Best:
    """Each node's best split; ties go to the smaller feature, missing numbers on the right, the smaller threshold."""
    tasks = [partial(column.best_splits, rows, y, node, counts) for column in columns]
    return best_of(len(counts), each(tasks, len(rows)))


#: Rows of a column that are worth the start of other threads.
FEW_ROWS = 1 << 12


def each(tasks: Sequence[Callable[[], T]], rows: int) -> list[T]:
    """Do a task for each column of some rows: in the calling thread if they are few."""
    return run(tasks) if rows >= FEW_ROWS else [task() for task in tasks]


def best_of(nodes: int, splits: Iterable[OnFeature]) -> Best:
    """Return the best split at each of some nodes, from those on each feature."""
    score, feature, threshold = np.full(nodes, -1.0), np.full(nodes, -1), np.zeros(nodes)
    missing_left = np.zeros(nodes, np.bool_)
    for j, (s, t, left) in enumerate(splits):
        better = s > score
        score[better], feature[better], threshold[better] = s[better], j, t[better]
        missing_left[better] = left[better]
    return score, feature, threshold, missing_left
