"""BUILD with columns of few values counted, or divided among threads, and with all columns sorted: the same tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from raydt.learners.fudyadt import build_divided
from raydt.learners.fudyadt.build import Listing, build, new_scratch
from raydt.learners.fudyadt.build_divided import NODES_AT_ONCE, DividedBuild
from raydt.learners.fudyadt.histograms import COUNTED, new_histograms
from raydt.parallel import limited
from raydt.trees.canonical_arrays import route
from raydt.trees.counted_tree import TreeRules, new_tree
from raydt.trees.records import FREE, LEAVES, MEMBER, NODES, USED
from tests.volume import examples

KINDS = ("binary", "few", "category", "constant", "many", "mass", "most", "few or none", "many or none")
AWKWARD = np.array([-1e300, -5e-324, 0.0, 5e-324, 0.1, 1.0, 1.0000000000000002, 16777216.000000004, 1e308, 1.7e308])


def table(rng: np.random.Generator, n: int, classes: int, kinds: list[str]) -> tuple[npt.NDArray[Any], ...]:
    """Columns of the given kinds, and classes that depend on them."""
    columns = {
        "binary": lambda: (rng.random(n) < rng.random() ** 2).astype(float),
        "few": lambda: rng.choice(AWKWARD, n),
        "category": lambda: np.minimum(rng.geometric(0.2, n), 9).astype(float),
        "constant": lambda: np.full(n, 2.5),
        "many": lambda: rng.normal(size=n),
        "mass": lambda: np.where(rng.random(n) < 0.7, 1.0, rng.normal(size=n)),
        "most": lambda: rng.integers(0, 256, n) * 0.1,
        "few or none": lambda: rng.choice([*AWKWARD, np.nan, np.nan], n),
        "many or none": lambda: np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
    }
    X = np.column_stack([columns[kind]() for kind in kinds])
    ranks = np.column_stack([np.unique(x, return_inverse=True)[1] for x in X.T])
    y = (ranks[:, 0] % 3 + ranks.sum(axis=1) // 2 + (rng.random(n) < 0.2)) % classes
    return X, y.astype(np.int32)


def built(
    X: Any, y: Any, classes: int, categorical: Any, depth: int, most: int, threads: int = 0
) -> tuple[dict[str, Any], int]:
    """The nodes of a tree in preorder with the leaf of each row, and how many columns of up to ``most`` values were
    counted; the counters that were reserved sufficed. With ``threads``, the BUILD is divided among them."""
    n, d = X.shape
    tree = new_tree(2 * n + threads * NODES_AT_ONCE, classes)
    tree.counts[0] = np.bincount(y, minlength=classes)
    members = np.zeros(n, dtype=MEMBER)
    histograms = new_histograms(n, d, classes, most, 1)
    reserved = len(histograms.cells)
    histograms = histograms._replace(cells=np.full(reserved + 2 * n * d, -1, dtype=np.int32))
    scratch = new_scratch(n, d, classes)._replace(histograms=histograms)
    rows = np.arange(n, dtype=np.int32)
    listing, rules = Listing(X, categorical, rows, rows, y), TreeRules(0.1, 0.0, 2, depth, True, 0.2)
    if threads:
        with limited(threads):
            DividedBuild(tree, members, listing, rules, 7, scratch).run(0)
        free, used, nodes, leaves = set(), *tree.reg[[USED, NODES, LEAVES]].tolist()
        at = int(tree.reg[FREE])
        while at >= 0:
            free.add(at)
            at = int(tree.nodes["left"][at])
        assert len(free) == used - nodes
        assert leaves == (nodes + 1) // 2
    else:
        build(tree, members, 0, listing, rules, 7, scratch)
    assert (histograms.cells[reserved:] == -1).all()
    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        if tree.nodes["feature"][node] >= 0:
            stack += [int(tree.nodes["right"][node]), int(tree.nodes["left"][node])]
    place = np.full(len(tree.nodes), -1)
    place[order] = np.arange(len(order))
    assert all(members["leaf"][i] == route(tree, categorical, X, i, False) for i in range(n))
    nodes = {name: tree.nodes[name][order].tobytes() for name in ("feature", "threshold", "missing", "depth", "label")}
    nodes["statistics"] = tree.statistics[order].tobytes()
    nodes["counts"] = tree.counts[order].tobytes()
    return {**nodes, "leaf": place[members["leaf"]].tolist()}, int(histograms.reg[COUNTED])


@examples(150)
@given(
    st.sampled_from((5, 40, 300, 2000)),
    st.integers(2, 4),
    st.lists(
        st.sampled_from(("binary", "few", "category", "constant", "many", "mass", "most")), min_size=1, max_size=8
    ),
    st.sampled_from((3, 10, 1000)),
    st.data(),
)
def test_counting_columns_changes_nothing(
    n: int, classes: int, kinds: list[str], depth: int, data: st.DataObject
) -> None:
    X, y = table(np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))), n, classes, kinds)
    drawn = data.draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    categorical = np.array(drawn) & np.array([kind not in ("many", "mass") for kind in kinds])
    sorted_, none = built(X, y, classes, categorical, depth, 0)
    counted, some = built(X, y, classes, categorical, depth, 256)
    event(f"counted columns: {'none' if not some else 'all' if some == len(kinds) else 'some'}")
    assert none == 0
    assert counted == sorted_
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_divided, "_FEW_CELLS", data.draw(st.sampled_from((1, 100, 2000))))
        for threads in (1, 2, 3, 5):
            assert built(X, y, classes, categorical, depth, data.draw(st.sampled_from((0, 256))), threads)[0] == counted


def test_columns_of_few_values_are_counted() -> None:
    X, y = table(np.random.default_rng(1), 2000, 2, ["binary", "few", "category", "many", "most"])
    categorical = np.array([False, False, True, False, False])
    assert built(X, y, 2, categorical, 10, 256)[1] == 4


@pytest.mark.parametrize("columns", ["bits", "ladder", "mixed"])
def test_counters_for_the_logarithm_of_the_rows_suffice(columns: str) -> None:
    """Halves all the way down, one row after another cut off, and both: columns of few values, hence few counters."""
    n, values = 4096, 4
    i = np.arange(n)
    bits = (i[:, None] >> np.arange(12)) & 1
    ladder = (i[:, None] < np.arange(1, 60)).astype(int)
    X = {"bits": bits, "ladder": ladder, "mixed": np.hstack([bits, ladder])}[columns].astype(float)
    X[:2] = [[2.0], [3.0]]  # a histogram has counters of these values too, which no half of the rows needs
    y = ((bits.sum(axis=1) + i // 7) % 2).astype(np.int32)
    assert len(new_histograms(n, X.shape[1], 2, values, 1).cells) < n * X.shape[1] / 10
    numeric = np.zeros(X.shape[1], dtype=bool)
    counted, columns_counted = built(X, y, 2, numeric, 1000, values)
    assert columns_counted == X.shape[1]
    assert counted == built(X, y, 2, numeric, 1000, 0)[0]


def test_the_reserve_of_a_large_build_is_small() -> None:
    assert new_histograms(1_000_000, 50, 2).cells.nbytes < 3e6
