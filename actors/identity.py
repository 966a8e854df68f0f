"""Which sources a process has loaded, so that the processes of one job can be shown to run the same ones."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import raydt
from raydt.errors import RaydtError
from raydt.messages import message


@dataclass(frozen=True, slots=True)
class Identity:
    """Sources of one process: version, SHA-256 over the Python files, their folder; and which process it is."""

    version: str
    sources: str
    path: str
    pid: int
    host: str


@cache
def identity() -> Identity:
    """The identity of this process: every ``.py`` file of ``raydt`` and ``actors``, by relative path and content."""
    sha = hashlib.sha256()
    folders = [Path(raydt.__file__).resolve().parent, Path(__file__).resolve().parent]
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            content = file.read_bytes()
            sha.update(f"{file.relative_to(folder.parent).as_posix()}\0{len(content)}\0".encode() + content)
    return Identity(raydt.__version__, sha.hexdigest(), str(folders[0].parent), os.getpid(), platform.node())


def require_same(mine: Identity, theirs: Identity, name: str) -> None:
    """Refuse (RaydtError) a process that has loaded other sources, naming both folders and versions."""
    if (mine.version, mine.sources) == (theirs.version, theirs.sources):
        return
    here = (mine.path, mine.host) == (theirs.path, theirs.host)
    id = "cluster.changed_sources" if here else "cluster.other_sources"
    raise RaydtError(message(id, name=name, theirs=theirs, mine=mine))
