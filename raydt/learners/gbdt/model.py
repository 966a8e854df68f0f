"""The model without its training rows: saved, checked and used to predict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.blocks import SparseRows, grown
from raydt.arrays.elementary import AnyArray, Arrays, Floats, Int32s, Ints, Slots, softmax
from raydt.arrays.kernel import kernel
from raydt.batches.binning import SPARSE, Bins
from raydt.batches.rows_on_shards import RowBlock
from raydt.evaluation.scoring import LEVELS, Levels
from raydt.examples.digest import (
    DIGEST_2,
    DIGEST_3,
    SIZE,
    Digest,
    Padded,
    Part,
    Words,
    begin_digest,
    digest,
    hash_all,
    room_for,
    start,
)
from raydt.examples.updates import Features
from raydt.learners.gbdt.candidates import constant_of, summary_of
from raydt.learners.gbdt.ensemble import (
    LEAF,
    LEDGER_PART_BITS,
    Ensemble,
    Trees,
    gains,
    next_in_preorder,
    numbered,
    score_rows,
    start_of,
    trees_each,
    trees_of,
)
from raydt.learners.gbdt.options import GBDTOptions
from raydt.trees.packed_trees import PackedTrees, add_values, packed
from raydt.trees.shapley import StoredTrees, TreeSum, binned, constant

#: Rows for which the trees are not packed.
_FEW = 1000
#: The array of the sums of :class:`CalibrationSlope`, once a stream has predicted a row; rows that count as a slope of
#: 1 besides, and the share of the sums that fades with a row.
SLOPE, _TRUSTED, _FADING = "slope", 30.0, 1024.0


@kernel
def count_rows(trees: Any, leaf: Any, out: Any) -> None:
    """Add the rows of each node to ``out``, shape (trees, nodes + 1), whose last column is for rows without a leaf.

    O(rows x trees).
    """
    nodes = trees.feature.shape[1]
    for t in range(len(leaf)):
        for slot in range(leaf.shape[1]):
            out[t, min(np.int64(leaf[t, slot]), nodes)] += 1
        for node in range(nodes):
            if trees.feature[t, node] == LEAF:
                up = np.int64(trees.parent[t, node])
                while up >= 0:
                    out[t, up] += out[t, node]
                    up = np.int64(trees.parent[t, up])


def model_arrays(ensemble: Ensemble | None, constant: float) -> Arrays:
    """Return the arrays of the predict-only model.

    ``constant`` is the prediction of a model without trees; ``node_gain`` the gain of each split on the rows in it, and
    ``node_count`` how many rows each node has.
    """
    if ensemble is None:
        return {"only": np.array([constant], dtype=np.float64)}
    e = ensemble
    nodes = e.nodes()
    kept = {name: nodes[name] for name in ("tree_nodes", *(f"node_{n}" for n in ("feature", "cut", "left", "right")))}
    order, _ = e.preorder()
    tree, i = np.nonzero(order >= 0)
    cover = np.zeros((order.shape[0], order.shape[1] + 1), dtype=np.int64)
    count_rows(e.trees, e.leaf, cover)
    gain = np.zeros(e.trees.feature.shape)
    gains(e.trees, e.units, gain)
    return {
        **e.bins.arrays(),
        **kept,
        "node_value": nodes["node_value"],
        "node_gain": gain[tree, order[tree, i]],
        "node_count": cover[tree, order[tree, i]],
        "classes": np.array([e.classes], dtype=np.int64),
        "per": np.array([e.per], dtype=np.int64),
        "origin": np.array([e.start]),
    }


class CalibrationSlope:
    """Share, 0 to 1, of what the trees add to the mean that a prediction of a number takes, as a stream has found it.

    A model whose trees follow few far labels adds too much. The least squares of labels on predictions, both as
    distances from the mean, tell how much of them to take: the slope sum(d_y d_F) / sum(d_F^2), kept within 0 and 1.
    Each row counts with its weight, once it was predicted; sums lose their 1024th part with each row. 30 rows more
    count as a slope of 1, so that the slope of a new model is near 1.

    Source: D. R. Cox, Two further applications of a model for binary regression, Biometrika 1958 (the slope);
    J. C. van Houwelingen and S. Le Cessie, Predictive value of statistical models, Statistics in Medicine 1990 (to
    shrink by it).
    """

    def __init__(self, sums: Iterable[float] = (0.0, 0.0, 0.0)) -> None:
        self.sums = [float(number) for number in sums]  #: Faded sums of weights, of d_y d_F and of d_F^2, in units.

    @property
    def value(self) -> float:
        """The slope."""
        rows, products, squares = self.sums
        if squares <= 0.0:
            return 1.0
        return (rows * min(1.0, max(0.0, products / squares)) + _TRUSTED) / (rows + _TRUSTED)

    def predict(self, F: Floats, start: float, unit: float, y: Floats, weight: Floats) -> Floats:
        """Predict rows one after the other, shape (n,); each is learned before the next, but for those of weight 0.

        ``F`` are the scores, ``start`` is that without trees, and ``unit`` a power of two. O(n).
        """
        numbers = np.empty(len(F))
        for row, (score, label, w) in enumerate(zip(F.tolist(), y.tolist(), weight.tolist(), strict=True)):
            numbers[row] = calibrated(score, start, self.value)
            if w > 0.0:
                moved = (score - start) / unit
                for i, number in enumerate((1.0, (label - start) / unit * moved, moved * moved)):
                    self.sums[i] += w * number - self.sums[i] / _FADING
        return numbers

    def rescale(self, exponents: int) -> None:
        """Have the unit be 2^exponents times what it was; where the squares have no number then, begin anew."""
        with np.errstate(all="ignore"):
            scaled = np.ldexp(self.sums, [0, -2 * exponents, -2 * exponents])
        self.sums = scaled.tolist() if np.isfinite(scaled).all() else [0.0] * 3


def calibrated(F: Any, start: float, slope: float) -> Any:
    """Take so much of what the trees have added; with a slope of 1 all of it, bit for bit."""
    return F if slope == 1.0 else start + slope * (F - start)


class GBDTPredictor:
    """Predictions of the trees of all iterations, of which each has ``per``; ``origin`` is F of no trees.

    There may be ``width`` sparse features; ``classes`` is K, 0 of a regression, whose ``slope`` is that of
    :class:`CalibrationSlope`. A saved model has ``counted``: gain of every split and examples at every node, both shape
    (trees, nodes).
    """

    def __init__(
        self,
        trees: Trees,
        bins: Bins,
        width: int,
        classes: int,
        per: int,
        origin: float,
        slope: float = 1.0,
        counted: Any = (None, None),
    ) -> None:
        self._trees, self._bins, self._classes, self._per, self._origin = trees, bins, classes, per, origin
        self._slope, self._width, (self._gain, self._cover) = slope, width, counted
        self._packed: tuple[PackedTrees, Floats] | None = None  # and values, once they are needed

    @property
    def iterations(self) -> int:
        """Boosting iterations."""
        return len(self._trees.feature) // self._per

    def staged(self, X: Floats, sparse: SparseRows | None = None) -> Iterator[Floats]:
        """F after each iteration, shape (n, trees of an iteration); one array that changes."""
        rows, F = RowBlock.of(X, sparse), np.full((len(X), self._per), self._origin)
        for m in range(self.iterations):
            self._add(m, m + 1, rows, F)
            yield F

    def scores(self, X: Floats, sparse: SparseRows | None = None) -> Floats:
        """F, shape (n, trees of an iteration). O(depth) a row and tree."""
        F = np.full((len(X), self._per), self._origin)
        if len(X) < _FEW:
            self._add(0, self.iterations, RowBlock.of(X, sparse), F)
            return F
        if self._packed is None:
            trees = self._sum()
            tree = np.repeat(np.arange(trees.trees), np.diff(trees.starts))
            self._packed = packed(trees), trees.value[np.arange(len(tree)), tree % self._per]
        add_values(*self._packed, X, sparse, F)
        return F

    def _add(self, first: int, stop: int, rows: RowBlock, F: Floats) -> None:
        score_rows(self._trees, first, stop, rows, self._bins, F)

    def classes_of(self, F: Floats) -> AnyArray:
        """Class codes (of equal scores the smaller), or numbers, shape (n,)."""
        if self._classes == 0:
            numbers: Floats = calibrated(F[:, 0].copy(), self._origin, self._slope)
            return numbers
        codes: Int32s = (F[:, 0] > 0 if self._per == 1 else F.argmax(axis=1)).astype(np.int32)
        return codes

    def levels_of(self, F: Floats) -> Levels:
        """Return the share of class 1 of each row as a level (:mod:`raydt.evaluation.scoring`), shape (n,)."""
        levels: Levels = np.floor(softmax(F)[:, 1] * LEVELS + 0.5).astype(np.uint16)
        return levels

    def shares_of(self, F: Floats, n_classes: int) -> Floats:
        """Probabilities of the classes, shape (n, n_classes); 0 of classes not seen, 1 of an only class."""
        if n_classes == 1:
            return np.ones((len(F), 1))
        shares = np.zeros((len(F), n_classes))
        p = softmax(F)
        known = min(n_classes, p.shape[1])
        shares[:, :known] = p[:, :known]
        return shares

    def predict(self, X: Floats, sparse: SparseRows | None = None) -> AnyArray:
        """Class codes or numbers, shape (n,)."""
        return self.classes_of(self.scores(X, sparse))

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Probabilities of the classes, shape (n, n_classes)."""
        return self.shares_of(self.scores(X, sparse), n_classes)

    def tree_sum(self, n_classes: int) -> TreeSum:
        """Return the trees of all iterations; one output for two classes or a number, else one for each class seen."""
        trees = self._sum()
        return trees if self._slope == 1.0 else replace(trees, value=self._slope * trees.value)

    def _sum(self) -> TreeSum:
        trees, per = self._trees, self._per
        used = trees.feature >= LEAF
        place = np.cumsum(used.ravel()).reshape(used.shape) - 1  # among the nodes in use
        starts = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        within = np.where(used, place - starts[:-1, None], 0)
        t = np.nonzero(used)[0]
        feature, cut = trees.feature[used], trees.cut[used]
        left, right = within[t, trees.left[used]], within[t, trees.right[used]]
        value = np.zeros((len(t), per))
        value[np.arange(len(t)), t % per] = trees.value[used]
        stored = StoredTrees(starts, feature, np.zeros(len(t)), left, right)
        trees_of_places = binned(stored, cut, self._bins, self._bins.dense, value)
        return replace(
            trees_of_places,
            sparse=self._width,
            feature=self._bins.numbers(trees_of_places.feature),
            cover=None if self._cover is None else self._cover[used],
            origin=np.full(per, self._origin),
            link="identity" if self._classes == 0 else "logistic" if per == 1 else "softmax",
            codes=np.arange(0 if self._classes == 0 else 2)[1:] if per == 1 else np.arange(per),
        )

    def importances(self) -> Floats:
        """Share of each feature in the gain of all splits, shape (d,); all 0 without splits."""
        inner = self._trees.feature >= 0
        numbers, d = self._bins.numbers(self._trees.feature[inner]), self._bins.dense + self._width
        total = np.bincount(numbers, self._gain[inner], minlength=d)
        shares: Floats = total / max(total.sum(), np.finfo(np.float64).tiny)
        return shares


