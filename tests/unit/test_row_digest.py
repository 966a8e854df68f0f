"""The digest of few rows, which have no tree, is that of their tree: bit for bit, whatever their slots and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from raydt.arrays.digest import digest
from raydt.examples.row_digest import RowDigest
from raydt.examples.row_owners import MOST
from raydt.examples.store import ExampleStore
from tests.oracles.digests import row_parts


@pytest.mark.parametrize("weighted", [False, True])
def test_few_rows_have_the_digest_of_their_tree(weighted: bool) -> None:
    random = np.random.default_rng(5)
    for n in (0, 1, 2, MOST - 1, MOST, MOST + 1):
        ids = np.unique(random.integers(-(2**63), 2**63 - 1, 200))
        ids = random.permutation(np.append(random.choice(ids, max(0, n - 2), replace=False), [-1, 0][:n]))
        y, weights = random.integers(0, 3, n).astype(np.int32), random.integers(1, 9, n)
        store = ExampleStore(1)
        listed = np.append(np.ones(n, np.bool_), False)  # and a slot without an example
        store.fill(
            np.append(ids, 7), np.append(y, np.int32(0)), np.arange(n + 1), listed,
            np.append(weights, 1) if weighted else None,
        )  # fmt: skip

        def columns(slots: Any, store: ExampleStore = store) -> Mapping[str, Any]:
            return {"y": store.y[slots]}

        few = RowDigest(store).part(columns, weighted)
        made = RowDigest(store)
        made._records(columns, weighted)
        made._followed()  # a tree, whatever the number of rows
        tree = made.part(columns, weighted)
        assert few[0] == tree[0]
        assert few[1].tobytes() == tree[1].tobytes()
        if not weighted:
            assert digest([few]) == digest(row_parts(ids, y=y))
