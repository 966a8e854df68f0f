"""Identity of the data of a source: described, so that a difference can be named, and hashed.

Invariant: two sources have the same fingerprint exactly if what identifies their data is the same; their places are
not part of it, so that data may move. The names of files are in the description for messages only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from raydt.messages import Message, message


class Identity(NamedTuple):
    """Identity of a source's data."""

    fingerprint: str  #: ``sha256:`` and 64 hexadecimal digits.
    #: JSON values. Of files: ``kind``, ``schema`` (names and types), ``limit``, ``files`` (``name``, ``rows`` if the
    #: format says it, ``bytes``, ``sha256`` of the contents) and, in a drawn order, ``permutation``; of a generator:
    #: its options.
    description: dict[str, Any]


def hashed(text: str) -> str:
    """``sha256:`` of a text."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return in what two descriptions of data differ; ``then`` may be of another version."""
    found: list[str] = [
        message("sources.differs", what=key, then=_shown(then, key), now=_shown(now, key))
        for key in dict.fromkeys([*then, *now])
        if key not in ("files", "schema") and then.get(key) != now.get(key)
    ]
    try:
        found += _columns(dict(then.get("schema", [])), dict(now.get("schema", [])))
        found += _files(then.get("files", []), now.get("files", []))
    except (TypeError, ValueError, KeyError, AttributeError):
        found.append(message("sources.unknown_description"))
    return found


def is_continued(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return True if data are, by their descriptions, what they were, with more files behind those."""
    try:
        before, after = ([file["sha256"] for file in one["files"]] for one in (then, now))
    except (KeyError, TypeError):
        return False
    same = {**then, "files": None} == {**now, "files": None}
    return same and now.get("limit") is None and len(after) > len(before) and after[: len(before)] == before


def file_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Message | None:
    """Return in what one file differs from what it was; None if in nothing that counts."""
    if (then["rows"], then["bytes"], then["sha256"]) == (now["rows"], now["bytes"], now["sha256"]):
        return None
    name = then["name"] if then["name"] == now["name"] else f"{then['name']} (now {now['name']})"
    changes = [
        f"{then[key]:,} {key} then, {now[key]:,} now"
        for key in ("rows", "bytes")
        if then[key] != now[key] and None not in (then[key], now[key])
    ]
    if not changes:
        return message("sources.other_contents", file=name)
    return message("sources.other_length", file=name, lengths=", ".join(changes))


def _columns(then: dict[str, str], now: dict[str, str]) -> Iterator[Message]:
    for one, other, change in ((then, now, "gone"), (now, then, "new")):
        yield from (message(f"sources.{change}", what=f"column {n!r} ({one[n]})") for n in one if n not in other)
    for name, kind in then.items():
        if now.get(name, kind) != kind:
            yield message("sources.differs", what=f"column {name!r}", then=kind, now=now[name])
    if list(then) != list(now) and then.keys() == now.keys():
        yield message("sources.other_order", what="columns", then=", ".join(then), now=", ".join(now))


def _files(then: list[Mapping[str, Any]], now: list[Mapping[str, Any]]) -> Iterator[Message]:
    before, after = [file["sha256"] for file in then], [file["sha256"] for file in now]
    if before != after and sorted(before) == sorted(after):
        yield message("sources.other_order", what="files", then=_names(then), now=_names(now))
        return
    if len(before) != len(after):
        yield message("sources.other_files", then=len(before), now=len(after))
        yield from (message("sources.gone", what=file["name"]) for file in then if file["sha256"] not in after)
        yield from (message("sources.new", what=file["name"]) for file in now if file["sha256"] not in before)
        return
    for old, new in zip_longest(then, now):
        change = file_differences(old, new)
        if change is not None:
            yield change


def _names(files: list[Mapping[str, Any]]) -> str:
    return ", ".join(str(file["name"]) for file in files)


def _shown(values: Mapping[str, Any], key: str) -> str:
    return json.dumps(values[key]) if key in values else "not there"
