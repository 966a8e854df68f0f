"""Files that somebody else has put into every folder of a run, and the question whether they are as they were.

In each folder several kinds are drawn at random: files whose names begin with a dot, or are nearly those of raydt;
links to folders and files outside, and to nothing; hard links; folders; names that are not UTF-8.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.canaries import TEXT

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
