"""The data sets of the paper that are at hand, and stand-ins for some of them.

Not at hand: INSECTS v1 to v5 and NOAA weather; of Covertype only a small relative, whose F1 must not be compared with
the paper's. Poker is MOA's poker-lsn; the UCI training hands are a relative on which the slower peers run too.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from measure import DATA

from raydt.sources.options import ParquetFiles


@dataclass(frozen=True, slots=True)
class DataSet:
    """One data set, cut to its first ``rows``.

    Attributes
    ----------
    title : str
        Name in tables and charts.
    file : str
        File name without suffix.
    positive : str or int
        Label whose F1 is reported.
    rows : int
        Rows used, from the first.
    paper : str
        Name in the paper's tables.
    same : bool
        Whether the rows are the paper's, so that F1 may be compared.
    least : int
        Rows that have to be read until the positive class appears.
    """

    title: str
    file: str
    positive: str | int
    rows: int
    paper: str
    same: bool
    least: int = 1


#: Positive classes: the majority class, as the paper's text says (its Table 1 says UP for Electricity).
ELECTRICITY = DataSet("Electricity", "electricity", "DOWN", 45_312, "Electricity", True)
COVERTYPE = DataSet("Covertype, first 10,000", "covtype_head10k", 2, 10_000, "Forest Covertypes", False)
KDD = DataSet("KDDCUP99 10 %", "kddcup99_10pct", "smurf", 494_021, "KDDCUP99", True, 8_000)
KDD_HEAD = DataSet("KDDCUP99, first 50,000", "kddcup99_10pct", "smurf", 50_000, "KDDCUP99", False, 8_000)
POKER = DataSet("Poker", "poker_lsn", 0, 829_201, "Poker", True)
POKER_UCI = DataSet("Poker, UCI training hands", "poker_uci_train", 0, 25_010, "Poker", False)


def cut(data: DataSet, rows: int | None) -> DataSet:
    """The same data set with at most ``rows`` rows, as long as the positive class is among them."""
    return data if rows is None else dataclasses.replace(data, rows=min(max(rows, data.least), data.rows))


class Folder:
    """The folder of the Parquet files; what it reads last stays in memory."""

    def __init__(self, path: Path = DATA) -> None:
        self.path = path
        self.labels = lru_cache(maxsize=1)(self._labels)
        self.dictionaries = lru_cache(maxsize=1)(self._dictionaries)

    def file(self, data: DataSet) -> Path:
        """Path of the file; ends the program with a message if there is none."""
        path = self.path / f"{data.file}.parquet"
        if not path.exists():
            sys.exit(f"{path} is missing: give the folder of the Parquet files with --data")
        return path

    def source(self, data: DataSet) -> ParquetFiles:
        """Options of the source of this data set."""
        return ParquetFiles(path=str(self.file(data)), positive=data.positive, limit=data.rows)

    def _labels(self, data: DataSet) -> npt.NDArray[np.int32]:
        column = pq.read_table(self.file(data), columns=["y"])["y"].slice(0, data.rows)
        return (np.array(column.to_pylist()) == data.positive).astype(np.int32)

    def _dictionaries(self, data: DataSet) -> list[dict[str, Any]]:
        table = pq.read_table(self.file(data)).slice(0, data.rows)
        return table.drop_columns(["y"]).to_pylist()  # type: ignore[no-any-return]