class ConstantPredictor:
    """Predictions before there is a model: one class, or one number; ``features`` are d and s."""

    iterations = 0

    def __init__(self, constant: float, regression: bool, features: tuple[int, int] = (0, 0)) -> None:
        self._constant, self._regression, self._features = constant, regression, features

    def tree_sum(self, n_classes: int) -> TreeSum:
        """One leaf."""
        codes = np.arange(n_classes)
        value = np.array([self._constant]) if self._regression else (codes == int(self._constant)).astype(np.float64)
        return constant(*self._features, value, 0, codes)

    def predict(self, X: Floats, sparse: SparseRows | None = None) -> AnyArray:
        """Return the class code or number, shape (n,)."""
        return np.full(len(X), self._constant, dtype=np.float64 if self._regression else np.int32)

    def predict_proba(self, X: Floats, n_classes: int, sparse: SparseRows | None = None) -> Floats:
        """Return 1 for the one class, 0 for others, shape (n, n_classes)."""
        shares = np.zeros((len(X), n_classes))
        shares[:, int(self._constant)] = 1.0
        return shares


def predictor_of(ensemble: Ensemble, width: int, slope: CalibrationSlope) -> GBDTPredictor:
    """Predictions of trees in memory; ``width`` is how many sparse features there may be."""
    e = ensemble
    return GBDTPredictor(e.trees, e.bins, width, e.classes, e.per, e.start, slope.value)


