"""Loops of the training that are written for vectors give the bits of the plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from raydt.arrays.kernel import kernel
from raydt.arrays.pairs import add_pair, power_of_two
from raydt.learners.gbdt.derivatives import TOGETHER, Loss, derive, derive_together


@kernel
def _together(F: Any, stop: int, p: Any, out: Any) -> None:
    derive_together(F, stop, p, out)


@kernel
def _powers(k: Any, out: Any) -> None:
    for i in range(len(k)):
        out[i] = power_of_two(k[i])


@kernel
def _add(cells: Any, first: Any, second: Any, sums: Any) -> None:
    for i in range(len(cells)):
        add_pair(sums, cells[i], first[i], second[i])


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
@pytest.mark.parametrize("rows", [0, 1, TOGETHER, 2 * TOGETHER + 5])
@pytest.mark.parametrize("scale", [1e-3, 3.0, 400.0])
def test_derivatives(classes: int, rows: int, scale: float) -> None:
    F = np.random.default_rng(rows).normal(size=(rows + 1, classes)) * scale
    F[-1] = 0.0
    plain, vectors = (np.zeros((classes, rows + 1), dtype=np.int32) for _ in range(2))
    derive(F, np.zeros(rows + 1, dtype=np.int32), Loss(classes, False, 0.0, 1.0), np.empty(classes), plain)
    _together(F, rows, np.empty((classes + 2, TOGETHER)), vectors)
    assert np.array_equal(plain[:, :rows], vectors[:, :rows])
    assert not vectors[:, rows:].any()


def test_powers_of_two() -> None:
    k = np.arange(-1022.0, 1024.0)
    found = np.empty_like(k)
    _powers(k, found)
    assert np.array_equal(found, np.ldexp(1.0, k.astype(np.int64)))


def test_pairs_are_two_sums_of_int64() -> None:
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 7, 1000).astype(np.uint16)
    first, second = rng.integers(-(2**62), 2**62, (2, 1000))
    sums, plain = np.zeros((7, 2), dtype=np.int64), np.zeros((7, 2), dtype=np.int64)
    _add(cells, first, second, sums)
    np.add.at(plain, cells, np.stack([first, second], axis=1))
    assert np.array_equal(sums, plain)
