"""Mutations of files, with checksums that fit again, and the learners whose files are mutated."""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from raydt.folders.arrays import MANIFEST, seal
from tests.cases import CASES, Trial, first_cases, noted

# -- mutations -------------------------------------------------------------------------------------------------------
# Mutations of bytes: a pure function of a seed and a number, so that each can be made again.

INTERESTING = (0, 1, -1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63))
TOKENS = [
    *'",;\t\n\r:[]{}&*!#-|>%@`?~',
    *("\0", "\ufeff", "\xff", "''", '""', "\n\n", ",,", ": ", "- ", "---\n", "...\n", "<<: *a", "&a ", "*a", "!!int "),
    *("nan", "inf", "-inf", "1e999", "1e-999", "-0.0", "0x7f", "0o17", "9007199254740993", "9" * 20, "9" * 400),
    *("null", "true", "no", "x" * 5000, "[" * 300, "{a: " * 300, "é", "\u2028", "😀"),
]


def mutated(data: bytes, others: Sequence[bytes], draw: random.Random, text: bool) -> bytes:
    """``data`` after one to four mutations.

    Parameters
    ----------
    data : bytes
    others : sequence of bytes
        Valid contents to splice in.
    draw : random.Random
    text : bool
        Whether to put in tokens of text formats too.
    """
    out = bytearray(data)
    changes: list[Callable[[bytearray, random.Random], None]] = [
        *(_flip, _set, _integer) * 2,
        _cut,
        _drop,
        _repeat,
        _zero,
        _swap,
    ]
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if text and draw.random() < 0.5:
            at = draw.randint(0, len(out))
            out[at:at] = draw.choice(TOKENS).encode()
        elif draw.random() < 0.1:
            other = draw.choice(others)
            at, begin, end = draw.randint(0, len(out)), *_span(other, draw)
            out[at : at + draw.choice((0, end - begin))] = other[begin:end]
        else:
            draw.choice(changes)(out, draw)
    return bytes(out)


def _span(data: bytes | bytearray, draw: random.Random) -> tuple[int, int]:
    begin = draw.randint(0, len(data))
    return begin, min(len(data), begin + draw.choice((1, 4, 8, 64, 500)))


def _flip(out: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice((1, 1, 2, 8))):
        if out:
            out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)


def _set(out: bytearray, draw: random.Random) -> None:
    if out:
        out[draw.randrange(len(out))] = draw.choice((0, 1, 127, 128, 254, 255))


def _integer(out: bytearray, draw: random.Random) -> None:
    size, form = draw.choice(((2, "H"), (4, "I"), (8, "Q")))
    at = draw.randint(0, max(0, len(out) - size))
    out[at : at + size] = struct.pack(f"<{form}", draw.choice(INTERESTING) % (1 << 8 * size))


def _cut(out: bytearray, draw: random.Random) -> None:
    del out[draw.randint(0, len(out)) :]


def _drop(out: bytearray, draw: random.Random) -> None:
    begin, end = _span(out, draw)
    del out[begin:end]


def _repeat(out: bytearray, draw: random.Random) -> None:
    begin, end = _span(out, draw)
    out[end:end] = out[begin:end] * draw.choice((1, 2, 50))


def _zero(out: bytearray, draw: random.Random) -> None:
    begin, end = _span(out, draw)
    out[begin:end] = bytes(end - begin)


def _swap(out: bytearray, draw: random.Random) -> None:
    (a, b), (c, d) = sorted((_span(out, draw), _span(out, draw)))
    if b <= c:
        out[a:d] = out[c:d] + out[b:c] + out[a:b]


# -- reseal ----------------------------------------------------------------------------------------------------------
# Folders of arrays whose contents are changed and whose hashes are then right again.
#
# A hash finds damage, not intent; what a folder says has to be checked all the same.


def resealed(contents: dict[str, bytes], draw: random.Random, *, arrays: bool = True) -> dict[str, bytes]:
    """The files of a folder with some values changed, perhaps in arrays too, and all hashes computed anew."""
    manifest = json.loads(contents[MANIFEST])
    del manifest["sha256"]
    if draw.random() < 0.4:
        change(manifest["meta"], draw)
    out: dict[str, bytes] = {}
    for entry in manifest["files"]:
        data = contents[entry["name"]]
        if arrays and entry["name"].endswith("npz") and draw.random() < 0.8:
            data, entry["arrays"] = _changed_arrays(data, entry["arrays"], draw)
        elif entry["name"].endswith("json") and draw.random() < 0.3:
            value = json.loads(data)
            change(value, draw)
            data = json.dumps(value).encode()
        _name_by_hash(entry, data)
        out[entry["name"]] = data
    if draw.random() < 0.1:
        manifest["files"].pop(draw.randrange(len(manifest["files"])))
    out[MANIFEST] = seal((json.dumps(manifest, indent=1) + "\n").encode())
    return out