def saved_predictor(model: Mapping[str, AnyArray], options: GBDTOptions, features: Features) -> Any:
    """Predictions of :func:`model_arrays`, or of a state, which has no gains."""
    if "tree_nodes" not in model:
        only = float(model["only"][0]) if "only" in model else constant_of(summary_of(model["y"]))
        return ConstantPredictor(only, options.regression, (len(features.names), features.sparse))
    arrays = dict(model)
    bins, classes = Bins.from_arrays(arrays), int(model["classes"][0])
    trees = trees_of(arrays, bins, options.max_leaf_nodes)
    per, origin = trees_each(options, classes), float(model["origin"][0])
    slope = CalibrationSlope(model[SLOPE]).value if SLOPE in model else 1.0
    if "node_gain" not in arrays:
        start = start_of(trees, origin, classes == 0)
        return GBDTPredictor(trees, bins, features.sparse, classes, per, start, slope)
    tree, node = numbered(arrays["tree_nodes"])
    gain, cover = np.zeros(trees.feature.shape), np.zeros(trees.feature.shape, dtype=np.int64)
    gain[tree, node] = arrays["node_gain"]
    cover[tree, node] = arrays.get("node_count", 0)  # an earlier version did not save it
    known = cover if "node_count" in arrays else None
    return GBDTPredictor(trees, bins, features.sparse, classes, per, origin, slope, (gain, known))


