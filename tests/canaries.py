"""Rows with values that occur nowhere else, and a search for them in every byte of a folder.

A row has an id of text or an integer, numbers, a category, an event time, an index of sparse features, a class and a
number as labels. Numbers are looked for as bits and as they are written; those that are too short to be unique as bits
are looked for among the values of arrays, tables and JSON files.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

#: Bits that no data have by chance; the number is finite, and larger than those of the small tables.
TEXT = "c4a9ae11d00d5eed" * 2
NUMBER = struct.unpack("<d", bytes.fromhex("15cd5b07a1b2f340"))[0]
TIME = 1_234_567_890_123_457
LABEL = 1.7 + 1.2345678e-9
#: Beyond all labels of the small tables, on either side.
SMALLEST, LARGEST = -731.123456789, 912.987654321
#: Integer ids, larger than any other; a counter that is one more tells them, too.
IDS = {name: 0x1D5C_9A3B_77E1 + 4096 * place for place, name in enumerate(("", "again ", "first ", "last ", "asked "))}
#: Indices of sparse features, the largest ones, and how many features there are.
INDICES, WIDTH = (48_611, 48_623), 50_000


def canary(name: str = "", label: float = LABEL) -> dict[str, Any]:
    """Values of a row, by column of the small tables."""
    return {
        "id": f"id {name}{TEXT}",
        "a": NUMBER,
        "b": NUMBER * 3,
        "c": NUMBER * 7,
        "d": f"category {name}{TEXT}",
        "a_or_null": NUMBER,
        "d_or_null": f"category {name}{TEXT}",
        "ts": TIME,
        "y_of_three": f"class {TEXT}",
        "number": label,
        "ones": [1, INDICES[0]],
    }


def learned_first(name: str, label: float) -> dict[str, Any]:
    """A canary of the warm-up: without numbers and indices, which bins and thresholds are made from for good."""
    row = canary(name, label)
    return {column: row[column] for column in ("id", "d", "d_or_null", "y_of_three", "number")}


def needles() -> list[bytes]:
    """What to look for: the text, and the numbers as bits and as they are written."""
    numbers = [NUMBER, NUMBER * 3, NUMBER * 7, LABEL, SMALLEST, LARGEST]
    integers = [TIME, *(number + more for number in IDS.values() for more in (0, 1))]
    return [
        TEXT.encode(),
        *(struct.pack("<d", number) for number in numbers),
        *(repr(number).encode() for number in numbers),
        *(struct.pack("<q", number) for number in integers),
        *(str(number).encode() for number in integers),
    ]


def _values(value: Any) -> Iterator[Any]:
    """Numbers in a JSON value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _values(key)
            yield from _values(item)
    elif isinstance(value, list):
        for item in value:
            yield from _values(item)
    elif isinstance(value, int | float):
        yield value
    elif isinstance(value, str) and value.isdecimal():
        yield int(value)


def contents(file: Path) -> list[bytes]:
    """Bytes of a file, and of what is compressed in it."""
    data = file.read_bytes()
    found = [data]
    if data[:4] == b"PAR1":
        sink = io.BytesIO()
        table = pq.read_table(io.BytesIO(data))
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        found.append(sink.getvalue())
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            found += [members.read(name) for name in members.namelist()]
    return found


def has_index(parts: list[bytes]) -> bool:
    """Whether an index is among the values of a file, given its :func:`contents`."""
    data, *inside = parts
    if data[:4] == b"PAR1":
        columns = [column for column in pq.read_table(io.BytesIO(data)).columns if pa.types.is_integer(column.type)]
        return any(np.isin(column.to_numpy(), INDICES).any() for column in columns)
    if data[:2] == b"PK":
        return any(np.isin(np.load(io.BytesIO(member)), INDICES).any() for member in inside)
    for text in data.splitlines() if data.startswith(b'{"') else [data]:  # a log has an object in each line
        try:
            if not set(INDICES).isdisjoint(_values(json.loads(text))):
                return True
        except ValueError:
            continue
    return False


def hits(folder: Path) -> dict[str, list[bytes]]:
    """Files of a folder that hold a canary, with what they hold; names of files count, too."""
    found: dict[str, list[bytes]] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        try:
            parts = contents(file)
        except FileNotFoundError:  # another process has removed it since
            continue
        held = [one for one in needles() if any(one in part for part in (*parts, os.fsencode(file)))]
        held += [b"an index"] if has_index(parts) else []
        if held:
            found[file.relative_to(folder).as_posix()] = held
    return found
