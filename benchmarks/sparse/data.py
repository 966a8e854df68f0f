"""Rows of ones with labels 0 and 1: the paper's synthetic family, and the real data at hand."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from measure import DATA

#: Names of data sets, and their files. RCV1, Farm Ads, Author, real-sim and news20 are not at hand.
SETS = {
    "reuters": "reuters21578_earn_bydate",
    "spamassassin": "spamassassin",
    "w8a": "w8a",
    "a9a": "a9a_train",
}


class Steps(NamedTuple):
    """Rows that come (``sign`` 1) and go (-1), as ``Finder.apply`` takes them."""

    sign: npt.NDArray[np.int8]
    label: npt.NDArray[np.int8]
    indptr: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.sign)

    def part(self, begin: int, stop: int) -> Steps:
        """Some of the steps."""
        ptr = self.indptr[begin : stop + 1]
        return Steps(self.sign[begin:stop], self.label[begin:stop], ptr - ptr[0], self.feature[ptr[0] : ptr[-1]])

    def totals(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows, and those of class 1, after each step."""
        sign = self.sign.astype(np.int64)
        return np.cumsum(sign), np.cumsum(sign * self.label)


def sparse(n: int, d1: int, d2: int, q: float, seed: int = 0) -> Steps:
    """The paper's family: d1 features tell the label, each wrong as often as was drawn for it; d2 are 1 with q.

    A one of the d2 features is found by geometric gaps, so that time follows the ones.
    """
    rng = np.random.default_rng(seed)
    wrong = rng.random(d1)
    label = rng.integers(0, 2, n, dtype=np.int8)
    informative = np.flatnonzero((label[:, None] == 1) ^ (rng.random((n, d1)) < wrong))
    cells, most = [np.empty(0, dtype=np.int64)], n * d2
    last = -1
    while last < most:
        gaps = rng.geometric(q, int(1.1 * (most - last) * q) + 100)
        cells.append(last + np.cumsum(gaps))
        last = int(cells[-1][-1])
    noise = np.concatenate(cells)
    noise = noise[noise < most]
    row = np.concatenate([informative // d1, noise // d2])
    feature = np.concatenate([informative % d1, d1 + noise % d2])
    feature = feature[np.argsort(row, kind="stable")].astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    return Steps(np.ones(n, dtype=np.int8), label, indptr, feature)


def window(rows: Steps, size: int) -> Steps:
    """The same rows; from row ``size`` on, the oldest goes after each one that comes."""
    n = len(rows)
    order = np.concatenate([np.arange(n), np.arange(n - size)])
    when = np.concatenate([2 * np.arange(n), 2 * np.arange(size, n) + 1])
    sign = np.where(np.arange(len(order)) < n, 1, -1)[np.argsort(when)].astype(np.int8)
    order = order[np.argsort(when)]
    lengths = np.diff(rows.indptr)[order]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(rows.indptr[:-1][order] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return Steps(sign, rows.label[order], indptr, rows.feature[places])


def real(name: str, rows: int | None = None) -> tuple[Steps, int]:
    """The first rows of a data set in its own order, all inserted, and its number of features."""
    import pyarrow.parquet as pq

    path = DATA / f"{SETS[name]}.parquet"
    if not path.exists():
        sys.exit(f"{path} is missing: put the data sets into {DATA}")
    table = pq.read_table(path)
    d = int(table.schema.metadata[b"n_features"])
    table = table.slice(0, rows)
    ones = table["indices"].combine_chunks()
    lengths = ones.value_lengths().to_numpy(zero_copy_only=False)
    feature = ones.flatten().to_numpy(zero_copy_only=False).astype(np.int32)
    label = (table["y"].to_numpy() > 0).astype(np.int8)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Steps(np.ones(len(label), dtype=np.int8), label, indptr, feature), d