# The digest of a model: trees with their sums, bins, and of its rows label and ledger by id; free of slots and nodes.
#
# A deleted row changes each tree, and of a tree a sixth of its nodes: the trees are hashed whole. Few entries of the
# ledger change, however many rows have their scores compared: of a row all entries of some trees are hashed together,
# and what has changed says the pass that has changed it (``ModelArrays.changed``).
#
# Invariant: the digest is a function of the model, whatever was hashed before. Format: ``docs/reference/formats.md``.

#: What tells hashes of trees, of a part of a row's ledger entries, and of all of them.
_TREE, _PART, _ROW = start(b"raydt-gbdt-tree"), start(b"raydt-gbdt-part"), start(b"raydt-gbdt-row")
#: Hashes that are made together: their bytes stay in the cache.
_HASHED = 256


@kernel
def _hash_trees(trees: Any, value: Any, numbers: Any, contents: Any, data: Any, jobs: Any, room: Any, out: Any) -> None:
    """Hash all trees. O(nodes); ``value`` has the bits of the values, ``numbers`` the number of each feature."""
    width = 8 * np.int64(contents.shape[1])
    count, n = len(trees.feature), np.int64(0)
    for t in range(count):
        at, node, content = 0, np.int64(0), contents[n]
        while node >= 0:
            feature = np.int64(trees.feature[t, node])
            number, cut = np.int64(-1), np.int64(0)
            if feature >= 0:
                number, cut = np.int64(numbers[feature]), np.int64(trees.cut[t, node])
            content[at] = np.uint64(np.uint32(number)) | np.uint64(np.uint32(cut)) << np.uint64(32)
            content[at + 1], content[at + 2] = np.uint64(trees.G[t, node]), np.uint64(trees.H[t, node])
            at += 3
            if feature < 0:
                content[at] = np.uint64(value[t, node])
                at += 1
            node = np.int64(next_in_preorder(trees, t, node))
        jobs.to[n], jobs.begin[n], jobs.end[n] = t, n * width, n * width + 8 * at
        n += 1
        if n == len(contents) or t == count - 1:
            hash_all(_TREE, data, jobs, n, room, out)
            n = np.int64(0)


