"""Loops that are written for vectors give the bits of the plain ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from raydt.arrays.elementary import TOGETHER, add_pair, power_of_two, probabilities
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.learners.gbdt.derivatives import Loss, derive, derive_together, quantise, quantised
from raydt.learners.gbdt.staleness import compare, staleness


@kernel
def _together(F: Any, first: int, stop: int, p: Any, out: Any) -> None:
    derive_together(F, first, stop, p, out)


@kernel
def _compare(model: Any, batch: Any, first: int, stop: int, stale: Any, p: Any) -> None:
    compare(model, batch, 1, first, stop, stale, p)


@inner_kernel
def kept_entries(F: Any, ledger: Any, first: int, slot: int, stays: Any, p: Any, out: Any, at: int, i: int) -> None:
    """Entries of a row in the trees of an iteration, the first of which is ``first``, into ``out[at:, i]``.

    Those of the ledger where they stay, else those of the present score ``F``, shape (K',).
    """
    if len(p) == 1:
        entry = np.int64(ledger[first, slot])
        if not (stays[entry, 0] <= F[0] <= stays[entry, 1]):
            probabilities(F, p)
            entry = quantise(p[0])
        out[at, i] = entry
        return
    probabilities(F, p)
    for k in range(len(p)):
        entry = np.int64(ledger[first + k, slot])
        if not (stays[entry, 0] <= p[k] <= stays[entry, 1]):
            entry = quantise(p[k])
        out[at + k, i] = entry


@kernel
def _compare_plainly(F: Any, ledger: Any, slots: Any, stays: Any, p: Any, out: Any) -> None:
    for i in range(len(slots)):
        kept_entries(F[i], ledger, F.shape[1], slots[i], stays, p, out, 0, i)


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
    first = rows // 3
    _together(np.ascontiguousarray(F.T), first, rows, np.empty((classes + 2, TOGETHER)), vectors)
    assert np.array_equal(plain[:, first:rows], vectors[:, first:rows])
    assert not vectors[:, :first].any()
    assert not vectors[:, rows:].any()


class _Model(NamedTuple):
    """What ``compare`` needs of a model."""

    loss: Loss
    ledger: npt.NDArray[np.uint16]


class _Batch(NamedTuple):
    """What ``compare`` needs of a batch."""

    slots: npt.NDArray[np.int32]
    F: npt.NDArray[np.float64]
    entry: npt.NDArray[np.int32]
    differs: npt.NDArray[np.bool_]
    y: npt.NDArray[np.int32]


@pytest.mark.parametrize("classes", [1, 2, 10])
@pytest.mark.parametrize("tolerance", [0.05, 0.3])
def test_entries_that_stay(classes: int, tolerance: float) -> None:
    """Some rows of a batch, each in any slot, whose scores have moved by about the tolerance."""
    rng, rows, first = np.random.default_rng(classes), 3 * TOGETHER + 7, 5
    loss = Loss(classes, False, 0.0, 1.0)
    before = rng.normal(size=(2 * rows, classes)) * 4.0
    entries = quantised(before, np.zeros(len(before), dtype=np.int32), loss)
    ledger = np.concatenate([np.ones_like(entries), entries]).astype(np.uint16)  # of iterations 0 and 1
    slots = rng.permutation(2 * rows)[:rows].astype(np.int32)
    F = before[slots] + rng.normal(size=(rows, classes)) * tolerance / 2
    stale = staleness(tolerance, 2, 0, loss)
    differs = np.zeros(classes, dtype=np.bool_)
    plain, blocks = (np.zeros((classes, rows), dtype=np.int32) for _ in range(2))
    _compare_plainly(F, ledger, slots, stale.stays, np.empty(classes), plain)
    batch = _Batch(slots, np.ascontiguousarray(F.T), blocks, differs, np.zeros(1, dtype=np.int32))
    _compare(_Model(loss, ledger), batch, first, rows, stale, np.empty((classes + 2, TOGETHER)))
    assert np.array_equal(plain[:, first:], blocks[:, first:])
    assert not blocks[:, :first].any()
    assert differs[(blocks != entries[:, slots])[:, first:].any(axis=1)].all()
    stayed = (blocks == entries[:, slots])[:, first:].mean()
    assert 0.2 < stayed < 0.99


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