def with_arrays(contents: dict[str, bytes], change: Callable[[dict[str, dict[str, Any]]], None]) -> dict[str, bytes]:
    """The files of a folder after ``change`` of its arrays by component and name, and all hashes computed anew."""
    manifest = json.loads(contents[MANIFEST])
    del manifest["sha256"]
    files = [entry for entry in manifest["files"] if entry["name"].endswith("npz")]
    components = {entry["component"]: _loaded(contents[entry["name"]]) for entry in files}
    change(components)
    out = dict(contents)
    for entry in files:
        del out[entry["name"]]
        data, entry["arrays"] = _written(components[entry["component"]])
        _name_by_hash(entry, data)
        out[entry["name"]] = data
    out[MANIFEST] = seal((json.dumps(manifest, indent=1) + "\n").encode())
    return out


def _name_by_hash(entry: dict[str, Any], data: bytes) -> None:
    """Enter new contents of a file into its entry of the manifest."""
    sha = hashlib.sha256(data).hexdigest()
    place, suffix = (entry["name"].rpartition("/")[0], entry["name"].rsplit(".", 1)[1])
    name = f"{entry['component']}.{sha[:16]}.{suffix}"
    entry.update(name=f"{place}/{name}" if place else name, bytes=len(data), sha256=sha)


def change(value: Any, draw: random.Random) -> None:
    """Replace or remove something somewhere in a JSON value."""
    junk = (None, True, -1, 10**9, 2**70, 1.5, float("nan"), "", "x", [], {}, [[]], [{}], {"x": 1}, "numeric")
    while isinstance(value, dict | list) and value:
        key = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if draw.random() < 0.4 or not isinstance(value[key], dict | list) or not value[key]:
            if draw.random() < 0.3:
                del value[key]
            else:
                value[key] = draw.choice(junk)
            return
        value = value[key]


def _changed_arrays(data: bytes, types: dict[str, Any], draw: random.Random) -> tuple[bytes, dict[str, Any]]:
    """An ``.npz`` file with some elements, shapes or types changed."""
    arrays = _loaded(data)
    packed = "json" in arrays and draw.random() < 0.5
    if packed:  # values of keys
        value = json.loads(bytes(arrays["json"]))
        change(value, draw)
        arrays["json"] = np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
    for _ in range(draw.randint(1 - packed, 3 - 2 * packed)):
        name = draw.choice(sorted(arrays))
        array = arrays[name].copy()
        how = draw.random()
        if how < 0.7 and array.size:
            with np.errstate(all="ignore"):
                junk = np.array(draw.choice((*INTERESTING, 3, 5)), dtype=np.int64).astype(array.dtype)
                array.flat[draw.randrange(array.size)] = junk
        elif how < 0.8:
            array = array[: draw.randint(0, len(array))]
        elif how < 0.9:
            array = array.reshape(-1, 1) if array.ndim == 1 else array.ravel()
        else:
            with np.errstate(all="ignore"):
                array = array.astype(draw.choice((np.float64, np.int8, np.int32, np.uint64, np.bool_)))
        arrays[name] = array
    if draw.random() < 0.1:
        del arrays[draw.choice(sorted(arrays))]
    return _written(arrays)


def _loaded(data: bytes) -> dict[str, Any]:
    """The arrays of an ``.npz`` file."""
    return dict(np.load(io.BytesIO(data), allow_pickle=False))


def _written(arrays: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """An ``.npz`` file of arrays, and their types and shapes as the manifest names them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as members:
        for name, array in arrays.items():
            with members.open(zipfile.ZipInfo(f"{name}.npy"), "w") as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
    found = {name: {"dtype": array.dtype.str, "shape": list(array.shape)} for name, array in arrays.items()}
    return buffer.getvalue(), found


# -- learners --------------------------------------------------------------------------------------------------------
# Learners whose models and states are mutated: every case of each, the first of each also with a model for each key,
# and one run over the good rows of the corpus.

#: Cases by the folder of their model and state; one of each learner first, which the few mutations of each run reach.
LEARNERS: dict[str, Trial] = {trial.name.replace(": ", " "): trial for trial in (*first_cases(), *CASES)}

#: Those with a model for each key.
BY_KEY: dict[str, Trial] = {f"by key {trial.name.replace(': ', ' ')}": trial for trial in first_cases()}

noted("fuzzing", first_cases(), CASES)
noted("fuzzing by key", (), first_cases())