def tree_hashes(trees: Trees, numbers: Ints) -> npt.NDArray[np.uint8]:
    """Return the hash of each tree, shape (trees, 32). O(nodes); ``numbers`` has the number of each feature."""
    out: Words = np.empty((len(trees.feature), SIZE // 8), dtype="<u8")
    contents = np.empty((min(_HASHED, len(out)), 4 * trees.feature.shape[1]), dtype="<u8")
    data = contents.view(np.uint8).reshape(-1)
    _hash_trees(trees, trees.value.view(np.int64), numbers, contents, data, *room_for(len(contents)), out)
    hashes: npt.NDArray[np.uint8] = out.view(np.uint8)
    return hashes


@kernel
def _hash_ledger(ledger: Any, changed: Any, slots: Any, entries: Any, work: Any, parts: Any, rows: Any) -> None:
    """Hash what has changed of the ledger entries of some rows."""
    data, hashed, jobs, room, at, stale = work
    n_parts, size, n = changed.shape[1], np.int64(data.size // entries.size), np.int64(0)
    for slot in slots:
        for part in range(n_parts):
            if changed[slot, part]:
                stale[n] = slot
                n += 1
                break
    for part in range(n_parts):
        first = part << LEDGER_PART_BITS
        trees, m = min(len(ledger) - first, entries.shape[1]), np.int64(0)
        for i in range(n):
            slot = np.int64(stale[i])
            if changed[slot, part]:
                begin = m * entries.shape[1] * size
                at[m], jobs.to[m] = slot, slot * n_parts + part
                jobs.begin[m], jobs.end[m] = begin, begin + trees * size
                m += 1
            if m and (m == len(at) or i == n - 1):
                for j in range(trees):
                    of_tree = ledger[first + j]
                    for k in range(m):
                        entries[k, j] = of_tree[at[k]]
                hash_all(_PART, data, jobs, m, room, parts)
                m = np.int64(0)
    m = np.int64(0)
    for i in range(n):
        begin = SIZE * n_parts * np.int64(stale[i])
        jobs.to[m], jobs.begin[m], jobs.end[m] = stale[i], begin, begin + SIZE * n_parts
        m += 1
        if m == len(at) or i == n - 1:
            hash_all(_ROW, hashed, jobs, m, room, rows)
            m = np.int64(0)
    for i in range(n):
        changed[stale[i]] = False


class LedgerHashes:
    """The hash of the ledger entries of each row of an ensemble, by slot, kept up with what changes."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        ensemble.changed[:] = True
        self._parts: Words = np.empty((0, SIZE // 8), dtype="<u8")
        self._rows: Words = np.empty((0, SIZE // 8), dtype="<u8")

    def reserve(self) -> None:
        """Make room for the slots that there are."""
        capacity, parts = self.ensemble.changed.shape
        if capacity > len(self._rows):
            self._parts, self._rows = grown(self._parts, capacity * parts), grown(self._rows, capacity)

    def changed(self, slots: Slots) -> Slots:
        """Return those of some rows that are to be hashed."""
        changed: Slots = slots[self.ensemble.changed[slots].any(axis=1)]
        return changed

    def of(self, slots: Slots) -> npt.NDArray[np.uint8]:
        """Return the hashes of some rows, shape (rows, 32). O(entries that have changed, and rows)."""
        e = self.ensemble
        entries = np.empty((min(_HASHED, max(1, len(slots))), 1 << LEDGER_PART_BITS), dtype=e.ledger.dtype)
        jobs, room = room_for(len(entries))
        at, stale = np.empty(len(entries), dtype=np.int64), np.empty(len(slots), dtype=np.int32)
        work = entries.view(np.uint8).reshape(-1), self._parts.view(np.uint8).reshape(-1), jobs, room, at, stale
        _hash_ledger(e.ledger, e.changed, slots, entries, work, self._parts, self._rows)
        hashes: npt.NDArray[np.uint8] = self._rows[slots].view(np.uint8)
        return hashes


#: Records of what could not grow, and of how far scores have moved, decide what is done later; the model is the same
#: without them.
_SKIPPED = ("node_tried_g", "node_tried_h", "node_tried_h_rest", "node_above", "node_below")


class ModelDigest:
    """Digests of a model as it changes, with up to ``width`` sparse features."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._begun: tuple[Bins, Digest, Ints] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied: all but a digest that is not complete, which cannot be."""
        return {**self.__dict__, "_begun": None}

    def of(self, ensemble: Ensemble | None, factors: Ints | None, leaving: Arrays, rows: Part, former: bool) -> str:
        """Return the digest, given resolved weights of classes, the columns of rows that wait to be deleted, by id, and
        the part of all rows.

        O(nodes), and of a new training O(possible sparse features). ``former``: in the format ``raydt-digest-2``.
        """
        e, format = ensemble, DIGEST_2 if former else DIGEST_3
        parts: Arrays = {"classes": np.array([e.classes if e else -1]), "exponent": np.array([e.exponent if e else 0])}
        if factors is not None:
            parts["class_weight"] = factors
        parts |= {f"leaving_{name}": column for name, column in leaving.items()}
        begun = begin_digest((), format)
        if e is not None:
            parts["origin"] = np.array([e.loss.origin])
            if former:
                parts |= {name: array for name, array in e.nodes().items() if name not in _SKIPPED}
                begun = begin_digest(self._of_bins(e.bins), format)
            else:
                if self._begun is None or self._begun[0] is not e.bins:
                    numbers = e.bins.numbers(np.arange(len(e.bins))).astype(np.int64)
                    self._begun = e.bins, begin_digest(self._of_bins(e.bins), format), numbers
                begun, parts["trees"] = self._begun[1], tree_hashes(e.trees, self._begun[2])
        return digest([*((name, parts[name]) for name in sorted(parts)), rows], begun)

    def _of_bins(self, bins: Bins) -> Iterator[Part]:
        """Yield the bins of all features, those of sparse ones without a cut too. O(1) memory."""
        arrays, width = bins.arrays(), self._width
        sparse, none = arrays.pop("bins_sparse", bins.sparse), bins.sparse[:0]
        rest = {
            "kinds": (SPARSE, none),
            "starts": (bins.starts[-1], none),
            "seen": (0, sparse),
            "default": (0, none),
        }
        longer = {f"bins_{name}": Padded(arrays[f"bins_{name}"], width, *after) for name, after in rest.items()}
        yield from ((name, longer.get(name, arrays[name])) for name in sorted(arrays))
