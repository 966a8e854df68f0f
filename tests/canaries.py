"""Values that nobody may keep, and processes that belong to somebody else."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# -- canaries --------------------------------------------------------------------------------------------------------
# Rows with values that occur nowhere else, and a search for them in every byte of a folder.
#
# A row has an id of text or an integer, numbers, a category, an event time, an index of sparse features, a class and
# a number as labels. Numbers are looked for as bits and as they are written; those that are too short to be unique as
# bits are looked for among the values of arrays, tables and JSON files.

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


# -- strangers -------------------------------------------------------------------------------------------------------
# Files that somebody else has put into every folder of a run, and the question whether they are as they were.
#
# In each folder several kinds are drawn at random: files whose names begin with a dot, or are nearly those of raydt;
# links to folders and files outside, and to nothing; hard links; folders; names that are not UTF-8.

PLAIN = [".gitignore", ".env", ".bashrc", ".part", "notes.txt", "part.bak", "part-1.parquet", "007", b"\xff.txt"]
PLAIN += [".merging.parquet~", "Summary.json", "rows.npz", ".report.html.12", ".lock.old", "caf\u00e9 \n.txt"]


def nearly(name: str, draw: random.Random) -> str:
    """A name that is nearly that of a file of ours."""
    end = draw.choice((".bak", ".swp", "~", f".{7:031x}", f".{7:032x}g", "_"))
    return draw.choice((".", "_", "A")) + name + end


def put(run: Path, outside: Path, draw: random.Random) -> list[str]:
    """Put strangers into every folder of a run; their names, sorted."""
    outside.mkdir()
    for name in ("summary.json", ".bashrc", "part-00000.parquet", f".manifest.json.{7:032x}"):
        (outside / name).write_text(f"mine: {name}")
    placed = []
    for folder in [run, *(path for path in sorted(run.rglob("*")) if path.is_dir() and not path.is_symlink())]:
        ours = sorted(path.name for path in folder.iterdir() if path.is_file())
        plain = [os.fsdecode(name) for name in draw.sample(PLAIN, 3)]
        for name in {*plain, *(nearly(one, draw) for one in draw.sample(ours, min(2, len(ours))))} - set(ours):
            placed.append(folder / name)
            placed[-1].write_text(f"somebody else's {len(placed)}")
        kinds = (
            lambda place: place.symlink_to(outside),
            lambda place: place.symlink_to(outside / ".bashrc"),
            lambda place: place.symlink_to(outside / "nothing"),
            lambda place: place.hardlink_to(outside / "summary.json"),
        )
        for number, kind in enumerate(draw.sample(kinds, 2)):
            placed.append(folder / draw.choice((f".{number}", f"link {number}")))
            kind(placed[-1])
        inner = folder / draw.choice((".git", "20x", "backup of checkpoints", "-1"))
        inner.mkdir()
        placed.append(inner / draw.choice(("manifest.json", ".keep", "part-00000.parquet")))
        placed[-1].write_text("")
    return sorted(path.relative_to(run).as_posix() for path in placed)


def seen(folder: Path, names: list[str]) -> list[object]:
    """What is under each name: where a link leads, or the bytes of a file; and when it was changed."""
    places = [folder / name for name in names]
    return [
        (
            os.readlink(place) if place.is_symlink() else place.read_bytes(),
            place.lstat().st_mtime_ns,
            place.lstat().st_ino,
        )
        for place in places
    ]


def leave_behind(run: Path, draw: random.Random) -> None:
    """Leave files of ours with a canary as writers leave them that were killed."""
    for folder in [run, *(path for path in sorted(run.rglob("*")) if path.is_dir())]:
        there = sorted(path.name for path in folder.iterdir() if path.is_file())
        if not there:
            continue
        names = [f".{draw.choice(there)}.{draw.getrandbits(128):032x}"]
        if there[0].startswith("part-"):
            names = [".part-00042.parquet", ".merging.parquet"]
        elif folder != run:
            names += [f"arrays.{draw.getrandbits(64):016x}.npz"]
        (folder / draw.choice(names)).write_text(TEXT)
