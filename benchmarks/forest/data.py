"""The data sets of the forest's benchmarks, as frames; what is absent is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq
from harness import DATA

#: Data sets that come as a training and a test file, and those that are cut: the last fifth of a drawn
#: order is held out.
SPLIT, WHOLE = ("adult", "heart", "purchase"), ("covtype_head10k",)
#: Classes of these that are told from the rest, in data sets of their own.
AGAINST_THE_REST = {"covtype_head10k": ("2",)}


@dataclass(frozen=True, slots=True)
class Rows:
    """Training and test rows of one data set: frames with categories as text, columns of 0 and 1, and
    codes of labels."""

    name: str
    train: Any
    test: Any
    wide_train: npt.NDArray[np.float64]
    wide_test: npt.NDArray[np.float64]
    y: npt.NDArray[np.int64]
    y_test: npt.NDArray[np.int64]


def data_sets() -> Iterator[Rows]:
    """Every data set that is there."""
    for name in SPLIT:
        files = [DATA / f"{name}_{part}.parquet" for part in ("train", "test")]
        if all(file.exists() for file in files):
            yield _rows(name, *(pq.read_table(file).to_pandas() for file in files))
    for name in WHOLE:
        file = DATA / f"{name}.parquet"
        if file.exists():
            whole = pq.read_table(file).to_pandas()
            order = np.random.default_rng(0).permutation(len(whole))
            cut = len(whole) * 4 // 5
            yield _rows(name, whole.iloc[order[:cut]], whole.iloc[order[cut:]])
            for label in AGAINST_THE_REST.get(name, ()):
                two = whole.assign(y=whole["y"].astype(str) == label)
                yield _rows(f"{name}, {label} against the rest", two.iloc[order[:cut]], two.iloc[order[cut:]])


def _rows(name: str, train: Any, test: Any) -> Rows:
    labels = [part["y"].astype(str).str.strip(".") for part in (train, test)]
    known = np.unique(labels[0])
    both = pd.concat([train, test]).drop(columns="y").reset_index(drop=True)
    text = [c for c in both if not pd.api.types.is_numeric_dtype(both[c])]
    both[text] = both[text].astype(str)
    wide = pd.get_dummies(both, columns=text).to_numpy(dtype=np.float64)
    n = len(train)
    codes = (np.searchsorted(known, part.to_numpy(dtype=str)) for part in labels)
    return Rows(name, both.iloc[:n], both.iloc[n:], wide[:n], wide[n:], *codes)
