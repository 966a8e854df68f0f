"""Digests, chains of receipts, and bins in plain loops."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

# -- digests ---------------------------------------------------------------------------------------------------------
#
# Digests of everything, in plain loops, after ``docs/reference/formats.md``: nothing is kept from one to the next.

_BITS = 2**64


def key_of(number: int) -> int:
    """Key of an id."""
    z = number % _BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % _BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % _BITS
    return z ^ (z >> 31)


def _hash(person: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32, person=person).digest()


def row_root(records: Mapping[int, bytes]) -> bytes:
    """Root of the tree over rows, given the record of each by its id."""
    keys = {key_of(number): number for number in records}

    def below(chosen: list[int], depth: int) -> bytes:
        if len(chosen) <= 32:
            return _hash(b"raydt-rows-leaf", b"".join(records[keys[key]] for key in sorted(chosen)))
        children: list[list[int]] = [[] for _ in range(16)]
        for key in chosen:
            children[key >> (60 - 4 * depth) & 15].append(key)
        return _hash(b"raydt-rows-node", b"".join(below(child, depth + 1) for child in children))

    return below(list(keys), 0)


def row_parts(ids: npt.NDArray[np.int64], **columns: npt.NDArray[Any]) -> list[tuple[str, npt.NDArray[Any]]]:
    """What rows contribute to a digest: the root over their records, by ids in any order."""
    arrays = {"id": np.asarray(ids, dtype=np.int64), **columns}
    fields = [
        array.astype(array.dtype.newbyteorder("<")).reshape(len(ids), math.prod(array.shape[1:]))
        for array in arrays.values()
    ]
    name = ",".join(
        f"{name}{field.dtype.str}({array.shape[1]})" if array.ndim > 1 else f"{name}{field.dtype.str}"
        for (name, array), field in zip(arrays.items(), fields, strict=True)
    )
    records = {int(ids[i]): b"".join(field[i].tobytes() for field in fields) for i in range(len(ids))}
    root = np.frombuffer(row_root(records), dtype=np.uint8)
    return [(f"rows {name}", root)]


def node_root(tree: Mapping[str, npt.NDArray[Any]], names: list[str]) -> npt.NDArray[np.uint8]:
    """Root of the tree of nodes in preorder: each node's hash is of its numbers, and of the hashes below it."""

    missing = tree.get("missing", np.zeros_like(tree["feature"])).astype(np.int32)
    numbers = {**tree, "feature": np.where(missing > 0, -2 * tree["feature"] - missing, tree["feature"])}

    def below(node: int) -> bytes:
        content = b"".join(
            numbers[name][node].astype(numbers[name].dtype.newbyteorder("<")).tobytes() for name in names
        )
        counts = tree["counts"][node].tolist()
        while counts and counts[-1] == 0:
            counts.pop()
        content += np.array(counts, dtype="<i8").tobytes()
        if tree["feature"][node] < 0:
            return _hash(b"raydt-tree-leaf", content)
        return _hash(b"raydt-tree-node", below(tree["left"][node]) + below(tree["right"][node]) + content)

    return np.frombuffer(below(0), dtype=np.uint8)


# -- receipts --------------------------------------------------------------------------------------------------------
#
# Receipts the slow way: one deletion at a time, each looked up in the model as it is just before.


def leaf_of(model: dict[str, Any], x: np.ndarray, categorical: tuple[bool, ...]) -> tuple[int, int]:
    """Preorder place of the leaf of one row, and the nodes on the way to it, both ends included."""
    node, passed = 0, 1
    while model["feature"][node] >= 0:
        j, threshold = model["feature"][node], model["threshold"][node]
        left = x[j] == threshold if categorical[j] else x[j] <= threshold
        node = int((model["left"] if left else model["right"])[node])
        passed += 1
    return node, passed


