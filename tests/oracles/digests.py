"""Digests, chains of receipts, bins, feasibility, Shapley values and sums of trees, in plain loops."""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, groupby, pairwise
from math import factorial
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.examples.digest import begin_digest, digest
from tests.oracles.fudyadt import Example, FudyadtTwin, Node, Split

# -- digests ---------------------------------------------------------------------------------------------------------
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


def forest_root(tree: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Root of a tree of a forest in preorder, whose left children follow their parents."""

    def below(node: int) -> bytes:
        numbers = (("<i8", tree["feature"][node]), ("<f8", tree["threshold"][node]), ("<i8", tree["totals"][node]))
        content = b"".join(np.asarray(value, dtype=kind).tobytes() for kind, value in numbers)
        if tree["feature"][node] < 0:
            return _hash(b"raydt-tree-leaf", content)
        return _hash(b"raydt-tree-node", below(node + 1) + below(int(tree["right"][node])) + content)

    return below(0)


def ledger_hash(entries: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Hash of the ledger entries of a row, by tree."""
    parts = [entries[begin : begin + 64] for begin in range(0, len(entries), 64)]
    hashes = [_hash(b"raydt-gbdt-part", part.astype(part.dtype.newbyteorder("<")).tobytes()) for part in parts]
    return np.frombuffer(_hash(b"raydt-gbdt-row", b"".join(hashes)), dtype=np.uint8)


def boosted_tree(state: Mapping[str, npt.NDArray[Any]], begin: int, nodes: int) -> npt.NDArray[np.uint8]:
    """Hash of one tree of a GBDT, whose nodes follow each other in preorder from ``begin`` on."""
    content = b""
    for node in range(begin, begin + nodes):
        H = int(state["node_H"][node])
        if state["classes"][0] == 0:  # whole weights, and the rest in units
            H = (H << 16) + (int(state["node_H_rest"][node]) if "node_H_rest" in state else 0)
        numbers = state["node_feature"][node], state["node_cut"][node], state["node_G"][node], H
        content += struct.pack("<iiqq", *map(int, numbers))
        if state["node_feature"][node] < 0:
            content += struct.pack("<d", state["node_value"][node])
    return np.frombuffer(_hash(b"raydt-gbdt-tree", content), dtype=np.uint8)


def gbdt_digest(state: Mapping[str, npt.NDArray[Any]], former: bool = False) -> str:
    """Digest of a GBDT without sparse features, from its state, in the present format or in the ``former`` one."""
    columns = {"y": state["y"], "pending": state["pending"].astype(np.int8)}
    none = {"classes": np.array([-1]), "exponent": np.array([0])}  # without trees
    parts: dict[str, Any] = {name: state.get(name, default) for name, default in none.items()}
    if "class_weight" in state:
        parts["class_weight"] = state["class_weight"]
    if "tree_nodes" in state:
        columns["ledger"] = state["ledger"]
        parts["origin"] = state["origin"]
        if former:
            hidden = ("tried_g", "tried_h", "tried_h_rest", "above", "below")
            names = {name for name in state if name.startswith("node_")} - {f"node_{name}" for name in hidden}
            parts |= {name: state[name] for name in ("tree_nodes", *names)}
        else:
            hashes = np.zeros((len(state["id"]), 32), dtype=np.uint8)
            for row in np.flatnonzero(state["pending"] != 1).tolist():
                hashes[row] = ledger_hash(state["ledger"][row])
            columns["ledger"], begin, trees = hashes, 0, []
            for nodes in state["tree_nodes"].tolist():
                trees.append(boosted_tree(state, begin, nodes))
                begin += nodes
            parts["trees"] = np.array(trees)
    if "weight" in state:
        columns["weight"] = state["weight"]
    gone, order = state["pending"] == 2, np.argsort(state["id"], kind="stable")
    leaving = order[gone[order]]
    parts |= {f"leaving_{name}": column[leaving] for name, column in ({"id": state["id"]} | columns).items()}
    bins = [(name, state[name]) for name in sorted(state) if name.startswith("bins_") and "tree_nodes" in state]
    rows = row_parts(state["id"][~gone], **{name: column[~gone] for name, column in columns.items()})
    begun = begin_digest(bins, f"raydt-digest-{2 if former else 3}")
    return digest([*((name, parts[name]) for name in sorted(parts)), *rows], begun)


# -- receipts --------------------------------------------------------------------------------------------------------
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


# -- feasibility -----------------------------------------------------------------------------------------------------
# Definition 3.1 of the FuDyADT paper, as ``docs/explanation/guarantees.md`` amends it.
#
# By brute force, in exact fractions.


@dataclass
class Place:
    """One node on the live examples: S_v, and the gains of its own and of the best split there."""

    node: Node
    depth: int
    examples: list[Example]
    impurity: Fraction
    best: Fraction
    own: Fraction


def gain(twin: FudyadtTwin, examples: Sequence[Example], split: Split) -> Fraction:
    """Gini gain of a split, equation (1)."""
    left = [e for e in examples if twin.is_left(split, e.x)]
    right = [e for e in examples if not twin.is_left(split, e.x)]
    n = twin.size(examples)
    if n == 0:
        return Fraction(0)
    g, g_left, g_right = (twin.impurity(twin.counts(list(side))) for side in (examples, left, right))
    return g - (Fraction(twin.size(left)) / n * g_left + Fraction(twin.size(right)) / n * g_right)


def places(twin: FudyadtTwin) -> Iterator[Place]:
    """Every node, from the root in preorder."""

    def visit(node: Node, depth: int) -> Iterator[Place]:
        examples = list(twin.below(node))
        gains = (gain(twin, examples, split) for split in twin.candidates(examples))
        own = Fraction(0)
        if not node.is_leaf:
            own = gain(twin, examples, (node.feature, node.threshold, node.missing))
        yield Place(node, depth, examples, twin.impurity(twin.counts(examples)), max(gains, default=Fraction(0)), own)
        for child in (node.left, node.right):
            if child is not None:
                yield from visit(child, depth + 1)

    yield from visit(twin.root, 0)


def violations(twin: FudyadtTwin, alpha: float, beta: float) -> list[str]:
    """Where the definition does not hold; condition 3 (labels) holds by how the twin predicts."""
    found = []
    for place in places(twin):
        too_small = twin.size(place.examples) < twin.min_samples_split
        must_be_leaf = too_small or place.impurity == 0 or place.depth == twin.max_depth
        if place.node.is_leaf:
            if not must_be_leaf and place.impurity >= Fraction(alpha) and place.best > Fraction(beta):
                found.append(f"leaf at depth {place.depth} with g = {place.impurity}, best gain {place.best}")
        elif must_be_leaf:
            found.append(f"split at depth {place.depth} of {len(place.examples)} examples with g = {place.impurity}")
        elif place.best - place.own > Fraction(beta):
            found.append(f"split at depth {place.depth} lacks {place.best - place.own}")
    return found


# -- shapley ---------------------------------------------------------------------------------------------------------
# Shapley values of a tree by their definition: a sum over all sets of features, in plain recursion.


def value(tree: Any, outputs: Any, left: Callable[[int], bool], known: set[int], node: int = 0) -> Any:
    """The output if only the features in ``known`` are; ``left`` says where the row goes at a node."""
    feature = int(tree["feature"][node])
    if feature < 0:
        return outputs[node]
    sides = int(tree["left"][node]), int(tree["right"][node])
    if feature in known:
        return value(tree, outputs, left, known, sides[0] if left(node) else sides[1])
    sizes = [float(tree["counts"][side].sum()) for side in sides]
    shares = [size / sum(sizes) for size in sizes] if sum(sizes) else [0.5, 0.5]
    parts = [value(tree, outputs, left, known, side) for side in sides]
    return shares[0] * parts[0] + shares[1] * parts[1]


def shapley(tree: Any, outputs: Any, left: Callable[[int], bool], d: int) -> Any:
    """Values by feature, shape (d, outputs), and the output if nothing is known."""
    values = np.zeros((d, outputs.shape[1]))
    for j in range(d):
        others = [k for k in range(d) if k != j]
        for size in range(d):
            weight = factorial(size) * factorial(d - 1 - size) / factorial(d)
            for known in combinations(others, size):
                added = value(tree, outputs, left, {*known, j}) - value(tree, outputs, left, {*known})
                values[j] += weight * added
    return values, value(tree, outputs, left, set())


# -- tree sum --------------------------------------------------------------------------------------------------------
# Outputs of a sum of trees, in plain loops: what an exported model has to say.


def leaf_of_feasibility(trees: Any, tree: int, row: Any) -> int:
    """The leaf of a row of plain numbers: the dense features, then 0 or 1 for each sparse one."""
    node = int(trees.starts[tree])
    while trees.feature[node] >= 0:
        x = float(row[int(trees.feature[node])])
        members = trees.members[trees.first_member[node] : trees.first_member[node + 1]].tolist()
        left = x in members if members else x <= float(trees.threshold[node])
        left |= math.isnan(x) and bool(trees.missing_left[node])
        node = int(trees.left[node] if left else trees.right[node])
    return node


def scores(trees: Any, row: Any) -> list[float]:
    """Origin and leaves added up in order, divided once if they are a mean."""
    count = len(trees.starts) - 1
    out = [float(number) for number in trees.origin]
    for tree in range(count):
        leaf = leaf_of_feasibility(trees, tree, row)
        out = [total + float(number) for total, number in zip(out, trees.value[leaf], strict=True)]
    return [total / count for total in out] if trees.mean else out
