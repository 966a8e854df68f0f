"""Rows with values that occur nowhere else, and a search for them in every byte of a folder."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

#: Bits that no data have by chance; the number is finite, and larger than those of the small tables.
TEXT = "c4a9ae11d00d5eed" * 2
NUMBER = struct.unpack("<d", bytes.fromhex("15cd5b07a1b2f340"))[0]
TIME = 1_234_567_890_123_457
LABEL = 1.7 + 1.2345678e-9


def canary(name: str = "") -> dict[str, Any]:
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
        "number": LABEL,
    }


def needles() -> list[bytes]:
    """What to look for: the text, and the numbers as bits and as they are written."""
    numbers = [NUMBER, NUMBER * 3, NUMBER * 7, LABEL]
    return [
        TEXT.encode(),
        *(struct.pack("<d", number) for number in numbers),
        *(repr(number).encode() for number in numbers),
        struct.pack("<q", TIME),
        str(TIME).encode(),
    ]


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


def hits(folder: Path) -> dict[str, list[bytes]]:
    """Files of a folder that hold a canary, with what they hold; names of files count, too."""
    found: dict[str, list[bytes]] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        try:
            parts = [str(file).encode(), *contents(file)]
        except FileNotFoundError:  # another process has removed it since
            continue
        held = [one for one in needles() if any(one in part for part in parts)]
        if held:
            found[file.relative_to(folder).as_posix()] = held
    return found