def receipt_rows(tree: Any, ids: list[int], X: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    """Forget ``ids`` one by one from ``tree``; example i is ``X[i]``, ``y[i]``."""
    categorical = tree._features().categorical
    before = tree.session_.model()
    rows = []
    for i in ids:
        model, then = tree.session_.model(), tree.session_.statistics()
        _, path = leaf_of(model, X[i], categorical)
        tree.forget([i], digests=False)
        now = tree.session_.statistics()
        row = {"id": i, "label": y[i], "leaf": leaf_of(before, X[i], categorical)[0], "path": path}
        row["rebuilt_rows"] = now["rebuilt_rows"] - then["rebuilt_rows"]
        row["rebuilds"] = now["rebuilds"] - then["rebuilds"]
        row["changed"] = not _same_shape(model, tree.session_.model())
        rows.append(row)
    return rows


def _same_shape(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return all(np.array_equal(before[name], after[name]) for name in ("feature", "threshold", "left", "right"))


# -- binning ---------------------------------------------------------------------------------------------------------
#
# Bins of a feature, value by value: the slow twin of ``raydt.batches.binning``.
#
# Source: Lin, Chung, Lao, Zhao, "Online Gradient Boosting Decision Tree" (ICML 2025), appendix A, Algorithm 4. Where
# this leaves it: the printed loop never counts its first bin, and so makes one more than B; its width of 1e-10 is
# halved as well as doubled, and there are values whose differences are not numbers; a value that was not seen goes to
# the nearest bin; NaN has a code of its own, right of every cut; categories have a bin each.


class NumericBins:
    """Bins of a numeric feature; ``code <= cut`` goes left."""

    def __init__(self, values: Sequence[float], max_bins: int, binning: str) -> None:
        finite = sorted(v for v in values if not math.isnan(v))
        self.has_nan = len(finite) < len(values)
        most = max_bins - 1 if self.has_nan else max_bins
        bins = doubling(finite, most) if binning == "doubling" else quantile(finite, most)
        self.boundaries = [between(low[-1], high[0]) for low, high in pairwise(bins)]
        self.cuts = list(range(max(1, len(bins)) - 1 + self.has_nan))

    def code(self, x: float) -> int:
        return len(self.boundaries) + 1 if math.isnan(x) else sum(boundary < x for boundary in self.boundaries)

    def is_left(self, code: int, cut: int) -> bool:
        return code <= cut


class CategoryBins:
    """Bins of a categorical feature: the commonest categories, and one for all others; ``code == cut`` goes left."""

    def __init__(self, values: Sequence[float], max_bins: int) -> None:
        count = Counter(int(v) for v in values if v >= 0)
        self.kept = sorted(count, key=lambda category: (-count[category], category))[: max_bins - 1]
        self.has_other = any(v not in self.kept for v in values)
        self.cuts = sorted({self.code(v) for v in values})
        self.cuts = {0: [], 1: [], 2: self.cuts[:1]}.get(len(self.cuts), self.cuts)

    def code(self, x: float) -> int:
        return self.kept.index(int(x)) if x in self.kept else len(self.kept)

    def is_left(self, code: int, cut: int) -> bool:
        return code == cut


def doubling(values: Sequence[float], most: int) -> list[list[float]]:
    """Algorithm 4: the members of each bin, for sorted ``values``; the width begins where equal values alone share."""
    gaps = [high / 2 - low / 2 for low, high in pairwise(values) if low < high]
    if len(gaps) < most:
        return [list(equal) for _, equal in groupby(values)]
    largest = max(map(abs, values))
    by = 2.0**64 if largest < 2.0**-960 else 2.0**-64 if largest >= 2.0**960 else 1.0
    k = -1060
    if by == 1.0:
        k = math.frexp(min(gaps) / 1e-10)[1] - 1
    while True:
        width = math.ldexp(1e-10, k)
        bins: list[list[float]] = []
        for v in values:
            if not bins or v * by - bins[-1][0] * by > width:
                bins.append([])
            bins[-1].append(v)
        if len(bins) <= most:
            return bins
        k += 1


def quantile(values: Sequence[float], most: int) -> list[list[float]]:
    """The members of each of at most ``most`` bins that hold about as many of the sorted ``values``."""
    ends = sorted(set(values))
    if len(ends) > most:
        n = len(values)
        ends = sorted({values[-(-i * n // most) - 1] for i in range(1, most + 1)})
    bins: list[list[float]] = [[] for _ in ends]
    for v in values:
        bins[next(b for b, end in enumerate(ends) if v <= end)].append(v)
    return bins


def between(low: float, high: float) -> float:
    """The boundary of two bins, of which ``low`` is the largest and ``high`` the smallest value."""
    middle = low / 2 + high / 2
    return middle if middle < high else low
