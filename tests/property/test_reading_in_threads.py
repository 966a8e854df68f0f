"""Files read and encoded in threads: the rows, dictionaries, faults and errors of one thread.

The twin is the path of one thread: a block is read, encoded and handed out before the next one is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from raydt.arrays.blocks import SparseRows
from raydt.encoding import features
from raydt.errors import InputError, RaydtError
from raydt.parallel import limited
from raydt.sources import file_source
from raydt.sources.base import Rows, Source
from raydt.sources.divided import open_source
from raydt.sources.files import csv
from raydt.sources.options import SourceOptions

NUMBERS = (1, 2, 3, 5)
SOURCES: TypeAdapter[Any] = TypeAdapter(SourceOptions)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "_BLOCK", 300)
    monkeypatch.setattr(file_source, "CHUNK_ROWS", (1, 40))
    monkeypatch.setattr(file_source, "ROUND_CELLS", 200)
    monkeypatch.setattr(features, "_FEW_CELLS", 8)
    monkeypatch.setattr(features, "_CACHED_CELLS", 64)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Columns of text as a CSV file has them: numbers, categories, labels and ids, some of which cannot be used."""
    n = draw(st.integers(1, 250))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    faults = draw(st.sampled_from([0.0, 0.003, 0.05]))

    def column(values: list[str], wrong: list[str]) -> list[str]:
        return [wrong[rng.integers(len(wrong))] if rng.random() < faults else value for value in values]

    return {
        "id": column([str(i) for i in range(n)], ["x", "", "99999999999999999999"]),
        "a": column([str(x) for x in rng.normal(size=n).round(3)], ["", "two", "inf", "nan", "-0.0"]),
        "b": column([str(x) for x in rng.integers(-5, 5, n)], ["", "1.5", "9007199254740993"]),
        "c": column([f"c{x}" for x in rng.geometric(0.1, n)], ["", "1"]),
        "y": column([("no", "yes", "maybe")[x] for x in rng.integers(0, 3, n)], ["", "new"]),
    }


def written(folder: Path, table: dict[str, list[Any]], kind: str, ragged: bool) -> Any:
    """A file of a kind with these columns."""
    file = folder / f"t.{kind}"
    if kind == "csv":
        lines = [",".join(row) for row in zip(*table.values(), strict=True)]
        if ragged:
            lines = [line + ",1" if i % 97 == 50 else line for i, line in enumerate(lines)]
        file.write_text("\n".join([",".join(table), *lines]) + "\n")
    else:
        parsed = pacsv.read_csv(pa.BufferReader("\n".join(
            [",".join(table), *(",".join(row) for row in zip(*table.values(), strict=True))]
        ).encode()), convert_options=pacsv.ConvertOptions(strings_can_be_null=True))  # fmt: skip
        pq.write_table(parsed, file, row_group_size=170)
    return {"kind": kind, "path": str(file), "label": "y"}


def shown(rows: Rows) -> list[Any]:
    """Everything that rows have, by bits; a bad row has no values."""
    good = np.ones(len(rows), dtype=bool)
    good[list(rows.bad)] = False
    bits = [
        (name, column[good].tobytes() if name != "names" else column[good].tolist())
        for name, column in rows.columns().items()
        if not isinstance(column, SparseRows)
    ]
    return [bits, {place: str(error) for place, error in rows.bad.items()}]


def outcome(source: Source, start: int) -> list[Any]:
    """Chunks, what is known after each of them, and the error that ends the reading."""
    found: list[Any] = []
    try:
        for rows in source.rows(start):
            found.append([shown(rows), source.state(), source.classes, source.state(rows.start)])
    except InputError as error:
        found.append(str(error))
    return [*found, source.state(), source.classes, source.where(start)]


def opened(options: dict[str, Any], **more: Any) -> Any:
    """A source of a file."""
    return open_source(SOURCES.validate_python({**options, **more}))


def attempt(work: Callable[[], Any]) -> Any:
    """Return the result of a call, or its error."""
    try:
        return work()
    except RaydtError as error:
        return str(error)


@given(
    table=tables(),
    kind=st.sampled_from(["csv", "parquet"]),
    ragged=st.booleans(),
    options=st.sampled_from(
        [{}, {"id": "id"}, {"permutation": 3}, {"limit": 77}, {"positive": "yes"}, {"categorical": ["b"]}]
    ),
    start=st.sampled_from([0, 0, 1, 60, 399]),
)
def test_any_number_of_threads_gives_the_rows_of_one(
    table: dict[str, list[Any]],
    kind: str,
    ragged: bool,
    options: dict[str, Any],
    start: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = written(tmp_path_factory.mktemp("t"), table, kind, ragged)

    def read(n: int) -> Any:
        with limited(n):
            source = opened(file, **options)
            return outcome(source, min(start, len(table["y"]) - 1, 76 if "limit" in options else start))

    first, *others = (attempt(lambda n=n: read(n)) for n in NUMBERS)
    assert all(other == first for other in others)


@given(table=tables(), options=st.sampled_from([{}, {"categorical": ["b"]}]), cut=st.integers(0, 249))
def test_reading_is_resumed_where_it_was_left(
    table: dict[str, list[Any]], options: dict[str, Any], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rows that were read ahead are in no state, and in no source that is restored."""
    file = written(tmp_path_factory.mktemp("t"), table, "csv", ragged=True)

    def read(n: int) -> Any:
        with limited(n):
            source, found = opened(file, **options), []
            rows = source.rows()
            state, at = source.state(0), 0
            for chunk in rows:
                found.append(shown(chunk))
                at = chunk.start + len(chunk)
                state = source.state(at)
                if at > cut:
                    break
            rows.close()
            source.restore(state)
            return [found, state, outcome(source, at)] if at < len(table["y"]) else [found, state]

    first, *others = (attempt(lambda n=n: read(n)) for n in NUMBERS)
    assert all(other == first for other in others)
